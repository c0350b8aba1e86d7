package pacing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Turn is the right to send one request now. It ends with Done.
type Turn struct {
	p       *Pacer
	host    part
	wide    []part // domain, address
	client  string
	url     string
	record  uint32 // of the page turn, see companion.go
	ticket  *Ticket
	granted int64
	waited  time.Duration
	owed    time.Duration
	mu      sync.Mutex
	life    *life // once Context was asked for
	ended   atomic.Bool
	hops    int16
	kind    Kind
	source  source
}

// life is a turn's context.
type life struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// source is where a gap comes from.
type source uint8

const (
	fromNothing source = iota
	fromGap
	fromLedger
	fromRobots
	fromLevel
)

var sourceNames = [...]string{"", "gap", "ledger", "robots", "slowed"}

func (s source) String() string { return sourceNames[s] }

// Kind is the kind the turn was granted for.
func (t *Turn) Kind() Kind { return t.kind }

// Waited is how long the request waited for its turn.
func (t *Turn) Waited() time.Duration { return t.waited }

// Owed is the gap that was in force before this turn, and where it comes from: gap (the profile), ledger (the operator),
// robots (Crawl-delay or Request-rate), slowed (a pace level doubled it), or "" when none applied (riders, redirects).
func (t *Turn) Owed() (gap time.Duration, source string) { return t.owed, t.source.String() }

// Riding reports whether the request goes without a turn of its own.
func (t *Turn) Riding() bool { return t.host.class == classRider }

// Context is cancelled when the turn ends by itself: past turn_limit (cause *Overrun) or, with Redis, when the lease is
// lost (cause *LeaseLost); and by Done. A rider's has no limit. Derive the exchange from it.
func (t *Turn) Context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != nil {
		return t.life
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	t.life = &life{Context: ctx, cancel: cancel}
	switch {
	case t.ended.Load():
		cancel(context.Canceled)
	case t.lost() != "":
		cancel(&LeaseLost{t.lost()})
	case !t.Riding():
		left := t.p.c.TurnLimit - time.Duration(t.p.now()-t.granted)
		t.life.timer = time.AfterFunc(left, func() {
			if !t.ended.Load() {
				t.p.CountOverrun("turn_limit")
				cancel(&Overrun{"turn_limit"})
			}
		})
	}
	return t.life
}

// Held reports, right before the first byte goes out, whether the turn is still ours. It costs nothing without Redis.
func (t *Turn) Held() error {
	if t.ended.Load() {
		return context.Canceled
	}
	now := t.p.now()
	for _, pt := range t.parts() {
		if l := pt.leased(); l != nil && !l.valid(now) {
			return &LeaseLost{pt.name}
		}
	}
	return nil
}

func (t *Turn) parts() []*part {
	all := append(make([]*part, 0, 3), &t.host)
	for i := range t.wide {
		all = append(all, &t.wide[i])
	}
	return all
}

// lost names the key whose lease is gone.
func (t *Turn) lost() string {
	for _, pt := range t.parts() {
		if l := pt.leased(); l != nil && l.gone.Load() {
			return pt.name
		}
	}
	return ""
}

func (pt *part) leased() *lease {
	if pt.turn.p.shared == nil {
		return nil
	}
	pt.s.mu.Lock()
	defer pt.s.mu.Unlock()
	return pt.lease
}

// Done ends the turn with what became of the request: at the end of the answer's body, at its close or at an error,
// whichever is first. Only the first call counts, so that a deferred one is safe: give that one
// Outcome{Sent: true, Err: err} if a byte may have gone out. The zero Outcome gives the turn back, no gap is owed.
func (t *Turn) Done(o Outcome) {
	if !t.ended.CompareAndSwap(false, true) {
		return
	}
	t.mu.Lock()
	if l := t.life; l != nil {
		if l.timer != nil {
			l.timer.Stop()
		}
		l.cancel(context.Canceled)
	}
	t.mu.Unlock()
	t.p.finish(t, &o)
}
