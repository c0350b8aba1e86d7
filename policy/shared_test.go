package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/pacing/redistest"
)

// fakeShared keeps in memory, with leases that end.
type fakeShared struct {
	mu     sync.Mutex
	values map[string][]byte
	leases map[string]time.Time
	down   bool
}

var errDown = errors.New("down")

func (f *fakeShared) Load(_ context.Context, id string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errDown
	}
	return f.values[id], nil
}

func (f *fakeShared) Store(_ context.Context, id string, value []byte, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	f.values[id] = value
	return nil
}

func (f *fakeShared) Lease(_ context.Context, id string, d time.Duration) (func(), bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return func() {}, false, errDown
	}
	if time.Now().Before(f.leases[id]) {
		return func() {}, false, nil
	}
	f.leases[id] = time.Now().Add(d)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.leases, id)
	}, true, nil
}

func newFakeShared() *fakeShared {
	return &fakeShared{values: map[string][]byte{}, leases: map[string]time.Time{}}
}

func TestSharedBySeveralInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newFakeShared()
		s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n", "ETag", `"1"`, "Cache-Control", "max-age=3600"), delay: 3 * time.Second}
		var all []*Policy
		for i := range 3 {
			a := openArchive(t, t.TempDir(), Defaults())
			if i == 2 {
				a = nil
			}
			p := New(Defaults(), s, a, nil)
			p.Share(shared, false)
			all = append(all, p)
		}
		ask := func(want int, class string) {
			t.Helper()
			var wg sync.WaitGroup
			for _, p := range all {
				wg.Go(func() {
					if v := p.Check(t.Context(), query(t, "https://a.test/no")); v.Class != class {
						t.Errorf("%s (%s), want %s", v.Class, v.Reason, class)
					}
				})
			}
			wg.Wait()
			if n := s.count(); n != want {
				t.Errorf("%d fetches, want %d", n, want)
			}
		}
		ask(1, ClassRuleDisallow)
		v := all[1].Check(t.Context(), query(t, "https://a.test/no"))
		if b, err := all[1].archive.Body(v.SHA256); err != nil || len(b) == 0 {
			t.Errorf("what was taken over is not in this instance's archive: %v", err)
		}
		// Confirmed for one is confirmed for all.
		pass(2 * time.Hour)
		s.mu.Lock()
		s.answer = always(304, "")
		s.mu.Unlock()
		ask(2, ClassRuleDisallow)
		// A failure holds for all, and so does the copy that stands in for it.
		pass(24*time.Hour + time.Minute)
		s.mu.Lock()
		s.answer = always(503, "")
		s.mu.Unlock()
		ask(6, ClassUnreachable)
		// Without the store each reads for itself.
		pass(time.Hour)
		shared.mu.Lock()
		shared.down = true
		shared.mu.Unlock()
		s.mu.Lock()
		s.answer = always(404, "")
		s.mu.Unlock()
		ask(9, ClassNoRobots)
		for _, p := range all[:2] {
			if err := p.archive.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLeaseOfADeadInstance ends by itself.
func TestLeaseOfADeadInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newFakeShared()
		s := &site{answer: inTurn(200)}
		p := New(Defaults(), s, nil, nil)
		p.Share(shared, false)
		q := query(t, "https://a.test/no")
		if _, ok, err := shared.Lease(t.Context(), sharedID(keyOf(q.URL, q.Agent)), 30*time.Second); !ok || err != nil {
			t.Fatal(ok, err)
		}
		start := time.Now()
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		if d := time.Since(start); d < 30*time.Second || d > 31*time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

// TestSharedIsNotTrustedBlindly: what does not fit is passed over.
func TestSharedIsNotTrustedBlindly(t *testing.T) {
	q := query(t, "https://a.test/no")
	k := keyOf(q.URL, q.Agent)
	now := time.Now()
	body := []byte("User-agent: *\nAllow: /\n")
	good := func() *Version {
		return &Version{
			Host: k.host, URL: k.url(), Agent: k.agent, Class: ClassNoMatch, Status: 200, HTTPStatus: 200, Effective: now, Fetched: now,
			Until: now.Add(time.Hour), SHA256: hexSum(body), File: bodyFile(hexSum(body)),
		}
	}
	for name, c := range map[string]struct {
		change func(*Version)
		taken  bool
	}{
		"good":           {func(*Version) {}, true},
		"other file":     {func(v *Version) { v.URL = "https://b.test/robots.txt" }, false},
		"other agent":    {func(v *Version) { v.Agent = "b" }, false},
		"over":           {func(v *Version) { v.Until = now }, false},
		"for too long":   {func(v *Version) { v.Until = now.Add(25 * time.Hour) }, false},
		"from to-morrow": {func(v *Version) { v.Fetched = now.Add(23 * time.Hour); v.Until = now.Add(24 * time.Hour) }, false},
		"another body":   {func(v *Version) { v.SHA256 = hexSum(nil); v.File = bodyFile(v.SHA256) }, false},
		"a name outside": {func(v *Version) { v.File = "../x" }, false},
	} {
		v := good()
		c.change(v)
		value, err := pack(v, body)
		if err != nil {
			t.Fatal(err)
		}
		shared := newFakeShared()
		shared.values[sharedID(k)] = value
		s := &site{answer: inTurn(200)}
		p := New(Defaults(), s, nil, nil)
		p.Share(shared, false)
		if got := p.Check(t.Context(), q); got.Allowed != c.taken || (s.count() == 0) != c.taken {
			t.Errorf("%s: allowed %v after %d fetches", name, got.Allowed, s.count())
		}
	}
	for _, junk := range [][]byte{{}, []byte("junk"), make([]byte, 100)} {
		shared := newFakeShared()
		shared.values[sharedID(k)] = junk
		p := New(Defaults(), &site{answer: inTurn(200)}, nil, nil)
		p.Share(shared, false)
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
	}
}

// A signal in an answer that one instance saw binds all of them, and so does its end.
func TestSharedSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newFakeShared()
		down := func(b bool) { shared.mu.Lock(); shared.down = b; shared.mu.Unlock() }
		s := &site{answer: always(404, "")}
		made := func(spare bool) *Policy {
			p := New(Defaults(), s, nil, nil)
			p.Share(shared, spare)
			return p
		}
		a, b, spare := made(false), made(false), made(true)
		q := query(t, "https://a.test/x")
		q.StopOn = []string{"ai-input=no"}
		q.Profile.ResponseSignals = Bind
		stop, silent := http.Header{"Content-Signal": {"ai-input=no"}}, http.Header{}
		is := func(p *Policy, reason string) Verdict {
			t.Helper()
			v := p.Check(t.Context(), q)
			if v.Reason != reason || v.Allowed != (reason == ReasonOK) {
				t.Errorf("%s (%s), want %s", v.Reason, v.Class, reason)
			}
			return v
		}
		is(b, ReasonOK)
		a.ObserveResponse(q, 200, stop)
		if v := is(b, ReasonSignal); v.Signal != "ai-input=no" || v.RetryAfter <= 23*time.Hour || v.RetryAfter > 24*time.Hour {
			t.Errorf("%+v", v)
		}
		is(spare, ReasonSignal)
		b.ObserveResponse(q, 200, silent) // sent all the same, as where nothing is enforced
		is(a, ReasonOK)
		is(b, ReasonOK)

		// While the store is away what another instance saw is not known: nothing goes out, or what is known here counts.
		a.ObserveResponse(q, 200, stop)
		is(spare, ReasonSignal)
		down(true)
		if v := is(b, ReasonStoreAway); v.Class != ClassStoreAway || v.RetryAfter <= 0 || !errors.Is(v.Cause, errDown) {
			t.Errorf("%+v", v)
		}
		is(spare, ReasonSignal)
		record := q
		record.Profile.ResponseSignals = Record
		if v := b.Check(t.Context(), record); !v.Allowed {
			t.Errorf("who does not bind needs no store: %+v", v)
		}
		// What is seen meanwhile is told afterwards.
		other := q
		other.URL = target(t, "https://a.test/y")
		a.ObserveResponse(other, 200, stop)
		down(false)
		is(a, ReasonSignal)
		if v := b.Check(t.Context(), other); v.Reason != ReasonSignal {
			t.Errorf("%+v", v)
		}
		// A store that lost everything hears again of what an instance still knows.
		shared.mu.Lock()
		clear(shared.values)
		shared.mu.Unlock()
		is(a, ReasonSignal)
		is(made(false), ReasonSignal)
		// What is none of ours says nothing.
		shared.mu.Lock()
		shared.values[signalID(bindKey(&q))] = []byte(`{"key":"another"}`)
		shared.mu.Unlock()
		is(b, ReasonStoreAway)
		pass(25 * time.Hour)
		shared.mu.Lock()
		clear(shared.values)
		shared.mu.Unlock()
		is(a, ReasonOK)
		is(b, ReasonOK)
	})
}

