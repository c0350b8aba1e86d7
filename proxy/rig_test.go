package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv("CRAWLGATE_BENCH_IDLE"); spec != "" {
		idleFetchers(spec) // a benchmark's fetchers, in a process of their own
		return
	}
	log.SetOutput(io.Discard) // where the transport tells of sites that send more than was asked for
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2.(*defaultPolicy[...]).processItems"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2.(*Cache[...]).processItems"),
	)
}

// rig is a whole gate on loopback with origins behind it: real sockets, real TLS, real files.
type rig struct {
	t      testing.TB
	gate   *Gate
	rules  *Rules
	addr   string // of the proxy
	ca     *CA
	audit  *audit.Log
	pacer  *pacing.Pacer
	ledger *allowlist.Ledger
	dir    string
	guard  *guard.Dialer

	hosts    []string
	ports    []int
	originCA *testCA

	mu     sync.Mutex
	events []*audit.Event
	added  chan struct{}

	quiet   bool // keeps no events: for benchmarks
	seconds int  // second requests on one connection of a bare site
}

// rigOptions change the rig before it is built.
type rigOptions struct {
	rules   func(*Rules)
	clients []allowlist.ClientConfig
	audit   func(*audit.Config)
	pacing  func(*pacing.Config)
	agents  []sign.Agent
	guard   func(*guard.Config)
	answers *Answers
	dial    func(network, addr string) (net.Conn, error) // after the checks of the guard, in place of the socket
}

// testCA signs the origins' certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTestCA(t testing.TB) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	serial, err := newSerial()
	must(t, err)
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "origin root"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &testCA{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (c *testCA) leaf(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	serial, err := newSerial()
	must(t, err)
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, IPAddresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("::1")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, key.Public(), c.key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// origin is one site.
type origin struct {
	name   string
	port   int
	srv    *http.Server
	forget bool // keeps no requests: for benchmarks

	mu    sync.Mutex
	seen  []*http.Request // requests as they arrived, robots.txt apart
	robot int             // fetches of robots.txt
	conns counted
}

// counted are the connections of a site.
type counted struct {
	mu               sync.Mutex
	open, most, made int
}

func (c *counted) watch(_ net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateNew:
		c.open++
		c.made++
		c.most = max(c.most, c.open)
	case http.StateClosed, http.StateHijacked:
		c.open--
	}
}

// now tells how many there are.
func (c *counted) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// get tells how many there were at once, and in all.
func (c *counted) get() (most, made int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.made
}

// url is a URL of the site.
func (o *origin) url(scheme, path string) string {
	return fmt.Sprintf("%s://%s:%d%s", scheme, o.name, o.port, path)
}

func (o *origin) requests() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*http.Request(nil), o.seen...)
}

// newRig builds nothing yet: add origins, then call start.
func newRig(t testing.TB) *rig {
	t.Helper()
	return &rig{t: t, dir: t.TempDir(), originCA: newTestCA(t), added: make(chan struct{}, 1)}
}

// origin adds a site: TLS with HTTP/2, or plain. robots is its robots.txt; "" answers 404.
func (r *rig) origin(name string, secure bool, robots string, h http.HandlerFunc) *origin {
	r.t.Helper()
	if secure {
		return r.originOf(name, []string{"h2", "http/1.1"}, robots, h)
	}
	return r.originOf(name, nil, robots, h)
}

// originOf adds a site that speaks TLS with these protocols; none: plain.
func (r *rig) originOf(name string, protos []string, robots string, h http.HandlerFunc) *origin {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	o := &origin{name: name, port: l.Addr().(*net.TCPAddr).Port}
	r.hosts = append(r.hosts, "127.0.0.1 "+name)
	r.ports = append(r.ports, o.port)
	o.srv = &http.Server{ConnState: o.conns.watch, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/robots.txt" {
			o.mu.Lock()
			o.robot++
			o.mu.Unlock()
			if robots == "" {
				http.NotFound(w, req)
				return
			}
			_, _ = io.WriteString(w, robots)
			return
		}
		if !o.forget {
			o.mu.Lock()
			o.seen = append(o.seen, req.Clone(context.Background()))
			o.mu.Unlock()
		}
		h(w, req)
	})}
	if protos != nil {
		o.srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{r.originCA.leaf(r.t, name)}, NextProtos: protos}
		if protos[0] != "h2" {
			o.srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}
		go func() { _ = o.srv.ServeTLS(l, "", "") }()
	} else {
		go func() { _ = o.srv.Serve(l) }()
	}
	r.t.Cleanup(func() { _ = o.srv.Close() })
	return o
}

