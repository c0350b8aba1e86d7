package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"crawlgate/sign"
)

// nodeCheck is one line that verify.mjs reads.
type nodeCheck struct {
	ID         string          `json:"id"`
	Now        int64           `json:"now"`
	JWK        json.RawMessage `json:"jwk"`
	Kid        string          `json:"kid"`
	Method     string          `json:"method"`
	TargetURI  string          `json:"targetUri"`
	Fields     [][2]string     `json:"fields,omitempty"`
	Label      string          `json:"label,omitempty"`
	Form       string          `json:"form,omitempty"`
	Components []string        `json:"components,omitempty"`
	Parameters []string        `json:"parameters,omitempty"`
	Response   *nodeResponse   `json:"response,omitempty"`
}

type nodeResponse struct {
	Status int         `json:"status"`
	Fields [][2]string `json:"fields"`
}

// runNode has one Node process judge all checks, and gives its word for each, "" for a good signature. It also sees to it
// that the first of them is refused for another host.
func runNode(t *testing.T, checks []nodeCheck) map[string]string {
	t.Helper()
	var in, errs bytes.Buffer
	enc := json.NewEncoder(&in)
	if len(checks) == 0 {
		t.Fatal("nothing to verify")
	}
	control := checks[0]
	control.ID, control.TargetURI = "elsewhere", "https://other.test/"
	for _, c := range append(slices.Clone(checks), control) {
		if err := enc.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "verify.mjs")
	cmd.Dir, cmd.Stdin, cmd.Env, cmd.Stderr = nodeFolder(t), &in, bareEnv(t.TempDir()), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node verify.mjs: %v: %s", err, errs.String())
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var r struct{ ID, Error string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		said[r.ID] = r.Error
	}
	if said[control.ID] == "" {
		t.Error("what was signed for one host was accepted for another, so nothing was verified")
	}
	delete(said, control.ID)
	if len(said) != len(checks) {
		t.Errorf("node judged %d of %d", len(said), len(checks))
	}
	return said
}

// lines are the field lines of a message.
func (a arrival) lines() [][2]string { return fieldLines(a.Header) }

func fieldLines(h http.Header) [][2]string {
	var out [][2]string
	for name, values := range h {
		for _, v := range values {
			out = append(out, [2]string{name, v})
		}
	}
	return out
}

var keyidParam = regexp.MustCompile(`;keyid="([^"]+)"`)

// signedBy is the id of the key that a request names, "" for an unsigned one.
func signedBy(a arrival) string {
	if m := keyidParam.FindStringSubmatch(a.Header.Get("Signature-Input")); m != nil && len(a.Header["Signature"]) == 1 {
		return m[1]
	}
	return ""
}

// published remembers every key directory that was served, as a verifier that asks often would.
type published struct {
	g    *gate
	host string

	mu   sync.Mutex
	jwks map[string]json.RawMessage
	seen map[string]time.Time // when a key was first there
	last []string
}

func (p *published) look(t *testing.T) []string {
	t.Helper()
	status, _, body := ask(t, "GET", p.g.admin+sign.DirectoryPath, "", "Host", p.host)
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &set); err != nil || status != 200 {
		t.Fatalf("directory: %d %s", status, body)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = nil
	for _, raw := range set.Keys {
		var k struct{ Kid string }
		if err := json.Unmarshal(raw, &k); err != nil {
			t.Fatal(err)
		}
		p.last = append(p.last, k.Kid)
		if _, known := p.seen[k.Kid]; !known {
			p.jwks[k.Kid], p.seen[k.Kid] = raw, time.Now()
		}
	}
	return slices.Clone(p.last)
}

