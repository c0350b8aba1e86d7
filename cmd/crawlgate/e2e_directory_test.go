package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crawlgate/sign"
)

// freePort is a port of loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startKeyed makes a key for each agent and starts the gate; the configuration names the agents.
func startKeyed(t *testing.T, c gateConfig, agents ...string) (*gate, []botKey) {
	t.Helper()
	dir := t.TempDir()
	g := &gate{bin: binary(t), dir: dir, file: c.write(t, dir), state: filepath.Join(dir, "state")}
	keys := make([]botKey, len(agents))
	for n, name := range agents {
		r := g.cli(t, "keys", "new", "--agent", name, "--json")
		if err := json.Unmarshal([]byte(r.out), &keys[n]); err != nil || r.code != 0 {
			t.Fatalf("keys new: %+v", r)
		}
	}
	g.serve(t, c)
	return g, keys
}

var proofInput = regexp.MustCompile(`^key0=\("@authority";req "content-digest"\);created=(\d+);expires=(\d+);alg="ed25519";tag="http-message-signatures-directory";keyid="([\w-]{43})"(, key1=\("@authority";req "content-digest"\);created=\d+;expires=\d+;alg="ed25519";tag="http-message-signatures-directory";keyid="([\w-]{43})")?$`)

// proofs are answers of key directories whose proofs Node is to verify, all in one process.
type proofs []nodeCheck

func (p *proofs) add(host string, status int, h http.Header, keys ...botKey) {
	for n, k := range keys {
		*p = append(*p, nodeCheck{ID: fmt.Sprintf("%d: %s under %s", len(*p), k.ID, host), Now: time.Now().Unix(), JWK: k.JWK, Kid: k.ID, Method: "GET", TargetURI: "https://" + host + sign.DirectoryPath,
			Label: "key" + strconv.Itoa(n), Response: &nodeResponse{Status: status, Fields: fieldLines(h)}})
	}
}

func (p *proofs) verify(t *testing.T) {
	t.Helper()
	for id, said := range runNode(t, *p) {
		if said != "" {
			t.Errorf("the proof %s is refused: %s", id, said)
		}
	}
}

