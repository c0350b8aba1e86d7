package allowlist

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// canonicalHost gives the one spelling of a host: lower-case A-labels without a trailing dot, a dotted quad, or a
// bracketed IPv6 address in RFC 5952 form. U-labels are converted (IDNA2008, non-transitional, mapping as for lookup).
func canonicalHost(raw string) (string, error) {
	if strings.HasPrefix(raw, "[") || strings.Count(raw, ":") > 1 {
		a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(raw, "["), "]"))
		if err != nil || a.Zone() != "" || strings.HasPrefix(raw, "[") != strings.HasSuffix(raw, "]") {
			return "", fmt.Errorf("%q is not an IPv6 address", raw)
		}
		if a = a.Unmap(); a.Is4() {
			return a.String(), nil
		}
		return "[" + a.String() + "]", nil
	}
	h := raw
	if !isASCII(h) {
		var err error
		if h, err = idna.Lookup.ToASCII(h); err != nil {
			return "", fmt.Errorf("%q is not a valid internationalised host name", raw)
		}
	}
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	if h == "" {
		return "", errors.New("the host is empty")
	}
	if len(h) > 253 {
		return "", fmt.Errorf("host %.40q... is longer than 253 octets", h)
	}
	labels := strings.Split(h, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return "", fmt.Errorf("%q is not a host name: each label has 1 to 63 octets", raw)
		}
		for i := 0; i < len(l); i++ {
			c := l[i]
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return "", fmt.Errorf("%q is not a host name: only letters, digits, - and _ between the dots", raw)
			}
		}
	}
	if last := labels[len(labels)-1]; isNumber(last) {
		a, err := netip.ParseAddr(h)
		if err != nil || !a.Is4() || a.String() != strings.ToLower(raw) {
			return "", fmt.Errorf("%q is not a canonical IPv4 address: write it as four decimal numbers", raw)
		}
	}
	return h, nil
}

// isNumber is the "ends in a number" rule of the WHATWG URL standard for the last label of a host.
func isNumber(label string) bool {
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// hostPattern reads a host of the configuration: a host, or "*." and a host for every host below it. The result of a
// wildcard starts with "*.".
func hostPattern(raw string) (string, error) {
	if strings.Contains(raw, "/") || strings.Contains(raw, "@") {
		return "", fmt.Errorf("%q is not a host: write the bare name, such as example.com", raw)
	}
	rest, wild := strings.CutPrefix(raw, "*.")
	switch {
	case raw == "*":
		return "", errors.New(`"*" is every host: name the hosts`)
	case strings.Contains(rest, "*"):
		return "", fmt.Errorf("%q: a wildcard is one \"*.\" at the front", raw)
	}
	h, err := canonicalHost(rest)
	if err != nil {
		return "", err
	}
	if !wild {
		return h, nil
	}
	if isAddress(h) {
		return "", fmt.Errorf("%q: an address has no hosts below it", raw)
	}
	if suffix, _ := publicsuffix.PublicSuffix(h); suffix == h {
		return "", fmt.Errorf("%q covers a whole public suffix, the sites of many owners: name the domains", raw)
	}
	return "*." + h, nil
}

func isAddress(h string) bool {
	return strings.HasPrefix(h, "[") || h != "" && isNumber(h[strings.LastIndexByte(h, '.')+1:])
}

// siteOf is the registrable domain of a canonical host; an address, and a name without one, is its own.
func siteOf(host string) string {
	if isAddress(host) {
		return host
	}
	if s, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return s
	}
	return host
}

// splitPort splits the Host of a normalised URL. port is "" for the scheme's default.
func splitPort(hostport string) (host, port string) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || strings.HasSuffix(hostport, "]") {
		return hostport, ""
	}
	return hostport[:i], hostport[i+1:]
}

// isNormal is a cheap test that a URL's host has the one spelling already. False only means a closer look.
func isNormal(hostport string) bool {
	if hostport == "" || hostport[0] == '[' || strings.HasSuffix(hostport, ".") || strings.HasSuffix(hostport, ":") ||
		strings.HasSuffix(hostport, ":80") || strings.HasSuffix(hostport, ":443") {
		return false
	}
	for i := 0; i < len(hostport); i++ {
		c := hostport[i]
		if c >= 0x80 || 'A' <= c && c <= 'Z' || c <= ' ' || c == '%' || c == '.' && i+1 < len(hostport) && hostport[i+1] == ':' {
			return false
		}
	}
	return true
}

// normalise gives the normalised form of a URL that did not come through the gate's own parser: a link, a Location, a
// line of a sitemap, an entry of the configuration.
func normalise(u *url.URL) (*url.URL, error) {
	scheme := strings.ToLower(u.Scheme)
	if scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("%q is not an http or https URL", u.Redacted())
	}
	if u.Opaque != "" || u.Host == "" {
		return nil, fmt.Errorf("%q names no host", u.Redacted())
	}
	if u.User != nil {
		return nil, fmt.Errorf("%q carries a user name", u.Redacted())
	}
	name := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		name = "[" + name + "]"
	}
	host, err := canonicalHost(name)
	if err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" {
		n := 0
		for i := 0; i < len(port) && n <= 65535; i++ {
			n = n*10 + int(port[i]-'0')
		}
		if n < 1 || n > 65535 || port[0] == '0' {
			return nil, fmt.Errorf("port %s of %q is not between 1 and 65535", port, u.Redacted())
		}
		if scheme == "http" && n != 80 || scheme == "https" && n != 443 {
			host += ":" + port
		}
	}
	v := *u
	v.Scheme, v.Host, v.Fragment, v.RawFragment = scheme, host, "", ""
	if v.Path == "" {
		v.Path = "/"
	}
	return &v, nil
}

// hostKey is the key that rules of a host are found by. On default ports http and https are one; on another port the
// scheme belongs to it.
func hostKey(u *url.URL) string {
	if _, port := splitPort(u.Host); port != "" {
		return u.Scheme + "//" + u.Host
	}
	return u.Host
}

// appendURL appends the key of exactly one URL.
func appendURL(b []byte, u *url.URL) []byte {
	if _, port := splitPort(u.Host); port != "" {
		b = append(append(b, u.Scheme...), '/', '/')
	}
	b = append(b, u.Host...)
	return appendPage(b, u)
}

// wildKey is the key that wildcard rules above a host are found by, before its first label is taken off.
func wildKey(u *url.URL) string {
	host, port := splitPort(u.Host)
	if port != "" {
		return u.Scheme + "/" + port + "/" + host
	}
	return host
}
