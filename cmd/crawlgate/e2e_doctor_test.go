package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
	"crawlgate/sign"
)

// outside is the organisation's own public site: it passes what it is asked on to a gate, Host and all, unless a test
// has it do something else.
type outside struct {
	*origin
	gate    atomic.Pointer[url.URL]
	instead atomic.Pointer[http.HandlerFunc]
}

func newOutside(t *testing.T, host string) *outside {
	t.Helper()
	s := &outside{}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(s.gate.Load())
		r.Out.Host = r.In.Host
	}}
	s.origin = newOrigin(t, tlsH2, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if h := s.instead.Load(); h != nil {
				(*h)(w, r)
				return
			}
			pass.ServeHTTP(w, r)
		}
	}, host)
	return s
}

func (s *outside) pass(t *testing.T, g *gate) {
	t.Helper()
	u, err := url.Parse(g.admin)
	if err != nil {
		t.Fatal(err)
	}
	s.gate.Store(u)
	s.instead.Store(nil)
}

func (s *outside) do(h http.HandlerFunc) { s.instead.Store(&h) }

// crawlNames is a DNS for the published addresses: .5 is right, .6 has no name, .7's does not lead back, .8 is under
// another name, .9 gets no answer.
func crawlNames(q dnstest.Question) dnstest.Reply {
	names := map[string]string{"5": "c5.crawl.example", "7": "c7.crawl.example", "8": "host8.isp.example"}
	if q.Type == dnsmessage.TypePTR {
		last, rest, _ := strings.Cut(q.Name, ".")
		switch {
		case rest != "113.0.203.in-addr.arpa" || names[last] == "" && last != "9":
			return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
		case last == "9":
			return dnstest.Reply{RCode: dnsmessage.RCodeServerFailure}
		}
		return dnstest.Reply{PTR: []string{names[last]}}
	}
	switch {
	case q.Name == "c5.crawl.example" && q.Type == dnsmessage.TypeA:
		return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.4"), netip.MustParseAddr("203.0.113.5")}}
	case q.Name == "c7.crawl.example" && q.Type == dnsmessage.TypeA:
		return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.70")}}
	case q.Name == "host8.isp.example" && q.Type == dnsmessage.TypeA:
		return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.8")}}
	case q.Name == "c5.crawl.example" || q.Name == "c7.crawl.example" || q.Name == "host8.isp.example":
		return dnstest.Reply{}
	}
	return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
}

// doctorSays runs doctor and gives its lines with everything that differs between runs named.
func doctorSays(t *testing.T, g *gate, site *outside, ids []string, args ...string) ([]string, int) {
	t.Helper()
	r := g.cli(t, append([]string{"doctor"}, args...)...)
	text := strings.NewReplacer(site.url(""), "https://BOT", g.dir, "DIR", "127.0.0.1:"+itoa(site.port), "BOT").Replace(r.out)
	for n, id := range ids {
		text = strings.ReplaceAll(text, id, fmt.Sprintf("KEY%d", n+1))
	}
	text = regexp.MustCompile(`process \d+ on http://127\.0\.0\.1:\d+`).ReplaceAllString(text, "process N on PROXY")
	text = regexp.MustCompile(`\b20\d\d-\d\d-\d\d\b`).ReplaceAllString(text, "DAY")
	text = regexp.MustCompile(` {2,}`).ReplaceAllString(text, "  ")
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	count := func(level string) (n int) {
		for _, l := range lines {
			if strings.HasPrefix(l, level+"  ") {
				n++
			}
		}
		return n
	}
	if want := fmt.Sprintf("%d ok, %d to look at, %d failed\n", count("ok"), count("warn"), count("fail")); !strings.HasSuffix(r.err, want) || (r.code == 1) != (count("fail") > 0) || r.code > 1 {
		t.Errorf("exit %d, stderr %q, want %q", r.code, r.err, want)
	}
	return lines, r.code
}

// differs compares the lines that doctor printed.
func differs(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("%s: said\n%s\nnot\n%s", what, a, b)
	}
}

