package allowlist

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

func newLocks(t testing.TB, s LockStore) *Locks {
	t.Helper()
	l, err := NewLocks(s, 24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func record(t testing.TB, l *Locks, u, agent, ua string, status int) {
	t.Helper()
	if err := l.Record(mustParse(u), agent, ua, status, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func locked(l *Locks, u, agent, ua string) bool {
	_, ok := l.Find(mustParse(u), agent, ua, 24*time.Hour)
	return ok
}

func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks(t, nil)
		start := time.Now()
		record(t, l, "https://a.example/x?q=%c3", "crawl", "", 403)
		for _, c := range []struct {
			url, agent, ua string
			want           bool
		}{
			{"https://a.example/x?q=%C3", "answer", "", true},
			{"http://a.example/x?q=%C3", "answer", "", true},
			{"https://a.example/y/../x?q=%C3", "answer", "", true},
			{"https://a.example/x?q=%C3", "crawl", "", false},
			{"https://a.example/x?q=%C3", "crawl", "Mozilla/5.0", true},
			{"https://a.example/x?q=%C3", "", "", true},
			{"https://a.example/x", "answer", "", false},
			{"https://b.example/x?q=%C3", "answer", "", false},
			{"https://a.example:8443/x?q=%C3", "answer", "", false},
		} {
			if got := locked(l, c.url, c.agent, c.ua); got != c.want {
				t.Errorf("%s as %q %q: %v", c.url, c.agent, c.ua, got)
			}
		}
		u := mustParse("https://a.example/x?q=%C3")
		if _, ok := l.Find(u, "answer", "", 0); ok {
			t.Error("a profile without identity lock is held")
		}
		time.Sleep(time.Hour)
		record(t, l, "https://a.example/x?q=%C3", "crawl", "", 429)
		k, ok := l.Find(u, "answer", "", 24*time.Hour)
		if !ok || k.Agent != "crawl" || k.Status != 403 || !k.First.Equal(start) || !k.Last.Equal(start.Add(time.Hour)) || k.Whole() {
			t.Fatalf("%+v", k)
		}
		if _, ok := l.Find(u, "answer", "", time.Minute+time.Hour); !ok {
			t.Error("the window counts from the last refusal")
		}
		time.Sleep(time.Hour)
		if _, ok := l.Find(u, "answer", "", time.Hour); ok {
			t.Error("the asking profile's window is over")
		}
		time.Sleep(23 * time.Hour)
		if locked(l, u.String(), "answer", "") {
			t.Error("a day later")
		}
		// The next refusal, of the other agent, locks the first one.
		record(t, l, u.String(), "answer", "", 403)
		if !locked(l, u.String(), "crawl", "") || locked(l, u.String(), "answer", "") {
			t.Error("the lock is not the latest refusal's")
		}
	})
}

func TestLocksWholeHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks(t, nil)
		start := time.Now()
		for i := range maxLockedURLs {
			record(t, l, fmt.Sprintf("https://a.example/%d", i), "crawl", "", 403)
		}
		if locked(l, "https://a.example/other", "answer", "") {
			t.Error("locked whole too early")
		}
		time.Sleep(time.Hour)
		record(t, l, "https://a.example/one-more", "crawl", "", 401)
		k, ok := l.Find(mustParse("https://a.example/other"), "answer", "", 24*time.Hour)
		if !ok || !k.Whole() || k.Agent != "crawl" || k.Status != 403 || !k.First.Equal(start) {
			t.Fatalf("%+v", k)
		}
		if locked(l, "https://a.example/other", "crawl", "") || locked(l, "https://b.example/", "answer", "") {
			t.Error("the wrong ones are locked")
		}
		if n := len(l.hosts["a.example"].urls); n != 0 || l.count != 0 {
			t.Errorf("%d URLs kept, %d counted", n, l.count)
		}
		time.Sleep(24 * time.Hour)
		if locked(l, "https://a.example/other", "answer", "") {
			t.Error("a day later")
		}
		record(t, l, "https://c.example/", "crawl", "", 403) // sweeps
		if _, ok := l.hosts["a.example"]; ok {
			t.Error("kept past its time")
		}
	})
}

func TestLocksManyAgents(t *testing.T) {
	l := newLocks(t, nil)
	for i := range maxLockAgents {
		record(t, l, "https://a.example/", "pass", fmt.Sprint("UA ", i), 403)
	}
	record(t, l, "https://a.example/", "pass", "one more", 403)
	for _, ua := range []string{"UA 1", "one more", ""} {
		if !locked(l, "https://a.example/", "pass", ua) {
			t.Errorf("%q may go on", ua)
		}
	}
	if n := len(l.hosts["a.example"].urls[urlFingerprint(mustParse("https://a.example/"))]); n != 1 {
		t.Errorf("%d locks", n)
	}
	// With everybody locked out of one URL, closing the host locks everybody out of it.
	for i := range maxLockedURLs {
		record(t, l, fmt.Sprintf("https://a.example/%d", i), "x", "", 403)
	}
	if !locked(l, "https://a.example/any", "x", "") || !locked(l, "https://a.example/any", "y", "") {
		t.Error("a host was opened by closing it")
	}
}

