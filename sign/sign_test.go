package sign

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testRequest() Request {
	return Request{Agent: "example", Method: "GET", Authority: "example.com", Path: "/"}
}

// TestSignVerifies runs every combination of settings through both verifiers, ours and httpsign's.
func TestSignVerifies(t *testing.T) {
	for _, form := range []string{FormDictionary, FormString} {
		for _, components := range []string{ComponentsMinimal, ComponentsBound} {
			for _, nonce := range []bool{false, true} {
				for _, alg := range []bool{false, true} {
					c := Defaults()
					c.Form, c.Components, c.Nonce, c.Alg, c.Label, c.Lifetime = form, components, nonce, alg, "*x-1_.y", 300*time.Second
					s := openTest(t, c, example())
					h := http.Header{}
					info, err := s.Sign(testRequest(), h)
					if err != nil {
						t.Fatal(err)
					}
					r := testVerifierNow(testKey(1)).Verify(captureOf("https://example.com/", h))
					if r.Outcome != Verified || r.Covered != info.Components || r.Expires-r.Created != 300 || info.Created != r.Created || info.Expires != r.Expires {
						t.Errorf("%+v: %+v, %+v", c, r, info)
					}
					req := &http.Request{Method: "GET", Host: "example.com", Header: h}
					req.URL, _ = parseAgentURL("https://example.com/")
					if err := verifyWithHTTPSign(c.Label, testKey(1).public, requestFields(c, form), req); err != nil {
						t.Errorf("%+v: httpsign: %v", c, err)
					}
					for what, want := range map[string]bool{";alg=": alg, ";nonce=": nonce} {
						if got := strings.Contains(h.Get("Signature-Input"), what); got != want {
							t.Errorf("%s: %t", what, got)
						}
					}
				}
			}
		}
	}
}

func testVerifierNow(ks ...key) Verifier {
	list := map[string]setKey{}
	for _, k := range ks {
		list[k.id] = setKey{public: k.public}
	}
	return Verifier{Keys: &KeySet{keys: list}, Skew: 0, MaxLifetime: DefaultMaxLifetime}
}

func TestSignFormOfSite(t *testing.T) {
	c := Defaults()
	c.Sites = []Site{
		{Host: "one.example", Form: FormString},
		{Host: "All.example.", Subdomains: true, Form: FormString},
		{Host: "back.all.example", Subdomains: true, Form: FormDictionary},
		{Host: "b\u00fccher.example", Form: FormString},
		{Host: "[2001:db8::1]", Form: FormString},
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, c, example())
	for authority, want := range map[string]string{
		"example.com": FormDictionary, "one.example": FormString, "one.example:8443": FormString, "www.one.example": FormDictionary,
		"all.example": FormString, "www.all.example": FormString, "a.b.all.example": FormString, "small.example": FormDictionary, "notall.example": FormDictionary,
		"back.all.example": FormDictionary, "x.back.all.example": FormDictionary, "xn--bcher-kva.example": FormString, "example": FormDictionary,
		"[2001:db8::1]": FormString, "[2001:db8::1]:8443": FormString, "[2001:db8::2]": FormDictionary,
	} {
		r, h := testRequest(), http.Header{}
		r.Authority = authority
		info, err := s.Sign(r, h)
		if err != nil {
			t.Error(err)
			continue
		}
		got := FormDictionary
		if h.Get("Signature-Agent") == `"`+goodAgent+`"` {
			got = FormString
		}
		if got != want || strings.Contains(info.Components, "key=") != (want == FormDictionary) {
			t.Errorf("%s: %s, %s", authority, got, info.Components)
		}
		if r := testVerifierNow(testKey(1)).Verify(captureOf("https://"+authority+"/", h)); r.Outcome != Verified {
			t.Errorf("%s: %+v", authority, r)
		}
	}
}

