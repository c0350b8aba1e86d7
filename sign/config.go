package sign

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Forms of the Signature-Agent field.
const (
	FormDictionary = "dictionary" // label="https://..." (working-group drafts -00 and -01)
	FormString     = "string"     // "https://..." (the drafts of 2025, still documented by some verifiers)
)

// Sets of covered components.
const (
	ComponentsMinimal = "minimal" // "@authority" and the agent
	ComponentsBound   = "bound"   // also "@method" and "@path": a replay is bound to one page
)

const (
	minLifetime = 10 * time.Second
	maxLifetime = 300 * time.Second
	maxLabel    = 64 // bytes

	minMaxAge        = time.Minute
	maxMaxAge        = 24 * time.Hour
	maxProofLifetime = 90 * 24 * time.Hour
	proofRenewal     = 24 * time.Hour // a directory proof older than this is made anew
)

// Config is the `sign:` block.
type Config struct {
	// Form of Signature-Agent: FormDictionary or FormString.
	Form string `mapstructure:"form"`
	// Sites get another form than Form; the longest matching host wins.
	Sites []Site `mapstructure:"sites"`
	// Label of the signature: a structured field key (RFC 8941 3.1.2), also the member key of Signature-Agent.
	Label string `mapstructure:"label"`
	// Lifetime is expires minus created, whole seconds, 10s to 300s.
	Lifetime time.Duration `mapstructure:"lifetime"`
	// Alg says whether the alg parameter is sent.
	Alg bool `mapstructure:"alg"`
	// Nonce says whether 64 random bytes are sent as the nonce parameter.
	Nonce bool `mapstructure:"nonce"`
	// Components covered: ComponentsMinimal or ComponentsBound.
	Components string `mapstructure:"components"`
	// Required refuses to start when an agent with a signature_agent has no key.
	Required bool `mapstructure:"required"`
	// AllowGroupRead admits key files of mode 0640 and 0440, as mounted secrets have them.
	AllowGroupRead bool `mapstructure:"allow_group_read"`
	// AllowTestKey admits the published test keys of RFC 9421 and RFC 8037.
	AllowTestKey bool `mapstructure:"allow_test_key"`
}

// Site is the form of Signature-Agent that one site gets.
type Site struct {
	Host       string `mapstructure:"host"`       // host without port
	Subdomains bool   `mapstructure:"subdomains"` // also hosts below it
	Form       string `mapstructure:"form"`
}

// Defaults is what absent keys mean.
func Defaults() Config {
	return Config{Form: FormDictionary, Label: "sig1", Lifetime: 60 * time.Second, Alg: true, Components: ComponentsMinimal}
}

// PublishConfig is the `publish:` block: how the keys are shown to others.
type PublishConfig struct {
	// Listen is the address of a listener for the published files alone; "" leaves them to the admin listener.
	Listen string `mapstructure:"listen"`
	// Authority is the host that the directory is published under; "" means the host of each agent's signature_agent.
	Authority string `mapstructure:"authority"`
	// ServeRoot also serves the key set at "/" of that host.
	ServeRoot bool `mapstructure:"serve_root"`
	// IgnoreHost answers any Host; for a TLS terminator that rewrites it. The configured authority is signed all the same.
	IgnoreHost bool `mapstructure:"ignore_host"`
	// MaxAge is how long others may cache the directory, 1m to 24h.
	MaxAge time.Duration `mapstructure:"max_age"`
	// ProofLifetime is how long a directory signature is valid; it is renewed daily.
	ProofLifetime time.Duration `mapstructure:"proof_lifetime"`
}

// PublishDefaults is what absent keys of the `publish:` block mean.
func PublishDefaults() PublishConfig {
	return PublishConfig{ServeRoot: true, MaxAge: time.Hour, ProofLifetime: 7 * 24 * time.Hour}
}

// keyError is one problem of a configuration value.
type keyError struct{ key, text string }

func (e *keyError) Error() string { return e.text }

// Key is the path of the setting relative to its block, like `sites[0].host`.
func (e *keyError) Key() string { return e.key }

