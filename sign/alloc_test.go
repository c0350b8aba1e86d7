package sign

import (
	"net/http"
	"testing"
)

// TestAllocations holds the ceilings: allocations do not depend on the machine.
func TestAllocations(t *testing.T) {
	plain, nonce := Defaults(), Defaults()
	nonce.Nonce = true
	sign := func(c Config) func() {
		s, h := openTest(t, c, example()), http.Header{"Accept": {"*/*"}}
		return func() {
			if _, err := s.Sign(testRequest(), h); err != nil {
				t.Error(err)
			}
		}
	}
	s, h := openTest(t, plain, example()), http.Header{}
	if _, err := s.Sign(testRequest(), h); err != nil {
		t.Fatal(err)
	}
	c, v := captureOf("https://example.com/", h), testVerifierNow(testKey(1))
	clean := http.Header{"Accept": {"*/*"}, "Cookie": {"a=b"}}
	for name, c := range map[string]struct {
		most float64
		do   func()
	}{
		"sign":       {4, sign(plain)},
		"with nonce": {4, sign(nonce)},
		"verify":     {200, func() { v.Verify(c) }},
		"strip":      {0, func() { Strip(clean) }},
		"state":      {0, func() { s.State("example") }},
	} {
		if got := testing.AllocsPerRun(50, c.do); got > c.most {
			t.Errorf("%s: %.0f allocations, at most %.0f", name, got, c.most)
		}
	}
}
