package admin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"crawlgate/audit"
)

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w window
		check := func(when string, hour, day, week, total uint64) {
			t.Helper()
			now := time.Now()
			if w.hour(now) != hour || w.day(now) != day || w.week(now) != week || w.total != total {
				t.Errorf("%s: %d %d %d %d, want %d %d %d %d", when, w.hour(now), w.day(now), w.week(now), w.total, hour, day, week, total)
			}
		}
		check("empty", 0, 0, 0, 0)
		for range 3 {
			w.add(time.Now())
		}
		check("now", 3, 3, 3, 3)
		time.Sleep(59 * time.Minute)
		w.add(time.Now())
		check("59 minutes later", 4, 4, 4, 4)
		time.Sleep(2 * time.Minute)
		check("61 minutes later", 1, 4, 4, 4)
		time.Sleep(23 * time.Hour)
		check("a day later", 0, 0, 4, 4)
		time.Sleep(6*24*time.Hour - time.Hour)
		w.add(time.Now())
		check("nearly a week later", 1, 1, 5, 5)
		time.Sleep(2 * time.Hour)
		check("a week later", 0, 1, 1, 5)
		time.Sleep(30 * 24 * time.Hour)
		check("a month later", 0, 0, 0, 5)
	})
}

// Whatever comes, the memory for it is bounded.
func TestBounds(t *testing.T) {
	s := newServer(t, nil)
	long := strings.Repeat("x", 8000)
	for i := range maxHosts + 50 {
		if i == maxRecords+100 {
			long = "" // the bound in bytes was reached
		}
		s.Observe(event(uint64(i+1), "https://example.com/"+long, func(e *audit.Event) {
			e.Host = fmt.Sprintf("h%d.example", i)
			e.Client.Name = fmt.Sprintf("client-%d", i)
			e.Profile = fmt.Sprintf("profile-%d", i)
		}))
		if s.state.bytes > maxRecordBytes {
			t.Fatalf("%d bytes of records", s.state.bytes)
		}
	}
	for i := range 3 * maxHostClients {
		s.Observe(event(uint64(2*maxHosts+i+1), "https://one.example/", func(e *audit.Event) {
			e.Host = "one.example"
			e.Client.Name = fmt.Sprintf("other-%d", i)
		}))
	}
	for i := range 3 * maxProfiles {
		s.Observe(event(uint64(3*maxHosts+i+1), "https://one.example/", func(e *audit.Event) {
			e.Client.Name = "one"
			e.Profile = fmt.Sprintf("profile-%d", i)
			e.Kind = fmt.Sprintf("kind-%d", i)
			e.Decision, e.Reason = audit.Refused, fmt.Sprintf("reason-%d", i)
		}))
	}
	st := s.state
	if n := len(st.ring); n > maxRecords {
		t.Errorf("%d records", n)
	}
	if n := st.hosts.len(); n != maxHosts {
		t.Errorf("%d hosts", n)
	}
	if n := st.clients.len(); n != maxClients {
		t.Errorf("%d clients", n)
	}
	h, ok := st.hosts.get("one.example")
	if !ok || len(h.Clients) != maxHostClients || !h.MoreClients {
		t.Errorf("clients of a host: %v", h.Clients)
	}
	c, ok := st.clients.get("one")
	if !ok || len(c.Profiles) != maxProfiles || len(c.Kinds) > len(kinds) || len(c.Reasons) > len(reasons)+1 {
		t.Errorf("of a client: %d profiles, %d kinds, %d reasons", len(c.Profiles), len(c.Kinds), len(c.Reasons))
	}
	if n := len(st.reasons); n != len(reasons)+1 {
		t.Errorf("%d reasons", n)
	}
	sum := 0
	for _, r := range st.ring {
		sum += r.size
	}
	if sum != st.bytes {
		t.Errorf("%d bytes counted, %d there", st.bytes, sum)
	}
}

