package pacing

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// instance is one more Pacer on the server.
func instance(t *testing.T, server *redisServer, change func(*Config, *RedisConfig)) *Pacer {
	t.Helper()
	c, rc := Defaults(), RedisDefaults()
	c.Backoff.Jitter = 0
	if change != nil {
		change(&c, &rc)
	}
	client := server.client()
	p, err := NewShared(context.Background(), c, rc, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		_ = client.Close()
	})
	return p
}

// eventually waits for what another instance or the server does.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(8 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		pauseFor(context.Background(), 2*time.Millisecond)
	}
}

func shortGap(host string) Request {
	return Request{Key: host, Client: "a", URL: "http://" + host + "/", Wait: 5 * time.Second, Gap: 30 * time.Millisecond}
}

func TestRedisRoundTrips(t *testing.T) {
	t.Parallel()
	p := instance(t, startRedis(t), nil)
	r := shortGap("h.test")
	trips := func() uint64 { return p.Stats().StoreRoundTrips }
	settled := func(n uint64) {
		t.Helper()
		eventually(t, "the outcome is not told", func() bool { return trips() >= n && p.Peek(r).InFlight == 0 })
	}
	start := trips()
	mustAcquire(t, p, r).Done(okay)
	settled(start + 2)
	before := trips()
	turn := mustAcquire(t, p, r) // after a gap
	if n := trips() - before; n > 2 {
		t.Errorf("%d round trips for a grant after a gap, want 2", n)
	}
	turn.Done(okay)
	eventually(t, "the gap never passes", func() bool { return p.Peek(r).Wait == 0 && p.Peek(r).InFlight == 0 })
	before = trips()
	turn = mustAcquire(t, p, r) // ready
	if n := trips() - before; n != 1 {
		t.Errorf("%d round trips for a ready host, want 1", n)
	}
	turn.Done(okay)
}

// TestRedisSharesEverything: what one instance learns holds the other.
func TestRedisSharesEverything(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	a, b := instance(t, server, nil), instance(t, server, nil)
	done := func(p *Pacer, r Request, o Outcome) {
		t.Helper()
		mustAcquire(t, p, r).Done(o)
		eventually(t, "the outcome is not told", func() bool { return p.Peek(r).InFlight == 0 })
	}
	hold := shortGap("hold.test")
	done(a, hold, Outcome{Sent: true, Status: 429, RetryAfter: "100"})
	if busy := mustRefuse(t, b, hold, HostBackoff); busy.RetryAfter() != 100 {
		t.Errorf("retry after %d", busy.RetryAfter())
	}
	rider := hold
	rider.Kind = Subresource
	mustRefuse(t, b, rider, HostBackoff)
	if v := b.Peek(hold); v.Reason != HostBackoff || v.Fails != 1 {
		t.Errorf("%+v", v)
	}
	b.Resume("hold.test")
	done(a, hold, okay)

	stop := shortGap("stop.test")
	for i := range 10 {
		done([]*Pacer{a, b}[i%2], stop, Outcome{Sent: true, Status: 403})
	}
	mustRefuse(t, a, stop, HostStopped)
	mustRefuse(t, b, stop, HostStopped)
	if v := a.Peek(stop); v.Breaker != "open" || v.Reason != HostStopped {
		t.Errorf("%+v", v)
	}

	left := shortGap("left.test")
	for i := range 4 {
		p := []*Pacer{a, b}[i%2]
		done(p, left, Outcome{Sent: true, Status: 429})
		hold := left.Key
		a.tellClear(hold)
	}
	mustRefuse(t, b, left, URLLeft)
	if v := a.Peek(left); v.Reason != URLLeft || v.Wait < 50*time.Minute {
		t.Errorf("%+v", v)
	}

	b.Observe(shortGap("seen.test"), Outcome{Sent: true, Status: 503, RetryAfter: "50"})
	eventually(t, "what was observed holds nobody", func() bool { return a.Peek(shortGap("seen.test")).Reason == HostBackoff })

	slow := shortGap("slow.test")
	slow.Delay = 20 * time.Second
	done(a, slow, okay)
	slow.Delay = 0
	mustRefuse(t, b, slow, TurnTooFar)
	b.SetDelay("slow.test", 0)
	done(a, slow, okay)
}

