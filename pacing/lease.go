package pacing

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// lease is this instance's hold on one key's turn. It is counted from before the command was sent, on our monotonic
// clock, and the origin cannot check it: so when it cannot be renewed in time, the exchange is cut from here.
type lease struct {
	h     *sharing
	pt    *part
	token string
	until atomic.Int64
	gone  atomic.Bool

	mu    sync.Mutex
	ended bool
	again *time.Timer // renewal
	fence *time.Timer // the last moment
}

func (h *sharing) newLease(pt *part, token string, sent int64) *lease {
	l := &lease{h: h, pt: pt, token: token}
	ttl := h.rc.LeaseTTL
	l.until.Store(sent + int64(ttl))
	l.mu.Lock()
	l.again = time.AfterFunc(ttl/3, func() { h.run(func() { l.renew(false) }) })
	l.fence = time.AfterFunc(time.Duration(sent-h.p.now())+ttl, l.check)
	l.mu.Unlock()
	h.mu.Lock()
	h.leases[l] = struct{}{}
	h.mu.Unlock()
	return l
}

func (l *lease) valid(now int64) bool { return !l.gone.Load() && now < l.until.Load() }

// renew prolongs the lease; again puts it back after the server changed and lost it.
func (l *lease) renew(again bool) {
	l.mu.Lock()
	over := l.ended
	l.mu.Unlock()
	if over || l.gone.Load() {
		return
	}
	a := &args{Token: l.token, Again: bit(again)}
	a.of(&l.pt.want)
	sent := l.h.p.now()
	rep, err := l.h.call("renew", l.pt.k.name, a)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ttl := l.h.rc.LeaseTTL; {
	case l.ended:
	case err != nil:
		l.again.Reset(ttl / 12)
	case rep.status == stLost:
		go l.lose() // it takes this mutex
	default:
		l.until.Store(sent + int64(ttl))
		l.again.Reset(ttl / 3)
		l.fence.Reset(time.Duration(sent-l.h.p.now()) + ttl)
	}
}

// check is the last moment of the lease.
func (l *lease) check() {
	l.mu.Lock()
	over := l.ended || l.h.p.now() < l.until.Load()
	l.mu.Unlock()
	if !over {
		l.lose()
	}
}

func (l *lease) lose() {
	l.mu.Lock()
	over := l.ended
	l.mu.Unlock()
	if over || !l.gone.CompareAndSwap(false, true) {
		return
	}
	l.h.p.stats.leaseLost.Add(1)
	l.h.p.log.Warn("lease of a turn lost, its exchange is cut", "host", l.pt.k.name)
	if life := l.pt.turn.life.Load(); life != nil {
		life.end(&LeaseLost{l.pt.k.name})
	}
}

// stop ends the renewals.
func (l *lease) stop() {
	l.mu.Lock()
	l.ended = true
	l.again.Stop()
	l.fence.Stop()
	l.mu.Unlock()
	l.h.mu.Lock()
	delete(l.h.leases, l)
	l.h.mu.Unlock()
}

// renewAll puts every lease back, after the server changed.
func (h *sharing) renewAll() {
	h.mu.Lock()
	all := make([]*lease, 0, len(h.leases))
	for l := range h.leases {
		all = append(all, l)
	}
	h.mu.Unlock()
	for _, l := range all {
		h.run(func() { l.renew(true) })
	}
}
