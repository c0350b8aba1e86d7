// Fetches URLs with axios: "env" leaves the proxy to axios, "agent" to https-proxy-agent.
import axios from 'axios'
import { HttpsProxyAgent } from 'https-proxy-agent'

const [how, ...urls] = process.argv.slice(2)
const agent = how === 'agent' ? new HttpsProxyAgent(process.env.HTTPS_PROXY) : undefined
const options = agent ? { proxy: false, httpAgent: agent, httpsAgent: agent } : {}
for (const url of urls) {
  let out = { url }
  try {
    const r = await axios.get(url, { ...options, validateStatus: () => true, responseType: 'text', transformResponse: d => d })
    out = { url, status: r.status, headers: { ...r.headers }, body: r.data }
  } catch (e) {
    out.error = String(e)
  }
  console.log(JSON.stringify(out))
}
