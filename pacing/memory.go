package pacing

import (
	"hash/maphash"
	"iter"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	shards     = 256
	sweepEvery = 250 * time.Millisecond // one shard
	sweepStep  = 128                    // keys between two chances for those who wait for the shard
	shrinkOver = 64                     // a smaller map is not worth a copy
)

// shard is one part of the keys under one mutex. No code holds two of them.
//
// The map goes from a name's hash to its key, which knows its name: half of what a map of names takes, and each name is
// hashed once and compared once. Two names with one hash are not to be expected in the life of a universe, but nobody
// shares the turns of a stranger: the second of them lives in twins.
type shard struct {
	mu    sync.Mutex
	m     map[uint64]*entry
	twins map[string]*entry   // nearly always nil
	peak  int                 // most keys since the map was made
	dirty map[string]struct{} // changed since the last write to disk
	seq   uint32              // page turns, see companion.go
	count [hostStates]int     // what the last sweep saw
	_     [40]byte            // whole cache lines
}

// shard is where a name lives, with the name's hash for find.
func (p *Pacer) shard(name string) (*shard, uint64) {
	h := maphash.String(p.seed, name)
	return &p.shards[h%shards], h
}

// find is the key of a name, nil when it is not known.
func (s *shard) find(hash uint64, name string) *entry {
	if k := s.m[hash]; k != nil && k.name == name {
		return k
	}
	return s.twins[name]
}

// add makes a key known whose name is not.
func (s *shard) add(hash uint64, k *entry) {
	if s.m[hash] == nil {
		s.m[hash] = k
	} else {
		if s.twins == nil {
			s.twins = map[string]*entry{}
		}
		s.twins[k.name] = k
	}
	s.peak = max(s.peak, len(s.m))
}

// all visits every key. The visitor may forget the one it is given, and let go of the shard between two of them.
func (s *shard) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, k := range s.m {
			if !yield(k) {
				return
			}
		}
		for _, k := range s.twins {
			if !yield(k) {
				return
			}
		}
	}
}

// key finds or makes a key; nil when there are too many.
func (p *Pacer) key(s *shard, hash uint64, name string) *entry {
	if k := s.find(hash, name); k != nil {
		return k
	}
	if p.keys.Load() >= int64(p.c.MaxKeys) {
		return nil
	}
	p.keys.Add(1)
	// The name may be a piece of a long URL, and is kept for longer than that.
	k := newEntry(strings.Clone(name), newState(p.floor))
	s.add(hash, k)
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

// breathe lets those go on who wait for the shard.
func (s *shard) breathe() {
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
}

func (p *Pacer) sweep(s *shard) { p.sweepInSteps(s, (*shard).breathe) }

// sweepInSteps drops the settled keys of one shard and gives their memory back. It holds the shard for sweepStep keys at a time,
// with a breath between. There is one sweep at a time: nobody else forgets a key or replaces the map.
func (p *Pacer) sweepInSteps(s *shard, breathe func(*shard)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var count [hostStates]int
	var now, margin int64
	n := 0
	for k := range s.all() {
		if n%sweepStep == 0 {
			if n > 0 {
				breathe(s)
			}
			now = p.now()
			// The next request may come from a profile with a wider gap or an agent with a delay: it must still find the last end.
			margin = max(p.widest.Load(), int64(p.c.CompanionWindow))
		}
		n++
		if now >= k.lastEnd+margin && now >= k.robotsEnd+margin && k.settled(&p.c, now) {
			if k.saved {
				p.markDirty(s, k)
			}
			p.forget(s, k)
			continue
		}
		k.slim(&p.c, now)
		if k.saved && !k.dirty && !k.owes(&p.c, now) {
			p.markDirty(s, k)
		}
		if k.scope == scopeHost {
			count[k.hostState(&p.c, now)]++
		}
	}
	s.count = count
	if s.peak > shrinkOver && len(s.m) < s.peak/4 {
		m := make(map[uint64]*entry, len(s.m)) // maps.Clone would keep the size
		for hash, k := range s.m {
			m[hash] = k
		}
		s.m, s.peak = m, len(m)
	}
}

func (p *Pacer) forget(s *shard, k *entry) {
	if _, hash := p.shard(k.name); s.m[hash] == k {
		delete(s.m, hash)
	} else {
		delete(s.twins, k.name)
	}
	p.keys.Add(-1)
}