// TestKeyRotationUnderLoad: while four fetchers go on without a gap, keys are made, rotated and retired. Nothing is lost,
// refused or sent unsigned, and every signature is by a key that the directory had shown before.
func TestKeyRotationUnderLoad(t *testing.T) {
	t.Parallel()
	var origins []*origin
	for n := range 4 {
		kind := tlsH1
		if n%2 == 1 {
			kind = tlsH2
		}
		origins = append(origins, newOrigin(t, kind, func(o *origin) {
			o.handle = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }
		}, fmt.Sprintf("shop%d.test", n)))
	}
	g, first := startSigned(t, gateConfig{origins: origins, profiles: "[{name: crawl, pacing: {gap: 0s, parallel: 2}}]", more: "sign: {lifetime: 300s}\n"})
	seen := &published{g: g, host: "bot.example", jwks: map[string]json.RawMessage{}, seen: map[string]time.Time{}}
	if list := seen.look(t); !slices.Equal(list, []string{first.ID}) {
		t.Fatalf("the directory shows %v", list)
	}

	stop := make(chan struct{})
	var fetchers sync.WaitGroup
	answered := make([]int, len(origins))
	for n, o := range origins {
		client := goClient(t, g.proxy, g.ca, n >= 2)
		fetchers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Get(o.url("/" + strconv.Itoa(i)))
				if err != nil {
					t.Errorf("shop%d, request %d: %v", n, i, err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 || string(body) != "ok" || err != nil {
					t.Errorf("shop%d, request %d: %d %q %v", n, i, resp.StatusCode, body, err)
					return
				}
				answered[n]++
			}
		})
	}
	busy := func() {
		t.Helper()
		from := make([]int, len(origins))
		for n, o := range origins {
			from[n] = len(o.arrivals())
		}
		within(t, 30*time.Second, "every fetcher goes on", func() bool {
			for n, o := range origins {
				if len(o.arrivals()) < from[n]+10 {
					return false
				}
			}
			return true
		})
	}
	did := func(args ...string) string {
		t.Helper()
		r := g.cli(t, append([]string{"keys"}, args...)...)
		if r.code != 0 {
			t.Fatalf("keys %v: %+v", args, r)
		}
		return r.out
	}
	active := first.ID
	for range 3 {
		busy()
		var next botKey
		if err := json.Unmarshal([]byte(did("new", "--json")), &next); err != nil {
			t.Fatal(err)
		}
		if list := seen.look(t); !slices.Equal(list, []string{active, next.ID}) {
			t.Errorf("after keys new the directory shows %v", list)
		}
		busy()
		did("rotate", "--now")
		busy()
		did("retire", active, "--now")
		if list := seen.look(t); !slices.Equal(list, []string{next.ID}) {
			t.Errorf("after keys retire the directory shows %v", list)
		}
		active = next.ID
	}
	busy()
	close(stop)
	fetchers.Wait()

	var checks []nodeCheck
	var capture bytes.Buffer
	enc := json.NewEncoder(&capture)
	enc.SetEscapeHTML(false)
	by := map[string]int{}
	for n, o := range origins {
		pages := o.pages()
		if len(pages) != answered[n] {
			t.Errorf("shop%d: %d requests arrived, %d were answered", n, len(pages), answered[n])
		}
		for i, a := range o.arrivals() {
			kid := signedBy(a)
			by[kid]++
			since, known := seen.seen[kid]
			if !known || a.At.Before(since) {
				t.Errorf("%s: signed by %q, which the directory did not show (%v after)", a.URI, kid, since.Sub(a.At))
				continue
			}
			checks = append(checks, nodeCheck{ID: fmt.Sprintf("%d/%d", n, i), Now: a.At.Unix(), JWK: seen.jwks[kid], Kid: kid, Method: a.Method, TargetURI: o.scheme + "://" + a.Host + a.URI, Fields: a.lines()})
			if err := enc.Encode(map[string]any{"method": a.Method, "url": o.scheme + "://" + a.Host + a.URI, "headers": append(a.lines(), [2]string{"Host", a.Host})}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(by) != 4 {
		t.Errorf("requests by key: %v", by)
	}
	for kid, n := range by {
		if kid != active && kid != first.ID && n < 10 {
			t.Errorf("key %s signed %d requests", kid, n)
		}
	}
	for id, said := range runNode(t, checks) {
		if said != "" {
			t.Errorf("%s is refused: %s", id, said)
		}
	}
	// The same by our own verifier, with the union of what was published as a file.
	var union struct {
		Keys []json.RawMessage `json:"keys"`
	}
	for _, k := range seen.jwks {
		union.Keys = append(union.Keys, k)
	}
	raw, err := json.Marshal(union)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(g.dir, "capture.jsonl"), filepath.Join(g.dir, "union.json")}
	writeFile(t, files[0], capture.String(), 0o600)
	writeFile(t, files[1], string(raw), 0o600)
	r := g.cli(t, "verify", "--capture", files[0], "--keys", files[1])
	if want := fmt.Sprintf("%d requests: %d verified, 0 invalid, 0 unverified\n", len(checks), len(checks)); r.code != 0 || r.err != want {
		t.Errorf("verify: exit %d, %s", r.code, r.err)
	}
	// The directory as it is now knows only the last key: the others' requests can't be decided, and none is invalid.
	_, header, body := ask(t, "GET", g.admin+sign.DirectoryPath, "", "Host", "bot.example")
	answer, err := json.Marshal(map[string]any{"request": map[string]string{"url": "https://bot.example" + sign.DirectoryPath}, "response": map[string]any{"status": 200, "headers": fieldLines(header), "body": body}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, files[1], string(answer), 0o600)
	r = g.cli(t, "verify", "--capture", files[0], "--keys", files[1], "--require-proof")
	if want := fmt.Sprintf("%d requests: %d verified, 0 invalid, %d unverified\n", len(checks), by[active], len(checks)-by[active]); r.code != 2 || r.err != want {
		t.Errorf("verify with the last directory: exit %d, %s, want %s", r.code, r.err, want)
	}
	if n := g.metric(t, "crawlgate_sign_reload_failures_total"); n != 0 {
		t.Errorf("%v reloads failed", n)
	}
	states := map[string]int{}
	for _, e := range g.allEvents(t) {
		if e.Type == "request" {
			states[e.Sig.State+" "+e.Reason]++
		}
	}
	if len(states) != 1 || states["signed ok"] == 0 {
		t.Errorf("the log holds %v", states)
	}
	left, err := filepath.Glob(filepath.Join(g.state, "keys", "example", "*.pem"))
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0], active+".pem") {
		t.Errorf("left in the folder: %v %v", left, err)
	}
}

