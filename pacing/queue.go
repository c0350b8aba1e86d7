package pacing

import (
	"context"
	"time"
)

// waiter is one request that waits at one key.
type waiter struct {
	want
	kind      Kind
	client    string
	url       string
	own       bool          // companions: own_turn
	slow      time.Duration // the operator's gap
	token     string        // with Redis: of a question whose answer may be lost
	judged    bool          // with Redis: its forecast was looked at
	stretched bool          // with Redis away: its gap counts for every instance
	came      int64         // when it began to wait
	deadline  int64
	part      *part         // linked at the grant
	done      chan struct{} // closed when granted or refused
	granted   bool
	busy      *Busy
}

// line is the waiters of one client in one ring, first in first out.
type line struct {
	client string
	since  int64 // when it took its place in the ring
	q      []*waiter
}

// ring is a fair queue (section 5): the client at the head goes, with its oldest request; if it has more, it goes to the
// tail; a client that comes joins at the tail.
type ring struct {
	lines []*line
	n     int
}

func (r *ring) line(client string) *line {
	for _, l := range r.lines {
		if l.client == client {
			return l
		}
	}
	return nil
}

func (r *ring) push(w *waiter) {
	l := r.line(w.client)
	if l == nil {
		l = &line{client: w.client, since: w.came}
		r.lines = append(r.lines, l)
	}
	l.q = append(l.q, w)
	r.n++
}

func (r *ring) head() *waiter {
	if len(r.lines) == 0 {
		return nil
	}
	return r.lines[0].q[0]
}

// waits is since when the head's client has its place.
func (r *ring) waits() int64 { return r.lines[0].since }

// pop takes the head and turns the ring.
func (r *ring) pop(now int64) *waiter {
	l := r.lines[0]
	w := l.q[0]
	l.q[0] = nil
	l.q = l.q[1:]
	r.n--
	copy(r.lines, r.lines[1:])
	if len(l.q) > 0 {
		l.since = now
		r.lines[len(r.lines)-1] = l
	} else {
		r.lines[len(r.lines)-1] = nil
		r.lines = r.lines[:len(r.lines)-1]
	}
	return w
}

// remove takes w out, wherever it stands.
func (r *ring) remove(w *waiter) bool {
	for i, l := range r.lines {
		if l.client != w.client {
			continue
		}
		for j, x := range l.q {
			if x != w {
				continue
			}
			l.q = append(l.q[:j:j], l.q[j+1:]...)
			r.n--
			if len(l.q) == 0 {
				r.lines = append(r.lines[:i], r.lines[i+1:]...)
			}
			return true
		}
	}
	return false
}

// each visits the waiters in the order in which they would be granted, until f says no.
func (r *ring) each(f func(w *waiter) bool) {
	for round, seen := 0, 0; seen < r.n; round++ {
		for _, l := range r.lines {
			if round < len(l.q) {
				seen++
				if !f(l.q[round]) {
					return
				}
			}
		}
	}
}

// list is a plain queue, for the few that go before the ring.
type list []*waiter

func (l *list) remove(w *waiter) bool {
	for i, x := range *l {
		if x == w {
			*l = append((*l)[:i:i], (*l)[i+1:]...)
			return true
		}
	}
	return false
}

// queues are the four queues of a key.
type queues struct {
	n                 int // all of them
	robots, redirects list
	pages, riders     ring
}

func (q *queues) len() int { return q.n }

func (q *queues) push(w *waiter) {
	q.n++
	switch w.class {
	case classRobots:
		q.robots = append(q.robots, w)
	case classRedirect:
		q.redirects = append(q.redirects, w)
	case classRider:
		q.riders.push(w)
	default:
		q.pages.push(w)
	}
}

func (q *queues) remove(w *waiter) bool {
	ok := q.take(w)
	if ok {
		q.n--
	}
	return ok
}

func (q *queues) take(w *waiter) bool {
	switch w.class {
	case classRobots:
		return q.robots.remove(w)
	case classRedirect:
		return q.redirects.remove(w)
	case classRider:
		return q.riders.remove(w)
	default:
		return q.pages.remove(w)
	}
}

// each visits everybody, each queue in its order.
func (q *queues) each(f func(w *waiter)) {
	for _, w := range q.robots {
		f(w)
	}
	for _, w := range q.redirects {
		f(w)
	}
	g := func(w *waiter) bool { f(w); return true }
	q.pages.each(g)
	q.riders.each(g)
}

// wait blocks until w is granted or refused, or ctx ends; it reports whether the answer came first.
func (w *waiter) wait(ctx context.Context) bool {
	select {
	case <-w.done:
		return true
	case <-ctx.Done():
		return false
	}
}
