package pacing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs f in virtual time with a Pacer of these settings.
func inBubble(t *testing.T, change func(*Config), f func(t *testing.T, p *Pacer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.Backoff.Jitter = 0
		if change != nil {
			change(&c)
		}
		p, err := New(c, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		f(t, p)
	})
}

func page(client string) Request {
	return Request{Key: "h.test", Client: client, URL: "http://h.test/" + client, Wait: time.Minute, Gap: time.Second}
}

func mustAcquire(t testing.TB, p *Pacer, r Request) *Turn {
	t.Helper()
	turn, err := p.Acquire(context.Background(), r)
	if err != nil {
		t.Fatalf("%s of %s: %v", r.Kind, r.Client, err)
	}
	return turn
}

func mustRefuse(t testing.TB, p *Pacer, r Request, want Reason) *Busy {
	t.Helper()
	turn, err := p.Acquire(context.Background(), r)
	var b *Busy
	if err == nil {
		turn.Done(Outcome{})
	}
	if !errors.As(err, &b) || b.Reason != want {
		t.Fatalf("%s of %s: %v, want %s", r.Kind, r.Client, err, want)
	}
	return b
}

var okay = Outcome{Sent: true, Status: 200}

// wait lets virtual time pass.
func wait(d time.Duration) { <-time.After(d) }

func TestDoneTwice(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		turn := mustAcquire(t, p, page("a"))
		turn.Done(okay)
		turn.Done(Outcome{Sent: true, Status: 429})
		if v := p.Peek(page("a")); !v.HoldUntil.IsZero() || v.Wait != time.Second {
			t.Errorf("the second Done counted: %+v", v)
		}
		if s := p.Stats(); s.InFlight != 0 || s.Turns[TurnLabel{Page, "good"}] != 1 || len(s.Turns) != 1 {
			t.Errorf("stats %+v", s.Turns)
		}
	})
}

func TestPanicInTheMiddle(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		func() {
			defer func() { _ = recover() }()
			turn := mustAcquire(t, p, page("a"))
			defer turn.Done(Outcome{Sent: true, Err: errors.New("panic")})
			panic("in the handler")
		}()
		if v := p.Peek(page("b")); v.State != "owing" || v.InFlight != 0 || v.Fails != 1 {
			t.Errorf("after a panic: %+v", v)
		}
	})
}

func TestLeavesInTheMomentOfTheGrant(t *testing.T) {
	for range 50 {
		inBubble(t, nil, func(t *testing.T, p *Pacer) {
			turn := mustAcquire(t, p, page("a"))
			ctx, cancel := context.WithCancel(context.Background())
			got := make(chan error, 1)
			go func() {
				turn, err := p.Acquire(ctx, page("b"))
				if err == nil { // the grant was quicker: it is the caller's then
					turn.Done(Outcome{})
				}
				got <- err
			}()
			synctest.Wait()
			s, hash := p.shard("h.test")
			s.mu.Lock()
			cancel() // b is on its way out, and has to wait for the lock
			for range 100 {
				runtime.Gosched()
			}
			turn.ended.Store(true)
			k := s.find(hash, "h.test")
			k.unlink(&turn.host)
			p.process(s, k, p.now()) // b is granted
			s.mu.Unlock()
			if err := <-got; err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			// Whoever won, the turn is free and no gap is owed.
			turn = mustAcquire(t, p, page("c"))
			if waited(turn) != 0 {
				t.Fatalf("waited %v for a turn that was given back", waited(turn))
			}
			turn.Done(okay)
		})
	}
}

func TestLeaverFreesItsPlaceAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		turn := mustAcquire(t, p, page("a"))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 49 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := page(fmt.Sprint("gone", i))
				r.Wait = time.Hour
				if _, err := p.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if s := p.Stats(); s.Waiting != 0 {
			t.Errorf("%d waiting", s.Waiting)
		}
		turn.Done(okay)
		if turn = mustAcquire(t, p, page("b")); waited(turn) != time.Second {
			t.Errorf("waited %v", waited(turn))
		}
		turn.Done(okay)
	})
}

