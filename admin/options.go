package admin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"crawlgate/audit"
)

// Options is everything a Server may ask the rest of the gate. Each field may
// be zero: the part that needs it then answers 404 or is left off the page.
// The funcs are called from many goroutines at once and must not block long.
type Options struct {
	Log *slog.Logger // nil: discarded

	// Addr is the listener's own address, for the Host check.
	Addr func() net.Addr
	// Hosts are further values of the Host field that are answered, "name" (any
	// port) or "name:port".
	Hosts []string
	// Token is needed for every change (Authorization: Bearer), on loopback too.
	// Empty: no change is possible over this listener.
	Token string
	// ReadToken asks for the token for reading too (a listener that is not
	// loopback). Reading also takes it as a Basic password, so that a browser
	// can show the page.
	ReadToken bool
	// Pprof serves profiles of the process under /debug/pprof/ (admin.pprof).
	Pprof bool

	// CAPEM is the certificate of the interception CA.
	CAPEM func() []byte
	// ProxyAddr is the address of the proxy listener as host:port.
	ProxyAddr func() string
	// Directory serves the key directory (sign.Signer.ServeDirectory).
	Directory http.Handler
	// Authorities are the configured hosts of the published paths.
	Authorities func() []string
	// IgnoreHost makes the published paths answer to any Host (publish.ignore_host).
	IgnoreHost bool
	// ServeRoot also serves the key directory at / under a configured authority
	// (publish.serve_root).
	ServeRoot bool
	// IPRanges are the source addresses the operator publishes.
	IPRanges func() []netip.Addr
	// About is the rendered crawler page.
	About func() (html []byte, ok bool)
	// Card is the Signature Agent Card as JSON, of the agent whose keys the Host
	// of the request publishes.
	Card func(host string) ([]byte, bool)

	// Ready lists what must hold before traffic is sent here.
	Ready func() []Check
	// Live is a snapshot for the page and /api/hosts, /api/status.
	Live func() Live
	// Gauges is read at each scrape of /metrics.
	Gauges func() Gauges
	// Explain judges a URL as the path would, and sends at most a robots.txt
	// fetch. at is zero for "now". The result is encoded as JSON; one with a
	// method Text() string is shown by it on the page.
	Explain func(ctx context.Context, client, profile, rawURL string, at time.Time) (any, error)
	// RobotsFile returns an archived robots.txt by the SHA-256 that events carry
	// (lower-case hex): the page links each rule to the file it stands in.
	RobotsFile func(sha256 string) ([]byte, bool)
	// Ledger is the operator's ledger of sites stopped or slowed.
	Ledger Ledger
	// Jobs are the errands of clients.
	Jobs Jobs
	// Proof is the last proof that was kept, nil if there is none. Why one cannot be read is the caller's to log.
	Proof func() (*audit.KeptProof, error)
	// Audit writes matching events as JSON Lines, oldest first.
	Audit func(ctx context.Context, q AuditQuery, w io.Writer) error

	// Version is the program's version, for the build info.
	Version string
}

// Check is one condition of readiness.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // for people; no secrets, no paths
}

// Ledger is the operator's list of site owners' wishes. Hosts are canonical.
type Ledger interface {
	List() []LedgerEntry
	Stop(ctx context.Context, host string, subdomains bool, reason string) error
	// Slow keeps at least gap between two requests to the host.
	Slow(ctx context.Context, host string, subdomains bool, gap time.Duration, reason string) error
	// Resume removes the entry and ends the host's hold; false: there was none.
	Resume(ctx context.Context, host string) (bool, error)
}

