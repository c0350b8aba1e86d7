package guard

import (
	"fmt"
	"net/netip"
	"slices"
)

// rules decide on one address and port. They never change after the load.
type rules struct {
	ports      []uint16
	exceptions []exception
	deny       []netip.Prefix
	nat64      []netip.Prefix
	noLiterals bool
}

type exception struct {
	prefix netip.Prefix
	ports  []uint16 // empty: the general ports
	name   string   // prefix and comment, for the log
}

// check judges one address and port in the order self, operator deny,
// exception, port, class. It returns Public and the exception that was used,
// or the class of the refusal. It does not allocate.
func (r *rules) check(self *selfSet, a netip.Addr, port uint16) (string, *exception) {
	if !a.IsValid() {
		return ClassInvalid, nil
	}
	if a.Is6() && a.Zone() != "" {
		return ClassZone, nil
	}
	a = a.Unmap()
	inner := a // what a NAT64 translator will connect to
	if a.Is6() && len(r.nat64) > 0 {
		for _, p := range r.nat64 {
			if !p.Contains(a) {
				continue
			}
			v4, ok := extract(a, p.Bits())
			if !ok {
				return ClassNAT64, nil
			}
			inner = v4
			break
		}
	}
	if self.has(a, port) || inner != a && self.has(inner, port) {
		return ClassSelf, nil
	}
	for _, p := range r.deny {
		if p.Contains(a) || p.Contains(inner) {
			return ClassOperator, nil
		}
	}
	class := Classify(inner)
	for i := range r.exceptions {
		e := &r.exceptions[i]
		if !e.prefix.Contains(a) && !e.prefix.Contains(inner) {
			continue
		}
		if class == ClassMetadata && !e.prefix.IsSingleIP() {
			continue
		}
		if len(e.ports) > 0 {
			if slices.Contains(e.ports, port) {
				return Public, e
			}
		} else if slices.Contains(r.ports, port) {
			return Public, e
		}
	}
	if !slices.Contains(r.ports, port) {
		return classPort, nil
	}
	return class, nil
}

// portOpen tells whether the port may be open on a host whose addresses are
// not known yet: in the general list, or in some exception.
func (r *rules) portOpen(port uint16) bool {
	if slices.Contains(r.ports, port) {
		return true
	}
	for i := range r.exceptions {
		if slices.Contains(r.exceptions[i].ports, port) {
			return true
		}
	}
	return false
}

// extract takes the IPv4 address out of a translated one as RFC 6052 2.2 lays
// it out: behind the prefix, skipping octet 8, which must be zero.
func extract(a netip.Addr, bits int) (netip.Addr, bool) {
	b := a.As16()
	if bits < 96 && b[8] != 0 {
		return netip.Addr{}, false
	}
	var v4 [4]byte
	for i, at := 0, bits/8; i < 4; i, at = i+1, at+1 {
		if at == 8 {
			at++
		}
		v4[i] = b[at]
	}
	return netip.AddrFrom4(v4), true
}

// parseNAT64 reads a translation prefix of one of the lengths of RFC 6052 2.2.
func parseNAT64(s string) (netip.Prefix, error) {
	p, err := parsePrefix(s)
	if err != nil {
		return p, err
	}
	if !p.Addr().Is6() || !slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Bits()) {
		return p, fmt.Errorf("%s is not an IPv6 prefix of length 32, 40, 48, 56, 64 or 96", quote(s))
	}
	if b := p.Addr().As16(); b[8] != 0 {
		return p, fmt.Errorf("%s: bits 64 to 71 must be zero (RFC 6052 2.2)", quote(s))
	}
	return p, nil
}
