package guard

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of a host name (RFC 1035 2.3.4), in octets, without the trailing dot.
const (
	maxName  = 253
	maxLabel = 63
)

// A Host is the host part of an authority in its one canonical spelling.
type Host struct {
	// Name is lower case, ASCII, without a trailing dot; an IPv6 address is in
	// the form of RFC 5952 in brackets, an IPv4-mapped one is the IPv4 address.
	Name string
	// Addr is the address when the host is one (valid, unmapped, no zone).
	Addr netip.Addr
}

// IsLiteral tells whether the host is an address, not a name.
func (h Host) IsLiteral() bool { return h.Addr.IsValid() }

// Key is host:port, the port always written: one key for each origin server.
func (h Host) Key(port uint16) string {
	return h.Name + ":" + strconv.FormatUint(uint64(port), 10)
}

// ParseHost reads the host part of an authority as it came over the wire: a
// name of letters, digits, `-`, `_` and `.`, a canonical dotted quad, or an
// IPv6 address in brackets. It judges spelling only: `localhost` and 127.0.0.1
// parse, Dialer.CheckHost refuses them.
//
// The error is a *HostError of class host_malformed, host_ambiguous_ipv4 (the
// host ends in a number, WHATWG URL 3.5, and is no canonical dotted quad) or
// addr_zone.
func ParseHost(raw string) (Host, error) {
	if strings.HasPrefix(raw, "[") {
		return parseBracketed(raw)
	}
	if raw == "" {
		return Host{}, malformed("empty host")
	}
	for i := 0; i < len(raw); i++ {
		if c := raw[i]; !nameByte(c) {
			return Host{}, malformed("host %s holds %s", quoteTarget(raw), quoteByte(c))
		}
	}
	name := strings.ToLower(raw)
	dotted := strings.HasSuffix(name, ".")
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxName {
		return Host{}, malformed("host is longer than %d octets", maxName)
	}
	last := ""
	for rest, more := name, true; more; {
		last, rest, more = strings.Cut(rest, ".")
		if last == "" {
			return Host{}, malformed("host %s has an empty label", quoteTarget(raw))
		}
		if len(last) > maxLabel {
			return Host{}, malformed("host %s has a label longer than %d octets", quoteTarget(raw), maxLabel)
		}
	}
	if endsInNumber(last) {
		a, err := netip.ParseAddr(name)
		if err != nil || dotted {
			return Host{}, &HostError{classAmbiguous, fmt.Sprintf("host %s ends in a number and is not a plain IPv4 address", quoteTarget(raw))}
		}
		return Host{Name: name, Addr: a}, nil
	}
	return Host{Name: name}, nil
}

// parseBracketed reads `[IPv6]`. A zone must be written as in a URI, `%25zone`
// (RFC 6874), to be seen as one; it is refused all the same.
func parseBracketed(raw string) (Host, error) {
	if len(raw) < 4 || raw[len(raw)-1] != ']' {
		return Host{}, malformed("host %s is not an IPv6 address in brackets", quoteTarget(raw))
	}
	text, zone, zoned := strings.Cut(raw[1:len(raw)-1], "%")
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is6() {
		return Host{}, malformed("host %s is not an IPv6 address in brackets", quoteTarget(raw))
	}
	if zoned {
		if rest, ok := strings.CutPrefix(zone, "25"); ok && rest != "" && isName(rest) {
			return Host{}, &HostError{ClassZone, fmt.Sprintf("host %s has a zone", quoteTarget(raw))}
		}
		return Host{}, malformed("host %s holds a bare percent sign", quoteTarget(raw))
	}
	return hostOf(a), nil
}

// hostOf is the canonical host of an address without a zone.
func hostOf(a netip.Addr) Host {
	a = a.Unmap()
	if a.Is4() {
		return Host{Name: a.String(), Addr: a}
	}
	return Host{Name: "[" + a.String() + "]", Addr: a}
}

// endsInNumber is the "ends in a number" rule of the WHATWG URL standard for
// the last label, in lower case: such a host is an IPv4 address to many
// parsers, whatever DNS says.
func endsInNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !nameByte(s[i]) {
			return false
		}
	}
	return true
}

func malformed(format string, args ...any) *HostError {
	return &HostError{classMalformed, fmt.Sprintf(format, args...)}
}

// quoteTarget quotes what a client sent as target or host without what may be a secret in it: query, fragment and user
// info. Refusals and the log show it.
func quoteTarget(s string) string {
	cut := ""
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		s, cut = s[:i], "..."
	}
	return quote(s[strings.LastIndexByte(s, '@')+1:]) + cut
}

// quote makes hostile text printable and short.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

func quoteByte(c byte) string {
	if c >= 0x80 {
		return "a character that is not ASCII"
	}
	return strconv.QuoteRuneToASCII(rune(c))
}
