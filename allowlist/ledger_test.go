package allowlist

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
)

func newLedger(t testing.TB, s LedgerStore) *Ledger {
	t.Helper()
	l, err := NewLedger(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t, nil)
		var changes []string
		l.OnChange(func(c Change) {
			s := c.Host + ":"
			for _, e := range []*Entry{c.Before, c.After} {
				if e == nil {
					s += " -"
				} else {
					s += " " + e.Action
				}
			}
			if _, ok := l.Get(c.Host); ok != (c.After != nil) {
				s += " (not in force)"
			}
			changes = append(changes, s)
		})
		if _, ok := l.Get("a.example"); ok {
			t.Error("an empty ledger has an entry")
		}
		e, err := l.Stop(Entry{Host: "A.Example.", Reason: "owner's mail", Who: "ada", Gap: time.Second})
		want := Entry{Host: "a.example", Action: ActionStop, Reason: "owner's mail", Who: "ada", When: time.Now().UTC()}
		if diff := cmp.Diff(want, e); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
		if _, err := l.Slow(Entry{Host: "bücher.example", Gap: 10 * time.Second, Subdomains: true}); err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]string{
			"a.example": "stop", "A.EXAMPLE.": "stop", "www.a.example": "", "nota.example": "", "example": "",
			"xn--bcher-kva.example": "slow", "bücher.example": "slow", "x.y.xn--bcher-kva.example": "slow", "": "", "not a host": "",
		} {
			if e, _ := l.Get(host); e.Action != want {
				t.Errorf("%q: %+v", host, e)
			}
		}
		if _, err := l.Slow(Entry{Host: "a.example", Gap: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if removed, err := l.Resume("a.example"); err != nil || removed == nil || removed.Gap != time.Minute {
			t.Fatal(removed, err)
		}
		if removed, err := l.Resume("a.example"); err != nil || removed != nil {
			t.Fatal(removed, err)
		}
		wantChanges := []string{"a.example: - stop", "xn--bcher-kva.example: - slow", "a.example: stop slow", "a.example: slow -", "a.example: - -"}
		if diff := cmp.Diff(wantChanges, changes); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLedgerStrictest(t *testing.T) {
	l := newLedger(t, nil)
	put := func(e Entry) {
		t.Helper()
		var err error
		if e.Gap > 0 {
			_, err = l.Slow(e)
		} else {
			_, err = l.Stop(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(Entry{Host: "a.example", Subdomains: true, Gap: time.Minute})
	put(Entry{Host: "b.a.example", Gap: time.Second})
	put(Entry{Host: "d.c.a.example", Gap: time.Hour})
	put(Entry{Host: "e.a.example"})
	put(Entry{Host: "only.example"})
	for host, want := range map[string]string{
		"b.a.example": "a.example", "c.a.example": "a.example", "d.c.a.example": "d.c.a.example", "e.a.example": "e.a.example",
		"x.e.a.example": "a.example", "x.only.example": "",
	} {
		if e, _ := l.Get(host); e.Host != want {
			t.Errorf("%s: %+v", host, e)
		}
	}
	removed, err := l.Resume("e.a.example")
	if removed == nil || !errors.Is(err, ErrStillCovered) || !strings.Contains(err.Error(), "slow a.example") {
		t.Errorf("%+v, %v", removed, err)
	}
	var hosts []string
	for _, e := range l.List() {
		hosts = append(hosts, e.Host)
	}
	if diff := cmp.Diff([]string{"a.example", "b.a.example", "d.c.a.example", "only.example"}, hosts); diff != "" {
		t.Error(diff)
	}
}

func TestLedgerRefuses(t *testing.T) {
	l := newLedger(t, nil)
	for _, e := range []Entry{
		{Host: ""}, {Host: "https://a.example/"}, {Host: "*.a.example"}, {Host: "a.example:443"}, {Host: "a..example"}, {Host: "0x7f.1"},
		{Host: "192.0.2.1", Subdomains: true}, {Host: "a.example", Reason: strings.Repeat("x", 2000)},
	} {
		if got, err := l.Stop(e); err == nil {
			t.Errorf("%+v became %+v", e, got)
		}
	}
	for _, gap := range []time.Duration{0, -1, 25 * time.Hour} {
		if _, err := l.Slow(Entry{Host: "a.example", Gap: gap}); err == nil {
			t.Errorf("gap %s", gap)
		}
	}
	if _, err := l.Resume("*"); err == nil {
		t.Error("resumed *")
	}
	for raw, want := range map[string]string{"[2001:DB8::1]": "[2001:db8::1]", "2001:db8::1": "[2001:db8::1]", "192.0.2.1": "192.0.2.1", "Faß.example": "xn--fa-hia.example"} {
		if got, err := LedgerHost(raw); got != want || err != nil {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
}

func openBolt(t testing.TB, file string) (*bbolt.DB, *BoltStore) {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewBoltStore(db)
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

func TestLedgerBolt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	db, s := openBolt(t, file)
	l := newLedger(t, s)
	for _, h := range []string{"a.example", "b.example", "c.example"} {
		if _, err := l.Stop(Entry{Host: h, Subdomains: true, Reason: "r", Who: "w"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Slow(Entry{Host: "b.example", Gap: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Resume("c.example"); err != nil {
		t.Fatal(err)
	}
	want := l.List()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Stop(Entry{Host: "d.example"}); err == nil {
		t.Error("a wish that is not on disk was taken")
	}
	if _, ok := l.Get("d.example"); ok {
		t.Error("in force, but not on disk")
	}
	if _, err := l.Resume("a.example"); err == nil {
		t.Error("resumed in memory only")
	}

	db, s = openBolt(t, file)
	defer db.Close()
	again := newLedger(t, s)
	if diff := cmp.Diff(want, again.List()); diff != "" {
		t.Error(diff)
	}
	// Another writer of the same store.
	var seen []string
	again.OnChange(func(c Change) { seen = append(seen, c.Host) })
	other := newLedger(t, s)
	if _, err := other.Stop(Entry{Host: "x.example"}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Resume("a.example"); err != nil {
		t.Fatal(err)
	}
	if err := again.Refresh(); err != nil {
		t.Fatal(err)
	}
	if err := again.Refresh(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.example", "x.example"}, seen); diff != "" {
		t.Error(diff)
	}
	if _, ok := again.Get("x.example"); !ok {
		t.Error("the other's stop is not in force")
	}
}

func TestLedgerDoesNotLoseAStop(t *testing.T) {
	for _, bad := range []string{"{", `{"host":"b.example","action":"stop"}`, `{"host":"a.example","action":"pause"}`} {
		db, s := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
		err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketLedger).Put([]byte("a.example"), []byte(bad)) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewLedger(s, nil); err == nil || !strings.Contains(err.Error(), "a.example") {
			t.Errorf("%s: %v", bad, err)
		}
		_ = db.Close()
	}
}
