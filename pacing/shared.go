package pacing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// backend is where several instances keep their turns together: one call is one step that nobody can divide.
type backend interface {
	call(ctx context.Context, op, name string, a *args) (reply, error)
	ping(ctx context.Context) error
	close() error
}

var (
	errOtherData = errors.New("redis was restarted or emptied, or another server took over")
	errForeign   = errors.New("a key of the turns holds something else, delete it")
)

// sharing is what a Pacer needs besides to share its turns (section 10).
type sharing struct {
	p         *Pacer
	b         backend
	rc        RedisConfig
	inst      string // this instance, random
	tokens    atomic.Uint64
	downSince atomic.Int64 // ns, 0: the store answers
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu     sync.Mutex
	closed bool
	merge  map[string]struct{} // keys with something the store does not know
	leases map[*lease]struct{}

	foreign time.Time // when a key with something else in it was last told of
}

const (
	callTimeout  = time.Second
	retryStore   = 100 * time.Millisecond
	probeStore   = 250 * time.Millisecond
	heartBeat    = 900 * time.Millisecond // an instance that waits and is silent for 2 s loses its place
	pollNotFirst = 100 * time.Millisecond // it is told when the first one has ended; this is for a message that was lost
	freshFor     = time.Second            // how long the mirror of a breaker is believed
	lateExpiry   = int64(time.Millisecond)
	foreignEvery = 10 * time.Second
)

