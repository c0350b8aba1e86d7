// Opens a WebSocket by way of a proxy, sends one message and writes what comes back until the site closes it.
import { readFileSync } from 'node:fs'
import { ProxyAgent, WebSocket } from 'undici'

const dispatcher = new ProxyAgent({ uri: process.env.CRAWLGATE_PROXY, requestTls: { ca: readFileSync(process.env.CRAWLGATE_CA) } })
const ws = new WebSocket(process.argv[2], { dispatcher })
ws.addEventListener('open', () => ws.send('hello'))
ws.addEventListener('message', e => process.stdout.write(`got ${e.data}\n`))
ws.addEventListener('error', e => process.stdout.write(`error ${e.message}\n`))
ws.addEventListener('close', e => {
  process.stdout.write(`closed ${e.code}\n`)
  dispatcher.close()
})
