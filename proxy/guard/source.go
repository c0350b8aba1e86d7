package guard

import (
	"errors"
	"hash/fnv"
	"net"
	"net/netip"

	"golang.org/x/net/publicsuffix"
)

// source is the local address for a host: always the same one for one
// registrable domain and family, whatever the site answered before. It is
// chosen by rendezvous hashing over the list, so that adding an address moves
// few domains. Invalid: the system's choice.
func (d *Dialer) source(h Host, to netip.Addr) netip.Addr {
	if len(d.sources) == 0 {
		return netip.Addr{}
	}
	domain := h.Name
	if !h.IsLiteral() {
		if r, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
			domain = r
		}
	}
	var best netip.Addr
	var most uint64
	for _, a := range d.sources {
		if a.Is4() != to.Is4() {
			continue
		}
		f := fnv.New64a()
		f.Write([]byte(domain))
		f.Write([]byte{0})
		f.Write(a.AsSlice())
		if n := mix(f.Sum64()); !best.IsValid() || n > most {
			best, most = a, n
		}
	}
	return best
}

// mix spreads the hash over all bits (the finisher of splitmix64): FNV alone
// hardly changes the high bits for a last byte that differs.
func mix(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// effectiveFamily narrows the family to those that have a source address: from
// an address that is not on the list nothing is sent.
func effectiveFamily(family string, sources []netip.Addr) string {
	var have4, have6 bool
	for _, a := range sources {
		have4, have6 = have4 || a.Is4(), have6 || a.Is6()
	}
	switch {
	case have4 && !have6:
		return "ipv4"
	case have6 && !have4:
		return "ipv6"
	}
	return family
}

// checkSources wants every source address to be one of this machine's. A
// datagram socket is bound and closed: nothing is sent and nothing listens.
func checkSources(sources []netip.Addr) error {
	var p problems
	for _, a := range sources {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		if err != nil {
			p.add("source_addresses", "this machine does not have the address %s", a)
			continue
		}
		c.Close()
	}
	return errors.Join(p...)
}