// The closest call is measured between turns; what rides along is none.
func TestSmallestGap(t *testing.T) {
	s := newServer(t, nil)
	at := func(seq uint64, sent, done time.Duration, owed int64) {
		s.Observe(event(seq, "https://example.com/", func(e *audit.Event) {
			e.SentAt, e.DoneAt, e.DelayOwedMS = testTime.Add(sent), testTime.Add(done), owed
		}))
	}
	at(1, 0, 100*time.Millisecond, 1000)
	at(2, 200*time.Millisecond, 300*time.Millisecond, 0) // a file of the page
	at(3, 1100*time.Millisecond, 1200*time.Millisecond, 1000)
	h, _ := s.state.hosts.get("example.com")
	if h.MinGap != time.Second || h.MinGapOwed != time.Second {
		t.Errorf("smallest gap %v of %v owed", h.MinGap, h.MinGapOwed)
	}
	at(4, 1700*time.Millisecond, 1800*time.Millisecond, 1000)
	rows := s.hostRows(Live{}, time.Now())
	if *rows[0].SmallestGap != 0.5 || !rows[0].TooClose() {
		t.Errorf("a gap below the promise is not seen: %+v", rows[0])
	}
	// A longer one that more was owed to was further from the promise, and a shorter one that was kept says nothing.
	at(5, 4800*time.Millisecond, 4900*time.Millisecond, 5000)
	at(6, 5100*time.Millisecond, 5200*time.Millisecond, 200)
	if rows := s.hostRows(Live{}, time.Now()); *rows[0].SmallestGap != 3 || rows[0].GapOwedThen() != 5 || !rows[0].TooClose() {
		t.Errorf("3s of 5s are not seen: %+v", rows[0])
	}
}

func TestIncidentIsNamed(t *testing.T) {
	s := newServer(t, nil)
	s.Observe(event(1, "https://example.com/", func(e *audit.Event) { e.Status, e.RetryAfterS = 429, 120 }))
	rows := s.hostRows(Live{Hosts: []LiveHost{{Host: "example.com", State: "held_back"}}}, time.Now())
	if rows[0].Cause != "429, Retry-After: 2m" || rows[0].Since.IsZero() {
		t.Errorf("cause %q", rows[0].Cause)
	}
}

// New means new to a gate that has been watching for a while.
func TestNewMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		see := func(seq uint64, host, reason string) {
			s.Observe(event(seq, "https://"+host+"/", func(e *audit.Event) { refusal(reason)(e); e.Host = host }))
		}
		see(1, "early.example", "robots-disallow")
		if rows := s.reasonRows(time.Now()); rows[0].New {
			t.Error("all is new to a gate that just started")
		}
		time.Sleep(2 * time.Hour)
		see(2, "early.example", "robots-disallow")
		see(3, "late.example", "address-denied")
		for _, r := range s.reasonRows(time.Now()) {
			if r.New != (r.Reason == "address-denied") {
				t.Errorf("%s: new %v", r.Reason, r.New)
			}
		}
		for _, h := range s.hostRows(Live{}, time.Now()) {
			if h.New != (h.Host == "late.example") {
				t.Errorf("%s: new %v", h.Host, h.New)
			}
		}
		time.Sleep(2 * time.Hour)
		for _, r := range s.reasonRows(time.Now()) {
			if r.New {
				t.Errorf("%s stays new", r.Reason)
			}
		}
	})
}

// A name that came with a wrong secret makes no client.
func TestUnprovenClient(t *testing.T) {
	s := newServer(t, nil)
	s.Observe(event(1, "https://example.com/", refusal("auth-failed")))
	if n := s.state.clients.len(); n != 0 {
		t.Errorf("%d clients", n)
	}
}

func TestAlone(t *testing.T) {
	s := newServer(t, nil)
	for i, v := range []struct{ host, client string }{{"a.example", "one"}, {"a.example", "two"}, {"b.example", "one"}} {
		s.Observe(event(uint64(i+1), "https://"+v.host+"/", func(e *audit.Event) { e.Host, e.Client.Name = v.host, v.client }))
	}
	for _, c := range s.clientRows(Live{Clients: []LiveClient{{Name: "idle", Sites: "1 site"}}}) {
		want := map[string]int{"one": 1, "two": 0, "idle": 0}[c.Name]
		if c.Alone != want {
			t.Errorf("%s: %d hosts of its own, want %d", c.Name, c.Alone, want)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	s := newServer(b, nil)
	e := event(1, "https://example.com/a/page?x=1", nil)
	b.ReportAllocs()
	for b.Loop() {
		e.Seq++
		s.Observe(e)
	}
}
