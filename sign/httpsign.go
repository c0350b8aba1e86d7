package sign

import (
	"crypto/ed25519"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/yaronf/httpsign"
)

const (
	tagRequest   = "web-bot-auth"
	tagDirectory = "http-message-signatures-directory"
	algEd25519   = "ed25519"
	nonceBytes   = 64
)

func requestFields(c Config, form string) httpsign.Fields {
	f := httpsign.NewFields().AddHeader("@authority")
	if c.Components == ComponentsBound {
		f.AddHeader("@method").AddHeader("@path")
	}
	if form == FormDictionary {
		return *f.AddDictHeader("signature-agent", c.Label)
	}
	return *f.AddHeader("signature-agent")
}

// agentField is the value of Signature-Agent; "" when it can't be written, which validation excludes.
func agentField(label, agentURL, form string) string {
	item := httpsfv.NewItem(agentURL)
	var field httpsfv.StructuredFieldValue = item
	if form == FormDictionary {
		d := httpsfv.NewDictionary()
		d.Add(label, item)
		field = d
	}
	value, err := httpsfv.Marshal(field)
	if err != nil {
		return ""
	}
	return value
}

// selfCheck signs with a key and verifies the outcome by httpsign's own verifier, in both forms.
func selfCheck(c Config, agentURL string, k key) error {
	if k.private == nil {
		return nil
	}
	for _, form := range []string{FormDictionary, FormString} {
		f := newFormSigner(c, agentURL, form, k)
		if f.agentField == "" {
			return errors.New("signature_agent can't be written as a structured field")
		}
		sample := Request{Method: http.MethodGet, Authority: "self-check.invalid", Path: "/a%2Fb"}
		out := f.sign(sample, time.Now())
		r := surrogate(sample)
		r.Header = http.Header{"Signature-Agent": {f.agentField}, "Signature-Input": {out.input}, "Signature": {out.signature}}
		if err := verifyWithHTTPSign(c.Label, k.public, f.fields, r); err != nil {
			return err
		}
	}
	return nil
}

// surrogate is a request that the library can read the covered components from.
func surrogate(r Request) *http.Request {
	return &http.Request{Method: r.Method, URL: &url.URL{Scheme: "https", Host: r.Authority, Path: unescaped(r.Path), RawPath: r.Path}, Host: r.Authority}
}

func unescaped(path string) string {
	p, _ := url.PathUnescape(path) // checked before
	return p
}

// verifyWithHTTPSign is the library's opinion on a request: right signature, not expired.
func verifyWithHTTPSign(label string, public ed25519.PublicKey, fields httpsign.Fields, r *http.Request) error {
	c := httpsign.NewVerifyConfig().SetNotOlderThan(24 * time.Hour).SetAllowedTags([]string{tagRequest})
	v, err := httpsign.NewEd25519Verifier(public, c, fields)
	if err != nil {
		return err
	}
	return httpsign.VerifyRequest(label, *v, r)
}
