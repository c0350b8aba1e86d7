package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

// promiseSecret is the secret of every client on a stage.
const promiseSecret = "cg_the-secret-of-a-client-on-a-stage"

// stage is where one promise is played: sites on loopback, a DNS server that knows their names, and the built program
// with an operator's preset and what the test lays over it.
type stage struct {
	t       *testing.T
	preset  string
	change  *mutation // laid over last; nil where the promise is to hold
	dir     string
	sites   []*origin
	names   map[string][]netip.Addr // further names of the DNS server
	base    map[string]any          // the configuration so far
	dns     *dnstest.Server
	g       *gate
	clients map[string]*http.Client
	wrong   []error
}

func newStage(t *testing.T, preset string, change *mutation) *stage {
	t.Helper()
	s := &stage{t: t, preset: preset, change: change, dir: t.TempDir(), names: map[string][]netip.Addr{}, clients: map[string]*http.Client{}}
	s.base = map[string]any{
		"preset": preset, "listen": "127.0.0.1:0", "admin": map[string]any{"listen": "127.0.0.1:0"}, "state_dir": filepath.Join(s.dir, "state"), "clients": []any{},
	}
	return s
}

// site starts a web site.
func (s *stage) site(kind, robots string, handle http.HandlerFunc, hosts ...string) *origin {
	s.t.Helper()
	o := newOrigin(s.t, kind, func(o *origin) {
		o.robots, o.handle = robots, handle
	}, hosts...)
	s.sites = append(s.sites, o)
	return o
}

// client adds a client. profiles are separated by commas; a site is a URL or a block in YAML.
func (s *stage) client(name, profiles string, sites ...string) {
	s.t.Helper()
	sum := sha256.Sum256([]byte(promiseSecret))
	c := map[string]any{"name": name, "secret_hash": "sha256:" + hex.EncodeToString(sum[:]), "profiles": strings.Split(profiles, ","),
		"grants": []any{"redirects", "files", "subresources"}}
	s.base["clients"] = append(s.base["clients"].([]any), withSites(s.t, c, sites))
}

// browserClient adds the client of whoever comes from this machine without credentials: Chromium takes none.
func (s *stage) browserClient(profile string, sites ...string) {
	s.t.Helper()
	c := map[string]any{"name": "browser", "sources": []any{"127.0.0.1/32"}, "profiles": []any{profile}, "grants": []any{"redirects", "files", "subresources"}}
	s.base["clients"] = append(s.base["clients"].([]any), withSites(s.t, c, sites))
}

func withSites(t *testing.T, c map[string]any, sites []string) map[string]any {
	t.Helper()
	if len(sites) == 0 {
		return c
	}
	var list []any
	for _, text := range sites {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list = append(list, v)
	}
	c["sites"] = list
	return c
}

// configure writes the file: the preset's name, where things are on this machine, overlay, the mutation.
func (s *stage) configure(overlay string) {
	s.t.Helper()
	if s.dns == nil {
		s.dns = dnstest.New(s.t, s.answer)
	}
	ports := []any{}
	for _, o := range s.sites {
		if s.change != nil && s.change.site != nil {
			s.change.site(o, o.hosts[0])
		}
		ports = append(ports, o.port)
	}
	s.base["egress"] = map[string]any{"root_ca_file": rootFile(s.t, s.dir), "dns": []any{s.dns.Addr},
		"allow_private": []any{map[string]any{"prefix": "127.0.0.0/8", "ports": ports}}}
	tree := s.base
	s.lay(tree, overlay)
	if s.change != nil {
		s.lay(tree, s.change.config)
	}
	text, err := json.MarshalIndent(tree, "", " ") // JSON is YAML
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.dir, "crawlgate.yaml")
	writeFile(s.t, file, string(text)+"\n", 0o600)
	s.g = &gate{bin: binary(s.t), dir: s.dir, file: file, state: filepath.Join(s.dir, "state")}
}

// lay merges a YAML text: blocks by key, list items by their name; $PORT1 is the first site's port, and so on.
func (s *stage) lay(tree map[string]any, text string) {
	s.t.Helper()
	for n, o := range s.sites {
		text = strings.ReplaceAll(text, fmt.Sprintf("$PORT%d", n+1), itoa(o.port))
	}
	var over map[string]any
	if err := yaml.Unmarshal([]byte(text), &over); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	for k, v := range over {
		tree[k] = overlaid(tree[k], v)
	}
}