// lifeOf is a context that ends with the turn, with its cause.
func lifeOf(t *Turn) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	t.OnEnd(cancel)
	return ctx
}

func TestTurnLimit(t *testing.T) {
	inBubble(t, func(c *Config) { c.TurnLimit = time.Minute }, func(t *testing.T, p *Pacer) {
		turn := mustAcquire(t, p, page("a"))
		ctx := lifeOf(turn)
		<-ctx.Done()
		var o *Overrun
		if !errors.As(context.Cause(ctx), &o) || o.Limit != "turn_limit" {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		turn.Done(Outcome{Sent: true, Status: 200, Err: context.Cause(ctx)})
		s := p.Stats()
		if s.Overruns["turn_limit"] != 1 || s.Turns[TurnLabel{Page, "aborted"}] != 1 {
			t.Errorf("%v %v", s.Overruns, s.Turns)
		}
		turn = mustAcquire(t, p, page("a"))
		ctx = lifeOf(turn)
		turn.Done(okay)
		time.Sleep(2 * time.Minute)
		if ctx.Err() != nil || p.Stats().Overruns["turn_limit"] != 1 {
			t.Error("told after Done")
		}
		if turn.Held() == nil {
			t.Error("held after Done")
		}
		turn.OnEnd(func(error) { t.Error("told after Done") })
		time.Sleep(2 * time.Minute)
	})
}

func TestParallel(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		r := page("a")
		r.Parallel, r.Wait = 2, 0
		one, two := mustAcquire(t, p, r), mustAcquire(t, p, r)
		mustRefuse(t, p, r, TurnTooFar)
		one.Done(okay)
		mustRefuse(t, p, r, TurnTooFar) // one gap after the latest end
		wait(time.Second)
		three := mustAcquire(t, p, r)
		alone := r
		alone.Parallel = 1
		mustRefuse(t, p, alone, TurnTooFar)
		two.Done(okay)
		three.Done(Outcome{Sent: true, Status: 500})
		wait(6 * time.Second)
		one = mustAcquire(t, p, r)
		one.Done(Outcome{Sent: true, Status: 500}) // sustained: a pace level, so one at a time
		wait(time.Minute)
		one = mustAcquire(t, p, r)
		mustRefuse(t, p, r, TurnTooFar)
		one.Done(okay)
		slow := page("b")
		slow.Key, slow.Parallel, slow.Delay = "delay.test", 4, 2*time.Second
		one = mustAcquire(t, p, slow)
		slow.Wait = 0
		mustRefuse(t, p, slow, TurnTooFar)
		one.Done(okay)
	})
}

func TestGapZero(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		r := page("a")
		r.Gap, r.Wait = 0, 0
		for range 3 {
			mustAcquire(t, p, r).Done(okay)
		}
		d := r
		d.Delay, d.Wait = 3*time.Second, time.Minute
		mustAcquire(t, p, d).Done(okay)
		turn := mustAcquire(t, p, d)
		if waited(turn) != 3*time.Second {
			t.Errorf("a robots delay is kept without a gap: waited %v", waited(turn))
		}
		turn.Done(okay)
		for range 2 { // a pace level multiplies one second
			wait(time.Minute)
			mustAcquire(t, p, Request{Key: "slow.test", Client: "a"}).Done(Outcome{Sent: true, Status: 503})
		}
		wait(time.Minute)
		mustAcquire(t, p, Request{Key: "slow.test", Client: "a"}).Done(okay)
		turn = mustAcquire(t, p, Request{Key: "slow.test", Client: "a", Wait: time.Minute})
		if gap, source := turn.Owed(); waited(turn) != 2*time.Second || gap != 2*time.Second || source != "slowed" {
			t.Errorf("waited %v, owed %v %s", waited(turn), gap, source)
		}
		turn.Done(okay)
	})
}