// tellClear ends a hold without forgetting the page count, as time would.
func (p *Pacer) tellClear(name string) {
	c := p.shared.b.(*redisStore)
	const script = `local s = cmsgpack.unpack(redis.call('GET', KEYS[1])) s.hl = 0 s.lv = 0 s.el = 0 redis.call('SET', KEYS[1], cmsgpack.pack(s))`
	_ = c.c.Eval(context.Background(), script, []string{redisPrefix + "{" + name + "}"}).Err()
}

// TestRedisHoldReachesWaiters: a waiter at another instance is told at once that it waits in vain.
func TestRedisHoldReachesWaiters(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	a, b := instance(t, server, nil), instance(t, server, nil)
	r := shortGap("h.test")
	turn := mustAcquire(t, a, r)
	got := make(chan error, 1)
	start := time.Now()
	go func() { _, err := b.Acquire(context.Background(), r); got <- err }()
	eventually(t, "does not wait", func() bool { return b.Stats().Waiting == 1 && b.Stats().StoreRoundTrips > 0 })
	pauseFor(context.Background(), 50*time.Millisecond)
	turn.Done(Outcome{Sent: true, Status: 503, RetryAfter: "1000"})
	var busy *Busy
	if err := <-got; !errors.As(err, &busy) || busy.Reason != HostBackoff || time.Since(start) > 3*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// twoInBubble are two instances in a bubble that share a server, whose clock is the bubble's.
func twoInBubble(t *testing.T, server *redisServer) (a, b *Pacer) {
	t.Helper()
	one := func() *Pacer {
		client := server.client()
		p, st, err := newShared(context.Background(), Defaults(), RedisDefaults(), client, nil)
		if err != nil {
			t.Fatal(err)
		}
		st.clock = func() int64 { return time.Now().UnixMicro() }
		t.Cleanup(func() { _, _ = p.Close(), client.Close() })
		return p
	}
	return one(), one()
}

func inDomain(host string, kind Kind, gap time.Duration) Request {
	return Request{Key: host, DomainKey: "h.test", Client: "c", Kind: kind, URL: "http://" + host + "/", Wait: 2 * time.Second, Gap: gap}
}

// TestRedisHoldWhileDomainIsWaitedFor: what another instance learned of a host while its turn was held and the domain's was
// waited for stops the request.
func TestRedisHoldWhileDomainIsWaitedFor(t *testing.T) {
	server := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		one, two := twoInBubble(t, server)
		mustAcquire(t, one, inDomain("a.h.test", Page, time.Second)).Done(okay)
		got := make(chan error, 1)
		go func() {
			turn, err := one.Acquire(context.Background(), inDomain("b.h.test", Page, time.Second))
			if err == nil {
				turn.Done(okay)
			}
			got <- err
		}()
		wait(500 * time.Millisecond)
		file := inDomain("b.h.test", Subresource, time.Second)
		file.DomainKey = ""
		mustAcquire(t, two, file).Done(Outcome{Sent: true, Status: 429, RetryAfter: "1000"})
		var busy *Busy
		if err := <-got; !errors.As(err, &busy) || busy.Reason != HostBackoff {
			t.Errorf("%v", err)
		}
	})
}

// TestRedisTwoEndsInOneInstant: of two turns that end within one microsecond, or with the server's clock behind, the wider
// gap is owed.
func TestRedisTwoEndsInOneInstant(t *testing.T) {
	server := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		one, two := twoInBubble(t, server)
		mustAcquire(t, one, inDomain("a.h.test", Page, 0)).Done(okay)
		wait(0)
		mustAcquire(t, one, inDomain("b.h.test", Redirect, time.Second)).Done(okay)
		wait(0)
		if turn := mustAcquire(t, two, inDomain("a.h.test", Page, 0)); turn.Waited() < time.Second {
			t.Errorf("a page %v after a redirect that owed a second", turn.Waited())
		} else {
			turn.Done(okay)
		}
		// robots.txt keeps an account of its own.
		mustAcquire(t, one, Request{Key: "c.test", Client: "c", Kind: Robots, Wait: time.Second}).Done(okay)
		wait(0)
		mustAcquire(t, one, Request{Key: "c.test", Client: "c", Kind: Robots, Wait: time.Second, Gap: 700 * time.Millisecond}).Done(okay)
		wait(0)
		if turn := mustAcquire(t, two, Request{Key: "c.test", Client: "c", Wait: time.Second}); turn.Waited() < 700*time.Millisecond {
			t.Errorf("a page %v after a robots.txt that owed 700 ms", turn.Waited())
		} else {
			turn.Done(okay)
		}
	})
}

