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
	kind    Kind
	ended   atomic.Bool
	host    part
	wide    []part // domain, address
	client  string
	url     string
	record  uint64 // of the page turn, see companion.go
	hops    int16
	ticket  *Ticket
	granted int64
	waited  time.Duration
	owed    time.Duration
	source  string

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// Kind is the kind the turn was granted for.
func (t *Turn) Kind() Kind { return t.kind }

// Waited is how long the request waited for its turn.
func (t *Turn) Waited() time.Duration { return t.waited }

// Owed is the gap that was in force before this turn, and where it comes from: gap (the profile), ledger (the operator),
// robots (Crawl-delay or Request-rate), slowed (a pace level doubled it), or "" when none applied (riders, redirects).
func (t *Turn) Owed() (gap time.Duration, source string) { return t.owed, t.source }

// Riding reports whether the request goes without a turn of its own.
func (t *Turn) Riding() bool { return t.host.class == classRider }

// Context is cancelled when the turn ends by itself: past turn_limit (cause *Overrun) or, with Redis, when the lease is
// lost (cause *LeaseLost); and by Done. A rider's has no limit. Derive the exchange from it.
func (t *Turn) Context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx != nil {
		return t.ctx
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	switch {
	case t.ended.Load():
		t.cancel(context.Canceled)
	case t.lost() != "":
		t.cancel(&LeaseLost{t.lost()})
	case !t.Riding():
		left := t.p.c.TurnLimit - time.Duration(t.p.now()-t.granted)
		t.timer = time.AfterFunc(left, func() {
			if !t.ended.Load() {
				t.p.CountOverrun("turn_limit")
				t.cancel(&Overrun{"turn_limit"})
			}
		})
	}
	return t.ctx
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
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.cancel != nil {
		t.cancel(context.Canceled)
	}
	t.mu.Unlock()
	t.p.finish(t, &o)
}
