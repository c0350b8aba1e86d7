package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/audit"
)

// runAudit runs the whole program with its state in a folder.
func runAudit(t *testing.T, home string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("CRAWLGATE_STATE_DIR", filepath.Join(home, "crawlgate"))
	var out, errOut bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &out, &errOut)
	return out.String(), errOut.String(), code
}

// writeLog records a small day: an answer, a redirect, a page that is gone, refusals, a hostile name.
func writeLog(t *testing.T, home string) (file string) {
	t.Helper()
	l, err := audit.Open(audit.Defaults(), filepath.Join(home, "crawlgate"), nil)
	if err != nil {
		t.Fatal(err)
	}
	base := time.Now().Add(-time.Hour)
	add := func(raw string, set func(*audit.Event)) {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		base = base.Add(time.Minute)
		e := &audit.Event{Time: base, Method: "GET", Decision: audit.Forwarded, Reason: "ok", Status: 200, Client: audit.Client{Name: "team-a"}}
		e.SetURL(u)
		set(e)
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(reason string) func(*audit.Event) {
		return func(e *audit.Event) { e.Decision, e.Reason, e.Status = audit.Refused, reason, 0 }
	}
	add("https://example.com/a", func(*audit.Event) {})
	add("https://example.com/old", func(e *audit.Event) { e.Status = 301; e.SetLocation("https://example.com/new") })
	add("https://example.com/gone", func(e *audit.Event) { e.Status = 410 })
	add("https://example.com/private/a.html", func(e *audit.Event) {
		refuse("robots-disallow")(e)
		e.Rule = audit.Rule{Line: 2, Text: "Disallow: /private/", Group: "ExampleBot"}
	})
	add("http://cdn.example.net/", func(e *audit.Event) {
		refuse("address-denied")(e)
		e.Class = "addr_private"
		e.Upstream.IP = "10.0.0.12"
	})
	add("https://busy.example/", refuse("turn-too-far"))
	add("https://stopped.example/", refuse("site-stopped"))
	add("https://evil.example/", func(e *audit.Event) { refuse("site-denied")(e); e.Client.Name = "\x1b[31mred\nline" })
	add("https://xn--bcher-kva.example/%C3%A9", func(e *audit.Event) { e.Status = 402 })
	add("https://example.com/s?token=first", func(*audit.Event) {})
	add("https://example.com/s?token=second", func(e *audit.Event) { e.Status = 404 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Path()
}

func TestAuditVerifyAndHead(t *testing.T) {
	home := t.TempDir()
	file := writeLog(t, home)
	head, _, code := runAudit(t, home, "audit", "head")
	hash, _, _ := strings.Cut(head, " ")
	if code != 0 || len(hash) != 64 || !strings.Contains(head, "seq 14") {
		t.Fatalf("head %q, exit %d", head, code)
	}
	out, stderr, code := runAudit(t, home, "audit", "verify", "--head", hash)
	if code != 0 || !strings.HasPrefix(out, "whole    1 file, 14 events, seq 1 to 14, last event ") || !strings.Contains(out, "signed   up to seq 13\n") || stderr != "" {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
	if out, _, code := runAudit(t, home, "audit", "verify", "--json", filepath.Dir(file)); code != 0 || !strings.HasPrefix(out, `{"ok":true,`) {
		t.Errorf("a folder: exit %d\n%s", code, out)
	}
	if out, _, code := runAudit(t, home, "audit", "verify", "--head", strings.Repeat("0", 64)); code != 1 || !strings.Contains(out, "(tail_missing)") {
		t.Errorf("another head: exit %d\n%s", code, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte("/private/a.html"), []byte("/private/b.html"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := runAudit(t, home, "audit", "verify", file); code != 1 || out != "broken   crawlgate.jsonl line 5: the record does not have the hash it names (altered)\nwhole    before that: seq 1 to 4\n" || stderr != "" {
		t.Errorf("altered: exit %d\n%s%s", code, out, stderr)
	}
	for _, args := range [][]string{
		{"audit", "verify", filepath.Join(home, "none")}, {"audit", "verify", filepath.Join(home, "none*")}, {"audit", "verify", "--head", "abc"},
		{"audit", "verify", home}, {"audit", "verify", "--keys", file}, {"audit", "head", "--file", filepath.Join(home, "none")},
		{"audit", "tail", "--state-dir", home}, {"audit", "query", "--decision", "yes"}, {"audit", "query", "--since", "yesterday"}, {"audit", "query", "--type", "x"},
		{"audit", "export", "--format", "xml"}, {"audit", "query", "--limit", "-1"}, {"audit", "nonsense"}, {"why"}, {"why", "ftp://example.com/"},
	} {
		if out, stderr, code := runAudit(t, home, args...); code != 2 || out != "" || !strings.HasPrefix(stderr, "crawlgate: ") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, stderr)
		}
	}
}

// TestAuditVerifyOtherLog: a log that --file names is checked by the keys beside it, or by none, never by this machine's.
func TestAuditVerifyOtherLog(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	writeLog(t, home)
	file := writeLog(t, other)
	signed := func(want string, args ...string) {
		t.Helper()
		out, stderr, code := runAudit(t, home, append([]string{"audit", "verify"}, args...)...)
		if code != 0 || !strings.Contains(out, "signed   "+want) || stderr != "" {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, stderr)
		}
	}
	signed("up to seq 13\n", "--file", file)
	alone := filepath.Join(t.TempDir(), "copy.jsonl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(alone, text, 0o600); err != nil {
		t.Fatal(err)
	}
	signed("not checked", "--file", alone)
	if out, _, code := runAudit(t, home, "audit", "verify", "--file", alone, "--keys", filepath.Join(filepath.Dir(file), "checkpoint-keys.json")); code != 0 {
		t.Errorf("with its keys: exit %d\n%s", code, out)
	}
}

func TestAuditQuery(t *testing.T) {
	home := t.TempDir()
	file := writeLog(t, home)
	for _, c := range []struct {
		args string
		want int
	}{
		{"query --decision refused", 5}, {"query --reason address-denied", 1}, {"query --host example.com", 6}, {"query --host .example", 4},
		{"query --client team-a --type request", 10}, {"query --since 1h --type request", 11}, {"query --since 7d --until 2h", 0}, {"query --limit 0", 14},
		{"tail --limit 4", 4}, {"tail --type start,stop", 2}, {"query --class addr_private", 1},
	} {
		out, stderr, code := runAudit(t, home, append([]string{"audit"}, strings.Fields(c.args)...)...)
		if n := strings.Count(out, "\n"); code != 0 || n != c.want || stderr != "" {
			t.Errorf("%s: exit %d, %d lines, want %d\n%s%s", c.args, code, n, c.want, out, stderr)
		}
		if strings.ContainsAny(out, "\x1b\r") {
			t.Errorf("%s: control characters reach the terminal: %q", c.args, out)
		}
		out, _, code = runAudit(t, home, append([]string{"audit"}, strings.Fields(c.args+" --json")...)...)
		for line := range strings.Lines(out) {
			if _, err := audit.Decode([]byte(line)); err != nil {
				t.Errorf("%s --json: %v", c.args, err)
			}
		}
		if n := strings.Count(out, "\n"); code != 0 || n != c.want {
			t.Errorf("%s --json: exit %d, %d lines, want %d", c.args, code, n, c.want)
		}
	}
	out, _, _ := runAudit(t, home, "audit", "query", "--reason", "robots-disallow")
	if !strings.Contains(out, "refused robots-disallow  GET https://example.com/private/a.html  line 2: Disallow: /private/, request ") {
		t.Errorf("a refusal for people: %s", out)
	}
	out, _, _ = runAudit(t, home, "audit", "query", "--reason", "address-denied")
	if !strings.Contains(out, "addr_private, -> 10.0.0.12, request ") {
		t.Errorf("an address for people: %s", out)
	}
	for _, format := range []string{"ecs", "ocsf", "csv"} {
		to := filepath.Join(home, "out")
		out, stderr, code := runAudit(t, home, "audit", "export", "--format", format, "-o", to, file)
		text, err := os.ReadFile(to)
		if code != 0 || out != "" || stderr != "" || err != nil || bytes.Count(text, []byte("\n")) < 13 {
			t.Errorf("export %s: exit %d %v\n%s%s", format, code, err, out, stderr)
		}
	}
	if out, _, code := runAudit(t, home, "audit", "export", "--schema"); code != 0 || out != string(audit.EventSchema) {
		t.Errorf("--schema: exit %d", code)
	}
	if out, _, code := runAudit(t, home, "audit", "export", "--fields"); code != 0 || out != audit.FieldsMarkdown() {
		t.Errorf("--fields: exit %d", code)
	}
	// A line that is no event is named, and the rest is shown.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := runAudit(t, home, "audit", "query")
	if code != 0 || strings.Count(out, "\n") != 14 || !strings.Contains(stderr, "line 15 is not an event") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
}

func TestWhy(t *testing.T) {
	home := t.TempDir()
	writeLog(t, home)
	for _, c := range []struct{ url, state, text string }{
		{"https://example.com/a", "answered", "the site answered 200"},
		{"HTTPS://Example.COM:443/a#x", "answered", "the site answered 200"},
		{"https://example.com/old", "moved", "moved for good (301) to https://example.com/new"},
		{"https://example.com/gone", "gone", "the site says 410: gone for good"},
		{"https://example.com/private/a.html", "refused", "robots-disallow, robots.txt line 2: Disallow: /private/ (group ExampleBot)"},
		{"http://cdn.example.net/", "refused", "address-denied (addr_private)"},
		{"https://busy.example/", "backed-off", "turn-too-far"},
		{"https://stopped.example/", "removed", "removed at the site owner's wish (site-stopped)"},
		{"https://bücher.example/é", "paywalled", "the site wants payment: 402"},
		{"https://example.com/s?token=first", "answered", "the site answered 200"},
		{"https://example.com/s?token=second", "gone", "the site says 404: not found"},
		{"https://example.com/s?token=third", "never-asked", "never asked for"},
	} {
		out, stderr, code := runAudit(t, home, "why", "--json", c.url)
		var w whyAnswer
		if err := json.Unmarshal([]byte(out), &w); err != nil || code != 0 || stderr != "" {
			t.Fatalf("%s: exit %d %v\n%s%s", c.url, code, err, out, stderr)
		}
		if w.State != c.state || w.Text != c.text {
			t.Errorf("%s: %s, %q; want %s, %q", c.url, w.State, w.Text, c.state, c.text)
		}
		if strings.Contains(out, "second") {
			t.Errorf("a secret in the answer: %s", out)
		}
	}
	out, _, code := runAudit(t, home, "why", "https://example.com/never", "https://example.com/gone")
	if code != 0 || !strings.Contains(out, "never-asked nothing in the log; the host's last: the site says 404: not found") || !strings.Contains(out, "\nhttps://example.com/gone\n  gone        the site says 410") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// TestWhyLedger: a removal is known at once, whatever the log holds (UN-14).
func TestWhyLedger(t *testing.T) {
	home := t.TempDir()
	before := whyLedger
	t.Cleanup(func() { whyLedger = before })
	whyLedger = func(_ *cobra.Command, _ *app, host string) (string, string, time.Time, error) {
		if host != "example.com" {
			return "", "", time.Time{}, nil
		}
		return whyRemoved, "owner's mail", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nil
	}
	for _, withLog := range []bool{false, true} {
		if withLog {
			writeLog(t, home)
		}
		out, stderr, code := runAudit(t, home, "why", "https://example.com/never")
		if code != 0 || !strings.Contains(out, "removed     since 2026-01-02T03:04:05Z: owner's mail") {
			t.Errorf("log %v: exit %d\n%s%s", withLog, code, out, stderr)
		}
		out, _, _ = runAudit(t, home, "why", "--json", "https://example.com/a")
		if !strings.Contains(out, `"state":"removed"`) {
			t.Errorf("log %v: %s", withLog, out)
		}
	}
}
