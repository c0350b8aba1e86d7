package pacing

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// act is one request of a random run.
type act struct {
	at, hold, leave time.Duration // leave 0: stays
	r               Request
	o               Outcome
}

// run is what became of it.
type run struct {
	act
	turn       *Turn
	start, end time.Duration
	began      int64 // order of the beginnings and ends, within one instant too
	ended      int64
	err        error
}

func drawAct(t *rapid.T) act {
	ms := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	a := act{at: ms("at", 20000), hold: ms("hold", 1500)}
	if rapid.IntRange(0, 5).Draw(t, "leaves") == 0 {
		a.leave = ms("leave", 4000)
	}
	a.r = Request{
		Key:    rapid.SampledFrom([]string{"a.h.test", "b.h.test"}).Draw(t, "host"),
		Client: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "client"),
		Kind:   Kind(rapid.IntRange(0, int(kinds)-1).Draw(t, "kind")), //nolint:gosec // small
		Wait:   ms("wait", 30000),
		Gap:    time.Duration(rapid.SampledFrom([]int{0, 300, 1000, 2500}).Draw(t, "gap")) * time.Millisecond,
		Delay:  time.Duration(rapid.SampledFrom([]int{0, 0, 0, 4}).Draw(t, "delay")) * time.Second,
	}
	a.r.URL = fmt.Sprintf("http://%s/%d", a.r.Key, rapid.IntRange(0, 3).Draw(t, "page"))
	if rapid.Bool().Draw(t, "domain") {
		a.r.DomainKey = "h.test"
	}
	if rapid.IntRange(0, 4).Draw(t, "free") == 0 {
		a.r.Robots = RobotsFree
	}
	a.o = rapid.SampledFrom([]Outcome{
		okay, okay, okay, okay, {}, {Sent: true, Status: 301}, {Sent: true, Status: 403}, {Sent: true, Status: 500},
		{Sent: true, Status: 429, RetryAfter: "7"}, {Sent: true, Status: 200, Err: context.Canceled},
	}).Draw(t, "outcome")
	return a
}

// TestNeverTooClose: whatever comes, leaves and fails, no two turns of a host are in flight at once, a page never starts
// closer than its gap to the end before, nothing starts in a hold, nobody hangs past the deadline, and all is forgotten.
func TestNeverTooClose(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.Custom(drawAct), 1, 40).Draw(rt, "acts")
		var problems []string
		synctest.Test(t, func(t *testing.T) {
			c := Defaults()
			c.Backoff.Jitter = 0
			p, err := newPacer(c, nil) // without the sweeper, so that sixty hours pass quickly
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			sweep := func() {
				for i := range p.shards {
					p.sweep(&p.shards[i])
				}
			}
			played := make(chan struct{})
			swept := make(chan struct{})
			go func() {
				defer close(swept)
				for tick := time.NewTicker(700 * time.Millisecond); ; {
					select {
					case <-tick.C:
						sweep() // forgetting changes nothing
					case <-played:
						tick.Stop()
						return
					}
				}
			}()
			problems = append(problems, check(play(acts, p), 10*time.Nanosecond)...)
			close(played)
			<-swept
			if s := p.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				problems = append(problems, fmt.Sprintf("in flight %d, waiting %d at the end", s.InFlight, s.Waiting))
			}
			wait(60 * time.Hour)
			sweep()
			if s := p.Stats(); s.Keys > 2 || s.Keys > 0 && s.Hosts["stopped"] == 0 {
				problems = append(problems, fmt.Sprintf("%d keys after sixty hours: %v", s.Keys, s.Hosts))
			}
		})
		for _, text := range problems {
			rt.Error(text)
		}
	})
}