// only are the lines about one thing.
func only(lines []string, what string) (out []string) {
	for _, l := range lines {
		if _, rest, _ := strings.Cut(l, "  "); strings.HasPrefix(rest, what+"  ") {
			out = append(out, l)
		}
	}
	return out
}

// TestDoctor: what it says of a gate that is well, and of each thing that can be wrong with it, word for word.
func TestDoctor(t *testing.T) {
	t.Parallel()
	site := newOutside(t, "bot.test")
	second := newOrigin(t, tlsH1, func(o *origin) {
		o.handle = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat))
		}
	}, "about.test")
	dns := dnstest.New(t, crawlNames)
	conf := gateConfig{
		origins: []*origin{site.origin, second}, egress: []string{"dns: [\"" + dns.Addr + "\"]"},
		agents: fmt.Sprintf(`[{name: example, product_token: ExampleBot, user_agent: "ExampleBot/1.0 (+%s)", info_url: %q, contact: bot@bot.test, signature_agent: %q, purposes: [search]}]`, site.url("/about"), site.url("/about"), site.url("")),
		more:   "page: {addresses: [203.0.113.5], reverse_dns: \"*.crawl.example\"}\n",
	}
	g, keys := startKeyed(t, conf, "example")
	site.pass(t, g)
	text, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{keys[0].ID}
	well := []string{
		"ok  configuration  DIR/crawlgate.yaml",
		"ok  state  DIR/state, secrets readable by their owner only",
		"ok  gate  process N on PROXY, ready",
		"ok  CA  DIR/state/ca/ca.pem until DAY",
		"ok  agent example  the info page https://BOT/about answers",
		"ok  agent example  verifiers of draft -01 find the active key at https://BOT/, proven",
		"ok  agent example  verifiers that take its origin find the active key at https://BOT/.well-known/http-message-signatures-directory, proven",
		"ok  agent example  verifiers of draft -00 and before find the active key at https://BOT/.well-known/http-message-signatures-directory, proven",
		"ok  agent example  signature_agent https://BOT serves every generation of verifiers",
		"ok  addresses  203.0.113.5 resolves to c5.crawl.example and back",
		"ok  clock  within 1s of the one site's that answered",
	}
	lines, _ := doctorSays(t, g, site, ids)
	differs(t, "a gate that is well", lines, well...)
	// For machines the same.
	r := g.cli(t, "doctor", "--json")
	n := 0
	for line := range strings.Lines(r.out) {
		var f struct{ Level, What, Text string }
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Level != "ok" || f.What == "" || f.Text == "" {
			t.Errorf("%v %s", err, line)
		}
		n++
	}
	if r.code != 0 || r.err != "" || n != len(well) {
		t.Errorf("--json: %+v", r)
	}

	// Files.
	keyFile := filepath.Join(g.state, "keys", "example", ids[0]+".pem")
	chmod(t, keyFile, 0o644)
	lines, code := doctorSays(t, g, site, ids)
	differs(t, "an open key file", only(lines, "state"), "fail  state  DIR/state/keys/example/KEY1.pem has mode 0644; it holds a secret (chmod 600)")
	differs(t, "an open key file", only(lines, "keys"), "fail  keys  state_dir: DIR/state/keys/example/KEY1.pem: mode 0644, 0600 or stricter is needed")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	chmod(t, keyFile, 0o600)
	chmod(t, filepath.Join(g.state, "ca", "ca.key"), 0o640)
	lines, _ = doctorSays(t, g, site, ids)
	differs(t, "an open CA key", append(only(lines, "state"), only(lines, "CA")...),
		"fail  state  DIR/state/ca/ca.key has mode 0640; it holds a secret (chmod 600)",
		"fail  CA  intercept.ca_key_file: DIR/state/ca/ca.key has mode 0640; a private key must not be readable by others (chmod 600)")
	chmod(t, filepath.Join(g.state, "ca", "ca.key"), 0o600)
	chmod(t, g.state, 0o755)
	lines, code = doctorSays(t, g, site, ids)
	differs(t, "an open folder", only(lines, "state"), "warn  state  DIR/state has mode 0755; with 0700 only its owner sees keys and logs (chmod 700)", well[1])
	if code != 0 {
		t.Errorf("a warning alone: exit %d", code)
	}
	chmod(t, g.state, 0o700)

	// The clock, by one site and by two that agree.
	shifted := func(by time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			u := site.gate.Load()
			p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host }, ModifyResponse: func(resp *http.Response) error {
				resp.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
				return nil
			}}
			p.ServeHTTP(w, r)
		}
	}
	site.do(shifted(90 * time.Second))
	lines, code = doctorSays(t, g, site, ids)
	if got := strings.Join(only(lines, "clock"), "\n"); code != 0 || !regexp.MustCompile(`^warn  clock  1m(29|30)(\.\d)?s behind the one site's that answered; one of the two is wrong, and verifiers refuse signatures from the future$`).MatchString(got) {
		t.Errorf("exit %d: %s", code, got)
	}
	writeFile(t, filepath.Join(g.dir, "two.yaml"), strings.Replace(string(text), "info_url: \""+site.url("/about"), "info_url: \""+second.url("/about"), 1), 0o600)
	two := *g
	two.file = filepath.Join(g.dir, "two.yaml")
	lines, code = doctorSays(t, &two, site, ids)
	if got := strings.Join(only(lines, "clock"), "\n"); code != 1 || !regexp.MustCompile(`^fail  clock  1m(29|30)(\.\d)?s behind that of 2 sites; verifiers refuse signatures from the future and old ones \(synchronise it with NTP\)$`).MatchString(got) {
		t.Errorf("exit %d: %s", code, got)
	}
	site.pass(t, g)

	// A public copy that is not the gate's: gone, of another type, older, silent.
	site.do(http.NotFound)
	lines, code = doctorSays(t, g, site, ids)
	differs(t, "nothing there", only(lines, "agent example"),
		"fail  agent example  the info page https://BOT/about answers 404",
		"fail  agent example  verifiers of draft -01 find no key at https://BOT/: status 404, not 200",
		"fail  agent example  verifiers that take its origin find no key at https://BOT/.well-known/http-message-signatures-directory: status 404, not 200",
		"fail  agent example  verifiers of draft -00 and before find no key at https://BOT/.well-known/http-message-signatures-directory: status 404, not 200",
		"fail  agent example  signature_agent https://BOT serves no verifier, so signed requests count as unsigned or worse")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	site.do(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://www.bot.test/", http.StatusMovedPermanently)
	})
	lines, _ = doctorSays(t, g, site, ids)
	differs(t, "redirected", only(lines, "agent example")[:2],
		"warn  agent example  the info page https://BOT/about leads to https://www.bot.test/; name that one in info_url and user_agent",
		"fail  agent example  verifiers of draft -01 find no key at https://BOT/: status 301, not 200")
	site.pass(t, g)
	old := stored(t, g, site)
	site.do(old)
	r = g.cli(t, "keys", "new", "--json")
	var next botKey
	if err := json.Unmarshal([]byte(r.out), &next); err != nil {
		t.Fatalf("%+v", r)
	}
	ids = append(ids, next.ID)
	lines, code = doctorSays(t, g, site, ids)
	differs(t, "an older copy", only(lines, "agent example")[4:], "fail  agent example  the published key KEY2 is not at https://BOT/.well-known/http-message-signatures-directory, or has no proof there; is an older copy served?", well[8])
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	if r := g.cli(t, "keys", "rotate", "--now"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	lines, _ = doctorSays(t, g, site, ids)
	differs(t, "a copy without the active key", only(lines, "agent example")[1:2], "fail  agent example  verifiers of draft -01 find no key at https://BOT/: the active key KEY2 is not in it")
	release := make(chan struct{})
	site.do(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	began := time.Now()
	lines, code = doctorSays(t, g, site, ids, "--timeout", "2s")
	close(release)
	if took := time.Since(began); took > 15*time.Second || code != 1 {
		t.Errorf("took %v, exit %d", took, code)
	}
	differs(t, "a site that does not answer", only(lines, "agent example")[:2],
		"fail  agent example  the info page https://BOT/about cannot be read: no answer in time",
		"fail  agent example  verifiers of draft -01 find no key at https://BOT/: no answer in time")
	site.pass(t, g)

	// Old keys.
	records := filepath.Join(g.state, "keys", "example", "keys.json")
	raw, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	aged := regexp.MustCompile(`"since": "[^"]*"`).ReplaceAllString(string(raw), `"since": "`+time.Now().Add(-200*24*time.Hour).UTC().Format(time.RFC3339)+`"`)
	writeFile(t, records, aged, 0o600)
	lines, code = doctorSays(t, g, site, ids)
	differs(t, "old keys", only(lines, "agent example")[1:3],
		"warn  agent example  the key KEY1 signs nothing any more; drop it with `crawlgate keys retire --agent example KEY1`",
		"warn  agent example  the key KEY2 has signed for 200 days; make the next one with `crawlgate keys new --agent example`, and rotate to it")
	if code != 0 {
		t.Errorf("exit %d", code)
	}

	// Addresses, and a file that differs from what runs.
	other := filepath.Join(g.dir, "other.yaml")
	writeFile(t, other, strings.Replace(string(text), "[203.0.113.5]", "[203.0.113.5/32, 203.0.113.0/28, 203.0.113.6, 203.0.113.7, 203.0.113.8, 203.0.113.9]", 1), 0o600)
	beside := *g
	beside.file = other
	lines, code = doctorSays(t, &beside, site, ids)
	got := only(lines, "addresses")
	if len(got) == 6 {
		got[5] = regexp.MustCompile(`looked up: .*server misbehaving.*`).ReplaceAllString(got[5], "looked up: ERROR")
	}
	differs(t, "addresses", got, well[9], "ok  addresses  203.0.113.0/28 is a range, of which no single name is looked up",
		"fail  addresses  203.0.113.6 has no reverse name, by which site owners tell a crawler from one that only says so",
		"fail  addresses  203.0.113.7 resolves to c7.crawl.example, which does not resolve back to it",
		"fail  addresses  203.0.113.8 resolves to host8.isp.example, which is not under *.crawl.example (page.reverse_dns)",
		"fail  addresses  the name of 203.0.113.9 cannot be looked up: ERROR")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
}

func chmod(t *testing.T, file string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// stored keeps the site's directory as it is now and serves it from then on.
func stored(t *testing.T, g *gate, site *outside) http.HandlerFunc {
	t.Helper()
	status, h, body := ask(t, "GET", g.admin+sign.DirectoryPath, "", "Host", "bot.test:"+itoa(site.port))
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range h {
			w.Header()[name] = values
		}
		w.Header().Del("Date")
		_, _ = io.WriteString(w, body)
	}
}

// TestDoctorGenerations: which verifiers a value of signature_agent serves is told before any of them complains.
func TestDoctorGenerations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, more string
		want       []string
		code       int
	}{
		"the directory itself": {sign.DirectoryPath, "", []string{
			"ok  agent example  verifiers of draft -01 find the active key at https://BOT/.well-known/http-message-signatures-directory, proven",
			"ok  agent example  verifiers that take its origin find the active key at https://BOT/.well-known/http-message-signatures-directory, proven",
			"warn  agent example  verifiers of draft -00 and before find no key at https://BOT/.well-known/http-message-signatures-directory/.well-known/http-message-signatures-directory, where this configuration publishes none: status 403, not 200",
			"warn  agent example  signature_agent https://BOT/.well-known/http-message-signatures-directory serves verifiers of draft -01 and verifiers that take its origin, but not verifiers of draft -00 and before; the bare origin of a host of its own with publish.serve_root serves all",
		}, 0},
		"no root": {"", "publish: {serve_root: false}\n", []string{
			"warn  agent example  verifiers of draft -01 find no key at https://BOT/, where this configuration publishes none: status 403, not 200",
			"ok  agent example  verifiers that take its origin find the active key at https://BOT/.well-known/http-message-signatures-directory, proven",
			"ok  agent example  verifiers of draft -00 and before find the active key at https://BOT/.well-known/http-message-signatures-directory, proven",
			"warn  agent example  signature_agent https://BOT serves verifiers that take its origin and verifiers of draft -00 and before, but not verifiers of draft -01; the bare origin of a host of its own with publish.serve_root serves all",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newOutside(t, "bot.test")
			g, keys := startKeyed(t, gateConfig{origins: []*origin{site.origin}, more: c.more,
				agents: fmt.Sprintf(`[{name: example, product_token: ExampleBot, user_agent: "ExampleBot/1.0", contact: bot@bot.test, signature_agent: %q}]`, site.url(c.path))}, "example")
			site.pass(t, g)
			lines, code := doctorSays(t, g, site, []string{keys[0].ID})
			got := only(lines, "agent example")
			differs(t, "verifiers", got[1:], c.want...)
			differs(t, "no info page", got[:1], "warn  agent example  has no info_url: site owners find nobody to ask")
			if code != c.code {
				t.Errorf("exit %d", code)
			}
		})
	}
}

