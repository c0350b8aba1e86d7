package pacing

import (
	"fmt"
	"net/netip"
	"time"
)

// Kind says how a request relates to a turn. It is decided by the proxy, never believed.
type Kind uint8

// The kinds.
const (
	Page        Kind = iota // needs the turn
	Sitemap                 // like a page
	Redirect                // the target of a redirect just answered by the same key
	Robots                  // the gate's own fetch of robots.txt
	Subresource             // a file of a page
	Render                  // a browser's navigation to a page the same client just fetched
	Repeat                  // the same page once more
	kinds
)

var kindNames = [kinds]string{"page", "sitemap", "redirect", "robots", "subresource", "render", "repeat"}

// String is the kind's name as it stands in metrics and in the audit log.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// companion reports whether the kind may ride along with a page.
func (k Kind) companion() bool { return k == Subresource || k == Render || k == Repeat }

// Request asks for a turn.
type Request struct {
	Key    string        // the host, canonical, without port (see HostKey)
	Client string        // who shares fairly: the client's name, not its connection
	Kind   Kind          //
	URL    string        // normalised, without fragment; for the page count and for companions
	Wait   time.Duration // longest wait, already capped by the profile; 0: now or not at all
	Gap    time.Duration // the profile's gap
	Delay  time.Duration // from robots.txt, 0 = none; the slower of Crawl-delay and Request-rate

	Slow       time.Duration // the operator's ledger: the gap is at least this; 0 = none
	Parallel   int           // the profile's; 0 counts as 1
	DomainKey  string        // not empty: takes the turn of this domain too (key: registrable_domain, see DomainKey)
	Redirect   string        // profile's mode; OwnTurn: a redirect waits like a page
	Companions string        // profile's mode; OwnTurn: companions wait like pages
	Robots     string        // profile's mode; RobotsFree: robots.txt keeps no gap
	Addr       netip.Addr    // the address pinned for the dial; only for ip_parallel, may be invalid
	Ticket     *Ticket       // from Companion; nil: eligibility is taken as given
}

// Outcome is what became of a request. The zero value means that nothing was sent: the turn is given back, no gap is owed.
type Outcome struct {
	Sent       bool   // a byte may have gone out; true as well for a DNS or connect failure of the origin
	Status     int    // of the answer; 0: none came
	Err        error  // transport error; context.Canceled or an *Overrun: the exchange was cut on our side
	RetryAfter string // raw header value
	Date       string // raw header value
	Location   string // of a 3xx: the target, normalised; allows one redirect of the same client
}

// Reason is one of the reason codes that pacing can give.
type Reason string

// The reasons.
const (
	TurnTooFar  Reason = "turn-too-far" // the turn would come after Wait
	HostBackoff Reason = "host-backoff" // the host asked us to slow down, past Wait
	HostStopped Reason = "host-stopped" // the host refuses almost everything
	URLLeft     Reason = "url-left"     // this page was retried enough for this round
	Overloaded  Reason = "overloaded"   // a bound of the gate, or its store is away
)

// Classes of Busy: the finer word beside the reason.
const (
	ClassQueueFull  = "queue_full"        // max_queue
	ClassClientFull = "queue_client_full" // max_queue_client
	ClassMaxWaiting = "max_waiting"       // the process has too many waiting
	ClassMaxKeys    = "max_keys"          // too many hosts known at once
	ClassStoreAway  = "store_away"        // Redis does not answer
	ClassStoreKey   = "store_key"         // the host's key in Redis holds something else
	ClassClosed     = "closed"            // the pacer was closed
	ClassDomain     = "domain"            // the turn of the registrable domain, not the host's
	ClassAddress    = "address"           // the cap of the dialled address
)

// Busy says that the turn does not come in time.
type Busy struct {
	Until  time.Time // when it is worth asking again: a forecast, no place is kept
	Reason Reason    //
	Class  string    // finer word, may be empty
	at     time.Time
}

// Error names the reason and the seconds to wait.
func (b *Busy) Error() string {
	return fmt.Sprintf("no turn (%s), try again in %d s", b.Reason, b.RetryAfter())
}

// RetryAfter is the value for the Retry-After field in whole seconds, at least 1, counted from the moment of the refusal.
func (b *Busy) RetryAfter() int {
	at := b.at
	if at.IsZero() {
		at = time.Now()
	}
	s := int((b.Until.Sub(at) + time.Second - 1) / time.Second)
	return max(1, s)
}

// Overrun is the cause with which Turn.Context ends when a turn is held for longer than turn_limit, and what the proxy
// reports when no byte moved for stall_timeout.
type Overrun struct{ Limit string }

// Error names the limit.
func (o *Overrun) Error() string { return "turn held past " + o.Limit }

// LeaseLost is the cause with which Turn.Context ends when the lease of a shared turn could not be renewed.
type LeaseLost struct{ Key string }

// Error names the key.
func (l *LeaseLost) Error() string { return "lease of the turn of " + l.Key + " lost" }
