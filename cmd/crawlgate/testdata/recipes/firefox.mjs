// Stands in for the command firefox-esr: starts it with the same arguments, drives it by WebDriver BiDi, and prints what
// it shows. TITLE waits for a page's scripts to set the title.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import puppeteer from 'puppeteer-core'

const args = process.argv.slice(2)
const url = args.pop()
const firefox = spawn('/usr/bin/firefox-esr', ['--remote-debugging-port=0', ...args, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] })
const endpoint = await new Promise((found, failed) => {
  firefox.on('exit', (code) => failed(new Error(`firefox ended with ${code}`)))
  createInterface(firefox.stderr).on('line', (line) => {
    const m = /WebDriver BiDi listening on (ws:\S+)/.exec(line)
    if (m) found(m[1] + '/session')
  })
})
const browser = await puppeteer.connect({ browserWSEndpoint: endpoint, protocol: 'webDriverBiDi' })
const page = await browser.newPage()
const r = await page.goto(url)
if (process.env.TITLE) await page.waitForFunction((title) => document.title === title, { timeout: 60000 }, process.env.TITLE)
const shown = { url, status: r.status(), headers: r.headers(), body: await page.content(), agent: await page.evaluate(() => navigator.userAgent) }
console.log(JSON.stringify(shown))
await browser.close()
