package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"crawlgate/pacing"
)

// paceCheck measures the pace at the transport, apart from the pacer that makes it: a gap below the promise is a
// fault of ours and counted. It knows only hosts that were asked lately.
type paceCheck struct {
	mu        sync.Mutex
	last      map[string]paceEnd
	shortfall atomic.Int64
}

// paceEnd is the end of a host's last paced exchange.
type paceEnd struct {
	at     time.Time
	robots bool // after robots.txt only the profile's own gap is owed
}

const paceHosts = 100_000

func newPaceCheck() *paceCheck { return &paceCheck{last: map[string]paceEnd{}} }

// begin compares the gap before a paced request with what was owed.
func (p *paceCheck) begin(x *exchange) {
	if x.turn == nil || x.ev.DelayOwedMS <= 0 {
		return
	}
	owed := time.Duration(x.ev.DelayOwedMS) * time.Millisecond
	p.mu.Lock()
	end, ok := p.last[x.host.Name]
	p.mu.Unlock()
	if end.robots && owed > x.profile.Pacing.Gap {
		owed = x.profile.Pacing.Gap
		x.ev.DelayOwedMS, x.ev.DelaySource = owed.Milliseconds(), "default"
	}
	if ok && time.Since(end.at) < owed {
		p.shortfall.Add(1)
		x.g.pacer.CountShortfall()
		x.g.log.Error("gap below the promise", "request_id", x.ev.ID, "host", x.host.Name, "owed_ms", owed.Milliseconds(), "gap_ms", time.Since(end.at).Milliseconds())
	}
}

// ended notes the end of a paced exchange. It is called before the turn is given back.
func (p *paceCheck) ended(x *exchange) {
	if x.turn == nil || x.turn.Riding() || !x.outcome.Sent || x.leavesNoGap {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) >= paceHosts {
		for k, t := range p.last {
			if time.Since(t.at) > time.Minute {
				delete(p.last, k)
			}
		}
		if len(p.last) >= paceHosts {
			clear(p.last)
		}
	}
	p.last[x.host.Name] = paceEnd{time.Now(), x.kind.kind == pacing.Robots}
}

// GapShortfalls counts requests that went out closer to the one before than was owed. It must stay 0.
func (g *Gate) GapShortfalls() int64 { return g.pace.shortfall.Load() }