// age lets time pass for all that the server keeps.
func age(t *testing.T, c *redis.Client, d time.Duration) {
	t.Helper()
	for _, key := range c.Keys(t.Context(), "*").Val() {
		left := c.PTTL(t.Context(), key).Val()
		if left < 0 {
			t.Errorf("%s is kept for ever", key)
		}
		if err := c.PExpire(t.Context(), key, left-d).Err(); err != nil { // below nothing: gone
			t.Fatal(err)
		}
	}
}

func TestRedisShared(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { _ = client.Close() })
	shared := NewRedisShared(client)
	ctx := t.Context()
	if b, err := shared.Load(ctx, "x"); b != nil || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := shared.Store(ctx, "x", []byte("value"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if b, err := shared.Load(ctx, "x"); string(b) != "value" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	release, ok, err := shared.Lease(ctx, "x", time.Minute)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, again, err := shared.Lease(ctx, "x", time.Minute); again || err != nil {
		t.Error("two leases", err)
	}
	age(t, client, 2*time.Minute)
	second, ok, err := shared.Lease(ctx, "x", time.Minute)
	if !ok || err != nil {
		t.Fatal("the lease did not end", err)
	}
	release() // too late: it is the other's by now
	if _, third, _ := shared.Lease(ctx, "x", time.Minute); third {
		t.Error("an old holder gave back a lease that was not its own")
	}
	second()
	if _, ok, _ = shared.Lease(ctx, "x", time.Minute); !ok {
		t.Error("not given back")
	}
	age(t, client, 2*time.Hour)
	if b, err := shared.Load(ctx, "x"); b != nil || err != nil {
		t.Errorf("kept past its time: %q, %v", b, err)
	}
	// Two instances over it.
	s := &site{answer: always(200, typical)}
	for i := range 2 {
		p := New(Defaults(), s, nil, nil)
		p.Share(shared, false)
		wants(t, p.Check(ctx, query(t, "https://a.test/cart")), false, ReasonDisallow, ClassRuleDisallow)
		if s.count() != 1 {
			t.Errorf("instance %d: %d fetches", i, s.count())
		}
	}
	server.Stop()
	p := New(Defaults(), s, nil, nil)
	p.Share(shared, false)
	wants(t, p.Check(ctx, query(t, "https://a.test/cart")), false, ReasonDisallow, ClassRuleDisallow)
	p.ObserveResponse(query(t, "https://a.test/x"), 200, http.Header{})
	if s.count() != 2 {
		t.Errorf("%d fetches with the server gone", s.count())
	}
	if _, _, err := shared.Lease(ctx, "x", time.Minute); err == nil {
		t.Error(fmt.Sprint("no error from a server that is gone: ", err))
	}
}
