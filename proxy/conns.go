package proxy

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
)

// conns bounds the connections to one site (limits.connections). It counts real connections, idle ones too, where they
// are dialled. http.Transport's own MaxConnsPerHost will not do: it panics or hangs with HTTP/2 (golang/go#34941), counts
// a WebSocket like a page, and forgets its count whenever the transport is replaced. A dial that finds the site full
// waits for a seat, or until somebody else's connection has served its request, whichever comes first.
//
// Connections that stay (WebSockets, event streams over HTTP/1.1) have as many seats again, of their own, and take none
// from pages and files.
//
// Over HTTP/2 one connection carries everything. While the first one to an https site is made the others wait to see
// what it speaks; another is made only once the site's own limit on streams is used up, and again within the bound.
// Waiting in that one connection instead (StrictMaxConcurrentRequests) can stall for good (golang/go#70809).
type conns struct {
	waiting atomic.Int64 // dials, at all sites
	mu      sync.Mutex
	sites   map[site]*seats
}

// site is what a connection is for. http.Transport keeps the same things apart.
type site struct {
	scheme, addr string
	stays        bool
}

// siteOf is where a request goes.
func siteOf(u *url.URL, stays bool) site {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return site{u.Scheme, net.JoinHostPort(u.Hostname(), port), stays}
}

// seats are those of one site.
type seats struct {
	taken int
	first *seat // of the first connection, while it isn't known what it speaks
	tried bool  // a first connection came to nothing: the next are made side by side
	queue []*waiter
}

// seat is the place of one connection.
type seat struct {
	c    *conns
	of   site
	free bool
}

// waiter is a dial that waits.
type waiter struct {
	limit int
	again bool       // can be sent back to look for a stream
	seat  chan *seat // gets one value: its seat, or nil to look again
}

var (
	errNotWanted = errors.New("the request needs no new connection any more")
	errLookAgain = errors.New("a stream to the site may be free")
	errSiteFull  = errors.New("every connection to the site is taken")
)

func newConns() *conns { return &conns{sites: map[site]*seats{}} }

// take gives the dial of a request a seat. It waits as long as the request wants a connection.
func (c *conns) take(w *wireLog) (*seat, error) {
	c.mu.Lock()
	s := c.at(w.to)
	if st := c.grant(s, w.to, w.limit); st != nil {
		c.mu.Unlock()
		return st, nil
	}
	wt := &waiter{limit: w.limit, again: w.bare, seat: make(chan *seat, 1)}
	s.queue = append(s.queue, wt)
	c.waiting.Add(1)
	c.mu.Unlock()

	var st *seat
	select {
	case st = <-wt.seat:
	case <-w.served():
		st = c.leave(w.to, wt)
	case <-w.gone:
		st = c.leave(w.to, wt)
	}
	switch {
	case st == nil:
		return nil, errLookAgain
	case st.c == nil:
		return nil, errNotWanted
	}
	return st, nil
}

// notASeat is what a dial gets that left the queue.
var notASeat = &seat{}

// leave takes a dial out of the queue; a seat that it was just given goes to the next.
func (c *conns) leave(to site, wt *waiter) *seat {
	c.mu.Lock()
	s := c.at(to)
	i := slices.Index(s.queue, wt)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		c.waiting.Add(-1)
	}
	c.tidy(to, s)
	c.mu.Unlock()
	if i < 0 {
		if st := <-wt.seat; st != nil {
			st.leave()
		}
	}
	return notASeat
}

// at returns a site's seats. The caller holds c.mu.
func (c *conns) at(to site) *seats {
	s := c.sites[to]
	if s == nil {
		s = &seats{}
		c.sites[to] = s
	}
	return s
}

// tidy forgets a site that nobody uses. The caller holds c.mu.
func (c *conns) tidy(to site, s *seats) {
	if s.taken == 0 && len(s.queue) == 0 {
		delete(c.sites, to)
	}
}

