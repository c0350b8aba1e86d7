package sign

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

// formSigner signs with one key in one form. Without nonce the httpsign signer is shared; with it, each request gets its own.
type formSigner struct {
	config     Config
	key        key
	fields     httpsign.Fields
	agentField string // value of Signature-Agent
	components string
	shared     *httpsign.Signer
	header     http.Header // of every surrogate: only read
}

// signed is what one signature needs on the wire, and its times in Unix seconds.
type signed struct {
	input, signature string
	created, expires int64
}

// newFormSigner prepares a signer. Its arguments have been validated.
func newFormSigner(c Config, agentURL, form string, k key) *formSigner {
	f := &formSigner{config: c, key: k, fields: requestFields(c, form)}
	f.agentField = agentField(c.Label, agentURL, form)
	f.header = http.Header{"Signature-Agent": {f.agentField}}
	names := []string{`"@authority"`}
	if c.Components == ComponentsBound {
		names = append(names, `"@method"`, `"@path"`)
	}
	agent := `"signature-agent"`
	if form == FormDictionary {
		agent += `;key="` + c.Label + `"`
	}
	f.components = strings.Join(append(names, agent), " ")
	if !c.Nonce {
		// An error shows again when the signer is needed.
		f.shared, _ = f.newSigner("")
	}
	return f
}

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

func (f *formSigner) newSigner(nonce string) (*httpsign.Signer, error) {
	c := httpsign.NewSignConfig().SignAlg(f.config.Alg).SetExpiresAfter(int64(f.config.Lifetime / time.Second)).
		SetTag(tagRequest).SetKeyID(f.key.id).SetNonce(nonce)
	return httpsign.NewEd25519Signer(f.key.private, c, f.fields)
}

// sign takes a surrogate request that nothing else uses.
func (f *formSigner) sign(surrogate *http.Request) (signed, error) {
	signer := f.shared
	if signer == nil {
		nonce := ""
		if f.config.Nonce {
			var b [nonceBytes]byte
			_, _ = rand.Read(b[:]) // crypto/rand never fails
			nonce = base64.StdEncoding.EncodeToString(b[:])
		}
		var err error
		if signer, err = f.newSigner(nonce); err != nil {
			return signed{}, err
		}
	}
	return f.signWith(signer, surrogate)
}

func (f *formSigner) signWith(signer *httpsign.Signer, surrogate *http.Request) (out signed, err error) {
	surrogate.Header = f.header
	out.input, out.signature, err = httpsign.SignRequest(f.config.Label, *signer, surrogate)
	if err != nil {
		return signed{}, err
	}
	if out.created, err = intParameter(out.input, ";created="); err != nil {
		return signed{}, err
	}
	out.expires, err = intParameter(out.input, ";expires=")
	return out, err
}

// intParameter reads a number back out of a Signature-Input value that this program made.
func intParameter(input, name string) (int64, error) {
	_, rest, found := strings.Cut(input, name)
	if !found {
		return 0, fmt.Errorf("no %s in the signature input", strings.Trim(name, ";="))
	}
	digits, _, _ := strings.Cut(rest, ";")
	return strconv.ParseInt(digits, 10, 64)
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
		out, err := f.sign(surrogateSample())
		if err != nil {
			return err
		}
		r := surrogateSample()
		r.Header = http.Header{"Signature-Agent": {f.agentField}, "Signature-Input": {out.input}, "Signature": {out.signature}}
		if err := verifyWithHTTPSign(c.Label, k.public, f.fields, r); err != nil {
			return err
		}
	}
	return nil
}

func surrogateSample() *http.Request {
	r, _ := surrogateRequest(Request{Method: http.MethodGet, Authority: "self-check.invalid", Path: "/a%2Fb"}, true)
	return r
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
