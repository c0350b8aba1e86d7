package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"crawlgate/sign"
)

// runKeysCLI runs the whole program.
func runKeysCLI(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), code
}

// keysConfig writes a configuration with one agent and gives its path and the state folder.
func keysConfig(t *testing.T, more string) (file, stateDir string) {
	t.Helper()
	dir := t.TempDir()
	stateDir = filepath.Join(dir, "state")
	file = filepath.Join(dir, "crawlgate.yaml")
	text := "state_dir: " + stateDir + `
agents:
  - name: example
    product_token: ExampleBot
    user_agent: "ExampleBot/1.0 (+https://bot.example/about)"
    info_url: https://bot.example/about
    contact: bot@bot.example
    signature_agent: https://bot.example
    purposes: [search, ai-input]
` + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, stateDir
}

func TestKeysLife(t *testing.T) {
	file, stateDir := keysConfig(t, "")
	keys := func(args ...string) (string, string, int) {
		t.Helper()
		return runKeysCLI(t, "", append([]string{"--config", file, "keys"}, args...)...)
	}
	expect := func(wantOut, wantErr string, wantCode int, args ...string) {
		t.Helper()
		out, errs, code := keys(args...)
		if code != wantCode || !regexp.MustCompile(wantOut).MatchString(out) || !regexp.MustCompile(wantErr).MatchString(errs) {
			t.Errorf("keys %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
	}
	expect(`^$`, `no keys; crawlgate keys new makes one`, 0, "list")
	expect(`^\[\]\n$`, `^$`, 0, "list", "--json")
	expect(`(?s)^key   \S{43} \(active\)\nfile  `+regexp.QuoteMeta(stateDir)+`/keys/example/\S{43}\.pem\njwk   \{"kty":"OKP","crv":"Ed25519","kid":"\S{43}","x":"\S{43}","use":"sig"\}\n$`, `^$`, 0, "new", "--agent", "example")
	out, errs, code := keys("new", "--json")
	var second sign.KeyInfo
	if err := json.Unmarshal([]byte(out), &second); err != nil || code != 0 || second.State != sign.StatePublished || errs != "" || strings.Contains(out, `"d"`) {
		t.Fatal(out, errs, code, err)
	}
	expect(`(?s)^AGENT +KEY +STATE +AGE +NEXT\nexample +\S{43} +active +0m +-\nexample +`+second.ID+` +published +0m +rotate from \d{4}-\d\d-\d\d \d\d:\d\d UTC\n$`, `^$`, 0, "list")
	expect(`^$`, `^crawlgate: rotate of key `+second.ID+` is possible from \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$`, 1, "rotate")
	expect(`^active    `+second.ID+`\nretiring  \S{43}\n$`, `^a gate on this state folder signs with the active key from its next start; retire is possible from`, 0, "rotate", "--now", second.ID)
	expect(`^$`, `retire of key \S{43} is possible from`, 1, "retire")
	expect(`^$`, `is active; rotate`, 1, "retire", "--now", second.ID)
	expect(`^retired  \S{43}\n$`, `^$`, 0, "retire", "--now")
	expect(`^$`, `--agent: no agent "other"`, 2, "new", "--agent", "other")
	expect(`^$`, `--trigger "robot" is not one of crawler, fetcher`, 2, "card", "--trigger", "robot")
	expect(`^$`, `unknown flag`, 2, "rotate", "--soon")
	expect(`^$`, `--out DIR is needed`, 2, "directory")
	public := filepath.Join(stateDir, "public")
	expect(`(?s)^body     \S+/public/\.well-known/http-message-signatures-directory\nheaders  \S+/public/_headers\n$`, `the proofs expire at .*: write it again before`, 0, "directory", "--authority", "bot.example", "--out", public)
	expect(`"authority": "bot.example"`, `^$`, 0, "directory", "--out", public, "--json")
	expect(`^$`, `no agent's directory is on other.example; there is bot.example`, 1, "directory", "--authority", "other.example", "--out", public)
	expect(`^\{"client_id":"https://bot\.example/signature-agent-card\.json","client_name":"ExampleBot".*"rfc9309-compliance":true,"trigger":"crawler","purpose":"search, ai-input"`, `^$`, 0, "card")
	expect(`^$`, `not an absolute https URL`, 1, "card", "--url", "http://bot.example/card")
}

// TestKeysCardTellsTheTruth: a profile that does not obey every robots.txt shows on the card.
func TestKeysCardTellsTheTruth(t *testing.T) {
	file, _ := keysConfig(t, "profiles:\n  - {name: crawl, agent: example}\n  - {name: answer, agent: example, robots: {mode: named}}\n")
	if out, errs, code := runKeysCLI(t, "", "--config", file, "keys", "card"); code != 0 || !strings.Contains(out, `"rfc9309-compliance":false`) {
		t.Error(out, errs, code)
	}
}

// TestKeysBeforeAnything: a first key can be made with no configuration, in any folder.
func TestKeysBeforeAnything(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := t.TempDir()
	out, errs, code := runKeysCLI(t, "", "keys", "new", "--state-dir", dir)
	if code != 0 || !strings.Contains(out, filepath.Join(dir, "keys", "default")) || !strings.Contains(errs, "unsigned until agent default has a signature_agent") {
		t.Error(out, errs, code)
	}
	file := filepath.Join(dir, "own.pem")
	if out, errs, code := runKeysCLI(t, "", "keys", "new", "--out", file); code != 0 || !strings.Contains(out, file) {
		t.Error(out, errs, code)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
	if _, errs, code := runKeysCLI(t, "", "keys", "new", "--out", file); code != 1 || !strings.Contains(errs, "file exists") {
		t.Error(errs, code)
	}
}

// TestKeysOfFiles: with key_file set, the commands only say what to change.
func TestKeysOfFiles(t *testing.T) {
	dir := t.TempDir()
	made, err := sign.NewFile(filepath.Join(dir, "k.pem"))
	if err != nil {
		t.Fatal(err)
	}
	file, _ := keysConfig(t, "    key_file: "+made.File+"\n")
	out, _, code := runKeysCLI(t, "", "--config", file, "keys", "list")
	if code != 0 || !strings.Contains(out, made.ID) || !strings.Contains(out, "set by agents[0].key_file") {
		t.Error(out, code)
	}
	if _, errs, code := runKeysCLI(t, "", "--config", file, "keys", "rotate"); code != 1 || !strings.Contains(errs, "publish_key_files") {
		t.Error(errs, code)
	}
	if err := os.Chmod(made.File, 0o644); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	if _, errs, code := runKeysCLI(t, "", "--config", file, "keys", "list"); code != 2 || !strings.Contains(errs, "agents[0].key_file: "+made.File+": mode 0644, 0600 or stricter is needed") {
		t.Error(errs, code)
	}
}
