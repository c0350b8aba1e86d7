package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sort"
)

// prefixSet is a set of addresses: sorted intervals that do not touch. IPv4-mapped addresses count as IPv4.
type prefixSet struct{ lo, hi []netip.Addr }

func newPrefixSet(prefixes []netip.Prefix) prefixSet {
	type span struct{ lo, hi netip.Addr }
	var spans []span
	for _, p := range prefixes {
		if p, ok := foldPrefix(p); ok {
			spans = append(spans, span{p.Addr(), lastOf4or6(p)})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.lo.Compare(b.lo) })
	var s prefixSet
	for _, x := range spans {
		n := len(s.hi)
		if n > 0 && s.hi[n-1].BitLen() == x.lo.BitLen() && x.lo.Compare(s.hi[n-1]) <= 0 {
			if s.hi[n-1].Less(x.hi) {
				s.hi[n-1] = x.hi
			}
			continue
		}
		s.lo, s.hi = append(s.lo, x.lo), append(s.hi, x.hi)
	}
	return s
}

// contains wants an unmapped address without zone.
func (s *prefixSet) contains(a netip.Addr) bool {
	i := sort.Search(len(s.lo), func(i int) bool { return a.Less(s.lo[i]) })
	return i > 0 && s.lo[i-1].BitLen() == a.BitLen() && a.Compare(s.hi[i-1]) <= 0
}

// foldPrefix masks host bits and gives the IPv4 form of a mapped prefix.
func foldPrefix(p netip.Prefix) (netip.Prefix, bool) {
	a, bits := p.Addr().WithZone(""), p.Bits()
	if a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	p = netip.PrefixFrom(a, bits)
	return p.Masked(), p.IsValid()
}

// lastOf4or6 is the last address of a masked prefix.
func lastOf4or6(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// parseRanges reads a published range file, in the form of googlebot.json.
func parseRanges(body []byte) ([]netip.Prefix, error) {
	var f struct {
		Prefixes *[]map[string]any `json:"prefixes"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, err
	}
	if f.Prefixes == nil {
		return nil, errors.New(`no list "prefixes"`)
	}
	var out []netip.Prefix
	for i, e := range *f.Prefixes {
		known := false
		for _, key := range []string{"ipv4Prefix", "ipv6Prefix"} {
			v, ok := e[key]
			if !ok {
				continue
			}
			text, _ := v.(string)
			p, err := ParsePrefix(text)
			if err != nil || p.Addr().Is4() != (key == "ipv4Prefix") && !p.Addr().Is4In6() {
				return nil, fmt.Errorf("prefixes[%d].%s: %q is not such a prefix", i, key, fmt.Sprint(v))
			}
			out, known = append(out, p), true
		}
		if !known {
			return nil, fmt.Errorf("prefixes[%d] has neither ipv4Prefix nor ipv6Prefix", i)
		}
	}
	return out, nil
}

// ParsePrefix reads a CIDR prefix, with host bits or without, or a single address.
func ParsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address prefix", s)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func readRanges(path string) ([]netip.Prefix, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := parseRanges(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
