package pacing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The tests of this file run in real time: they are about real processes, a real server and its own clock.

const (
	childEnv  = "PACING_TEST_CHILD" // address of Redis: this process is a fetcher, see child
	childHost = "shared.test"
)

// span is one request at the origin, in microseconds since 1970.
type span struct {
	Start, End int64
	Who        string
	Lost       bool `json:",omitempty"` // the lease was lost while it ran
}

// fetch takes turns as eight clients until ctx ends and reports each request. The clock of one machine serves all.
func fetch(ctx context.Context, p *Pacer, who string, gap, hold time.Duration, report func(span)) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			client := fmt.Sprintf("%s%d", who, i)
			for ctx.Err() == nil {
				turn, err := p.Acquire(ctx, Request{Key: childHost, Client: client, URL: "http://" + childHost + "/" + client, Wait: time.Minute, Gap: gap})
				if err != nil {
					var b *Busy
					if errors.As(err, &b) {
						pauseFor(ctx, 50*time.Millisecond)
					}
					continue
				}
				s := span{Start: time.Now().UnixMicro(), Who: client}
				if life := lifeOf(turn); turn.Held() == nil {
					end := time.NewTimer(hold)
					select {
					case <-end.C:
					case <-life.Done():
						var lost *LeaseLost
						s.Lost = errors.As(context.Cause(life), &lost)
					}
					end.Stop()
					s.End = time.Now().UnixMicro()
					report(s)
				}
				turn.Done(Outcome{Sent: true, Status: 200})
			}
		}()
	}
	wg.Wait()
}

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// child is a fetcher in a process of its own: it reports each start and each end as a line and ends with its stdin.
func child() int {
	who := os.Getenv("PACING_TEST_WHO")
	gap, _ := time.ParseDuration(os.Getenv("PACING_TEST_GAP"))
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(childEnv)})
	defer client.Close()
	rc := RedisDefaults()
	rc.LeaseTTL = 3 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p, err := NewShared(ctx, Defaults(), rc, client, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	fetch(ctx, p, who, gap, 10*time.Millisecond, func(s span) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(s)
	})
	_ = p.Close()
	return 0
}

type childProc struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{}
	mu    sync.Mutex
	spans []span
}

func startChild(t *testing.T, server *redisServer, who string, gap time.Duration) *childProc {
	t.Helper()
	c := &childProc{cmd: exec.Command(os.Args[0]), done: make(chan struct{})} //nolint:gosec // this test
	c.cmd.Env = append(os.Environ(), childEnv+"="+server.Addr, "PACING_TEST_WHO="+who, "PACING_TEST_GAP="+gap.String())
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			var s span
			if json.Unmarshal(sc.Bytes(), &s) == nil {
				c.mu.Lock()
				c.spans = append(c.spans, s)
				c.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { c.kill() })
	return c
}

