// Verifies what crawlgate signed with an implementation that shares no code with it. Reads one JSON object a line:
//
//   {"id", "kind": "request" | "directory", "label", "now", "maxLifetime", "form", "jwk", "kid",
//    "request": {"method", "targetUri", "fields": [[name, value], ...]}, "response": {"status", "fields"}}
//
// and writes {"id", "ok", "error"} for each. Node 20 or later.
import { createInterface } from 'node:readline'
import { verifySignature, webcrypto } from 'http-message-sig'

const named = fields => fields.map(([name, value]) => ({ name, value }))

async function verify(c) {
  const key = await crypto.subtle.importKey('jwk', c.jwk, { name: 'Ed25519' }, true, ['verify'])
  const directory = c.kind === 'directory'
  const request = { kind: 'request', method: c.request.method, targetUri: c.request.targetUri, fields: named(c.request.fields) }
  const message = directory ? { kind: 'response', status: c.response.status, fields: named(c.response.fields), request } : request
  const agent = c.form === 'string' ? 'signature-agent' : { name: 'signature-agent', parameters: { key: c.label } }
  const tag = directory ? 'http-message-signatures-directory' : 'web-bot-auth'
  await verifySignature(message, {
    label: c.label,
    policy: {
      algorithms: ['ed25519'],
      now: c.now,
      clockSkew: 5,
      requiredComponents: directory ? [{ name: '@authority', parameters: { req: true } }, 'content-digest'] : ['@authority', agent],
      requiredParameters: ['created', 'expires', 'keyid', 'tag'],
      validate: s => s.parameters.tag === tag && s.parameters.expires - s.parameters.created <= c.maxLifetime,
    },
    resolveVerifier: candidate =>
      candidate.parameters.keyid === c.kid ? webcrypto.verifier(key) : Promise.reject(new Error('unknown key')),
  })
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
  process.stdout.write(JSON.stringify({ id: c.id, ok: error === '', error }) + '\n')
}
