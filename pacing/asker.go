package pacing

import (
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// asker asks the store for the head of one key's queues, as long as somebody waits.
type asker struct {
	wake  chan struct{}
	sleep atomic.Int64 // not before, set by a message of another instance; 0: now
}

// kick makes sure that somebody asks for k. The caller holds the shard.
func (p *Pacer) kick(s *shard, k *entry) {
	if k.waiting() == 0 {
		return
	}
	if a := k.ext.asker; a != nil {
		select {
		case a.wake <- struct{}{}:
		default:
		}
		return
	}
	if turn, rider := k.heads(&p.c, p.now()); turn == nil && rider == nil {
		return
	}
	a := &asker{wake: make(chan struct{}, 1)}
	k.ext.asker = a
	if !p.shared.run(func() { p.ask(s, k, k.name, a) }) {
		k.ext.asker = nil
	}
}

// joinShared is join for a key whose turns are the store's to give: w stands in the queue already.
func (p *Pacer) joinShared(s *shard, k *entry, w *waiter, now int64, full string) *Busy {
	var b *Busy
	switch {
	case p.shared.lost():
		b = p.busy(Overloaded, ClassStoreAway, now+int64(overloadRetry), now)
	case full != "":
		b = p.tooFar(k, w, k.earliest(&p.c, w, now), now)
		b.Class = full
	case !k.slot(&p.c, &w.want, now) && (k.turns != nil || w.class == classRider): // nobody asks before one of ours ends
		w.judged = true
		if at := k.earliest(&p.c, w, now); at > w.deadline {
			b = p.tooFar(k, w, at, now)
		}
	}
	if b != nil {
		k.ext.queues.remove(w)
		p.waiting.Add(-1)
		return b
	}
	p.kick(s, k)
	p.arm(s, k, now)
	return nil
}

// heads are who to ask for: the first that needs a turn, and the first rider.
func (k *entry) heads(c *Config, now int64) (turn, rider *waiter) {
	q := &k.ext.queues
	if w := q.riders.head(); w != nil && k.riders < w.parallel {
		rider = w
	}
	var all []*waiter
	if len(q.robots) > 0 {
		all = append(all, q.robots[0])
	}
	if len(q.redirects) > 0 {
		all = append(all, q.redirects[0])
	}
	if w := q.pages.head(); w != nil && len(q.robots) == 0 {
		all = append(all, w)
	}
	for _, w := range all {
		if k.turns == nil || k.slot(c, &w.want, now) {
			if turn == nil {
				turn = w
			}
			if k.ready(c, &w.want, now) <= now {
				return w, rider
			}
		}
	}
	return turn, rider
}

// ask is the asker's life.
func (p *Pacer) ask(s *shard, k *entry, name string, a *asker) {
	h := p.shared
	enlisted := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for h.ctx.Err() == nil {
		if err := h.writeOwed(name); err != nil {
			if !p.outage(s, k, err) {
				return
			}
			h.pause(a, timer, int64(retryStore))
			continue
		}
		s.mu.Lock()
		now := p.now()
		if k.waiting() == 0 || !p.far(k) {
			k.ext.asker = nil
			if k.waiting() > 0 {
				k.ext.queues.each(p.stretch)
			}
			p.process(s, k, now)
			s.mu.Unlock()
			if enlisted {
				_, _ = h.call("leave", name, &args{})
			}
			return
		}
		turn, rider := k.heads(&p.c, now)
		if turn == nil && rider == nil { // until somebody ends
			k.ext.asker = nil
			p.judge(k, now) // who came during the last call
			p.arm(s, k, now)
			s.mu.Unlock()
			if enlisted {
				_, _ = h.call("leave", name, &args{})
			}
			return
		}
		if rest := a.sleep.Load() - now; rest > 0 && turn != nil && rider == nil && turn.judged {
			s.mu.Unlock()
			a.sleep.Store(0)
			h.pause(a, timer, min(rest, int64(heartBeat)))
			continue
		}
		var asks []question
		if turn != nil {
			asks = append(asks, question{turn, p.argsFor(k, turn, now)})
		}
		if rider != nil {
			asks = append(asks, question{rider, p.argsFor(k, rider, now)})
		}
		s.mu.Unlock()
		next := int64(math.MaxInt64)
		var failed error
		for _, q := range asks {
			wait, in, err := p.askFor(s, k, name, q)
			if err != nil {
				failed = err
				break
			}
			if q.w == turn {
				enlisted = in
			}
			next = min(next, wait)
		}
		if failed != nil {
			if !p.outage(s, k, failed) {
				return
			}
			next = int64(retryStore)
		}
		if next > 0 {
			if enlisted {
				next = min(next, int64(heartBeat))
			}
			h.pause(a, timer, next)
		}
	}
	s.mu.Lock()
	k.ext.asker = nil
	s.mu.Unlock()
}

// pause sleeps for d or until somebody wakes the asker.
func (h *sharing) pause(a *asker, timer *time.Timer, d int64) {
	timer.Reset(time.Duration(d))
	select {
	case <-timer.C:
	case <-a.wake:
	case <-h.ctx.Done():
	}
}

// outage decides what becomes of those who wait while the store does not keep turns; false ends the asker.
func (p *Pacer) outage(s *shard, k *entry, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := p.now()
	if errors.Is(err, errForeign) {
		k.ext.asker = nil
		p.refuseAll(k, Overloaded, ClassStoreKey, now+int64(overloadRetry), now)
		p.arm(s, k, now)
		return false
	}
	if !p.shared.lost() {
		// The probe may find a store well that fails our calls: nobody waits on for it beyond the deadline.
		var late []*waiter
		k.ext.queues.each(func(w *waiter) {
			if w.deadline+int64(p.shared.rc.StoreGrace) <= now {
				late = append(late, w)
			}
		})
		for _, w := range late {
			p.refuse(k, w, p.busy(Overloaded, ClassStoreAway, now+int64(overloadRetry), now))
		}
		return true
	}
	k.ext.asker = nil
	if !p.shared.local() {
		p.refuseAll(k, Overloaded, ClassStoreAway, now+int64(overloadRetry), now)
		p.arm(s, k, now)
		return false
	}
	k.ext.queues.each(p.stretch)
	p.process(s, k, now)
	return false
}

// stretch widens a waiter's gap for turns that every instance gives by itself: the mean rate stays.
func (p *Pacer) stretch(w *waiter) {
	if w.stretched || w.part.address {
		return
	}
	w.stretched = true
	p.stretchWant(&w.want)
}

func (p *Pacer) stretchWant(w *want) {
	n := time.Duration(p.shared.rc.Instances)
	w.gap, w.delay = w.gap*n, w.delay*n
	if w.class != classRider {
		w.parallel = 1
	}
}

// heard is a message of another instance: something changed at name, wait microseconds from now its gap is over, and
// first is the instance whose turn it is then.
func (p *Pacer) heard(name, wait, first string) {
	n, err := strconv.ParseInt(wait, 10, 64)
	if err != nil || n < 0 || n > int64(maxWait/time.Microsecond) {
		return
	}
	n *= int64(time.Microsecond)
	if n > int64(heartBeat) { // not worth waiting for: somebody may wait in vain now
		n = 0
	}
	if first != p.shared.inst {
		n += int64(pollNotFirst)
	}
	s, hash := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, name)
	if k == nil || k.ext == nil || k.ext.asker == nil {
		return
	}
	a := k.ext.asker
	a.sleep.Store(p.now() + n)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
