package allowlist

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"crawlgate/pacing/redistest"
)

func newGone(t testing.TB, s GoneStore) *Gone {
	t.Helper()
	g, err := NewGone(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *Gone) has(u string) bool { _, ok := g.Find(mustParse(u)); return ok }

func (g *Gone) put(t testing.TB, u string, at time.Time) {
	t.Helper()
	if err := g.Record(mustParse(u), at); err != nil {
		t.Fatal(err)
	}
}

func openGoneBolt(t testing.TB, path string) (*BoltStore, func()) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewBoltStore(db)
	if err != nil {
		t.Fatal(err)
	}
	return s, func() { _ = db.Close() }
}

func TestGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, end := openGoneBolt(t, path)
	g := newGone(t, s)
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	g.put(t, "https://a.example/x?q=%c3", at)
	g.put(t, "https://a.example:8443/y", at.Add(time.Second))
	g.put(t, "https://b.example/", at)
	g.put(t, "https://b.example/", at.Add(time.Hour)) // the first counts
	check := func(g *Gone) {
		t.Helper()
		for u, want := range map[string]bool{
			"https://a.example/x?q=%C3": true, "http://a.example/x?q=%C3": true, "https://a.example/x": false, "https://a.example/y": false,
			"https://a.example:8443/y": true, "https://a.example:8443/x?q=%C3": false, "https://b.example/": true, "https://c.example/": false,
		} {
			if g.has(u) != want {
				t.Errorf("%s: %v", u, !want)
			}
		}
		if since, _ := g.Find(mustParse("https://b.example/")); !since.Equal(at) {
			t.Errorf("since %v", since)
		}
	}
	check(g)
	end()
	s, end = openGoneBolt(t, path)
	g = newGone(t, s)
	check(g)
	g.put(t, "https://[2001:db8::1]/", at)
	if n, err := g.Lift("[2001:db8::1]"); n != 1 || err != nil {
		t.Errorf("lifted %d, %v", n, err)
	}
	if n, err := g.Lift("a.example"); n != 2 || err != nil {
		t.Errorf("lifted %d, %v", n, err)
	}
	if n, err := g.Lift("a.example"); n != 0 || err != nil {
		t.Errorf("lifted %d more, %v", n, err)
	}
	end()
	s, end = openGoneBolt(t, path)
	defer end()
	g = newGone(t, s)
	if g.has("https://a.example:8443/y") || g.has("https://a.example/x?q=%C3") || !g.has("https://b.example/") {
		t.Error("the lifting did not last")
	}
}

// TestGoneIsBounded: what was entered first is forgotten first, also after a restart, and lifted entries take no room for good.
func TestGoneIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, end := openGoneBolt(t, path)
	g := newGone(t, s)
	g.max = 5
	u := func(n int) string { return fmt.Sprintf("https://h%d.example/", n) }
	for n := range 12 {
		g.put(t, u(n), time.Unix(int64(1000+n), 0))
	}
	end()
	s, end = openGoneBolt(t, path)
	defer end()
	g = newGone(t, s)
	g.max = 5
	for n := range 12 {
		if g.has(u(n)) != (n >= 7) {
			t.Errorf("%d: %v", n, g.has(u(n)))
		}
	}
	for n := range 100 {
		g.put(t, u(7), time.Unix(int64(2000+n), 0))
		if _, err := g.Lift("h7.example"); err != nil {
			t.Fatal(err)
		}
	}
	if g.count != 4 || len(g.order) > 2*g.max+1 {
		t.Errorf("%d are known, %d are listed", g.count, len(g.order))
	}
	g.put(t, u(20), time.Unix(3000, 0))
	g.put(t, u(21), time.Unix(3000, 0))
	if g.has(u(8)) || !g.has(u(9)) || !g.has(u(21)) {
		t.Error("not the first was forgotten")
	}
}

func TestRedisGone(t *testing.T) {
	addr := redistest.Start(t).Addr
	a, b := newInstance(t, addr), newInstance(t, addr)
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	a.gone.put(t, "https://x.example/1", time.Now())
	a.gone.put(t, "https://y.example/1", time.Now())
	until("another instance does not know", func() bool { return b.gone.has("https://x.example/1") && b.gone.has("https://y.example/1") })
	if n, err := b.gone.Lift("x.example"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	until("the lifting is not known", func() bool { return !a.gone.has("https://x.example/1") })
	c := newInstance(t, addr)
	if c.gone.has("https://x.example/1") || !c.gone.has("https://y.example/1") {
		t.Error("a new instance knows something else")
	}
}
