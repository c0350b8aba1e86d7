package pacing

import (
	"hash/maphash"
	"math"
	"math/bits"
	"time"
)

// Companion describes a request that wants to go along with a page turn, or right after one.
type Companion struct {
	Kind   Kind   // Subresource, Render, Repeat or Redirect
	Client string // the same client as the page turn's
	URL    string // what is asked for, normalised, without fragment
	Key    string // the key of URL's host
	// Page and PageKey are the page that a Subresource belongs to and the key of its host. The other kinds ignore
	// them: Render and Repeat belong to URL itself, Redirect to whichever answer pointed to URL.
	Page, PageKey string
	Hops          int // of a Redirect: the most hops the profile follows
}

// Ticket is the leave to go as a companion or redirect, booked on a page turn. Hand it to Acquire in Request.Ticket; a
// request that never comes so far gives it back with Cancel.
type Ticket struct {
	p         *Pacer
	name      string
	seq       uint32
	kind      Kind
	hops      int16
	target    uint64
	notBefore int64
}

// NotBefore is the Retry-After of the redirect's own answer: how long from now its target has to wait; usually 0.
// Acquire keeps to it.
func (t *Ticket) NotBefore() time.Duration { return time.Duration(max(0, t.notBefore-t.p.now())) }

// recent is the page turns of a key that are open or ended within companion_window, at most maxRecent: a ring of small
// blocks that grows while it is needed, so that a turn touches one place in memory and an idle host has one block.
type recent struct{ last *block }

type block struct {
	next  *block // of the last one: the oldest
	n     uint8  // in the last block: turns added to it
	ring  uint8  // in the last block: how many blocks there are
	turns [4]pageTurn
}

const (
	maxRecent = 32 // a gap of one second makes thirty in the default window
	stillOpen = math.MaxInt64
)

// pageTurn remembers by hash only, so that it costs no strings.
type pageTurn struct {
	page      uint64 // client and URL
	target    uint64 // client and Location, 0: none
	end       int64
	notBefore int64
	seq       uint32
	riders    int32
	hops      int16
	answered  bool // with 2xx or 304
	rendered  bool
	repeated  bool
}

func (r *recent) add(t pageTurn) {
	b := r.last
	if b == nil {
		b = &block{ring: 1}
		b.next = b
		r.last = b
	}
	if int(b.n) == len(b.turns) {
		next := b.next
		if ring := int(b.ring); ring < maxRecent/len(b.turns) {
			next = &block{next: next}
			b.next = next
			ring++
			next.ring = uint8(ring) //nolint:gosec // at most 8
		} else {
			next.ring = b.ring
		}
		next.n = 0 // of the oldest: what stands there goes one by one
		b, r.last = next, next
	}
	b.turns[b.n] = t
	b.n++
}

// each visits the page turns until f says no.
func (r *recent) each(f func(*pageTurn) bool) {
	if r.last == nil {
		return
	}
	for b := r.last; ; b = b.next {
		for i := range b.turns {
			if t := &b.turns[i]; t.seq != 0 && !f(t) {
				return
			}
		}
		if b.next == r.last {
			return
		}
	}
}

func (r *recent) find(seq uint32) *pageTurn {
	if r.last == nil {
		return nil
	}
	for b := r.last; ; b = b.next {
		for i := range b.turns {
			if b.turns[i].seq == seq {
				return &b.turns[i]
			}
		}
		if b.next == r.last {
			return nil
		}
	}
}

// newest finds the youngest page turn that ok accepts.
func (r *recent) newest(ok func(*pageTurn) bool) *pageTurn {
	var found *pageTurn
	r.each(func(t *pageTurn) bool {
		if (found == nil || int32(t.seq-found.seq) > 0) && ok(t) {
			found = t
		}
		return true
	})
	return found
}

func (r *recent) drop(seq uint32) {
	if t := r.find(seq); t != nil {
		*t = pageTurn{}
	}
}

// prune lets the list go when all of it is too old.
func (r *recent) prune(now, window int64) {
	old := true
	r.each(func(t *pageTurn) bool {
		old = t.end != stillOpen && now-t.end >= window
		return old
	})
	if old {
		r.last = nil
	}
}

// client is the hash of a client's name, 0 for none. The seed is random: nobody outside can make two equal.
func (p *Pacer) client(name string) uint64 {
	if name == "" {
		return 0
	}
	return max(maphash.String(p.seed, name), 1)
}

// id is the hash of a client's URL.
func (p *Pacer) id(client uint64, url string) uint64 {
	return max(bits.RotateLeft64(client, 32)^maphash.String(p.seed, url), 1)
}

// Companion reports whether a request may go as its kind, and books it. What it refuses is a Page.
//
//   - Subresource: its page's turn is open or ended less than companion_window ago, at most companion_budget per turn
//   - Render, Repeat: the same window, to the very URL of that turn after it answered 2xx or 304, once each
//   - Redirect: the Location just answered to this client by the same key, once per answer, at most Hops in a row
func (p *Pacer) Companion(c Companion) (*Ticket, bool) {
	name, url := c.Key, c.URL
	if c.Kind == Subresource {
		name, url = c.PageKey, c.Page
	}
	id := p.id(p.client(c.Client), url)
	s, hash := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, name)
	if k == nil {
		return nil, false
	}
	now := p.now()
	window := int64(p.c.CompanionWindow)
	t := k.recent.newest(func(t *pageTurn) bool {
		if t.end != stillOpen && now-t.end >= window {
			return false
		}
		switch c.Kind {
		case Subresource:
			return t.page == id && int(t.riders) < p.c.CompanionBudget
		case Render:
			return t.page == id && t.answered && !t.rendered && int(t.riders) < p.c.CompanionBudget
		case Repeat:
			return t.page == id && t.answered && !t.repeated && int(t.riders) < p.c.CompanionBudget
		case Redirect:
			return t.target == id && int(t.hops) < c.Hops
		default:
			return false
		}
	})
	if t == nil {
		return nil, false
	}
	k0 := &Ticket{p: p, name: name, seq: t.seq, kind: c.Kind}
	switch c.Kind {
	case Redirect:
		k0.hops, k0.notBefore = t.hops+1, t.notBefore
		k0.target, t.target = t.target, 0
	case Render:
		t.rendered = true
		t.riders++
	case Repeat:
		t.repeated = true
		t.riders++
	default:
		t.riders++
	}
	return k0, true
}

// Cancel gives a ticket back whose request was not sent, so that it can be asked for again. Acquire does so itself when
// it refuses, and Done when nothing was sent. A nil ticket is fine, and so is a second call.
func (t *Ticket) Cancel() {
	if t == nil || t.p == nil {
		return
	}
	s, hash := t.p.shard(t.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, t.name)
	if k == nil {
		return
	}
	seq := t.seq
	t.seq = 0 // once
	if seq == 0 {
		return
	}
	r := k.recent.find(seq)
	if r == nil {
		return
	}
	switch t.kind {
	case Render:
		r.rendered = false
	case Repeat:
		r.repeated = false
	case Redirect:
		r.target = t.target
		return
	default:
	}
	r.riders--
}
