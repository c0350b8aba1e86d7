package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// prefixJudge is a matcher for tests of what lies around it: every Disallow line binds everybody, by plain prefix.
type prefixJudge struct{}

func (prefixJudge) Parse(body []byte) RobotsFile {
	var f prefixRobots
	for i, line := range strings.Split(string(body), "\n") {
		if p, ok := strings.CutPrefix(line, "Disallow: "); ok {
			f.rules = append(f.rules, prefixRule{i + 1, p})
		}
		if d, ok := strings.CutPrefix(line, "Crawl-delay: "); ok {
			f.delay, _ = time.ParseDuration(d + "s")
		}
		if s, ok := strings.CutPrefix(line, "Sitemap: "); ok {
			f.sitemaps = append(f.sitemaps, s)
		}
	}
	return &f
}

type prefixRule struct {
	line   int
	prefix string
}

type prefixRobots struct {
	rules    []prefixRule
	delay    time.Duration
	sitemaps []string
}

func (f *prefixRobots) Group([]string) RobotsGroup { return f }
func (f *prefixRobots) Sitemaps() []string         { return f.sitemaps }
func (f *prefixRobots) Token() string              { return "*" }
func (f *prefixRobots) Line() int                  { return 1 }
func (f *prefixRobots) CrawlDelay() time.Duration  { return f.delay }

func (f *prefixRobots) Match(target string) RobotsMatch {
	if target == "/robots.txt" {
		return RobotsMatch{Allowed: true, Itself: true}
	}
	if strings.HasPrefix(target, "/panic") {
		panic("boom")
	}
	// The fixed cases of the self-check, which this matcher is too plain for.
	if slices.Contains([]string{"/a/deep/x.json"}, target) {
		return RobotsMatch{}
	}
	for _, r := range f.rules {
		if strings.HasPrefix(target, r.prefix) {
			return RobotsMatch{Line: r.line, Rule: "Disallow: " + r.prefix}
		}
	}
	return RobotsMatch{Allowed: true}
}

const gptBot = `Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)`

// accessLine is a combined log line of 3 November 2025.
func accessLine(addr, clock, target, agent string) string {
	return fmt.Sprintf("%s - - [03/Nov/2025:%s +0000] \"GET %s HTTP/1.1\" 200 5 \"-\" \"%s\"\n", addr, clock, target, agent)
}

func writeFile(t testing.TB, path string, body []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// access runs an audit of one log text with a robots.txt for every host.
func access(t testing.TB, log, robots string, change func(*AccessOptions)) *AccessReport {
	t.Helper()
	dir := t.TempDir()
	o := AccessOptions{Logs: []string{writeFile(t, dir+"/access.log", []byte(log))}, Judge: prefixJudge{}}
	if robots != "" {
		o.Robots = []string{writeFile(t, dir+"/robots.txt", []byte(robots))}
	}
	if change != nil {
		change(&o)
	}
	rep, err := Access(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}
