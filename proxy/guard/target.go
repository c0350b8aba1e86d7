package guard

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Default ports of the two schemes.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// ParseAuthority reads host:port. With defaultPort 0 it is the target of a
// CONNECT (RFC 9110 9.3.6): the port must be there, and a target of another
// form is request_malformed. With a defaultPort it is a Host field (RFC 9110
// 7.2): port and colon may be absent, and everything but host:port is
// host_malformed.
//
// The error is a *HostError; port 0 is port_denied.
func ParseAuthority(raw string, defaultPort uint16) (Host, uint16, error) {
	if defaultPort == 0 {
		if raw == "" || raw == "*" || strings.ContainsAny(raw, "/?#") || hasControl(raw) {
			return Host{}, 0, &HostError{classRequest, fmt.Sprintf("CONNECT target %s is not host:port", quoteTarget(raw))}
		}
		if err := userinfo(raw); err != nil {
			return Host{}, 0, err
		}
	}
	return parseAuthority(raw, defaultPort)
}

// parseAuthority splits host and port and reads both.
func parseAuthority(raw string, defaultPort uint16) (Host, uint16, error) {
	host, port, colon := raw, "", false
	if i := strings.LastIndexByte(raw, ':'); i >= 0 && i > strings.LastIndexByte(raw, ']') {
		host, port, colon = raw[:i], raw[i+1:], true
	}
	h, err := ParseHost(host)
	if err != nil {
		return Host{}, 0, err
	}
	if port == "" {
		switch {
		case defaultPort != 0: // RFC 3986 3.2.3: an empty port is the default
			return h, defaultPort, nil
		case colon:
			return Host{}, 0, malformed("empty port in %s", quoteTarget(raw))
		}
		return Host{}, 0, malformed("no port in %s", quoteTarget(raw))
	}
	n, err := parsePort(port)
	if err != nil {
		return Host{}, 0, err
	}
	return h, n, nil
}

// parsePort takes one spelling for each port: decimal, no sign, no leading zero.
func parsePort(s string) (uint16, error) {
	if s == "0" {
		return 0, &HostError{classPort, "port 0 cannot be connected to"}
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '0' {
		return 0, malformed("port %s is not a number from 1 to 65535", quoteTarget(s))
	}
	return uint16(n), nil
}

// userinfo refuses an authority with an `@`: it hides the real host. Bytes on
// which parsers differ are malformed first.
func userinfo(authority string) error {
	if !strings.Contains(authority, "@") {
		return nil
	}
	for i := 0; i < len(authority); i++ {
		if c := authority[i]; c == '%' || c == '\\' || c >= 0x80 {
			return malformed("authority %s holds %s", quoteTarget(authority), quoteByte(c))
		}
	}
	return &HostError{classUserinfo, "user name or password in the target"}
}

// ParseURL reads an absolute-form request target (RFC 9112 3.2.2) with the
// scheme http or https and returns it normalised: scheme and host in lower
// case, the port only when it is not the scheme's default, path at least `/`,
// no userinfo, no fragment. Path and query stay as they were sent, except that
// bytes which no URL may hold are percent-encoded in the path (RFC 3986 3.3),
// and so is a percent sign that begins no escape (2.4).
//
// The error is a *HostError: request_malformed, not_a_proxy_request,
// scheme_denied, or what ParseAuthority gives.
func ParseURL(rawTarget string) (*url.URL, Host, uint16, error) {
	return parseURL(rawTarget, func(authority string, defaultPort uint16) (Host, uint16, error) {
		if err := userinfo(authority); err != nil {
			return Host{}, 0, err
		}
		return parseAuthority(authority, defaultPort)
	})
}

// ParseTarget is ParseURL for a request outside any tunnel, where an https
// target is https_needs_connect: it would cross the wire to us in clear text.
func ParseTarget(rawTarget string) (*url.URL, Host, uint16, error) {
	u, h, port, err := ParseURL(rawTarget)
	if err == nil && u.Scheme == "https" {
		return nil, Host{}, 0, &HostError{classNeedsConnect, "an https target needs CONNECT"}
	}
	return u, h, port, err
}

// parseURL does not use url.Parse for the authority: that decodes
// percent-encoded hosts and takes raw UTF-8.
func parseURL(raw string, authority func(string, uint16) (Host, uint16, error)) (*url.URL, Host, uint16, error) {
	fail := func(class, format string, args ...any) (*url.URL, Host, uint16, error) {
		return nil, Host{}, 0, &HostError{class, fmt.Sprintf(format, args...)}
	}
	if raw == "" || hasControl(raw) {
		return fail(classRequest, "target %s is empty or holds white space or control characters", quoteTarget(raw))
	}
	scheme, rest, ok := cutScheme(raw)
	if !ok {
		return fail(classNotProxy, "target %s is not an absolute URL", quoteTarget(raw))
	}
	var defaultPort uint16
	switch scheme {
	case "http":
		defaultPort = portHTTP
	case "https":
		defaultPort = portHTTPS
	default:
		return fail(classScheme, "scheme %s is not http or https", quote(scheme))
	}
	if strings.Contains(rest, "#") {
		return fail(classRequest, "target %s holds a fragment", quoteTarget(raw))
	}
	rest, ok = strings.CutPrefix(rest, "//")
	if !ok {
		return fail(classRequest, "target %s has no authority", quoteTarget(raw))
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	h, port, err := authority(rest[:end], defaultPort)
	if err != nil {
		return nil, Host{}, 0, err
	}
	u := &url.URL{Scheme: scheme, Host: h.Name}
	if port != defaultPort {
		u.Host = h.Key(port)
	}
	path, query, asked := strings.Cut(rest[end:], "?")
	u.RawQuery, u.ForceQuery = query, asked && query == ""
	if path == "" {
		path = "/"
	}
	path = escapeInvalid(escapeStray(path))
	if u.Path, err = url.PathUnescape(path); err != nil {
		return fail(classRequest, "path of %s cannot be read", quoteTarget(raw))
	}
	if u.EscapedPath() != path {
		u.RawPath = path
	}
	return u, h, port, nil
}

// cutScheme splits at the first colon when a scheme stands before it (RFC 3986
// 3.1) and lower-cases the scheme.
func cutScheme(raw string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(raw, ":")
	if !ok || scheme == "" {
		return "", "", false
	}
	for i := 0; i < len(scheme); i++ {
		c := scheme[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

// escapeInvalid percent-encodes the bytes of a path that no URL may hold.
// net/url would do the same on output, but by decoding and encoding the whole
// path, which turns %2F into a slash.
func escapeInvalid(path string) string {
	const upperHex = "0123456789ABCDEF"
	var b strings.Builder
	done := 0
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c < 0x80 && !strings.ContainsRune("\"<>\\^`{|}", rune(c)) {
			continue
		}
		b.WriteString(path[done:i])
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
		done = i + 1
	}
	if done == 0 {
		return path
	}
	b.WriteString(path[done:])
	return b.String()
}

// hasControl finds what may not stand in a request line: white space and
// control characters.
func hasControl(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
