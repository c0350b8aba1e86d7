package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(200), delay: time.Second}
		p := New(Defaults(), s, nil, nil)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				q := query(t, fmt.Sprintf("https://a.test/no/%d", i))
				wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
			})
		}
		synctest.Wait()
		if st := p.Stats(); st.Waiting != 50 {
			t.Errorf("%d wait", st.Waiting)
		}
		wg.Wait()
		if n := s.count(); n != 1 {
			t.Errorf("%d fetches", n)
		}
		if st := p.Stats(); st.Waiting != 0 || st.Entries != 1 || st.Exchanges != 1 || st.Checks != 50 || flights(p) != 0 {
			t.Errorf("left behind: %+v, %d flights", st, flights(p))
		}
	})
}

func TestEachAuthoritySchemeAndAgentHasItsOwnFile(t *testing.T) {
	s := &site{answer: inTurn(200)}
	p := New(Defaults(), s, nil, nil)
	for _, u := range []string{"https://a.test/", "http://a.test/", "https://www.a.test/", "https://a.test:8443/", "wss://a.test/"} {
		p.Check(t.Context(), query(t, u))
	}
	q := query(t, "https://a.test/")
	q.Agent = "b"
	p.Check(t.Context(), q)
	if n := s.count(); n != 5 {
		t.Errorf("%d fetches, want 5: wss shares the file of https", n)
	}
	for _, r := range s.asked {
		if r.URL.Path != "/robots.txt" || r.URL.RawQuery != "" || len(r.Header) != 0 {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
	}
}

func TestWaiterMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(200), delay: 10 * time.Second}
		p := New(Defaults(), s, nil, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("client left")
		var wg sync.WaitGroup
		wg.Go(func() {
			v := p.Check(ctx, query(t, "https://a.test/no"))
			wants(t, v, false, ReasonUnreadable, ClassWaitedTooLong)
			if !errors.Is(v.Cause, gone) {
				t.Errorf("cause %v", v.Cause)
			}
		})
		wg.Go(func() {
			pass(4 * time.Second) // virtual: a second caller, after the first has left
			wants(t, p.Check(t.Context(), query(t, "https://a.test/no")), false, ReasonDisallow, ClassRuleDisallow)
		})
		pass(2 * time.Second)
		start := time.Now()
		cancel(gone)
		synctest.Wait()
		if time.Since(start) != 0 {
			t.Error("the waiter did not leave at once")
		}
		wg.Wait()
		if n := s.count(); n != 1 {
			t.Errorf("%d fetches: leaving stopped the fetch", n)
		}
	})
}

func TestWaitBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(200), delay: 10 * time.Second}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/no")
		q.Wait = 3 * time.Second
		start := time.Now()
		v := p.Check(t.Context(), q)
		wants(t, v, false, ReasonUnreadable, ClassWaitedTooLong)
		if d := time.Since(start); d != 3*time.Second || v.RetryAfter <= 0 {
			t.Errorf("waited %v, RetryAfter %v", d, v.RetryAfter)
		}
		if w := s.request(0).Wait; w != 3*time.Second {
			t.Errorf("the turn may be waited for %v", w)
		}
		pass(8 * time.Second)
		q.Wait = -1
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		q = query(t, "https://b.test/")
		q.Wait = -1
		wants(t, p.Check(t.Context(), q), false, ReasonUnreadable, ClassWaitedTooLong)
		if n := s.count(); n != 1 {
			t.Errorf("%d fetches: a caller that does not wait started one", n)
		}
	})
}

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []int
		retries  int
		allow    bool
		class    string
		fetches  int
	}{
		{"third time lucky", []int{503, 0, 200}, 3, false, ClassNoMatch, 3},
		{"given up", []int{503}, 3, false, ClassUnreachable, 4},
		{"rate limited", []int{429}, 2, false, ClassRateLimited, 3},
		{"none", []int{0}, 0, false, ClassUnreachable, 1},
		{"when_unreadable allow takes the first word", []int{503}, 3, true, ClassUnreadableAllow, 1},
		{"a plain 404 is an answer", []int{404}, 3, false, ClassNoRobots, 1},
		{"so is a refusal", []int{403}, 3, false, ClassNoRobots, 1},
		{"an odd status is not tried again", []int{304}, 3, false, ClassUnreachable, 1},
		{"nor is 300", []int{300}, 3, false, ClassUnreachable, 1},
		{"the error in between counts", []int{500, 404}, 3, false, ClassNoRobots, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &site{answer: inTurn(c.statuses...)}
			p := New(Defaults(), s, nil, nil)
			q := query(t, "https://a.test/x")
			q.Profile.Retries = c.retries
			if c.allow {
				q.Profile.WhenUnreadable = Allow
			}
			if v := p.Check(t.Context(), q); v.Class != c.class {
				t.Errorf("class %s, want %s", v.Class, c.class)
			}
			if n := s.count(); n != c.fetches {
				t.Errorf("%d fetches, want %d", n, c.fetches)
			}
		})
	}
}

func TestNoRetryWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(503), delay: 5 * time.Second}
		p := New(Defaults(), s, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		p.Check(ctx, query(t, "https://a.test/x"))
		pass(time.Minute)
		if n := s.count(); n != 2 {
			t.Errorf("%d fetches, want 2: the second ran when the waiter left", n)
		}
		if flights(p) != 0 {
			t.Error("flight not forgotten")
		}
	})
}

func TestLaterWaiterKeepsRetriesGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(503, 503, 200), delay: 5 * time.Second}
		p := New(Defaults(), s, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.Check(ctx, query(t, "https://a.test/x"))
		wants(t, p.Check(t.Context(), query(t, "https://a.test/x")), true, ReasonOK, ClassNoMatch)
		if n := s.count(); n != 3 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestNoWaitForATurn: with Wait 0 the fetch is made if its turn is now. A patient caller that joins waits for it.
func TestNoWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(503), delay: 3 * time.Second}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/x")
		q.Wait = 0
		wants(t, p.Check(t.Context(), q), false, ReasonUnreadable, ClassUnreachable)
		if s.count() != 1 || s.request(0).Wait != 0 {
			t.Errorf("%d fetches, the first waits %v", s.count(), s.request(0).Wait)
		}
		s.answer, s.delay = inTurn(503, 503, 200), 10*time.Second
		q.URL = target(t, "https://b.test/x")
		var wg sync.WaitGroup
		wg.Go(func() {
			start := time.Now()
			wants(t, p.Check(t.Context(), q), false, ReasonUnreadable, ClassWaitedTooLong)
			if d := time.Since(start); d != unqueued {
				t.Errorf("waited %v", d)
			}
		})
		pass(time.Second)
		wants(t, p.Check(t.Context(), query(t, "https://b.test/x")), true, ReasonOK, ClassNoMatch)
		if w := s.request(2).Wait; w < 9*time.Minute {
			t.Errorf("the second try waits %v", w)
		}
		wg.Wait()
	})
}

// TestOwnSideRefuses: what the gate itself refuses is no word about the site.
func TestOwnSideRefuses(t *testing.T) {
	for _, c := range []struct{ reason, class string }{
		{"address-denied", "addr_private"}, {"port-denied", "port_denied"}, {"host-backoff", "hold"}, {"host-stopped", "open"},
		{"turn-too-far", "queue"}, {"overloaded", "full"}, {"site-stopped", "ledger"}, {"sign-failed", ""}, {"audit-unavailable", ""}, {"internal", "panic"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			cause := &FetchError{Reason: c.reason, Class: c.class, RetryAfter: 7 * time.Second, Err: errors.New("why")}
			fail := true
			s := &site{answer: func(int, FetchRequest) (*FetchResponse, error) {
				if fail {
					return nil, fmt.Errorf("fetch: %w", cause)
				}
				return reply(200, ""), nil
			}}
			p := New(Defaults(), s, nil, nil)
			q := query(t, "https://a.test/x")
			q.Profile.WhenUnreadable = Allow
			v := p.Check(t.Context(), q)
			wants(t, v, false, c.reason, c.class)
			var fe *FetchError
			if v.RetryAfter != 7*time.Second || !errors.As(v.Cause, &fe) || fe != cause {
				t.Errorf("RetryAfter %v, cause %v", v.RetryAfter, v.Cause)
			}
			if n := s.count(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			fail = false
			wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoGroup)
		})
	}
}

