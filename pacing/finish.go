package pacing

import (
	"context"
	"net/http"
	"time"
)

// takeWide takes the turn of the domain and the cap of the address, in this order, while the host's is held.
func (p *Pacer) takeWide(ctx context.Context, t *Turn, r *Request, deadline int64) error {
	t.wide = &wide{}
	if r.DomainKey != "" {
		w := t.host.want
		w.gap = max(w.gap, r.Slow)
		if err := p.takeNext(ctx, t, part{turn: t, wide: true, want: w}, domainName(r.DomainKey), r, deadline); err != nil {
			return err
		}
	}
	if p.c.IPParallel > 0 && r.Addr.IsValid() {
		w := want{class: classRider, parallel: int32(p.c.IPParallel)} //nolint:gosec // a small count
		if err := p.takeNext(ctx, t, part{turn: t, wide: true, address: true, want: w}, addrName(r.Addr), r, deadline); err != nil {
			return err
		}
	}
	return p.confirm(ctx, t, deadline)
}

func (p *Pacer) takeNext(ctx context.Context, t *Turn, pt part, name string, r *Request, deadline int64) error {
	next := &t.wide.parts[t.wide.n]
	*next = pt
	if err := p.take(ctx, next, name, r, r.Key, deadline, 0); err != nil {
		return err
	}
	t.wide.n++
	return nil
}

// confirm waits for what came up at the host or the domain while the wider turns were waited for: a hold stops
// everything, and so does the breaker.
func (p *Pacer) confirm(ctx context.Context, t *Turn, deadline int64) error {
	for {
		again, b := p.refresh(t)
		if b != nil {
			return p.refused(b)
		}
		now := p.now()
		until := int64(never)
		look := func(pt *part) {
			pt.s.mu.Lock()
			defer pt.s.mu.Unlock()
			if pt.k.open(now) && b == nil {
				b = p.busy(HostStopped, "", pt.k.openUntil, now)
			}
			until = max(until, pt.k.holdUntil)
		}
		look(&t.host)
		for i := range t.wider() {
			look(&t.wide.parts[i])
		}
		if b == nil && until > deadline {
			b = p.busy(HostBackoff, "", until, now)
		}
		if b != nil {
			return p.refused(b)
		}
		if again {
			until = max(until, now+int64(retryStore))
			if until > deadline {
				return p.refused(p.busy(Overloaded, ClassStoreAway, now+int64(overloadRetry), now))
			}
		}
		if until <= now {
			t.granted = now
			return nil
		}
		wake := time.NewTimer(time.Duration(until - now))
		select {
		case <-wake.C:
		case <-ctx.Done():
			wake.Stop()
			return ctx.Err()
		}
	}
}

// staleAfter is how old the mirror of a key may be when a turn goes out on it: somewhat longer than a call takes.
const staleAfter = 5 * time.Millisecond

// refresh asks the store anew about a turn's keys whose state was read a while ago: another instance may have learned
// something since. again reports that the store did not answer.
func (p *Pacer) refresh(t *Turn) (again bool, b *Busy) {
	if p.shared == nil || p.shared.local() {
		return false, nil
	}
	ask := func(pt *part, url string) {
		if !pt.far || again || b != nil {
			return
		}
		pt.s.mu.Lock()
		old := pt.k.ext == nil || p.now()-pt.k.ext.synced > int64(staleAfter)
		pt.s.mu.Unlock()
		if !old {
			return
		}
		rep, err := p.look(pt.k.name, url)
		now := p.now()
		switch {
		case err != nil && p.shared.lost() && !p.shared.local():
			b = p.busy(Overloaded, ClassStoreAway, now+int64(overloadRetry), now)
			return
		case err != nil:
			again = !p.shared.local()
			return
		case rep.status == stLeft:
			b = p.busy(URLLeft, "", now+rep.wait*1000, now)
		}
		pt.s.mu.Lock()
		p.mirror(pt.k, rep, now)
		pt.s.mu.Unlock()
	}
	url := t.url
	if t.kind == Robots {
		url = ""
	}
	ask(&t.host, url)
	for i := range t.wider() {
		ask(&t.wide.parts[i], "")
	}
	return again, b
}

// finish ends every part of a turn: the host's first, as it was taken.
func (p *Pacer) finish(t *Turn, o *Outcome) {
	v := o.verdict()
	now := p.now()
	after := time.Duration(0)
	if o.RetryAfter != "" {
		after = p.c.retryAfterOf(o, time.Now())
	}
	p.endPart(&t.host, o, v, after, now)
	for i := range t.wider() {
		p.endPart(&t.wide.parts[i], o, v, after, now)
	}
	if v == notSent {
		t.ticket.Cancel()
	}
	p.stats.end(t, v, now)
}

// giveBack ends one part that was granted to nobody.
func (p *Pacer) giveBack(pt *part) {
	p.endPart(pt, &Outcome{}, notSent, 0, p.now())
}

