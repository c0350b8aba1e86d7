package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// conns are the connections to all sites: it gives each request one, and bounds how many a site sees at once
// (limits.connections). It counts real connections, idle ones too. Who finds a site full waits for a seat, for somebody
// else's connection that has served its request, or for a stream, whichever comes first.
//
// Connections that stay (WebSockets, event streams over HTTP/1.1) have as many seats again, of their own, and take none
// from pages and files.
//
// Over HTTP/2 one connection carries everything. While the first one to an https site is made the others wait to see
// what it speaks; another is made only once the site's own limit on streams is used up, and again within the bound.
type conns struct {
	waiting atomic.Int64 // requests, at all sites
	mu      sync.Mutex
	sites   map[site]*seats
	resting resting
	age     int // grows when connections made before are not to be used any more
}

// site is what a connection is for.
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

// carrier is a connection that carries one request of ours.
type carrier interface {
	roundTrip(r *http.Request, w *wireLog) (*http.Response, error)
}

// seats are those of one site, and who sits there.
type seats struct {
	taken int
	first *seat // of the first connection, while it isn't known what it speaks
	tried bool  // a first connection came to nothing: the next are made side by side
	queue []*waiter
	idle  []*siteConn // the last one used is the last
	multi []*multiConn
}

// seat is the place of one connection. With no bound it is none that is counted.
type seat struct {
	c    *conns
	of   site
	free bool
}

// waiter is a request that waits.
type waiter struct {
	limit int
	got   chan find // gets one value
}

// find is what a request has found: a connection, or a seat to make one, or neither, which means to look again.
type find struct {
	seat *seat
	by   carrier
}

var errSiteFull = errors.New("every connection to the site is taken")

func newConns() *conns { return &conns{sites: map[site]*seats{}} }

// take finds a connection for a request, or a seat to make one. It waits until ctx ends.
func (c *conns) take(ctx context.Context, to site, limit int) (find, error) {
	for {
		c.mu.Lock()
		f := c.look(to, limit)
		if f == (find{}) {
			// A stream that ends now has either seen this one counted, or is found by a second look.
			c.waiting.Add(1)
			if f = c.look(to, limit); f != (find{}) {
				c.waiting.Add(-1)
			}
		}
		if f != (find{}) {
			c.mu.Unlock()
			return f, nil
		}
		s := c.at(to)
		wt := &waiter{limit: limit, got: make(chan find, 1)}
		s.queue = append(s.queue, wt)
		c.mu.Unlock()
		if f, err := c.await(ctx, to, wt); err != nil || f != (find{}) {
			return f, err
		}
	}
}

// lookEvery is how often the first who waits at a site with HTTP/2 looks for a stream unasked. The library tells of streams
// that become free by comparing numbers, and misses one that was taken and free again in between.
const lookEvery = 100 * time.Millisecond

// await waits in the queue. It may find nothing, which means to look again.
func (c *conns) await(ctx context.Context, to site, wt *waiter) (find, error) {
	var again <-chan time.Time
	if to.scheme == "https" {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case f := <-wt.got:
			return f, nil
		case <-again:
			if f := c.lookFirst(to, wt); f != (find{}) {
				return f, nil
			}
		case <-ctx.Done():
			full := c.leave(to, wt)
			if err := context.Cause(ctx); !full || !errors.Is(err, errHeadTimeout) {
				return find{}, err
			}
			return find{}, errSiteFull
		}
	}
}

// lookFirst looks for the first who waits, and takes it out of the queue if it has found something.
func (c *conns) lookFirst(to site, wt *waiter) find {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sites[to]
	if s == nil || len(s.multi) == 0 || len(s.queue) == 0 || s.queue[0] != wt {
		return find{}
	}
	f := c.look(to, wt.limit)
	if f != (find{}) {
		s.queue = slices.Delete(s.queue, 0, 1)
		c.waiting.Add(-1)
	}
	return f
}

// look finds what is there now. The caller holds c.mu.
func (c *conns) look(to site, limit int) find {
	s := c.at(to)
	if n := len(s.idle); n > 0 {
		ic := s.idle[n-1]
		s.idle = slices.Delete(s.idle, n-1, n)
		c.resting.remove(ic)
		return find{by: ic}
	}
	for _, m := range s.multi {
		if m.cc.Reserve() == nil {
			c.resting.used(m)
			return find{by: m}
		}
	}
	if st := c.grant(s, to, limit); st != nil {
		return find{seat: st}
	}
	return find{}
}

