//go:build !race

package allowlist

import (
	"testing"
	"time"
)

// A decision allocates nothing, whichever way it is reached; the race detector would.
func TestDecisionAllocatesNothing(t *testing.T) {
	ledger, err := NewLedger(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Stop(Entry{Host: "stopped.example", Subdomains: true}); err != nil {
		t.Fatal(err)
	}
	locks, err := NewLocks(nil, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newList(t, nil, ClientConfig{Name: "c", DenyHosts: []string{"*.closed.example"}, Sites: []Site{{URL: "https://a.example/"}, {URL: "https://*.w.example/"}, {URL: "https://p.example/docs/"},
		{Pages: []string{"https://q.example/x?y=1"}}}})
	l.ObserveRedirect(Request{Client: "c", URL: mustParse("https://a.example/")}, Admission{Listed: true}, mustParse("https://r.example/t"))
	for _, raw := range []string{"https://a.example/some/path?q=1", "http://x.y.w.example/", "https://p.example/docs/a/b", "https://p.example/robots.txt", "https://q.example/x?y=1", "https://r.example/t"} {
		r := Request{Client: "c", URL: mustParse(raw), Method: "GET", Document: true}
		got := testing.AllocsPerRun(100, func() {
			if _, err := l.Check(r); err != nil {
				t.Fatal(err)
			}
			if _, ok := ledger.Get(r.URL.Host); ok {
				t.Fatal("stopped")
			}
			if _, ok := locks.Find(r.URL, "agent", "", time.Hour); ok {
				t.Fatal("locked")
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations", raw, got)
		}
	}
}
