package proxy

import "slices"

// grant gives a seat if one is free; limit 0 is no bound. The caller holds c.mu.
func (c *conns) grant(s *seats, to site, limit int) *seat {
	if limit > 0 && (s.first != nil || s.taken >= limit) {
		return nil
	}
	st := &seat{c: c, of: to}
	if limit > 0 && s.taken == 0 && to.scheme == "https" && !to.stays && !s.tried {
		s.first = st
	}
	s.taken++
	return st
}

// admit gives free seats to those who wait, in their order. The caller holds c.mu.
func (c *conns) admit(to site, s *seats) {
	s.queue = slices.DeleteFunc(s.queue, func(wt *waiter) bool {
		st := c.grant(s, to, wt.limit)
		if st != nil {
			c.give(wt, find{seat: st})
		}
		return st != nil
	})
}

// singular notes that a new connection speaks HTTP/1.1: those who wait make their own.
func (st *seat) singular() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	s := st.c.at(st.of)
	if s.first == st {
		s.first = nil
		st.c.admit(st.of, s)
	}
	st.c.tidy(st.of, s)
}

// leave ends the seat's connection, once.
func (st *seat) leave() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.free {
		return
	}
	st.free = true
	s := st.c.at(st.of)
	if i := slices.IndexFunc(s.multi, func(m *multiConn) bool { return m.seat == st }); i >= 0 {
		st.c.resting.part(s.multi[i])
		s.drop(s.multi[i])
	}
	st.vacate()
}

// drop takes an HTTP/2 connection out of those that requests are given. The caller holds the lock of conns.
func (s *seats) drop(m *multiConn) {
	if i := slices.Index(s.multi, m); i >= 0 {
		s.multi = slices.Delete(s.multi, i, i+1)
	}
}

// vacate frees the seat for the next. The caller holds c.mu.
func (st *seat) vacate() {
	s := st.c.at(st.of)
	s.taken--
	if s.first == st {
		s.first, s.tried = nil, true
	}
	st.c.admit(st.of, s)
	st.c.tidy(st.of, s)
}

// stay moves the connection to the seats of those that stay, and reports whether one was free.
func (st *seat) stay(limit int) bool {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	to := st.of
	to.stays = true
	s := st.c.at(to)
	if st.free || st.of.stays || limit > 0 && s.taken >= limit {
		st.c.tidy(to, s)
		return st.free || st.of.stays
	}
	s.taken++
	st.vacate()
	st.of = to
	return true
}

// back moves a connection whose stream ended whole among the others, whose next request it may carry.
func (st *seat) back() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.free || !st.of.stays {
		return
	}
	to := st.of
	to.stays = false
	st.c.at(to).taken++
	st.vacate()
	st.of = to
}

// stays moves the connection that brought an event stream to those that stay; over HTTP/2 it holds none up. It reports
// false when too many stay already.
func (w *wireLog) stays() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.h2 != nil || w.seat == nil || w.seat.stay(w.limit)
}
