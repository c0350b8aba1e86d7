package pacing

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	shards     = 256
	sweepEvery = 250 * time.Millisecond // one shard
	shrinkOver = 64                     // a smaller map is not worth a copy
)

// shard is one part of the keys under one mutex. No code holds two of them.
type shard struct {
	mu    sync.Mutex
	m     map[string]*entry
	peak  int                 // most keys since the map was made
	dirty map[string]struct{} // changed since the last write to disk
	seq   uint32              // page turns, see companion.go
	count [hostStates]int     // what the last sweep saw
	_     [24]byte
}

func (p *Pacer) shard(name string) *shard {
	return &p.shards[maphash.String(p.seed, name)%shards]
}

// key finds or makes a key; nil when there are too many.
func (p *Pacer) key(s *shard, name string) *entry {
	if k := s.m[name]; k != nil {
		return k
	}
	if p.keys.Load() >= int64(p.c.MaxKeys) {
		return nil
	}
	p.keys.Add(1)
	k := &entry{state: newState(p.floor)}
	s.m[name] = k
	s.peak = max(s.peak, len(s.m))
	return k
}

// sweeper forgets what is settled, one shard at a time.
func (p *Pacer) sweeper() {
	defer p.wg.Done()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % shards {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.sweep(&p.shards[i])
		}
	}
}

// sweep drops the settled keys of one shard and gives their memory back.
func (p *Pacer) sweep(s *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := p.now()
	// The next request may come from a profile with a wider gap or an agent with a delay: it must still find the last end.
	margin := max(p.widest.Load(), int64(p.c.CompanionWindow))
	s.count = [hostStates]int{}
	for name, k := range s.m {
		if now >= k.lastEnd+margin && now >= k.robotsEnd+margin && k.settled(&p.c, now) {
			if k.saved {
				p.markDirty(s, name, k)
			}
			delete(s.m, name)
			p.keys.Add(-1)
			continue
		}
		k.slim(&p.c, now)
		if k.saved && !k.dirty && !k.owes(&p.c, now) {
			p.markDirty(s, name, k)
		}
		if !k.wide {
			s.count[k.hostState(&p.c, now)]++
		}
	}
	if s.peak > shrinkOver && len(s.m) < s.peak/4 {
		m := make(map[string]*entry, len(s.m))
		for name, k := range s.m {
			m[name] = k
		}
		s.m, s.peak = m, len(m)
	}
}
