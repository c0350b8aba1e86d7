package pacing

import (
	"math"
	"time"
)

// process lets go whoever can, refuses those whose deadline is past, and sets the timer.
func (p *Pacer) process(s *shard, k *entry, now int64) {
	if k.waiting() > 0 {
		p.dispatch(s, k, now)
		p.expire(k, now)
	}
	p.arm(s, k, now)
}

// dispatch grants while somebody can go.
func (p *Pacer) dispatch(s *shard, k *entry, now int64) {
	if p.far(k) {
		p.kick(s, k)
		return
	}
	for k.waiting() > 0 {
		w := k.next(&p.c, now)
		if w == nil {
			return
		}
		k.ext.queues.pop(w, now)
		p.waiting.Add(-1)
		if b := p.barred(k, w.kind, w.url, now); b != nil {
			w.busy = b
		} else {
			w.part.want = w.want
			w.granted = true
			p.grant(s, k, w.part, now)
		}
		close(w.done)
	}
}

// refuse ends one waiter's wait.
func (p *Pacer) refuse(k *entry, w *waiter, b *Busy) {
	if k.ext.queues.remove(w) {
		p.waiting.Add(-1)
		w.busy = b
		close(w.done)
	}
}

// refuseAll ends everybody's wait.
func (p *Pacer) refuseAll(k *entry, reason Reason, class string, until, now int64) {
	if k.waiting() == 0 {
		return
	}
	var all []*waiter
	k.ext.queues.each(func(w *waiter) { all = append(all, w) })
	for _, w := range all {
		p.refuse(k, w, p.busy(reason, class, until, now))
	}
}

// hopeless refuses those for whom f holds of their own earliest moment, with the forecasts worked out before anybody is
// removed.
func (p *Pacer) hopeless(k *entry, now int64, f func(w *waiter, alone int64) bool) {
	if k.waiting() == 0 {
		return
	}
	type out struct {
		w  *waiter
		at int64
	}
	var outs []out
	k.forecast(&p.c, now, func(w *waiter, placed, alone int64) bool {
		if f(w, alone) {
			outs = append(outs, out{w, placed})
		}
		return true
	})
	k.ext.queues.each(func(w *waiter) {
		if w.class == classPage {
			return
		}
		if at := k.alone(&p.c, &w.want, now); f(w, at) {
			outs = append(outs, out{w, at})
		}
	})
	for _, o := range outs {
		p.refuse(k, o.w, p.tooFar(k, o.w, o.at, now))
	}
}

func pastDeadline(w *waiter, alone int64) bool { return alone > w.deadline }

// expire refuses those whose deadline is past.
func (p *Pacer) expire(k *entry, now int64) {
	if k.waiting() == 0 {
		return
	}
	far, some := p.far(k), false
	late := func(w *waiter) bool { return w.deadline+p.slack <= now && (!far || w.judged) }
	k.ext.queues.each(func(w *waiter) { some = some || late(w) })
	if some {
		p.hopeless(k, now, func(w *waiter, _ int64) bool { return late(w) })
	}
}

// changed is a change of the rules: companions change queues, waiters move both ways, the hopeless are told.
func (p *Pacer) changed(s *shard, k *entry, now int64) {
	p.requeue(k)
	p.hopeless(k, now, pastDeadline)
	p.process(s, k, now)
}

// requeue moves waiting companions to the queue that the state of the key now asks for.
func (p *Pacer) requeue(k *entry) {
	if k.waiting() == 0 || k.scope != scopeHost {
		return
	}
	var move []*waiter
	k.ext.queues.each(func(w *waiter) {
		if w.kind.companion() && !w.part.wide && k.rides(w.kind, w.own, w.delay) != (w.class == classRider) {
			move = append(move, w)
		}
	})
	for _, w := range move {
		k.ext.queues.remove(w)
		if w.class == classRider {
			w.class, w.parallel = classPage, 1
		} else {
			w.class, w.parallel = classRider, int32(p.c.CompanionParallel) //nolint:gosec // a small count
		}
		k.ext.queues.push(w)
	}
}

// arm sets the key's timer to the next moment that matters; without waiters there is none.
func (p *Pacer) arm(s *shard, k *entry, now int64) {
	if k.ext == nil {
		return
	}
	x := k.ext
	if k.waiting() == 0 {
		if x.timer != nil {
			x.timer.Stop()
		}
		return
	}
	at := k.alarm(&p.c, now, p.slack, p.far(k))
	if at == math.MaxInt64 {
		if x.timer != nil {
			x.timer.Stop()
		}
		return
	}
	d := time.Duration(max(at-now, 0))
	if x.timer != nil {
		x.timer.Reset(d)
		return
	}
	x.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if k.ext != nil && k.ext.len() > 0 {
			p.process(s, k, p.now())
		}
	})
}
