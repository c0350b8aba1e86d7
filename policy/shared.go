package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Shared is where the instances of one gate leave what they read for each other, so that a site is asked once for all
// of them. When it fails, each instance reads robots.txt for itself: it spares fetches, nothing depends on it. Signals of
// answers (response_signals: bind) are left there too, and those do depend on it, see [Policy.Share].
type Shared interface {
	// Load returns what was stored, nil for nothing.
	Load(ctx context.Context, id string) ([]byte, error)
	// Store keeps a value for at least the time given, in place of the one before.
	Store(ctx context.Context, id string, value []byte, keep time.Duration) error
	// Lease tells whether the caller may fetch: one instance at a time, for at most d. release gives it back.
	Lease(ctx context.Context, id string, d time.Duration) (release func(), ok bool, err error)
}

const (
	leaseTime  = 2 * time.Minute
	leaseAgain = 200 * time.Millisecond
	// staleKeep is how long a value is kept past its use, for instances that come back.
	staleKeep = 24 * time.Hour
	// clockSkew is how far another instance's clock, or ours before it was set back, may be ahead.
	clockSkew = time.Minute
)

// Share makes the Policy one of several instances. It must be called before the first Check. While the store does not
// answer, a URL that may be bound by another instance's answer is refused; with spare it is judged by what this instance knows.
func (p *Policy) Share(s Shared, spare bool) { p.shared, p.spare = s, spare }

func sharedID(k key) string { return hexSum([]byte(k.url() + "\n" + k.agent)) }

// borrow looks for what another instance has read since, waiting while one is reading. It returns nil when this
// instance is the one to read, then release must be called.
func (p *Policy) borrow(ctx context.Context, k key, q *Query, fl *flight, old *state) (st *state, release func()) {
	nothing := func() {}
	if p.shared == nil {
		return nil, nothing
	}
	id := sharedID(k)
	for start := time.Now(); ; {
		if st = p.adopt(ctx, id, k, q, old); st != nil {
			return st, nothing
		}
		release, ok, err := p.shared.Lease(ctx, id, leaseTime)
		if err != nil {
			p.log.Warn("shared robots.txt store does not answer; this instance reads for itself", "host", k.host, "err", err)
			return nil, nothing
		}
		if ok {
			if st = p.adopt(ctx, id, k, q, old); st != nil { // it came between the two questions
				release()
				return st, nothing
			}
			return nil, release
		}
		if !fl.wanted() || time.Since(start) > leaseTime {
			return nil, nothing
		}
		select {
		case <-ctx.Done():
			return nil, nothing
		case <-time.After(leaseAgain):
		}
	}
}

// adopt takes over a version that another instance stored, if it is in use and newer than what is known here.
func (p *Policy) adopt(ctx context.Context, id string, k key, q *Query, old *state) *state {
	value, err := p.shared.Load(ctx, id)
	if err != nil || value == nil {
		return nil // Lease is asked next and tells of trouble
	}
	v, body, err := unpack(value)
	if err != nil || v.URL != k.url() || v.Agent != k.agent {
		p.log.Warn("shared robots.txt store holds something else", "host", k.host, "err", err)
		return nil
	}
	now := time.Now()
	if !now.Before(v.Until) || v.Until.Sub(v.Fetched) > maxAge || ahead(v.Fetched, now) || old != nil && !v.Fetched.After(old.seen()) {
		return nil
	}
	st := &state{}
	switch {
	case !v.isGood():
		st.fail = v.failure(nil)
		if old != nil {
			st.good = old.good
		}
	case v.Class != ClassNoMatch:
		st.good = v.copied(q.Token, q.Fallback)
	default:
		if hexSum(body) != v.SHA256 {
			if p.archive == nil {
				return nil
			}
			if body, err = readBodyFile(p.archive.dir, v.SHA256); err != nil {
				return nil
			}
		}
		st.good = v.copied(q.Token, q.Fallback)
		if st.good.group, st.good.named, err = compileBody(body, q.Token, q.Fallback); err != nil {
			return nil
		}
	}
	p.keep(k, st, v, body)
	return st
}

// seen is when the file was last asked for.
func (s *state) seen() time.Time {
	if s.fail != nil {
		return s.fail.at
	}
	return s.good.fetched
}

// lend leaves a version for the other instances.
func (p *Policy) lend(ctx context.Context, k key, v *Version, body []byte) {
	if p.shared == nil {
		return
	}
	if len(body) == 0 && v.SHA256 != "" && p.archive != nil {
		body, _ = readBodyFile(p.archive.dir, v.SHA256) // without it the others look in their own archives
	}
	value, err := pack(v, body)
	if err == nil {
		err = p.shared.Store(ctx, sharedID(k), value, max(time.Until(v.Until), 0)+staleKeep)
	}
	if err != nil {
		p.log.Warn("robots.txt could not be shared with the other instances", "host", k.host, "err", err)
	}
}

// pack joins a version and its body, compressed.
func pack(v *Version, body []byte) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(append(append(line, '\n'), body...), nil), z.Close()
}

func unpack(value []byte) (*Version, []byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(4<<20))
	if err != nil {
		return nil, nil, err
	}
	defer z.Close()
	plain, err := z.DecodeAll(value, nil)
	if err != nil {
		return nil, nil, err
	}
	line, body, _ := bytes.Cut(plain, []byte("\n"))
	var v Version
	if err := json.Unmarshal(line, &v); err != nil {
		return nil, nil, err
	}
	if !v.valid() {
		return nil, nil, errors.New("not a version of a robots.txt")
	}
	return &v, body, nil
}
