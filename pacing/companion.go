package pacing

import (
	"hash/maphash"
	"math"
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

// recent is the page turns of a key that are open or ended within companion_window.
type recent struct {
	l   []pageTurn
	pos int // the oldest, once the list is full
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
	if len(r.l) < maxRecent {
		r.l = append(r.l, t)
		return
	}
	r.l[r.pos] = t
	r.pos = (r.pos + 1) % maxRecent
}

func (r *recent) find(seq uint32) *pageTurn {
	for i := range r.l { // the latest first
		if t := &r.l[(r.pos+len(r.l)-1-i)%len(r.l)]; t.seq == seq {
			return t
		}
	}
	return nil
}

// newest finds the youngest page turn that ok accepts.
func (r *recent) newest(ok func(*pageTurn) bool) *pageTurn {
	var found *pageTurn
	for i := range r.l {
		if t := &r.l[i]; (found == nil || int32(t.seq-found.seq) > 0) && ok(t) {
			found = t
		}
	}
	return found
}

func (r *recent) drop(seq uint32) {
	if t := r.find(seq); t != nil {
		*t = pageTurn{end: never}
	}
}

// prune lets the list go when all of it is too old.
func (r *recent) prune(now, window int64) {
	for i := range r.l {
		if t := &r.l[i]; t.end == stillOpen || now-t.end < window {
			return
		}
	}
	*r = recent{}
}

// id is the hash of a client's URL. The seed is random: nobody outside can make two equal.
func (p *Pacer) id(client, url string) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	_, _ = h.WriteString(client)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(url)
	if s := h.Sum64(); s != 0 {
		return s
	}
	return 1
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
	id := p.id(c.Client, url)
	s := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.m[name]
	if k == nil || k.ext == nil {
		return nil, false
	}
	now := p.now()
	window := int64(p.c.CompanionWindow)
	t := k.ext.recent.newest(func(t *pageTurn) bool {
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
	s := t.p.shard(t.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.m[t.name]
	if k == nil || k.ext == nil {
		return
	}
	seq := t.seq
	t.seq = 0 // once
	if seq == 0 {
		return
	}
	r := k.ext.recent.find(seq)
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
