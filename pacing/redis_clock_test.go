package pacing

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// TestRedisClockGoesBack: a jump of the server's clock costs at most one full length, never an eternity.
func TestRedisClockGoesBack(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	client := server.client()
	defer client.Close()
	c := Defaults()
	c.Backoff.Jitter = 0
	p, st, err := newShared(context.Background(), c, RedisDefaults(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var offset atomic.Int64
	st.clock = func() int64 { return time.Now().UnixMicro() + offset.Load() }

	r := shortGap("gap.test")
	mustAcquire(t, p, r).Done(okay)
	hold := shortGap("hold.test")
	mustAcquire(t, p, hold).Done(Outcome{Sent: true, Status: 429, RetryAfter: "60"})
	held := shortGap("held.test")
	turn := mustAcquire(t, p, held)
	eventually(t, "the outcomes are not told", func() bool { return p.Peek(r).InFlight == 0 && p.Peek(hold).Fails == 1 })

	offset.Store(-time.Hour.Microseconds())
	next := mustAcquire(t, p, r)
	if next.Waited() > 3*time.Second {
		t.Errorf("waited %v for a gap of %v", next.Waited(), r.Gap)
	}
	next.Done(okay)
	if b := mustRefuse(t, p, hold, HostBackoff); b.RetryAfter() > 60 {
		t.Errorf("a hold of 60 s became %d s", b.RetryAfter())
	}
	held.Wait = 50 * time.Millisecond
	mustRefuse(t, p, held, TurnTooFar) // the lease still holds
	turn.Done(okay)
	held.Wait = 5 * time.Second
	mustAcquire(t, p, held).Done(okay)
}

func TestRedisParallel(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	a, b := instance(t, server, nil), instance(t, server, nil)
	r := shortGap("own.test")
	r.Parallel, r.Gap = 2, 0
	one, two := mustAcquire(t, a, r), mustAcquire(t, b, r)
	r.Wait = 50 * time.Millisecond
	mustRefuse(t, a, r, TurnTooFar)
	one.Done(okay)
	r.Wait = 5 * time.Second
	three := mustAcquire(t, b, r)
	two.Done(okay)
	three.Done(okay)
	r.Delay = 300 * time.Millisecond // a robots delay: one at a time
	one = mustAcquire(t, a, r)
	r.Wait = 50 * time.Millisecond
	mustRefuse(t, b, r, TurnTooFar)
	one.Done(okay)
}
