package allowlist

import (
	"net/url"
	"strings"
)

// Paths and queries are compared in the canonical form of robots.txt matching (RFC 9309 section 2.2.2): escapes of unreserved
// characters are decoded, all others stay with upper-case digits, and octets that may not stand in a URL are escaped.
// In a path, dot segments are then removed (RFC 3986 section 5.2.4), also those written %2e. %2F stays what it is.

const upperHex = "0123456789ABCDEF"

// Octets by what the canonical form does with them.
const (
	octetKeep   = iota // stays as it is
	octetEscape        // written as %XX
	octetPlain         // stays, and its escape is decoded (unreserved, RFC 3986 section 2.3)
)

var octets = func() (t [256]uint8) {
	for c := range t {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", byte(c)) >= 0:
			t[c] = octetPlain
		case c <= ' ', c >= 0x7f, strings.IndexByte("\"<>\\^{|}`", byte(c)) >= 0:
			t[c] = octetEscape
		}
	}
	return t
}()

// appendCanonical appends the canonical form of an escaped path or query to b.
func appendCanonical(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi >= 0 && lo >= 0 {
				d := byte(hi<<4 | lo)
				if octets[d] == octetPlain {
					b = append(b, d)
				} else {
					b = append(b, '%', upperHex[hi], upperHex[lo])
				}
				i += 2
				continue
			}
		}
		if octets[c] == octetEscape {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
			continue
		}
		b = append(b, c)
	}
	return b
}

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

// removeDots removes the dot segments of the path b[from:] in place. Empty segments count as segments.
func removeDots(b []byte, from int) []byte {
	w := from // end of what is written, always at or before the reading position
	for r := from; r < len(b); {
		// b[r] is the slash before a segment (a path always starts with one).
		end := r + 1
		for end < len(b) && b[end] != '/' {
			end++
		}
		last := end == len(b)
		switch seg := b[r+1 : end]; {
		case len(seg) == 1 && seg[0] == '.':
			if last {
				b[w] = '/'
				w++
			}
		case len(seg) == 2 && seg[0] == '.' && seg[1] == '.':
			for w > from {
				w--
				if b[w] == '/' {
					break
				}
			}
			if last {
				b[w] = '/'
				w++
			}
		default:
			w += copy(b[w:], b[r:end])
		}
		r = end
	}
	if w == from && len(b) > from {
		b[w] = '/'
		w++
	}
	return b[:w]
}

// canonicalPath appends the canonical path of an escaped path to b. hard tells that servers may read the path in more
// than one way (dot segments, escaped slashes): then it has to lie inside a prefix in every reading.
func canonicalPath(b []byte, escaped string) (path []byte, hard bool) {
	from := len(b)
	if escaped == "" || escaped[0] != '/' {
		b = append(b, '/')
	}
	b = appendCanonical(b, escaped)
	for i := from; i < len(b); i++ {
		switch b[i] {
		case '/':
			j := i + 1
			for j < len(b) && b[j] == '.' {
				j++
			}
			if dots := j - i - 1; (dots == 1 || dots == 2) && (j == len(b) || b[j] == '/' || b[j] == ';') {
				hard = true
			}
		case '%':
			if i+2 < len(b) && (b[i+1] == '2' && b[i+2] == 'F' || b[i+1] == '5' && b[i+2] == 'C') {
				hard = true
			}
		}
	}
	if hard {
		b = removeDots(b, from)
	}
	return b, hard
}

// reading is a way in which a server may read a path beside the canonical one.
type reading struct {
	escaped bool // escaped slashes and backslashes separate segments
	merge   bool // a run of slashes is one
}

var readings = [...]reading{{true, true}, {true, false}, {false, true}}

// of reads an escaped path. It starts from what was sent, so that dot segments still stand where they were. Parameters do
// not hide a dot segment ("..;x").
func (r reading) of(escaped string) string {
	s := string(appendCanonical(make([]byte, 0, len(escaped)+1), escaped))
	if r.escaped {
		s = strings.NewReplacer("%2F", "/", "%5C", "/").Replace(s)
	}
	segs := strings.Split(strings.TrimPrefix(s, "/"), "/")
	var out []string
	for i, seg := range segs {
		name, _, _ := strings.Cut(seg, ";")
		last := i == len(segs)-1
		switch {
		case name == "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		case name == ".":
		case seg == "" && r.merge && !last:
			continue
		default:
			out = append(out, seg)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

// underInEveryReading tells whether a path that can be read in several ways is under a prefix in each of them.
func underInEveryReading(escaped, prefix string) bool {
	for _, r := range readings {
		if !underPrefix([]byte(r.of(escaped)), r.of(prefix)) {
			return false
		}
	}
	return true
}

// underPrefix tells whether path starts with prefix, segment by segment: /docs holds /docs and /docs/a, not /docs2;
// /docs/ holds /docs/ and what is below.
func underPrefix(path []byte, prefix string) bool {
	n := len(prefix)
	if len(path) < n || string(path[:n]) != prefix {
		return false
	}
	return len(path) == n || prefix[n-1] == '/' || path[n] == '/'
}

// appendPage appends the key of a page: canonical path and query. A fragment does not count.
func appendPage(b []byte, u *url.URL) []byte {
	b, _ = canonicalPath(b, u.EscapedPath())
	if u.RawQuery != "" || u.ForceQuery {
		b = append(b, '?')
		b = appendCanonical(b, u.RawQuery)
	}
	return b
}