func (c *childProc) stop() []span {
	_ = c.stdin.Close()
	<-c.done
	_ = c.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

func (c *childProc) kill() []span {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		<-c.done
		_ = c.cmd.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

func (c *childProc) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// checkSpans fails when two requests overlap or follow each other too closely; it returns the closest gap.
func checkSpans(t *testing.T, spans []span, gap time.Duration) time.Duration {
	t.Helper()
	sort.Slice(spans, func(i, j int) bool { return spans[i].Start < spans[j].Start })
	closest := time.Hour
	for i := 1; i < len(spans); i++ {
		a, b := spans[i-1], spans[i]
		d := time.Duration(b.Start-a.End) * time.Microsecond
		closest = min(closest, d)
		switch {
		case d < 0:
			t.Errorf("%s and %s at once, by %v", a.Who, b.Who, -d)
		case d < gap:
			t.Errorf("%s only %v after %s, promised %v", b.Who, d, a.Who, gap)
		}
	}
	return closest
}

// checkFair fails when somebody who always waits was passed over: with one and the same number of clients in each
// instance, everybody has had as many turns as everybody else, one or two more or less (a client is not waiting for the moment
// between its turns, and each instance has its own ring).
func checkFair(t *testing.T, spans []span, clients int) {
	t.Helper()
	n := map[string]int{}
	for _, s := range spans {
		n[s.Who]++
	}
	least, most := 1<<30, 0
	for _, c := range n {
		least, most = min(least, c), max(most, c)
	}
	if len(n) != clients || most-least > 3 {
		t.Errorf("turns per client from %d to %d, %d of %d clients had any: %v", least, most, len(n), clients, n)
	}
}

func TestRedisTwoInstances(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const gap = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	var mu sync.Mutex
	var spans []span
	var wg sync.WaitGroup
	var trips uint64
	for _, who := range []string{"a", "b"} {
		client := server.client()
		defer client.Close()
		p, err := NewShared(ctx, Defaults(), RedisDefaults(), client, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			fetch(ctx, p, who, gap, 5*time.Millisecond, func(s span) {
				mu.Lock()
				defer mu.Unlock()
				if spans = append(spans, s); len(spans) == 96 {
					cancel()
				}
			})
			mu.Lock()
			trips += p.Stats().StoreRoundTrips
			mu.Unlock()
			_ = p.Close()
		}()
	}
	wg.Wait()
	closest := checkSpans(t, spans, gap)
	checkFair(t, spans, 16)
	t.Logf("%d requests, closest %v, %.2f round trips per turn", len(spans), closest, float64(trips)/float64(max(1, len(spans))))
	if len(spans) < 96 {
		t.Errorf("only %d requests in 15 s", len(spans))
	}
}

// TestRedisUneven: a client that is alone on its instance is let in no more often than one of eight on another.
func TestRedisUneven(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	many, few := instance(t, server, nil), instance(t, server, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	counts, all := map[string]int{}, 0
	var wg sync.WaitGroup
	for i := range 9 {
		p, client := many, fmt.Sprintf("m%d", i)
		if i == 8 {
			p, client = few, "alone"
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := Request{Key: "h.test", Client: client, URL: "http://h.test/" + client, Wait: time.Minute, Gap: 30 * time.Millisecond}
			for ctx.Err() == nil {
				turn, err := p.Acquire(ctx, r)
				if err != nil { // a busy machine's server may be away for a moment
					pauseFor(ctx, 20*time.Millisecond)
					continue
				}
				turn.Done(okay)
				mu.Lock()
				counts[client]++
				if all++; all == 90 {
					cancel()
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if all < 90 {
		t.Fatalf("%d turns in 30 s", all)
	}
	for client, n := range counts {
		if n < 7 || n > 13 { // ten each, and what a busy machine makes of it
			t.Errorf("%s had %d turns: %v", client, n, counts)
		}
	}
}

func TestRedisTwoProcesses(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const gap = 50 * time.Millisecond
	a, b := startChild(t, server, "a", gap), startChild(t, server, "b", gap)
	for end := time.Now().Add(10 * time.Second); a.seen()+b.seen() < 50 && time.Now().Before(end); {
		pauseFor(context.Background(), 20*time.Millisecond)
	}
	spans := append(a.stop(), b.stop()...)
	if len(spans) < 50 {
		t.Fatalf("only %d requests", len(spans))
	}
	closest := checkSpans(t, spans, gap)
	t.Logf("%d requests, closest %v", len(spans), closest)
	n := map[byte]int{}
	for _, s := range spans {
		n[s.Who[0]]++
	}
	if n['a'] == 0 || n['b'] == 0 {
		t.Errorf("requests per process: a %d, b %d", n['a'], n['b'])
	}
}

// TestRedisKilledHolder kills a process that holds the turn: the next goes when the lease has run out and the gap after.
func TestRedisKilledHolder(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const gap = 200 * time.Millisecond
	client := server.client()
	defer client.Close()
	rc := RedisDefaults()
	rc.LeaseTTL = 3 * time.Second
	p, err := NewShared(context.Background(), Defaults(), rc, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	a := startChild(t, server, "a", gap)
	// The blob names the holder while a turn is out: kill it then.
	deadline := time.Now().Add(10 * time.Second)
	var killed time.Time
	for {
		if time.Now().After(deadline) {
			t.Fatal("the child never held a turn")
		}
		rep, err := p.look(childHost, "")
		if err != nil {
			t.Fatal(err)
		}
		if rep.leases == 0 {
			continue
		}
		_ = a.cmd.Process.Kill()
		killed = time.Now()
		<-a.done
		if rep, err = p.look(childHost, ""); err != nil {
			t.Fatal(err)
		}
		if rep.leases == 1 {
			break
		}
		_ = a.cmd.Wait()
		a = startChild(t, server, "a", gap) // it ended just before
	}
	turn, err := p.Acquire(context.Background(), Request{Key: childHost, Client: "b", Wait: 30 * time.Second, Gap: gap})
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Done(Outcome{Sent: true, Status: 200})
	w := time.Since(killed)
	if w > rc.LeaseTTL+gap+5*time.Second {
		t.Errorf("granted %v after the kill of a holder with a lease of %v and a gap of %v", w, rc.LeaseTTL, gap)
	}
	rep, err := p.look(childHost, "")
	if err != nil {
		t.Fatal(err)
	}
	if rep.end < killed.UnixMicro() || rep.now-rep.end < gap.Microseconds() {
		t.Errorf("the dead holder's turn ended %v after the kill, and the next was given %v later", time.UnixMicro(rep.end).Sub(killed), time.Duration(rep.now-rep.end)*time.Microsecond)
	}
	t.Logf("granted %v after the kill", w)
}

// TestRedisRestart stops the server in the middle: nothing new is given, who comes is told so, and afterwards it goes on.
func TestRedisRestart(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const gap = 20 * time.Millisecond
	client := server.client()
	defer client.Close()
	rc := RedisDefaults()
	rc.LeaseTTL, rc.StoreGrace = 3*time.Second, 100*time.Millisecond
	p, err := NewShared(context.Background(), Defaults(), rc, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var spans []span
	done := make(chan struct{})
	go func() {
		defer close(done)
		fetch(ctx, p, "a", gap, 5*time.Millisecond, func(s span) {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, s)
		})
	}()
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(spans) }
	until := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(8 * time.Second); !f(); {
			if time.Now().After(end) {
				t.Fatal(what)
			}
			pauseFor(ctx, 5*time.Millisecond)
		}
	}
	until("no requests", func() bool { return count() >= 10 })
	server.Stop()
	until("the outage was not noticed", p.shared.lost)
	_, err = p.Acquire(ctx, Request{Key: "other.test", Client: "b", Wait: 10 * time.Second, Gap: gap})
	var busy *Busy
	if !errors.As(err, &busy) || busy.Reason != Overloaded || busy.Class != ClassStoreAway || busy.RetryAfter() != 5 {
		t.Errorf("during an outage: %v", err)
	}
	during := count()
	pauseFor(ctx, 200*time.Millisecond)
	if n := count(); n > during+1 {
		t.Errorf("%d requests during the outage", n-during)
	}
	server.Start()
	until("nothing after the outage", func() bool { return count() >= during+10 })
	cancel()
	<-done
	mu.Lock()
	defer mu.Unlock()
	checkSpans(t, spans, gap)
	if s := p.Stats(); s.StoreErrors == 0 || s.StoreAway {
		t.Errorf("store errors %d, away %v", s.StoreErrors, s.StoreAway)
	}
}
