package pacing

import (
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// endShared tells the store what became of one key's share of a turn. It does not wait for the store: a Done stands at
// the end of a client's answer.
func (p *Pacer) endShared(pt *part, o *Outcome, v verdict, after time.Duration, now int64) {
	s, k, t := pt.s, pt.k, pt.turn
	s.mu.Lock()
	if !pt.wide {
		p.remember(k, t, o, v, now)
		if v.incident() {
			p.stats.incident(v)
		}
	}
	rider := pt.class == classRider
	if rider {
		k.unlink(pt)
		p.process(s, k, now)
		clean := v == notSent || v == aborted || v == refusal || !v.incident() && k.fails == 0 && k.level == 0 && (k.ext == nil || !k.ext.counted)
		if clean {
			s.mu.Unlock()
			return
		}
	}
	a := &args{
		Verdict: v.String(), Incidents: bit(v.incident()), Bad: bit(v.bad()), After: us(after), Jitter: p.jitter(), Wide: bit(pt.wide),
		Robots: bit(t.kind == Robots), Window: bit(!t.kind.companion()), Granted: pt.granted,
	}
	if pt.lease != nil {
		a.of(&pt.want)
		a.Token = pt.lease.token
		pt.lease.stop()
	}
	if t.url != "" && !pt.wide && t.kind != Robots {
		id := pageOf(t.url)
		a.Page = hex.EncodeToString(id[:])
	}
	if k.waiting() > 0 {
		k.ext.queues.each(func(w *waiter) { a.Waiting = max(a.Waiting, us(w.delay)) })
	}
	s.mu.Unlock()
	if !p.shared.run(func() { p.tell(pt, a, v, after, rider, now) }) { // closed: the lease runs out by itself
		s.mu.Lock()
		if !rider {
			k.unlink(pt)
		}
		s.mu.Unlock()
	}
}

func (p *Pacer) jitter() float64 {
	return p.c.Backoff.Jitter * rand.Float64() //nolint:gosec // spreads load, no secret
}

// tell is endShared's call and what follows from its answer.
func (p *Pacer) tell(pt *part, a *args, v verdict, after time.Duration, rider bool, ended int64) {
	s, k, t := pt.s, pt.k, pt.turn
	rep, err := p.shared.call("done", k.name, a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !rider {
		k.unlink(pt)
	}
	now, held := p.now(), k.holdUntil
	if err != nil { // keep it here until the store is back
		if v != notSent {
			_, _ = p.apply(k, pt, t, v, after, ended)
			k.ended(&p.c, &pt.want, ended)
			k.local = true
			p.shared.note(k.name)
		}
		p.process(s, k, now)
		return
	}
	if rep.status == stLost {
		p.stats.leaseLost.Add(1)
		p.process(s, k, now)
		return
	}
	p.mirror(k, &rep, now)
	if v == notSent && !rider {
		p.hopeless(k, now, pastDeadline)
		p.process(s, k, now)
		return
	}
	p.wakeAfter(s, k, rider, rep.status == stStopped, true, held, now)
}

// endedLocally notes that the store does not know what ended here.
func (p *Pacer) endedLocally(pt *part, v verdict) {
	if p.shared == nil || pt.address || v == notSent {
		return
	}
	pt.k.local = true
	p.shared.note(pt.k.name)
	if !p.shared.away() {
		name := pt.k.name
		p.shared.run(func() { _ = p.shared.writeOwed(name) })
	}
}

// eachShared calls op for a host and for its domain.
func (p *Pacer) eachShared(key, domain, op string, a func() *args, then func(s *shard, k *entry, now int64)) {
	names := []string{key}
	if domain != "" {
		names = append(names, domainName(domain))
	}
	for _, name := range names {
		x := a()
		x.Wide = bit(name[0] == '*')
		rep, err := p.shared.call(op, name, x)
		if err != nil {
			continue
		}
		s, hash := p.shard(name)
		s.mu.Lock()
		if k := s.find(hash, name); k != nil {
			now := p.now()
			p.mirror(k, &rep, now)
			then(s, k, now)
		}
		s.mu.Unlock()
	}
}

func (p *Pacer) observeShared(r *Request, v verdict, after time.Duration) {
	p.stats.incident(v)
	key, domain := r.Key, r.DomainKey
	p.shared.run(func() {
		p.eachShared(key, domain, "observe", func() *args { return &args{After: us(after), Jitter: p.jitter()} },
			func(s *shard, k *entry, now int64) {
				p.hopeless(k, now, func(w *waiter, _ int64) bool { return k.holdUntil > w.deadline })
				p.process(s, k, now)
			})
	})
}

func (p *Pacer) resumeShared(key string) {
	p.eachShared(key, DomainKey(key), "resume", func() *args { return &args{} }, func(s *shard, k *entry, now int64) {
		if k.ext != nil {
			k.ext.pages = pages{}
		}
		p.changed(s, k, now)
	})
}

// tellRules tells the store of a change of robots.txt or of the ledger; a negative value stays as it was.
func (p *Pacer) tellRules(key string, delay, slow time.Duration) {
	a := args{Delay: -1, Slow: -1}
	if delay >= 0 {
		a.Delay = us(delay)
	}
	if slow >= 0 {
		a.Slow = us(slow)
	}
	p.eachShared(key, "", "rules", func() *args { b := a; return &b }, func(*shard, *entry, int64) {})
}

// look reads a key's state from the store, and whether url is left for its round.
func (p *Pacer) look(name, url string) (*reply, error) {
	a := &args{}
	if url != "" {
		id := pageOf(url)
		a.Page = hex.EncodeToString(id[:])
	}
	rep, err := p.shared.call("look", name, a)
	if err != nil {
		return nil, err
	}
	return &rep, nil
}
