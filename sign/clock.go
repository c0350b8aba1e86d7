package sign

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	clockHosts = 64 // hosts remembered
	clockLeast = 5  // hosts needed for an answer
	clockWarn  = 2 * time.Second
	clockError = 30 * time.Second
	clockMax   = 24 * time.Hour // a Date further off says more about the site
)

// Clock compares the own clock with the Date of sites' answers: verifiers refuse signatures from the future, some of them
// without any tolerance. The zero value is ready. Its methods may be called from many goroutines.
type Clock struct {
	mu    sync.Mutex
	hosts map[string]time.Duration // own clock minus the host's, of the last answer
	order []string                 // oldest first
	text  string                   // the Date read last, which most sites have in the same second
	date  time.Time                // what it says
}

// Observe takes the header of an answer that a host gave at now. An answer that a cache kept is passed over.
func (c *Clock) Observe(host string, h http.Header, now time.Time) {
	if len(h["Age"]) > 0 {
		return
	}
	text := h.Get("Date")
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != c.text {
		date, err := http.ParseTime(text)
		if err != nil {
			return
		}
		c.text, c.date = strings.Clone(text), date
	}
	// Date is cut to the second: half a second off on average.
	offset := now.Sub(c.date.Add(500 * time.Millisecond)).Round(time.Millisecond)
	if offset.Abs() > clockMax {
		return
	}
	if c.hosts == nil {
		c.hosts = map[string]time.Duration{}
	}
	if _, known := c.hosts[host]; !known {
		if len(c.order) == clockHosts {
			delete(c.hosts, c.order[0])
			c.order = slices.Delete(c.order, 0, 1)
		}
		c.order = append(c.order, host)
	}
	c.hosts[host] = offset
}

// Offset is the own clock minus that of the sites, the median of at least five hosts; ok is false before that.
func (c *Clock) Offset() (offset time.Duration, ok bool) {
	offset, hosts := c.Estimate()
	if hosts < clockLeast {
		return 0, false
	}
	return offset, true
}

// Estimate is the median for however few hosts were seen, and their number.
func (c *Clock) Estimate() (offset time.Duration, hosts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hosts) == 0 {
		return 0, 0
	}
	all := make([]time.Duration, 0, len(c.hosts))
	for _, o := range c.hosts {
		all = append(all, o)
	}
	slices.Sort(all)
	return all[len(all)/2], len(all)
}

// State is "ok", "warn" (more than 2 s off) or "error" (more than 30 s off); "unknown" before five hosts were seen.
func (c *Clock) State() string {
	offset, ok := c.Offset()
	switch {
	case !ok:
		return "unknown"
	case offset.Abs() > clockError:
		return "error"
	case offset.Abs() > clockWarn:
		return "warn"
	}
	return "ok"
}
