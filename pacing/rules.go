package pacing

import (
	"strings"
	"time"
)

// SetDelay tells that the robots.txt of a host was read again and now asks for delay (0: none). The moment of those who
// wait is computed again from the same last end; they move both ways. A host nobody knows is left alone.
func (p *Pacer) SetDelay(key string, delay time.Duration) {
	delay = max(delay, 0)
	if p.shared != nil {
		p.tellRules(key, delay, -1)
	}
	p.alter(key, func(k *entry) {
		k.delay = delay
		for pt := k.turns; pt != nil; pt = pt.next {
			if pt.class != classRobots {
				pt.delay = delay
			}
		}
		if k.waiting() > 0 {
			k.ext.queues.each(func(w *waiter) {
				if w.class != classRobots {
					w.delay = delay
				}
			})
		}
	})
	p.alter(domainName(DomainKey(key)), func(k *entry) {
		if k.waiting() > 0 {
			k.ext.queues.each(func(w *waiter) {
				if w.client == key && w.class != classRobots {
					w.delay = delay
				}
			})
		}
	})
}

// SetGap tells that the operator's ledger now asks for gap at a host (0: the entry is gone), and with subdomains at every
// known host below it. It changes what Request.Slow said before; what stands in Request.Gap cannot be lowered.
func (p *Pacer) SetGap(key string, gap time.Duration, subdomains bool) {
	gap = max(gap, 0)
	if p.shared != nil {
		p.tellRules(key, -1, gap)
	}
	set := func(k *entry) { k.slow = gap }
	p.alter(key, set)
	if !subdomains {
		return
	}
	for i := range p.shards {
		s := &p.shards[i]
		var below []string
		s.mu.Lock()
		for k := range s.all() {
			if k.scope == scopeHost && strings.HasSuffix(k.name, "."+key) {
				below = append(below, k.name)
			}
		}
		s.mu.Unlock()
		for _, name := range below {
			p.alter(name, set)
		}
	}
}

// alter changes a known key and tells those who wait.
func (p *Pacer) alter(name string, f func(k *entry)) {
	s, hash := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, name)
	if k == nil {
		return
	}
	now := p.now()
	f(k)
	if p.store != nil {
		p.markDirty(s, k)
	}
	p.changed(s, k, now)
}
