package pacing

import "time"

// breaker is section 8. The window is kept while the host answers, the rest only once it has opened.
type breaker struct {
	window    []int64 // end of an outcome, shifted left by one; the lowest bit: bad
	openUntil int64   // 0: closed
	opens     int32
}

func (b *breaker) closed() bool        { return b.openUntil == 0 }
func (b *breaker) open(now int64) bool { return b.openUntil != 0 && now < b.openUntil }
func (b *breaker) reset()              { *b = breaker{} }
func (b *breaker) prune(before int64) {
	b.window = b.window[:copy(b.window, b.window[b.older(before):])]
}
func (b *breaker) trip(c *Config, t int64) {
	b.openUntil = t + int64(grown(c.Breaker.OpenFor, c.Breaker.Factor, int(b.opens), c.Breaker.Cap))
	b.opens++
	b.window = nil
}

// older counts the outcomes that ended before t.
func (b *breaker) older(t int64) int {
	n := 0
	for n < len(b.window) && b.window[n]>>1 < t {
		n++
	}
	return n
}

// bad counts the bad outcomes in the window.
func (b *breaker) bad() int {
	n := 0
	for _, o := range b.window {
		n += int(o & 1)
	}
	return n
}

// add judges the outcome of a page, sitemap or redirect; it reports whether the breaker opened or closed by it.
func (b *breaker) add(c *Config, granted, t int64, v verdict) (opened, changed bool) {
	if v != good && !v.bad() {
		return false, false
	}
	if b.openUntil != 0 {
		if granted < b.openUntil { // sent before we stopped
			return false, false
		}
		if v == good {
			b.reset()
			return false, true
		}
		b.trip(c, t)
		return true, true
	}
	b.prune(t - int64(c.Breaker.Window))
	if len(b.window) >= c.Breaker.Size {
		b.window = b.window[:copy(b.window, b.window[len(b.window)-c.Breaker.Size+1:])]
	}
	o := t << 1
	if v.bad() {
		o |= 1
	}
	b.window = append(b.window, o)
	n := len(b.window)
	if v.bad() && n >= c.Breaker.Min && float64(b.bad()) >= c.Breaker.Ratio*float64(n) {
		b.trip(c, t)
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
