package policy

import (
	"net/url"
	"testing"
)

// A Location may hold a percent sign that begins no escape; it leads to the path that the gate asks for (RFC 3986 2.4).
func TestLocationStrayPercent(t *testing.T) {
	base, _ := url.Parse("https://a.test/robots.txt")
	for ref, want := range map[string]string{
		"/100%":                  "https://a.test/100%25",
		"/%zz?q=%zz":             "https://a.test/%25zz?q=%zz",
		"https://b.test/a%4":     "https://b.test/a%254",
		"//b.test/%":             "https://b.test/%25",
		"/a%2f%25":               "https://a.test/a%2f%25",
		"x%":                     "https://a.test/x%25",
		"https://b.test/a//%25%": "https://b.test/a//%25%25",
	} {
		if u, err := location(base, ref); err != nil || u.String() != want {
			t.Errorf("%s: %v %v, want %s", ref, u, err, want)
		}
	}
	if u, err := location(base, "https://b%zz.test/"); err == nil {
		t.Errorf("a host: %v", u)
	}
}
