package policy

import (
	"slices"
	"strings"
	"time"
)

// Group is the part of a robots.txt that binds one crawler, compiled for matching: its own group, or the `*` group,
// or neither, plus what stands before any User-agent line. It is immutable, safe for concurrent use, and does not
// keep the file it came from alive.
type Group struct {
	token string // as asked for, "*", or "" when no group names us
	line  int32

	text     string // patterns and values; rules refer to it
	rules    []rule // in file order
	prefixes []prefixNode
	wild     []int32     // rules with wildcards inside or an anchor, best first
	pairs    [][3]uint16 // of each wild rule, three pairs of octets that a target must hold; nil for few rules
	firstNo  int32       // first rule that forbids anything, or -1

	delays   []delay
	visits   []visit
	signals  []signal
	static   *effective // the signals for every URL, when no signal has a path
	sitemaps []string
	hosts    []string
	size     int

	truncated bool
	err       error // the file could not be read: every URL is refused
}

// rule is one Allow or Disallow with a pattern that can match. Its precedence is the length of the canonical pattern,
// in which wildcard and anchor count one (RFC 9309 2.2.2).
type rule struct {
	pat, val text
	line     int32
	allow    bool
}

// text is a span of Group.text.
type text struct{ off, n uint32 }

func (g *Group) str(t text) string { return g.text[t.off : t.off+t.n] }

// Token is the name of the group: the token it was asked for with, "*" for the global group, "" for none.
func (g *Group) Token() string { return g.token }

// Line is the first User-agent line of the group, 0 for none.
func (g *Group) Line() int { return int(g.line) }

// Sitemaps are the file's Sitemap values, as written and in file order. The slice must not be changed.
func (g *Group) Sitemaps() []string { return g.sitemaps }

// Rules is the number of Allow and Disallow lines that can match.
func (g *Group) Rules() int { return len(g.rules) }

// Size is roughly how many bytes the group occupies.
func (g *Group) Size() int { return g.size }

// Group compiles what binds the crawler named token: all groups naming it, else those of the first fallback token
// that has one, else all `*` groups (RFC 9309 2.2.1).
func (rs *Ruleset) Group(token string, fallback ...string) *Group {
	return rs.compile(token, fallback, true)
}

// NamedGroup is like [Ruleset.Group], but leaves the `*` groups out: only a group that names the crawler binds it.
func (rs *Ruleset) NamedGroup(token string, fallback ...string) *Group {
	return rs.compile(token, fallback, false)
}

// choose finds the names of the group: their indexes in file order.
func (rs *Ruleset) choose(token string, fallback []string, global bool) (string, []int32) {
	find := func(t string) (out []int32) {
		if t == "" || t == star {
			return nil
		}
		for i := range rs.names {
			if equalFold(rs.names[i].token, t) {
				out = append(out, int32(i))
			}
		}
		return out
	}
	if ns := find(token); ns != nil {
		return token, ns
	}
	for _, t := range fallback {
		if ns := find(t); ns != nil {
			return t, ns
		}
	}
	if !global {
		return "", nil
	}
	var ns []int32
	for i := range rs.names {
		if rs.names[i].token == star {
			ns = append(ns, int32(i))
		}
	}
	if ns == nil {
		return "", nil
	}
	return star, ns
}

// builder collects the text of a group; equal neighbours share their span.
type builder struct {
	buf  strings.Builder
	last string
	span text
}

func (b *builder) add(s string) text {
	if b.last == s && s != "" {
		return b.span
	}
	b.span = text{uint32(b.buf.Len()), uint32(len(s))}
	b.buf.WriteString(s)
	b.last = s
	return b.span
}

