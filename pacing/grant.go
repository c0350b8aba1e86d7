package pacing

import (
	"context"
	"time"
)

// take waits for one key's share of a turn. At its end pt is linked to its key and the time of the grant is noted in its
// turn. now may be 0: not known.
func (p *Pacer) take(ctx context.Context, pt *part, name string, r *Request, client string, deadline, now int64) error {
	s, hash := p.shard(name)
	if now == 0 || !s.mu.TryLock() {
		s.mu.Lock()
		now = p.now()
	}
	if p.closed.Load() {
		s.mu.Unlock()
		return p.refused(p.busy(Overloaded, ClassClosed, now+int64(overloadRetry), now))
	}
	k := p.key(s, hash, name)
	if k == nil {
		s.mu.Unlock()
		return p.refused(p.busy(Overloaded, ClassMaxKeys, now+int64(overloadRetry), now))
	}
	pt.s, pt.k = s, k
	shared := p.far(k)
	if p.shared != nil && !pt.address && !shared {
		p.stretchWant(&pt.want)
	}
	if !shared && k.waiting() > 0 {
		p.process(s, k, now)
	}
	p.rules(s, k, pt, r, now)
	if b := p.barred(k, r.Kind, r.URL, now); b != nil && (!shared || k.ext != nil && now-k.ext.synced < int64(freshFor)) {
		s.mu.Unlock()
		return p.refused(b)
	}
	if !pt.wide && k.rides(r.Kind, r.Companions == OwnTurn, pt.delay) {
		pt.class, pt.parallel = classRider, int32(p.c.CompanionParallel) //nolint:gosec // a small count
	}
	if !shared && k.waiting() == 0 && k.can(&p.c, &pt.want, now) {
		p.grant(s, k, pt, now)
		s.mu.Unlock()
		return nil
	}
	w := &waiter{
		want: pt.want, kind: r.Kind, client: client, url: r.URL, own: r.Companions == OwnTurn || pt.wide,
		came: now, deadline: deadline, slow: r.Slow, stretched: !shared, part: pt, done: make(chan struct{}),
	}
	b := p.join(s, k, w, now)
	s.mu.Unlock()
	if b != nil {
		return p.refused(b)
	}
	if w.wait(ctx) {
		if w.busy != nil {
			return p.refused(w.busy)
		}
		return nil
	}
	return p.leave(ctx, s, k, w)
}

// refused counts a refusal.
func (p *Pacer) refused(b *Busy) error {
	p.stats.refuse(b.Reason)
	return b
}

// leave takes a waiter out whose client is gone. One that was granted in that moment gives the turn back: no gap is owed
// and the next waiter goes.
func (p *Pacer) leave(ctx context.Context, s *shard, k *entry, w *waiter) error {
	s.mu.Lock()
	switch {
	case w.granted:
		s.mu.Unlock()
		p.giveBack(w.part)
		return ctx.Err()
	case w.busy == nil:
		k.ext.queues.remove(w)
		p.waiting.Add(-1)
		p.process(s, k, p.now())
	}
	s.mu.Unlock()
	return ctx.Err()
}

// rules takes over what a request knows of its host: a longer delay binds everybody at once, a shorter one only once
// nobody is left who knows the longer one, or by SetDelay.
func (p *Pacer) rules(s *shard, k *entry, pt *part, r *Request, now int64) {
	if pt.wide {
		return
	}
	changed := false
	if pt.delay > k.delay {
		k.delay, changed = pt.delay, true
	}
	if r.Slow != k.slow {
		k.slow, changed = r.Slow, true
	}
	if changed && k.waiting() > 0 {
		p.changed(s, k, now)
	}
}

// barred is why a request may not even wait.
func (p *Pacer) barred(k *entry, kind Kind, url string, now int64) *Busy {
	if k.open(now) {
		return p.busy(HostStopped, "", k.openUntil, now)
	}
	if k.ext != nil && len(k.ext.pages.m) > 0 && kind != Robots && url != "" {
		if until := k.ext.pages.left(&p.c, pageOf(url), now); until != 0 {
			return p.busy(URLLeft, "", until, now)
		}
	}
	return nil
}