func newSharing(p *Pacer, b backend, rc RedisConfig, inst string) *sharing {
	s := &sharing{p: p, b: b, rc: rc, inst: inst, merge: map[string]struct{}{}, leases: map[*lease]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// run does f in a goroutine that close waits for.
func (h *sharing) run(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Add(1)
	go func() {
		defer h.wg.Done()
		f()
	}()
	return true
}

func (h *sharing) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { h.wg.Wait(); close(done) }()
	select { // what ends in these moments is still told
	case <-done:
	case <-time.After(callTimeout):
	}
	h.cancel()
	<-done
	_ = h.b.close()
}

func (h *sharing) away() bool { return h.downSince.Load() != 0 }

// lost reports whether the store has been away for longer than store_grace.
func (h *sharing) lost() bool {
	d := h.downSince.Load()
	return d != 0 && h.p.now()-d >= int64(h.rc.StoreGrace)
}

// local reports whether turns are given without the store now.
func (h *sharing) local() bool { return h.rc.WhenDown == WhenDownLocal && h.lost() }

// far reports whether a key's turns are the store's to give.
func (p *Pacer) far(k *entry) bool {
	return p.shared != nil && k.scope != scopeAddress && !p.shared.local()
}

// call asks the store and notes whether it answers.
func (h *sharing) call(op, name string, a *args) (reply, error) {
	ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
	defer cancel()
	a.Inst, a.Name = h.inst, name
	rep, err := h.b.call(ctx, op, name, a)
	h.p.stats.trips.Add(1)
	if err != nil {
		h.p.stats.storeErrs.Add(1)
		if errors.Is(err, errForeign) { // of this key alone
			h.tellForeign(err)
		} else {
			h.fail(err)
		}
		return rep, err
	}
	return rep, nil
}

func (h *sharing) tellForeign(err error) {
	h.mu.Lock()
	now := time.Now()
	tell := now.Sub(h.foreign) >= foreignEvery
	if tell {
		h.foreign = now
	}
	h.mu.Unlock()
	if tell {
		h.p.log.Error("no turn can be kept for a host", "error", err)
	}
}

// changed is what a failover or a loss of the store's data asks for: what is held is put back at once, and what is known
// of back-offs is written when the store is used again.
func (h *sharing) changed() {
	h.renewAll()
	var names []string
	now := h.p.now()
	for i := range h.p.shards {
		s := &h.p.shards[i]
		s.mu.Lock()
		for k := range s.all() {
			if k.holdUntil > now || k.open(now) || k.fails > 0 || k.levelNow(&h.p.c, now) > 0 {
				names = append(names, k.name)
			}
		}
		s.mu.Unlock()
	}
	for _, name := range names {
		h.note(name)
	}
	h.fail(errOtherData)
}

// fail notes that the store is away and looks for it until it is back.
func (h *sharing) fail(err error) {
	if h.ctx.Err() != nil || !h.downSince.CompareAndSwap(0, max(h.p.now(), 1)) {
		return
	}
	mode := "requests that need a turn are refused"
	if h.rc.WhenDown == WhenDownLocal {
		mode = fmt.Sprintf("each instance keeps %d times the gap; the gap between two instances is not kept", h.rc.Instances)
	}
	answers := errors.Is(err, errOtherData)
	if !answers {
		h.p.log.Error("store of the turns does not answer", "error", err, "then", mode)
	}
	h.run(func() {
		tick := time.NewTicker(probeStore)
		defer tick.Stop()
		for {
			if !answers {
				select {
				case <-h.ctx.Done():
					return
				case <-tick.C:
				}
			}
			answers = false
			ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
			err := h.b.ping(ctx)
			cancel()
			if err == nil && h.back() {
				return
			}
		}
	})
}

// back is the way from an outage: first what is owed is written, then the store is used. False: it is away again.
func (h *sharing) back() bool {
	h.mu.Lock()
	names := make([]string, 0, len(h.merge))
	for name := range h.merge {
		names = append(names, name)
	}
	h.mu.Unlock()
	for _, name := range names {
		if err := h.writeOwed(name); err != nil && !errors.Is(err, errForeign) {
			return false
		}
	}
	h.downSince.Store(0)
	h.p.log.Info("store of the turns answers again", "keys_written", len(names))
	h.wakeAll()
	return true
}

func (h *sharing) note(name string) {
	h.mu.Lock()
	h.merge[name] = struct{}{}
	h.mu.Unlock()
}

// writeOwed tells the store what a key owes that was not told yet.
func (h *sharing) writeOwed(name string) error {
	h.mu.Lock()
	_, owed := h.merge[name]
	delete(h.merge, name)
	h.mu.Unlock()
	if !owed {
		return nil
	}
	s, hash := h.p.shard(name)
	s.mu.Lock()
	k := s.find(hash, name)
	if k == nil {
		s.mu.Unlock()
		return nil
	}
	a := h.mergeArgs(k)
	k.local = false
	s.mu.Unlock()
	sent := h.p.now()
	_, err := h.call("merge", name, a)
	if err != nil {
		s.mu.Lock()
		k.local = true
		s.mu.Unlock()
		h.note(name)
		return err
	}
	if a.Token != "" { // a turn given here is now a lease
		s.mu.Lock()
		if pt := k.turns; pt != nil && pt.lease == nil {
			pt.lease, pt.far = h.newLease(pt, a.Token, sent), true
		}
		s.mu.Unlock()
	}
	return nil
}

func (h *sharing) mergeArgs(k *entry) *args {
	now := h.p.now()
	ago := func(t int64) int64 {
		if t <= never/2 {
			return -1
		}
		return max(0, now-t) / 1000
	}
	a := &args{
		End: ago(k.lastEnd), EndGap: us(k.endGap), EndLevel: int(k.endLevel), RobotsEnd: ago(k.robotsEnd), RobotsGap: us(k.robotsGap),
		Incident: ago(k.incidentAt), Fails: int(k.fails), Level: int(k.levelNow(&h.p.c, now)), KeyDelay: us(k.delay),
	}
	if k.holdUntil > now {
		a.Hold = (k.holdUntil - now + 999) / 1000
	}
	if k.open(now) {
		a.Open, a.Opens = (k.openUntil-now+999)/1000, int(k.opens)
	}
	if pt := k.turns; pt != nil && pt.lease == nil {
		a.of(&pt.want)
		a.Token = h.token()
	}
	return a
}

func (h *sharing) token() string { return fmt.Sprintf("%s:%d", h.inst, h.tokens.Add(1)) }

// wakeAll lets every key with waiters ask again.
func (h *sharing) wakeAll() {
	for i := range h.p.shards {
		s := &h.p.shards[i]
		s.mu.Lock()
		for k := range s.all() {
			if k.waiting() > 0 {
				h.p.process(s, k, h.p.now())
			}
		}
		s.mu.Unlock()
	}
}
