package policy

import (
	"fmt"

	"github.com/jimsmart/grobotstxt"
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
	err       error // the parser failed: nothing is known, and nothing is allowed
}

// Parse reads a robots.txt body. Any bytes are accepted: what is no rule is skipped (RFC 9309 2.3.1.5), what lies
// beyond [MaxBody] is not looked at. The result does not refer to body.
func Parse(body []byte) *Ruleset {
	text, _, truncated := decode(body)
	return read(text, truncated, grobotstxt.Parse, nil)
}

// Err tells why a body could not be read; nil for every body that could, rules or not. With an error every URL is
// refused as robots_unreachable.
func (rs *Ruleset) Err() error { return rs.err }

// Truncated tells whether the body was longer than [MaxBody], so that its end was not read.
func (rs *Ruleset) Truncated() bool { return rs.truncated }

// Sitemaps are the values of all Sitemap lines, as written and in file order.
func (rs *Ruleset) Sitemaps() []string { return rs.sitemaps }

// Hosts are the values of all Host lines; they have no effect.
func (rs *Ruleset) Hosts() []string { return rs.hosts }

// HasRules tells whether any line names a crawler: false for a web page. A rule that stands in no group is none.
func (rs *Ruleset) HasRules() bool { return len(rs.names) > 0 }

// read has the library read a text, cleaned for it, and collects what it finds. A panic of the library is an error of
// the result, never a file without rules. seen, if not nil, is told which lines count.
func read(text []byte, truncated bool, parse func(string, grobotstxt.ParseHandler), seen func(line int32, k kind)) (rs *Ruleset) {
	defer func() {
		if r := recover(); r != nil {
			rs = &Ruleset{truncated: truncated, err: fmt.Errorf("the parser of robots.txt failed: %v", r)}
		}
	}()
	h := &handler{rs: &Ruleset{truncated: truncated}, text: text, seen: seen}
	body, changed, count := cleaned(text)
	h.changed, h.count = changed, count
	parse(body, h)
	return h.rs
}

// handler takes the library's findings, one call for each line that is a key and a value, in file order.
type handler struct {
	rs      *Ruleset
	text    []byte // as it came
	changed []original
	count   int   // of lines that may count
	run     int32 // first name of the current run of User-agent lines
	ended   bool  // an Allow or Disallow closed the run: the next User-agent starts a new one
	seen    func(line int32, k kind)
}

var _ grobotstxt.ParseHandler = (*handler)(nil)

// HandleRobotsStart and the other methods implement [grobotstxt.ParseHandler].
func (h *handler) HandleRobotsStart()                 {}
func (h *handler) HandleRobotsEnd()                   {}
func (h *handler) HandleUserAgent(line int, v string) { h.add(int32(line), kindUserAgent, v) }
func (h *handler) HandleAllow(line int, v string)     { h.add(int32(line), kindAllow, v) }
func (h *handler) HandleDisallow(line int, v string)  { h.add(int32(line), kindDisallow, v) }
func (h *handler) HandleSitemap(line int, v string)   { h.add(int32(line), kindSitemap, v) }
func (h *handler) HandleUnknownAction(line int, key, v string) {
	if k := otherKind(key); k != kindNone {
		h.add(int32(line), k, v)
	}
}

func (h *handler) add(n int32, k kind, value string) {
	if h.seen != nil {
		h.seen(n, k)
	}
	value = h.asWritten(n, value)
	rs := h.rs
	switch k {
	case kindUserAgent:
		if h.ended || len(rs.names) == 0 {
			h.run, h.ended = int32(len(rs.names)), false
		}
		rs.names = append(rs.names, name{groupToken(value), n})
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
		h.ended = true
		if len(rs.names) == 0 {
			return
		}
	case kindCrawlDelay, kindRequestRate, kindVisitTime:
		if len(rs.names) == 0 {
			return
		}
	case kindContentSignal, kindContentUsage, kindNone:
	}
	if rs.records == nil {
		rs.records = make([]record, 0, h.count)
	}
	rs.records = append(rs.records, record{value: value, line: n, lo: h.run, hi: int32(len(rs.names)), kind: k})
}

// asWritten gives a line's value from the text as it came, when cleaning changed it. No cleaning makes the library's own
// value right for these lines (octets from 0x80, lower-case hex): messages, Sitemap and Content-Usage need what was
// written, and encoding an octet as three would push the end of a long line past the limit. So own code splits them; what
// kind of line it is, the library has said.
func (h *handler) asWritten(n int32, value string) string {
	for len(h.changed) > 0 && h.changed[0].line < n {
		h.changed = h.changed[1:]
	}
	if len(h.changed) == 0 || h.changed[0].line != n {
		return value
	}
	c := h.changed[0]
	_, value, _ = keyValue(visible(string(h.text[c.start:min(c.end, c.start+maxLine)])))
	return trimValue(value)
}