// leave takes a request out of the queue, and reports whether the site is full; what it was just given goes to the next.
func (c *conns) leave(to site, wt *waiter) (full bool) {
	c.mu.Lock()
	s := c.at(to)
	full = s.taken >= wt.limit
	i := slices.Index(s.queue, wt)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		c.waiting.Add(-1)
	}
	c.tidy(to, s)
	c.mu.Unlock()
	if i >= 0 {
		return full
	}
	switch f := <-wt.got; {
	case f.seat != nil:
		f.seat.leave()
	case f.by != nil:
		c.rest(f.by.(*siteConn))
	}
	return false
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
	if s.taken == 0 && len(s.queue) == 0 && len(s.idle) == 0 && len(s.multi) == 0 {
		delete(c.sites, to)
	}
}

func (c *conns) give(wt *waiter, f find) {
	c.waiting.Add(-1)
	wt.got <- f
}

// lookAgain sends those who wait at a site back to look: there may be a stream for one, or an HTTP/2 connection came. The
// caller holds c.mu.
func (c *conns) lookAgain(to site) {
	s := c.sites[to]
	if s == nil {
		return
	}
	for _, wt := range s.queue {
		c.give(wt, find{})
	}
	clear(s.queue)
	s.queue = s.queue[:0]
	c.tidy(to, s)
}

// rest takes back a connection that has served its request: the next who waits gets it, or it is kept for a while.
func (c *conns) rest(ic *siteConn) {
	c.mu.Lock()
	s := c.at(ic.seat.of)
	if ic.age != c.age || ic.seat.free {
		c.tidy(ic.seat.of, s)
		c.mu.Unlock()
		ic.close()
		return
	}
	if len(s.queue) > 0 {
		wt := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		c.give(wt, find{by: ic})
		c.mu.Unlock()
		return
	}
	s.idle = append(s.idle, ic)
	old := c.resting.add(ic)
	if old != nil {
		c.forget(old)
	}
	c.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// forget takes a connection out of those that rest. The caller holds c.mu.
func (c *conns) forget(ic *siteConn) {
	s := c.at(ic.seat.of)
	if i := slices.Index(s.idle, ic); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
	c.resting.remove(ic)
}

// join adds an HTTP/2 connection, once the library has it (cc) and the site's settings are known (nil). It then serves those
// who wait.
func (c *conns) join(m *multiConn, cc *http.ClientConn) {
	c.mu.Lock()
	if cc != nil {
		m.cc = cc
	} else {
		m.known = true
	}
	if m.cc == nil || !m.known {
		c.mu.Unlock()
		return
	}
	to := m.seat.of
	s := c.at(to)
	if s.first == m.seat {
		s.first = nil
	}
	var old *multiConn
	if m.age == c.age && !m.seat.free && !m.retired.Load() {
		s.multi = append(s.multi, m)
		if old = c.resting.join(m); old != nil {
			c.at(old.seat.of).drop(old) // before it is closed: a stream reserved on it meanwhile would be lost
			c.resting.part(old)
		}
	} else {
		m.retired.Store(true)
	}
	c.lookAgain(to)
	c.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// renew has every connection that rests closed, and those in use when they have served their requests.
func (c *conns) renew() {
	c.mu.Lock()
	c.age++
	var single []*siteConn
	var multi []*multiConn
	for _, s := range c.sites {
		single = append(single, s.idle...)
		multi = append(multi, s.multi...)
		s.idle, s.multi = nil, nil
	}
	c.resting.clear()
	c.mu.Unlock()
	for _, ic := range single {
		ic.close()
	}
	for _, m := range multi {
		m.retire()
	}
}

// ended looks after the connection of an exchange that has ended.
func (u *upstream) ended(w *wireLog) {
	w.mu.Lock()
	m, answered := w.h2, w.answered
	w.mu.Unlock()
	if m != nil && !answered && u.conns.mute(m) {
		m.under.Close()
	}
}

// mute tells whether the site of a new HTTP/2 connection has not even begun to speak. Nobody but the request that made it
// has it then, nor will: those who wait to see what it can do make their own.
func (c *conns) mute(m *multiConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.known {
		m.retired.Store(true)
	}
	return !m.known
}

// changed follows an HTTP/2 connection: a stream ended, the site takes more or fewer of them, or it is over.
func (c *conns) changed(m *multiConn) {
	if m.retired.Load() {
		m.retire()
	}
	if c.waiting.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookAgain(m.seat.of)
}
