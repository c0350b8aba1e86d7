package policy

import "strings"

// kind says what a line of robots.txt is.
type kind uint8

const (
	kindNone kind = iota
	kindUserAgent
	kindAllow
	kindDisallow
	kindSitemap
	kindHost
	kindCrawlDelay
	kindRequestRate
	kindVisitTime
	kindContentSignal
	kindContentUsage
)

// label is the canonical spelling of a directive, used when a line is shown.
func (k kind) label() string {
	switch k {
	case kindUserAgent:
		return "User-agent"
	case kindAllow:
		return "Allow"
	case kindDisallow:
		return "Disallow"
	case kindSitemap:
		return "Sitemap"
	case kindHost:
		return "Host"
	case kindCrawlDelay:
		return "Crawl-delay"
	case kindRequestRate:
		return "Request-rate"
	case kindVisitTime:
		return "Visit-time"
	case kindContentSignal:
		return "Content-Signal"
	case kindContentUsage:
		return "Content-Usage"
	case kindNone:
	}
	return ""
}

// otherKind recognises a directive that the library does not know, by its full name, where blank or _ may stand for -.
func otherKind(key string) kind {
	switch key[0] | 0x20 {
	case 'c':
		switch {
		case sameName(key, "crawl-delay"), sameName(key, "crawldelay"):
			return kindCrawlDelay
		case sameName(key, "content-signal"), sameName(key, "content-signals"):
			return kindContentSignal
		case sameName(key, "content-usage"):
			return kindContentUsage
		}
	case 'r':
		if sameName(key, "request-rate") {
			return kindRequestRate
		}
	case 'v':
		if sameName(key, "visit-time") {
			return kindVisitTime
		}
	case 'h':
		if sameName(key, "host") {
			return kindHost
		}
	}
	return kindNone
}

// visible is what of a line is read: up to NUL or a comment, trimmed.
func visible(line string) string {
	if i := strings.IndexAny(line, "\x00#"); i >= 0 {
		line = line[:i]
	}
	return trimASCII(line)
}

// keyValue splits a visible line as the library does: at its colon or, without one, between exactly two words.
func keyValue(line string) (key, value string, ok bool) {
	sep := strings.IndexByte(line, ':')
	if sep < 0 {
		sep = strings.IndexAny(line, " \t")
		if sep < 0 || strings.ContainsAny(trimASCII(line[sep:]), " \t") {
			return "", "", false
		}
	}
	key = trimASCII(line[:sep])
	return key, line[sep+1:], key != ""
}

// sameName compares a directive's name with want (lower case), ignoring case and with blank or _ for -.
func sameName(key, want string) bool {
	if len(key) != len(want) {
		return false
	}
	for i := range len(key) {
		c := lower(key[i])
		if (c == ' ' || c == '_') && want[i] == '-' {
			c = '-'
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

// hasPrefixFold tells whether s starts with prefix (lower case), ignoring ASCII case.
func hasPrefixFold(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(s[i]) != prefix[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

func asciiSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// trimASCII removes ASCII white space from both ends, and only that.
func trimASCII(s string) string {
	for s != "" && asciiSpace(s[0]) {
		s = s[1:]
	}
	for s != "" && asciiSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// trimValue also removes the blanks that editors and web pages leave behind: NEL, no-break, zero-width and
// ideographic space, line and paragraph separator, byte order mark.
func trimValue(s string) string {
	for {
		t := trimASCII(s)
		if t == "" || t[0] < 0x80 && t[len(t)-1] < 0x80 {
			return t
		}
		for _, b := range [...]string{"\u0085", "\u00a0", "\u200b", "\u2028", "\u2029", "\u3000", "\ufeff"} {
			t = strings.TrimSuffix(strings.TrimPrefix(t, b), b)
		}
		if len(t) == len(s) {
			return t
		}
		s = t
	}
}

// clean makes text from a file showable: octets that are no UTF-8 become U+FFFD, one each.
func clean(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return string([]rune(s))
		}
	}
	return s
}
