package pacing

import (
	"math"
	"time"
)

// entry is what is known of one host, domain or address. Its fields are guarded by its shard's mutex. There may be a
// million of them, and at every turn they come from memory that no cache holds: so they are small.
type entry struct {
	state
	name   string
	turns  *part // in flight, without the riders
	ext    *ext  // only while needed
	recent recent
	riders int32 // in flight
	scope  scope
	local  bool // the store does not know what ended here
	saved  bool // the disk has a value of it
	dirty  bool // the disk does not have the latest
}

func newEntry(name string, s state) *entry { return &entry{state: s, name: name, scope: scopeOf(name)} }

// ext is the part of a key that most keys never need.
type ext struct {
	queues
	pages
	timer *time.Timer
	asker *asker // with Redis: who asks for the head of the queues

	// The rest is the mirror of the store, with Redis.
	remote  *part // who holds the turn at another instance
	synced  int64 // when the store answered last
	server  int64 // the same on its clock
	counted bool  // the store counts pages
}

func (k *entry) extra() *ext {
	if k.ext == nil {
		k.ext = &ext{}
	}
	return k.ext
}

func (k *entry) waiting() int {
	if k.ext == nil {
		return 0
	}
	return k.ext.len()
}

// part is one key's share of a turn: its host, its domain, its address.
type part struct {
	want
	turn    *Turn
	s       *shard
	k       *entry
	lease   *lease // with Redis, unless it rides
	granted int64  // of a rider: the server's clock
	next    *part
	wide    bool // a domain or an address
	address bool
	far     bool // the store gave it
}

func (k *entry) link(pt *part) {
	if pt.class == classRider {
		k.riders++
		return
	}
	pt.next = k.turns
	k.turns = pt
}

func (k *entry) unlink(pt *part) {
	if pt.class == classRider {
		k.riders--
		return
	}
	for at := &k.turns; *at != nil; at = &(*at).next {
		if *at == pt {
			*at = pt.next
			return
		}
	}
}

// parallel is how many turns may be in flight if w is one of them: the smallest promise of those concerned, and 1 while
// a robots delay, a pace level or a breaker is in force.
func (k *entry) parallel(c *Config, w *want, now int64) int {
	n := max(w.parallel, 1)
	if n == 1 {
		return 1
	}
	if max(k.delay, w.delay) > 0 || k.levelNow(c, now) > 0 || !k.closed() {
		return 1
	}
	for pt := k.turns; pt != nil; pt = pt.next {
		n = min(n, max(pt.parallel, 1))
	}
	return int(n)
}

// slot reports whether one more of w's class may be in flight.
func (k *entry) slot(c *Config, w *want, now int64) bool {
	if w.class == classRider {
		return k.riders < w.parallel
	}
	if k.turns == nil {
		return k.ext == nil || k.ext.remote == nil
	}
	n := 0
	for pt := k.turns; pt != nil; pt = pt.next {
		n++
	}
	return n < k.parallel(c, w, now)
}

// can reports whether w could go now if nobody stood before it.
func (k *entry) can(c *Config, w *want, now int64) bool {
	return k.slot(c, w, now) && k.ready(c, w, now) <= now
}

// alone is the earliest moment of w without its place in the queue: a lower bound, time in flight counts as zero.
func (k *entry) alone(c *Config, w *want, now int64) int64 {
	if w.class != classPage || k.slot(c, w, now) {
		return k.ready(c, w, now)
	}
	t := k.turns
	if t == nil {
		t = k.ext.remote
	}
	if t.class == classRobots {
		var g time.Duration
		if !t.free {
			g = max(t.gap, w.gap)
		}
		return max(now+int64(g), k.holdUntil, k.nextAt(c, w))
	}
	return max(now+k.step(c, t.gap, w, now), k.holdUntil)
}

