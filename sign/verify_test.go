package sign

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	goodAgent      = "https://bot.example.com"
	goodComponents = `"@authority" "signature-agent";key="sig1"`
	verifyTime     = vectorTime + 10
)

// testKey is a fixed key that is nobody's.
func testKey(n byte) key {
	seed := [ed25519.SeedSize]byte{n, 0xc6}
	return newKey(ed25519.NewKeyFromSeed(seed[:]))
}

func setOf(t testing.TB, ks ...key) *KeySet {
	t.Helper()
	list := []jwk{}
	for _, k := range ks {
		list = append(list, k.jwk())
	}
	data, err := json.Marshal(map[string]any{"keys": list})
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseKeySet(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forgery is a request that is signed correctly over whatever it says.
type forgery struct {
	method, url, host, scheme string
	agent                     []string // lines of Signature-Agent
	label, components, params string
	extra                     [][2]string
	key                       key
}

func goodForgery() forgery {
	k := testKey(1)
	return forgery{method: "GET", url: "https://example.com/", host: "example.com", agent: []string{`sig1="` + goodAgent + `"`},
		label: "sig1", components: goodComponents,
		params: fmt.Sprintf(`;created=%d;expires=%d;alg="ed25519";tag="web-bot-auth";keyid="%s"`, vectorTime, vectorTime+60, k.id), key: k}
}

// capture signs the forgery with the verifier's own base; that base is checked against the vectors elsewhere.
func (f forgery) capture(t testing.TB) Capture {
	t.Helper()
	c := Capture{Method: f.method, Target: f.url, Scheme: f.scheme, Fields: append([][2]string{}, f.extra...)}
	if f.host != "" {
		c.Fields = append(c.Fields, [2]string{"Host", f.host})
	}
	for _, line := range f.agent {
		c.Fields = append(c.Fields, [2]string{"Signature-Agent", line})
	}
	c.Fields = append(c.Fields, [2]string{"Signature-Input", f.label + "=(" + f.components + ")" + f.params})
	unsigned := Capture{Method: c.Method, Target: c.Target, Scheme: c.Scheme, Fields: append(append([][2]string{}, c.Fields...), [2]string{"Signature", f.label + "=:AA==:"})}
	signature := make([]byte, ed25519.SignatureSize)
	if m, err := requestMessage(unsigned); err == nil {
		if fields, fail := readSignatureFields(m); fail == nil {
			if base, err := m.base(fields.signature(f.label).input); err == nil {
				signature = ed25519.Sign(f.key.private, []byte(base))
			}
		}
	}
	c.Fields = append(c.Fields, [2]string{"Signature", f.label + "=:" + base64.StdEncoding.EncodeToString(signature) + ":"})
	return c
}

func testVerifier(s *KeySet) Verifier {
	return Verifier{Keys: s, Now: time.Unix(verifyTime, 0), Skew: DefaultSkew, MaxLifetime: DefaultMaxLifetime}
}

func TestVerifyRules(t *testing.T) {
	replace := func(old, with string) func(*forgery) {
		return func(f *forgery) {
			if !strings.Contains(f.params, old) {
				t.Fatalf("%q is not in %q", old, f.params)
			}
			f.params = strings.Replace(f.params, old, with, 1)
		}
	}
	cover := func(components string) func(*forgery) { return func(f *forgery) { f.components = components } }
	agent := func(lines ...string) func(*forgery) { return func(f *forgery) { f.agent = lines } }
	created := fmt.Sprintf(";created=%d", vectorTime)
	expires := fmt.Sprintf(";expires=%d", vectorTime+60)
	for _, c := range []struct {
		name   string
		change func(*forgery)
		want   string // reason, or verified
	}{
		{"good", func(*forgery) {}, Verified},
		{"no alg", replace(`;alg="ed25519"`, ""), Verified},
		{"another parameter", replace(`;tag`, `;nonce="x";tag`), Verified},
		{"parameter order", replace(created+expires, expires+created), Verified},
		{"target-uri instead of authority", cover(`"@target-uri" "signature-agent";key="sig1"`), Verified},
		{"everything a request has", cover(goodComponents + ` "@method" "@path" "@query" "@scheme" "@request-target" "host"`), Verified},
		{"query parameter", func(f *forgery) {
			f.url, f.components = "https://example.com/?a%20b=c+d", goodComponents+` "@query-param";name="a%20b"`
		}, Verified},
		{"field as bytes", func(f *forgery) {
			f.extra, f.components = [][2]string{{"X-Two", " a "}, {"x-two", "b"}}, goodComponents+` "x-two";bs`
		}, Verified},
		{"label of all kinds of bytes", func(f *forgery) {
			f.label, f.agent, f.components = "*a-9_.b", []string{`*a-9_.b="` + goodAgent + `"`}, `"@authority" "signature-agent";key="*a-9_.b"`
		}, Verified},
		{"agent in two lines", agent(`other="https://x.example"`, `sig1="`+goodAgent+`"`), Verified},
		{"string form", func(f *forgery) {
			f.agent, f.components = []string{`"` + goodAgent + `"`}, `"@authority" "signature-agent"`
		}, Verified},
		{"last second", replace(expires, fmt.Sprintf(";expires=%d", verifyTime)), Verified},
		{"created at the edge of the skew", replace(created, fmt.Sprintf(";created=%d", verifyTime+5)), Verified},
		{"longest lifetime", replace(expires, fmt.Sprintf(";expires=%d", vectorTime+86400)), Verified},
		{"host of two cases and port", func(f *forgery) { f.host = "EXAMPLE.com.:443" }, Verified},
		{"origin form", func(f *forgery) { f.url, f.scheme = "/a?b", "https" }, Verified},

		{"http", func(f *forgery) { f.url = "http://example.com/" }, "signed-over-http"},
		{"no host", func(f *forgery) { f.host = "" }, "malformed-request"},
		{"two hosts", func(f *forgery) { f.extra = [][2]string{{"host", "example.com"}} }, "malformed-request"},
		{"host of another target", func(f *forgery) { f.host = "example.org" }, "malformed-request"},
		{"user info in the host", func(f *forgery) { f.host = "a@example.com" }, "malformed-request"},
		{"scheme of another protocol", func(f *forgery) { f.url = "ftp://example.com/" }, "malformed-request"},
		{"label twice in one line", func(f *forgery) { f.params += `, sig1=("@authority")` }, "duplicate-label"},
		{"label twice in two lines", func(f *forgery) { f.extra = [][2]string{{"Signature-Input", `sig1=("@method")`}} }, "duplicate-label"},
		{"agent label twice", agent(`sig1="https://a.example", sig1="` + goodAgent + `"`), "duplicate-label"},
		{"another label in Signature", func(f *forgery) { f.extra = [][2]string{{"Signature", "x=:AA==:"}} }, "label-mismatch"},
		{"another label in Signature-Input", func(f *forgery) { f.extra = [][2]string{{"Signature-Input", `x=()`}} }, "label-mismatch"},
		{"input is not a dictionary", func(f *forgery) { f.params += "," }, "malformed-signature-input"},
		{"input is an item", func(f *forgery) {
			f.extra = [][2]string{{"Signature-Input", `x=1;tag="web-bot-auth"`}, {"Signature", "x=:AA==:"}}
		}, "malformed-signature-input"},
		{"covered token", cover(`authority`), "malformed-signature-input"},
		{"agent is no structured field", agent(goodAgent), "malformed-signature-agent"},
		{"agent is two strings", agent(`"https://a.example"`, `"https://b.example"`), "malformed-signature-agent"},
		{"no tag", replace(`;tag="web-bot-auth"`, ""), "missing-tag"},
		{"other tag", replace(`web-bot-auth`, "web-bot"), "wrong-tag"},
		{"tag is a token", replace(`"web-bot-auth"`, "web-bot-auth"), "wrong-tag"},
		{"no created", replace(created, ""), "missing-created"},
		{"no expires", replace(expires, ""), "missing-expires"},
		{"no keyid", func(f *forgery) { f.params, _, _ = strings.Cut(f.params, ";keyid") }, "missing-keyid"},
		{"created is a decimal", replace(created, created+".5"), "malformed-created"},
		{"created is a date", replace(created, fmt.Sprintf(";created=@%d", vectorTime)), "malformed-created"},
		{"created is negative", replace(created, ";created=-1"), "malformed-created"},
		{"expires is a string", replace(expires, `;expires="1735689660"`), "malformed-expires"},
		{"keyid is bytes", replace(`keyid="`+testKey(1).id+`"`, `keyid=:AA==:`), "malformed-keyid"},
		{"keyid is empty", replace(`keyid="`+testKey(1).id+`"`, `keyid=""`), "malformed-keyid"},
		{"created past the skew", replace(created, fmt.Sprintf(";created=%d", verifyTime+6)), "created-in-future"},
		{"expires is created", replace(expires, fmt.Sprintf(";expires=%d", vectorTime)), "expires-before-created"},
		{"second after", replace(expires, fmt.Sprintf(";expires=%d", verifyTime-1)), "expired"},
		{"lifetime a second over", replace(expires, fmt.Sprintf(";expires=%d", vectorTime+86401)), "lifetime-too-long"},
		{"alg of JOSE", replace(`"ed25519"`, `"EdDSA"`), "wrong-alg"},
		{"alg is a token", replace(`"ed25519"`, `ed25519`), "wrong-alg"},
		{"authority of another message", cover(`"@authority";req "signature-agent";key="sig1"`), "authority-not-covered"},
		{"only the path covered", cover(`"@path" "signature-agent";key="sig1"`), "authority-not-covered"},
		{"same component, parameters turned", func(f *forgery) {
			f.extra, f.components = [][2]string{{"x", "a=1"}}, goodComponents+` "x";key="a";bs "x";bs;key="a"`
		}, "duplicate-component"},
		{"no agent", agent(), "missing-signature-agent"},
		{"empty agent", agent(""), "missing-signature-agent"},
		{"agent of another label", agent(`sig2="` + goodAgent + `"`), "agent-label-mismatch"},
		{"dictionary covered as a whole", cover(`"@authority" "signature-agent"`), "agent-not-covered"},
		{"string covered with a key", agent(`"` + goodAgent + `"`), "agent-not-covered"},
		{"agent covered as bytes", cover(`"@authority" "signature-agent";key="sig1";bs`), "agent-not-covered"},
		{"agent is a token", agent(`sig1=abc`), "agent-not-https"},
		{"agent is true", agent(`sig1`), "agent-not-https"},
		{"agent is a list", agent(`sig1=("` + goodAgent + `")`), "agent-not-https"},
		{"agent over http", agent(`sig1="http://bot.example.com"`), "agent-not-https"},
		{"agent is relative", agent(`sig1="//bot.example.com"`), "agent-not-https"},
		{"agent with user info", agent(`sig1="https://u@bot.example.com"`), "agent-not-https"},
		{"agent with fragment", agent(`sig1="https://bot.example.com/#a"`), "agent-not-https"},
		{"agent parameters", agent(`sig1="` + goodAgent + `";type=directory`), "agent-member-parameters"},
		{"agent parameters, string form", func(f *forgery) {
			f.agent, f.components = []string{`"` + goodAgent + `";a`}, `"@authority" "signature-agent"`
		}, "agent-member-parameters"},
		{"unknown key", func(f *forgery) {
			f.key = testKey(9)
			f.params = strings.Replace(f.params, testKey(1).id, testKey(9).id, 1)
		}, "unknown-key"},
		{"signed by another key", func(f *forgery) { f.key = testKey(9) }, "bad-signature"},
		{"field that is not there", cover(goodComponents + ` "x-not"`), "bad-signature"},
		{"component of a response", cover(goodComponents + ` "@status"`), "bad-signature"},
		{"unknown component", cover(goodComponents + ` "@moon"`), "bad-signature"},
		{"name in capitals", cover(goodComponents + ` "Host"`), "bad-signature"},
		{"field outside ASCII", func(f *forgery) {
			f.extra, f.components = [][2]string{{"X-A", "caf\xc3\xa9"}}, goodComponents+` "x-a"`
		}, "bad-signature"},
		{"line break in a field", func(f *forgery) {
			f.extra, f.components = [][2]string{{"X-A", "a\n\"x\": b"}}, goodComponents+` "x-a"`
		}, "bad-signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := goodForgery()
			c.change(&f)
			r := testVerifier(setOf(t, testKey(1), testKey(2))).Verify(f.capture(t))
			want := c.want
			if r.Outcome == Verified && want == Verified {
				want = ""
			}
			if r.Reason != want || (r.Outcome == Verified) != (want == "") {
				t.Errorf("%+v, want %s", r, c.want)
			}
			if wantOutcome := map[bool]string{true: Unverified, false: Invalid}[want == "unknown-key"]; want != "" && r.Outcome != wantOutcome {
				t.Errorf("outcome %s, want %s", r.Outcome, wantOutcome)
			}
		})
	}
}

func TestVerifyWithoutSignature(t *testing.T) {
	for name, c := range map[string]Capture{
		"plain":          {Method: "GET", Target: "https://example.com/", Fields: [][2]string{{"Host", "example.com"}}},
		"http":           {Method: "GET", Target: "http://example.com/", Fields: [][2]string{{"Host", "example.com"}}},
		"only the agent": {Method: "GET", Target: "https://example.com/", Fields: [][2]string{{"Host", "example.com"}, {"Signature-Agent", `sig1="https://a.example"`}}},
		"empty fields":   {Method: "GET", Target: "https://example.com/", Fields: [][2]string{{"Host", "example.com"}, {"Signature", ""}, {"Signature-Input", ""}}},
	} {
		if r := testVerifier(setOf(t, testKey(1))).Verify(c); r.Outcome != Unverified || r.Reason != "no-signature" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestVerifyShortSignature(t *testing.T) {
	c := goodForgery().capture(t)
	c.Fields[len(c.Fields)-1][1] = "sig1=:AAAA:"
	if r := testVerifier(setOf(t, testKey(1))).Verify(c); r.Reason != "bad-signature" {
		t.Errorf("%+v", r)
	}
	c.Fields[len(c.Fields)-1][1] = `sig1="AAAA"`
	if r := testVerifier(setOf(t, testKey(1))).Verify(c); r.Reason != "malformed-signature" {
		t.Errorf("%+v", r)
	}
}

// TestVerifyEachLabelAlone: a foreign signature beside a good one does not spoil it, and does not profit from it.
func TestVerifyEachLabelAlone(t *testing.T) {
	good := goodForgery().capture(t)
	bad := goodForgery()
	bad.label, bad.agent = "sig2", []string{`sig2="` + goodAgent + `"`}
	bad.components = `"@authority" "signature-agent";key="sig2"`
	bad.key = testKey(7)
	both := good
	for _, f := range bad.capture(t).Fields {
		if f[0] != "Host" {
			both.Fields = append(both.Fields, f)
		}
	}
	r := testVerifier(setOf(t, testKey(1))).Verify(both)
	if r.Outcome != Verified || r.Label != "sig1" || len(r.Others) != 1 || r.Others[0].Reason != "bad-signature" {
		t.Errorf("%+v", r)
	}
	other := good
	other.Fields = append(append([][2]string{}, good.Fields...), [2]string{"Signature-Input", `x=("@method");tag="else"`}, [2]string{"Signature", "x=:AA==:"})
	if r := testVerifier(setOf(t, testKey(1))).Verify(other); r.Outcome != Verified || r.Others != nil {
		t.Errorf("with a signature of another tag: %+v", r)
	}
}

func TestVerifyKid(t *testing.T) {
	k := testKey(1)
	for kid, want := range map[string]string{`"kid":"` + k.id + `",`: "", "": "", `"kid":"my-key",`: "kid-mismatch", `"kid":7,`: "kid-mismatch"} {
		s, err := ParseKeySet(fmt.Appendf(nil, `{"keys":[{%s"kty":"OKP","crv":"Ed25519","x":"%s"}]}`, kid, k.jwk().X))
		if err != nil {
			t.Fatal(err)
		}
		if r := testVerifier(s).Verify(goodForgery().capture(t)); r.Reason != want {
			t.Errorf("kid %s: %+v, want %q", kid, r, want)
		}
	}
}

// TestVerifyAgentOwnsKey: a fetched set speaks for the agent whose URL leads to it, and for no other.
func TestVerifyAgentOwnsKey(t *testing.T) {
	for _, c := range []struct {
		agent, source string
		want          string
	}{
		{"https://bot.example.com", "https://bot.example.com/", ""},
		{"https://bot.example.com", "https://bot.example.com" + DirectoryPath, ""},
		{"https://bot.example.com" + DirectoryPath, "https://BOT.example.com:443" + DirectoryPath, ""},
		{"https://bot.example.com/keys?a", "https://bot.example.com/keys?a", ""},
		{"https://bot.example.com/keys", "https://bot.example.com/other", "unknown-key"},
		{"https://bot.example.com", "https://bot.example.com:8443/", "unknown-key"},
		{"https://evil.example", "https://bot.example.com" + DirectoryPath, "unknown-key"},
	} {
		s := setOf(t, testKey(1))
		var err error
		if s.source, err = parseAgentURL(c.source); err != nil {
			t.Fatal(err)
		}
		f := goodForgery()
		f.agent = []string{`sig1="` + c.agent + `"`}
		if r := testVerifier(s).Verify(f.capture(t)); r.Reason != c.want {
			t.Errorf("%s from %s: %+v, want %q", c.agent, c.source, r, c.want)
		}
	}
}

func TestParseKeySet(t *testing.T) {
	k := testKey(1).jwk()
	one := fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":"%s"}`, k.X)
	for name, c := range map[string]struct {
		data, want string
	}{
		"set":                    {`{"keys":[` + one + `]}`, ""},
		"one":                    {one, ""},
		"pem":                    {"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n", ""},
		"others are passed over": {`{"keys":[{"kty":"RSA","n":"AA","e":"AQAB"},{"kty":"OKP","crv":"X25519","x":"AA"},` + one + `]}`, ""},
		"private":                {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + k.X + `","d":"AA"}]}`, "private key"},
		"private pem":            {"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n", "private key"},
		"only others":            {`{"keys":[{"kty":"RSA","n":"AA","e":"AQAB"}]}`, "no Ed25519 key"},
		"for encryption":         {`{"keys":[` + strings.Replace(one, "}", `,"use":"enc"}`, 1) + `]}`, "no Ed25519 key"},
		"empty":                  {`{"keys":[]}`, "no Ed25519 key"},
		"null":                   {`{"keys":null}`, "not a list"},
		"keys is an object":      {`{"keys":{}}`, "not a list"},
		"short x":                {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`, "32 bytes"},
		"padded x":               {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + k.X + `="}]}`, "32 bytes"},
		"too many":               {`{"keys":[` + strings.Repeat(one+",", 20) + one + `]}`, "more than 20"},
		"too big":                {`{"keys":[` + strings.Repeat(" ", 65<<10) + one + `]}`, "more than 65536"},
		"html":                   {"<html>", "neither"},
		"nothing":                {"", "neither"},
		"member in capitals":     {`{"keys":[{"kty":"OKP","crv":"Ed25519","X":"` + k.X + `"}]}`, "32 bytes"},
	} {
		_, err := ParseKeySet([]byte(c.data))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
