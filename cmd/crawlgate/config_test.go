package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// configCLI runs `crawlgate config ARGS` in a folder of its own with text as crawlgate.yaml ("": no file).
func configCLI(t *testing.T, text string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	if text != "" {
		if err := os.WriteFile(filepath.Join(dir, "crawlgate.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"config"}, args...), strings.NewReader(""), &out, &errs)
	return out.String(), errs.String(), code
}

func TestConfigCheck(t *testing.T) {
	const wrong = "agents:\n  - name: example\n    product_token: ExampleBot\n    user_agent: Example/1.0\n    contact: a@example.org\n" +
		"profiles:\n  - {name: crawl, pacing: {gap: 1}}\nclients:\n  - name: team-a\n    profile: crawl\n    sources: [127.0.0.1]\n    sites: [https://example.org/]\n"
	const warned = "enforce: false\n"
	for _, tt := range []struct {
		name, text  string
		out, stderr string
		code        int
	}{
		{name: "no file", out: "built-in defaults: ok\n"},
		{name: "fine", text: "open: true\n", out: "crawlgate.yaml: ok\n"},
		{name: "warned", text: warned, out: "crawlgate.yaml: ok\n", stderr: "crawlgate: crawlgate.yaml: 1 warning\n" +
			"  line 1  enforce: false: what policy refuses is sent all the same and only reported\n"},
		{name: "wrong", text: wrong, code: 2, stderr: `crawlgate: crawlgate.yaml: 3 problems
  line 4   agents[0].user_agent does not contain product_token "ExampleBot": sites match on the token
  line 7   profiles[0].pacing.gap: "1" has no unit; write 1s
  line 10  clients[0].profile is not a key; did you mean profiles?
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, stderr, code := configCLI(t, tt.text, "check")
			if out != tt.out || stderr != tt.stderr || code != tt.code {
				t.Errorf("exit %d\n%s%s", code, out, stderr)
			}
			out, stderr, code = configCLI(t, tt.text, "check", "--json")
			var got struct {
				File               string
				OK                 bool
				Problems, Warnings []map[string]any
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if code != tt.code || stderr != "" || got.OK != (tt.code == 0) || len(got.Problems) != tt.code/2*3 || got.Warnings == nil {
				t.Errorf("exit %d\n%s%s", code, out, stderr)
			}
			if tt.name == "wrong" {
				want := map[string]any{"file": "crawlgate.yaml", "line": 7.0, "key": "profiles[0].pacing.gap", "text": `"1" has no unit; write 1s`}
				for k, v := range want {
					if got.Problems[0][k] != v && got.Problems[1][k] != v {
						t.Errorf("%s: %v", k, got.Problems)
					}
				}
			}
		})
	}
}

func TestConfigShow(t *testing.T) {
	const text = "clients:\n  - {name: a, secret_hash: sha256:" + "ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789" + ", sites: [https://example.org/]}\n"
	t.Setenv("CRAWLGATE_SERVER_GRACE", "5s")
	out, stderr, code := configCLI(t, text, "show")
	if code != 0 || stderr != "" || !strings.Contains(out, "\n  grace: 5s\n") || strings.Contains(out, "ABCDEF") || strings.Contains(out, "#") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
	out, _, code = configCLI(t, text, "show", "--origin")
	for _, want := range []string{"\n  grace: 5s # CRAWLGATE_SERVER_GRACE\n", "\n  - name: a # crawlgate.yaml:2\n", "\nlisten: 127.0.0.1:3128 # default\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, out)
		}
	}
	out, _, code = configCLI(t, text, "show", "--json")
	var got struct {
		Server  struct{ Grace string }
		Clients []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Server.Grace != "5s" || got.Clients[0]["secret_hash"] != "(masked)" {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	if out, _, code = configCLI(t, text, "show", "--hash"); code != 0 || !regexp.MustCompile(`^[0-9a-f]{64}\n$`).MatchString(out) {
		t.Errorf("exit %d\n%s", code, out)
	}
	if _, stderr, code = configCLI(t, text, "show", "--hash", "--json"); code != 2 || stderr == "" {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	if _, stderr, code = configCLI(t, "opne: true\n", "show"); code != 2 || stderr != "crawlgate: crawlgate.yaml: 1 problem\n  line 1  opne is not a key; did you mean open?\n" {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestConfigHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"check", "-h"}, {"show", "-h"}} {
		out, _, code := configCLI(t, "", args...)
		if code != 0 || strings.Count(out, "\n  crawlgate ") < 2 {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
	}
}
