// Package pacing answers one question: when may the next request to this host go, for all clients, profiles and
// instances together. The unit is a turn: one request at a time, and the gap runs from the end of the answer before.
//
//	turn, err := pacer.Acquire(ctx, pacing.Request{Key: host, Client: "team-a", Kind: pacing.Page, URL: url,
//		Wait: time.Minute, Gap: time.Second, Delay: verdict.Delay})
//	if err != nil { // *pacing.Busy says until when and why, else ctx.Err()
//		return err
//	}
//	defer turn.Done(pacing.Outcome{Sent: true, Err: errPanic}) // only the first Done counts
//	...
//	turn.Done(pacing.Outcome{Sent: true, Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")})
package pacing

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Pacer keeps the turns of every host. It is safe for concurrent use.
type Pacer struct {
	c       Config
	log     *slog.Logger
	start   time.Time
	floor   int64 // last end of a key nobody knows
	seed    maphash.Seed
	shards  [shards]shard
	keys    atomic.Int64
	waiting atomic.Int64
	widest  atomic.Int64 // the widest profile gap seen
	closed  atomic.Bool
	slack   int64 // how long after a deadline it counts as past
	store   Store
	shared  *sharing  // with Redis
	fresh   sync.Pool // of *turnSet
	stats   counters
	stop    chan struct{}
	wg      sync.WaitGroup
}

// New makes a Pacer. With a store, what was owed when the last process ended is owed still. A nil logger discards.
func New(c Config, s Store, log *slog.Logger) (*Pacer, error) {
	p, err := newPacer(c, log)
	if err != nil {
		return nil, err
	}
	if s != nil {
		p.store = s
		if err := p.load(); err != nil {
			return nil, err
		}
		p.wg.Add(1)
		go p.saver()
	}
	p.wg.Add(1)
	go p.sweeper()
	return p, nil
}

func newPacer(c Config, log *slog.Logger) (*Pacer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Pacer{c: c, log: log, start: time.Now(), floor: never, seed: maphash.MakeSeed(), slack: 2, stop: make(chan struct{})}
	for i := range p.shards {
		p.shards[i].m = map[uint64]*entry{}
	}
	return p, nil
}

// Close refuses those who wait, writes what is owed and ends the Pacer's goroutines. Turns in flight may still be ended.
func (p *Pacer) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		now := p.now()
		for k := range s.all() {
			p.refuseAll(k, Overloaded, ClassClosed, now+int64(overloadRetry), now)
			if k.ext == nil {
				continue
			}
			if k.ext.timer != nil {
				k.ext.timer.Stop()
			}
			if a := k.ext.asker; a != nil {
				select {
				case a.wake <- struct{}{}:
				default:
				}
			}
		}
		s.mu.Unlock()
	}
	close(p.stop)
	if p.shared != nil {
		p.shared.close()
	}
	p.wg.Wait()
	if p.store != nil {
		return p.saveLast()
	}
	return nil
}

// now is the monotonic time of everything in the process.
func (p *Pacer) now() int64 { return int64(time.Since(p.start)) }

func (p *Pacer) time(at int64) time.Time { return p.start.Add(time.Duration(at)) }

func (p *Pacer) busy(reason Reason, class string, until, now int64) *Busy {
	return &Busy{Until: p.time(until), Reason: reason, Class: class, at: p.time(now)}
}

// overloadRetry is what a refusal for lack of room asks for.
const overloadRetry = 5 * time.Second

// StallTimeout and TurnLimit are the two limits of section 6; the first is the proxy's to watch, the second ends
// Turn.Context.
func (p *Pacer) StallTimeout() time.Duration { return p.c.StallTimeout }

// TurnLimit is the longest time a turn is held.
func (p *Pacer) TurnLimit() time.Duration { return p.c.TurnLimit }

// Acquire waits for a turn for at most r.Wait. The error is a *Busy, at once when the turn cannot come in time, or
// ctx.Err() when the caller left.
func (p *Pacer) Acquire(ctx context.Context, r Request) (*Turn, error) {
	t, err := p.acquire(ctx, &r)
	if err != nil {
		r.Ticket.Cancel()
		return nil, err
	}
	return t, nil
}

func (p *Pacer) acquire(ctx context.Context, r *Request) (*Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	arrived := p.now()
	t := p.newTurn()
	t.p, t.kind, t.client, t.url, t.ticket = p, r.Kind, p.client(r.Client), r.URL, r.Ticket
	deadline := arrived + int64(min(max(r.Wait, 0), maxWait))
	if int64(r.Gap) > p.widest.Load() {
		p.widest.Store(int64(r.Gap))
	}
	if r.Ticket != nil {
		t.hops = r.Ticket.hops
	}
	t.host.turn, t.host.want = t, p.want(r)
	if err := p.take(ctx, &t.host, r.Key, r, r.Client, deadline, arrived); err != nil {
		return nil, err
	}
	if r.DomainKey != "" || p.c.IPParallel > 0 && r.Addr.IsValid() {
		if err := p.takeWide(ctx, t, r, deadline); err != nil {
			for i := range t.wider() {
				p.giveBack(&t.wide.parts[i])
			}
			p.giveBack(&t.host)
			return nil, err
		}
	}
	t.waited = time.Duration(t.granted - arrived)
	p.stats.grant(t)
	return t, nil
}

// maxWait keeps deadlines from overflowing.
const maxWait = 10 * 365 * 24 * time.Hour

// want is what counts of a request at its host.
func (p *Pacer) want(r *Request) want {
	w := want{gap: max(r.Gap, 0), delay: max(r.Delay, 0), parallel: int32(min(max(r.Parallel, 1), 1<<20))} //nolint:gosec // bounded
	switch {
	case r.Kind == Robots:
		w.class, w.free, w.delay = classRobots, r.Robots == RobotsFree, 0
	case r.Kind == Redirect && r.Redirect != OwnTurn:
		w.class = classRedirect
	}
	if r.Kind == Redirect && r.Ticket != nil {
		w.notBefore = r.Ticket.notBefore
	}
	return w
}

// rides reports whether a request of this kind and mode goes without a turn at k as it is now.
func (k *entry) rides(kind Kind, ownTurn bool, delay time.Duration) bool {
	return kind.companion() && !ownTurn && max(k.delay, delay) == 0 && k.closed()
}

// pageOf is a URL's name in the page count; it is on disk and in Redis, so it does not show the URL.
func pageOf(url string) pageID {
	h := sha256.Sum256([]byte(url))
	return pageID(h[:8])
}
