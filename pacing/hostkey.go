package pacing

import (
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// HostKey is the key of a host as it may be spelled in an authority: lower case, without trailing dot and port, IPv6
// in brackets and canonical. Names are expected as A-labels already.
func HostKey(host string) string {
	h := strings.ToLower(host)
	if i := strings.LastIndexByte(h, ':'); i >= 0 && (strings.IndexByte(h, ':') == i || h[0] == '[') {
		if name, _, err := net.SplitHostPort(h); err == nil {
			h = name
		}
	}
	h = strings.TrimSuffix(h, ".")
	if a, err := netip.ParseAddr(strings.Trim(h, "[]")); err == nil {
		if a = a.Unmap(); a.Is4() {
			return a.String()
		}
		return "[" + a.String() + "]"
	}
	return h
}

// DomainKey is the registrable domain (eTLD+1, private suffixes count) of a canonical host: an address is its own
// domain, and so is a bare public suffix.
func DomainKey(host string) string {
	if strings.HasPrefix(host, "[") {
		return host
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	d, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return d
}

// Names of the wider keys in the one map: neither can be a host.
func domainName(domain string) string { return "*." + domain }

// scope is what a key stands for.
type scope uint8

const (
	scopeHost scope = iota
	scopeDomain
	scopeAddress
)

func scopeOf(name string) scope {
	switch {
	case name != "" && name[0] == '*':
		return scopeDomain
	case name != "" && name[0] == '@':
		return scopeAddress
	}
	return scopeHost
}

func addrName(a netip.Addr) string {
	a = a.Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return "@" + p.String()
		}
	}
	return "@" + a.String()
}
