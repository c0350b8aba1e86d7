//go:build !nonode

package sign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// nodeCase is one line for testdata/node/verify.mjs.
type nodeCase struct {
	ID          string      `json:"id"`
	Kind        string      `json:"kind"`
	Label       string      `json:"label"`
	Form        string      `json:"form"`
	Now         int64       `json:"now"`
	MaxLifetime int64       `json:"maxLifetime"`
	JWK         any         `json:"jwk"`
	Kid         string      `json:"kid"`
	Request     nodeMessage `json:"request"`
	Response    nodeMessage `json:"response"`

	want bool
}

type nodeMessage struct {
	Method    string      `json:"method,omitempty"`
	TargetURI string      `json:"targetUri,omitempty"`
	Status    int         `json:"status,omitempty"`
	Fields    [][2]string `json:"fields"`
}

// nodeFolder gives the folder that verify.mjs runs in. Its packages are those of CRAWLGATE_NODE_MODULES, or of
// testdata/node/node_modules, which is filled here when it is absent.
func nodeFolder(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("testdata/node")
	if err != nil {
		t.Fatal(err)
	}
	if modules := os.Getenv("CRAWLGATE_NODE_MODULES"); modules != "" {
		dir := t.TempDir() // Node looks for packages beside the script
		script, err := os.ReadFile(filepath.Join(source, "verify.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		writeMode(t, filepath.Join(dir, "verify.mjs"), script, 0o600)
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if _, err := os.Stat(filepath.Join(source, "node_modules", "http-message-sig")); err != nil {
		npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
		npm.Dir = source
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v: %s (go test -tags nonode leaves this test out)", err, out)
		}
	}
	return source
}

func runNode(t *testing.T, cases []nodeCase) {
	t.Helper()
	var in bytes.Buffer
	e := json.NewEncoder(&in)
	want := map[string]bool{}
	for _, c := range cases {
		if err := e.Encode(c); err != nil {
			t.Fatal(err)
		}
		want[c.ID] = c.want
	}
	if len(want) != len(cases) {
		t.Fatal("two cases have one id")
	}
	node := exec.CommandContext(t.Context(), "node", "verify.mjs")
	node.Dir = nodeFolder(t)
	node.Stdin = &in
	var failed bytes.Buffer
	node.Stderr = &failed
	out, err := node.Output()
	if err != nil {
		t.Fatalf("node: %v: %s (go test -tags nonode leaves this test out)", err, failed.String())
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var r struct {
			ID, Error string
			OK        bool
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		expected, known := want[r.ID]
		if !known || r.OK != expected {
			t.Errorf("%s: ok %t (%s), want %t", r.ID, r.OK, r.Error, expected)
		}
		delete(want, r.ID)
	}
	for id := range want {
		t.Errorf("%s: no answer", id)
	}
}

// TestNodeVerifies has another implementation judge the vectors and what this package signs: npm http-message-sig.
func TestNodeVerifies(t *testing.T) {
	cases := append(vectorCases(t), signedCases(t)...)
	cases = append(cases, directoryCases(t)...)
	runNode(t, cases)
}

func vectorCases(t *testing.T) []nodeCase {
	t.Helper()
	f := readVectors(t)
	var cases []nodeCase
	for _, v := range f.Vectors {
		c := nodeCase{ID: v.ID, Kind: v.Kind, Label: v.Label, Now: v.Now, MaxLifetime: v.MaxLifetime, want: v.ExpectWBA == Verified}
		if c.MaxLifetime == 0 {
			c.MaxLifetime = 8 * 86400
		}
		if v.ID == "legacy-string-ed25519" || v.ID == "cg-legacy-string" {
			c.Form = FormString
		}
		names, labels := []string{v.Key}, []string{v.Label}
		if v.Keys != nil {
			names, labels = v.Keys, []string{"key0", "key1"}
		}
		for i, name := range names {
			c.ID, c.Label = v.ID+" "+labels[i], labels[i]
			c.JWK, c.Kid = f.Keys[name].PublicJWK, f.Keys[name].Thumbprint
			c.Request = nodeMessage{Method: v.Request.Method, TargetURI: v.Request.URL, Fields: v.capture().Fields}
			if v.Kind == "directory" {
				c.Request.Fields = v.Request.Headers
				c.Response = nodeMessage{Status: v.Response.Status, Fields: v.directory().Fields}
			}
			cases = append(cases, c)
		}
	}
	for _, v := range f.Negative {
		// That library does not know the two rules about the agent's URL.
		knows := v.Reason != "agent-not-https" && v.Reason != "agent-member-parameters"
		cases = append(cases, nodeCase{ID: v.ID, Kind: "request", Label: "sig1", Now: v.Now, MaxLifetime: 86400, JWK: f.Keys["k1"].PublicJWK, Kid: f.Keys["k1"].Thumbprint,
			Request: nodeMessage{Method: v.Request.Method, TargetURI: v.Request.URL, Fields: v.capture().Fields}, want: !knows})
	}
	return cases
}

// signedCases are fresh signatures in every setting, and one that is tampered with.
func signedCases(t *testing.T) []nodeCase {
	t.Helper()
	var cases []nodeCase
	for name, change := range map[string]func(*Config){
		"plain": func(*Config) {}, "string": func(c *Config) { c.Form = FormString }, "nonce": func(c *Config) { c.Nonce = true },
		"bound": func(c *Config) { c.Components = ComponentsBound }, "no alg": func(c *Config) { c.Alg = false }, "label": func(c *Config) { c.Label = "*a.b-c_1" },
	} {
		config := Defaults()
		change(&config)
		s := openTest(t, config, example())
		for _, target := range []string{"https://example.com/", "https://example.com:8443/a%2Fb/c?a=1;b=2&q=100%", "https://xn--bcher-kva.example/x", "https://[2001:db8::1]/"} {
			m, err := requestMessage(Capture{Method: "GET", Target: target, Fields: [][2]string{{"Host", hostOf(t, target)}}})
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			if _, err := s.Sign(Request{Agent: "example", Method: "GET", Authority: m.authority, Path: m.path}, h); err != nil {
				t.Fatal(err)
			}
			c := nodeCase{ID: name + " " + target, Kind: "request", Label: config.Label, Form: config.Form, Now: time.Now().Unix(), MaxLifetime: 60, JWK: testKey(1).jwk(), Kid: testKey(1).id, want: true,
				Request: nodeMessage{Method: "GET", TargetURI: target, Fields: fieldLines(h)}}
			cases = append(cases, c)
			c.ID += " replayed"
			c.Request.TargetURI, c.want = "https://other.example/", false
			cases = append(cases, c)
		}
	}
	return cases
}

func hostOf(t *testing.T, target string) string {
	t.Helper()
	r, err := http.NewRequest("GET", target, nil) //nolint:noctx // only its host is wanted
	if err != nil {
		t.Fatal(err)
	}
	return r.Host
}

// directoryCases are answers of ServeDirectory, whole and not modified, for every key in them.
func directoryCases(t *testing.T) []nodeCase {
	t.Helper()
	s := openTest(t, Defaults(), example(), Agent{Name: "second", SignatureAgent: goodAgent})
	etag := ""
	var cases []nodeCase
	for _, status := range []int{200, 304} {
		res := ask(s, "GET", DirectoryPath, "bot.example.com", http.Header{"If-None-Match": {etag}})
		etag = res.Header.Get("Etag")
		if res.StatusCode != status {
			t.Fatal(res.StatusCode)
		}
		for i, label := range []string{"key0", "key1"} {
			k := testKey(byte(i + 1))
			c := nodeCase{ID: "directory " + label + " " + http.StatusText(status), Kind: "directory", Label: label, Now: time.Now().Unix(), MaxLifetime: 7 * 86400, JWK: k.jwk(), Kid: k.id, want: true,
				Request: nodeMessage{Method: "GET", TargetURI: "https://bot.example.com" + DirectoryPath, Fields: [][2]string{}}, Response: nodeMessage{Status: status, Fields: fieldLines(res.Header)}}
			cases = append(cases, c)
			c.ID += " of another host"
			c.Request.TargetURI, c.want = "https://other.example"+DirectoryPath, false
			cases = append(cases, c)
		}
	}
	return cases
}
