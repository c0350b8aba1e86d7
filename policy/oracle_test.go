package policy

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
)

// The oracle is a reader of robots.txt that uses no library: RFC 9309 and the reference parser's line syntax in one pass. It was
// the package's own reader before the library took its place, and FuzzReaders holds the two against each other.

// oracleParser holds the state of one pass over a body.
type oracleParser struct {
	rs    *Ruleset
	run   int32 // first name of the current run of User-agent lines
	ended bool  // an Allow or Disallow closed the run: the next User-agent starts a new one
	lint  func(line int, text, reason string)
}

func oracle(raw []byte, lint func(int, string, string)) *Ruleset {
	p := &oracleParser{rs: &Ruleset{}, lint: lint}
	whole := true // the last line is complete
	if len(raw) > MaxBody {
		p.rs.truncated = true
		whole = raw[MaxBody] == '\n' || raw[MaxBody] == '\r'
		if wide := string(raw[:2]); wide == "\xff\xfe" || wide == "\xfe\xff" {
			whole = false
		}
		raw = raw[:MaxBody]
	}
	body := oracleBOM(raw)
	// The next line end of each kind is remembered: a file with only one kind must not be searched again for every line.
	lf, cr := -1, -1
	next := func(at, pos int, c byte) int {
		if at >= pos {
			return at
		}
		if i := strings.IndexByte(body[pos:], c); i >= 0 {
			return pos + i
		}
		return len(body)
	}
	for pos, line := 0, int32(1); pos < len(body); line++ {
		lf, cr = next(lf, pos, '\n'), next(cr, pos, '\r')
		end := min(lf, cr)
		if end == len(body) && !whole {
			p.report(line, body[pos:], "lies past the first 500 KiB")
			break
		}
		p.parseLine(line, body[pos:end])
		pos = end + 1
		if end == cr && lf == cr+1 {
			pos++
		}
	}
	if p.rs.truncated && lint != nil {
		lint(0, "", "the file is longer than 500 KiB; its end was not read")
	}
	return p.rs
}

func (p *oracleParser) report(line int32, text, reason string) {
	if p.lint != nil {
		p.lint(int(line), text, reason)
	}
}

func (p *oracleParser) parseLine(n int32, line string) {
	if len(line) > maxLine {
		p.report(n, line[:80], "longer than 16663 octets; the rest is not read")
		line = line[:maxLine]
	}
	if i := strings.IndexByte(line, 0); i >= 0 {
		p.report(n, line[:i], "contains NUL; what follows it is not read")
		line = line[:i]
	}
	if i := strings.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	line = trimASCII(line)
	if line == "" {
		return
	}
	key, value, ok := oracleKeyValue(line)
	if !ok {
		p.report(n, line, "is no `name: value`")
		return
	}
	k := oracleKind(key)
	if k == kindNone {
		p.report(n, line, "unknown directive")
		return
	}
	p.add(n, k, trimValue(value), line)
}

func (p *oracleParser) add(n int32, k kind, value, line string) {
	rs := p.rs
	switch k {
	case kindUserAgent:
		if p.ended || len(rs.names) == 0 {
			p.run, p.ended = int32(len(rs.names)), false
		}
		t := groupToken(value)
		if t == "" {
			p.report(n, line, "names no crawler")
		}
		rs.names = append(rs.names, name{t, n})
		return
	case kindSitemap:
		if value != "" {
			rs.sitemaps = append(rs.sitemaps, value)
		}
		return
	case kindHost:
		if value != "" {
			rs.hosts = append(rs.hosts, value)
		}
		return
	case kindAllow, kindDisallow:
		p.ended = true
		if len(rs.names) == 0 {
			p.report(n, line, "stands before any User-agent line")
			return
		}
		if p.lint != nil && value != "" && value[0] != '/' && value[0] != '*' {
			p.report(n, line, "the pattern starts with neither / nor *, so it matches nothing")
		}
	case kindCrawlDelay, kindRequestRate, kindVisitTime:
		if len(rs.names) == 0 {
			p.report(n, line, "stands before any User-agent line")
			return
		}
		p.lintRate(n, k, value, line)
	case kindContentSignal, kindContentUsage:
		p.lintSignal(n, k, value, line)
	case kindNone:
		return
	}
	rs.records = append(rs.records, record{value: value, line: n, lo: p.run, hi: int32(len(rs.names)), kind: k})
}

