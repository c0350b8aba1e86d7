// Package guard decides which network addresses may be reached, and dials only
// those: it reads the host of a request in one spelling, refuses addresses
// that are not public, and connects to the very address it has checked.
//
//	d, err := guard.New(guard.Defaults(), logger)
//	...
//	transport := &http.Transport{Proxy: nil, DialContext: d.DialContext}
//
// A name is resolved once for each dial. Every address of the answer is
// checked; if one is refused the name is refused, and no other answer is
// tried. What is dialled is a checked address, never the name, and a hook
// checks the socket's address again before it connects. So an answer that
// changes between check and use (DNS rebinding) changes nothing.
package guard

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Dialer judges destinations and connects to them. It is safe for concurrent
// use; a new configuration makes a new Dialer.
type Dialer struct {
	rules   rules
	hosts   map[string][]netip.Addr
	sources []netip.Addr
	family  string
	log     *slog.Logger

	lookup      func(ctx context.Context, name string) ([]netip.Addr, error)
	dnsTimeout  time.Duration
	cache       *answers
	dialAddr    func(ctx context.Context, t target) (net.Conn, error)
	nat64Hinted atomic.Int64 // unix seconds of the last hint

	extraSelf  []selfAddress
	interfaces func() ([]net.Addr, error)
	self       atomic.Pointer[selfSet]
	selfMu     sync.Mutex // one refresh at a time
	listeners  func() []netip.AddrPort
}

// New makes a Dialer. It fails on what Validate finds and on a source address
// that this machine does not have. log may be nil.
func New(c Config, log *slog.Logger) (*Dialer, error) {
	cc, err := compile(c)
	if err != nil {
		return nil, err
	}
	if err := checkSources(cc.sources); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Dialer{
		rules:      cc.rules,
		hosts:      cc.hosts,
		sources:    cc.sources,
		family:     effectiveFamily(c.Family, cc.sources),
		log:        log,
		dnsTimeout: c.DNSTimeout,
		cache:      newAnswers(c.DNSCache),
		extraSelf:  cc.self,
		interfaces: net.InterfaceAddrs,
	}
	d.lookup = newResolver(cc.servers, d.family).lookup
	d.dialAddr = d.dialChecked
	d.refreshSelf()
	return d, nil
}

// SetSelf names the listeners of this process (proxy, admin, publish, those of
// clients), so that no request leads back to them. A wildcard listener stands
// for every address of the machine. listeners is called at once and then about
// once a minute, while requests are judged; call SetSelf again when a listener
// was opened and must count at once.
func (d *Dialer) SetSelf(listeners func() []netip.AddrPort) {
	d.selfMu.Lock()
	d.listeners = listeners
	d.selfMu.Unlock()
	d.refreshSelf()
}

func (d *Dialer) refreshSelf() {
	d.selfMu.Lock()
	defer d.selfMu.Unlock()
	d.buildSelfLocked()
}

func (d *Dialer) buildSelfLocked() {
	var own []netip.AddrPort
	if d.listeners != nil {
		own = d.listeners()
	}
	s, err := buildSelf(own, d.extraSelf, d.interfaces)
	if err != nil {
		d.log.Error("own addresses unknown, ports of wildcard listeners are refused everywhere", "error", err)
	}
	d.self.Store(s)
}

// selfNow is the current set, rebuilt when it is old. While one caller
// rebuilds, the others go on with the old one.
func (d *Dialer) selfNow() *selfSet {
	s := d.self.Load()
	if time.Since(s.made) < selfRefresh || !d.selfMu.TryLock() {
		return s
	}
	defer d.selfMu.Unlock()
	d.buildSelfLocked()
	return d.self.Load()
}

// CheckPort tells whether the port may be open on the host, before anything is
// resolved. A port that only an exception opens passes for a name; the dial
// then wants every address of the name to be covered. The error is a *Denied
// of class port_denied, or addr_self when the host is an address and the port
// one of our own listeners.
func (d *Dialer) CheckPort(h Host, port uint16) error {
	known := d.hosts[h.Name]
	if h.IsLiteral() {
		known = []netip.Addr{h.Addr}
	}
	if len(known) == 0 {
		if !d.rules.portOpen(port) {
			return &Denied{Class: classPort, Host: h.Name, Port: port}
		}
		return nil
	}
	self := d.selfNow()
	for _, a := range known {
		switch class, _ := d.rules.check(self, a, port); class {
		case classPort:
			return &Denied{Class: classPort, Host: h.Name, Port: port, Literal: h.IsLiteral()}
		case ClassSelf:
			return &Denied{Class: ClassSelf, Host: h.Name, Port: port, Addr: a, Literal: h.IsLiteral()}
		}
	}
	return nil
}

