package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// signedAgents is an agent whose requests are signed.
const signedAgents = `[{name: example, product_token: ExampleBot, user_agent: "` + agentUA + `", signature_agent: "https://bot.example", purposes: [search, ai-input]}]`

// botKey is what `keys new --json` tells.
type botKey struct {
	ID  string          `json:"id"`
	JWK json.RawMessage `json:"jwk"`
}

// startSigned makes a key with `keys new` and then starts the gate that signs with it.
func startSigned(t *testing.T, c gateConfig) (*gate, botKey) {
	t.Helper()
	c.agents = signedAgents
	dir := t.TempDir()
	g := &gate{bin: binary(t), dir: dir, file: c.write(t, dir), state: filepath.Join(dir, "state")}
	r := g.cli(t, "keys", "new", "--agent", "example", "--json")
	var key botKey
	if err := json.Unmarshal([]byte(r.out), &key); err != nil || r.code != 0 || key.ID == "" {
		t.Fatalf("keys new: %+v", r)
	}
	g.serve(t, c)
	return g, key
}

// nodeFolder gives the folder of the Node programs, with their packages installed.
func nodeFolder(t *testing.T) string {
	t.Helper()
	dir, err := nodeModules()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var nodeModules = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("testdata/node")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"undici", "http-message-sig", "axios", "https-proxy-agent", "playwright-core", "puppeteer-core"} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", name)); err != nil {
			npm := exec.Command("npm", "ci", "--no-audit", "--no-fund")
			npm.Dir = dir
			if out, err := npm.CombinedOutput(); err != nil {
				return "", fmt.Errorf("npm ci: %w: %s", err, out)
			}
			break
		}
	}
	return dir, nil
})

// verified has another implementation (http-message-sig for Node) check every request as the origin got it, and that it
// refuses the first of them for another host.
func verified(t *testing.T, key botKey, o *origin, list []arrival) {
	t.Helper()
	if len(list) == 0 {
		t.Error("no request to verify")
		return
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	add := func(id, target string, a arrival) {
		var fields [][2]string
		for name, values := range a.Header {
			for _, v := range values {
				fields = append(fields, [2]string{name, v})
			}
		}
		if err := enc.Encode(map[string]any{"id": id, "now": a.At.Unix(), "jwk": key.JWK, "kid": key.ID, "method": a.Method, "targetUri": target, "fields": fields}); err != nil {
			t.Fatal(err)
		}
	}
	for n, a := range list {
		if a.Header.Get("Signature") == "" || a.Header.Get("Signature-Agent") != `sig1="https://bot.example"` {
			t.Errorf("%s %s is not signed: %v", a.Method, a.URI, a.Header)
		}
		add(fmt.Sprint(n), o.scheme+"://"+a.Host+a.URI, a)
	}
	add("elsewhere", o.scheme+"://other.test/", list[0])
	cmd := exec.CommandContext(t.Context(), "node", "verify.mjs")
	cmd.Dir, cmd.Stdin, cmd.Env = nodeFolder(t), &in, bareEnv(t.TempDir())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node verify.mjs: %v: %s", err, errs.String())
	}
	got := 0
	for line := range strings.Lines(string(out)) {
		var r struct{ ID, Error string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		got++
		if r.ID == "elsewhere" {
			if r.Error == "" {
				t.Error("a signature for another host was accepted, so nothing was verified")
			}
			continue
		}
		if r.Error != "" {
			t.Errorf("request %s: the signature is refused: %s", r.ID, r.Error)
		}
	}
	if got != len(list)+1 {
		t.Errorf("%d of %d verified", got, len(list)+1)
	}
}

// signatures fails when two requests carry the same one: each is signed for itself, when it leaves.
func signatures(t *testing.T, list []arrival) {
	t.Helper()
	seen := map[string]string{}
	for _, a := range list {
		s := a.Header.Get("Signature-Input")
		if other, ok := seen[s+a.Host]; ok && other == a.URI {
			t.Errorf("%s twice with one signature", a.URI)
		}
		seen[s+a.Host] = a.URI
		var created, expires int64
		for p := range strings.SplitSeq(s, ";") {
			_, _ = fmt.Sscanf(p, "created=%d", &created)
			_, _ = fmt.Sscanf(p, "expires=%d", &expires)
		}
		if age := a.At.Unix() - created; age < -1 || age > 2 || expires-created != 60 {
			t.Errorf("%s: created %ds before it arrived, expires %ds later", a.URI, age, expires-created)
		}
	}
}