// ownCA writes a CA that ends in some time.
func ownCA(t *testing.T, dir string, ends time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "own"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(ends)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	writeFile(t, filepath.Join(dir, "ca.key"), keyPEM(t, key), 0o600)
}

// TestDoctorBeforeTheStart: it changes nothing, and says what is missing where nothing runs yet.
func TestDoctorBeforeTheStart(t *testing.T) {
	t.Parallel()
	site := newOutside(t, "bot.test")
	g := idle(t, gateConfig{origins: []*origin{site.origin}, agents: signedAgents, more: "redis: {url: \"redis://127.0.0.1:1/0\"}\n"})
	began := time.Now()
	lines, _ := doctorSays(t, g, site, nil, "--timeout", "20s")
	differs(t, "nothing yet", append(append(append(only(lines, "state"), only(lines, "gate")...), only(lines, "CA")...), only(lines, "clock")...),
		"warn  state  DIR/state is not there yet; the first start makes it",
		"warn  gate  none runs on this state folder, so what it would publish may not answer below",
		"warn  CA  DIR/state/ca/ca.pem is not there yet; the first start makes it",
		"warn  clock  no site answered, so it was not compared; verifiers refuse signatures from the future")
	differs(t, "no key yet", only(lines, "agent example")[1:], "fail  agent example  requests go out unsigned: no key; crawlgate keys new --agent example makes one")
	if got := strings.Join(only(lines, "redis"), "\n"); !strings.HasPrefix(got, "fail  redis  redis.url: ") {
		t.Errorf("redis: %s", got)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if _, err := os.Stat(g.state); err == nil {
		t.Error("a state folder was made")
	}
	for days, want := range map[int]string{10: "warn  CA  DIR/state/ca/ca.pem ends on DAY, in 9 days; run `crawlgate ca renew` and have clients trust the new one in time",
		-1: "fail  CA  DIR/state/ca/ca.pem ended on DAY, so clients refuse every https site; run `crawlgate ca renew` and have clients trust the new one"} {
		ownCA(t, filepath.Join(g.state, "ca"), time.Duration(days)*24*time.Hour)
		lines, _ := doctorSays(t, g, site, nil, "--timeout", "20s")
		if got := only(lines, "CA"); len(got) != 1 || got[0] != want && !strings.HasPrefix(got[0], "fail  CA  ") || days > 0 && got[0] != want {
			t.Errorf("%d days: %v", days, got)
		}
	}
	if r := g.cli(t, "doctor", "--timeout", "0s"); r.code != 2 || !strings.Contains(r.err, "--timeout 0s is not a positive duration") {
		t.Errorf("%+v", r)
	}
	writeFile(t, g.file, "lisen: x\n", 0o600)
	if r := g.cli(t, "doctor"); r.code != 2 || !strings.Contains(r.err, "lisen is not a key") {
		t.Errorf("%+v", r)
	}
}
