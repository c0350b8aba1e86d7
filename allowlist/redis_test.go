package allowlist

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/pacing/redistest"
)

// instance is one of several gates on the same Redis.
type instance struct {
	ledger *Ledger
	locks  *Locks
	gone   *Gone
	store  *RedisStore
	seen   chan Change
}

func newInstance(t *testing.T, addr string) *instance {
	t.Helper()
	s := NewRedisStore(redisAt(t, addr), 24*time.Hour)
	i := &instance{ledger: newLedger(t, s), locks: newLocks(t, s), gone: newGone(t, s), store: s, seen: make(chan Change, 100)}
	i.ledger.OnChange(func(c Change) { i.seen <- c })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Follow(ctx, i.ledger, i.locks, i.gone, nil)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return i
}

func redisAt(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (i *instance) change(t *testing.T) Change {
	t.Helper()
	select {
	case c := <-i.seen:
		return c
	case <-time.After(5 * time.Second):
		t.Fatal("no change seen")
		return Change{}
	}
}

func TestRedisLedger(t *testing.T) {
	addr := redistest.Start(t).Addr
	a, b := newInstance(t, addr), newInstance(t, addr)
	e, err := a.ledger.Stop(Entry{Host: "x.example", Subdomains: true, Reason: "r"})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if c := b.change(t); c.After == nil || !c.After.equal(&e) {
		t.Fatalf("%+v", c)
	}
	if d := time.Since(start); d > 3*time.Second { // a tenth of a second, on a machine that has time
		t.Errorf("in force after %s", d)
	}
	if _, ok := b.ledger.Get("www.x.example"); !ok {
		t.Error("the other's stop is not in force")
	}
	if _, err := b.ledger.Resume("x.example"); err != nil {
		t.Fatal(err)
	}
	a.change(t) // its own
	if c := a.change(t); c.After != nil || c.Host != "x.example" {
		t.Fatalf("%+v", c)
	}
	if _, err := a.ledger.Slow(Entry{Host: "y.example", Gap: time.Minute}); err != nil {
		t.Fatal(err)
	}
	late := newInstance(t, addr)
	if e, ok := late.ledger.Get("y.example"); !ok || e.Gap != time.Minute {
		t.Error("a new instance does not know the ledger")
	}
	// Redis takes no writing, as a server that has just lost its place: what is known holds, and a wish that cannot be kept
	// is an error.
	direct := redisAt(t, addr)
	if err := direct.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ledger.Stop(Entry{Host: "z.example"}); err == nil {
		t.Error("a wish was taken that is kept nowhere")
	}
	if _, ok := a.ledger.Get("y.example"); !ok {
		t.Error("forgotten")
	}
	if err := direct.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ledger.Stop(Entry{Host: "z.example"}); err != nil {
		t.Fatal(err)
	}
	for c := b.change(t); c.Host != "z.example"; c = b.change(t) {
	}
	if err := direct.HSet(t.Context(), redisLedger, "bad.example", "{").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewLedger(NewRedisStore(direct, time.Hour), nil); err == nil {
		t.Error("a stop was lost without an error")
	}
}

func TestRedisLocks(t *testing.T) {
	addr := redistest.Start(t).Addr
	a, b := newInstance(t, addr), newInstance(t, addr)
	record(t, a.locks, "https://x.example/1", "crawl", "", 403)
	var many []Lock
	for i := range maxLockedURLs + 1 {
		many = append(many, Lock{Host: "big.example", URL: fmt.Sprint(i), Agent: "crawl", Status: 403, First: time.Now(), Last: time.Now()})
	}
	if err := a.store.UpdateLocks(many, nil); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(10 * time.Second)
	for !locked(b.locks, "https://big.example/other", "answer", "") || !locked(b.locks, "https://x.example/1", "answer", "") {
		select {
		case <-deadline:
			t.Fatal("the other's refusals do not hold")
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, i := range []*instance{b, newInstance(t, addr)} {
		if !locked(i.locks, "https://x.example/1", "answer", "") || !locked(i.locks, "https://big.example/other", "answer", "") ||
			locked(i.locks, "https://big.example/other", "crawl", "") || locked(i.locks, "https://x.example/2", "answer", "") {
			t.Error("another state than the recorder's")
		}
	}
}
