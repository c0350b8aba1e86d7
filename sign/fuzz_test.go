package sign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// FuzzVerify gives a verifier the three fields of a request: it never panics, and it never says verified unless the
// signature is the one the vectors have.
func FuzzVerify(f *testing.F) {
	vs := readVectors(f)
	for _, v := range append(append([]vector{}, vs.Vectors...), vs.Negative...) {
		agent := ""
		for _, h := range v.Request.Headers {
			if h[0] == "Signature-Agent" {
				agent = h[1]
			}
		}
		f.Add(v.Request.Method, v.Request.URL, agent, v.Input, v.Signature)
	}
	f.Add("GET", "https://example.com/", `a="\\"`, `a=("@query-param";name="%zz");tag="web-bot-auth"`, "a=:AA==:")
	known := map[string]bool{}
	for _, v := range append(append([]vector{}, vs.Vectors...), vs.Negative...) {
		known[signatureOf(v.Signature, v.Label)] = true
		known[signatureOf(v.Signature, "sig1")] = true
	}
	delete(known, "")
	set := vs.set(f, "k1", "k2")
	f.Fuzz(func(t *testing.T, method, url, agent, input, signature string) {
		c := Capture{Method: method, Target: url, Scheme: "https", Fields: [][2]string{{"Host", "example.com"}, {"Signature-Agent", agent},
			{"Signature-Input", input}, {"Signature", signature}}}
		r := Verifier{Keys: set, Now: time.Unix(verifyTime, 0), Skew: DefaultSkew}.Verify(c)
		switch r.Outcome {
		case Verified:
			if r.Reason != "" || !strings.Contains(input, "web-bot-auth") || r.AgentURL == "" {
				t.Errorf("%+v", r)
			}
			if !known[signatureOf(signature, r.Label)] {
				t.Errorf("verified with a signature that nobody made: %q", signature)
			}
		case Invalid, Unverified:
			if r.Reason == "" || strings.ContainsAny(r.Reason, " \n") {
				t.Errorf("%+v", r)
			}
		default:
			t.Errorf("outcome %q", r.Outcome)
		}
	})
}

// signatureOf is the bytes of one label of a Signature field.
func signatureOf(field, label string) string {
	d, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil {
		return ""
	}
	member, _ := d.Get(label)
	item, _ := member.(httpsfv.Item)
	value, _ := item.Value.([]byte)
	return string(value)
}

func FuzzReadCaptures(f *testing.F) {
	vs := readVectors(f)
	for _, v := range vs.Vectors[:3] {
		c := v.capture()
		line, err := json.Marshal(map[string]any{"method": c.Method, "url": c.Target, "headers": c.Fields})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
		var raw bytes.Buffer
		fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\n", c.Method, c.Target)
		for _, h := range c.Fields {
			fmt.Fprintf(&raw, "%s: %s\r\n", h[0], h[1])
		}
		f.Add(append(raw.Bytes(), "\r\n"...))
	}
	f.Add([]byte(`{"method":"GET","target":"/","rawHeaders":["Host","a"]}`))
	f.Add([]byte("GET / HTTP/1.1\nA: b\n c\n\n"))
	set := vs.set(f, "k1")
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = ReadCaptures(bytes.NewReader(data), "https", func(c Capture) error {
			for _, h := range c.Fields {
				if strings.ContainsAny(h[1], "\r\n\x00") || h[0] == "" {
					t.Errorf("%q", h)
				}
			}
			Verifier{Keys: set, Now: time.Unix(verifyTime, 0)}.Verify(c)
			return nil
		})
	})
}

// FuzzParseKey: what is taken is one key that writes and reads back as itself.
func FuzzParseKey(f *testing.F) {
	vs := readVectors(f)
	for _, k := range vs.Keys {
		f.Add([]byte(k.PEM))
		f.Add([]byte(k.PrivateJWK))
		f.Add([]byte(k.PublicJWK))
		f.Add([]byte(k.PEM + k.PEM))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := parseAnyKey(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		if k.id != Thumbprint(k.public) || !isThumbprint(k.id) {
			t.Errorf("%s", k)
		}
		if k.private == nil {
			return
		}
		out, err := k.pem()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parsePrivateKey(out); err != nil || again.id != k.id {
			t.Errorf("%s reads back as %s, %v", k, again, err)
		}
	})
}

// FuzzVerifyDirectory: any body with any fields; keys that come back are named by their own thumbprint.
func FuzzVerifyDirectory(f *testing.F) {
	for _, v := range readVectors(f).Vectors {
		if v.Kind == "directory" {
			f.Add(v.Response.Body, v.Input, v.Signature, v.Response.Headers[len(v.Response.Headers)-1][1], true)
			f.Add(v.Response.Body, "", "", "", false)
		}
	}
	f.Fuzz(func(t *testing.T, body, input, signature, digest string, require bool) {
		c := DirectoryCapture{URL: "https://bot.example.com" + DirectoryPath, Status: 200, Body: []byte(body), Fields: [][2]string{{"Content-Type", DirectoryType}}}
		for name, value := range map[string]string{"Signature-Input": input, "Signature": signature, "Content-Digest": digest} {
			if value != "" {
				c.Fields = append(c.Fields, [2]string{name, value})
			}
		}
		set, proofs, err := VerifyDirectory(c, time.Unix(verifyTime, 0), DefaultSkew, require)
		if err != nil {
			return
		}
		for id, k := range set.keys {
			if id != Thumbprint(k.public) {
				t.Errorf("%s", id)
			}
			if require && !slices.ContainsFunc(proofs, func(p Proof) bool { return p.Proves && p.KeyID == id }) {
				t.Errorf("%s came back without a proof", id)
			}
		}
	})
}

// FuzzDictionaryKeys: without repetitions the scanner finds exactly the keys of the parser.
func FuzzDictionaryKeys(f *testing.F) {
	for _, s := range []string{`a=1, b`, `a="x,y\"";p="(", b=(1 "),");q=:AA==:,c=?1`, `sig1=("@authority" "x";key="a,b");tag="x"`, "a=1,\tb=%\"a%22,\"", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := httpsfv.UnmarshalDictionary([]string{s})
		if err != nil {
			return
		}
		got := dictionaryKeys(s)
		slices.Sort(got)
		want := slices.Sorted(slices.Values(d.Names()))
		if unique := slices.Compact(slices.Clone(got)); !slices.Equal(unique, want) {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	})
}
