package policy

import (
	"strings"

	"github.com/jimsmart/grobotstxt"
)

// Ignored is a line of robots.txt that has no effect, or only part of the one its author expected.
type Ignored struct {
	Line   int    // counted from 1
	Text   string // the line as written, trimmed
	Reason string
}

// linter goes over the lines of a text again and tells which of them were ignored. What each line is, it knows from
// the library.
type linter struct {
	out   []Ignored
	kinds []lineKind // of the lines that count and are not passed yet
	names bool       // a User-agent line was passed
}

type lineKind struct {
	line int32
	kind kind
}

// Lint parses body and tells which lines were ignored, and why, in file order.
func Lint(body []byte) (*Ruleset, []Ignored) {
	text, rest, truncated := decode(body)
	var t linter
	rs := read(text, truncated, grobotstxt.Parse, func(line int32, k kind) {
		t.kinds = append(t.kinds, lineKind{line, k})
	})
	l := linesOf(text)
	for start, end, ok := l.next(); ok; start, end, ok = l.next() {
		t.line(l.n, string(text[start:end]))
	}
	if len(rest) > 0 {
		t.report(l.n+1, string(rest), "lies past the first 500 KiB")
	}
	if truncated {
		t.report(0, "", "the file is longer than 500 KiB; its end was not read")
	}
	return rs, t.out
}

func (t *linter) report(line int32, text, reason string) {
	t.out = append(t.out, Ignored{Line: int(line), Text: clean(text), Reason: reason})
}

func (t *linter) line(n int32, line string) {
	if len(line) > maxLine {
		t.report(n, line[:80], "longer than 16663 octets; the rest is not read")
		line = line[:maxLine]
	}
	if i := strings.IndexByte(line, 0); i >= 0 {
		t.report(n, line[:i], "contains NUL; what follows it is not read")
	}
	line = visible(line)
	if line == "" {
		return
	}
	_, value, ok := keyValue(line)
	if !ok {
		t.report(n, line, "is no `name: value`")
		return
	}
	if len(t.kinds) == 0 || t.kinds[0].line != n {
		t.report(n, line, "unknown directive")
		return
	}
	k := t.kinds[0].kind
	t.kinds = t.kinds[1:]
	t.value(n, k, trimValue(value), line)
}

func (t *linter) value(n int32, k kind, value, line string) {
	switch k {
	case kindUserAgent:
		t.names = true
		if groupToken(value) == "" {
			t.report(n, line, "names no crawler")
		}
	case kindAllow, kindDisallow:
		if !t.names {
			t.report(n, line, "stands before any User-agent line")
		} else if value != "" && value[0] != '/' && value[0] != '*' {
			t.report(n, line, "the pattern starts with neither / nor *, so it matches nothing")
		}
	case kindCrawlDelay, kindRequestRate, kindVisitTime:
		if !t.names {
			t.report(n, line, "stands before any User-agent line")
			return
		}
		t.rate(n, k, value, line)
	case kindContentSignal, kindContentUsage:
		t.signal(n, k, value, line)
	case kindNone, kindSitemap, kindHost:
	}
}

func (t *linter) rate(n int32, k kind, value, line string) {
	ok := true
	switch k {
	case kindCrawlDelay:
		_, ok = parseCrawlDelay(value)
	case kindRequestRate:
		if _, ok = parseRequestRate(value); ok && !windowRead(value) {
			t.report(n, line, "what follows the period is no window HHMM-HHMM, so the rate holds at any time")
		}
	case kindVisitTime:
		_, ok = parseWindow(value)
	default:
	}
	if !ok {
		t.report(n, line, map[kind]string{
			kindCrawlDelay:  "the value is no number of seconds, so there is no delay",
			kindRequestRate: "the value is not pages/period, so there is no rate",
			kindVisitTime:   "the value is not HHMM-HHMM",
		}[k])
	}
}

// windowRead tells whether a Request-rate has no words after its period that were passed over in place of a window.
func windowRead(value string) bool {
	d, ok := parseRequestRate(value)
	if !ok || d.window.set {
		return ok
	}
	_, period, _ := strings.Cut(value, "/")
	words := strings.FieldsFunc(period, func(r rune) bool { return r < 0x80 && asciiSpace(byte(r)) })
	if len(words) == 1 {
		return true
	}
	_, unit := unitOf(words[len(words)-1], true)
	return unit
}

func (t *linter) signal(n int32, k kind, value, line string) {
	_, pattern, ok := parseSignal(k, value)
	switch {
	case !ok && k == kindContentUsage:
		t.report(n, line, "is no dictionary with search or train-ai and the values y or n, so it says nothing")
		return
	case !ok:
		t.report(n, line, "holds no known `key=value`, so it says nothing")
		return
	case k == kindContentUsage:
		return
	}
	signalPairs(trimValue(value[len(pattern):]), func(key, val string) {
		var l levels
		if !l.raise(key, val) {
			t.report(n, line, "`"+clean(key)+"="+clean(val)+"` is unknown and says nothing")
		}
	})
}
