// Opens URLs in Chromium by Puppeteer, launched with the options in the file "recipe".
import { readFileSync } from 'node:fs'
import puppeteer from 'puppeteer-core'

const options = (0, eval)('(' + readFileSync('recipe', 'utf8') + ')')
options.args.push('--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage') // tests run as root, some in a container
const browser = await puppeteer.launch(options)
const page = await browser.newPage()
for (const url of process.argv.slice(2)) {
  const r = await page.goto(url)
  console.log(JSON.stringify({ url, status: r.status(), headers: r.headers(), body: await page.content(), agent: await page.evaluate(() => navigator.userAgent) }))
}
await browser.close()
