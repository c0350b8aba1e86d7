package proxy

import (
	"net/netip"
	"slices"
	"time"

	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// Rules is what a gate decides by: the compiled configuration. It is immutable; a reload swaps the whole.
type Rules struct {
	Agents   map[string]*Agent
	Profiles map[string]*Profile
	Clients  []*Client // configured clients; empty: the open client, on loopback
	Open     bool      // with no clients: any site, first profile
	Enforce  bool      // false: report only
	Server   Server
	Tunnels  []string   // hosts that are not decrypted (intercept.tunnel_hosts)
	Roots    []byte     // PEM of extra roots for origins
	Default  *Profile   // first profile
	Order    []*Profile // as configured
	Hash     string     // of the configuration, stands in every audit event
	Via      bool
	Uniform  bool // egress.uniform_refusals

	byName map[string]*Client
	open   *Client
}

// Agent is an identity.
type Agent struct {
	Name      string
	Token     string   // robots.txt product token
	Fallback  []string // tokens tried after Token
	UserAgent string   // as sent; empty with Pass
	Pass      bool     // the fetcher's own user agent goes out
	InfoURL   string
	Contact   string
	StopOn    []string // content signals that stop it when the profile names none (from its purposes)
	Missing   bool     // no identity is configured: only loopback may be reached
}

// Profile is how a class of fetches behaves.
type Profile struct {
	Name         string
	Agent        *Agent
	Sign         string // sites, all or never
	AnySite      bool   // sites: any
	IdentityLock time.Duration
	GoneIsFinal  bool // a URL that answered 410 is not asked for again (on_410: final)
	Robots       policy.ProfileConfig
	Pacing       pacing.ProfileConfig
	Limits       Limits
	Job          JobRules
}

// Limits bound a request and its answer (sizes in bytes).
type Limits struct {
	Methods       []string
	RequestBody   int64
	ResponseBody  int64
	Redirects     int
	Timeout       time.Duration // dial to answer head, without the turn
	Authorization string        // strip or pass
	WebSocket     string        // allow or deny
	DenyKinds     []string
	Connections   int // open to one site at once; 0: no limit
}

// JobRules say what a profile asks of jobs.
type JobRules struct {
	Required bool
	MaxPages int // 0: no budget
	SameSite bool
}

// Server holds the limits of connections.
type Server struct {
	ReadHead     time.Duration
	Idle         time.Duration
	UpstreamIdle time.Duration
	StreamIdle   time.Duration // SSE and WebSocket
	HeadBytes    int
	Fields       int
	TargetBytes  int
	Tunnels      int
	// TunnelsClient bounds one client; no client can take more than half of Tunnels.
	TunnelsClient int
	Grace         time.Duration // how long a drain waits
	StallTimeout  time.Duration
	// CompanionWindow is how long after its end a page owns the files that are asked for.
	CompanionWindow time.Duration
}

// Client is who may use the proxy.
type Client struct {
	Name       string
	SecretHash string
	Sources    []netip.Prefix
	Listen     string
	Profiles   []*Profile
	Fields     bool // Crawlgate-Profile and -Job count
	Enforce    bool
}

// compile builds the look-up tables and checks what only the whole can show.
func (r *Rules) compile() *Rules {
	r.byName = make(map[string]*Client, len(r.Clients))
	for _, c := range r.Clients {
		r.byName[c.Name] = c
	}
	r.open = &Client{Name: "default", Enforce: true}
	if r.Default != nil {
		r.open.Profiles = []*Profile{r.Default}
		// Without clients the operator alone uses the gate: every profile of the file is theirs.
		for _, p := range r.Order {
			if p != r.Default {
				r.open.Profiles = append(r.open.Profiles, p)
			}
		}
	}
	return r
}

// profile returns the client's profile of a name; the empty name means its first.
func (c *Client) profile(name string) (*Profile, bool) {
	if name == "" {
		if len(c.Profiles) == 0 {
			return nil, false
		}
		return c.Profiles[0], true
	}
	for _, p := range c.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// opaque tells whether a host's tunnels are passed without decryption.
func (r *Rules) opaque(h guard.Host) bool {
	return slices.ContainsFunc(r.Tunnels, func(pattern string) bool {
		if rest, ok := cutWildcard(pattern); ok {
			return len(h.Name) > len(rest)+1 && h.Name[len(h.Name)-len(rest)-1] == '.' && h.Name[len(h.Name)-len(rest):] == rest
		}
		return pattern == h.Name
	})
}

func cutWildcard(p string) (string, bool) {
	if len(p) > 2 && p[0] == '*' && p[1] == '.' {
		return p[2:], true
	}
	return p, false
}

// connections bounds the profile's connections to one site: as many as pages that may be under way, at least.
func (p *Profile) connections() int {
	if p.Limits.Connections == 0 {
		return 0
	}
	return max(p.Limits.Connections, p.Pacing.Parallel)
}

// denies tells whether the profile refuses requests of a kind (script-navigation, prefetch, browser-noise).
func (p *Profile) denies(kind string) bool { return slices.Contains(p.Limits.DenyKinds, kind) }
