// Fetches URLs with undici, one after the other, by way of a proxy, and writes {"url", "status", "headers", "body"} or
// {"url", "error"} for each. First argument: "env" reads the proxy variables, "agent" is pointed at CRAWLGATE_PROXY and
// CRAWLGATE_CA.
import { readFileSync } from 'node:fs'
import { EnvHttpProxyAgent, ProxyAgent, fetch, setGlobalDispatcher } from 'undici'

const [how, ...urls] = process.argv.slice(2)
setGlobalDispatcher(
  how === 'env' ? new EnvHttpProxyAgent() : new ProxyAgent({ uri: process.env.CRAWLGATE_PROXY, requestTls: { ca: readFileSync(process.env.CRAWLGATE_CA) } }),
)
for (const url of urls) {
  let out = { url }
  try {
    const r = await fetch(url, { headers: { 'user-agent': 'undici-client/1.0' }, redirect: 'manual' })
    out = { url, status: r.status, headers: Object.fromEntries(r.headers), body: await r.text() }
  } catch (e) {
    out.error = String(e.cause ?? e)
  }
  process.stdout.write(JSON.stringify(out) + '\n')
}
