package policy

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Policy answers whether a site allows a URL. It is safe for concurrent use.
type Policy struct {
	fetcher Fetcher
	archive *Archive
	shared  Shared
	spare   bool // do without it when it does not answer
	log     *slog.Logger
	markers atomic.Pointer[[]ChallengeMarker]
	cache   *cache
	group   singleflight.Group

	mu      sync.Mutex
	flights map[key]*flight
	pending map[key]unstored // read, but not stored yet: nothing is judged by it
	failed  time.Time        // when the archive last could not store
	binds   *bindings
	closed  bool
	cancels map[*flight]context.CancelFunc // of what runs
	running sync.WaitGroup                 // Add under mu, and only while not closed

	fetches, checks atomic.Int64
}

// New makes a Policy. a may be nil: then only memory is used and questions about the past have no answer. log may be nil.
func New(c Config, f Fetcher, a *Archive, log *slog.Logger) *Policy {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Policy{
		fetcher: f, archive: a, log: log, cache: newCache(c.CacheBytes),
		flights: make(map[key]*flight), cancels: make(map[*flight]context.CancelFunc), pending: make(map[key]unstored), binds: newBindings(a, log),
	}
	if a != nil {
		a.logTo(log)
	}
	p.Reload(c)
	return p
}

// Reload puts a changed configuration in force. What was read stays.
func (p *Policy) Reload(c Config) {
	markers := c.ChallengeMarkers
	if markers == nil {
		markers = ChallengeMarkers()
	}
	p.markers.Store(&markers)
	p.cache.resize(c.CacheBytes)
	if p.archive != nil {
		p.archive.bound(c)
	}
}

// Close ends all fetches, waits for their end, and closes the file that keeps signals of answers; what needs a fetch is
// refused as `draining` from then on. The archive stays its opener's to close, after this.
func (p *Policy) Close() error {
	p.mu.Lock()
	p.closed = true
	for _, cancel := range p.cancels {
		cancel()
	}
	p.mu.Unlock()
	p.running.Wait()
	return p.binds.close()
}

// draining is the word for a fetch that the gate's end ended: it says nothing about the site.
var draining = &FetchError{Reason: "draining", Class: "draining"}

// fly runs one fetch that no caller's leaving ends, only Close.
func (p *Policy) fly(ctx context.Context, k key, q *Query, fl *flight) fetched {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fetched{ours: draining, cause: draining}
	}
	p.cancels[fl] = cancel
	p.running.Add(1)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.cancels, fl)
		p.mu.Unlock()
		p.running.Done()
	}()
	return p.fetch(ctx, k, q, fl)
}

// isClosed tells whether Close was called, which ends fetches in the middle.
func (p *Policy) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Stats are figures for metrics.
type Stats struct {
	Checks, Exchanges int64 // since the start: questions asked, requests sent for robots.txt
	Entries           int   // files in memory
	Bytes             int64 // roughly what they occupy
	Waiting           int   // callers that wait for a file
}

// Stats tells how much is kept and was done.
func (p *Policy) Stats() Stats {
	s := Stats{Checks: p.checks.Load(), Exchanges: p.fetches.Load()}
	s.Entries, s.Bytes = p.cache.stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fl := range p.flights {
		fl.mu.Lock()
		s.Waiting += fl.waiting
		fl.mu.Unlock()
	}
	return s
}

// Check answers one question. It reads robots.txt when it is not known, and returns early when ctx ends (Cause is then
// the context's error). It never answers "allowed" because something failed, unless the profile says so.
func (p *Policy) Check(ctx context.Context, q Query) Verdict {
	p.checks.Add(1)
	var v Verdict
	if q.URL == nil || q.URL.Host == "" {
		v.refuse(ReasonUnreadable, ClassInvalidURL)
		return v
	}
	var buf [1024]byte
	target := appendTarget(buf[:0], q.URL)
	if itself(target) {
		v.allow(ClassRobotsItself)
		return v
	}
	if q.Profile.Mode == ModeIgnore {
		v.allow(ClassNotConsulted)
		return v
	}
	k := keyOf(q.URL, q.Agent)
	if !q.At.IsZero() {
		p.checkPast(&v, k, &q, target)
		return v
	}
	now := time.Now()
	st := p.lookup(k, &q)
	switch {
	case q.CacheOnly:
		// Rules that were read bind a little longer than they are fresh; a failure says nothing about rules.
		if st == nil || st.good == nil || now.Sub(st.good.fetched) > maxAge || ahead(st.good.fetched, now) {
			v.allow(ClassNotConsulted)
			return v
		}
		if p.onDisk(&v, k, st, now) {
			p.judge(&v, st.good, &q, target, now)
		}
	case st != nil && !st.due(now):
		p.decide(&v, k, st, &q, target, now)
	default:
		p.wait(ctx, &v, k, &q, target)
	}
	p.bound(ctx, &v, &q)
	return v
}

