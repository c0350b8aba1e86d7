package sign

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSignedOnTheWire sends a signed request over HTTP/1.1 and HTTP/2: nothing that the signature covers changes on the
// way, and a query that url.ParseQuery refuses arrives as it was.
func TestSignedOnTheWire(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var got Capture
		var rawQuery string
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = Capture{Method: r.Method, Scheme: "https", Target: r.URL.RequestURI(), Fields: append(fieldLines(r.Header), [2]string{"Host", r.Host})}
			rawQuery = r.URL.RawQuery
			if (r.ProtoMajor == 2) != h2 {
				t.Errorf("HTTP/%d", r.ProtoMajor)
			}
		}))
		server.EnableHTTP2 = h2
		server.StartTLS()
		defer server.Close()
		c := Defaults()
		c.Components = ComponentsBound
		s := openTest(t, c, example())
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/a%2Fb?a=1;b=2&q=100%", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", "a=b")
		if _, err := s.Sign(Request{Agent: "example", Method: r.Method, Authority: r.URL.Host, Path: r.URL.EscapedPath()}, r.Header); err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if rawQuery != "a=1;b=2&q=100%" {
			t.Errorf("query %q", rawQuery)
		}
		if r := testVerifierNow(testKey(1)).Verify(got); r.Outcome != Verified || !strings.Contains(r.Covered, `"@path"`) {
			t.Errorf("HTTP/2 %t: %+v of %+v", h2, r, got)
		}
	}
}

func fieldLines(h http.Header) [][2]string {
	var fields [][2]string
	for name, values := range h {
		for _, v := range values {
			fields = append(fields, [2]string{name, v})
		}
	}
	return fields
}

// TestFetchOverTLS fetches a directory from a server, through a client that may reach loopback.
func TestFetchOverTLS(t *testing.T) {
	var s *Signer
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeDirectory(w, r) }))
	defer server.Close()
	a := example()
	a.SignatureAgent = server.URL
	s = openTest(t, Defaults(), a)
	f := KeyFetcher{Client: server.Client(), RequireProof: true}
	set, proofs, err := f.Fetch(t.Context(), server.URL+DirectoryPath)
	if err != nil || set.Len() != 1 || len(proofs) != 1 {
		t.Fatal(err)
	}
	h := http.Header{}
	if _, err := s.Sign(testRequest(), h); err != nil {
		t.Fatal(err)
	}
	if r := (Verifier{Keys: set}).Verify(captureOf("https://example.com/", h)); r.Outcome != Verified {
		t.Errorf("%+v", r)
	}
	stranger := KeyFetcher{Client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}}}
	if _, _, err := stranger.Fetch(t.Context(), server.URL+DirectoryPath); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}
