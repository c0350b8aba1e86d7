package policy

import (
	"bytes"
	"net/url"
	"strings"
)

// The canonical form of a path (RFC 9309 2.2.2, RFC 3986 6.2.2.2): %XX of an unreserved character is decoded, every
// other %XX stays with upper-case digits, octets that may not stand in a URL are encoded, a stray % stays. `*` and `$`
// are %2A and %24 in a URL; in a pattern they are the wildcard and, at the end, the anchor.

const (
	classPlain  = iota // stays as it is
	classEncode        // becomes %XX
	classPercent
	classStar
	classDollar
)

// pathClass says what happens to each octet.
var pathClass = func() (t [256]uint8) {
	for c := range 256 {
		switch {
		case c <= ' ' || c >= 0x7F || strings.IndexByte("\"<>\\^`{|}", byte(c)) >= 0:
			t[c] = classEncode
		case c == '%':
			t[c] = classPercent
		case c == '*':
			t[c] = classStar
		case c == '$':
			t[c] = classDollar
		}
	}
	return t
}()

const upperHex = "0123456789ABCDEF"

// unhex is the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

func appendHex(dst []byte, c byte) []byte {
	return append(dst, '%', upperHex[c>>4], upperHex[c&15])
}

// appendCanonical appends the canonical form of s. In a pattern `*` stays a wildcard and a final `$` the anchor.
func appendCanonical(dst []byte, s string, pattern bool) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch pathClass[c] {
		case classPlain:
			j := i + 1
			for j < len(s) && pathClass[s[j]] == classPlain {
				j++
			}
			dst = append(dst, s[i:j]...)
			i = j - 1
		case classEncode:
			dst = appendHex(dst, c)
		case classStar:
			if pattern {
				dst = append(dst, c)
			} else {
				dst = append(dst, "%2A"...)
			}
		case classDollar:
			if pattern && i == len(s)-1 {
				dst = append(dst, c)
			} else {
				dst = append(dst, "%24"...)
			}
		case classPercent:
			h, l := -1, -1
			if i+2 < len(s) {
				h, l = unhex(s[i+1]), unhex(s[i+2])
			}
			if h < 0 || l < 0 {
				dst = append(dst, c)
				continue
			}
			if d := byte(h<<4 | l); unreserved(d) {
				dst = append(dst, d)
			} else {
				dst = appendHex(dst, d)
			}
			i += 2
		}
	}
	return dst
}

// appendTarget appends the canonical path and query of u, as it would stand on the wire.
func appendTarget(dst []byte, u *url.URL) []byte {
	if u.Opaque != "" {
		return appendTargetString(dst, u.RequestURI())
	}
	n := len(dst)
	if u.RawPath == "" && plainPath(u.Path) {
		dst = append(dst, u.Path...)
	} else {
		dst = appendCanonical(dst, u.EscapedPath(), false)
	}
	if len(dst) == n || dst[n] != '/' {
		dst = append(dst, 0)
		copy(dst[n+1:], dst[n:])
		dst[n] = '/'
	}
	if u.ForceQuery || u.RawQuery != "" {
		dst = append(dst, '?')
		dst = appendCanonical(dst, u.RawQuery, false)
	}
	return dst
}

// plainPath tells whether a path is its own escaped and canonical form.
func plainPath(s string) bool {
	for i := range len(s) {
		if !plainOctet[s[i]] {
			return false
		}
	}
	return true
}

var plainOctet = func() (t [256]bool) {
	for c := range 256 {
		t[c] = unreserved(byte(c)) || strings.IndexByte("/:@&=+,;", byte(c)) >= 0
	}
	return t
}()

// appendTargetString does the same for a URL or a request target as text, which need not be one that net/url accepts.
func appendTargetString(dst []byte, target string) []byte {
	if i := strings.IndexByte(target, '#'); i >= 0 {
		target = target[:i]
	}
	if !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
		target = afterAuthority(target)
	}
	if target == "" || target[0] != '/' {
		dst = append(dst, '/')
	}
	return appendCanonical(dst, target, false)
}

// afterAuthority cuts scheme and authority off an absolute URL. `//x/y` is a path here: it has no scheme.
func afterAuthority(s string) string {
	i := strings.Index(s, "://")
	if i <= 0 || strings.ContainsAny(s[:i], "/?") {
		return s
	}
	s = s[i+3:]
	if j := strings.IndexAny(s, "/?"); j >= 0 {
		return s[j:]
	}
	return ""
}

// pathLen is where the query starts, or the length.
func pathLen(target []byte) int {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return i
	}
	return len(target)
}

// hasDotSegment tells whether the path holds a segment . or .. (RFC 3986 3.3); %2E is decoded by then.
func hasDotSegment(path []byte) bool {
	for i := 0; ; {
		j := bytes.Index(path[i:], []byte("/."))
		if j < 0 {
			return false
		}
		i += j + 2
		k := i
		if k < len(path) && path[k] == '.' {
			k++
		}
		if k == len(path) || path[k] == '/' {
			return true
		}
	}
}

// resolveDots removes dot segments from a canonical target (RFC 3986 5.2.4) and keeps its query.
func resolveDots(target []byte) []byte {
	n := pathLen(target)
	path, query := target[:n], target[n:]
	out := make([]byte, 0, len(target))
	for len(path) > 0 {
		seg := path
		if j := bytes.IndexByte(path[1:], '/'); j >= 0 {
			seg = path[:j+1]
		}
		path = path[len(seg):]
		switch string(seg) {
		case "/.":
			if len(path) == 0 {
				out = append(out, '/')
			}
		case "/..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
			if len(path) == 0 {
				out = append(out, '/')
			}
		default:
			out = append(out, seg...)
		}
	}
	return append(out, query...)
}

// isRobotsTxt tells whether a canonical target is /robots.txt itself, with any query (RFC 9309 2.2.2).
func isRobotsTxt(target []byte) bool {
	return string(target[:pathLen(target)]) == "/robots.txt"
}