func TestLocksBolt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	db, s := openBolt(t, file)
	l := newLocks(t, s)
	record(t, l, "https://a.example/x?token=secret", "crawl", "", 403)
	record(t, l, "https://p.example/", "pass", "Mozilla/5.0 (secret)", 401)
	if err := l.Record(mustParse("https://old.example/"), "crawl", "", 403, time.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		record(t, l, fmt.Sprintf("https://b.example/%d", i), "crawl", "", 403)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Record(mustParse("https://z.example/"), "crawl", "", 403, time.Now()); err == nil {
		t.Error("no error from a closed file")
	}
	db, s = openBolt(t, file)
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketLocks).ForEach(func(k, v []byte) error {
			if strings.Contains(string(k)+string(v), "secret") {
				t.Errorf("kept on disk: %q %s", k, v)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	l = newLocks(t, s)
	if !locked(l, "https://a.example/x?token=secret", "answer", "") || locked(l, "https://a.example/x?token=secret", "crawl", "") {
		t.Error("a restart changed the lock")
	}
	if locked(l, "https://p.example/", "pass", "Mozilla/5.0 (secret)") || !locked(l, "https://p.example/", "pass", "curl") {
		t.Error("a restart changed the lock of a user agent passed on")
	}
	if !locked(l, "https://b.example/19", "answer", "") {
		t.Error("not all locks came back")
	}
	if _, ok := l.hosts["old.example"]; ok {
		t.Error("an old one came back")
	}
	_ = db.Close()
}

func TestLocksBoltWholeHost(t *testing.T) {
	db, s := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
	defer db.Close()
	l := newLocks(t, s)
	for i := range maxLockedURLs + 1 {
		record(t, l, fmt.Sprintf("https://a.example/%d", i), "crawl", "", 403)
	}
	n := 0
	_ = s.LoadLocks(func(k Lock) {
		if n++; !k.Whole() {
			t.Errorf("%+v", k)
		}
	})
	if n != 1 {
		t.Errorf("%d locks on disk", n)
	}
	if !locked(newLocks(t, s), "https://a.example/other", "answer", "") {
		t.Error("a restart opened the host")
	}
}

var errStore = errors.New("store")

type badStore struct{}

func (badStore) LoadLocks(func(Lock)) error         { return errStore }
func (badStore) UpdateLocks([]Lock, []string) error { return errStore }
func (badStore) LoadEntries() ([]Entry, error)      { return nil, errStore }
func (badStore) PutEntry(Entry) error               { return errStore }
func (badStore) DeleteEntry(string) error           { return errStore }

func TestStoreErrors(t *testing.T) {
	if _, err := NewLocks(badStore{}, time.Hour, nil); !errors.Is(err, errStore) {
		t.Error(err)
	}
	if _, err := NewLedger(badStore{}, nil); !errors.Is(err, errStore) {
		t.Error(err)
	}
	l := &Locks{store: badStore{}, log: newList(t, nil).log, hosts: map[string]*lockedHost{}, retain: time.Hour}
	if err := l.Record(mustParse("https://a.example/"), "a", "", 403, time.Time{}); !errors.Is(err, errStore) {
		t.Error(err)
	}
	if !locked(l, "https://a.example/", "b", "") {
		t.Error("what could not be written does not hold")
	}
}

// The bound of all hosts together closes the host with the most, and forgets none.
func TestLocksBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks(t, nil)
		l.count = maxLocks - 3 // as if other hosts had them
		record(t, l, "https://small.example/1", "crawl", "", 403)
		record(t, l, "https://big.example/1", "crawl", "", 403)
		record(t, l, "https://big.example/2", "crawl", "", 403)
		record(t, l, "https://big.example/3", "crawl", "", 403)
		if !locked(l, "https://big.example/other", "answer", "") || locked(l, "https://small.example/other", "answer", "") {
			t.Error("the wrong host was closed")
		}
		if len(l.forgetOldest()) != 1 || len(l.hosts) != 1 {
			t.Error("forgetting the oldest host")
		}
		l.SetRetain(time.Hour)
		time.Sleep(time.Hour)
		record(t, l, "https://new.example/", "crawl", "", 403)
		if len(l.hosts) != 1 {
			t.Error("the new retention does not count")
		}
	})
}

func TestLocksConcurrentWrites(t *testing.T) {
	db, s := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
	defer db.Close()
	l := newLocks(t, s)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			record(t, l, fmt.Sprintf("https://h%d.example/", i), "crawl", "", 403)
			if !locked(l, fmt.Sprintf("https://h%d.example/", i), "answer", "") {
				t.Error("not in force")
			}
		})
	}
	wg.Wait()
	again := newLocks(t, s)
	for i := range 50 {
		if !locked(again, fmt.Sprintf("https://h%d.example/", i), "answer", "") {
			t.Errorf("h%d was not written", i)
		}
	}
}
