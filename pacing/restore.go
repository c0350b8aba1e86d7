package pacing

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// load reads what the last process left. A value that cannot be decoded is skipped and reported.
func (p *Pacer) load() error {
	now, wall := p.now(), time.Now().UnixMilli()
	var last *marker
	skipped := 0
	err := p.store.Load(func(name string, value []byte) error {
		if name == markerName {
			last = &marker{}
			if err := json.Unmarshal(value, last); err != nil {
				last.Closed = false
				return err
			}
			return nil
		}
		k, err := p.decode(name, value, now, wall)
		if err != nil {
			skipped++
			p.log.Warn("pacing state of a host cannot be read and is skipped", "host", name, "error", err)
			return err
		}
		s, hash := p.shard(name)
		s.mu.Lock()
		defer s.mu.Unlock()
		k.saved = true
		if s.find(hash, name) == nil {
			p.keys.Add(1)
			s.add(hash, k)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read pacing state: %w", err)
	}
	if skipped > 0 {
		p.stats.storeErrs.Add(uint64(skipped)) //nolint:gosec // a count
	}
	if last != nil {
		// The last second before a crash is not in the file; after a clean end the close is the latest end there can be.
		p.floor = now
		if last.Closed {
			p.floor = min(now, now+(last.At-wall)*int64(time.Millisecond))
		}
		for i := range p.shards {
			for k := range p.shards[i].all() {
				if k.nextAt(&p.c, &want{}) <= now { // else nothing can have gone out in that second
					k.lastEnd = max(k.lastEnd, p.floor)
				}
			}
		}
	}
	return p.save(&marker{})
}

// decode turns a record's wall clock into ours. A time further ahead than its own formula allows is cut to that: the
// clock jumped.
func (p *Pacer) decode(name string, value []byte, now, wall int64) (*entry, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, err
	}
	if r.V != recordVersion {
		return nil, fmt.Errorf("version %d is not %d", r.V, recordVersion)
	}
	if r.Gap < 0 || r.RobotsGap < 0 || r.Slow < 0 || r.Delay < 0 || r.Fails < 0 || r.GoodRun < 0 || r.Opens < 0 {
		return nil, errors.New("a negative number")
	}
	const ms = int64(time.Millisecond)
	at := func(t int64, most time.Duration) int64 {
		if t == 0 {
			return never
		}
		ahead := max(t-wall, int64(never/2)/ms)
		if ahead > int64(most)/ms {
			return now + int64(most)
		}
		return now + ahead*ms
	}
	c := &p.c
	longest := max(c.Backoff.Cap, c.Backoff.RetryAfterCap)
	longest += time.Duration(float64(longest) * c.Backoff.Jitter)
	k := newEntry(name, state{
		lastEnd: at(r.End, 0), robotsEnd: at(r.RobotsEnd, 0), holdUntil: at(r.Hold, longest), incidentAt: at(r.Incident, 0),
		levelAt: at(r.LevelAt, 0), endGap: r.Gap, robotsGap: r.RobotsGap, slow: r.Slow, delay: r.Delay, fails: small(r.Fails),
		goodRun: small(r.GoodRun), level: min(r.Level, uint8(c.Slow.MaxLevel)), endLevel: min(r.EndLevel, uint8(c.Slow.MaxLevel)), //nolint:gosec // validated
	})
	if r.OpenUntil != 0 {
		k.openUntil, k.opens = at(r.OpenUntil, c.Breaker.Cap), small(r.Opens)
	}
	for _, o := range r.Window[max(0, len(r.Window)-c.Breaker.Size):] {
		k.window = append(k.window, at(o>>1, 0)<<1|o&1)
	}
	slices.Sort(k.window)
	for id, n := range r.Pages {
		var b pageID
		if h, err := hex.DecodeString(id); err != nil || copy(b[:], h) != len(b) || n[1] < 0 || n[1] > 1<<30 {
			return nil, fmt.Errorf("page %q", id)
		}
		x := &k.extra().pages
		if x.m == nil {
			x.m = map[pageID]*pageCount{}
		}
		if len(x.m) < maxPages {
			x.m[b] = &pageCount{until: at(n[0], c.Pages.Round), n: int32(n[1])}
			x.order = append(x.order, b)
		}
	}
	if k.ext != nil {
		m := k.ext.pages.m
		slices.SortFunc(k.ext.pages.order, func(a, b pageID) int { return int(m[a].until/ms - m[b].until/ms) })
	}
	return k, nil
}
