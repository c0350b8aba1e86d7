package guard

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// ConfigHost reads a host entry of a configuration: a host as ParseHost takes
// it, a name with U-labels (converted by IDNA2008, non-transitional, mapped as
// for a lookup), an IPv6 address with or without brackets, or `*.` and a name
// for all hosts below that name, but not the name itself. Host.Name of a
// wildcard keeps the `*.`.
//
// The error is a *HostError: config_too_wide for `*` and for a wildcard over a
// public suffix, config_bad_glob for a star anywhere else, config_not_a_host
// for a URL or host:port, or what ParseHost gives.
func ConfigHost(raw string) (Host, error) {
	name, wild := strings.CutPrefix(raw, "*.")
	switch {
	case raw == "*":
		return Host{}, &HostError{classTooWide, "* matches every host"}
	case strings.Contains(name, "*"):
		return Host{}, &HostError{classBadGlob, fmt.Sprintf("%s: a star stands only in front, as *.name", quote(raw))}
	}
	h, err := configHost(name)
	if err != nil || !wild {
		return h, err
	}
	if h.IsLiteral() {
		return Host{}, &HostError{classBadGlob, fmt.Sprintf("%s: no hosts lie below an address", quote(raw))}
	}
	if suffix, _ := publicsuffix.PublicSuffix(h.Name); suffix == h.Name {
		return Host{}, &HostError{classTooWide, fmt.Sprintf("%s: %s is a public suffix, anybody can register below it", quote(raw), quote(h.Name))}
	}
	return Host{Name: "*." + h.Name}, nil
}

func configHost(raw string) (Host, error) {
	if a, err := netip.ParseAddr(raw); err == nil && a.Is6() {
		if a.Zone() != "" {
			return Host{}, &HostError{ClassZone, fmt.Sprintf("host %s has a zone", quote(raw))}
		}
		return hostOf(a), nil
	}
	if strings.ContainsAny(raw, "/@?#") || strings.Contains(raw, ":") && !strings.HasPrefix(raw, "[") {
		return Host{}, &HostError{classNotAHost, fmt.Sprintf("%s is not a host: scheme, port and path have no place here", quote(raw))}
	}
	if isASCII(raw) {
		return ParseHost(raw)
	}
	ascii, err := idna.Lookup.ToASCII(raw)
	if err != nil {
		return Host{}, malformed("host %s is not a valid international name", quote(raw))
	}
	h, err := ParseHost(ascii)
	if err == nil && h.IsLiteral() {
		// Fullwidth digits and the like: nobody writes an address so in good faith.
		return Host{}, &HostError{classAmbiguous, fmt.Sprintf("host %s turns into the address %s", quote(raw), h.Name)}
	}
	return h, err
}

// ConfigURL reads a URL that a person wrote: as ParseURL, but U-labels in the
// host are converted and a fragment is dropped.
func ConfigURL(raw string) (*url.URL, Host, uint16, error) {
	raw, _, _ = strings.Cut(raw, "#")
	return parseURL(raw, func(authority string, defaultPort uint16) (Host, uint16, error) {
		if strings.Contains(authority, "@") {
			return Host{}, 0, &HostError{classUserinfo, "user name or password in the URL"}
		}
		host, port := authority, ""
		if i := strings.LastIndexByte(authority, ':'); i >= 0 && i > strings.LastIndexByte(authority, ']') {
			host, port = authority[:i], authority[i:]
		}
		h, err := configHost(host)
		if err != nil {
			return Host{}, 0, err
		}
		return parseAuthority(h.Name+port, defaultPort)
	})
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
