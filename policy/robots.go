package policy

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
)

const (
	// MaxBody is how much of a robots.txt is read, in octets of the decoded body (RFC 9309 2.5: at least 500 KiB).
	MaxBody = 500 << 10
	// maxLine is how much of one line is read, as in the reference parser.
	maxLine = 2083*8 - 1
)

// name is one User-agent line: its product token ("*" for the global group, "" when it names nobody).
type name struct {
	token string
	line  int32
}

// record is any other line that counts. It belongs to the names [lo, hi) of the run it stands in: those above it
// (RFC 9309 2.2.1). lo == hi == 0 means that it stands before any User-agent line.
type record struct {
	value  string
	line   int32
	lo, hi int32
	kind   kind
}

// Ruleset is a parsed robots.txt. It is immutable and safe for concurrent use.
type Ruleset struct {
	names    []name
	records  []record
	sitemaps []string
	hosts    []string

	truncated bool
}

// Ignored is a line of robots.txt that has no effect, or only part of the one its author expected.
type Ignored struct {
	Line   int    // counted from 1
	Text   string // the line as written, trimmed
	Reason string
}

// Parse reads a robots.txt body. Any bytes are accepted: what is no rule is skipped (RFC 9309 2.3.1.5), what lies
// beyond [MaxBody] is not looked at. The result does not refer to body.
func Parse(body []byte) *Ruleset {
	return parse(body, nil)
}

// Lint parses body and tells which lines were ignored, and why, in file order.
func Lint(body []byte) (*Ruleset, []Ignored) {
	var out []Ignored
	rs := parse(body, func(line int, text, reason string) {
		out = append(out, Ignored{Line: line, Text: clean(text), Reason: reason})
	})
	return rs, out
}

// Truncated tells whether the body was longer than [MaxBody], so that its end was not read.
func (rs *Ruleset) Truncated() bool { return rs.truncated }

// Sitemaps are the values of all Sitemap lines, as written and in file order.
func (rs *Ruleset) Sitemaps() []string { return rs.sitemaps }

// Hosts are the values of all Host lines; they have no effect.
func (rs *Ruleset) Hosts() []string { return rs.hosts }

// HasRules tells whether any line names a crawler: false for a web page. A rule that stands in no group is none.
func (rs *Ruleset) HasRules() bool { return len(rs.names) > 0 }

// parser holds the state of one pass over a body.
type parser struct {
	rs    *Ruleset
	run   int32 // first name of the current run of User-agent lines
	ended bool  // an Allow or Disallow closed the run: the next User-agent starts a new one
	lint  func(line int, text, reason string)
}

func parse(raw []byte, lint func(int, string, string)) *Ruleset {
	p := &parser{rs: &Ruleset{}, lint: lint}
	whole := true // the last line is complete
	if len(raw) > MaxBody {
		p.rs.truncated = true
		whole = raw[MaxBody] == '\n' || raw[MaxBody] == '\r'
		raw = raw[:MaxBody]
	}
	body := decodeBOM(raw)
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

// decodeBOM turns a body into text: UTF-16 by its byte order mark, else UTF-8 without its mark or the first octets of one.
func decodeBOM(raw []byte) string {
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

func (p *parser) report(line int32, text, reason string) {
	if p.lint != nil {
		p.lint(int(line), text, reason)
	}
}

func (p *parser) parseLine(n int32, line string) {
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
	key, value, ok := keyValue(line)
	if !ok {
		p.report(n, line, "is no `name: value`")
		return
	}
	k := keyKind(key)
	if k == kindNone {
		p.report(n, line, "unknown directive")
		return
	}
	p.add(n, k, trimValue(value), line)
}

// keyValue splits a line at its colon, or, without one, between exactly two words, as the reference parser does.
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

func (p *parser) add(n int32, k kind, value, line string) {
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