// raw adds a site that is a bare listener: fn gets each connection.
func (r *rig) raw(name string, fn func(net.Conn)) *origin {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	o := &origin{name: name, port: l.Addr().(*net.TCPAddr).Port}
	r.hosts = append(r.hosts, "127.0.0.1 "+name)
	r.ports = append(r.ports, o.port)
	var wg sync.WaitGroup
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer c.Close()
				fn(c)
			}()
		}
	}()
	r.t.Cleanup(func() { l.Close(); wg.Wait() })
	return o
}

// start builds the gate and listens.
func (r *rig) start(o rigOptions) *rig {
	t := r.t
	t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	gc := guard.Defaults()
	gc.Hosts = r.hosts
	gc.AllowPrivate = []guard.Exception{{Prefix: "127.0.0.1/32", Ports: append([]int{80, 443}, r.ports...)}, {Prefix: "::1/128", Ports: append([]int{80, 443}, r.ports...)}}
	if o.guard != nil {
		o.guard(&gc)
	}
	var err error
	r.guard, err = guard.New(gc, log)
	must(t, err)
	pc := pacing.Defaults()
	if o.pacing != nil {
		o.pacing(&pc)
	}
	r.pacer, err = pacing.New(pc, nil, log)
	must(t, err)
	ac := audit.Defaults()
	if o.audit != nil {
		o.audit(&ac)
	}
	r.audit, err = audit.Open(ac, r.dir, log)
	must(t, err)
	cancel := r.audit.Subscribe(func(e *audit.Event) {
		if r.quiet {
			return
		}
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
		select {
		case r.added <- struct{}{}:
		default:
		}
	})
	r.ca, err = OpenCA(filepath.Join(r.dir, "ca"))
	must(t, err)
	list, err := allowlist.New(allowlist.Config{Clients: append([]allowlist.ClientConfig{{Name: "default", Open: true}}, o.clients...)}, r, log)
	must(t, err)
	r.ledger, err = allowlist.NewLedger(nil, log)
	must(t, err)
	locks, err := allowlist.NewLocks(nil, 24*time.Hour, log)
	must(t, err)
	r.rules = testRules(r.originCA.pem)
	if o.rules != nil {
		o.rules(r.rules)
	}
	if o.agents == nil {
		for name := range r.rules.Agents {
			o.agents = append(o.agents, sign.Agent{Name: name})
		}
	}
	signer, err := sign.Open(sign.Defaults(), r.dir, o.agents, log)
	must(t, err)
	r.gate, err = New(Parts{Log: log, Guard: r.guard, Pacer: r.pacer, Signer: signer, List: list, Ledger: r.ledger, Locks: locks, Audit: r.audit, CA: r.ca, Answers: o.answers,
		Policy: func(f policy.Fetcher) *policy.Policy { return policy.New(policy.Defaults(), f, nil, log) }}, r.rules)
	must(t, err)
	if o.dial != nil {
		r.gate.upstream.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			h, port, err := guard.ParseAuthority(addr, 443)
			if err != nil {
				return nil, err
			}
			addrs, err := r.guard.Resolve(ctx, h.Name, port)
			if err != nil {
				return nil, err
			}
			return o.dial(network, netip.AddrPortFrom(addrs[0], port).String())
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.addr = l.Addr().String()
	r.guard.SetSelf(func() []netipAddrPort { return []netipAddrPort{l.Addr().(*net.TCPAddr).AddrPort()} })
	served := make(chan struct{})
	go func() { defer close(served); _ = r.gate.Serve(l, "") }()
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		_ = r.gate.Shutdown(ctx)
		<-served
		cancel()
		_ = list.Close()
		_ = r.pacer.Close()
		_ = r.audit.Close()
	})
	return r
}