func TestRedisMustNotEvict(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	client := server.client()
	defer client.Close()
	ctx := context.Background()
	if err := client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewShared(ctx, Defaults(), RedisDefaults(), client, nil); err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("a server that evicts was taken: %v", err)
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer gone.Close()
	if _, err := NewShared(ctx, Defaults(), RedisDefaults(), gone, nil); err == nil {
		t.Error("no server was taken")
	}
}

// TestRedisLeaseLost: a holder whose lease cannot be renewed cuts its own exchange, before anybody else may go.
func TestRedisLeaseLost(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := instance(t, server, func(_ *Config, rc *RedisConfig) { rc.LeaseTTL = 3 * time.Second })
	turn := mustAcquire(t, p, shortGap("h.test"))
	granted := time.Now()
	if err := turn.Held(); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	life := lifeOf(turn)
	<-life.Done()
	var lost *LeaseLost
	if cause := context.Cause(life); !errors.As(cause, &lost) || lost.Key != "h.test" {
		t.Errorf("cause %v", cause)
	}
	if d := time.Since(granted); d > 3*time.Second+time.Second {
		t.Errorf("cut after %v", d)
	}
	if turn.Held() == nil {
		t.Error("still held")
	}
	turn.Done(Outcome{Sent: true, Err: context.Cause(life)})
	if s := p.Stats(); s.LeaseLost == 0 {
		t.Error("not counted")
	}
}

// TestRedisLeaseStolen: when the server says that the lease is another's, the exchange is cut at the next renewal.
func TestRedisLeaseStolen(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := instance(t, server, func(_ *Config, rc *RedisConfig) { rc.LeaseTTL = 3 * time.Second })
	turn := mustAcquire(t, p, shortGap("h.test"))
	client := server.client()
	defer client.Close()
	if err := client.Del(context.Background(), redisPrefix+"{h.test}").Err(); err != nil {
		t.Fatal(err)
	}
	life := lifeOf(turn)
	<-life.Done()
	var lost *LeaseLost
	if cause := context.Cause(life); !errors.As(cause, &lost) {
		t.Errorf("cause %v", cause)
	}
	turn.Done(Outcome{Sent: true, Err: context.Cause(life)})
	next := shortGap("h.test") // the exchange ended only now, whoever held the turn meanwhile
	next.Gap = time.Second
	if turn := mustAcquire(t, p, next); turn.Waited() < 900*time.Millisecond {
		t.Errorf("the next turn came %v after the end", turn.Waited())
	}
}

// TestRedisFailover: another server with other data is as if every host had just been asked, and whoever holds a turn
// puts it back.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := instance(t, server, nil)
	q := instance(t, server, nil)
	long := shortGap("h.test")
	long.Gap = 2 * time.Second
	holder := mustAcquire(t, q, shortGap("held.test"))
	mustAcquire(t, p, shortGap("warm.test")).Done(okay)
	server.Stop()
	server.Start()
	turn := mustAcquire(t, p, long)
	if turn.Waited() < 1500*time.Millisecond {
		t.Errorf("after a failover the first turn came after %v, promised %v", turn.Waited(), long.Gap)
	}
	turn.Done(okay)
	eventually(t, "the lease was not put back", func() bool { // q notices by itself
		rep, err := p.look("held.test", "")
		return err == nil && rep.leases == 1
	})
	r := shortGap("held.test")
	r.Wait = 100 * time.Millisecond
	mustRefuse(t, p, r, TurnTooFar)
	holder.Done(okay)
	r.Wait = 5 * time.Second
	mustAcquire(t, p, r).Done(okay)
}

// TestRedisEmptied: a server that lost its data and nothing else is found out by the next call, whoever makes it. Who
// holds a turn puts it back, and back-offs are told by those who know them.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p, q := instance(t, server, nil), instance(t, server, nil)
	mustAcquire(t, p, shortGap("busy.test")).Done(Outcome{Sent: true, Status: 429, RetryAfter: "60"})
	eventually(t, "the outcome was not told", func() bool { return p.Stats().InFlight == 0 })
	holder := mustAcquire(t, q, shortGap("held.test"))
	client := server.client()
	defer client.Close()
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	r := shortGap("held.test")
	got := make(chan error, 1)
	go func() {
		turn, err := p.Acquire(context.Background(), r)
		if err == nil && holder.Held() == nil {
			err = errors.New("two turns at once")
		}
		if turn != nil {
			turn.Done(okay)
		}
		got <- err
	}()
	eventually(t, "the lease was not put back", func() bool {
		rep, err := p.look("held.test", "")
		return err == nil && rep.leases == 1
	})
	pauseFor(context.Background(), resettle+200*time.Millisecond) // by now it would have been given without the lease
	if err := holder.Held(); err != nil {
		t.Errorf("the holder lost its turn: %v", err)
	}
	select {
	case err := <-got:
		t.Errorf("given while it was held: %v", err)
	default:
	}
	holder.Done(okay)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if busy := mustRefuse(t, instance(t, server, nil), shortGap("busy.test"), HostBackoff); busy.RetryAfter() < 50 {
		t.Errorf("retry after %d", busy.RetryAfter())
	}
	if s := q.Stats(); s.LeaseLost != 0 {
		t.Errorf("%d leases lost", s.LeaseLost)
	}
}

