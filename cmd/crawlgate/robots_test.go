package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runRobots runs `robots ARGS...` and gives what it printed and its exit code.
func runRobots(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	cmd := newRobotsCmd(a)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := cmd.ExecuteContext(t.Context())
	var e *exitError
	switch {
	case err == nil:
		return out.String(), errs.String(), exitOK
	case errors.As(err, &e):
		if e.err != nil {
			errs.WriteString(e.err.Error())
		}
		return out.String(), errs.String(), e.code
	}
	return out.String(), errs.String() + err.Error(), exitUsage
}

func write(t *testing.T, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRobotsTestVectors runs every vector through the command as a person would.
func TestRobotsTestVectors(t *testing.T) {
	raw, err := os.ReadFile("../../policy/testdata/robots.json")
	if err != nil {
		t.Fatal(err)
	}
	type vector struct {
		ID           string
		Robots       string
		RobotsB64    string  `json:"robots_b64"`
		RobotsParts  [][]any `json:"robots_parts"`
		ProductToken string  `json:"product_token"`
		URL          string
		Fallback     []string
		StopOn       []string `json:"stop_on"`
		Preset, Mode string
		At           string
		Responses    json.RawMessage
		Config       map[string]string
		Want         map[string]any
	}
	var all struct {
		Cases      []vector
		FetchCases []vector `json:"fetch_cases"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Cases) < 300 || len(all.FetchCases) < 40 {
		t.Fatalf("only %d and %d vectors", len(all.Cases), len(all.FetchCases))
	}
	for _, c := range slices.Concat(all.Cases, all.FetchCases) {
		t.Run(c.ID, func(t *testing.T) {
			body := []byte(c.Robots)
			if c.RobotsB64 != "" {
				if body, err = base64.StdEncoding.DecodeString(c.RobotsB64); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range c.RobotsParts {
				body = append(body, strings.Repeat(p[0].(string), int(p[1].(float64)))...)
			}
			args := []string{"test", "--json", "--agent", c.ProductToken}
			if c.Responses != nil {
				args = append(args, "--responses", write(t, "responses.json", c.Responses))
			} else {
				args = append(args, "--robots", write(t, "robots.txt", body))
			}
			for _, f := range c.Fallback {
				args = append(args, "--fallback-agent", f)
			}
			if c.StopOn != nil {
				args = append(args, "--stop-on", strings.Join(c.StopOn, ","))
			}
			for flag, value := range map[string]string{"--preset": c.Preset, "--mode": c.Mode, "--at": c.At} {
				if value != "" {
					args = append(args, flag, value)
				}
			}
			for k, v := range c.Config {
				args = append(args, "--set", k+"="+v)
			}
			stdout, stderr, code := runRobots(t, "", append(args, c.URL)...)
			var got map[string]any
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("exit %d, %q, %s", code, stdout, stderr)
			}
			for k, want := range c.Want {
				if diff := cmp.Diff(want, got[k]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", k, diff)
				}
			}
			want := exitOK
			if got["allowed"] != true {
				want = exitRefused
			}
			if code != want {
				t.Errorf("exit %d, want %d", code, want)
			}
		})
	}
}

const sampleRobots = "Disallow: /early\nUser-agent: ExampleBot # us\nDisallow: /private/\nCrawl-delay: soon\nCrawl-delay: 10\n" +
	"Content-Signal: ai-input=no, mood=sunny\nsee our terms of use\nDisallow: admin/\nSitemap: https://example.com/s.xml\n"

func TestRobotsTestOutput(t *testing.T) {
	file := write(t, "robots.txt", []byte(sampleRobots))
	answers := write(t, "answers.json", []byte(`[{"status": 503}]`))
	for _, c := range []struct {
		name, stdin    string
		args           []string
		stdout, stderr string
		code           int
	}{
		{
			name: "people", args: []string{"--robots", file, "--agent", "ExampleBot", "https://example.com/private/x", "https://example.com/docs"},
			stdout: "refused   rule_disallow   https://example.com/private/x\n" +
				"  rule      Disallow: /private/   line 3\n" +
				"  group     User-agent: ExampleBot   line 2   (own group: rules for * do not apply)\n" +
				"  pace      one request per 10s: crawl-delay, line 5\n  signal    ai-input=no\n  sitemap   https://example.com/s.xml\n" +
				"allowed   no_match   https://example.com/docs\n" +
				"  group     User-agent: ExampleBot   line 2   (own group: rules for * do not apply)\n" +
				"  pace      one request per 10s: crawl-delay, line 5\n  signal    ai-input=no\n  sitemap   https://example.com/s.xml\n",
			code: exitRefused,
		},
		{
			name: "json", args: []string{"--json", "--robots", file, "--agent", "Other", "https://example.com/private/x"},
			stdout: `{"allowed":true,"reason":"no_group","rule":null,"line":null,"group":null,"crawl_delay_s":null,"signals":{},"sitemaps":["https://example.com/s.xml"]}` + "\n",
		},
		{
			name: "standard input", stdin: "User-agent: *\nDisallow: /x&y\n", args: []string{"--json", "--robots", "-", "--agent", "Other", "https://example.com/x&y"},
			stdout: `{"allowed":false,"reason":"rule_disallow","rule":"Disallow: /x&y","line":2,"group":"*","crawl_delay_s":null,"signals":{},"sitemaps":[]}` + "\n",
			code:   exitRefused,
		},
		{
			name: "ignored lines", args: []string{"-v", "--robots", file, "--agent", "ExampleBot", "--stop-on", "ai-input=no", "--json", "https://example.com/"},
			stdout: `{"allowed":false,"reason":"content_signal","rule":"Content-Signal: ai-input=no, mood=sunny","line":6,"group":"ExampleBot","crawl_delay_s":10,"signals":{"ai-input":"no"},"sitemaps":["https://example.com/s.xml"]}` + "\n",
			stderr: file + ":1: stands before any User-agent line: Disallow: /early\n" +
				file + ":4: the value is no number of seconds, so there is no delay: Crawl-delay: soon\n" +
				file + ":6: `mood=sunny` is unknown and says nothing: Content-Signal: ai-input=no, mood=sunny\n" +
				file + ":7: is no `name: value`: see our terms of use\n" +
				file + ":8: the pattern starts with neither / nor *, so it matches nothing: Disallow: admin/\n",
			code: exitRefused,
		},
		{
			name: "preset names agent and mode", args: []string{"--json", "--preset", "roftrlabs", "--responses", answers, "https://example.com/"},
			stdout: `{"allowed":true,"reason":"unreadable_allowed","rule":null,"line":null,"group":null,"crawl_delay_s":null,"signals":{},"sitemaps":[]}` + "\n",
		},
		{
			name: "set", args: []string{"--json", "--preset", "roftrlabs", "--set", "when_unreadable=refuse", "--responses", answers, "https://example.com/"},
			stdout: `{"allowed":false,"reason":"robots_unreachable","rule":null,"line":null,"group":null,"crawl_delay_s":null,"signals":{},"sitemaps":[]}` + "\n",
			code:   exitRefused,
		},
		{name: "neither file", args: []string{"--agent", "X", "https://example.com/"}, code: exitUsage, stderr: "at least one of the flags in the group [robots responses] is required"},
		{name: "no file", args: []string{"--robots", file + ".gone", "--agent", "X", "https://example.com/"}, code: exitUsage, stderr: "open " + file + ".gone: no such file or directory"},
		{name: "no agent", args: []string{"--robots", file, "https://example.com/"}, code: exitUsage, stderr: "--agent is missing: the product token that groups are matched with"},
		{name: "bad agent", args: []string{"--robots", file, "--agent", "Bot/1.0", "https://example.com/"}, code: exitUsage, stderr: `agent "Bot/1.0" may hold only letters, - and _ (RFC 9309 section 2.2.1), so no group can name it`},
		{name: "bad signal", args: []string{"--robots", file, "--agent", "X", "--stop-on", "ai=no", "https://example.com/"}, code: exitUsage, stderr: `stop_on[0]: "ai=no" is no signal; known are search=yes, search=no, ai-input=yes, ai-input=no, ai-train=yes, ai-train=no, use=full, use=reference, use=immediate`},
		{name: "bad key", args: []string{"--robots", file, "--agent", "X", "--set", "speed=1", "https://example.com/"}, code: exitUsage, stderr: `--set speed: no such key of a robots block, or "1" does not fit it`},
		{name: "bad value", args: []string{"--robots", file, "--agent", "X", "--set", "mode=maybe", "https://example.com/"}, code: exitUsage, stderr: `mode: "maybe" is not one of obey, named, ignore`},
		{name: "bad preset", args: []string{"--robots", file, "--preset", "none", "https://example.com/"}, code: exitUsage, stderr: `--preset "none" is not one of recordslabs, roftrlabs, unlob`},
		{name: "bad time", args: []string{"--robots", file, "--agent", "X", "--at", "noon", "https://example.com/"}, code: exitUsage, stderr: `--at "noon" is no time as in RFC 3339, like 2026-01-31T10:00:00Z`},
		{name: "no URL", args: []string{"--robots", file, "--agent", "X", "example.com"}, code: exitUsage, stderr: `"example.com": no http or https URL`},
		{name: "no host", args: []string{"--robots", file, "--agent", "X", "http:///x"}, code: exitUsage, stderr: `"http:///x": no host`},
		{name: "a file without end", args: []string{"--robots", "/dev/zero", "--agent", "X", "https://a.test/"}, code: exitUsage, stderr: "/dev/zero: longer than 64 MiB"},
		{name: "bad responses", args: []string{"--responses", file, "--agent", "X", "https://example.com/"}, code: exitUsage, stderr: file + ": no JSON array of responses: invalid character 'D' looking for beginning of value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := runRobots(t, c.stdin, append([]string{"test"}, c.args...)...)
			if diff := cmp.Diff(c.stdout, stdout); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.stderr, stderr); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
		})
	}
}
