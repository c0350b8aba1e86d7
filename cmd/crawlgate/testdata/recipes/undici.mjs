// Fetches URLs with fetch of undici. What points it at the proxy is put above by the test, from the recipe.
import { fetch } from 'undici'

for (const url of process.argv.slice(2)) {
  let out = { url }
  try {
    const r = await fetch(url)
    out = { url, status: r.status, headers: Object.fromEntries(r.headers), body: await r.text() }
  } catch (e) {
    out.error = String(e.cause ?? e)
  }
  console.log(JSON.stringify(out))
}
