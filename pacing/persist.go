package pacing

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Store keeps what is owed across a restart. One process uses it at a time.
type Store interface {
	// Load calls f for every value; an error of f says that the value cannot be used and ends nothing.
	Load(f func(name string, value []byte) error) error
	// Save writes values in one step; a nil value removes the name.
	Save(values map[string][]byte) error
}

// record is a key on disk. Times are wall clock in milliseconds since 1970, lengths in nanoseconds.
type record struct {
	V         int                 `json:"v"`
	End       int64               `json:"end,omitempty"`
	RobotsEnd int64               `json:"robots_end,omitempty"`
	Gap       time.Duration       `json:"gap,omitempty"`
	RobotsGap time.Duration       `json:"robots_gap,omitempty"`
	Slow      time.Duration       `json:"slow,omitempty"`
	Delay     time.Duration       `json:"delay,omitempty"`
	Hold      int64               `json:"hold,omitempty"`
	Incident  int64               `json:"incident,omitempty"`
	Fails     int64               `json:"fails,omitempty"`
	GoodRun   int64               `json:"good_run,omitempty"`
	Level     uint8               `json:"level,omitempty"`
	LevelAt   int64               `json:"level_at,omitempty"`
	EndLevel  uint8               `json:"end_level,omitempty"`
	OpenUntil int64               `json:"open_until,omitempty"`
	Opens     int64               `json:"opens,omitempty"`
	Window    []int64             `json:"window,omitempty"` // as state.window, in milliseconds
	Pages     map[string][2]int64 `json:"pages,omitempty"`  // hash: end of the round, count
}

const (
	recordVersion = 1
	saveEvery     = time.Second
	markerName    = "\x00last" // when the file was written last, and whether it was closed
)

// marker tells a clean end from a crash.
type marker struct {
	At     int64 `json:"at"`
	Closed bool  `json:"closed"`
}

// owes reports whether a key must survive a restart.
func (k *entry) owes(c *Config, now int64) bool {
	w := want{class: classPage}
	return k.ready(c, &w, now)-now > int64(c.PersistOver) || k.levelNow(c, now) > 0 || k.fails > 0 && now < max(k.holdUntil, k.incidentAt)+int64(c.Backoff.ForgetAfter) ||
		!k.closed() || k.bad(c) > 0 || k.ext != nil && len(k.ext.pages.m) > 0
}

// markDirty notes a key for the next write. The caller holds the shard.
func (p *Pacer) markDirty(s *shard, k *entry) {
	if p.store == nil || k.dirty || !k.saved && !k.owes(&p.c, p.now()) {
		return
	}
	k.dirty = true
	if s.dirty == nil {
		s.dirty = map[string]struct{}{}
	}
	s.dirty[k.name] = struct{}{}
}

// saver writes the changed keys once a second.
func (p *Pacer) saver() {
	defer p.wg.Done()
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			if err := p.save(nil); err != nil {
				p.stats.storeErrs.Add(1)
				p.log.Error("pacing state not written", "error", err)
			}
		}
	}
}

func (p *Pacer) saveLast() error { return p.save(&marker{Closed: true}) }

// save writes what changed, and with a marker that as well. What could not be written is tried again.
func (p *Pacer) save(m *marker) error {
	values := map[string][]byte{}
	now, wall := p.now(), time.Now().UnixMilli()
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		for name := range s.dirty {
			_, hash := p.shard(name)
			k := s.find(hash, name)
			if k == nil {
				values[name] = nil
				continue
			}
			k.dirty = false
			if k.saved = k.owes(&p.c, now); !k.saved {
				values[name] = nil
				continue
			}
			v, err := json.Marshal(k.record(&p.c, now, wall))
			if err != nil {
				s.mu.Unlock()
				return fmt.Errorf("encode %q: %w", name, err)
			}
			values[name] = v
		}
		s.dirty = nil
		s.mu.Unlock()
	}
	if m != nil {
		m.At = wall
		v, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode marker: %w", err)
		}
		values[markerName] = v
	}
	if len(values) == 0 {
		return nil
	}
	if err := p.store.Save(values); err != nil {
		p.again(values)
		return err
	}
	return nil
}

// again marks what a failed write left out.
func (p *Pacer) again(values map[string][]byte) {
	for name := range values {
		if name == markerName {
			continue
		}
		s, hash := p.shard(name)
		s.mu.Lock()
		if s.dirty == nil {
			s.dirty = map[string]struct{}{}
		}
		s.dirty[name] = struct{}{}
		if k := s.find(hash, name); k != nil {
			k.dirty = true
		}
		s.mu.Unlock()
	}
}

// record turns a key's times into wall clock.
func (k *entry) record(c *Config, now, wall int64) *record {
	at := func(t int64) int64 {
		if t <= never/2 {
			return 0
		}
		return wall + (t-now)/int64(time.Millisecond)
	}
	up := func(t int64) int64 { // a promise is never rounded down
		if t <= never/2 {
			return 0
		}
		return at(t + int64(time.Millisecond) - 1)
	}
	r := &record{
		V: recordVersion, End: up(k.lastEnd), RobotsEnd: up(k.robotsEnd), Gap: k.endGap, RobotsGap: k.robotsGap,
		Slow: k.slow, Delay: k.delay, Hold: up(k.holdUntil), Incident: at(k.incidentAt), Fails: int64(k.fails), GoodRun: int64(k.goodRun),
		Level: k.level, EndLevel: k.endLevel,
	}
	if !k.closed() {
		r.OpenUntil, r.Opens = up(k.openUntil), int64(k.opens)
	}
	if k.level > 0 {
		r.LevelAt = at(k.levelAt)
	}
	for _, o := range k.outcomes(c) {
		r.Window = append(r.Window, at(o>>1)<<1|o&1)
	}
	if k.ext != nil && len(k.ext.pages.m) > 0 {
		r.Pages = make(map[string][2]int64, len(k.ext.pages.m))
		for id, n := range k.ext.pages.m {
			r.Pages[hex.EncodeToString(id[:])] = [2]int64{at(n.until), int64(n.n)}
		}
	}
	return r
}
