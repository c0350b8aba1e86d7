package pacing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		o    Outcome
		want verdict
	}{
		{Outcome{}, notSent},
		{Outcome{Status: 200}, notSent},
		{Outcome{Sent: true}, aborted},
		{Outcome{Sent: true, Status: 200}, good},
		{Outcome{Sent: true, Status: 101}, good},
		{Outcome{Sent: true, Status: 304}, good},
		{Outcome{Sent: true, Status: 404}, good},
		{Outcome{Sent: true, Status: 301}, redirected},
		{Outcome{Sent: true, Status: 403}, refusal},
		{Outcome{Sent: true, Status: 451, Err: context.Canceled}, refusal},
		{Outcome{Sent: true, Status: 429, Err: context.Canceled}, throttle},
		{Outcome{Sent: true, Status: 503}, throttle},
		{Outcome{Sent: true, Status: 502}, failure},
		{Outcome{Sent: true, Status: 200, Err: errors.New("reset")}, failure},
		{Outcome{Sent: true, Status: 200, Err: fmt.Errorf("read: %w", context.Canceled)}, aborted},
		{Outcome{Sent: true, Status: 200, Err: &Overrun{"stall_timeout"}}, aborted},
		{Outcome{Sent: true, Err: context.DeadlineExceeded}, failure},
	} {
		if got := tc.o.verdict(); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.o, got, tc.want)
		}
	}
}

func TestPeekCreatesNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		r := page("a")
		if v := p.Peek(r); v.Known || v.Reason != "" || v.State != "free" || v.Gap != time.Second || v.Wait != 0 {
			t.Errorf("unknown host: %+v", v)
		}
		if s := p.Stats(); s.Keys != 0 {
			t.Errorf("%d keys", s.Keys)
		}
		turn := mustAcquire(t, p, r)
		if v := p.Peek(r); v.State != "held" || v.InFlight != 1 || v.Wait != time.Second {
			t.Errorf("held: %+v", v)
		}
		turn.Done(Outcome{Sent: true, Status: 503, RetryAfter: "300"})
		v := p.Peek(r)
		if v.State != "owing" || v.Reason != HostBackoff || v.Wait != 300*time.Second || time.Until(v.HoldUntil) != 300*time.Second {
			t.Errorf("held back: %+v", v)
		}
		if h := p.Hosts(5); len(h) != 1 || h[0].State != "held_back" || h[0].Host != "h.test" {
			t.Errorf("hosts %+v", h)
		}
		p.Resume("h.test")
		if v = p.Peek(r); v.Reason != "" || v.Wait != time.Second || v.Fails != 0 {
			t.Errorf("resumed, the gap is owed still: %+v", v)
		}
		d := r
		d.DomainKey = "h.test"
		if v = p.Peek(d); v.Reason != "" {
			t.Errorf("with a domain: %+v", v)
		}
	})
}

func TestObserveHoldsTheOthers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		p.Observe(page("x"), okay) // nothing to learn, no state
		if s := p.Stats(); s.Keys != 0 {
			t.Errorf("%d keys", s.Keys)
		}
		got := make(chan error)
		first := mustAcquire(t, p, page("a"))
		go func() { _, err := p.Acquire(context.Background(), page("b")); got <- err }()
		synctest.Wait()
		for range 20 { // one incident, not twenty doublings
			p.Observe(page("x"), Outcome{Sent: true, Status: 429})
		}
		if v := p.Peek(page("a")); v.Fails != 1 || time.Until(v.HoldUntil) != 5*time.Second || v.Breaker != "closed" {
			t.Errorf("%+v", v)
		}
		p.Observe(page("x"), Outcome{Sent: true, Status: 503, RetryAfter: "100"})
		var b *Busy
		if err := <-got; !errors.As(err, &b) || b.Reason != HostBackoff || b.RetryAfter() != 100 {
			t.Errorf("a waiter that the hold pushes past its deadline: %v", err)
		}
		first.Done(okay)
		if s := p.Stats(); s.Incidents["throttle"] != 21 {
			t.Errorf("incidents %v", s.Incidents)
		}
	})
}

