package pacing

import (
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the histograms.
var bounds = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, time.Hour,
}

// Histogram is a histogram as plain numbers: Counts[i] is how many were at most Bounds[i], the last of them all.
type Histogram struct {
	Bounds []float64
	Counts []uint64 // cumulative, one more than Bounds
	Sum    float64  // seconds
}

type histogram struct {
	n   [len(bounds) + 1]atomic.Uint64
	sum atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.n[i].Add(1)
	if d != 0 { // most turns have not waited
		h.sum.Add(int64(d))
	}
}

// add puts another histogram on top of h.
func (h *Histogram) add(o Histogram) {
	for i := range o.Counts {
		h.Counts[i] += o.Counts[i]
	}
	h.Sum += o.Sum
}

func (h *Histogram) all() uint64 { return h.Counts[len(bounds)] }

func (h *histogram) view() Histogram {
	v := Histogram{Bounds: make([]float64, len(bounds)), Counts: make([]uint64, len(h.n)), Sum: time.Duration(h.sum.Load()).Seconds()}
	for i, b := range bounds {
		v.Bounds[i] = b.Seconds()
	}
	var all uint64
	for i := range h.n {
		all += h.n[i].Load()
		v.Counts[i] = all
	}
	return v
}

var (
	reasons = [...]Reason{TurnTooFar, HostBackoff, HostStopped, URLLeft, Overloaded}
	limits  = [...]string{"stall_timeout", "turn_limit"}
)

type counters struct {
	wait      [kinds]histogram           // of every turn granted
	hold      [kinds][verdicts]histogram // of every turn ended
	refused   [len(reasons)]atomic.Uint64
	incidents [verdicts]atomic.Uint64
	overruns  [len(limits)]atomic.Uint64
	shortfall atomic.Uint64
	leaseLost atomic.Uint64
	storeErrs atomic.Uint64
	trips     atomic.Uint64
	localTurn atomic.Uint64
}

func (c *counters) grant(t *Turn) {
	c.wait[t.kind].observe(t.waited)
}

func (c *counters) end(t *Turn, v verdict, now int64) {
	c.hold[t.kind][v].observe(time.Duration(now - t.granted))
}

func (c *counters) refuse(r Reason) {
	for i := range reasons {
		if reasons[i] == r {
			c.refused[i].Add(1)
		}
	}
}

func (c *counters) incident(v verdict) { c.incidents[v].Add(1) }

// CountOverrun counts an exchange that was cut for stall_timeout or turn_limit; the latter is counted here already when
// Turn.Context is used.
func (p *Pacer) CountOverrun(limit string) {
	for i := range limits {
		if limits[i] == limit {
			p.stats.overruns[i].Add(1)
		}
	}
}

// CountShortfall counts a gap below the promise, as measured where the bytes go out. It must stay 0.
func (p *Pacer) CountShortfall() { p.stats.shortfall.Add(1) }

// TurnLabel is a kind and what became of its turn: not_sent, aborted, throttle, failure, refusal, redirected, good.
type TurnLabel struct {
	Kind    Kind
	Outcome string
}

// Stats is everything that the metrics need, since the start.
type Stats struct {
	Waiting, InFlight, Keys int
	Hosts                   map[string]int // by state: known, owing, held_back, slowed, stopped
	Turns                   map[TurnLabel]uint64
	Wait, Hold              map[Kind]Histogram
	Refused                 map[Reason]uint64
	Incidents               map[string]uint64 // throttle, failure
	Overruns                map[string]uint64 // stall_timeout, turn_limit
	GapShortfall            uint64
	LeaseLost               uint64
	StoreErrors             uint64
	StoreRoundTrips         uint64
	LocalTurns              uint64 // given while Redis was away (when_down: local)
	StoreAway               bool   // Redis does not answer now
}

// countHosts is how many keys Stats counts itself; above it takes what the sweep saw last, at most 64 s ago.
const countHosts = 50000

// Stats are the numbers now.
func (p *Pacer) Stats() Stats {
	c := &p.stats
	v := Stats{
		Waiting: int(p.waiting.Load()), Keys: int(p.keys.Load()),
		Hosts: map[string]int{}, Turns: map[TurnLabel]uint64{}, Wait: map[Kind]Histogram{}, Hold: map[Kind]Histogram{},
		Refused: map[Reason]uint64{}, Incidents: map[string]uint64{}, Overruns: map[string]uint64{},
		GapShortfall: c.shortfall.Load(), LeaseLost: c.leaseLost.Load(), StoreErrors: c.storeErrs.Load(),
		StoreRoundTrips: c.trips.Load(), LocalTurns: c.localTurn.Load(),
	}
	if p.shared != nil {
		v.StoreAway = p.shared.away()
	}
	for k := range kinds {
		hold := c.hold[k][0].view()
		for o := range verdicts {
			h := c.hold[k][o].view()
			if h.all() > 0 {
				v.Turns[TurnLabel{k, o.String()}] = h.all()
			}
			if o > 0 {
				hold.add(h)
			}
		}
		wait := c.wait[k].view()
		v.Wait[k], v.Hold[k] = wait, hold
		v.InFlight += int(wait.all() - hold.all()) //nolint:gosec // a count
	}
	for i, r := range reasons {
		v.Refused[r] = c.refused[i].Load()
	}
	for _, o := range []verdict{throttle, failure} {
		v.Incidents[o.String()] = c.incidents[o].Load()
	}
	for i, l := range limits {
		v.Overruns[l] = c.overruns[i].Load()
	}
	var hosts [hostStates]int
	walk := p.keys.Load() <= countHosts
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		if walk {
			now := p.now()
			for k := range s.all() {
				if k.scope == scopeHost {
					hosts[k.hostState(&p.c, now)]++
				}
			}
		} else {
			for j := range hosts {
				hosts[j] += s.count[j]
			}
		}
		s.mu.Unlock()
	}
	for i, n := range hosts {
		v.Hosts[hostStateNames[i]] = n
	}
	return v
}