// LedgerEntry is one host of the ledger.
type LedgerEntry struct {
	Host       string    `json:"host"`
	Subdomains bool      `json:"subdomains,omitempty"`
	Action     string    `json:"action"` // stop or slow
	GapSeconds float64   `json:"gap_s,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Since      time.Time `json:"since"`
}

// Jobs are the errands of clients: what was fetched, refused, why it stopped.
type Jobs interface {
	List() []Job
	// End ends a job; client "" means that the id alone names it. False: no such job.
	End(client, id string) bool
	// Limit lowers a job's page budget; false: no such job. The error says why
	// the budget was not changed.
	Limit(client, id string, maxPages int) (bool, error)
}

// Job is one errand as it stands.
type Job struct {
	ID       string         `json:"id"`
	Client   string         `json:"client"`
	Profile  string         `json:"profile,omitempty"`
	Site     string         `json:"site,omitempty"`
	Started  time.Time      `json:"started"`
	Last     time.Time      `json:"last"`
	Ended    time.Time      `json:"ended,omitzero"`
	Pages    int            `json:"pages"`
	MaxPages int            `json:"max_pages,omitempty"` // 0: no limit
	Sent     int            `json:"sent"`
	Refused  map[string]int `json:"refused,omitempty"` // by reason code
	Stopped  string         `json:"stopped,omitempty"` // why it stopped, in words
}

// AuditQuery selects events of the audit log. Zero fields select everything.
type AuditQuery struct {
	Since  time.Time
	Host   string
	Client string
	Reason string
	Limit  int // at most this many events; always set
}

// Live is what the gate holds at one moment, as plain data.
type Live struct {
	Started    time.Time `json:"started,omitzero"`
	Version    string    `json:"version,omitempty"`
	Proxy      string    `json:"proxy,omitempty"`       // host:port of the proxy listener
	Store      string    `json:"store,omitempty"`       // memory, disk or redis
	ReportOnly bool      `json:"report_only,omitempty"` // enforce: false

	ConfigFile   string    `json:"config_file,omitempty"` // "" : built-in defaults
	ConfigHash   string    `json:"config_hash,omitempty"` // the policy hash that the crawler page carries
	ConfigLoaded time.Time `json:"config_loaded,omitzero"`
	ConfigError  string    `json:"config_error,omitempty"` // why the last reload was not taken

	Agents  []LiveAgent  `json:"agents,omitempty"`
	Clients []LiveClient `json:"clients,omitempty"`
	Hosts   []LiveHost   `json:"hosts,omitempty"` // worst first; bounded by the caller

	Waiting  int `json:"waiting"`
	InFlight int `json:"in_flight"`

	Chain LiveChain `json:"chain,omitzero"`
	CA    LiveCA    `json:"ca,omitzero"`
}

// LiveAgent is one configured identity.
type LiveAgent struct {
	Name           string    `json:"name"`
	Token          string    `json:"product_token,omitempty"`
	UserAgent      string    `json:"user_agent,omitempty"`
	InfoURL        string    `json:"info_url,omitempty"`
	SignatureAgent string    `json:"signature_agent,omitempty"`
	Signing        string    `json:"signing,omitempty"` // ready, or why not
	KeyID          string    `json:"key_id,omitempty"`
	KeyExpires     time.Time `json:"key_expires,omitzero"`
}

// LiveClient is one configured client, whether it was seen or not.
type LiveClient struct {
	Name     string   `json:"name"`
	Profiles []string `json:"profiles,omitempty"`
	Sites    string   `json:"sites,omitempty"` // in words: "3 sites", "any site"
	Waiting  int      `json:"waiting"`
}

// LiveHost is one turn key as pacing and policy see it.
type LiveHost struct {
	Host     string        `json:"host"`
	State    string        `json:"state"`              // known, owing, held_back, slowed, stopped (pacing.HostView)
	Cause    string        `json:"cause,omitempty"`    // of a hold; "": what the events say, like "429, Retry-After: 2m"
	Since    time.Time     `json:"since,omitzero"`     // of a hold
	Until    time.Time     `json:"until,omitzero"`     // of a hold
	NextTurn time.Time     `json:"next_turn,omitzero"` // zero: now
	Gap      time.Duration `json:"gap_ns,omitempty"`   // gap owed between two requests
	Level    int           `json:"level,omitempty"`    // how often the gap was doubled
	InFlight int           `json:"in_flight,omitempty"`
	Waiting  int           `json:"waiting"`
	Queue    []QueueEntry  `json:"queue,omitempty"` // waiting by client, in the order of their turns
	Robots   LiveRobots    `json:"robots,omitzero"`
}

// QueueEntry is how many requests of a client wait for a host.
type QueueEntry struct {
	Client  string `json:"client"`
	Waiting int    `json:"waiting,omitempty"` // 0: not counted by client
}

// LiveRobots is the robots.txt version in use for a host.
type LiveRobots struct {
	State   string    `json:"state,omitempty"` // fresh, stale, none, unreadable
	Status  int       `json:"status,omitempty"`
	Fetched time.Time `json:"fetched,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	SHA256  string    `json:"sha256,omitempty"`
	Rule    string    `json:"rule,omitempty"` // what it asks of us, in words: "Crawl-delay: 5 (line 3)"
}

