package sign

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/yaronf/httpsign"
)

// formSigner signs with one key in one form. The signature base is written here and not by httpsign, which takes as long
// for it as the signature itself takes (it parses and copies the request, and builds every field anew); what a request
// changes are its authority, its times, a nonce, and with bound components method and path. httpsign's verifier has the
// last word on each key when it is loaded (selfCheck), and on random requests in the tests.
type formSigner struct {
	key        key
	label      string
	lifetime   int64 // seconds
	nonce      bool
	bound      bool
	fields     httpsign.Fields // the same components, for the verifier
	agentField string          // value of Signature-Agent
	components string
	agentLine  string // of the base
	after      string // parameters after the times and the nonce
}

// signed is what one signature needs on the wire, and its times in Unix seconds.
type signed struct {
	input, signature string
	created, expires int64
}

// newFormSigner prepares a signer. Its arguments have been validated.
func newFormSigner(c Config, agentURL, form string, k key) *formSigner {
	f := &formSigner{key: k, label: c.Label, lifetime: int64(c.Lifetime / time.Second), nonce: c.Nonce, bound: c.Components == ComponentsBound, fields: requestFields(c, form)}
	f.agentField = agentField(c.Label, agentURL, form)
	names := []string{`"@authority"`}
	if f.bound {
		names = append(names, `"@method"`, `"@path"`)
	}
	agent := `"signature-agent"`
	if form == FormDictionary {
		agent += `;key="` + c.Label + `"`
	}
	f.components = strings.Join(append(names, agent), " ")
	// A dictionary's member is covered by its own value (RFC 9421 2.1.2), which is that of the string form.
	f.agentLine = "\n" + agent + ": " + agentField(c.Label, agentURL, FormString) + "\n"
	if c.Alg {
		f.after = `;alg="` + algEd25519 + `"`
	}
	f.after += `;tag="` + tagRequest + `";keyid="` + k.id + `"`
	return f
}

// sign signs one request (RFC 9421 3.1). With bound components its method and path have been checked.
func (f *formSigner) sign(r Request, now time.Time) signed {
	out := signed{created: now.Unix()}
	out.expires = out.created + f.lifetime
	var params [512]byte
	p := f.appendParams(params[:0], out)
	var base [1024]byte
	b := append(base[:0], `"@authority": `...)
	b = append(b, r.Authority...)
	if f.bound {
		b = append(b, "\n\"@method\": "...)
		b = append(b, r.Method...)
		b = append(b, "\n\"@path\": "...)
		b = append(b, r.Path...)
	}
	b = append(b, f.agentLine...)
	b = append(b, `"@signature-params": `...)
	b = append(b, p...)
	sum := ed25519.Sign(f.key.private, b)

	w := append(base[:0], f.label...)
	w = append(w, '=', ':')
	w = base64.StdEncoding.AppendEncode(w, sum)
	out.signature = string(append(w, ':'))
	w = append(base[:0], f.label...)
	w = append(w, '=')
	out.input = string(append(w, p...))
	return out
}

// appendParams writes the components and parameters of a signature (RFC 9421 2.3).
func (f *formSigner) appendParams(p []byte, s signed) []byte {
	p = append(p, '(')
	p = append(p, f.components...)
	p = append(p, ");created="...)
	p = strconv.AppendInt(p, s.created, 10)
	p = append(p, ";expires="...)
	p = strconv.AppendInt(p, s.expires, 10)
	if f.nonce {
		var n [nonceBytes]byte
		_, _ = rand.Read(n[:]) // never fails
		p = append(p, `;nonce="`...)
		p = base64.StdEncoding.AppendEncode(p, n[:])
		p = append(p, '"')
	}
	return append(p, f.after...)
}
