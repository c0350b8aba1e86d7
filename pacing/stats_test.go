package pacing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestStats(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		turn := mustAcquire(t, p, page("a"))
		wait(2 * time.Second)
		turn.Done(okay)
		turn = mustAcquire(t, p, page("a")) // waits one second
		if s := p.Stats(); s.InFlight != 1 || s.Waiting != 0 || s.Keys != 1 || s.Hosts["owing"] != 1 {
			t.Errorf("%+v", s)
		}
		r := page("b")
		r.Wait = 0
		mustRefuse(t, p, r, TurnTooFar)
		turn.Done(Outcome{Sent: true, Err: errors.New("reset by peer")})
		p.CountShortfall()
		p.CountOverrun("stall_timeout")
		p.CountOverrun("no such limit")
		s := p.Stats()
		if s.Turns[TurnLabel{Page, "good"}] != 1 || s.Turns[TurnLabel{Page, "failure"}] != 1 || s.Refused[TurnTooFar] != 1 ||
			s.Incidents["failure"] != 1 || s.GapShortfall != 1 || s.Overruns["stall_timeout"] != 1 || s.Hosts["held_back"] != 1 {
			t.Errorf("%+v", s)
		}
		w := s.Wait[Page]
		if n := w.Counts[len(w.Counts)-1]; n != 2 || w.Counts[0] != 1 || len(w.Counts) != len(w.Bounds)+1 || w.Sum < 0.99 || w.Sum > 1.01 {
			t.Errorf("wait %+v", w)
		}
		if h := s.Hold[Page]; h.Sum < 1.99 || h.Sum > 2.01 {
			t.Errorf("hold %+v", h)
		}
	})
}

func TestHostsWorstFirst(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		for host, o := range map[string]Outcome{
			"plain.test": okay, "held.test": {Sent: true, Status: 503, RetryAfter: "90"}, "other.test": okay,
		} {
			mustAcquire(t, p, hostPage(host)).Done(o)
		}
		for range 10 {
			mustAcquire(t, p, hostPage("stop.test")).Done(Outcome{Sent: true, Status: 403})
		}
		ctx, cancel := context.WithCancel(context.Background())
		turn := mustAcquire(t, p, hostPage("plain.test"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.Acquire(ctx, hostPage("plain.test"))
		}()
		synctest.Wait()
		var names []string
		for _, h := range p.Hosts(3) {
			names = append(names, h.Host)
			if h.Host == "plain.test" && (h.Waiting != 1 || h.InFlight != 1 || len(h.Clients) != 1) {
				t.Errorf("%+v", h)
			}
		}
		if len(names) != 3 || names[0] != "stop.test" || names[1] != "held.test" || names[2] != "plain.test" {
			t.Error(names)
		}
		if h := p.Hosts(0); len(h) != 0 {
			t.Error(h)
		}
		cancel()
		<-done
		turn.Done(okay)
	})
}

func TestWords(t *testing.T) {
	if Page.String() != "page" || Repeat.String() != "repeat" || Kind(99).String() != "kind(99)" {
		t.Error("kinds")
	}
	b := &Busy{Until: time.Now().Add(1500 * time.Millisecond), Reason: TurnTooFar} // made by somebody else
	if n := b.RetryAfter(); n != 2 || b.Error() == "" {
		t.Error(n)
	}
	if n := (&Busy{}).RetryAfter(); n != 1 {
		t.Error(n)
	}
	for _, err := range []error{&Overrun{"turn_limit"}, &LeaseLost{"h.test"}, &keyError{"gap", "text"}} {
		if err.Error() == "" {
			t.Errorf("%T says nothing", err)
		}
	}
}
