package pacing

import (
	"context"
	"sync/atomic"
	"time"
)

// Turn is the right to send one request now. It ends with Done.
type Turn struct {
	p       *Pacer
	host    part
	wide    *wide  // domain, address; nearly always nil
	client  uint64 // its hash, 0: no name
	url     string
	record  uint32 // of the page turn, see companion.go
	ticket  *Ticket
	granted int64
	waited  time.Duration
	owed    time.Duration
	life    atomic.Pointer[life] // once OnEnd was called
	ended   atomic.Bool
	hops    int16
	kind    Kind
	source  source
}

// newTurn is a fresh turn out of a set of eight: every turn is used once, because a second Done must find its own, and one
// allocation for eight of them costs a third of eight. A turn that is held keeps its set, which is small.
func (p *Pacer) newTurn() *Turn {
	set, _ := p.fresh.Get().(*turnSet)
	if set == nil {
		set = &turnSet{}
	}
	t := &set.turns[set.used]
	if set.used++; set.used < len(set.turns) {
		p.fresh.Put(set)
	}
	return t
}

type turnSet struct {
	turns [8]Turn
	used  int
}

// life is who is to be told when a turn ends by itself.
type life struct {
	call  func(error)
	done  atomic.Bool
	timer *time.Timer
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

// OnEnd has f called, once, when the turn ends by itself: past turn_limit (cause *Overrun) or, with Redis, when the lease
// is lost (cause *LeaseLost); at once if it is lost already. Nothing is called after Done. A rider's turn has no limit.
// Have f cut the exchange. It is asked for once.
func (t *Turn) OnEnd(f func(cause error)) {
	if t.ended.Load() {
		return // its limit may be long past: the timer would not wait for us to stop it
	}
	l := &life{call: f}
	if !t.Riding() {
		left := t.p.c.TurnLimit - time.Duration(t.p.now()-t.granted)
		l.timer = time.AfterFunc(left, func() {
			if l.done.CompareAndSwap(false, true) {
				t.p.CountOverrun("turn_limit")
				f(&Overrun{"turn_limit"})
			}
		})
	}
	t.life.Store(l)
	// Done and lose note the end first and look for a life second; here it is the other way round. So one of us sees the
	// other, if not both.
	if t.ended.Load() {
		l.over()
	} else if name := t.lost(); name != "" {
		l.end(&LeaseLost{name})
	}
}

// end tells the exchange that its turn has ended.
func (l *life) end(cause error) {
	if l.over() {
		l.call(cause)
	}
}

// over keeps anything from being told after it, and reports whether it was the first.
func (l *life) over() bool {
	if !l.done.CompareAndSwap(false, true) {
		return false
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	return true
}

// Held reports, right before the first byte goes out, whether the turn is still ours. It costs nothing without Redis.
func (t *Turn) Held() error {
	if t.ended.Load() {
		return context.Canceled
	}
	now := t.p.now()
	for _, pt := range t.parts() {
		if l := pt.leased(); l != nil && !l.valid(now) {
			return &LeaseLost{pt.k.name}
		}
	}
	return nil
}

func (t *Turn) parts() []*part {
	all := append(make([]*part, 0, 3), &t.host)
	for i := range t.wider() {
		all = append(all, &t.wide.parts[i])
	}
	return all
}

// wide are a turn's shares of a domain and of an address, as far as they are taken.
type wide struct {
	parts [2]part
	n     int
}

func (t *Turn) wider() []part {
	if t.wide == nil {
		return nil
	}
	return t.wide.parts[:t.wide.n]
}

// lost names the key whose lease is gone.
func (t *Turn) lost() string {
	for _, pt := range t.parts() {
		if l := pt.leased(); l != nil && l.gone.Load() {
			return pt.k.name
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
	if l := t.life.Load(); l != nil {
		l.over()
	}
	t.p.finish(t, &o)
}
