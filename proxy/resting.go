package proxy

import (
	"container/list"
	"time"
)

// resting are the idle HTTP/1.1 connections of all sites and every HTTP/2 connection, the one not used for longest first.
// It bounds both, and ends those that idle too long; an HTTP/2 connection does that by itself. Everything is called with
// the lock of conns held.
type resting struct {
	idle  list.List // *siteConn
	multi list.List // *multiConn
	// sweep is set to the end of the first one's time; it calls expire.
	sweep  *time.Timer
	armed  bool
	limit  time.Duration // 0: none
	expire func()
}

// add puts a connection last, and returns the one that it was one too many for, or nil.
func (r *resting) add(ic *siteConn) *siteConn {
	ic.since = time.Now()
	ic.place = r.idle.PushBack(ic)
	r.arm()
	if r.idle.Len() > idleConns {
		return r.idle.Front().Value.(*siteConn)
	}
	return nil
}

func (r *resting) remove(ic *siteConn) {
	if ic.place != nil {
		r.idle.Remove(ic.place)
		ic.place = nil
	}
}

// arm has the sweep called when the first one's time is over.
func (r *resting) arm() {
	if r.armed || r.limit <= 0 || r.idle.Len() == 0 {
		return
	}
	r.armed = true
	in := time.Until(r.idle.Front().Value.(*siteConn).since.Add(r.limit))
	if r.sweep == nil {
		r.sweep = time.AfterFunc(in, r.expire)
		return
	}
	r.sweep.Reset(in)
}

// over gives the connections whose time is over.
func (r *resting) over(now time.Time) (out []*siteConn) {
	for e := r.idle.Front(); e != nil; e = e.Next() {
		ic := e.Value.(*siteConn)
		if r.limit > 0 && now.Sub(ic.since) < r.limit {
			break
		}
		out = append(out, ic)
	}
	return out
}

// join adds an HTTP/2 connection, and returns one that carries nothing and that it was one too many for, or nil.
func (r *resting) join(m *multiConn) *multiConn {
	m.place = r.multi.PushBack(m)
	if r.multi.Len() <= idleConns {
		return nil
	}
	for e := r.multi.Front(); e != nil; e = e.Next() {
		if old := e.Value.(*multiConn); old.cc.InFlight() == 0 {
			return old
		}
	}
	return nil
}

func (r *resting) used(m *multiConn) {
	if m.place != nil {
		r.multi.MoveToBack(m.place)
	}
}

func (r *resting) part(m *multiConn) {
	if m.place != nil {
		r.multi.Remove(m.place)
		m.place = nil
	}
}

func (r *resting) clear() {
	for e := r.idle.Front(); e != nil; e = e.Next() {
		e.Value.(*siteConn).place = nil
	}
	for e := r.multi.Front(); e != nil; e = e.Next() {
		e.Value.(*multiConn).place = nil
	}
	r.idle.Init()
	r.multi.Init()
	if r.sweep != nil {
		r.sweep.Stop() // the limit may be another from now on
	}
	r.armed = false
}

// expire closes connections that idle for too long.
func (c *conns) expire() {
	c.mu.Lock()
	over := c.resting.over(time.Now())
	for _, ic := range over {
		c.forget(ic)
	}
	c.resting.armed = false
	c.resting.arm()
	c.mu.Unlock()
	for _, ic := range over {
		ic.close()
	}
}
