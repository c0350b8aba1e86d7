package pacing

import "time"

// The breaker of section 8.

func (s *state) closed() bool        { return s.openUntil == 0 }
func (s *state) open(now int64) bool { return s.openUntil != 0 && now < s.openUntil }
func (s *state) resetBreaker()       { s.window, s.openUntil, s.opens = nil, 0, 0 }
func (s *state) trip(c *Config, t int64) {
	s.openUntil = t + int64(grown(c.Breaker.OpenFor, c.Breaker.Factor, int(s.opens), c.Breaker.Cap))
	s.opens = small(int64(s.opens) + 1)
	s.window = nil
}

// outcomes are the last breaker_size outcomes. state.window may hold older ones before them: a good answer is only
// written at the end, which is one place in memory.
func (s *state) outcomes(c *Config) []int64 {
	return s.window[max(0, len(s.window)-c.Breaker.Size):]
}

// prune drops what does not count any more at t.
func (s *state) prune(c *Config, t int64) {
	l, before := s.outcomes(c), t-int64(c.Breaker.Window)
	for len(l) > 0 && l[0]>>1 < before {
		l = l[1:]
	}
	s.window = s.window[:copy(s.window, l)]
}

// bad counts the bad outcomes in the window.
func (s *state) bad(c *Config) int {
	n := 0
	for _, o := range s.outcomes(c) {
		n += int(o & 1)
	}
	return n
}

// judge takes in the outcome of a page, sitemap or redirect; it reports whether the breaker opened or closed by it.
func (s *state) judge(c *Config, granted, t int64, v verdict) (opened, changed bool) {
	if v != good && !v.bad() {
		return false, false
	}
	if s.openUntil != 0 {
		if granted < s.openUntil { // sent before we stopped
			return false, false
		}
		if v == good {
			s.resetBreaker()
			return false, true
		}
		s.trip(c, t)
		return true, true
	}
	if n := len(s.window); n == cap(s.window) && n >= c.Breaker.Size { // full, and more than what counts
		s.prune(c, t)
	}
	if !v.bad() {
		s.window = append(s.window, t<<1)
		return false, false
	}
	s.window = append(s.window, t<<1|1)
	s.prune(c, t)
	if n := len(s.window); n >= c.Breaker.Min && float64(s.bad(c)) >= c.Breaker.Ratio*float64(n) {
		s.trip(c, t)
		return true, true
	}
	return false, false
}

// pages counts, per URL, the 429 and 503 answers of a round (section 7, a page left for its round).
type pages struct {
	m     map[pageID]*pageCount
	order []pageID // oldest first
}

type pageID [8]byte

type pageCount struct {
	until int64 // end of the round
	n     int32
}

const maxPages = 256

// left says until when id is left alone, 0: it is not.
func (p *pages) left(c *Config, id pageID, now int64) int64 {
	if n := p.m[id]; n != nil && now < n.until && int(n.n) > c.Pages.Retries {
		return n.until
	}
	return 0
}

// note counts an answer for id.
func (p *pages) note(c *Config, id pageID, t int64, v verdict) {
	switch v {
	case throttle:
		n := p.m[id]
		if n != nil && t >= n.until { // a new round, and the newest again
			p.forget(id)
			n = nil
		}
		if n == nil {
			if p.m == nil {
				p.m = map[pageID]*pageCount{}
			}
			for len(p.m) >= maxPages {
				p.forget(p.order[0])
			}
			n = &pageCount{until: t + int64(c.Pages.Round)}
			p.m[id] = n
			p.order = append(p.order, id)
		}
		n.n++
	case good, redirected:
		p.forget(id)
	}
}

func (p *pages) forget(id pageID) {
	if _, ok := p.m[id]; !ok {
		return
	}
	delete(p.m, id)
	for i, o := range p.order {
		if o == id {
			p.order = append(p.order[:i], p.order[i+1:]...)
			break
		}
	}
}

// prune drops rounds that are over.
func (p *pages) prune(now int64) {
	for len(p.order) > 0 {
		id := p.order[0]
		if now < p.m[id].until {
			break
		}
		p.forget(id)
	}
	if len(p.m) == 0 {
		p.m, p.order = nil, nil
	}
}

// retryAfterOf is the part of an outcome's Retry-After that counts for the host.
func (c *Config) retryAfterOf(o *Outcome, now time.Time) time.Duration {
	if o.RetryAfter == "" || o.Status < 500 && o.Status != 429 {
		return 0
	}
	d, _ := retryAfter(o.RetryAfter, o.Date, now, c.Backoff.RetryAfterCap)
	return d
}
