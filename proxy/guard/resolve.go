package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"
)

// resolver asks DNS. It never uses libc: no inet_aton spellings, no mDNS, the
// same behaviour on every build.
type resolver struct {
	network string   // ip, ip4 or ip6
	servers []string // one empty entry: the system's configuration
}

func newResolver(servers []string, family string) *resolver {
	r := &resolver{network: "ip", servers: servers}
	switch family {
	case "ipv4":
		r.network = "ip4"
	case "ipv6":
		r.network = "ip6"
	}
	if len(servers) == 0 {
		r.servers = []string{""}
	}
	return r
}

// lookup asks the servers in turn until one gives an answer that counts: the
// next one is asked after a time-out or a failure, not after "no such name".
// Each gets an equal share of the time that is left.
func (r *resolver) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	var err error
	for i, server := range r.servers {
		var addrs []netip.Addr
		addrs, err = r.ask(ctx, server, name, len(r.servers)-i)
		if err == nil {
			return addrs, nil
		}
		var e *ResolveError
		if errors.As(err, &e) && e.NotFound || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// ask puts the question to one server, the name with a trailing dot: no search
// list may turn it into another name. The net.Resolver is new each time, since
// one that is kept shares the answer between dials that overlap.
func (r *resolver) ask(ctx context.Context, server, name string, left int) ([]netip.Addr, error) {
	asked := &asked{server: server}
	if deadline, ok := ctx.Deadline(); ok {
		share := time.Until(deadline) / time.Duration(left)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
		asked.patience = share / tries(server)
	}
	one := net.Resolver{PreferGo: true, Dial: asked.dial}
	addrs, err := one.LookupNetIP(ctx, r.network, name+".")
	if err != nil {
		return nil, resolveError(name, err, asked.rcode())
	}
	out := addrs[:0]
	seen := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if a = a.Unmap(); !seen[a] { // LookupNetIP gives IPv4 answers as mapped ones
			seen[a] = true
			out = append(out, a)
		}
	}
	return out, nil
}

// resolveError names what net.Resolver says. rcode is what the server said,
// where that was seen: net.Resolver does not tell "no such name" from "no
// address of this name".
func resolveError(name string, err error, rcode string) *ResolveError {
	out := &ResolveError{Class: classDNSError, Host: name, Err: err}
	var e *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &e) && e.IsTimeout:
		out.Class = classDNSTimeout
	case errors.As(err, &e) && e.IsNotFound && rcode == noError:
		out.NotFound = true
		out.Class = classDNSNoAddress
	default:
		out.NotFound = e != nil && e.IsNotFound
		if rcode != noError {
			out.RCode = rcode
		}
	}
	return out
}

// Resolve finds and checks the addresses of a host for a port, as a dial would,
// in the order in which they would be dialled. host is a canonical name or an
// address, with or without brackets. At most one lookup is made; every address
// of the answer must pass.
//
// The error is a *HostError, *Denied or *ResolveError, or wraps the context's
// error when the caller gave up.
func (d *Dialer) Resolve(ctx context.Context, host string, port uint16) ([]netip.Addr, error) {
	h, err := dialHost(host)
	if err != nil {
		return nil, err
	}
	set, err := d.resolve(ctx, h, port)
	if err != nil {
		return nil, err
	}
	return addresses(set), nil
}

// dialHost reads a host as it stands in a dial address, where IPv6 has lost
// its brackets.
func dialHost(host string) (Host, error) {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + strings.Replace(host, "%", "%25", 1) + "]"
	}
	return ParseHost(host)
}

func (d *Dialer) resolve(ctx context.Context, h Host, port uint16) ([]checked, error) {
	if h.IsLiteral() {
		one, err := d.checkLiteral(h, port)
		if err != nil {
			return nil, err
		}
		return d.wanted(h, []checked{one})
	}
	if err := d.CheckHost(h, port); err != nil {
		return nil, err
	}
	if !d.rules.portOpen(port) { // no lookup for a port that nothing opens
		return nil, &Denied{Class: classPort, Host: h.Name, Port: port}
	}
	addrs, kept := d.hosts[h.Name]
	static := kept
	if !static {
		addrs, kept = d.cache.get(h.Name)
	}
	if !kept {
		var err error
		if addrs, err = d.ask(ctx, h); err != nil {
			return nil, err
		}
	}
	set, err := d.checkSet(h, port, addrs)
	if err != nil {
		d.cache.drop(h.Name)
		return nil, err
	}
	if !kept {
		d.cache.put(h.Name, addrs)
	}
	return d.wanted(h, set)
}

// ask makes the one lookup of a dial.
func (d *Dialer) ask(ctx context.Context, h Host) ([]netip.Addr, error) {
	lctx, cancel := context.WithTimeout(ctx, d.dnsTimeout)
	defer cancel()
	addrs, err := d.lookup(lctx, h.Name)
	if err == nil {
		return addrs, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, canceled("resolve", h, ctx)
	}
	var e *ResolveError
	if !errors.As(err, &e) {
		e = resolveError(h.Name, err, "")
	}
	return nil, e
}

// wanted keeps the addresses of the families that are in use. The whole set
// was checked before.
func (d *Dialer) wanted(h Host, set []checked) ([]checked, error) {
	if d.family == "both" {
		return set, nil
	}
	out := make([]checked, 0, len(set))
	for _, c := range set {
		if c.addr.Is4() == (d.family == "ipv4") {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, &ResolveError{Class: classDNSNoAddress, Host: h.Name, NotFound: true, Err: errFamily}
	}
	return out, nil
}

var errFamily = errors.New("no address of the family that egress.family and egress.source_addresses leave")

func addresses(set []checked) []netip.Addr {
	out := make([]netip.Addr, len(set))
	for i, c := range set {
		out[i] = c.addr
	}
	return out
}
