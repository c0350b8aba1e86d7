package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Bounds and defaults of the configuration.
const (
	DefaultDNSTimeout = 5 * time.Second
	MaxDNSCache       = 30 * time.Second
	maxDNSTimeout     = time.Minute

	minExceptionBits4 = 8  // an exception wider than this is refused
	minExceptionBits6 = 16 // the same for IPv6
)

// Config is the `egress:` block.
type Config struct {
	// Ports open on public addresses; replaces the default list.
	Ports []int `mapstructure:"ports"`
	// AllowPrivate are the exceptions to the address classes.
	AllowPrivate []Exception `mapstructure:"allow_private"`
	// Deny are prefixes that are refused, over every exception.
	Deny []string `mapstructure:"deny"`
	// DenyHosts are hosts that are refused for everybody. They are checked
	// here and enforced by package allowlist.
	DenyHosts []string `mapstructure:"deny_hosts"`
	// NAT64Prefixes are the network's own translation prefixes (RFC 6052):
	// addresses in them are judged by the IPv4 address they carry.
	NAT64Prefixes []string `mapstructure:"nat64_prefixes"`
	// SelfAddresses lead back to this machine from outside (NAT hairpin): an
	// address, for the ports of our own listeners, or address:port.
	SelfAddresses []string `mapstructure:"self_addresses"`
	// IPLiterals is allow or deny: whether a request may name an address.
	IPLiterals string `mapstructure:"ip_literals"`
	// Hosts are static answers, lines as in /etc/hosts: ADDRESS NAME...
	Hosts []string `mapstructure:"hosts"`
	// DNS are the name servers, address or address:port; empty: the system's.
	DNS []string `mapstructure:"dns"`
	// DNSTimeout bounds one lookup.
	DNSTimeout time.Duration `mapstructure:"dns_timeout"`
	// DNSCache keeps an answer that passed whole; 0 keeps none, at most 30s.
	DNSCache time.Duration `mapstructure:"dns_cache"`
	// Family is both, ipv4 or ipv6.
	Family string `mapstructure:"family"`
	// Via adds our Via field to requests (read by package proxy).
	Via bool `mapstructure:"via"`
	// UniformRefusals answers refused addresses and failed lookups of names
	// alike, so that a client cannot map internal names (read by package proxy).
	UniformRefusals bool `mapstructure:"uniform_refusals"`
	// SourceAddresses are the local addresses to dial from; empty: the
	// system's choice. One registrable domain always gets the same one.
	SourceAddresses []string `mapstructure:"source_addresses"`
	// RootCAFile holds extra roots for origins (loaded by package proxy).
	RootCAFile string `mapstructure:"root_ca_file"`
}

// An Exception opens addresses that their class would refuse. A metadata
// address is covered only by a prefix that is that one address.
type Exception struct {
	// Prefix is the address range, or one address.
	Prefix string `mapstructure:"prefix"`
	// Ports: exactly these are open there. Empty: the ports of `egress.ports`.
	Ports []int `mapstructure:"ports"`
	// Comment is logged with each use.
	Comment string `mapstructure:"comment"`
}

// UnmarshalText reads the short form of an exception: the prefix alone.
func (e *Exception) UnmarshalText(text []byte) error {
	*e = Exception{Prefix: string(text)}
	return nil
}

// Defaults is what absent keys mean.
func Defaults() Config {
	return Config{
		Ports:      []int{portHTTP, portHTTPS},
		IPLiterals: "allow",
		DNSTimeout: DefaultDNSTimeout,
		Family:     "both",
	}
}

// Validate finds everything that is wrong with the configuration. The errors
// are joined; each has a method Key() string, the path of the key below
// `egress`.
func (c Config) Validate() error {
	_, err := compile(c)
	return err
}

// Warnings are things that are allowed but rarely meant.
func (c Config) Warnings() []string {
	var out []string
	opened := len(c.Ports) > 0
	for i, e := range c.AllowPrivate {
		opened = opened || len(e.Ports) > 0
		if p, err := parsePrefix(e.Prefix); err == nil && p.Bits() < p.Addr().BitLen()-16 && len(e.Ports) == 0 {
			out = append(out, fmt.Sprintf("allow_private[%d]: %s opens more than 65,536 addresses; name ports or a narrower prefix", i, p))
		}
	}
	if !opened {
		out = append(out, "ports: no port is open, every request will be refused")
	}
	return out
}

// keyError is a problem of one configuration key.
type keyError struct{ key, text string }

func (e *keyError) Error() string { return e.text }

// Key is the path of the key below this package's block.
func (e *keyError) Key() string { return e.key }

// compiled is the configuration in the form that the dialer reads.
type compiled struct {
	rules   rules
	hosts   map[string][]netip.Addr
	servers []string      // host:port
	sources []netip.Addr  // sorted
	self    []selfAddress // from self_addresses
}

// problems collects what is wrong, by key.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, &keyError{key, fmt.Sprintf(format, args...)})
}