// FetchSitemap has the gate read sitemaps, as in the program.
func (r *rig) FetchSitemap(ctx context.Context, q allowlist.SitemapRequest) (*allowlist.SitemapResponse, error) {
	return r.gate.FetchSitemap(ctx, q)
}

// testRules is the profile most tests want: no gap, so that nothing waits unless the test says so.
func testRules(roots []byte) *Rules {
	agent := &Agent{Name: "example", Token: "ExampleBot", UserAgent: "ExampleBot/1.0 (+https://bot.example/about)"}
	pc := pacing.ProfileDefaults()
	pc.Gap, pc.Parallel = 0, 64
	p := &Profile{Name: "crawl", Agent: agent, Sign: "sites", IdentityLock: time.Hour, Robots: policy.ProfileDefaults(), Pacing: pc,
		Limits: Limits{Methods: []string{"GET", "HEAD", "POST", "PUT"}, RequestBody: 1 << 20, ResponseBody: 8 << 20, Redirects: 5, Timeout: 10 * time.Second,
			Authorization: "strip", WebSocket: "allow", DenyKinds: []string{kindScript, kindPrefetch, kindNoise}}}
	return &Rules{Agents: map[string]*Agent{"example": agent}, Profiles: map[string]*Profile{"crawl": p}, Order: []*Profile{p}, Default: p, Open: true, Enforce: true, Roots: roots,
		Server: Server{ReadHead: 5 * time.Second, Idle: 30 * time.Second, UpstreamIdle: 5 * time.Second, StreamIdle: time.Minute, HeadBytes: 64 << 10, Fields: 200,
			TargetBytes: 8 << 10, Tunnels: 2000, TunnelsClient: 1500, Grace: 5 * time.Second, StallTimeout: 5 * time.Second, CompanionWindow: 30 * time.Second}}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// client is an HTTP client that trusts the gate's CA and goes through it. h2 asks for HTTP/2 inside tunnels.
func (r *rig) client(h2 bool) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.Cert)
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr}), TLSClientConfig: &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2: h2, DisableCompression: true}
	if !h2 {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get fetches and reads the whole answer.
func (r *rig) get(c *http.Client, u string, fields ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodGet, u, nil)
	must(r.t, err)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := c.Do(req)
	must(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(r.t, err)
	return resp, string(b)
}

// waitEvent returns the first event that ok accepts, waiting for it.
func (r *rig) waitEvent(what string, ok func(*audit.Event) bool) *audit.Event {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		for _, e := range r.events {
			if ok(e) {
				r.mu.Unlock()
				return e
			}
		}
		r.mu.Unlock()
		select {
		case <-r.added:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			var seen strings.Builder
			r.mu.Lock()
			for _, e := range r.events {
				fmt.Fprintf(&seen, "\n%s %s %s %s %s/%s %d", e.ID, e.Type, e.Decision, e.URL, e.Reason, e.Class, e.Answered)
			}
			r.mu.Unlock()
			r.t.Fatalf("no event: %s; there are%s", what, seen.String())
		}
	}
}

// noTurnsLeft waits for the last turn to be given back, which comes after the answer's last byte.
func (r *rig) noTurnsLeft() {
	r.t.Helper()
	r.until("the turns to be given back", func() bool {
		st := r.pacer.Stats()
		return st.InFlight+st.Waiting == 0
	})
}

// until waits for something that nothing signals.
func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("waited too long for %s", what)
		}
	}
}

func (r *rig) eventOf(id string) *audit.Event {
	r.t.Helper()
	return r.waitEvent("request "+id, func(e *audit.Event) bool { return e.ID == id })
}

// tunnel opens a tunnel by hand and returns the connection after the 200.
func (r *rig) tunnel(authority string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	_, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	must(r.t, err)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	must(r.t, err)
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("CONNECT %s: %s", authority, resp.Status)
	}
	return c, br
}

// tls speaks TLS in a tunnel to a host.
func (r *rig) tls(authority, serverName string, protos ...string) *tls.Conn {
	r.t.Helper()
	c, _ := r.tunnel(authority)
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.Cert)
	tc := tls.Client(c, &tls.Config{RootCAs: pool, ServerName: serverName, NextProtos: protos})
	must(r.t, tc.Handshake())
	return tc
}