func overlaid(old, over any) any {
	switch v := over.(type) {
	case map[string]any:
		m, ok := old.(map[string]any)
		if !ok {
			return v
		}
		out := map[string]any{}
		for k := range m {
			out[k] = m[k]
		}
		for k := range v {
			out[k] = overlaid(m[k], v[k])
		}
		return out
	case []any:
		list, ok := old.([]any)
		if !ok || len(v) == 0 {
			return v
		}
		out := append([]any{}, list...)
		for _, item := range v {
			m, named := item.(map[string]any)
			if !named || m["name"] == nil {
				return v // not a list of named things: replaced
			}
			found := false
			for n, have := range out {
				if h, ok := have.(map[string]any); ok && h["name"] == m["name"] {
					out[n], found = overlaid(h, m), true
				}
			}
			if !found {
				out = append(out, m)
			}
		}
		return out
	}
	return over
}

// start configures and starts the gate.
func (s *stage) start(overlay string) {
	s.t.Helper()
	s.configure(overlay)
	s.serve()
}

func (s *stage) serve() {
	s.t.Helper()
	s.clients = map[string]*http.Client{}
	s.g.serve(s.t, gateConfig{})
}

// stop ends the gate and keeps its state folder.
func (s *stage) stop() {
	s.t.Helper()
	if err := s.g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if code := s.g.exit(s.t, 30*time.Second); code != 0 {
		s.t.Fatalf("serve ended with %d\n%s", code, s.g.err)
	}
}

func (s *stage) answer(q dnstest.Question) dnstest.Reply {
	for _, o := range s.sites {
		for _, h := range o.hosts {
			if h == q.Name {
				return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
			}
		}
	}
	if a, ok := s.names[q.Name]; ok {
		return dnstest.Reply{Addrs: a}
	}
	return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
}

// received is what a fetcher got.
type received struct {
	status       int
	header       http.Header
	trailer      http.Header
	body         string
	err          error
	began, ended time.Time
}

// reason is crawlgate's, or "" where the site answered.
func (r received) reason() string { return r.header.Get("Crawlgate-Reason") }

func (r received) problem() (p problem) {
	_ = json.Unmarshal([]byte(r.body), &p)
	return p
}

func (r received) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %.300s", r.status, r.reason(), r.body))
}

// as gives the fetcher of a proxy user: CLIENT[+PROFILE[+JOB]].
func (s *stage) as(user string) *http.Client {
	s.t.Helper()
	if c := s.clients[user]; c != nil {
		return c
	}
	proxy := strings.Replace(s.g.proxy, "://", "://"+url.PathEscape(user)+":"+promiseSecret+"@", 1)
	c := goClient(s.t, proxy, s.g.ca, false)
	c.Timeout = 100 * time.Second
	s.clients[user] = c
	return c
}

// get asks for a URL as a user. fields are names and values by turns; a field "method" is the method, "body" the body.
func (s *stage) get(user, target string, fields ...string) received {
	s.t.Helper()
	return send(s.as(user), target, fields...)
}

// getAll asks for several URLs at the same time, all as one user.
func (s *stage) getAll(user string, targets ...string) []received {
	s.t.Helper()
	c := s.as(user)
	out := make([]received, len(targets))
	done := make(chan struct{})
	for n, target := range targets {
		go func() {
			defer func() { done <- struct{}{} }()
			out[n] = send(c, target)
		}()
	}
	for range targets {
		<-done
	}
	return out
}

func send(c *http.Client, target string, fields ...string) (r received) {
	method, body := http.MethodGet, io.Reader(nil)
	h := http.Header{"User-Agent": {"fetcher/9"}, "Accept": {"*/*"}}
	for n := 0; n+1 < len(fields); n += 2 {
		switch fields[n] {
		case "method":
			method = fields[n+1]
		case "body":
			body = strings.NewReader(fields[n+1])
		default:
			h.Set(fields[n], fields[n+1])
		}
	}
	r.began = time.Now()
	req, err := http.NewRequest(method, target, body)
	if err != nil {
		r.err = err
		return r
	}
	req.Header = h
	resp, err := c.Do(req)
	if err != nil {
		r.err, r.ended = err, time.Now()
		return r
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 128<<20))
	r.status, r.header, r.trailer, r.body, r.err, r.ended = resp.StatusCode, resp.Header, resp.Trailer, string(raw), err, time.Now()
	return r
}

// command runs a crawlgate command with the stage's configuration.
func (s *stage) command(args ...string) result { s.t.Helper(); return s.g.cli(s.t, args...) }

// badly notes a violation of the promise.
func (s *stage) badly(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Errorf(format, args...))
}