func TestHalfOpen(t *testing.T) {
	inBubble(t, func(c *Config) { c.Breaker.Min, c.Breaker.Size, c.Breaker.OpenFor = 2, 4, time.Minute }, func(t *testing.T, p *Pacer) {
		no := Outcome{Sent: true, Status: 403}
		for range 2 {
			mustAcquire(t, p, page("a")).Done(no)
		}
		if b := mustRefuse(t, p, page("a"), HostStopped); b.RetryAfter() != 60 {
			t.Errorf("%d", b.RetryAfter())
		}
		wait(time.Minute)
		r := page("r")
		r.Kind = Robots
		mustAcquire(t, p, r).Done(no) // decides nothing
		mustAcquire(t, p, page("a")).Done(Outcome{Sent: true, Status: 302})
		mustAcquire(t, p, page("a")).Done(Outcome{Sent: true, Status: 200, Err: context.Canceled})
		mustAcquire(t, p, page("a")).Done(Outcome{})
		file := page("a")
		file.Kind = Subresource
		turn := mustAcquire(t, p, file) // not closed: a turn of its own, yet no probe
		if turn.Riding() {
			t.Error("rides in a half-open breaker")
		}
		turn.Done(okay)
		if v := p.Peek(page("a")); v.Breaker != "half-open" {
			t.Errorf("%+v", v)
		}
		mustAcquire(t, p, page("a")).Done(no)
		if b := mustRefuse(t, p, page("a"), HostStopped); b.RetryAfter() != 120 {
			t.Errorf("%d", b.RetryAfter())
		}
		wait(2 * time.Minute)
		mustAcquire(t, p, page("a")).Done(okay)
		mustAcquire(t, p, page("a")).Done(no)
		mustAcquire(t, p, page("a")).Done(no)
		if b := mustRefuse(t, p, page("a"), HostStopped); b.RetryAfter() != 60 {
			t.Errorf("after a good probe it starts again: %d", b.RetryAfter())
		}
	})
}

func TestAtMost256Pages(t *testing.T) {
	inBubble(t, func(c *Config) {
		c.Pages.Retries, c.Backoff.Base, c.Breaker.Min, c.Breaker.Size, c.Slow.MaxLevel = 0, time.Millisecond, 999, 999, 0
		c.Backoff.Cap = time.Millisecond
	}, func(t *testing.T, p *Pacer) {
		r := page("a")
		for i := range 300 {
			r.URL = fmt.Sprint("http://h.test/", i)
			mustAcquire(t, p, r).Done(Outcome{Sent: true, Status: 429})
		}
		for i, left := range map[int]bool{0: false, 43: false, 44: true, 299: true} {
			r.URL = fmt.Sprint("http://h.test/", i)
			if v := p.Peek(r); (v.Reason == URLLeft) != left {
				t.Errorf("page %d: %q", i, v.Reason)
			}
		}
		if h := p.Hosts(1); h[0].PagesLeft != 256 {
			t.Errorf("%d pages left", h[0].PagesLeft)
		}
	})
}

// TestPageLeftAtTheGrant: a page that was left while a request for it waited is refused when its turn comes.
func TestPageLeftAtTheGrant(t *testing.T) {
	inBubble(t, func(c *Config) { c.Pages.Retries = 0 }, func(t *testing.T, p *Pacer) {
		r := page("a")
		first := mustAcquire(t, p, r)
		got := make(chan error)
		go func() { _, err := p.Acquire(context.Background(), r); got <- err }()
		synctest.Wait()
		first.Done(Outcome{Sent: true, Status: 429})
		var b *Busy
		if err := <-got; !errors.As(err, &b) || b.Reason != URLLeft {
			t.Error(err)
		}
	})
}

