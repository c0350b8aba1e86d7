package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crawlgate/audit"
)

// TestAuditAccessExits holds every exit code: 0 written, 1 written with a problem, 2 nothing written.
func TestAuditAccessExits(t *testing.T) {
	dir := t.TempDir()
	line := `192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] "GET /private/x HTTP/1.1" 200 5 "-" "GPTBot/1.3"` + "\n"
	log := write(t, "access.log", []byte(line+line+"garbage\n"))
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte(strings.Repeat(line, 1000)))
	w.Close()
	cut := write(t, "cut.gz", z.Bytes()[:z.Len()-20])
	rules := write(t, "robots.txt", []byte("User-agent: *\nDisallow: /private/\nCrawl-delay: 5\n"))
	empty := t.TempDir()
	bad := write(t, "crawlers.json", []byte(`{"schema":"crawlgate.crawlers/1","crawlers":[{"name":"x","category":"nonsense"}]}`))
	badRanges := t.TempDir()
	if err := os.WriteFile(filepath.Join(badRanges, "gptbot.json"), []byte(`{"prefixes":[{"ipv4Prefix":"192.0.2.0/40"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	index := write(t, "index.xml", []byte(`<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></sitemapindex>`))
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"fine":                    {[]string{log}, 0, ""},
		"fail-on, none there":     {[]string{"--robots", rules, "--fail-on", "impersonated", log}, 0, ""},
		"fail-on violations":      {[]string{"--robots", rules, "--fail-on", "violations,impersonated", log}, 1, "--fail-on violations: 2"},
		"fail-on malformed":       {[]string{"--fail-on", "malformed", log}, 1, "--fail-on malformed: 1"},
		"fail-on delay":           {[]string{"--robots", rules, "--delay", "--fail-on", "delay", log}, 1, "--fail-on delay: 1"},
		"cut short":               {[]string{cut}, 1, "cut short"},
		"no log":                  {nil, 2, "no LOG given"},
		"missing log":             {[]string{dir + "/none"}, 2, "no such file"},
		"glob of nothing":         {[]string{dir + "/none*"}, 2, "matches no file"},
		"device":                  {[]string{"/dev/zero"}, 2, "/dev/zero is neither"},
		"empty folder":            {[]string{empty}, 2, "holds no files"},
		"missing robots":          {[]string{"--robots", dir + "/none", log}, 2, "no such file"},
		"empty robots folder":     {[]string{"--robots", empty, log}, 2, "holds no robots.txt versions"},
		"two robots.txt":          {[]string{"--robots", rules, "--robots", rules, log}, 2, "at the same moment"},
		"bad definitions":         {[]string{"--crawlers", bad, log}, 2, "category"},
		"bad range":               {[]string{"--ranges", badRanges, log}, 2, "prefixes[0].ipv4Prefix"},
		"sitemap index":           {[]string{"--sitemap", index, log}, 2, "index of sitemaps"},
		"unknown crawler":         {[]string{"--as", "Nobody", log}, 2, "no crawler is called"},
		"bad format":              {[]string{"--log-format", "nonsense", log}, 2, "not one of auto"},
		"bad time":                {[]string{"--since", "yesterday", log}, 2, "--since"},
		"window inside out":       {[]string{"--since", "2025-11-04T00:00:00Z", "--until", "2025-11-03T00:00:00Z", log}, 2, "not before"},
		"bad proxy":               {[]string{"--trusted-proxy", "10.0.0.0/99", log}, 2, "--trusted-proxy"},
		"delay without --delay":   {[]string{"--fail-on", "delay", log}, 2, "needs --delay"},
		"unknown failure":         {[]string{"--fail-on", "x", log}, 2, "--fail-on"},
		"unknown output":          {[]string{"--format", "pdf", log}, 2, "--format"},
		"list without csv":        {[]string{"--list", "violations", log}, 2, "--list"},
		"cache without a file":    {[]string{"--dns", "cache", log}, 2, "dns cache"},
		"unwritable output":       {[]string{"-o", dir + "/none/x", log}, 2, "--output"},
		"unknown dedupe":          {[]string{"--dedupe", "x", log}, 2, "dedupe"},
		"unreachable limit of 0":  {[]string{"--unreachable-limit", "0s", log}, 2, "--unreachable-limit"},
		"json against the format": {[]string{"--json", "--format", "csv", log}, 2, "contradict"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := runAccess(t, "", c.args...)
			if code != c.code || !strings.Contains(errs, c.stderr) || c.stderr == "" && errs != "" {
				t.Errorf("exit %d: %s", code, errs)
			}
			if code == exitUsage && out != "" {
				t.Errorf("written all the same: %s", out)
			}
			if code != exitUsage && !json.Valid([]byte(out)) {
				t.Errorf("no report: %q", out)
			}
		})
	}
}

// TestAuditAccessWithoutXZ has no program to unpack with: nothing is written, and the message says what to do.
func TestAuditAccessWithoutXZ(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	out, errs, code := runAccess(t, "", accessVectors+"/compressed-extra/c.log.xz")
	if code != exitUsage || out != "" || !strings.Contains(errs, "no program xz here") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestAuditAccessOutputs writes each form into a file, its kind told by the name.
func TestAuditAccessOutputs(t *testing.T) {
	dir := accessCases(t)[0]
	for _, d := range accessCases(t) {
		if filepath.Base(d) == "core" {
			dir = d
		}
	}
	t.Chdir(dir)
	to := t.TempDir()
	for name, want := range map[string]string{"r.html": "<!DOCTYPE html>", "r.csv": "crawler,operator", "r.json": "{\n \"schema\": \"crawlgate.audit.report/1\""} {
		path := filepath.Join(to, name)
		if out, errs, code := runAccess(t, "", append([]string{"-o", path}, caseArgs(t, dir)...)...); code != exitOK || out != "" || errs != "" {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
		if body, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(body), want) {
			t.Errorf("%s begins with %.60q, %v", name, body, err)
		}
	}
	for _, columns := range []int{45, 70, 100, 160} {
		t.Setenv("COLUMNS", fmt.Sprint(columns))
		for _, more := range []string{"--by-purpose", "--delay"} {
			out, _, _ := runAccess(t, "", append([]string{"--format", "table", more}, caseArgs(t, dir)...)...)
			flat := strings.Join(strings.Fields(out), " ")
			if !strings.Contains(flat, "9 www.example.com/robots.txt line 2 (since 2025-11-03 12:00:00Z): Disallow: / /?a /news/1 /x") || strings.Contains(out, "\x1b") {
				t.Errorf("%d columns: %s", columns, out)
			}
			for _, line := range strings.Split(out, "\n") {
				if n := len([]rune(line)); columns >= 70 && n > columns {
					t.Errorf("%d columns: %d in %q", columns, n, line)
				}
			}
		}
	}
	listed, _, _ := runAccess(t, "", append([]string{"--format", "csv", "--list", "violations"}, caseArgs(t, dir)...)...)
	if !strings.Contains(listed, "GPTBot,www.example.com,2025-11-03T12:00:00.000Z,649f2dc66f5ca54d57d309dff57621221660d0f1fb67b42339f008eecdf08359,2,Disallow: /,rule,9,") {
		t.Error(listed)
	}
}

// TestAuditAccessShuffled gives the logs of a case one by one in any order, through a pattern, and doubled.
func TestAuditAccessShuffled(t *testing.T) {
	t.Chdir(filepath.Join(filepath.Dir(accessCases(t)[0]), "core"))
	args := caseArgs(t, ".")
	flags := args[:len(args)-1]
	want, _, _ := runAccess(t, "", args...)
	logs, err := filepath.Glob("logs/*")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		logs = append(logs[3:], logs[:3]...)
		for _, more := range [][]string{nil, {"logs/*.log"}, {"logs"}} {
			got, errs, code := runAccess(t, "", append(append(append([]string{}, flags...), logs...), more...)...)
			if code != exitOK || got != want {
				t.Fatalf("%v: exit %d %s, other bytes", logs, code, errs)
			}
		}
	}
}

// TestAuditAccessDelayIsCrawlDelay leaves Request-rate out, also where it asks for more.
func TestAuditAccessDelayIsCrawlDelay(t *testing.T) {
	f := accessJudge{}.Parse([]byte("User-agent: a\r\nCrawl-delay: 3\r\nRequest_rate : 1/20\r\nUser-agent: b\r\nDisallow: /\r\n"))
	if got := f.Group([]string{"a"}).CrawlDelay(); got != 3*time.Second {
		t.Error(got)
	}
	if got := f.Group([]string{"b"}).CrawlDelay(); got != 0 {
		t.Error(got)
	}
	if g := f.Group([]string{"x", "A"}); g.Token() != "A" && g.Token() != "a" || g.Line() != 1 {
		t.Error(g.Token(), g.Line())
	}
}

func TestAuditAccessProgress(t *testing.T) {
	var b bytes.Buffer
	p := &progressBar{w: &b, start: time.Now().Add(-2 * time.Second)}
	p.show(audit.AccessProgress{Input: "/var/log/\x1b[2Jaccess.log", Done: 1 << 20, Total: 4 << 20, Lines: 10_000})
	p.clear()
	if got := b.String(); !strings.Contains(got, "[######..................]  25 %  10 000 lines") || strings.Contains(got, "\x1b[2J") {
		t.Errorf("%q", got)
	}
	(*progressBar)(nil).clear()
}
