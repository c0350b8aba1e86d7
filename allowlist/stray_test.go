package allowlist

import "testing"

// A path may be written with a percent sign that begins no escape; it is the one that the gate asks for (RFC 3986 2.4).
func TestStrayPercent(t *testing.T) {
	for _, raw := range []string{"https://a.test/100%", "https://a.test/100%25"} {
		if u, err := parseExact(raw); err != nil || u.String() != "https://a.test/100%25" {
			t.Errorf("%s: %v %v", raw, u, err)
		}
		if p, err := parsePrefix(raw); err != nil || p.path != "/100%25" {
			t.Errorf("%s: %+v %v", raw, p, err)
		}
	}
	if u, err := parseExact("https://a%zz.test/"); err == nil {
		t.Errorf("a host: %v", u)
	}
}