func TestForgetting(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		for i := range 5000 {
			r := page("a")
			r.Key = fmt.Sprintf("h%d.test", i)
			o := okay
			switch i {
			case 0:
				o = Outcome{Sent: true, Status: 503, RetryAfter: "7200"}
			case 1:
				o = Outcome{Sent: true, Status: 403}
			case 2:
				r.Delay = time.Hour
			}
			mustAcquire(t, p, r).Done(o)
		}
		wait(3 * time.Minute)
		if s := p.Stats(); s.Keys != 3 {
			t.Errorf("%d keys owe something, want 3", s.Keys)
		}
		for i := range p.shards {
			if s := &p.shards[i]; s.peak > shrinkOver {
				t.Errorf("a shard's map was made for %d", s.peak)
			}
		}
		wait(59 * time.Minute)
		if s := p.Stats(); s.Keys != 1 || s.Hosts["held_back"] != 1 {
			t.Errorf("keys %d, hosts %v", s.Keys, s.Hosts)
		}
		wait(3 * time.Hour)
		if s := p.Stats(); s.Keys != 0 {
			t.Errorf("%d keys after the hold was forgiven", s.Keys)
		}
	})
}

func TestKeys(t *testing.T) {
	for in, want := range map[string]string{
		"Example.ORG": "example.org", "example.org.": "example.org", "example.org:8080": "example.org", "[::1]:443": "[::1]",
		"[2001:DB8:0:0::1]": "[2001:db8::1]", "2001:db8::1": "[2001:db8::1]", "192.0.2.1:80": "192.0.2.1", "": "",
	} {
		if got := HostKey(in); got != want {
			t.Errorf("HostKey(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"a.b.example.co.uk": "example.co.uk", "co.uk": "co.uk", "me.github.io": "me.github.io", "x.me.github.io": "me.github.io",
		"192.0.2.1": "192.0.2.1", "[2001:db8::1]": "[2001:db8::1]", "localhost": "localhost", "a.site.test": "site.test",
	} {
		if got := DomainKey(in); got != want {
			t.Errorf("DomainKey(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestJitterIsOnlyAdded(t *testing.T) {
	c := Defaults()
	for range 1000 {
		if d := c.hold(1, 0); d < 5*time.Second || d > 5500*time.Millisecond {
			t.Fatal(d)
		}
		if d := c.hold(1, time.Minute); d < time.Minute || d > 66*time.Second {
			t.Fatal(d)
		}
	}
	if d := c.hold(1<<15, 0); d < time.Hour || d > 66*time.Minute {
		t.Error(d)
	}
}

func TestConfig(t *testing.T) {
	for name, err := range map[string]error{"config": Defaults().Validate(), "profile": ProfileDefaults().Validate(), "redis": RedisDefaults().Validate()} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	keys := func(err error) map[string]bool {
		m := map[string]bool{}
		var j interface{ Unwrap() []error }
		if !errors.As(err, &j) {
			return m
		}
		for _, e := range j.Unwrap() {
			m[e.(interface{ Key() string }).Key()] = true
		}
		return m
	}
	c := Defaults()
	c.Backoff.Cap, c.Backoff.Jitter, c.Breaker.Ratio, c.Breaker.Size, c.MaxKeys = time.Second, 2, 0, 5, 0
	got := keys(c.Validate())
	for _, want := range []string{"backoff.cap", "backoff.jitter", "breaker.ratio", "breaker.size", "max_keys"} {
		if !got[want] {
			t.Errorf("%s not reported in %v", want, got)
		}
	}
	pr := ProfileDefaults()
	pr.Mode, pr.Gap, pr.Parallel, pr.Key = "maybe", -1, 0, "ip"
	if got := keys(pr.Validate()); len(got) != 4 {
		t.Errorf("profile: %v", got)
	}
	pr = ProfileDefaults()
	if pr.Warnings() != nil {
		t.Error(pr.Warnings())
	}
	pr.Gap, pr.Parallel = 0, 3
	if w := pr.Warnings(); len(w) != 2 {
		t.Error(w)
	}
	rc := RedisDefaults()
	rc.LeaseTTL, rc.WhenDown, rc.Instances = time.Second, "hope", 0
	if got := keys(rc.Validate()); len(got) != 3 {
		t.Errorf("redis: %v", got)
	}
	if _, err := New(Config{}, nil, nil); err == nil {
		t.Error("an empty config was taken")
	}
}