// keyOf names the file that binds a URL: ws and wss share it with http and https.
func keyOf(u *url.URL, agent string) key {
	k := key{u.Scheme, u.Host, agent}
	switch k.scheme {
	case "ws":
		k.scheme = "http"
	case "wss":
		k.scheme = "https"
	}
	return k
}

// itself tells whether a canonical target is /robots.txt, dot segments resolved.
func itself(target []byte) bool {
	if hasDotSegment(target[:pathLen(target)]) {
		target = resolveDots(target)
	}
	return isRobotsTxt(target)
}

// due tells whether the file must be asked for again.
func (s *state) due(now time.Time) bool {
	if s.fail != nil {
		return !now.Before(s.fail.next) || ahead(s.fail.at, now)
	}
	return !now.Before(s.good.expires) || ahead(s.good.fetched, now)
}

// ahead tells whether a time noted in the past lies in the future: the clock was set back since, so that nobody knows
// how long ago it was.
func ahead(t, now time.Time) bool { return t.After(now.Add(clockSkew)) }

// lookup finds what is known about a file, in memory or, after a restart or an eviction, in the archive.
func (p *Policy) lookup(k key, q *Query) *state {
	st := p.cache.get(k)
	if st != nil && (st.good == nil || st.good.binds(q.Token, q.Fallback)) {
		return st
	}
	if p.archive == nil {
		return nil
	}
	st, err := p.archive.restore(k, q.Token, q.Fallback)
	if err != nil {
		p.log.Warn("robots.txt could not be restored from the archive; it is read again", "host", k.host, "err", err)
		return nil
	}
	if st != nil {
		p.cache.put(k, st)
	}
	return st
}

// binds tells whether the copy was compiled for these tokens: an agent's token can change with its configuration.
func (c *copied) binds(token string, fallback []string) bool {
	return c.class != ClassNoMatch || c.token == token && slices.Equal(c.fallback, fallback)
}

// compileBody reads a body for one crawler: what binds it, and what binds it when only a group naming it does.
func compileBody(body []byte, token string, fallback []string) (group, named *Group, err error) {
	return Parse(body).both(token, fallback)
}

func (rs *Ruleset) both(token string, fallback []string) (group, named *Group, err error) {
	if rs.err != nil {
		return nil, nil, rs.err
	}
	group = rs.Group(token, fallback...)
	named = group
	if t := group.token; t == "" || t == star {
		named = &Group{firstNo: -1, sitemaps: group.sitemaps, hosts: group.hosts, truncated: group.truncated}
	}
	return group, named, nil
}

// unqueued is how long an exchange that waits for no turn may take for a caller that waits for none.
const unqueued = 5 * time.Second

// wait has the file fetched, together with everybody who asks for the same, and judges by what came.
func (p *Policy) wait(ctx context.Context, v *Verdict, k key, q *Query, target []byte) {
	v.RobotsURL = k.url()
	if q.Wait < 0 {
		v.refuse(ReasonUnreadable, ClassWaitedTooLong)
		v.RetryAfter = time.Second
		return
	}
	if p.storeFails() {
		v.refuse(ReasonAudit, ClassNotArchived)
		v.RetryAfter = storeAgain
		return
	}
	fl := p.join(k, q)
	defer p.leave(k, fl)
	shared := *q // the caller's query must not be reached by a fetch that outlives the caller
	ch := p.group.DoChan(k.scheme+"\n"+k.host+"\n"+k.agent, func() (any, error) {
		return p.fly(ctx, k, &shared, fl), nil
	})
	limit := q.Wait
	if limit == 0 {
		limit = unqueued
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-ctx.Done():
		v.refuse(ReasonUnreadable, ClassWaitedTooLong)
		v.Cause = context.Cause(ctx)
	case <-late.C:
		v.refuse(ReasonUnreadable, ClassWaitedTooLong)
		v.RetryAfter = 5 * time.Second
		v.Notes = append(v.Notes, "robots.txt was not there within the time the caller waits")
	case r := <-ch:
		if r.Err != nil {
			v.refuse(ReasonUnreadable, ClassUnreachable)
			v.Cause = r.Err
			return
		}
		p.land(v, k, q, target, r.Val.(fetched))
	}
}

// land judges by what a flight brought.
func (p *Policy) land(v *Verdict, k key, q *Query, target []byte, f fetched) {
	if f.ours != nil {
		v.refuse(f.ours.Reason, f.ours.Class)
		v.RetryAfter, v.Cause = f.ours.RetryAfter, f.cause
		return
	}
	st := f.state
	if st.good != nil && !st.good.binds(q.Token, q.Fallback) {
		// Another waiter's tokens: only while a changed configuration comes into force.
		if st = p.lookup(k, q); st == nil {
			v.refuse(ReasonUnreadable, ClassUnreachable)
			v.RetryAfter = time.Second
			return
		}
	}
	p.decide(v, k, st, q, target, time.Now())
	if !v.Allowed {
		v.RetryAfter = max(v.RetryAfter, f.retry)
	}
}