// TestBusyAfterAFailure: the site's failure is the better word, with the later time to come back.
func TestBusyAfterAFailure(t *testing.T) {
	s := &site{answer: func(n int, _ FetchRequest) (*FetchResponse, error) {
		if n == 0 {
			return reply(429, "", "Retry-After", "600"), nil
		}
		return nil, &FetchError{Reason: "host-backoff", RetryAfter: 10 * time.Minute}
	}}
	v := New(Defaults(), s, nil, nil).Check(t.Context(), query(t, "https://a.test/x"))
	wants(t, v, false, ReasonUnreadable, ClassRateLimited)
	if v.RetryAfter != 10*time.Minute {
		t.Errorf("RetryAfter %v", v.RetryAfter)
	}
}

func TestSiteCannotBeReached(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"dns-failed", "dns-failed"}, {"upstream-tls", "upstream-tls"}, {"upstream-failed", ReasonUnreadable},
		{"upstream-timeout", ReasonUnreadable}, {"", ReasonUnreadable},
	} {
		s := &site{answer: func(int, FetchRequest) (*FetchResponse, error) { return nil, &FetchError{Reason: c.reason} }}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/x")
		wants(t, p.Check(t.Context(), q), false, c.want, ClassUnreachable)
		n := s.count()
		wants(t, p.Check(t.Context(), q), false, c.want, ClassUnreachable)
		if s.count() != n || n != 4 {
			t.Errorf("%q: asked %d, then %d times", c.reason, n, s.count())
		}
	}
}

func TestPanicIsUnreadable(t *testing.T) {
	s := &site{answer: func(int, FetchRequest) (*FetchResponse, error) { panic("bug") }}
	v := New(Defaults(), s, nil, nil).Check(t.Context(), query(t, "https://a.test/x"))
	wants(t, v, false, ReasonUnreadable, ClassUnreachable)
}

// TestClose ends what runs; a fetch that it cut off is no failure of the site.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := openArchive(t, t.TempDir(), Defaults())
		s := &site{answer: inTurn(200), delay: time.Hour}
		p := New(Defaults(), s, a, nil)
		var wg sync.WaitGroup
		wg.Go(func() { wants(t, p.Check(t.Context(), query(t, "https://a.test/x")), false, "draining", "draining") })
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { p.Check(ctx, query(t, "https://b.test/x")) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		start := time.Now()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v", d)
		}
		wants(t, p.Check(t.Context(), query(t, "https://c.test/x")), false, "draining", "draining")
		if s.count() != 2 || a.size != 0 || flights(p) != 0 {
			t.Errorf("%d fetches, %d bytes in the index, %d flights", s.count(), a.size, flights(p))
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestInvalidURL(t *testing.T) {
	p := New(Defaults(), &site{answer: inTurn(200)}, nil, nil)
	q := query(t, "/path-only")
	wants(t, p.Check(t.Context(), q), false, ReasonUnreadable, ClassInvalidURL)
	q.URL = nil
	wants(t, p.Check(t.Context(), q), false, ReasonUnreadable, ClassInvalidURL)
}

// TestTokenChange: a changed configuration is not judged by rules compiled for the old token.
func TestTokenChange(t *testing.T) {
	s := &site{answer: always(200, "User-agent: Old\nDisallow: /\nUser-agent: New\nDisallow: /n\n")}
	p := New(Defaults(), s, nil, nil)
	q := query(t, "https://a.test/x")
	q.Token = "Old"
	wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
	q.Token = "New"
	wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
	q.Fallback = []string{"Old"}
	wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
}

func flights(p *Policy) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.flights)
}