// problems collects them.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, &keyError{key, fmt.Sprintf(format, args...)})
}

func (p *problems) form(key, form string) {
	if form != FormDictionary && form != FormString {
		p.add(key, "%q is not one of dictionary, string", form)
	}
}

// Validate returns all problems joined; each has a method Key that names the setting.
func (c Config) Validate() error {
	var p problems
	p.form("form", c.Form)
	seen := map[string]int{}
	for i, s := range c.Sites {
		at := fmt.Sprintf("sites[%d].", i)
		p.form(at+"form", s.Form)
		host, port, err := splitPort(s.Host)
		if err == nil && port != "" {
			err = errors.New("a port is not allowed here")
		}
		if err == nil {
			host, err = normalHost(host)
		}
		if err != nil {
			p.add(at+"host", "%s", err)
			continue
		}
		if j, dup := seen[host]; dup {
			p.add(at+"host", "%s is already in sites[%d]", host, j)
		}
		seen[host] = i
	}
	if !isKey(c.Label) || len(c.Label) > maxLabel {
		p.add("label", "%q is not a label: a lower-case letter or *, then lower-case letters, digits, _ - . *, up to %d bytes", c.Label, maxLabel)
	}
	if c.Lifetime < minLifetime || c.Lifetime > maxLifetime || c.Lifetime%time.Second != 0 {
		p.add("lifetime", "%s is not a whole number of seconds from %s to %s", c.Lifetime, minLifetime, maxLifetime)
	}
	if c.Components != ComponentsMinimal && c.Components != ComponentsBound {
		p.add("components", "%q is not one of minimal, bound", c.Components)
	}
	return errors.Join(p...)
}

// Warnings names settings that are allowed but seldom right.
func (c Config) Warnings() []string {
	var w []string
	if c.AllowTestKey {
		w = append(w, "sign.allow_test_key: signatures made with a published test key prove nothing; anyone can make them")
	}
	return w
}

// Validate returns all problems joined; each has a method Key that names the setting.
func (c PublishConfig) Validate() error {
	var p problems
	if c.Authority != "" {
		if _, err := normalAuthority(c.Authority); err != nil {
			p.add("authority", "%s", err)
		}
	}
	if c.MaxAge < minMaxAge || c.MaxAge > maxMaxAge || c.MaxAge%time.Second != 0 {
		p.add("max_age", "%s is not a whole number of seconds from %s to %s", c.MaxAge, minMaxAge, maxMaxAge)
	}
	// What is handed out is at most a day old, and must stay valid well past every cache.
	if least := proofRenewal + 2*c.MaxAge; c.ProofLifetime < least || c.ProofLifetime > maxProofLifetime {
		p.add("proof_lifetime", "%s is not from %s (a day and two max_age) to %s", c.ProofLifetime, least, maxProofLifetime)
	}
	return errors.Join(p...)
}

// isKey tells whether s is a structured field key (RFC 8941 3.1.2).
func isKey(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c == '*':
		case i > 0 && (c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// siteForms answers which form a host gets, compiled from Config.
type siteForms struct {
	fallback string
	exact    map[string]string // host -> form
	below    map[string]string // host -> form for its subdomains
}

func newSiteForms(c Config) siteForms {
	f := siteForms{fallback: c.Form, exact: map[string]string{}, below: map[string]string{}}
	for _, s := range c.Sites {
		host, err := normalHost(s.Host)
		if err != nil {
			continue // Validate has refused it
		}
		f.exact[host] = s.Form
		if s.Subdomains {
			f.below[host] = s.Form
		}
	}
	return f
}

// form takes a normalised authority.
func (f siteForms) form(authority string) string {
	if len(f.exact) == 0 {
		return f.fallback
	}
	host := authority
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if form, ok := f.exact[host]; ok {
		return form
	}
	for {
		_, rest, found := strings.Cut(host, ".")
		if !found {
			return f.fallback
		}
		if form, ok := f.below[rest]; ok {
			return form
		}
		host = rest
	}
}
