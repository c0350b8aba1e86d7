package pacing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRace lets goroutines that come, leave and end at random have one host: never two at once. Run with -race.
func TestRace(t *testing.T) {
	p, err := New(Defaults(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var inside, granted, left atomic.Int64
	var mu sync.Mutex
	last := time.Time{}
	const gap = 100 * time.Microsecond
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; ctx.Err() == nil; n++ {
				r := Request{Key: "race.test", Client: fmt.Sprint(i % 4), Gap: gap, Wait: time.Second, DomainKey: []string{"", "race.test"}[i%2]}
				c, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Microsecond) //nolint:gosec // a test
				turn, err := p.Acquire(c, r)
				if err != nil {
					stop()
					left.Add(1)
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two at once")
				}
				mu.Lock()
				if d := time.Since(last); d < gap {
					t.Errorf("gap of %v", d)
				}
				mu.Unlock()
				if n%7 == 0 {
					inside.Add(-1)
					turn.Done(Outcome{})
				} else {
					mu.Lock()
					last = time.Now()
					mu.Unlock()
					inside.Add(-1)
					turn.Done(okay)
				}
				stop()
				granted.Add(1)
			}
		}()
	}
	wg.Wait()
	if s := p.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("in flight %d, waiting %d", s.InFlight, s.Waiting)
	}
	t.Logf("%d turns, %d left", granted.Load(), left.Load())
}