// TestSignRefuses: whatever can't be signed as it would be sent is an error, and leaves no half-signed header.
func TestSignRefuses(t *testing.T) {
	c := Defaults()
	c.Components = ComponentsBound
	s := openTest(t, c, example())
	for name, change := range map[string]func(*Request){
		"agent":                  func(r *Request) { r.Agent = "other" },
		"no authority":           func(r *Request) { r.Authority = "" },
		"authority in capitals":  func(r *Request) { r.Authority = "Example.com" },
		"default port":           func(r *Request) { r.Authority = "example.com:443" },
		"trailing dot":           func(r *Request) { r.Authority = "example.com." },
		"user info":              func(r *Request) { r.Authority = "a@example.com" },
		"line break":             func(r *Request) { r.Authority = "example.com\n" },
		"long IPv6":              func(r *Request) { r.Authority = "[2001:DB8::1]" },
		"method":                 func(r *Request) { r.Method = "GET /" },
		"no method":              func(r *Request) { r.Method = "" },
		"path without slash":     func(r *Request) { r.Path = "a" },
		"unescaped path":         func(r *Request) { r.Path = "/caf\u00e9" },
		"space in the path":      func(r *Request) { r.Path = "/a b" },
		"query in the path":      func(r *Request) { r.Path = "/a?b" },
		"bad escape in the path": func(r *Request) { r.Path = "/100%" },
		"line break in the path": func(r *Request) { r.Path = "/a\n" },
	} {
		r := testRequest()
		change(&r)
		h := http.Header{"Signature": {"old"}, "signature-input": {"old"}, "Accept": {"*/*"}}
		if info, err := s.Sign(r, h); err == nil || info != (Info{}) || len(h) != 1 {
			t.Errorf("%s: %v, %+v, %v", name, err, info, h)
		}
	}
}

func TestSignBoundPaths(t *testing.T) {
	c := Defaults()
	c.Components = ComponentsBound
	s := openTest(t, c, example())
	for _, path := range []string{"", "/", "/a%2Fb", "/a//b/../c", "/%7Euser/~user", "/a;b=c,d", "/(x)!$&'*+,;=:@", "/%e3%83%84", "/a[0]", "/*"} {
		r, h := testRequest(), http.Header{}
		r.Path = path
		if _, err := s.Sign(r, h); err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if r := testVerifierNow(testKey(1)).Verify(captureOf("https://example.com"+path, h)); r.Outcome != Verified {
			t.Errorf("%q: %+v", path, r)
		}
		if r := testVerifierNow(testKey(1)).Verify(captureOf("https://example.com/other", h)); r.Reason != "bad-signature" {
			t.Errorf("%q replayed to another path: %+v", path, r)
		}
	}
}

func TestSignReplaces(t *testing.T) {
	s := openTest(t, Defaults(), example())
	h := http.Header{"signature": {"a"}, "SIGNATURE-AGENT": {"b"}, "Signature-Input": {"c", "d"}, "X-Signature": {"e"}, "Sec-Fetch-Dest": {"document"}}
	if _, err := s.Sign(testRequest(), h); err != nil {
		t.Fatal(err)
	}
	var names []string
	for n, v := range h {
		if len(v) != 1 || cap(v) != 1 {
			t.Errorf("%s: %v", n, v)
		}
		names = append(names, n)
	}
	want := map[string]bool{"Signature": true, "Signature-Agent": true, "Signature-Input": true, "X-Signature": true, "Sec-Fetch-Dest": true}
	got := map[string]bool{}
	for _, n := range names {
		got[n] = true
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if h.Get("Signature-Agent") != `sig1="`+goodAgent+`"` {
		t.Error(h)
	}
}

// TestSignAfterWait: a signature made after a long wait, or again for a retry, is fresh.
func TestSignAfterWait(t *testing.T) {
	s := openTest(t, Defaults(), example())
	synctest.Test(t, func(t *testing.T) {
		h := http.Header{}
		first, err := s.Sign(testRequest(), h)
		if err != nil {
			t.Fatal(err)
		}
		old := captureOf("https://example.com/", h)
		time.Sleep(10 * time.Minute)
		if r := testVerifierNow(testKey(1)).Verify(old); r.Reason != "expired" {
			t.Errorf("%+v", r)
		}
		again, err := s.Sign(testRequest(), h)
		if err != nil || again.Created != first.Created+600 {
			t.Errorf("%+v %v", again, err)
		}
		if r := testVerifierNow(testKey(1)).Verify(captureOf("https://example.com/", h)); r.Outcome != Verified {
			t.Errorf("%+v", r)
		}
	})
}

func TestSignNonceIsFresh(t *testing.T) {
	c := Defaults()
	c.Nonce = true
	s := openTest(t, c, example())
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				h := http.Header{}
				if _, err := s.Sign(testRequest(), h); err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[h.Get("Signature")] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 160 {
		t.Errorf("%d signatures of 160 differ", len(seen))
	}
}

// TestSelfCheckFails: the check of each loaded key can fail, so that passing it means something.
func TestSelfCheckFails(t *testing.T) {
	k := testKey(1)
	k.public = testKey(2).public
	if err := selfCheck(Defaults(), goodAgent, k); err == nil {
		t.Error("a key whose halves differ passed")
	}
	if err := selfCheck(Defaults(), "https://b\u00fccher.example", testKey(1)); err == nil {
		t.Error("an agent URL that is no structured field passed")
	}
	k.private = nil
	if err := selfCheck(Defaults(), goodAgent, k); err != nil {
		t.Error("a key without its private half has nothing to check")
	}
}