// grant gives a seat if one is free. The caller holds c.mu.
func (c *conns) grant(s *seats, to site, limit int) *seat {
	if s.first != nil || s.taken >= limit {
		return nil
	}
	st := &seat{c: c, of: to}
	if s.taken == 0 && to.scheme == "https" && !to.stays && !s.tried {
		s.first = st
	}
	s.taken++
	return st
}

// admit gives free seats to those who wait, in their order. The caller holds c.mu.
func (c *conns) admit(to site, s *seats) {
	s.queue = slices.DeleteFunc(s.queue, func(wt *waiter) bool {
		st := c.grant(s, to, wt.limit)
		if st == nil {
			return false
		}
		c.waiting.Add(-1)
		wt.seat <- st
		return true
	})
}

// lookAgain sends back those who wait at a site where a stream just ended.
func (c *conns) lookAgain(to site) {
	if c.waiting.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sites[to]
	if s == nil {
		return
	}
	s.queue = slices.DeleteFunc(s.queue, func(wt *waiter) bool {
		if wt.again {
			c.waiting.Add(-1)
			wt.seat <- nil
		}
		return wt.again
	})
	c.tidy(to, s)
}

// full tells whether a request could get no connection because others have them all.
func (c *conns) full(to site, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sites[to]
	return s != nil && s.taken >= limit
}

// speaks notes what the seat's connection turned out to speak. Over HTTP/2 it serves those who wait; else they make
// their own.
func (st *seat) speaks(h2 bool) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	s := st.c.sites[st.of]
	if s == nil || s.first != st {
		return
	}
	if s.first = nil; !h2 {
		st.c.admit(st.of, s)
	}
}

// leave ends the seat's connection, once.
func (st *seat) leave() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.free {
		return
	}
	st.free = true
	st.vacate()
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
	if st.free || st.of.stays || s.taken >= limit {
		st.c.tidy(to, s)
		return st.free || st.of.stays
	}
	st.vacate()
	st.of = to
	s.taken++
	return true
}

// back moves a connection whose stream ended whole among the others, whose next request it may carry.
func (st *seat) back() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.free || !st.of.stays {
		return
	}
	st.vacate()
	st.of.stays = false
	st.c.at(st.of).taken++
}

type wireKey struct{}

// dialSeated dials with a seat at the site.
func (u *upstream) dialSeated(ctx context.Context, network, addr string) (net.Conn, error) {
	w, _ := ctx.Value(wireKey{}).(*wireLog)
	if w == nil || w.limit <= 0 {
		c, err := u.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &originConn{Conn: c}, nil
	}
	st, err := u.conns.take(w)
	if err != nil {
		return nil, err
	}
	w.dialling.Store(st)
	c, err := u.dial(ctx, network, addr)
	if err != nil {
		st.leave()
		return nil, err
	}
	return &originConn{Conn: c, seat: st}, nil
}

// waited tells whether a request that never got a connection waited for others to give one up.
func (u *upstream) waited(w *wireLog) bool {
	w.mu.Lock()
	has := w.has
	w.mu.Unlock()
	return !has && w.limit > 0 && w.dialling.Load() == nil && u.conns.full(w.to, w.limit)
}

// stays moves the connection that brought an event stream to those that stay; over HTTP/2 it holds none up. It reports
// false when too many stay already.
func (w *wireLog) stays() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.h2 || w.seat == nil || w.seat.stay(w.limit)
}

// ended tells those who wait that an exchange has ended.
func (u *upstream) ended(w *wireLog) {
	w.mu.Lock()
	h2, st := w.h2, w.seat
	w.mu.Unlock()
	if w.gen != nil && w.gen.old.Load() {
		w.gen.tr.CloseIdleConnections() // as when a connection over HTTP/1.1 falls idle
	}
	switch {
	case h2:
		u.conns.lookAgain(w.to)
	case st != nil && !w.to.stays:
		st.back()
	}
}