// forecast visits the waiting pages in ring order with their earliest moments, with and without their place.
func (k *entry) forecast(c *Config, now int64, f func(w *waiter, placed, alone int64) bool) {
	if k.ext == nil {
		return
	}
	var i, prev int64
	var gap time.Duration
	k.ext.queues.pages.each(func(w *waiter) bool {
		alone := k.alone(c, &w.want, now)
		placed := alone
		if i > 0 {
			step := k.step(c, gap, &w.want, now)
			if n := int64(k.parallel(c, &w.want, now)); n > 1 {
				placed = alone + i/n*step
			} else {
				placed = max(alone, prev+step)
			}
		}
		i, prev, gap = i+1, placed, w.gap
		return f(w, placed, alone)
	})
}

// earliest is the forecast for a waiter of any class.
func (k *entry) earliest(c *Config, w *waiter, now int64) int64 {
	if w.class != classPage {
		return k.alone(c, &w.want, now)
	}
	at := int64(0)
	k.forecast(c, now, func(x *waiter, placed, _ int64) bool {
		at = placed
		return x != w
	})
	return at
}

// next is the head of the queues that can go now.
func (k *entry) next(c *Config, now int64) *waiter {
	q := &k.ext.queues
	if len(q.robots) > 0 && k.can(c, &q.robots[0].want, now) {
		return q.robots[0]
	}
	if len(q.redirects) > 0 && k.can(c, &q.redirects[0].want, now) {
		return q.redirects[0]
	}
	if w := q.pages.head(); w != nil && len(q.robots) == 0 && k.can(c, &w.want, now) {
		return w
	}
	if w := q.riders.head(); w != nil && k.can(c, &w.want, now) {
		return w
	}
	return nil
}

// pop takes a waiter that next returned out of its queue.
func (q *queues) pop(w *waiter, now int64) {
	switch w.class {
	case classPage:
		q.n--
		q.pages.pop(now)
	case classRider:
		q.n--
		q.riders.pop(now)
	default:
		q.remove(w)
	}
}

// alarm is when something may change for those who wait without anybody coming or going: one nanosecond after the
// moment when a waiter may go, so that what ends in that very instant counts first, and slack after a deadline. With Redis the store
// says when somebody may go, and nobody is refused before its first answer.
func (k *entry) alarm(c *Config, now, slack int64, far bool) int64 {
	at := int64(math.MaxInt64)
	q := &k.ext.queues
	q.each(func(w *waiter) {
		if !far || w.judged {
			at = min(at, w.deadline+slack)
		}
	})
	if far {
		return at
	}
	see := func(w *waiter) {
		if w != nil && k.slot(c, &w.want, now) {
			at = min(at, k.ready(c, &w.want, now)+1)
		}
	}
	if len(q.robots) > 0 {
		see(q.robots[0])
	}
	if len(q.redirects) > 0 {
		see(q.redirects[0])
	}
	if len(q.robots) == 0 {
		see(q.pages.head())
	}
	see(q.riders.head())
	return at
}

// settled reports whether nothing is owed and nobody is here, so that the key may be forgotten.
func (k *entry) settled(c *Config, now int64) bool {
	if k.local || k.turns != nil || k.riders != 0 || now < k.holdUntil || !k.closed() || k.levelNow(c, now) > 0 {
		return false
	}
	if k.fails > 0 && now < max(k.holdUntil, k.incidentAt)+int64(c.Backoff.ForgetAfter) {
		return false
	}
	if k.incidentAt != never && now-max(k.holdUntil, k.incidentAt) <= int64(c.Slow.Window) {
		return false // a second incident soon would be a sustained one
	}
	w := want{class: classPage}
	if now < k.nextAt(c, &w) {
		return false
	}
	k.prune(c, now)
	if k.bad(c) > 0 {
		return false
	}
	return k.slim(c, now)
}

// slim lets go of what a key needed for a while; it reports whether nothing of it is left.
func (k *entry) slim(c *Config, now int64) bool {
	k.recent.prune(now, int64(c.CompanionWindow))
	x := k.ext
	if x == nil {
		return k.recent.last == nil
	}
	x.pages.prune(now)
	if k.turns != nil || x.len() > 0 || x.asker != nil || len(x.pages.m) > 0 {
		return false
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	k.ext = nil
	return k.recent.last == nil
}