// done gives the violations.
func (s *stage) done() error { return errors.Join(s.wrong...) }

// fetched wants the site's own answer.
func (s *stage) fetched(what string, r received, status int) {
	if r.err != nil || r.status != status || r.reason() != "" {
		s.badly("%s: got %s, not the site's %d", what, r, status)
	}
}

// refused wants a refusal.
func (s *stage) refused(what string, r received, reasons ...string) {
	for _, reason := range reasons {
		if r.err == nil && r.reason() == reason {
			return
		}
	}
	s.badly("%s: not refused with %s but got %s", what, strings.Join(reasons, " or "), r)
}

// asked counts the requests for a path.
func asked(o *origin, path string) (n int) {
	for _, a := range o.arrivals() {
		if a.URI == path {
			n++
		}
	}
	return n
}

// find gives the first request for a path.
func find(o *origin, path string) (arrival, bool) {
	for _, a := range o.arrivals() {
		if a.URI == path {
			return a, true
		}
	}
	return arrival{}, false
}

// untouched wants that a path was never asked for.
func (s *stage) untouched(o *origin, paths ...string) {
	for _, path := range paths {
		if n := asked(o, path); n != 0 {
			s.badly("%s%s was asked for %d times", o.hosts[0], path, n)
		}
	}
}

// spaced wants that each request begins no sooner than gap after the end of the one before, at any of the sites. An
// end as the origin saw it comes before the end the gate saw, so this asks for what was promised to the site.
func (s *stage) spaced(what string, gap time.Duration, list []arrival) {
	for n := 1; n < len(list); n++ {
		if d := list[n].At.Sub(list[n-1].Done); d < gap {
			s.badly("%s: %s came %v after the end of %s, sooner than %v", what, list[n].URI, d.Round(time.Millisecond), list[n-1].URI, gap)
		}
	}
}

// within wants that a request begins sooner than limit after the end of another.
func (s *stage) within(what string, limit time.Duration, o *origin, before, path string) {
	first, ok1 := find(o, before)
	next, ok2 := find(o, path)
	if !ok1 || !ok2 {
		s.badly("%s: %s asked for: %v, %s asked for: %v", what, before, ok1, path, ok2)
		return
	}
	if d := next.At.Sub(first.Done); d >= limit {
		s.badly("%s: %s came %v after %s: it waited for a turn of its own", what, path, d.Round(time.Millisecond), before)
	}
}

// named wants one user agent on every request of sites, or of all.
func (s *stage) named(ua string, sites ...*origin) {
	if sites == nil {
		sites = s.sites
	}
	n := 0
	for _, o := range sites {
		for _, a := range o.arrivals() {
			n++
			if got := a.Header["User-Agent"]; len(got) != 1 || got[0] != ua {
				s.badly("%s%s was asked for by the user agent %q", o.hosts[0], a.URI, got)
			}
		}
	}
	if n == 0 {
		s.badly("no request arrived")
	}
}

// page answers with a page that holds markup.
func page(markup string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><title>page</title>"+markup)
	}
}

// paths answers each path by its own handler, and others with a small page.
func paths(m map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h, ok := m[r.URL.Path]; ok {
			h(w, r)
			return
		}
		page("<p>"+r.URL.Path)(w, r)
	}
}

func redirectTo(status int, target string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", target)
		w.WriteHeader(status)
	}
}

func statusOnly(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; n+1 < len(fields); n += 2 {
			w.Header().Add(fields[n], fields[n+1])
		}
		w.WriteHeader(status)
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

// closedPort gives a port of loopback that nothing listens on.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// afterAlone is how long a request of a gathering waits for the others.
func afterAlone() <-chan time.Time { return time.After(4 * time.Second) }

// lockedText is a text that a test changes while a site serves it.
type lockedText struct {
	mu sync.Mutex
	s  string
}

func (l *lockedText) set(s string) { l.mu.Lock(); defer l.mu.Unlock(); l.s = s }
func (l *lockedText) get() string  { l.mu.Lock(); defer l.mu.Unlock(); return l.s }

func dnsQuestion(name string) dnstest.Question {
	return dnstest.Question{Name: name, Type: dnsmessage.TypeA}
}

// allPorts lists the sites' ports and that of one more URL.
func (s *stage) allPorts(more string) string {
	u, err := url.Parse(more)
	if err != nil {
		s.t.Fatal(err)
	}
	list := []string{u.Port()}
	for _, o := range s.sites {
		list = append(list, itoa(o.port))
	}
	return strings.Join(list, ", ")
}
