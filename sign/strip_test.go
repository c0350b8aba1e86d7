package sign

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStrip(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want http.Header
		n        int
	}{
		{"nothing", http.Header{"Accept": {"*/*"}, "Connection": {"keep-alive"}}, http.Header{"Accept": {"*/*"}, "Connection": {"keep-alive"}}, 0},
		{"three", http.Header{"Signature": {"a"}, "Signature-Input": {"b", "c"}, "Signature-Agent": {"d"}, "A": {"b"}}, http.Header{"A": {"b"}}, 4},
		{"any case", http.Header{"signature": {"a"}, "SIGNATURE-INPUT": {"b"}, "sIgNaTuRe-AgEnT": {"c"}}, http.Header{}, 3},
		{"underscores and others of the family", http.Header{"Signature_agent": {"a"}, "Signature-Key": {"b"}}, http.Header{}, 2},
		{"not the family", http.Header{"X-Signature": {"a"}, "Accept-Signature": {"b"}, "Sign": {"c"}}, http.Header{"X-Signature": {"a"}, "Accept-Signature": {"b"}, "Sign": {"c"}}, 0},
		{"named in Connection", http.Header{"Connection": {"close, Signature ,signature-agent", "SIGNATURE-INPUT", "x"}}, http.Header{"Connection": {"close", "x"}}, 0},
		{"only named in Connection", http.Header{"connection": {"signature"}, "Proxy-Connection": {"Signature"}}, http.Header{}, 0},
		{"announced as trailer", http.Header{"Trailer": {"Expires, Signature"}}, http.Header{"Trailer": {"Expires"}}, 0},
		{"untouched lines stay as they came", http.Header{"Connection": {" a ,b", "signature"}}, http.Header{"Connection": {" a ,b"}}, 0},
	} {
		if n := Strip(c.in); n != c.n {
			t.Errorf("%s: %d fields, want %d", c.name, n, c.n)
		}
		if d := cmp.Diff(c.want, c.in); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	if Strip(nil) != 0 {
		t.Error("nil")
	}
}
