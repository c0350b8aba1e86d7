package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"crawlgate/policy"
)

// robotsVerdict is one line of `robots test --json`.
type robotsVerdict struct {
	Allowed    bool              `json:"allowed"`
	Reason     string            `json:"reason"`
	Rule       *string           `json:"rule"`
	Line       *int              `json:"line"`
	Group      *string           `json:"group"`
	CrawlDelay *float64          `json:"crawl_delay_s"`
	Signals    map[string]string `json:"signals"`
	Sitemaps   []string          `json:"sitemaps"`
}

func jsonVerdict(v policy.Verdict) robotsVerdict {
	out := robotsVerdict{Allowed: v.Allowed, Reason: v.Class, Signals: v.Signals, Sitemaps: v.Sitemaps}
	if v.Rule != "" {
		out.Rule, out.Line = &v.Rule, &v.Line
	}
	if v.Group != "" {
		out.Group = &v.Group
	}
	if v.DelaySource != "" {
		s := v.Delay.Seconds()
		out.CrawlDelay = &s
	}
	if out.Signals == nil {
		out.Signals = map[string]string{}
	}
	if out.Sitemaps == nil {
		out.Sitemaps = []string{}
	}
	return out
}

// printRobotsVerdict is the answer for people: the word, the class and the URL, then what decided.
func printRobotsVerdict(w io.Writer, raw string, v policy.Verdict) error {
	word := "refused"
	if v.Allowed {
		word = "allowed"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s   %s   %s\n", word, v.Class, printable(raw))
	if v.Rule != "" {
		fmt.Fprintf(&b, "  rule      %s   line %d\n", printable(v.Rule), v.Line)
	}
	switch v.Group {
	case "":
	case "*":
		fmt.Fprintf(&b, "  group     User-agent: *   line %d   (no group names the agent)\n", v.GroupLine)
	default:
		fmt.Fprintf(&b, "  group     User-agent: %s   line %d   (own group: rules for * do not apply)\n", v.Group, v.GroupLine)
	}
	if v.DelaySource != "" {
		fmt.Fprintf(&b, "  pace      one request per %v: %s, line %d\n", v.Delay, v.DelaySource, v.DelayLine)
	}
	for _, k := range []string{"search", "ai-input", "ai-train", "use"} {
		if s := v.Signals[k]; s != "" {
			fmt.Fprintf(&b, "  signal    %s=%s\n", k, s)
		}
	}
	for _, s := range v.Sitemaps {
		fmt.Fprintf(&b, "  sitemap   %s\n", printable(s))
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "  note      %s\n", printable(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable quotes what could steer a terminal.
func printable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// shown writes out what could steer a terminal, and leaves the rest as it is.
func shown(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// printIgnored lists the lines without effect on stderr, as FILE:LINE: reason: text.
func (a *app) printIgnored(file string, body []byte) {
	_, lines := policy.Lint(body)
	for _, l := range lines {
		at := file
		if l.Line > 0 {
			at += ":" + strconv.Itoa(l.Line)
		}
		if l.Text == "" {
			fmt.Fprintf(a.stderr, "%s: %s\n", at, l.Reason)
			continue
		}
		fmt.Fprintf(a.stderr, "%s: %s: %s\n", at, l.Reason, printable(l.Text))
	}
}