func TestTwoProfilesKeepTheWiderGap(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		slow, quick := page("a"), page("b")
		slow.URL, quick.URL = "", "" // nothing else keeps the key
		slow.Gap = 10 * time.Second
		mustAcquire(t, p, slow).Done(okay)
		turn := mustAcquire(t, p, quick)
		if waited(turn) != 10*time.Second {
			t.Errorf("after the slow one: %v", waited(turn))
		}
		turn.Done(okay)
		wait(5 * time.Second) // past the quick one's gap: the key must not be forgotten yet
		s, _ := p.shard("h.test")
		p.sweep(s)
		if turn = mustAcquire(t, p, slow); waited(turn) != 5*time.Second {
			t.Errorf("before the slow one: %v", waited(turn))
		}
		turn.Done(okay)
	})
}

func TestLedgerGap(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		r := page("a")
		r.Slow = 20 * time.Second
		mustAcquire(t, p, r).Done(okay)
		got := make(chan *Turn)
		go func() { got <- mustAcquire(t, p, r) }()
		wait(4 * time.Second)
		p.SetGap("h.test", 5*time.Second, false)
		turn := <-got
		if gap, source := turn.Owed(); waited(turn) != 5*time.Second || gap != 5*time.Second || source != "ledger" {
			t.Errorf("waited %v, owed %v %s", waited(turn), gap, source)
		}
		turn.Done(okay)
		r.Slow = 5 * time.Second
		go func() { got <- mustAcquire(t, p, r) }()
		synctest.Wait()
		p.SetGap("test", 9*time.Second, true)
		if turn = <-got; waited(turn) != 9*time.Second {
			t.Errorf("below test: waited %v", waited(turn))
		}
		turn.Done(okay)
	})
}

func TestDelayMovesCompanions(t *testing.T) {
	inBubble(t, func(c *Config) { c.CompanionParallel = 1 }, func(t *testing.T, p *Pacer) {
		first := mustAcquire(t, p, page("a"))
		file := page("a")
		file.Kind = Subresource
		rider := mustAcquire(t, p, file)
		if !rider.Riding() {
			t.Fatal("does not ride")
		}
		got := make(chan *Turn)
		go func() { got <- mustAcquire(t, p, file) }()
		synctest.Wait()
		first.Done(okay)
		p.SetDelay("h.test", 4*time.Second) // the waiting rider now stands in the page queue
		turn := <-got
		if turn.Riding() || waited(turn) != 4*time.Second {
			t.Errorf("riding %v, waited %v", turn.Riding(), waited(turn))
		}
		go func() { got <- mustAcquire(t, p, file) }()
		synctest.Wait()
		p.SetDelay("h.test", 0) // and back: the first rider still has the only place
		rider.Done(okay)
		next := <-got
		if !next.Riding() {
			t.Error("does not ride without a delay")
		}
		next.Done(okay)
		turn.Done(okay)
	})
}

func TestDomainTurn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		r := func(host string) Request {
			r := page("c")
			r.Key, r.DomainKey = host, "site.test"
			return r
		}
		a := r("a.site.test")
		a.Delay = 7 * time.Second
		mustAcquire(t, p, a).Done(okay)
		turn := mustAcquire(t, p, r("b.site.test")) // the slower of the host that ended and the one that wants
		if waited(turn) != 7*time.Second {
			t.Errorf("waited %v", waited(turn))
		}
		turn.Done(Outcome{Sent: true, Status: 429, RetryAfter: "30"})
		b := mustRefuse(t, p, func() Request { x := r("c.site.test"); x.Wait = 10 * time.Second; return x }(), HostBackoff)
		if b.Class != ClassDomain || b.RetryAfter() != 30 {
			t.Errorf("%s %d", b.Class, b.RetryAfter())
		}
		// The refused one gave its host's turn back without a gap.
		own := page("c")
		own.Key, own.Wait = "c.site.test", 0
		mustAcquire(t, p, own).Done(Outcome{})
		p.Resume("b.site.test")
		if turn = mustAcquire(t, p, r("d.site.test")); waited(turn) != time.Second {
			t.Errorf("after a resume: %v", waited(turn))
		}
		turn.Done(okay)
		if s := p.Stats(); s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("in flight %d, waiting %d", s.InFlight, s.Waiting)
		}
	})
}