func (rs *Ruleset) compile(token string, fallback []string, global bool) *Group {
	g := &Group{firstNo: -1, truncated: rs.truncated, err: rs.err}
	var chosen []int32
	g.token, chosen = rs.choose(token, fallback, global)
	if g.token != "" {
		g.line = rs.names[chosen[0]].line
		g.token = strings.Clone(g.token)
	}
	var b builder
	var scratch []byte
	for i, next := 0, 0; i < len(rs.records); i++ {
		r := &rs.records[i]
		top := r.lo == 0 && r.hi == 0
		for next < len(chosen) && chosen[next] < r.lo {
			next++
		}
		ours := next < len(chosen) && chosen[next] < r.hi
		// Before any User-agent line only signals count; with no group of ours in mode `named` not even they.
		if !ours && (!top || g.token == "" && !global) {
			continue
		}
		switch r.kind {
		case kindAllow, kindDisallow:
			if r.value == "" || r.value[0] != '/' && r.value[0] != '*' {
				continue
			}
			scratch = appendCanonical(scratch[:0], r.value, true)
			nr := rule{line: r.line, allow: r.kind == kindAllow}
			nr.val = b.add(r.value)
			if nr.pat = nr.val; string(scratch) != r.value {
				nr.pat = b.add(string(scratch))
			}
			if !nr.allow && g.firstNo < 0 {
				g.firstNo = int32(len(g.rules))
			}
			g.rules = append(g.rules, nr)
		case kindCrawlDelay, kindRequestRate:
			if d, ok := parseDelay(r.kind, r.value); ok {
				d.line = r.line
				g.addDelay(d)
			}
		case kindVisitTime:
			if w, ok := parseWindow(r.value); ok {
				g.visits = append(g.visits, visit{w, r.line, b.add(r.value)})
			}
		case kindContentSignal, kindContentUsage:
			if s, pattern, ok := parseSignal(r.kind, r.value); ok {
				s.line, s.val = r.line, b.add(r.value)
				if pattern != "" {
					scratch = appendCanonical(scratch[:0], pattern, true)
					s.pat = b.add(string(scratch))
				}
				g.signals = append(g.signals, s)
			}
		case kindNone, kindUserAgent, kindSitemap, kindHost:
		}
	}
	g.text = b.buf.String()
	g.rules, g.delays = slices.Clip(g.rules), slices.Clip(g.delays)
	g.index()
	g.static = g.staticSignals()
	g.sitemaps, g.hosts = cloneAll(rs.sitemaps), cloneAll(rs.hosts)
	g.size = g.measure()
	return g
}

// addDelay keeps a delay; of each kind of those that hold all day only the slowest matters.
func (g *Group) addDelay(d delay) {
	if !d.window.set {
		for i := range g.delays {
			if !g.delays[i].window.set && g.delays[i].rate == d.rate {
				if d.gap > g.delays[i].gap {
					g.delays[i] = d
				}
				return
			}
		}
	}
	g.delays = append(g.delays, d)
}

// cloneAll copies strings into one buffer of their own, so that the file they came from can go.
func cloneAll(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	all := strings.Join(in, "")
	out := make([]string, len(in))
	for i, off := 0, 0; i < len(in); i++ {
		out[i] = all[off : off+len(in[i])]
		off += len(in[i])
	}
	return out
}

func (g *Group) measure() int {
	n := 320 + len(g.token) + len(g.text) + cap(g.rules)*24 + cap(g.prefixes)*16 + cap(g.wild)*4 + cap(g.pairs)*6 +
		cap(g.delays)*24 + cap(g.visits)*16 + cap(g.signals)*32
	for _, list := range [][]string{g.sitemaps, g.hosts} {
		for _, s := range list {
			n += 16 + len(s)
		}
	}
	if g.static != nil {
		n += 256
	}
	return n
}

// Delay is the gap the site asks for at a moment: the slowest of the Crawl-delay and Request-rate lines in force, at
// most a day. source is "" when it asks for none, else "crawl-delay" or "request-rate".
func (g *Group) Delay(at time.Time) (d time.Duration, source string, line int) {
	for i := range g.delays {
		e := &g.delays[i]
		if e.window.set && !e.window.contains(at) {
			continue
		}
		if source == "" || e.gap > d {
			d, line = e.gap, int(e.line)
			source = "crawl-delay"
			if e.rate {
				source = "request-rate"
			}
		}
	}
	return d, source, line
}

// CrawlDelay is the slowest Crawl-delay alone, for whoever checks what others kept to.
func (g *Group) CrawlDelay() (d time.Duration, line int, ok bool) {
	for i := range g.delays {
		if e := &g.delays[i]; !e.rate {
			return e.gap, int(e.line), true
		}
	}
	return 0, 0, false
}
