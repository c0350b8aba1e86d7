package policy

import "time"

// unstored is a version that the archive could not take.
type unstored struct {
	state *state
	v     *Version
	body  []byte
	tried time.Time
}

// storeAgain is how long to wait before the archive is tried again.
const storeAgain = 5 * time.Second

// keep stores a fetched state: on disk first, then in memory. What cannot be stored is kept aside, so that the site is
// not asked again, and nothing is judged by it until it is on disk.
func (p *Policy) keep(k key, st *state, v *Version, body []byte) {
	if p.archive != nil {
		err := p.archive.store(v, body)
		if err != nil {
			p.log.Error("robots.txt could not be archived; nothing is judged by it until it is", "host", k.host, "err", err)
		}
		p.mu.Lock()
		delete(p.pending, k)
		if err != nil {
			p.pending[k] = unstored{st, v, body, time.Now()}
			p.failed = time.Now()
		}
		p.mu.Unlock()
	}
	p.cache.put(k, st)
}

// storeFails tells whether the archive just now took nothing: then no site is asked for what could not be kept.
func (p *Policy) storeFails() bool {
	if p.archive == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failed.IsZero() && time.Since(p.failed) < storeAgain
}

// stored tells whether a state is on disk, trying again now and then if it is not.
func (p *Policy) stored(k key, st *state, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	u, ok := p.pending[k]
	if !ok || u.state != st {
		return true
	}
	if now.Sub(u.tried) < storeAgain {
		return false
	}
	u.tried = now
	p.pending[k] = u
	if err := p.archive.store(u.v, u.body); err != nil {
		p.failed = now
		p.log.Error("robots.txt could not be archived", "host", k.host, "err", err)
		return false
	}
	delete(p.pending, k)
	p.failed = time.Time{}
	return true
}
