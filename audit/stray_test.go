package audit

import "testing"

// Who asks for a path with a percent sign that begins no escape finds the one that was asked for (RFC 3986 2.4).
func TestNormaliseStrayPercent(t *testing.T) {
	for _, raw := range []string{"https://a.test/100%?q=%", "https://a.test/100%25?q=%", "a.test/100%?q=%"} {
		if u, err := Normalise(raw); err != nil || u.String() != "https://a.test/100%25?q=%" {
			t.Errorf("%s: %v %v", raw, u, err)
		}
	}
}