func compile(c Config) (*compiled, error) {
	var p problems
	out := &compiled{}
	out.rules.noLiterals = c.IPLiterals == "deny"
	out.rules.ports = compilePorts(&p, "ports", c.Ports)
	out.rules.exceptions = compileExceptions(&p, c.AllowPrivate)
	for i, s := range c.Deny {
		prefix, err := parsePrefix(s)
		if err != nil {
			p.add(fmt.Sprintf("deny[%d]", i), "%v", err)
			continue
		}
		out.rules.deny = append(out.rules.deny, prefix)
	}
	for i, s := range c.DenyHosts {
		if _, err := ConfigHost(s); err != nil {
			p.add(fmt.Sprintf("deny_hosts[%d]", i), "%v", err)
		}
	}
	for i, s := range c.NAT64Prefixes {
		prefix, err := parseNAT64(s)
		if err != nil {
			p.add(fmt.Sprintf("nat64_prefixes[%d]", i), "%v", err)
			continue
		}
		out.rules.nat64 = append(out.rules.nat64, prefix)
	}
	for i, s := range c.SelfAddresses {
		a, err := parseSelf(s)
		if err != nil {
			p.add(fmt.Sprintf("self_addresses[%d]", i), "%v", err)
			continue
		}
		out.self = append(out.self, a)
	}
	oneOf(&p, "ip_literals", c.IPLiterals, "allow", "deny")
	oneOf(&p, "family", c.Family, "both", "ipv4", "ipv6")
	out.hosts = compileHosts(&p, c.Hosts)
	for i, s := range c.DNS {
		server, err := parseServer(s)
		if err != nil {
			p.add(fmt.Sprintf("dns[%d]", i), "%v", err)
			continue
		}
		out.servers = append(out.servers, server)
	}
	if c.DNSTimeout <= 0 || c.DNSTimeout > maxDNSTimeout {
		p.add("dns_timeout", "%v is not above 0s and at most %v", c.DNSTimeout, maxDNSTimeout)
	}
	if c.DNSCache < 0 || c.DNSCache > MaxDNSCache {
		p.add("dns_cache", "%v is not from 0s to %v", c.DNSCache, MaxDNSCache)
	}
	out.sources = compileSources(&p, c.SourceAddresses, c.Family)
	if strings.ContainsRune(c.RootCAFile, 0) {
		p.add("root_ca_file", "is not a file name")
	}
	return out, errors.Join(p...)
}

func compilePorts(p *problems, key string, list []int) []uint16 {
	out := make([]uint16, 0, len(list))
	for i, n := range list {
		if n < 1 || n > 65535 {
			p.add(fmt.Sprintf("%s[%d]", key, i), "%d is not a port from 1 to 65535", n)
			continue
		}
		if slices.Contains(out, uint16(n)) {
			p.add(fmt.Sprintf("%s[%d]", key, i), "port %d stands there twice", n)
			continue
		}
		out = append(out, uint16(n))
	}
	return out
}

func compileExceptions(p *problems, list []Exception) []exception {
	var out []exception
	for i, e := range list {
		key := fmt.Sprintf("allow_private[%d]", i)
		prefix, err := parsePrefix(e.Prefix)
		if err != nil {
			p.add(key+".prefix", "%v", err)
			continue
		}
		least := minExceptionBits4
		if prefix.Addr().Is6() {
			least = minExceptionBits6
		}
		if prefix.Bits() < least {
			p.add(key+".prefix", "%s is wider than /%d", e.Prefix, least)
			continue
		}
		out = append(out, exception{prefix: prefix, ports: compilePorts(p, key+".ports", e.Ports), name: exceptionName(prefix, e.Comment)})
	}
	return out
}

func exceptionName(p netip.Prefix, comment string) string {
	if comment == "" {
		return p.String()
	}
	return p.String() + " (" + comment + ")"
}

func compileHosts(p *problems, lines []string) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for i, line := range lines {
		key := fmt.Sprintf("hosts[%d]", i)
		text, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(text)
		if len(fields) < 2 {
			p.add(key, "%s is not ADDRESS NAME", quote(line))
			continue
		}
		a, err := netip.ParseAddr(fields[0])
		if err != nil || a.Zone() != "" {
			p.add(key, "%s is not an address", quote(fields[0]))
			continue
		}
		a = a.Unmap()
		for _, name := range fields[1:] {
			h, err := ConfigHost(name)
			switch {
			case err != nil:
				p.add(key, "%v", err)
			case h.IsLiteral() || strings.HasPrefix(h.Name, "*"):
				p.add(key, "%s is not a name", quote(name))
			case !slices.Contains(out[h.Name], a):
				out[h.Name] = append(out[h.Name], a)
			}
		}
	}
	return out
}

func compileSources(p *problems, list []string, family string) []netip.Addr {
	var out []netip.Addr
	for i, s := range list {
		key := fmt.Sprintf("source_addresses[%d]", i)
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast():
			p.add(key, "%s is not an address to dial from", quote(s))
		case a.Is4In6():
			p.add(key, "write %s as %s", quote(s), a.Unmap())
		case family == "ipv4" && !a.Is4(), family == "ipv6" && a.Is4():
			p.add(key, "%s can never be used, family is %s", a, family)
		case slices.Contains(out, a):
			p.add(key, "%s stands there twice", a)
		default:
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func oneOf(p *problems, key, value string, words ...string) {
	if !slices.Contains(words, value) {
		p.add(key, "%s is not one of %s", quote(value), strings.Join(words, ", "))
	}
}

// parsePrefix reads a prefix, or an address as the prefix of that one address.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, aerr := netip.ParseAddr(s)
		if aerr != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s is not a prefix", quote(s))
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s: write it as an IPv4 prefix, mapped addresses count as IPv4", quote(s))
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits set behind the prefix, write %s", quote(s), m)
	}
	return p, nil
}

// parseServer reads ADDRESS or ADDRESS:PORT of a name server.
func parseServer(s string) (string, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 {
		return ap.String(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 53).String(), nil
	}
	return "", fmt.Errorf("%s is not an address or address:port", quote(s))
}
