package guard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// selfRefresh is how long the expansion of our own listeners is kept: the
// machine's addresses can change.
const selfRefresh = time.Minute

// selfAddress is an entry of self_addresses; port 0 stands for the ports of
// all own listeners.
type selfAddress struct {
	addr netip.Addr
	port uint16
}

func parseSelf(s string) (selfAddress, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 && ap.Addr().Zone() == "" {
		return selfAddress{ap.Addr().Unmap(), ap.Port()}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return selfAddress{a.Unmap(), 0}, nil
	}
	return selfAddress{}, fmt.Errorf("%s is not an address or address:port", quote(s))
}

// selfSet is where connections would come back to this process.
type selfSet struct {
	made time.Time
	// ports of own listeners, to leave quickly for all others
	ports []uint16
	exact map[netip.AddrPort]struct{}
	// wild are ports of wildcard listeners: all of 127.0.0.0/8 leads there
	wild []uint16
	// blind: the interfaces could not be read, so any address may be ours
	blind bool
}

func (s *selfSet) has(a netip.Addr, port uint16) bool {
	if s == nil || !slices.Contains(s.ports, port) {
		return false
	}
	if _, ok := s.exact[netip.AddrPortFrom(a, port)]; ok {
		return true
	}
	return slices.Contains(s.wild, port) && (s.blind || a.IsLoopback())
}

// buildSelf expands listeners. A wildcard listener answers on every address of
// the machine, and connecting to an unspecified address leads to loopback.
func buildSelf(listeners []netip.AddrPort, extra []selfAddress, interfaces func() ([]net.Addr, error)) (*selfSet, error) {
	s := &selfSet{made: time.Now(), exact: map[netip.AddrPort]struct{}{}}
	add := func(a netip.Addr, port uint16) {
		s.exact[netip.AddrPortFrom(a.Unmap().WithZone(""), port)] = struct{}{}
		if !slices.Contains(s.ports, port) {
			s.ports = append(s.ports, port)
		}
	}
	var bound []uint16
	for _, l := range listeners {
		a, port := l.Addr().Unmap(), l.Port()
		if !a.IsValid() || port == 0 {
			continue
		}
		bound = append(bound, port)
		add(a, port)
		if a.IsLoopback() || a.IsUnspecified() {
			add(netip.IPv4Unspecified(), port)
			add(netip.IPv6Unspecified(), port)
		}
		if a.IsUnspecified() {
			s.wild = append(s.wild, port)
		}
	}
	for _, e := range extra {
		if e.port != 0 {
			add(e.addr, e.port)
			continue
		}
		for _, port := range bound {
			add(e.addr, port)
		}
	}
	if len(s.wild) == 0 {
		return s, nil
	}
	list, err := interfaces()
	if err != nil {
		s.blind = true
		return s, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	for _, ifa := range list {
		ipnet, ok := ifa.(*net.IPNet)
		if !ok {
			continue
		}
		a, ok := netip.AddrFromSlice(ipnet.IP)
		if !ok {
			continue
		}
		for _, port := range s.wild {
			add(a, port)
		}
	}
	return s, nil
}