// TestNeverTooCloseRedis is the same with two instances that share a real Redis, whose clock is the bubble's.
func TestNeverTooCloseRedis(t *testing.T) {
	server := startRedis(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.Custom(drawAct), 1, 30).Draw(rt, "acts")
		if n++; n > 40 { // a call takes real time
			return
		}
		client := server.client()
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			rt.Fatal(err)
		}
		_ = client.Close()
		var problems []string
		synctest.Test(t, func(t *testing.T) {
			var both []*Pacer
			for range 2 {
				client := server.client()
				defer client.Close()
				c := Defaults()
				c.Backoff.Jitter = 0
				p, st, err := newShared(context.Background(), c, RedisDefaults(), client, nil)
				if err != nil {
					t.Fatal(err)
				}
				st.clock = func() int64 { return time.Now().UnixMicro() }
				defer p.Close()
				both = append(both, p)
			}
			problems = check(play(acts, both...), 5*time.Millisecond)
			wait(time.Second)
			for _, p := range both {
				if s := p.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.StoreErrors != 0 || s.LeaseLost != 0 {
					problems = append(problems, fmt.Sprintf("in flight %d, waiting %d, errors %d, leases lost %d", s.InFlight, s.Waiting, s.StoreErrors, s.LeaseLost))
				}
			}
		})
		for _, text := range problems {
			rt.Error(text)
		}
	})
}

func play(acts []act, pacers ...*Pacer) []*run {
	start := time.Now()
	var order atomic.Int64
	var mu sync.Mutex
	var runs []*run
	var wg sync.WaitGroup
	for i, a := range acts {
		p := pacers[i%len(pacers)]
		wg.Add(1)
		go func() {
			defer wg.Done()
			wait(a.at)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if a.leave > 0 {
				ctx, cancel = context.WithTimeout(ctx, a.leave)
				defer cancel()
			}
			r := &run{act: a}
			r.turn, r.err = p.Acquire(ctx, a.r)
			r.start, r.began = time.Since(start), order.Add(1)
			if r.err == nil {
				wait(a.hold)
				r.end, r.ended = time.Since(start), order.Add(1)
				r.turn.Done(a.o)
			}
			mu.Lock()
			runs = append(runs, r)
			mu.Unlock()
		}()
	}
	wg.Wait()
	return runs
}

func check(runs []*run, slack time.Duration) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, r := range runs {
		if late := r.start - r.at - r.r.Wait; late > slack && (r.leave == 0 || r.err == nil) {
			bad("%s waited %v past its deadline", r.r.Kind, late)
		}
		if r.err != nil {
			continue
		}
		for _, q := range runs {
			if q == r || q.err != nil || q.start > r.start || q.r.Key != r.r.Key && (q.r.DomainKey == "" || r.r.DomainKey == "") {
				continue
			}
			if !q.turn.Riding() && !r.turn.Riding() && q.began < r.began && r.began < q.ended {
				bad("%s and %s of %s at once", q.r.Kind, r.r.Kind, r.r.Key)
			}
			if q.end > r.start+slack || !q.o.Sent {
				continue
			}
			if q.start == r.start && q.began > r.ended {
				continue // both began within one instant, and r was the first and over before
			}
			v := q.o.verdict()
			if v.incident() && r.start > q.end && r.start < q.end+5*time.Second-slack {
				if first := !anyIncident(runs, q, slack); first {
					bad("%s started %v after an incident", r.r.Kind, r.start-q.end)
				}
			}
			if q.turn.Riding() || r.turn.Riding() || r.turn.Kind() == Redirect {
				continue
			}
			gap := max(q.r.Gap, r.r.Gap)
			robots := q.r.Kind == Robots || r.r.Kind == Robots
			free := q.r.Kind == Robots && q.r.Robots == RobotsFree || r.r.Kind == Robots && r.r.Robots == RobotsFree
			switch {
			case free:
				gap = 0
			case !robots:
				gap = max(gap, r.r.Delay)
			}
			if d := r.start - q.end; d < gap-slack {
				bad("%s of %s %v after %s, promised %v", r.r.Kind, r.r.Key, d, q.r.Kind, gap)
			}
		}
	}
	return problems
}

// anyIncident reports whether q was on its way when another incident of its keys ended: then it is the same one.
func anyIncident(runs []*run, q *run, slack time.Duration) bool {
	for _, x := range runs {
		if x != q && x.err == nil && x.o.Sent && x.o.verdict().incident() && x.end > q.start && x.end <= q.end+slack {
			return true
		}
	}
	return false
}