// CheckHost judges what can be judged without the network: an address by all
// rules, a name by the names that never are public sites. Names of
// `egress.hosts` pass here; their addresses are judged at the dial. The error
// is a *Denied, or a *HostError for a Host that no parser of this package made.
func (d *Dialer) CheckHost(h Host, port uint16) error {
	if h.IsLiteral() {
		_, err := d.checkLiteral(h, port)
		return err
	}
	if h.Name == "" || strings.HasPrefix(h.Name, "*") {
		return malformed("no host")
	}
	if _, ok := d.hosts[h.Name]; ok {
		return nil
	}
	if class := nameClass(h.Name); class != "" {
		return &Denied{Class: class, Host: h.Name, Port: port}
	}
	return nil
}

// CheckAnswers judges a host as if its name had resolved to these addresses,
// without the network. An address as host is judged by itself. The error is a
// *Denied or a *ResolveError of class dns_no_address.
func (d *Dialer) CheckAnswers(h Host, port uint16, answers []netip.Addr) error {
	if err := d.CheckHost(h, port); err != nil || h.IsLiteral() {
		return err
	}
	_, err := d.checkSet(h, port, answers)
	return err
}

// checked is an address that passed, with the exception that let it.
type checked struct {
	addr      netip.Addr
	exception *exception
}

func (d *Dialer) checkLiteral(h Host, port uint16) (checked, error) {
	class, ex := d.rules.check(d.selfNow(), h.Addr, port)
	if class == Public && d.rules.noLiterals {
		class = ClassLiteral
	}
	if class != Public {
		d.hintNAT64(class, h)
		return checked{}, &Denied{Class: class, Host: h.Name, Port: port, Addr: h.Addr, Literal: true}
	}
	return checked{h.Addr, ex}, nil
}

// checkSet wants every address of an answer to pass: a mixed answer is refused
// whole, or the next attempt of Happy Eyeballs would reach the bad one.
func (d *Dialer) checkSet(h Host, port uint16, addrs []netip.Addr) ([]checked, error) {
	if len(addrs) == 0 {
		return nil, &ResolveError{Class: classDNSNoAddress, Host: h.Name, NotFound: true}
	}
	self := d.selfNow()
	out := make([]checked, len(addrs))
	for i, a := range addrs {
		class, ex := d.rules.check(self, a, port)
		if class != Public {
			d.hintNAT64(class, h)
			return nil, &Denied{Class: class, Host: h.Name, Port: port, Addr: a, Resolved: addrs}
		}
		out[i] = checked{a, ex}
	}
	return out, nil
}

// hintNAT64 tells the operator of a DNS64 network, where every IPv4-only site
// is refused, which setting ends that; at most once a minute.
func (d *Dialer) hintNAT64(class string, h Host) {
	if class != ClassNAT64 {
		return
	}
	now, last := time.Now().Unix(), d.nat64Hinted.Load()
	if now-last < 60 || !d.nat64Hinted.CompareAndSwap(last, now) {
		return
	}
	d.log.Warn("an answer is a NAT64 address; if this network uses DNS64, list its prefix in egress.nat64_prefixes", "host", h.Name)
}

// special are the top names below which no public web site lives, the names
// themselves included (RFC 6761, 6762, 7686, 8375, 9476; .internal is reserved
// by ICANN for private use; localdomain is a common alias of loopback).
var special = []string{
	"localhost", "localdomain", "local", "internal", "home.arpa", "onion",
	"invalid", "alt", "in-addr.arpa", "ip6.arpa",
}

// nameClass is host_special_use, host_single_label or "".
func nameClass(name string) string {
	for _, s := range special {
		if rest, ok := strings.CutSuffix(name, s); ok && (rest == "" || rest[len(rest)-1] == '.') {
			return classSpecialUse
		}
	}
	if !strings.Contains(name, ".") {
		return classSingleLabel
	}
	return ""
}