// grant links pt and notes the time. The caller holds the shard.
func (p *Pacer) grant(s *shard, k *entry, pt *part, now int64) {
	t := pt.turn
	t.granted = now
	if !pt.wide {
		t.owed, t.source = k.owed(&p.c, &pt.want)
		if t.client != 0 && t.url != "" && pt.class != classRider && (t.kind == Page || t.kind == Redirect || t.kind == Sitemap) {
			s.seq++
			t.record = s.seq
			k.recent.add(pageTurn{seq: s.seq, page: p.id(t.client, t.url), end: stillOpen, hops: t.hops})
		}
	}
	if p.shared != nil && !pt.address && !pt.far { // given without the store
		k.local = true
		p.shared.note(k.name)
		p.stats.localTurn.Add(1)
	}
	k.link(pt)
}

// owed is the gap that a request has to keep, and its source.
func (k *entry) owed(c *Config, w *want) (time.Duration, source) {
	if w.class == classRider || w.class == classRedirect || w.free {
		return 0, fromNothing
	}
	g := max(k.endGap, w.gap)
	d, level := max(k.delay, w.delay), k.endLevel
	if w.class == classRobots {
		d, level = 0, 0
	}
	all := c.gap(g, k.slow, d, level)
	switch {
	case all == 0:
		return 0, fromNothing
	case level > 0:
		return all, fromLevel
	case d >= g && d >= k.slow:
		return all, fromRobots
	case k.slow > g:
		return all, fromLedger
	}
	return all, fromGap
}

// join queues a waiter, or says at once that its turn cannot come in time.
func (p *Pacer) join(s *shard, k *entry, w *waiter, now int64) *Busy {
	q := &k.extra().queues
	full := p.full(q, w)
	if full == ClassMaxWaiting {
		return p.busy(Overloaded, full, now+int64(overloadRetry), now)
	}
	q.push(w)
	p.waiting.Add(1)
	if p.far(k) {
		return p.joinShared(s, k, w, now, full)
	}
	if full == "" {
		p.dispatch(s, k, now)
		if w.granted || w.busy != nil {
			p.arm(s, k, now)
			if w.busy != nil {
				return w.busy
			}
			return nil
		}
	}
	if at := k.earliest(&p.c, w, now); full != "" || at > w.deadline {
		q.remove(w)
		p.waiting.Add(-1)
		b := p.tooFar(k, w, at, now)
		if full != "" {
			b.Class = full
		}
		return b
	}
	p.arm(s, k, now)
	return nil
}

// full names the bound that w would break.
func (p *Pacer) full(q *queues, w *waiter) string {
	if p.waiting.Load() >= int64(p.c.MaxWaiting) {
		return ClassMaxWaiting
	}
	var r *ring
	switch w.class {
	case classPage:
		r = &q.pages
	case classRider:
		r = &q.riders
	case classRedirect:
		if len(q.redirects) >= p.c.MaxQueue {
			return ClassQueueFull
		}
		return ""
	default:
		return "" // the gate's own, one per origin
	}
	if r.n >= p.c.MaxQueue {
		return ClassQueueFull
	}
	if l := r.line(w.client); l != nil && len(l.q) >= p.c.MaxQueueClient {
		return ClassClientFull
	}
	return ""
}

// tooFar words the refusal of a waiter whose earliest moment is at.
func (p *Pacer) tooFar(k *entry, w *waiter, at, now int64) *Busy {
	reason := TurnTooFar
	if k.holdUntil > w.deadline {
		reason = HostBackoff
	}
	class := ""
	switch {
	case w.part.address:
		class = ClassAddress
	case w.part.wide:
		class = ClassDomain
	}
	return p.busy(reason, class, at, now)
}