// endPart reports the outcome to one key (sections 6 to 8): the breaker and the page count stay with the host.
func (p *Pacer) endPart(pt *part, o *Outcome, v verdict, after time.Duration, now int64) {
	s, k, t := pt.s, pt.k, pt.turn
	s.mu.Lock()
	if pt.far {
		s.mu.Unlock()
		p.endShared(pt, o, v, after, now)
		return
	}
	defer s.mu.Unlock()
	k.unlink(pt)
	if !pt.wide {
		p.remember(k, t, o, v, now)
	}
	if pt.address || v == notSent {
		if pt.class != classRider {
			p.hopeless(k, now, pastDeadline)
		}
		p.process(s, k, now)
		return
	}
	held := k.holdUntil
	opened, moved := p.apply(k, pt, t, v, after, now)
	k.ended(&p.c, &pt.want, now)
	p.lowerDelay(k, pt)
	p.endedLocally(pt, v)
	if p.store != nil {
		p.markDirty(s, k)
	}
	p.wakeAfter(s, k, pt.class == classRider, opened, moved, held, now)
}

// apply changes the state of a key by an outcome, without the gap.
func (p *Pacer) apply(k *entry, pt *part, t *Turn, v verdict, after time.Duration, now int64) (opened, moved bool) {
	switch {
	case v.incident():
		k.incident(&p.c, t.granted, now, after)
		if !pt.wide {
			p.stats.incident(v)
		}
	case v == good || v == redirected:
		k.answered(&p.c, t.granted, now)
	}
	if pt.wide || t.kind == Robots {
		return false, false
	}
	if !t.kind.companion() {
		opened, moved = k.judge(&p.c, t.granted, now, v)
	}
	if t.url != "" && (v == throttle || k.ext != nil && len(k.ext.pages.m) > 0) {
		k.extra().pages.note(&p.c, pageOf(t.url), now, v)
	}
	return opened, moved
}

// wakeAfter tells those who wait what an outcome means for them.
func (p *Pacer) wakeAfter(s *shard, k *entry, rider, opened, moved bool, held, now int64) {
	if k.waiting() > 0 {
		switch {
		case opened:
			p.refuseAll(k, HostStopped, "", k.openUntil, now)
		case moved:
			p.requeue(k)
		}
		if !rider {
			p.hopeless(k, now, pastDeadline)
		} else if k.holdUntil > held {
			p.hopeless(k, now, func(w *waiter, _ int64) bool { return k.holdUntil > w.deadline })
		}
	}
	p.process(s, k, now)
}

// lowerDelay lets a robots delay go that nobody here knows any more. A domain's is that of the host that ended.
func (p *Pacer) lowerDelay(k *entry, pt *part) {
	if pt.class == classRider || pt.class == classRobots {
		return
	}
	if k.scope != scopeHost {
		k.delay = pt.delay
		return
	}
	if pt.delay >= k.delay {
		return
	}
	d := pt.delay
	for x := k.turns; x != nil; x = x.next {
		d = max(d, x.delay)
	}
	if k.waiting() > 0 {
		k.ext.queues.each(func(w *waiter) { d = max(d, w.delay) })
	}
	k.delay = min(d, k.delay)
}

// remember keeps of a page turn what its companions and redirects need.
func (p *Pacer) remember(k *entry, t *Turn, o *Outcome, v verdict, now int64) {
	if t.record == 0 {
		return
	}
	if v == notSent {
		k.recent.drop(t.record)
		return
	}
	r := k.recent.find(t.record)
	if r == nil {
		return
	}
	r.end = now
	r.answered = o.Status >= 200 && o.Status < 300 || o.Status == http.StatusNotModified
	if v == redirected && o.Location != "" {
		r.target = p.id(t.client, o.Location)
		if d, ok := retryAfter(o.RetryAfter, o.Date, time.Now(), p.c.Backoff.RetryAfterCap); ok {
			r.notBefore = now + int64(d)
		}
	}
}

// Observe reports the outcome of a request that took no turn (`mode: none`): an incident holds the others; the breaker
// and the page count are not touched. While a hold is in force it is the same incident.
func (p *Pacer) Observe(r Request, o Outcome) {
	v := o.verdict()
	if !v.incident() || p.closed.Load() {
		return
	}
	after := p.c.retryAfterOf(&o, time.Now())
	if p.shared != nil {
		p.observeShared(&r, v, after)
		return
	}
	p.observe(r.Key, v, after)
	if r.DomainKey != "" {
		p.observe(domainName(r.DomainKey), v, after)
	}
}

func (p *Pacer) observe(name string, v verdict, after time.Duration) {
	s, hash := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := p.key(s, hash, name)
	if k == nil {
		return
	}
	now, held := p.now(), k.holdUntil
	granted := now
	if now < k.holdUntil {
		granted = k.incidentAt - 1
	}
	k.incident(&p.c, granted, now, after)
	if k.scope == scopeHost {
		p.stats.incident(v)
	}
	if p.store != nil {
		p.markDirty(s, k)
	}
	p.wakeAfter(s, k, true, false, false, held, now)
}

// Resume lets a host in again at once (`sites resume`): hold, back-off, pace level, breaker and pages left are cleared.
// The gap after the last request is still owed.
func (p *Pacer) Resume(key string) {
	if p.shared != nil {
		p.resumeShared(key)
		return
	}
	p.resume(key)
	p.resume(domainName(DomainKey(key)))
}

func (p *Pacer) resume(name string) {
	s, hash := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, name)
	if k == nil {
		return
	}
	k.resume()
	if p.store != nil {
		p.markDirty(s, k)
	}
	p.changed(s, k, p.now())
}

func (k *entry) resume() {
	k.holdUntil, k.incidentAt, k.levelAt = never, never, never
	k.fails, k.goodRun, k.level = 0, 0, 0
	k.resetBreaker()
	if k.ext != nil {
		k.ext.pages = pages{}
	}
}