// LiveChain is the state of the audit chain.
type LiveChain struct {
	Seq        uint64             `json:"seq"`
	Head       string             `json:"head,omitempty"`
	File       string             `json:"file,omitempty"`
	Size       int64              `json:"size,omitempty"`       // bytes of the live file
	Checkpoint time.Time          `json:"checkpoint,omitzero"`  // last signed head
	Signed     uint64             `json:"signed_seq,omitempty"` // its number
	Sinks      []audit.SinkStatus `json:"sinks,omitempty"`      // where signed heads are kept elsewhere
	Lost       uint64             `json:"lost"`                 // events since the start
	Queued     int                `json:"queued"`
	QueueLimit int                `json:"queue_limit,omitempty"`
	DiskFree   int64              `json:"disk_free,omitempty"` // bytes, negative: not known
	Unwritable string             `json:"unwritable,omitempty"`
	Verified   LiveVerified       `json:"verified,omitzero"`
}

// LiveVerified is what the gate found when it last read its own log.
type LiveVerified struct {
	At     time.Time `json:"at"`
	Broken string    `json:"broken,omitempty"` // "": whole
	Files  int       `json:"files"`
	Events int64     `json:"events"`
	First  uint64    `json:"first_seq"`
	Last   uint64    `json:"last_seq"`
	Signed uint64    `json:"signed_seq"` // covered by a signature that was checked
	Lost   int64     `json:"lost"`       // events that gaps of the log declare
}

// Failing counts the sinks whose last attempt failed.
func (c LiveChain) Failing() (n int) {
	for _, s := range c.Sinks {
		if s.Failing {
			n++
		}
	}
	return n
}

// LiveCA is the interception CA.
type LiveCA struct {
	Expires     time.Time `json:"expires,omitzero"`
	Fingerprint string    `json:"sha256,omitempty"`
	SPKI        string    `json:"spki,omitempty"` // base64, for Chromium's pin
}

// Gauges are values of the moment for /metrics. Map keys outside the closed
// sets are left out.
type Gauges struct {
	TurnsWaiting, TurnsInFlight int
	Hosts                       map[string]int    // state: known, owing, held_back, slowed, stopped
	Incidents                   map[string]uint64 // class: throttle, failure
	TurnOverrun                 map[string]uint64 // limit: stall_timeout, turn_limit
	GapShortfall                uint64            // gaps below the promise, measured at the transport
	LeaseLost                   uint64
	StoreErrors                 uint64
	StoreRoundTrips             uint64
	LocalTurns                  uint64 // given while the shared store was away
	StoreAway                   bool   // the shared store does not answer now

	ConfigReloadOK     bool
	ConfigReloadAt     time.Time
	SignReloadFailures uint64
	CAExpires          time.Time
	KeyExpires         map[string]time.Time // by configured agent
	CertsMinted        uint64
	AnswersKept        int   // answers in the store
	AnswersKeptBytes   int64 // on disk
	Connections        int   // open client connections
	AuditQueue         int   // events waiting to be written
	AuditQueueMax      int
	AuditLost          uint64
	AuditSeq           uint64
	AuditDiskFree      int64              // bytes, negative: not known
	AuditSinks         []audit.SinkStatus // where signed heads go
	ChainVerifiedAt    time.Time          // zero: not yet
	ChainWhole         bool               // then: what was found
	ProofAt            time.Time          // of the last proof, zero: none
	ProofPassed        bool
	ClockOffset        time.Duration // own clock minus the sites'
}

// BadInput is an error that the caller can mend; its text is shown. Explain,
// Ledger, Jobs and Audit return it for a bad host, URL or value (status 400).
type BadInput struct{ Text string }

func (e *BadInput) Error() string { return e.Text }