// TestKeyDirectory: every field of the answer, on the admin listener and on publish.listen, by agent, and what else is
// asked there.
func TestKeyDirectory(t *testing.T) {
	t.Parallel()
	listen := freePort(t)
	g, keys := startKeyed(t, gateConfig{
		agents: `[{name: one, product_token: OneBot, user_agent: OneBot/1.0, signature_agent: "https://one.example", info_url: "https://one.example/about", contact: bot@one.example, purposes: [search]},
  {name: two, product_token: TwoBot, user_agent: TwoBot/2.0, signature_agent: "https://two.example:8443/keys", purposes: [search]}, {name: three, product_token: ThreeBot, user_agent: ThreeBot/3.0}]`,
		profiles: "[{name: crawl, agent: one}, {name: person, agent: two, robots: {mode: named}}, {name: plain, agent: three}]",
		more:     fmt.Sprintf("publish: {listen: \"127.0.0.1:%d\"}\n", listen),
	}, "one", "two", "one")
	one, two, spare := keys[0], keys[1], keys[2]
	publish := fmt.Sprintf("http://127.0.0.1:%d", listen)
	var all proofs

	for _, base := range []string{g.admin, publish} {
		for _, c := range []struct {
			host, signed string
			keys         []botKey
		}{
			{"one.example", "one.example", []botKey{one, spare}},
			{"ONE.example:443", "one.example", []botKey{one, spare}},
			{"two.example:8443", "two.example:8443", []botKey{two}},
		} {
			status, h, body := ask(t, "GET", base+sign.DirectoryPath, "", "Host", c.host)
			if status != 200 {
				t.Errorf("%s as %s: %d %s", base, c.host, status, body)
				continue
			}
			var want []string
			for _, k := range c.keys {
				want = append(want, string(k.JWK))
			}
			var got struct{ Keys []json.RawMessage }
			if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Keys) != len(want) {
				t.Fatalf("%s: %v %s", c.host, err, body)
			}
			for n := range want {
				var a, b any
				_ = json.Unmarshal([]byte(want[n]), &a)
				_ = json.Unmarshal(got.Keys[n], &b)
				if fmt.Sprint(a) != fmt.Sprint(b) || strings.Contains(body, `"d"`) || strings.Contains(body, `"alg"`) {
					t.Errorf("%s: key %d is %s, not %s", c.host, n, got.Keys[n], want[n])
				}
			}
			for name, value := range map[string]string{
				"Content-Type": "application/http-message-signatures-directory+json", "Cache-Control": "public, max-age=3600, no-transform",
				"Access-Control-Allow-Origin": "*", "Content-Length": strconv.Itoa(len(body)), "X-Content-Type-Options": "nosniff",
				"Content-Encoding": "", "Cross-Origin-Resource-Policy": "", "Set-Cookie": "", "Location": "",
			} {
				if h.Get(name) != value || len(h[name]) > 1 {
					t.Errorf("%s as %s: %s: %q, want %q", base, c.host, name, h[name], value)
				}
			}
			m := proofInput.FindStringSubmatch(h.Get("Signature-Input"))
			if m == nil || m[3] != c.keys[0].ID || len(c.keys) == 2 && m[5] != c.keys[1].ID {
				t.Errorf("%s as %s: Signature-Input: %q", base, c.host, h["Signature-Input"])
			} else if created, expires := number(t, m[1]), number(t, m[2]); expires-created != 7*86400 || time.Now().Unix()-created > 300 {
				t.Errorf("the proof is from %d to %d", created, expires)
			}
			all.add(c.signed, status, h, c.keys...)

			// The same without a body, for a verifier that has it; and the head alone.
			status, h304, rest := ask(t, "GET", base+sign.DirectoryPath, "", "Host", c.host, "If-None-Match", `"other", W/`+h.Get("Etag"))
			if status != 304 || rest != "" {
				t.Errorf("%s as %s: not modified: %d %q", base, c.host, status, rest)
			}
			for _, name := range []string{"Content-Digest", "Signature-Input", "Signature", "Cache-Control", "Etag"} {
				if h304.Get(name) != h.Get(name) || h.Get(name) == "" {
					t.Errorf("%s as %s: 304 has %s %q, 200 %q", base, c.host, name, h304.Get(name), h.Get(name))
				}
			}
			all.add(c.signed, status, h304, c.keys...)
			status, head, rest := ask(t, "HEAD", base+sign.DirectoryPath, "", "Host", c.host)
			h.Del("Date")
			head.Del("Date")
			if status != 200 || rest != "" || fmt.Sprint(head) != fmt.Sprint(h) {
				t.Errorf("%s as %s: HEAD: %d %q %v", base, c.host, status, rest, head)
			}
			// A verifier of the newest draft fetches the value itself: an origin leads to /.
			if status, root, same := ask(t, "GET", base+"/", "", "Host", c.host); status != 200 || same != body || root.Get("Signature-Input") != h.Get("Signature-Input") {
				t.Errorf("%s as %s: /: %d %s", base, c.host, status, same)
			}
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"} {
			for _, path := range []string{sign.DirectoryPath, "/"} {
				if status, h, _ := ask(t, method, base+path, "", "Host", "one.example"); status != 405 || h.Get("Allow") != "GET, HEAD" || h.Get("Signature") != "" {
					t.Errorf("%s %s%s: %d, Allow %q", method, base, path, status, h.Get("Allow"))
				}
			}
		}
		refused := 404 // publish.listen gives nothing away
		if base == g.admin {
			refused = 403
		}
		for _, host := range []string{"evil.example", "one.example.evil.example", "xone.example", "two.example", "two.example:8444", "three.example", "example", "10.0.0.1", "localhost.evil.example"} {
			for _, path := range []string{sign.DirectoryPath, sign.CardPath, "/"} {
				status, h, body := ask(t, "GET", base+path, "", "Host", host)
				if status != refused && status != 400 || h.Get("Signature") != "" || strings.Contains(body, one.ID) || strings.Contains(body, two.ID) {
					t.Errorf("%s%s as %s: %d %s", base, path, host, status, body)
				}
			}
		}
		for host, token := range map[string]string{"one.example": "OneBot", "two.example:8443": "TwoBot"} {
			status, h, body := ask(t, "GET", base+sign.CardPath, "", "Host", host)
			var card struct {
				ClientID string `json:"client_id"`
				JWKS     string `json:"jwks_uri"`
				Bot      struct {
					Token     string `json:"rfc9309-product-token"`
					UA        string `json:"expected-user-agent"`
					Compliant bool   `json:"rfc9309-compliance"`
				} `json:"web_bot_auth"`
			}
			if err := json.Unmarshal([]byte(body), &card); err != nil || status != 200 || h.Get("Content-Type") != "application/json" {
				t.Errorf("card of %s: %d %v %s", host, status, h, body)
			}
			if card.ClientID != "https://"+host+sign.CardPath || card.JWKS != "https://"+host+sign.DirectoryPath || card.Bot.Token != token || !strings.HasPrefix(card.Bot.UA, token+"/") || card.Bot.Compliant != (token == "OneBot") {
				t.Errorf("card of %s: %s", host, body)
			}
		}
	}
	all.verify(t)
	// What the listener for the public does not show.
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/api/status", "/ca.pem", "/proxy.pac"} {
		if status, _, _ := ask(t, "GET", publish+path, "", "Host", "one.example"); status != 404 {
			t.Errorf("%s on publish.listen: %d", path, status)
		}
	}
	// Nor can it be reached through the proxy.
	if a := curl(t, g, publish+sign.DirectoryPath); a.header.Get("Crawlgate-Reason") != "loop" {
		t.Errorf("%+v", a)
	}
	// A reload that would change the listener says that it can't.
	text, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, g.file, strings.Replace(string(text), "publish: {", "publish: {serve_root: false, ", 1), 0o600)
	if r := g.cli(t, "keys", "new", "--agent", "two"); r.code != 1 || !strings.Contains(r.err, "did not take it up: publish.serve_root changed, which needs a restart") {
		t.Errorf("%+v", r)
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKeyDirectorySettings: publish.authority, serve_root, ignore_host, max_age and proof_lifetime, each from the file.
func TestKeyDirectorySettings(t *testing.T) {
	t.Parallel()
	listen := freePort(t)
	g, keys := startKeyed(t, gateConfig{agents: signedAgents, more: fmt.Sprintf("publish: {listen: \"127.0.0.1:%d\", authority: Keys.Example., serve_root: false, max_age: 90m, proof_lifetime: 48h}\n", listen)}, "example")
	var all proofs
	for _, base := range []string{g.admin, fmt.Sprintf("http://127.0.0.1:%d", listen)} {
		status, h, _ := ask(t, "GET", base+sign.DirectoryPath, "", "Host", "keys.example")
		m := proofInput.FindStringSubmatch(h.Get("Signature-Input"))
		if status != 200 || h.Get("Cache-Control") != "public, max-age=5400, no-transform" || m == nil || number(t, m[2])-number(t, m[1]) != 48*3600 {
			t.Fatalf("%s: %d %v", base, status, h)
		}
		all.add("keys.example", status, h, keys...)
		if status, _, body := ask(t, "GET", base+sign.DirectoryPath, "", "Host", "bot.example"); status != 403 && status != 404 || strings.Contains(body, keys[0].ID) {
			t.Errorf("%s as bot.example: %d", base, status)
		}
		if status, _, body := ask(t, "GET", base+"/", "", "Host", "keys.example"); strings.Contains(body, keys[0].ID) || status == 200 {
			t.Errorf("%s/: %d", base, status)
		}
		if _, _, body := ask(t, "GET", base+sign.CardPath, "", "Host", "keys.example"); !strings.Contains(body, `"jwks_uri":"https://keys.example/.well-known/http-message-signatures-directory"`) {
			t.Errorf("card: %s", body)
		}
	}
	// Behind a terminator that rewrites Host any name is answered, and the configured one is signed.
	listen = freePort(t)
	g, keys = startKeyed(t, gateConfig{agents: signedAgents, more: fmt.Sprintf("publish: {listen: \"127.0.0.1:%d\", ignore_host: true}\n", listen)}, "example")
	for _, base := range []string{g.admin, fmt.Sprintf("http://127.0.0.1:%d", listen)} {
		for _, host := range []string{"backend.internal:8080", "127.0.0.1"} {
			status, h, _ := ask(t, "GET", base+sign.DirectoryPath, "", "Host", host)
			if status != 200 {
				t.Fatalf("%s as %s: %d", base, host, status)
			}
			all.add("bot.example", status, h, keys...)
			if _, _, body := ask(t, "GET", base+sign.CardPath, "", "Host", host); !strings.Contains(body, `"client_id":"https://bot.example/signature-agent-card.json"`) {
				t.Errorf("card: %s", body)
			}
		}
		if status, _, _ := ask(t, "GET", base+"/metrics", "", "Host", "backend.internal:8080"); status != 403 && status != 404 {
			t.Errorf("%s/metrics under a foreign name: %d", base, status)
		}
	}
	all.verify(t)
	// Without a key there is no directory, rather than an empty one.
	g = startGate(t, gateConfig{agents: signedAgents})
	if status, _, body := ask(t, "GET", g.admin+sign.DirectoryPath, "", "Host", "bot.example"); status != 404 && status != 403 {
		t.Errorf("without a key: %d %s", status, body)
	}
	if status, _, body := ask(t, "GET", g.admin+"/readyz", ""); status != 200 || !strings.Contains(body, "unsigned: no key; crawlgate keys new --agent example makes one") {
		t.Errorf("readyz: %d %s", status, body)
	}
}

// TestStaticDirectory: what `keys directory` writes verifies when a plain file server serves it with its fields, and
// `verify` says what is wrong when it does not send them.
func TestStaticDirectory(t *testing.T) {
	t.Parallel()
	var root, fields atomic.Pointer[string]
	bot := newOrigin(t, tlsH1, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if text := fields.Load(); text != nil {
				lines := strings.Split(strings.TrimSpace(*text), "\n")
				if lines[0] == r.URL.Path {
					for _, line := range lines[1:] {
						name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
						w.Header().Set(name, value)
					}
				}
			}
			http.FileServer(http.Dir(*root.Load())).ServeHTTP(w, r)
		}
	}, "bot.test")
	shop := newOrigin(t, tlsH2, nil, "shop.test")
	agentURL := bot.url("")
	g, keys := startKeyed(t, gateConfig{origins: []*origin{bot, shop}, profiles: "[{name: crawl, pacing: {gap: 0s}}]",
		agents: `[{name: example, product_token: ExampleBot, user_agent: "` + agentUA + `", signature_agent: "` + agentURL + `"}]`}, "example", "example")
	dir := filepath.Join(g.dir, "public")
	root.Store(&dir)
	r := g.cli(t, "keys", "directory", "--out", dir, "--json")
	var wrote sign.StaticDirectory
	if err := json.Unmarshal([]byte(r.out), &wrote); err != nil || r.code != 0 || wrote.Keys != 2 || time.Until(wrote.Expires) < 6*24*time.Hour {
		t.Fatalf("%+v", r)
	}
	raw, err := os.ReadFile(wrote.Headers)
	if err != nil {
		t.Fatal(err)
	}
	if a := curl(t, g, shop.url("/a")); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	a := shop.pages()[0]
	capture, err := json.Marshal(map[string]any{"method": a.Method, "url": shop.scheme + "://" + a.Host + a.URI, "headers": append(a.lines(), [2]string{"Host", a.Host})})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(g.dir, "capture.json")
	writeFile(t, file, string(capture), 0o600)
	verify := func(more ...string) result {
		t.Helper()
		return g.cli(t, append([]string{"verify", "--capture", file, "--keys", agentURL + sign.DirectoryPath, "--require-proof"}, more...)...)
	}
	if r := verify(); r.code != 2 || !strings.Contains(r.err, "the media type is ") {
		t.Errorf("without the fields: %+v", r)
	}
	text := string(raw)
	fields.Store(&text)
	if r := verify(); r.code != 0 || !strings.HasPrefix(r.out, "1  verified  GET ") || r.err != "1 requests: 1 verified, 0 invalid, 0 unverified\n" {
		t.Errorf("%+v", r)
	}
	if r := verify("--now", strconv.FormatInt(wrote.Expires.Unix()+1, 10)); r.code != 2 || !strings.Contains(r.err, "expired") {
		t.Errorf("after the proof's end: %+v", r)
	}
	h := http.Header{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n")[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		h.Set(name, value)
	}
	var all proofs
	all.add(wrote.Authority, 200, h, keys...)
	all.verify(t)
	body, err := os.ReadFile(wrote.Body)
	if err != nil || slices.ContainsFunc(keys, func(k botKey) bool { return !strings.Contains(string(body), k.ID) }) {
		t.Errorf("%v %s", err, body)
	}
	// A changed body under the old fields is refused.
	writeFile(t, wrote.Body, strings.Replace(string(body), `"use":"sig"`, `"use": "sig"`, 1), 0o644)
	if r := verify(); r.code != 2 || !strings.Contains(r.err, "Content-Digest") {
		t.Errorf("another body: %+v", r)
	}
	// The gate itself answers nothing under a name that is not configured.
	front := newOutside(t, "front.test")
	front.pass(t, g)
	resp, err := rootClient(t, front.origin).Get(front.url(sign.DirectoryPath))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 403 {
		t.Errorf("a terminator under a name that is not configured: %d %s", resp.StatusCode, b)
	}
}

// rootClient trusts the test's origins and finds one of them whatever its name.
func rootClient(t *testing.T, o *origin) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(rootCA().cert)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, "127.0.0.1:"+itoa(o.port))
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
