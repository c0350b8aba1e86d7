package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// flight is one fetch that somebody waits for.
type flight struct {
	mu        sync.Mutex
	waiting   int
	running   bool
	deadline  time.Time // of the waiter that waits longest
	requester any
}

// left is the time the longest waiter still has.
func (f *flight) left() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(time.Until(f.deadline), 0)
}

// wanted tells whether anybody still waits.
func (f *flight) wanted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting > 0 && time.Now().Before(f.deadline)
}

// join makes the caller a waiter for k; leave must be called.
func (p *Policy) join(k key, q *Query) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	fl := p.flights[k]
	if fl == nil {
		fl = &flight{requester: q.Requester}
		p.flights[k] = fl
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.waiting++
	if end := time.Now().Add(q.Wait); end.After(fl.deadline) {
		fl.deadline = end
	}
	return fl
}

func (p *Policy) leave(k key, fl *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.waiting--
	p.forget(k, fl)
}

// forget removes a flight that neither runs nor is waited for. Both locks are held.
func (p *Policy) forget(k key, fl *flight) {
	if fl.waiting == 0 && !fl.running && p.flights[k] == fl {
		delete(p.flights, k)
	}
}

// takeOff marks the flight as running, so that whoever comes later joins it even when everybody before has left.
func (p *Policy) takeOff(k key, fl *flight) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.flights[k]; known != nil {
		fl = known
	}
	p.flights[k] = fl
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.running = true
	return fl
}

func (p *Policy) touchDown(k key, fl *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.running = false
	p.forget(k, fl)
}

// fetched is what a flight brings: a state, or the word that our own side refused.
type fetched struct {
	state *state
	ours  *FetchError
	cause error
	retry time.Duration // our own side said when to come back, after a failure of the site
}

// fetch reads the file, tries again while that may help and somebody waits, and stores what it found. One fetch per
// key runs at a time; a waiter that leaves does not stop it.
func (p *Policy) fetch(ctx context.Context, k key, q *Query, fl *flight) fetched {
	fl = p.takeOff(k, fl)
	defer p.touchDown(k, fl)
	old := p.lookup(k, q)
	if old != nil && !old.due(time.Now()) {
		return fetched{state: old}
	}
	st, release := p.borrow(ctx, k, q, fl, old)
	defer release()
	if st != nil {
		return fetched{state: st}
	}
	var good *copied
	count := 0
	if old != nil {
		good = old.good
		if old.fail != nil {
			count = old.fail.count
		}
	}
	if good != nil && good.sha != "" && p.archive != nil && !p.archive.has(good.sha) {
		bare := *good // its body left the archive: a 304 could not bring it back
		bare.etag, bare.modified = "", ""
		good = &bare
	}
	retries := q.Profile.Retries
	if q.Profile.WhenUnreadable == Allow {
		retries = 0
	}
	var last *outcome
	var res fetched
	for try := 0; ; try++ {
		o := p.tryRead(ctx, k, q, good, fl)
		if !o.good() && p.isClosed() {
			return fetched{ours: draining, cause: draining}
		}
		if o.ours != nil {
			if last == nil {
				return fetched{ours: o.ours, cause: o.err}
			}
			res.retry = o.ours.RetryAfter // what the site did is the better word
			break
		}
		last = o
		if o.good() || !o.again || try >= retries || !fl.wanted() {
			break
		}
	}
	v := p.version(k, last, good, count+1)
	if !last.good() {
		res.state = &state{good: good, fail: v.failure(last.err)}
	} else {
		c := v.copied(q.Token, q.Fallback)
		c.group, c.named = last.group, last.named
		if last.confirm {
			c.group, c.named = good.group, good.named
		}
		res.state = &state{good: c}
	}
	p.keep(k, res.state, v, last.body)
	p.lend(ctx, k, v, last.body)
	return res
}

// tryRead is read that turns a panic, of the Fetcher for one, into a file that cannot be read.
func (p *Policy) tryRead(ctx context.Context, k key, q *Query, good *copied, fl *flight) (o *outcome) {
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("reading robots.txt panicked", "host", k.host, "panic", r, "stack", string(debug.Stack()))
			o = (&outcome{received: time.Now()}).fail(ClassUnreachable, fmt.Errorf("panic: %v", r))
		}
	}()
	o = p.read(ctx, k, good, fl)
	if o.class == ClassNoMatch && !o.confirm {
		o.compile(Parse(o.body), q)
		if o.err != nil {
			p.log.Error("robots.txt could not be read", "host", k.host, "err", o.err)
		}
	}
	return o
}

// compile makes rules of what was read; a body that the parser fails on is one that cannot be read.
func (o *outcome) compile(rs *Ruleset, q *Query) {
	var err error
	if o.group, o.named, err = rs.both(q.Token, q.Fallback); err != nil {
		o.body = nil
		o.fail(ClassUnreachable, err)
	}
}

// version describes what a fetch found, as the archive keeps it.
func (p *Policy) version(k key, o *outcome, good *copied, count int) *Version {
	now := o.received.UTC()
	v := &Version{
		Host: k.host, URL: k.url(), Agent: k.agent, Class: o.class, Status: o.status, HTTPStatus: o.status,
		Effective: now, Fetched: now, Hops: o.hops, Final: o.final, Note: o.note,
	}
	if !o.good() {
		v.Reason, v.Failures = o.reason, count
		v.Until = now.Add(min(maxFail, minFail<<min(count-1, 6)))
		if o.class != ClassRateLimited && o.status < 500 {
			v.Status = 0 // unreachable, for whoever judges by the archive: a check served with 200 is no file
		}
		if good != nil {
			v.Good = versionOf(k, good)
		}
		return v
	}
	v.Until = now.Add(lifetime(o.header))
	if o.confirm {
		v.Status, v.HTTPStatus = good.status, good.status
		v.SHA256, v.Truncated, v.Effective, v.Bytes = good.sha, good.truncated, good.from, good.bytes
		v.ETag, v.Modified = good.etag, good.modified
	} else if o.class == ClassNoMatch {
		// One octet more than is parsed is kept, so that whoever parses it again knows that the last line is cut.
		v.SHA256, v.Truncated = hexSum(o.body), len(o.body) > MaxBody
		v.Bytes = int64(len(o.body))
	}
	if v.SHA256 != "" {
		v.File = bodyFile(v.SHA256)
	}
	if e := o.header.Get("ETag"); e != "" && len(e) <= 256 {
		v.ETag = e
	}
	if m := o.header.Get("Last-Modified"); m != "" && len(m) <= 64 {
		v.Modified = m
	}
	if good != nil && good.class == v.Class && good.sha == v.SHA256 && good.status == v.Status {
		v.Effective = good.from
	}
	// After a failure the same file begins anew: between the two it could not be read. And none was first seen later
	// than now, whatever the clock said then.
	if count > 1 || v.Effective.After(now) {
		v.Effective = now
	}
	return v
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