// oracleBOM turns a body into text: UTF-16 by its byte order mark, else UTF-8 without its mark or the first octets of one.
func oracleBOM(raw []byte) string {
	if len(raw) >= 2 {
		var order binary.ByteOrder
		switch {
		case raw[0] == 0xFF && raw[1] == 0xFE:
			order = binary.LittleEndian
		case raw[0] == 0xFE && raw[1] == 0xFF:
			order = binary.BigEndian
		}
		if order != nil {
			u := make([]uint16, 0, len(raw)/2)
			for i := 2; i+1 < len(raw); i += 2 {
				u = append(u, order.Uint16(raw[i:]))
			}
			return string(utf16.Decode(u))
		}
	}
	for _, b := range []byte{0xEF, 0xBB, 0xBF} {
		if len(raw) == 0 || raw[0] != b {
			break
		}
		raw = raw[1:]
	}
	return string(raw)
}

// oracleKeyValue splits a line at its colon, or, without one, between exactly two words, as the reference parser does.
func oracleKeyValue(line string) (key, value string, ok bool) {
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

// oracleKind recognises a directive's name: rules, names and sitemaps by prefix with the usual typing errors, as in the
// reference parser; the others by their full name, where blank or _ may stand for -.
func oracleKind(key string) kind {
	switch key[0] | 0x20 {
	case 'u':
		if hasPrefixFold(key, "user-agent") || hasPrefixFold(key, "useragent") || hasPrefixFold(key, "user agent") {
			return kindUserAgent
		}
	case 'a':
		if hasPrefixFold(key, "allow") {
			return kindAllow
		}
	case 'd':
		for _, s := range [...]string{"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "diaslow"} {
			if hasPrefixFold(key, s) {
				return kindDisallow
			}
		}
	case 's':
		if hasPrefixFold(key, "sitemap") || hasPrefixFold(key, "site-map") {
			return kindSitemap
		}
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

func (p *oracleParser) lintRate(n int32, k kind, value, line string) {
	if p.lint == nil {
		return
	}
	ok := true
	switch k {
	case kindCrawlDelay:
		_, ok = parseCrawlDelay(value)
	case kindRequestRate:
		if _, ok = parseRequestRate(value); ok && !windowRead(value) {
			p.report(n, line, "what follows the period is no window HHMM-HHMM, so the rate holds at any time")
		}
	case kindVisitTime:
		_, ok = parseWindow(value)
	default:
	}
	if !ok {
		p.report(n, line, map[kind]string{
			kindCrawlDelay:  "the value is no number of seconds, so there is no delay",
			kindRequestRate: "the value is not pages/period, so there is no rate",
			kindVisitTime:   "the value is not HHMM-HHMM",
		}[k])
	}
}

func (p *oracleParser) lintSignal(n int32, k kind, value, line string) {
	if p.lint == nil {
		return
	}
	_, pattern, ok := parseSignal(k, value)
	switch {
	case !ok && k == kindContentUsage:
		p.report(n, line, "is no dictionary with search or train-ai and the values y or n, so it says nothing")
		return
	case !ok:
		p.report(n, line, "holds no known `key=value`, so it says nothing")
		return
	case k == kindContentUsage:
		return
	}
	signalPairs(trimValue(value[len(pattern):]), func(key, val string) {
		var l levels
		if !l.raise(key, val) {
			p.report(n, line, "`"+clean(key)+"="+clean(val)+"` is unknown and says nothing")
		}
	})
}
