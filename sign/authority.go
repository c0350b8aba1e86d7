package sign

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

const (
	maxAgentURL  = 255 // bytes of a Signature-Agent value
	maxAuthority = 261 // bytes: a DNS name and a port
)

// normalAuthority gives the authority of an https request in the form that is signed (RFC 9421 2.2.3): lower case,
// A-labels, no trailing dot, no default port, IPv6 in brackets.
func normalAuthority(raw string) (string, error) {
	return normalAuthorityFor("https", raw)
}

// normalAuthorityFor is normalAuthority for a scheme, http or https.
func normalAuthorityFor(scheme, raw string) (string, error) {
	if raw == "" {
		return "", errors.New("no host")
	}
	if len(raw) > 4*maxAuthority {
		return "", errors.New("host is too long")
	}
	host, port, err := splitPort(raw)
	if err != nil {
		return "", err
	}
	if host, err = normalHost(host); err != nil {
		return "", err
	}
	if port == "" || port == defaultPort(scheme) {
		return host, nil
	}
	return host + ":" + port, nil
}

func defaultPort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}

// splitPort cuts host and port; the port is checked and comes back without leading zeros refused, "" when absent.
func splitPort(raw string) (host, port string, err error) {
	host = raw
	if strings.HasPrefix(raw, "[") {
		end := strings.IndexByte(raw, ']')
		if end < 0 {
			return "", "", fmt.Errorf("host %q: missing ]", raw)
		}
		host, port = raw[:end+1], raw[end+1:]
		if port != "" && port[0] != ':' {
			return "", "", fmt.Errorf("host %q: text after ]", raw)
		}
		port = strings.TrimPrefix(port, ":")
	} else if i := strings.IndexByte(raw, ':'); i >= 0 {
		host, port = raw[:i], raw[i+1:]
		if strings.IndexByte(port, ':') >= 0 {
			return "", "", fmt.Errorf("host %q: an IPv6 address needs brackets", raw)
		}
	}
	if port == "" {
		return host, "", nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
		return "", "", fmt.Errorf("host %q: bad port", raw)
	}
	return host, port, nil
}

// normalHost is the host part alone.
func normalHost(host string) (string, error) {
	if strings.HasPrefix(host, "[") {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil || !a.Is6() || a.Zone() != "" {
			return "", fmt.Errorf("host %q: not an IPv6 address", host)
		}
		return "[" + a.String() + "]", nil
	}
	host = strings.TrimSuffix(host, ".")
	if !isASCII(host) {
		a, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", fmt.Errorf("host %q: not an internationalised domain name", host)
		}
		host = a
	}
	host = strings.ToLower(host)
	if !isHostName(host) {
		return "", fmt.Errorf("host %q: not a host name", host)
	}
	return host, nil
}

// isHostName tells whether s is a lower-case DNS name or an IPv4 literal as far as its bytes go.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			if label++; label > 63 {
				return false
			}
		case c == '.' && label > 0:
			label = 0
		default:
			return false
		}
	}
	return label > 0
}

// isNormalAuthority is the cheap check on the path of a request: the proxy has normalised already, and what it sends must
// be what is signed.
func isNormalAuthority(a string) bool {
	if strings.HasPrefix(a, "[") {
		n, err := normalAuthority(a)
		return err == nil && n == a
	}
	host, port, found := strings.Cut(a, ":")
	if !isHostName(host) {
		return false
	}
	if !found {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n != 0 && n != 443 && port[0] != '0' && port[0] != '+'
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// checkAgentURL tells why a Signature-Agent value can't be used, nil when it can.
func checkAgentURL(raw string) error {
	_, err := parseAgentURL(raw)
	return err
}

// parseAgentURL reads a Signature-Agent value: an absolute https URL without user info and fragment, printable ASCII
// without quote and backslash, under 256 bytes.
func parseAgentURL(raw string) (*url.URL, error) {
	if len(raw) > maxAgentURL {
		return nil, fmt.Errorf("longer than %d bytes", maxAgentURL)
	}
	if !isPrintableASCII(raw) || strings.ContainsAny(raw, "\"\\ ") {
		return nil, errors.New("only printable ASCII without spaces, quotes and backslashes is allowed")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case !strings.HasPrefix(raw, "https://") || u.Host == "":
		return nil, errors.New("not an absolute https URL")
	case u.User != nil:
		return nil, errors.New("has user info")
	case strings.Contains(raw, "#"):
		return nil, errors.New("has a fragment")
	}
	if _, err := normalAuthority(u.Host); err != nil {
		return nil, err
	}
	return u, nil
}