// TestDomainHoldDuringTheWait: what comes up at the host while the domain is waited for stops the request.
func TestDomainHoldDuringTheWait(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		r := page("a")
		r.DomainKey = "h.test"
		other := r
		other.Key = "o.h.test"
		first := mustAcquire(t, p, other)
		got := make(chan *Turn)
		go func() { got <- mustAcquire(t, p, r) }()
		synctest.Wait()
		p.Observe(page("x"), Outcome{Sent: true, Status: 503, RetryAfter: "9"})
		first.Done(okay)
		turn := <-got
		if waited(turn) != 9*time.Second {
			t.Errorf("waited %v", waited(turn))
		}
		turn.Done(okay)
	})
}

func TestAddressCap(t *testing.T) {
	inBubble(t, func(c *Config) { c.IPParallel = 2 }, func(t *testing.T, p *Pacer) {
		r := func(i int, addr string) Request {
			r := page("a")
			r.Key, r.Addr, r.Wait = fmt.Sprintf("h%d.test", i), netip.MustParseAddr(addr), 0
			return r
		}
		one := mustAcquire(t, p, r(1, "2001:db8::1"))
		two := mustAcquire(t, p, r(2, "2001:db8::2"))
		b := r(3, "2001:db8::3")
		b.Wait = time.Minute
		got := make(chan *Turn)
		go func() { got <- mustAcquire(t, p, b) }()
		mustAcquire(t, p, r(4, "2001:db8:0:1::1")).Done(okay)
		wait(3 * time.Second)
		one.Done(okay)
		turn := <-got
		if waited(turn) != 3*time.Second {
			t.Errorf("waited %v", waited(turn))
		}
		two.Done(okay)
		turn.Done(okay)
	})
}

func TestBounds(t *testing.T) {
	inBubble(t, func(c *Config) { c.MaxKeys, c.MaxWaiting = 2, 1 }, func(t *testing.T, p *Pacer) {
		one := mustAcquire(t, p, page("a"))
		x := page("a")
		x.Key = "x.test"
		mustAcquire(t, p, x).Done(okay)
		y := page("a")
		y.Key = "y.test"
		if b := mustRefuse(t, p, y, Overloaded); b.Class != ClassMaxKeys {
			t.Error(b.Class)
		}
		got := make(chan *Turn)
		go func() { got <- mustAcquire(t, p, page("b")) }()
		synctest.Wait()
		if b := mustRefuse(t, p, page("c"), Overloaded); b.Class != ClassMaxWaiting {
			t.Error(b.Class)
		}
		one.Done(okay)
		(<-got).Done(okay)
		wait(5 * time.Minute) // everything is forgotten, so there is room
		if s := p.Stats(); s.Keys != 0 {
			t.Errorf("%d keys", s.Keys)
		}
		mustAcquire(t, p, y).Done(okay)
	})
}

func TestCloseRefusesWaiters(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		turn := mustAcquire(t, p, page("a"))
		got := make(chan error)
		go func() { _, err := p.Acquire(context.Background(), page("b")); got <- err }()
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		var b *Busy
		if err := <-got; !errors.As(err, &b) || b.Class != ClassClosed {
			t.Error(err)
		}
		mustRefuse(t, p, page("c"), Overloaded)
		turn.Done(okay)
	})
}

// waited is to the microsecond: a timer is set a nanosecond late on purpose.
func waited(t *Turn) time.Duration { return t.Waited().Truncate(time.Microsecond) }
