// Verifies what crawlgate signed as others would, with an implementation that shares no code with it. Reads one JSON
// object a line,
//
//   {"id", "now", "jwk", "kid", "method", "targetUri", "fields": [[name, value], ...]}
//
// and writes {"id", "error"} for each; an empty error is a good signature. What else a line may say: "label" (sig1
// without it), "form" ("string": the older form of Signature-Agent), "components" (covered beside the host and the
// agent), "parameters" (wanted beside the usual ones), and for a key directory "response": {"status", "fields"}, which
// is then what was signed.
import { createInterface } from 'node:readline'
import { verifySignature, webcrypto } from 'http-message-sig'

const named = fields => fields.map(([name, value]) => ({ name, value }))

async function verify(c) {
  const key = await crypto.subtle.importKey('jwk', c.jwk, { name: 'Ed25519' }, true, ['verify'])
  const label = c.label ?? 'sig1'
  const request = { kind: 'request', method: c.method, targetUri: c.targetUri, fields: named(c.fields ?? []) }
  const message = c.response ? { kind: 'response', status: c.response.status, fields: named(c.response.fields), request } : request
  const agent = c.form === 'string' ? 'signature-agent' : { name: 'signature-agent', parameters: { key: label } }
  const covered = c.response ? [{ name: '@authority', parameters: { req: true } }, 'content-digest'] : ['@authority', agent]
  const tag = c.response ? 'http-message-signatures-directory' : 'web-bot-auth'
  const longest = c.response ? 7 * 86400 : 300
  await verifySignature(message, {
    label,
    policy: {
      algorithms: ['ed25519'],
      now: c.now,
      clockSkew: 5,
      requiredComponents: covered.concat(c.components ?? []),
      requiredParameters: ['created', 'expires', 'keyid', 'tag'].concat(c.parameters ?? []),
      validate: s => s.parameters.tag === tag && s.parameters.expires - s.parameters.created <= longest,
    },
    resolveVerifier: candidate => (candidate.parameters.keyid === c.kid ? webcrypto.verifier(key) : Promise.reject(new Error('unknown key'))),
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
  process.stdout.write(JSON.stringify({ id: c.id, error }) + '\n')
}
