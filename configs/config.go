// Package configs says what can be configured: the schema, strict loading with file and line of every problem, the
// presets and the deploy samples. Config is the sum of the leaves' own Config structs and of the few blocks that belong
// to no leaf; nothing declares a setting twice.
//
//	cfg, src, err := configs.Load(configs.Options{Env: os.Environ()})
//	if err != nil { ... } // *configs.Error: every problem, each with file, line and key
//	for _, w := range src.Warnings { log.Warn(w.String()) }
package configs

import (
	"time"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// Config is everything that can be configured. The zero value is not usable: start from Defaults or Load.
type Config struct {
	// Preset names a built-in configuration that lies under the file: recordslabs, roftrlabs or unlob.
	Preset string `mapstructure:"preset"`
	// Listen is the proxy's listener, host:port. Not loopback needs clients.
	Listen string `mapstructure:"listen"`
	Admin  Admin  `mapstructure:"admin"`
	// StateDir holds everything that must survive a restart; Load has expanded a leading ~.
	StateDir string `mapstructure:"state_dir"`
	// Open lets any local fetcher reach any site while no client is configured.
	Open bool `mapstructure:"open"`
	// Enforce false only reports what would be refused; identity, addresses and stops are enforced all the same.
	Enforce bool `mapstructure:"enforce"`

	Agents   []Agent   `mapstructure:"agents"`
	Profiles []Profile `mapstructure:"profiles"`
	Clients  []Client  `mapstructure:"clients"`

	Egress     guard.Config       `mapstructure:"egress"`
	Intercept  Intercept          `mapstructure:"intercept"`
	Robots     policy.Config      `mapstructure:"robots"`
	Pacing     pacing.Config      `mapstructure:"pacing"`
	Redis      pacing.RedisConfig `mapstructure:"redis"`
	Sign       sign.Config        `mapstructure:"sign"`
	Publish    sign.PublishConfig `mapstructure:"publish"`
	Audit      audit.Config       `mapstructure:"audit"`
	Revalidate Revalidate         `mapstructure:"revalidate"`
	Server     Server             `mapstructure:"server"`
	Page       Page               `mapstructure:"page"`
}

// Admin is the admin listener (live page, metrics, API, published files).
type Admin struct {
	Listen    string   `mapstructure:"listen"`     // host:port; "" switches it off
	TokenFile string   `mapstructure:"token_file"` // "": state_dir/admin.token, made at the first start
	Hosts     []string `mapstructure:"hosts"`      // further Host values that are answered, beside the listener's own
	Pprof     bool     `mapstructure:"pprof"`      // profiles of the process under /debug/pprof/
}

// Agent is an identity: what a site sees and what its robots.txt is matched with.
type Agent struct {
	Name string `mapstructure:"name"`
	// ProductToken is what robots.txt groups are matched with (RFC 9309 section 2.2.1); never guessed from UserAgent.
	ProductToken string `mapstructure:"product_token"`
	// FallbackTokens are tried in order where no group has ProductToken.
	FallbackTokens []string `mapstructure:"fallback_tokens"`
	// UserAgent is sent on every request; UserAgentPass leaves the fetcher's own.
	UserAgent      string   `mapstructure:"user_agent"`
	InfoURL        string   `mapstructure:"info_url"`
	Contact        string   `mapstructure:"contact"`
	SignatureAgent string   `mapstructure:"signature_agent"` // https URL of the key directory's host; "": unsigned
	KeyFile        string   `mapstructure:"key_file"`        // "": state_dir/keys
	PublishKeys    []string `mapstructure:"publish_key_files"`
	Purposes       []string `mapstructure:"purposes"` // search, ai-input, ai-train
}

// UserAgentPass is the value of Agent.UserAgent that leaves the fetcher's own user agent.
const UserAgentPass = "pass"

// Values of Profile.Sign and Profile.Sites.
const (
	SignSites   = "sites" // https requests to allowlisted sites; in open mode to any
	SignAll     = "all"
	SignNever   = "never"
	SitesListed = "listed" // the client's sites
	SitesAny    = "any"

	On410Ask   = "ask"
	On410Final = "final"
)

// Profile is how a class of fetches behaves.
type Profile struct {
	Name  string `mapstructure:"name"`
	Agent string `mapstructure:"agent"` // Load fills it in when there is exactly one agent
	Sign  string `mapstructure:"sign"`
	Sites string `mapstructure:"sites"`
	// IdentityLock is how long a URL that a site refused goes out under no other agent; 0 exempts the profile.
	IdentityLock time.Duration        `mapstructure:"identity_lock"`
	On410        string               `mapstructure:"on_410"` // ask | final: a URL that answered 410 is not asked for again
	Robots       policy.ProfileConfig `mapstructure:"robots"`
	Pacing       pacing.ProfileConfig `mapstructure:"pacing"`
	Limits       Limits               `mapstructure:"limits"`
	Job          Job                  `mapstructure:"job"`
}

// Limits bound one request of a profile. Sizes are bytes as received, still encoded.
type Limits struct {
	Methods       []string      `mapstructure:"methods"`
	RequestBody   int64         `mapstructure:"request_body"`  // 0: none
	ResponseBody  int64         `mapstructure:"response_body"` // 0: no limit
	Redirects     int           `mapstructure:"redirects"`
	Timeout       time.Duration `mapstructure:"timeout"`       // dial to answer head, without the turn
	Authorization string        `mapstructure:"authorization"` // strip | pass
	WebSocket     string        `mapstructure:"websocket"`     // allow | deny
	Connections   int           `mapstructure:"connections"`   // open to one site; 0: no limit
	DenyKinds     []string      `mapstructure:"deny_kinds"`    // script-navigation, prefetch, browser-noise
}

// Job says what a profile wants of jobs.
type Job struct {
	Required bool `mapstructure:"required"`
	MaxPages int  `mapstructure:"max_pages"` // 0: no cap
	SameSite bool `mapstructure:"same_site"` // registrable domain of the job's first page
}

// Client is who may use the proxy. It is named by its secret, by a listener of its own, or by its source addresses.
type Client struct {
	Name       string   `mapstructure:"name"`
	SecretHash string   `mapstructure:"secret_hash"` // sha256:HEX, or argon2id:...
	Listen     string   `mapstructure:"listen"`
	Sources    []string `mapstructure:"sources"`
	// Profiles the client may use; the first is its default. Load fills in the first profile of all when empty.
	Profiles         []string         `mapstructure:"profiles"`
	Sites            []allowlist.Site `mapstructure:"sites"`
	Grants           []string         `mapstructure:"grants"`
	DenyHosts        []string         `mapstructure:"deny_hosts"`
	SubresourcesPost bool             `mapstructure:"subresources_post"`
	Fields           bool             `mapstructure:"fields"`  // Crawlgate-Profile and Crawlgate-Job count
	Enforce          bool             `mapstructure:"enforce"` // false: report only, for this client
}

// Intercept is the interception CA and the hosts that are tunnelled unread.
type Intercept struct {
	CACertFile  string   `mapstructure:"ca_cert_file"` // "": state_dir/ca
	CAKeyFile   string   `mapstructure:"ca_key_file"`
	TunnelHosts []string `mapstructure:"tunnel_hosts"` // example.com, or *.example.com for the hosts below it
}

// Revalidate is the store of answers, by which sites are asked whether a page has changed instead of for the page. It is
// off unless asked for: it keeps what was crawled on disk.
type Revalidate struct {
	Enabled   bool  `mapstructure:"enabled"`
	MaxSize   int64 `mapstructure:"max_size"`   // on disk
	FullEvery int   `mapstructure:"full_every"` // one 304 in so many is followed by a request in full; 0: none
	Lastmod   bool  `mapstructure:"lastmod"`    // with Enabled: what a sitemap says has not changed is given without asking the site
}

// Server holds the limits of the listeners and connections (times without a profile).
type Server struct {
	ReadHead      time.Duration `mapstructure:"read_head"`      // request head, TLS handshake, first byte in a tunnel
	Idle          time.Duration `mapstructure:"idle"`           // keep-alive towards clients
	UpstreamIdle  time.Duration `mapstructure:"upstream_idle"`  // keep-alive towards sites
	HeadBytes     int64         `mapstructure:"head_bytes"`     // request head
	StreamIdle    time.Duration `mapstructure:"stream_idle"`    // SSE and WebSocket without a byte
	Tunnels       int           `mapstructure:"tunnels"`        // all clients together
	TunnelsClient int           `mapstructure:"tunnels_client"` // one client
	Grace         time.Duration `mapstructure:"grace"`          // running requests at SIGTERM
	TLS           TLS           `mapstructure:"tls"`
}

// TLS is the proxy listener's own certificate; both files or none.
type TLS struct {
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
}

// Page holds what the public crawler page, /ip-ranges.json and doctor say that no other setting enforces.
type Page struct {
	Operator string `mapstructure:"operator"` // who runs the crawler
	// Addresses are the published egress prefixes; empty: egress.source_addresses.
	Addresses []string `mapstructure:"addresses"`
	// ReverseDNS is the name under which the addresses resolve back and forth, such as *.crawl.example.com.
	ReverseDNS string      `mapstructure:"reverse_dns"`
	Statements []Statement `mapstructure:"statements"`
}

// Statement is a paragraph of the page that is the operator's word, not enforced.
type Statement struct {
	Title string `mapstructure:"title"`
	Text  string `mapstructure:"text"`
}
