package main

import (
	"strings"
	"testing"

	"crawlgate/proxy"
)

// TestExplanationText: what robots.txt says, why that group, and which setting decided where no line did.
func TestExplanationText(t *testing.T) {
	const url = "https://a.test/robots.txt"
	for _, c := range []struct {
		robots proxy.ExplainedRobots
		want   string // lines, without their indent and with one blank between name and text
	}{
		{proxy.ExplainedRobots{Class: "rule_allow", Group: "ExampleBot", GroupLine: 3, Rule: "Allow: /", Line: 4, Octets: 1},
			"group User-agent: ExampleBot   line 3   (own group: rules for * do not apply)\nrule Allow: /   line 4   longest match, 1 octet"},
		{proxy.ExplainedRobots{Class: "no_match", Group: "*", GroupLine: 1, Signals: map[string]string{"use": "full", "ai-train": "no"}},
			"group User-agent: *   line 1   (no group names ExampleBot)\nrule none decides (no_match)\nsignals ai-train=no, use=full   none of them stops this agent (its purposes, robots.stop_on)"},
		{proxy.ExplainedRobots{Class: "no_group", Mode: "obey", Truncated: true},
			"group none names ExampleBot, and there is none for *\nrule none decides (no_group)\nnote the file is longer than 500 KiB; its end was not read"},
		{proxy.ExplainedRobots{Class: "no_group", Mode: "named", Choice: "robots.mode: named"},
			"group none names ExampleBot, and no other counts\nrule none decides (no_group, robots.mode: named)"},
		{proxy.ExplainedRobots{Class: "no_robots", Choice: "robots.on_401_403: allow"}, "rule none decides (no_robots, robots.on_401_403: allow)"},
		{proxy.ExplainedRobots{Class: "content_signal", Group: "*", Rule: "Content-Signal: search=no", Line: 2, Signal: "search=no", SignalLine: 2, Signals: map[string]string{"search": "no"}},
			"group User-agent: *   (no group names ExampleBot)\nrule Content-Signal: search=no   line 2\nsignal search=no   line 2"},
		{proxy.ExplainedRobots{Class: "response_signal", Signal: "search=no", Choice: "robots.response_signals: bind"},
			"signal search=no   in the last answer for this URL, robots.response_signals: bind"},
		{proxy.ExplainedRobots{Class: "rule_disallow", Group: "*", Rule: "Disallow: /caf\u00e9\x1b[2J\t\u202e\u009b1m", Line: 9, Octets: 8, Notes: []string{"a\r\nb"}},
			"group User-agent: *   (no group names ExampleBot)\nrule Disallow: /caf\u00e9\\x1b[2J\\t\\u202e\\u009b1m   line 9   longest match, 8 octets\nnote a\\r\\nb"},
	} {
		c.robots.URL = url
		text := explanationText(&proxy.Explanation{Allowed: true, Token: "ExampleBot", Robots: &c.robots})
		_, text, _ = strings.Cut(text, url)
		var got []string
		for _, line := range strings.Split(text, "\n")[1:] {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			got = append(got, strings.TrimSpace(name+" "+strings.TrimSpace(rest)))
		}
		if g := strings.TrimSpace(strings.Join(got, "\n")); g != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.robots.Class, g, c.want)
		}
	}
}