// TestRedisTakesNothing: a server that answers and takes nothing (a replica, no memory) is away.
func TestRedisTakesNothing(t *testing.T) {
	t.Parallel()
	for _, set := range [][]any{{"replicaof", "127.0.0.1", "1"}, {"config", "set", "maxmemory", "1"}} {
		server := startRedis(t)
		p := instance(t, server, func(_ *Config, rc *RedisConfig) { rc.StoreGrace = 600 * time.Millisecond })
		client := server.client()
		defer client.Close()
		if err := client.Do(context.Background(), set...).Err(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if busy := mustRefuse(t, p, shortGap("h.test"), Overloaded); busy.Class != ClassStoreAway || time.Since(start) > 4*time.Second {
			t.Errorf("%v: class %s after %v", set, busy.Class, time.Since(start))
		}
		if !p.Stats().StoreAway {
			t.Errorf("%v: not away", set)
		}
		for _, back := range [][]any{{"replicaof", "no", "one"}, {"config", "set", "maxmemory", "0"}} {
			if err := client.Do(context.Background(), back...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "not back", func() bool { return !p.Stats().StoreAway })
		mustAcquire(t, p, shortGap("h.test")).Done(okay)
	}
}

// TestRedisNeverAnswers: where each call fails and the probe does not, a waiter still ends.
func TestRedisNeverAnswers(t *testing.T) {
	t.Parallel()
	p := instance(t, startRedis(t), nil)
	p.shared.b = &brokenBackend{p.shared.b}
	r := shortGap("h.test")
	r.Wait = 300 * time.Millisecond
	if busy := mustRefuse(t, p, r, Overloaded); busy.Class != ClassStoreAway {
		t.Errorf("class %s", busy.Class)
	}
}

// brokenBackend fails every call.
type brokenBackend struct{ backend }

func (*brokenBackend) call(context.Context, string, string, *args) (reply, error) {
	return reply{}, errors.New("i/o timeout")
}

// TestRedisForeignKey: what somebody else wrote under a host's name stops that host alone, and at once.
func TestRedisForeignKey(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := instance(t, server, nil)
	client := server.client()
	defer client.Close()
	ctx, key := context.Background(), redisPrefix+"{h.test}"
	for what, err := range map[string]error{
		"text": client.Set(ctx, key, "hello", 0).Err(), "state": client.Set(ctx, key+"2", "\x81\xa1L\x91\x01", 0).Err(), "list": client.RPush(ctx, key+"3", "x").Err(),
	} {
		if err != nil {
			t.Fatal(what, err)
		}
	}
	for _, from := range []string{key, key + "2", key + "3"} {
		if err := client.Rename(ctx, from, key).Err(); err != nil && from != key {
			t.Fatal(err)
		}
		start := time.Now()
		if busy := mustRefuse(t, p, shortGap("h.test"), Overloaded); busy.Class != ClassStoreKey || time.Since(start) > 2*time.Second {
			t.Errorf("%s: class %s after %v", from, busy.Class, time.Since(start))
		}
		mustAcquire(t, p, shortGap("other"+from[len(key):]+".test")).Done(okay)
		if p.Stats().StoreAway {
			t.Errorf("%s: the store is away", from)
		}
	}
	if err := client.Del(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, p, shortGap("h.test")).Done(okay)
}

// TestRedisWhenDownLocal: each instance keeps gap x instances by itself, and tells what is owed when the server is back.
func TestRedisWhenDownLocal(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := instance(t, server, func(_ *Config, rc *RedisConfig) {
		rc.WhenDown, rc.Instances, rc.StoreGrace = WhenDownLocal, 3, 50*time.Millisecond
	})
	r := shortGap("h.test")
	r.Gap = 100 * time.Millisecond
	mustAcquire(t, p, r).Done(okay)
	server.Stop()
	mustAcquire(t, p, r).Done(okay)
	turn := mustAcquire(t, p, r)
	if turn.Waited() < 290*time.Millisecond {
		t.Errorf("waited %v, want three times %v", turn.Waited(), r.Gap)
	}
	held := mustAcquire(t, p, shortGap("held.test"))
	turn.Done(Outcome{Sent: true, Status: 429, RetryAfter: "60"})
	if s := p.Stats(); s.LocalTurns == 0 || !s.StoreAway {
		t.Errorf("local turns %d, away %v", s.LocalTurns, s.StoreAway)
	}
	mustRefuse(t, p, r, HostBackoff)
	server.Start()
	eventually(t, "the server's return was not noticed", func() bool { return !p.Stats().StoreAway })
	q := instance(t, server, nil)
	if busy := mustRefuse(t, q, r, HostBackoff); busy.RetryAfter() < 50 {
		t.Errorf("retry after %d", busy.RetryAfter())
	}
	short := shortGap("held.test")
	short.Wait = 50 * time.Millisecond
	mustRefuse(t, q, short, TurnTooFar) // given here while the server was away, and still out
	held.Done(okay)
	mustAcquire(t, q, shortGap("held.test")).Done(okay)
}

// TestRedisLostAnswer: who asks again because the answer was lost gets the same lease, not a wait for its end.
func TestRedisLostAnswer(t *testing.T) {
	t.Parallel()
	p := instance(t, startRedis(t), nil)
	p.shared.b = &deafBackend{backend: p.shared.b}
	turn := mustAcquire(t, p, shortGap("h.test"))
	if turn.Waited() > 3*time.Second {
		t.Errorf("waited %v", turn.Waited())
	}
	rep, err := p.look("h.test", "")
	if err != nil || rep.leases != 1 {
		t.Errorf("%d leases, %v", rep.leases, err)
	}
	turn.Done(okay)
	mustAcquire(t, p, shortGap("h.test")).Done(okay)
	if s := p.Stats(); s.LeaseLost != 0 {
		t.Errorf("%d leases lost", s.LeaseLost)
	}
}

// deafBackend loses the first answer.
type deafBackend struct {
	backend
	lost atomic.Bool
}

func (d *deafBackend) call(ctx context.Context, op, name string, a *args) (reply, error) {
	rep, err := d.backend.call(ctx, op, name, a)
	if op == "acquire" && d.lost.CompareAndSwap(false, true) {
		return reply{}, errors.New("connection reset")
	}
	return rep, err
}

// TestRedisNowOrNotAtAll: a wait of 0 is not over before the store has answered.
func TestRedisNowOrNotAtAll(t *testing.T) {
	t.Parallel()
	p := instance(t, startRedis(t), nil)
	b := p.shared.b
	p.shared.b = slowBackend{b}
	for i := range 5 {
		r := shortGap(string(rune('a'+i)) + ".test")
		r.Wait = 0
		turn := mustAcquire(t, p, r)
		mustRefuse(t, p, r, TurnTooFar)
		turn.Done(okay)
	}
}

// slowBackend is a Redis far away.
type slowBackend struct{ backend }

func (s slowBackend) call(ctx context.Context, op, name string, a *args) (reply, error) {
	pauseFor(ctx, 20*time.Millisecond)
	return s.backend.call(ctx, op, name, a)
}

func TestRedisRobotsFirst(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	a, b := instance(t, server, nil), instance(t, server, nil)
	r := shortGap("h.test")
	turn := mustAcquire(t, a, r)
	order := make(chan string, 2)
	take := func(p *Pacer, r Request, name string) {
		turn, err := p.Acquire(context.Background(), r)
		if err != nil {
			order <- err.Error()
			return
		}
		order <- name
		turn.Done(okay)
	}
	go take(a, r, "page")
	eventually(t, "the page does not wait", func() bool { return a.Stats().Waiting == 1 })
	robots := r
	robots.Kind, robots.Client = Robots, "gate"
	go take(b, robots, "robots")
	eventually(t, "robots.txt does not wait", func() bool {
		rep, err := b.look("h.test", "")
		return err == nil && rep.leases == 1 && b.Stats().Waiting == 1
	})
	pauseFor(context.Background(), 100*time.Millisecond)
	turn.Done(okay)
	if one, two := <-order, <-order; one != "robots" || two != "page" {
		t.Errorf("%s before %s", one, two)
	}
}
