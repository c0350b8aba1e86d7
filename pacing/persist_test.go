package pacing

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
)

// mapStore is a Store in memory, to be read and broken by tests.
type mapStore struct {
	mu    sync.Mutex
	m     map[string][]byte
	saves int
	err   error
}

func (s *mapStore) Load(f func(string, []byte) error) error {
	for name, v := range s.m {
		_ = f(name, v)
	}
	return nil
}

func (s *mapStore) Save(values map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.m == nil {
		s.m = map[string][]byte{}
	}
	s.saves++
	for name, v := range values {
		if v == nil {
			delete(s.m, name)
		} else {
			s.m[name] = v
		}
	}
	return nil
}

func (s *mapStore) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.m[name]
	return ok
}

// copy is what a crash would leave.
func (s *mapStore) copy() *mapStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &mapStore{m: maps.Clone(s.m)}
}

func withStore(t *testing.T, s Store, log *slog.Logger) *Pacer {
	t.Helper()
	c := Defaults()
	c.Backoff.Jitter = 0
	p, err := New(c, s, log)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func hostPage(host string) Request {
	r := page("a")
	r.Key, r.URL = host, "http://"+host+"/p"
	return r
}

func TestRestartOwesTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &mapStore{}
		p := withStore(t, st, nil)
		mustAcquire(t, p, hostPage("hold.test")).Done(Outcome{Sent: true, Status: 429, RetryAfter: "600"})
		d := hostPage("delay.test")
		d.Delay = time.Hour
		mustAcquire(t, p, d).Done(okay)
		mustAcquire(t, p, hostPage("plain.test")).Done(okay)
		for range 10 {
			mustAcquire(t, p, hostPage("stop.test")).Done(Outcome{Sent: true, Status: 403})
		}
		for range 4 { // a page left, a pace level
			r := hostPage("left.test")
			r.Wait = time.Hour
			mustAcquire(t, p, r).Done(Outcome{Sent: true, Status: 503})
		}
		before := map[string]View{}
		look := func(p *Pacer, host string) View {
			r := hostPage(host)
			if host == "delay.test" {
				r.Delay = time.Hour
			}
			return p.Peek(r)
		}
		wait(2 * time.Second)
		synctest.Wait()
		if st.has("plain.test") {
			t.Error("a host that owes nothing is on disk")
		}
		crashed := st.copy()
		for _, h := range []string{"hold.test", "delay.test", "stop.test", "left.test"} {
			before[h] = look(p, h)
		}
		q := withStore(t, crashed, nil)
		for h, was := range before {
			now := look(q, h)
			if now.Reason != was.Reason || now.Level != was.Level || now.Fails != was.Fails || now.Breaker != was.Breaker || (now.Wait-was.Wait).Abs() > 2*time.Millisecond {
				t.Errorf("%s: was %+v, is %+v", h, was, now)
			}
		}
		// The last second before the crash is not in the file: any host waits one gap from the start.
		if v := look(q, "plain.test"); v.Wait != time.Second {
			t.Errorf("unknown host after a crash: %v", v.Wait)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		// After a clean end nothing but what is owed.
		wait(5 * time.Second)
		q = withStore(t, st, nil)
		if v := look(q, "plain.test"); v.Wait != 0 {
			t.Errorf("unknown host after a clean end: %v", v.Wait)
		}
		if v := look(q, "hold.test"); v.Reason != HostBackoff {
			t.Errorf("%+v", v)
		}
		wait(3 * time.Hour)
		synctest.Wait()
		if m := st.copy().m; len(m) != 2 || m["stop.test"] == nil { // its breaker is half-open until somebody asks
			t.Errorf("settled hosts stay on disk: %d values", len(m))
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestClockJumpIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := time.Now().Add(1000 * 24 * time.Hour).UnixMilli()
		v, _ := json.Marshal(record{
			V: 1, End: far, Gap: time.Second, Hold: far, Incident: far, Fails: 2, Level: 200, LevelAt: far, OpenUntil: far, Opens: 1,
			Window: []int64{far<<1 | 1}, Pages: map[string][2]int64{"0011223344556677": {far, 9}},
		})
		st := &mapStore{m: map[string][]byte{"h.test": v}}
		p := withStore(t, st, nil)
		defer p.Close()
		w := p.Peek(hostPage("h.test"))
		if d := time.Until(w.OpenUntil); d != 24*time.Hour {
			t.Errorf("open for %v", d)
		}
		if d := time.Until(w.HoldUntil); d != 24*time.Hour {
			t.Errorf("held for %v", d)
		}
		if w.Level != 6 {
			t.Errorf("level %d", w.Level)
		}
	})
}

func TestBadValuesAreSkippedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, _ := json.Marshal(record{V: 1, Hold: time.Now().Add(time.Minute).UnixMilli()})
		st := &mapStore{m: map[string][]byte{
			"bad.test": []byte("{"), "old.test": []byte(`{"v":99}`), "neg.test": []byte(`{"v":1,"gap":-5}`),
			"page.test": []byte(`{"v":1,"pages":{"zz":[1,2]}}`), "good.test": good,
		}}
		var log bytes.Buffer
		p := withStore(t, st, slog.New(slog.NewJSONHandler(&log, nil)))
		defer p.Close()
		for _, h := range []string{"bad.test", "old.test", "neg.test", "page.test"} {
			if !strings.Contains(log.String(), h) {
				t.Errorf("%s not reported", h)
			}
		}
		if s := p.Stats(); s.Keys != 1 || s.StoreErrors != 4 {
			t.Errorf("keys %d, errors %d", s.Keys, s.StoreErrors)
		}
		if v := p.Peek(hostPage("good.test")); v.HoldUntil.IsZero() {
			t.Error("the good one is lost")
		}
	})
}

func TestFailedWriteIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &mapStore{}
		p := withStore(t, st, nil)
		defer p.Close()
		st.mu.Lock()
		st.err = errors.New("disk full")
		st.mu.Unlock()
		mustAcquire(t, p, hostPage("h.test")).Done(Outcome{Sent: true, Status: 429, RetryAfter: "600"})
		wait(3 * time.Second)
		if s := p.Stats(); s.StoreErrors == 0 {
			t.Error("not counted")
		}
		st.mu.Lock()
		st.err = nil
		saves := st.saves
		st.mu.Unlock()
		wait(1500 * time.Millisecond)
		synctest.Wait()
		if !st.has("h.test") {
			t.Error("not written after the disk had room again")
		}
		wait(10 * time.Second)
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.saves != saves+1 {
			t.Errorf("%d writes for one change", st.saves-saves)
		}
	})
}

func TestBolt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	open := func() (*bolt.DB, *Pacer) {
		db, err := bolt.Open(file, 0o600, &bolt.Options{Timeout: time.Second, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		st, err := NewBoltStore(db)
		if err != nil {
			t.Fatal(err)
		}
		return db, withStore(t, st, nil)
	}
	db, p := open()
	mustAcquire(t, p, hostPage("h.test")).Done(Outcome{Sent: true, Status: 429, RetryAfter: "600"})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, p = open()
	defer db.Close()
	defer p.Close()
	if b := mustRefuse(t, p, hostPage("h.test"), HostBackoff); b.RetryAfter() < 590 || b.RetryAfter() > 600 {
		t.Errorf("retry after %d", b.RetryAfter())
	}
	p.Resume("h.test")
	r := hostPage("h.test")
	r.Wait = 2 * time.Second
	mustAcquire(t, p, r).Done(okay)
}
