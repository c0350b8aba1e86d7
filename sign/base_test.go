package sign

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/yaronf/httpsign"
)

// TestBaseAgrees signs random requests in every configuration: httpsign's own verifier accepts each one, and httpsign's own
// signer writes the same Signature-Input but for what is random or of the moment.
func TestBaseAgrees(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		c := Defaults()
		c.Alg, c.Nonce = n&1 == 0, n&2 == 0
		if n&4 == 0 {
			c.Components = ComponentsBound
		}
		c.Label = []string{"sig1", "*a.b-c_9", "wba"}[rnd.IntN(3)]
		c.Lifetime = time.Duration(1+rnd.IntN(600)) * time.Second
		agent := []string{"https://bot.example.com", "https://b.example/dir?x=1&y=%22"}[rnd.IntN(2)]
		form := []string{FormDictionary, FormString}[rnd.IntN(2)]
		f := newFormSigner(c, agent, form, testKey(byte(1+rnd.IntN(3))))
		r := Request{Method: []string{"GET", "POST", "M-SEARCH"}[rnd.IntN(3)], Authority: []string{"example.com", "xn--bcher-kva.example:8443", "[2001:db8::1]:8443"}[rnd.IntN(3)],
			Path: []string{"/", "/a%2Fb", "/" + strings.Repeat("x", rnd.IntN(3000)), "/a/b;c=d,e@f"}[rnd.IntN(4)]}
		if err := bindable(&r); err != nil {
			t.Fatal(err)
		}
		out := f.sign(r, time.Now())
		s := surrogate(r)
		s.Header = http.Header{"Signature-Agent": {f.agentField}, "Signature-Input": {out.input}, "Signature": {out.signature}}
		if err := verifyWithHTTPSign(c.Label, f.key.public, f.fields, s); err != nil {
			t.Fatalf("%+v %+v %s: %v\n%s", c, r, form, err, out.input)
		}
		s.Header = http.Header{"Signature-Agent": {f.agentField}}
		config := httpsign.NewSignConfig().SignAlg(c.Alg).SetExpiresAfter(f.lifetime).SetTag(tagRequest).SetKeyID(f.key.id).SetNonce(nonceOf(out.input))
		theirs, err := httpsign.NewEd25519Signer(f.key.private, config, f.fields)
		if err != nil {
			t.Fatal(err)
		}
		input, _, err := httpsign.SignRequest(c.Label, *theirs, s)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := untimed(out.input), untimed(input); got != want {
			t.Fatalf("ours   %s\ntheirs %s", got, want)
		}
		// A changed byte is noticed.
		if changed := strings.Replace(r.Authority, "8443", "8444", 1); changed != r.Authority {
			s.Host, s.URL = changed, &url.URL{Scheme: "https", Host: changed, Path: s.URL.Path, RawPath: s.URL.RawPath}
			s.Header = http.Header{"Signature-Agent": {f.agentField}, "Signature-Input": {out.input}, "Signature": {out.signature}}
			if verifyWithHTTPSign(c.Label, f.key.public, f.fields, s) == nil {
				t.Fatal("another authority was accepted")
			}
		}
	}
}

func nonceOf(input string) string {
	_, rest, _ := strings.Cut(input, `;nonce="`)
	n, _, _ := strings.Cut(rest, `"`)
	return n
}

// untimed is a Signature-Input without its times.
func untimed(input string) string {
	before, rest, _ := strings.Cut(input, ";created=")
	_, rest, _ = strings.Cut(rest, ";expires=")
	return before + strings.TrimLeft(rest, "0123456789")
}
