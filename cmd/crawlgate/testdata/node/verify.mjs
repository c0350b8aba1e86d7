// Verifies signed requests as an origin would, with an implementation that shares no code with crawlgate. Reads one
// JSON object a line, {"id", "now", "jwk", "kid", "method", "targetUri", "fields": [[name, value], ...]}, and writes
// {"id", "error"} for each; an empty error is a good signature.
import { createInterface } from 'node:readline'
import { verifySignature, webcrypto } from 'http-message-sig'

async function verify(c) {
  const key = await crypto.subtle.importKey('jwk', c.jwk, { name: 'Ed25519' }, true, ['verify'])
  await verifySignature(
    { kind: 'request', method: c.method, targetUri: c.targetUri, fields: c.fields.map(([name, value]) => ({ name, value })) },
    {
      label: 'sig1',
      policy: {
        algorithms: ['ed25519'],
        now: c.now,
        clockSkew: 5,
        requiredComponents: ['@authority', { name: 'signature-agent', parameters: { key: 'sig1' } }],
        requiredParameters: ['created', 'expires', 'keyid', 'tag'],
        validate: s => s.parameters.tag === 'web-bot-auth' && s.parameters.expires - s.parameters.created <= 300,
      },
      resolveVerifier: candidate => (candidate.parameters.keyid === c.kid ? webcrypto.verifier(key) : Promise.reject(new Error('unknown key'))),
    },
  )
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() === '') continue
  const c = JSON.parse(line)
  let error = ''
  try {
    await verify(c)
  } catch (e) {
    error = String(e.code ?? e.message ?? e)
  }
  process.stdout.write(JSON.stringify({ id: c.id, error }) + '\n')
}
