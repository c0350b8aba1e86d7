package sign

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func openTest(t testing.TB, c Config, agents ...Agent) *Signer {
	t.Helper()
	dir := t.TempDir()
	for i := range agents {
		agents[i].KeyFile = writeKey(t, dir, agents[i].Name, testKey(byte(i+1)), 0o600)
	}
	s, err := Open(c, dir, agents, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func example() Agent { return Agent{Name: "example", SignatureAgent: goodAgent} }

func ask(s *Signer, method, target, host string, h http.Header) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	for name, v := range h {
		r.Header[name] = v
	}
	w := httptest.NewRecorder()
	s.ServeDirectory(w, r)
	return w.Result()
}

func bodyOf(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func directoryCapture(t testing.TB, url string, res *http.Response) DirectoryCapture {
	t.Helper()
	c := DirectoryCapture{URL: url, Status: res.StatusCode, Body: []byte(bodyOf(t, res))}
	for name, values := range res.Header {
		for _, v := range values {
			c.Fields = append(c.Fields, [2]string{name, v})
		}
	}
	return c
}

func TestServeDirectory(t *testing.T) {
	s := openTest(t, Defaults(), example())
	for _, path := range []string{DirectoryPath, "/"} {
		res := ask(s, "GET", path, "bot.example.com", nil)
		body := bodyOf(t, res)
		if res.StatusCode != 200 || body != `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"`+testKey(1).id+`","x":"`+testKey(1).jwk().X+`","use":"sig"}]}` {
			t.Errorf("%d %s", res.StatusCode, body)
		}
		for name, want := range map[string]string{"Content-Type": DirectoryType, "Cache-Control": "public, max-age=3600, no-transform", "Access-Control-Allow-Origin": "*",
			"Content-Length": "154"} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		res.Body = io.NopCloser(strings.NewReader(body))
		set, proofs, err := VerifyDirectory(directoryCapture(t, "https://bot.example.com"+path, res), time.Now(), 0, true)
		if err != nil || set.Len() != 1 || len(proofs) != 1 || !proofs[0].Proves || proofs[0].Label != "key0" || proofs[0].Expires-proofs[0].Created != 7*86400 {
			t.Errorf("%v %+v", err, proofs)
		}
	}
}

func TestServeDirectoryRefuses(t *testing.T) {
	s := openTest(t, Defaults(), example())
	for _, c := range []struct {
		method, target, host string
		want                 int
	}{
		{"GET", DirectoryPath, "BOT.example.com.:443", 200},
		{"HEAD", DirectoryPath, "bot.example.com", 200},
		{"GET", DirectoryPath + "?x=1", "bot.example.com", 200},
		{"GET", DirectoryPath, "other.example.com", 404},
		{"GET", DirectoryPath, "bot.example.com:8443", 404},
		{"GET", DirectoryPath, "", 404},
		{"GET", DirectoryPath, "bot.example.com@evil.example", 404},
		{"GET", DirectoryPath + "/", "bot.example.com", 404},
		{"GET", "/about", "bot.example.com", 404},
		{"POST", DirectoryPath, "bot.example.com", 405},
		{"OPTIONS", DirectoryPath, "bot.example.com", 405},
		{"DELETE", DirectoryPath, "other.example.com", 404},
	} {
		res := ask(s, c.method, c.target, c.host, nil)
		if res.StatusCode != c.want {
			t.Errorf("%s %s of %s: %d, want %d", c.method, c.target, c.host, res.StatusCode, c.want)
		}
		if c.want == 405 && res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow: %q", res.Header.Get("Allow"))
		}
		if c.want != 200 && res.Header.Get("Signature") != "" {
			t.Errorf("%s %s: a refusal is signed", c.method, c.target)
		}
		if c.method == "HEAD" {
			if b := bodyOf(t, res); b != "" || res.Header.Get("Content-Length") != "154" || res.Header.Get("Signature") == "" {
				t.Errorf("HEAD: %q, %v", b, res.Header)
			}
		}
	}
	empty, err := Open(Defaults(), t.TempDir(), []Agent{example()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res := ask(empty, "GET", DirectoryPath, "bot.example.com", nil); res.StatusCode != 404 {
		t.Errorf("without a key: %d", res.StatusCode)
	}
}

func TestServeDirectoryNotModified(t *testing.T) {
	s := openTest(t, Defaults(), example())
	first := ask(s, "GET", DirectoryPath, "bot.example.com", nil)
	etag := first.Header.Get("Etag")
	if len(etag) < 10 || etag[0] != '"' {
		t.Fatalf("ETag %q", etag)
	}
	for _, match := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
		res := ask(s, "GET", DirectoryPath, "bot.example.com", http.Header{"If-None-Match": {match}})
		if res.StatusCode != 304 || bodyOf(t, res) != "" {
			t.Errorf("%s: %d", match, res.StatusCode)
		}
		for _, name := range []string{"Content-Digest", "Signature-Input", "Signature", "Cache-Control", "Etag", "Access-Control-Allow-Origin"} {
			if got, want := res.Header.Get(name), first.Header.Get(name); got != want || got == "" {
				t.Errorf("304 has %s %q, want %q", name, got, want)
			}
		}
	}
	if res := ask(s, "GET", DirectoryPath, "bot.example.com", http.Header{"If-None-Match": {`"other"`}}); res.StatusCode != 200 {
		t.Error(res.StatusCode)
	}
}

// TestServeDirectoryRenews: what is handed out is never older than a day, whatever the clock does.
func TestServeDirectoryRenews(t *testing.T) {
	s := openTest(t, Defaults(), example())
	synctest.Test(t, func(t *testing.T) {
		get := func() (etag string, p Proof) {
			res := ask(s, "GET", DirectoryPath, "bot.example.com", nil)
			_, proofs, err := VerifyDirectory(directoryCapture(t, "https://bot.example.com"+DirectoryPath, res), time.Now(), 0, true)
			if err != nil {
				t.Fatal(err)
			}
			return res.Header.Get("Etag"), proofs[0]
		}
		etag, p := get()
		time.Sleep(24*time.Hour - time.Second)
		if again, _ := get(); again != etag {
			t.Error("renewed within a day")
		}
		time.Sleep(time.Second)
		again, q := get()
		if again == etag || q.Created != p.Created+86400 || q.Expires != p.Expires+86400 {
			t.Errorf("not renewed after a day: %+v", q)
		}
	})
	d := &directory{built: time.Now().Add(time.Hour).Round(0)}
	if !d.stale() {
		t.Error("a proof from the future is handed out")
	}
}

func TestServeDirectorySettings(t *testing.T) {
	s := openTest(t, Defaults(), example())
	set := func(change func(*PublishConfig)) {
		t.Helper()
		p := PublishDefaults()
		change(&p)
		if err := s.SetPublish(p); err != nil {
			t.Fatal(err)
		}
	}
	set(func(p *PublishConfig) { p.ServeRoot = false; p.MaxAge = 2 * time.Minute })
	if res := ask(s, "GET", "/", "bot.example.com", nil); res.StatusCode != 404 {
		t.Errorf("root without serve_root: %d", res.StatusCode)
	}
	if res := ask(s, "GET", DirectoryPath, "bot.example.com", nil); res.Header.Get("Cache-Control") != "public, max-age=120, no-transform" {
		t.Error(res.Header)
	}
	set(func(p *PublishConfig) { p.IgnoreHost = true })
	res := ask(s, "GET", DirectoryPath, "127.0.0.1:3129", nil)
	if _, _, err := VerifyDirectory(directoryCapture(t, "https://bot.example.com"+DirectoryPath, res), time.Now(), 0, true); err != nil {
		t.Errorf("ignore_host signs another authority than the configured one: %v", err)
	}
	set(func(p *PublishConfig) { p.Authority = "Keys.example.net:8443" })
	if hosts := s.DirectoryHosts(); len(hosts) != 1 || hosts[0] != "keys.example.net:8443" {
		t.Error(hosts)
	}
	if res := ask(s, "GET", DirectoryPath, "bot.example.com", nil); res.StatusCode != 404 {
		t.Errorf("host of signature_agent beside an authority: %d", res.StatusCode)
	}
	res = ask(s, "GET", DirectoryPath, "keys.example.net:8443", nil)
	if _, _, err := VerifyDirectory(directoryCapture(t, "https://keys.example.net:8443"+DirectoryPath, res), time.Now(), 0, true); err != nil {
		t.Error(err)
	}
}

// TestServeDirectoryPerAgent: each Host shows the keys of its own agents.
func TestServeDirectoryPerAgent(t *testing.T) {
	s := openTest(t, Defaults(), Agent{Name: "a", SignatureAgent: "https://a.example.com"}, Agent{Name: "b", SignatureAgent: "https://b.example.com/x"},
		Agent{Name: "c", SignatureAgent: "https://a.example.com"})
	for host, ids := range map[string][]string{"a.example.com": {testKey(1).id, testKey(3).id}, "b.example.com": {testKey(2).id}} {
		res := ask(s, "GET", DirectoryPath, host, nil)
		c := directoryCapture(t, "https://"+host+DirectoryPath, res)
		for n := byte(1); n <= 3; n++ {
			want := strings.Contains(strings.Join(ids, " "), testKey(n).id)
			if got := strings.Contains(string(c.Body), testKey(n).id); got != want {
				t.Errorf("%s shows key %d: %t", host, n, got)
			}
		}
		if set, proofs, err := VerifyDirectory(c, time.Now(), 0, true); err != nil || set.Len() != len(ids) || len(proofs) != len(ids) {
			t.Errorf("%s: %v %+v", host, err, proofs)
		}
	}
	p := PublishDefaults()
	p.IgnoreHost = true
	if err := s.SetPublish(p); err != nil {
		t.Fatal(err)
	}
	if res := ask(s, "GET", DirectoryPath, "c.example.com", nil); res.StatusCode != 404 {
		t.Errorf("ignore_host can't choose between agents: %d", res.StatusCode)
	}
}

// TestServeDirectoryWithoutProof: a key of which only the public half is left is shown, and not proven.
func TestServeDirectoryWithoutProof(t *testing.T) {
	dir := t.TempDir()
	a := example()
	a.KeyFile = writeKey(t, dir, "k.pem", testKey(1), 0o600)
	jwk, err := json.Marshal(testKey(2).jwk())
	if err != nil {
		t.Fatal(err)
	}
	a.PublishKeyFiles = []string{writeMode(t, filepath.Join(dir, "old.json"), jwk, 0o644), writeKey(t, dir, "next.pem", testKey(3), 0o600)}
	s, err := Open(Defaults(), dir, []Agent{a}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := directoryCapture(t, "https://bot.example.com"+DirectoryPath, ask(s, "GET", DirectoryPath, "bot.example.com", nil))
	for require, want := range map[bool]int{false: 3, true: 2} {
		if set, proofs, err := VerifyDirectory(c, time.Now(), 0, require); err != nil || set.Len() != want || len(proofs) != 2 || proofs[1].Label != "key2" {
			t.Errorf("require %t: %v %+v", require, err, proofs)
		}
	}
}

func TestServeDirectoryAfterReload(t *testing.T) {
	k := testKeyring(t)
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	s, err := Open(k.Config, k.StateDir, k.Agents, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := bodyOf(t, ask(s, "GET", DirectoryPath, "bot.example.com", nil))
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	if now := bodyOf(t, ask(s, "GET", DirectoryPath, "bot.example.com", nil)); now != before {
		t.Error("changed without a reload")
	}
	if err := s.Reload(k.Config, k.Agents); err != nil {
		t.Fatal(err)
	}
	if now := bodyOf(t, ask(s, "GET", DirectoryPath, "bot.example.com", nil)); strings.Count(now, `"kid"`) != 2 || !strings.HasPrefix(now, before[:len(before)-2]) {
		t.Error(now)
	}
}

func TestWriteDirectory(t *testing.T) {
	k := testKeyring(t)
	if _, err := k.WriteDirectory("", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no agent has") {
		t.Error(err)
	}
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "public")
	d, err := k.WriteDirectory("", out)
	if err != nil {
		t.Fatal(err)
	}
	if d.Authority != "bot.example.com" || d.Keys != 1 || time.Until(d.Expires) < 6*24*time.Hour {
		t.Errorf("%+v", d)
	}
	body, err := os.ReadFile(filepath.Join(out, ".well-known", "http-message-signatures-directory"))
	if err != nil {
		t.Fatal(err)
	}
	headers, err := os.ReadFile(filepath.Join(out, "_headers"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(headers)), "\n")
	if lines[0] != DirectoryPath {
		t.Errorf("%q", lines[0])
	}
	c := DirectoryCapture{URL: "https://bot.example.com" + DirectoryPath, Status: 200, Body: body}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		c.Fields = append(c.Fields, [2]string{name, value})
	}
	if _, _, err := VerifyDirectory(c, time.Now(), 0, true); err != nil {
		t.Error(err)
	}
	if _, err := k.WriteDirectory("", out); err != nil {
		t.Errorf("written again: %v", err)
	}
	if _, err := k.WriteDirectory("other.example.com", out); err == nil || !strings.Contains(err.Error(), "bot.example.com") {
		t.Error(err)
	}
	k.Agents[0].SignatureAgent = ""
	if d, err := k.WriteDirectory("Fresh.example.com", out); err != nil || d.Authority != "fresh.example.com" {
		t.Errorf("an agent before it has a signature_agent: %+v, %v", d, err)
	}
}

func TestCard(t *testing.T) {
	a := Agent{Name: "example", SignatureAgent: "https://bot.example.com", Token: "ExampleBot", UserAgent: "ExampleBot/1.0 (+https://example.com/crawler)",
		InfoURL: "https://example.com/crawler", Contact: "crawler@example.com", Purposes: []string{"search"}}
	got, err := Card(a, PublishDefaults(), CardFacts{URL: "https://bot.example.com/card", Compliant: true, RateExpectation: "avg=1rps"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"client_id":"https://bot.example.com/card","client_name":"ExampleBot","client_uri":"https://example.com/crawler",` +
		`"contacts":["mailto:crawler@example.com"],"jwks_uri":"https://bot.example.com/.well-known/http-message-signatures-directory",` +
		`"web_bot_auth":{"expected-user-agent":"ExampleBot/1.0 (+https://example.com/crawler)","rfc9309-product-token":"ExampleBot","rfc9309-compliance":true,` +
		`"trigger":"crawler","purpose":"search","rate-control":"429, Retry-After, Crawl-delay","rate-expectation":"avg=1rps","known-urls":["/robots.txt"]}}` + "\n"
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	plain, err := Card(Agent{Name: "n", SignatureAgent: goodAgent, UserAgent: "pass", Contact: "https://example.com/contact"}, PublishDefaults(), CardFacts{})
	if err != nil || !strings.Contains(string(plain), `"client_id":"https://bot.example.com/signature-agent-card.json"`) || strings.Contains(string(plain), "pass") ||
		!strings.Contains(string(plain), `"contacts":["https://example.com/contact"]`) || !strings.Contains(string(plain), `"rfc9309-compliance":false`) {
		t.Errorf("%s %v", plain, err)
	}
	for name, f := range map[string]CardFacts{"http": {URL: "http://a.example/card"}, "fragment": {URL: "https://a.example/#x"}, "trigger": {Trigger: "robot"}} {
		if _, err := Card(a, PublishDefaults(), f); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := Card(Agent{Name: "n"}, PublishDefaults(), CardFacts{}); err == nil || !strings.Contains(err.Error(), "signature_agent") {
		t.Error(err)
	}
}

// TestVerifyDirectoryRules changes one thing of a good answer at a time.
func TestVerifyDirectoryRules(t *testing.T) {
	s := openTest(t, Defaults(), example())
	good := directoryCapture(t, "https://bot.example.com"+DirectoryPath, ask(s, "GET", DirectoryPath, "bot.example.com", nil))
	field := func(name, value string) func(*DirectoryCapture) {
		return func(c *DirectoryCapture) {
			var fields [][2]string
			for _, f := range c.Fields {
				if f[0] != name {
					fields = append(fields, f)
				}
			}
			if value != "" {
				fields = append(fields, [2]string{name, value})
			}
			c.Fields = fields
		}
	}
	for _, c := range []struct {
		name   string
		change func(*DirectoryCapture)
		now    time.Duration
		open   string // error without requireProof
		strict string // error with it
		reason string // of the first proof
	}{
		{"good", func(*DirectoryCapture) {}, 0, "", "", ""},
		{"status", func(c *DirectoryCapture) { c.Status = 203 }, 0, "status 203", "status 203", ""},
		{"media type", field("Content-Type", "application/json"), 0, "media type", "media type", ""},
		{"media type parameter", field("Content-Type", DirectoryType+"; charset=utf-8"), 0, "media type", "media type", ""},
		{"compressed", field("Content-Encoding", "br"), 0, "content encoding", "content encoding", ""},
		{"body", func(c *DirectoryCapture) { c.Body = append(c.Body, '\n') }, 0, "not that of the body", "not that of the body", ""},
		{"no digest", field("Content-Digest", ""), 0, "no key", "no key", "bad-signature"},
		{"unknown digest", field("Content-Digest", "md5=:AA==:"), 0, "neither sha-256", "neither sha-256", ""},
		{"digest that is no dictionary", field("Content-Digest", "!"), 0, "not a dictionary", "not a dictionary", ""},
		{"no signature", func(c *DirectoryCapture) { field("Signature", "")(c); field("Signature-Input", "")(c) }, 0, "", "no key", ""},
		{"half a signature", field("Signature", ""), 0, "", "no key", "label-mismatch"},
		{"other host", func(c *DirectoryCapture) { c.URL = "https://other.example.com" + DirectoryPath }, 0, "no key", "no key", "bad-signature"},
		{"expired", func(*DirectoryCapture) {}, 8 * 24 * time.Hour, "no key", "no key", "expired"},
		{"from the future", func(*DirectoryCapture) {}, -6 * time.Second, "no key", "no key", "created-in-future"},
		{"within the skew", func(*DirectoryCapture) {}, -4 * time.Second, "", "", ""},
		{"over http", func(c *DirectoryCapture) { c.URL = "http://bot.example.com/" }, 0, "not an https URL", "not an https URL", ""},
		{"too big", func(c *DirectoryCapture) { c.Body = make([]byte, maxDirectory+1) }, 0, "more than", "more than", ""},
	} {
		for _, require := range []bool{false, true} {
			d := good
			d.Body = append([]byte{}, good.Body...)
			c.change(&d)
			want := c.open
			if require {
				want = c.strict
			}
			_, proofs, err := VerifyDirectory(d, time.Now().Add(c.now), DefaultSkew, require)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, require %t: %v, want %q", c.name, require, err, want)
			}
			if c.reason != "" && (len(proofs) == 0 || proofs[0].Reason != c.reason) {
				t.Errorf("%s: %+v, want %s", c.name, proofs, c.reason)
			}
		}
	}
}

func TestReadKeys(t *testing.T) {
	s := openTest(t, Defaults(), example())
	c := directoryCapture(t, "https://bot.example.com"+DirectoryPath, ask(s, "GET", DirectoryPath, "bot.example.com", nil))
	captured, err := json.Marshal(map[string]any{"request": map[string]any{"url": c.URL}, "response": map[string]any{"status": c.Status, "headers": c.Fields, "body": string(c.Body)}})
	if err != nil {
		t.Fatal(err)
	}
	set, proofs, err := ReadKeys(captured, time.Now(), 0, true)
	if err != nil || set.Len() != 1 || len(proofs) != 1 || set.source == nil {
		t.Errorf("%v %+v", err, proofs)
	}
	if set, _, err := ReadKeys(c.Body, time.Now(), 0, false); err != nil || set.source != nil {
		t.Error(err)
	}
	if _, _, err := ReadKeys(c.Body, time.Now(), 0, true); err == nil || !strings.Contains(err.Error(), "no proof") {
		t.Error(err)
	}
}