// TestKeysBesideABrokenKey: a change that the running gate can't take up is said, counted, and leaves the old keys in force.
func TestKeysBesideABrokenKey(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH2, nil, "site.test")
	g, first := startSigned(t, gateConfig{origins: []*origin{o}, profiles: "[{name: crawl, pacing: {gap: 0s}}]"})
	sent := 0
	still := func(kid string) {
		t.Helper()
		sent++
		if a := curl(t, g, o.url("/"+strconv.Itoa(sent))); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		list := o.pages()
		if got := signedBy(list[len(list)-1]); got != kid {
			t.Errorf("request %d is signed by %q, not %s", sent, got, kid)
		}
	}
	still(first.ID)
	file := filepath.Join(g.state, "keys", "example", first.ID+".pem")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"mode", string(whole), 0o644, "mode 0644, 0600 or stricter is needed"},
		{"cut", string(whole[:60]), 0o600, "a damaged or truncated PEM block"},
		{"another's", string(whole), 0o600, "holds the key"},
	} {
		text := c.text
		if c.name == "another's" {
			made, err := sign.NewFile(filepath.Join(t.TempDir(), "k.pem"))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(made.File)
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		writeFile(t, file, text, c.mode)
		r := g.cli(t, "keys", "new")
		if r.code != 1 || !strings.HasPrefix(r.out, "key   ") || !strings.Contains(r.err, "crawlgate: the key is changed, but the running gate did not take it up: state_dir: "+file+": "+c.want) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if got := g.metric(t, "crawlgate_sign_reload_failures_total"); got != float64(n+1) {
			t.Errorf("%s: %v failures counted, want %d", c.name, got, n+1)
		}
		still(first.ID)
		if status, _, body := ask(t, "GET", g.admin+sign.DirectoryPath, "", "Host", "bot.example"); status != 200 || strings.Count(body, `"kid"`) != 1 {
			t.Errorf("%s: the directory: %d %s", c.name, status, body)
		}
		if status, _, body := ask(t, "GET", g.admin+"/readyz", ""); status != 200 || !strings.Contains(body, "the last reload was refused") {
			t.Errorf("%s: readyz %d %s", c.name, status, body)
		}
	}
	if strings.Contains(g.err.String(), "PRIVATE KEY") || strings.Contains(g.err.String(), strings.Split(string(whole), "\n")[1]) {
		t.Error("the log holds key material")
	}
	// Mended, the next command brings all of it.
	writeFile(t, file, string(whole), 0o600)
	r := g.cli(t, "keys", "list", "--json")
	var list []sign.KeyInfo
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != 4 {
		t.Fatalf("%+v", r)
	}
	if r := g.cli(t, "keys", "rotate", "--now", list[1].ID); r.code != 0 || r.out != "active    "+list[1].ID+"\nretiring  "+first.ID+"\n" ||
		!strings.HasPrefix(r.err, "the running gate signs with the active key from now on; retire is possible from ") {
		t.Errorf("%+v", r)
	}
	still(list[1].ID)
	if status, _, body := ask(t, "GET", g.admin+sign.DirectoryPath, "", "Host", "bot.example"); status != 200 || strings.Count(body, `"kid"`) != 4 {
		t.Errorf("the directory: %d %s", status, body)
	}

	// What else the refused configuration says is not in force either.
	writeFile(t, file, string(whole[:60]), 0o600)
	text, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	failed := g.metric(t, "crawlgate_sign_reload_failures_total")
	writeFile(t, g.file, string(text)+"audit: {query: drop}\n", 0o600)
	within(t, 10*time.Second, "the changed file is refused", func() bool { return g.metric(t, "crawlgate_sign_reload_failures_total") > failed })
	if a := curl(t, g, o.url("/last?page=2")); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	events := g.waitEvents(t, sent+1)
	if e := events[len(events)-1]; !strings.HasSuffix(e.URL, "/last?page=2") {
		t.Errorf("half of a refused reload is in force: the log has %s", e.URL)
	}
}
