package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// clientTLS trusts the gate's CA, as a fetcher is told to.
func clientTLS(t *testing.T, ca string) *tls.Config {
	t.Helper()
	raw, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		t.Fatalf("%s holds no certificate", ca)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// goClient is Go's own client by way of a gate.
func goClient(t *testing.T, proxy, ca string, h2 bool) *http.Client {
	t.Helper()
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: clientTLS(t, ca), ForceAttemptHTTP2: h2, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// direct is a client that uses no proxy, for the admin listener.
var direct = &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, Timeout: 20 * time.Second}

// metric reads one value of /metrics, named with its labels.
func (g *gate) metric(t *testing.T, name string) float64 {
	t.Helper()
	resp, err := direct.Get(g.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := bufio.NewScanner(resp.Body)
	for s.Scan() {
		if v, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// peak is the most memory a process ever held, in bytes.
func (p *process) peak(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestBigDownload: 100 MiB pass without being held, to a client that reads as fast as it can.
func TestBigDownload(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	big := func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			n := int64(size)
			if r.URL.Path == "/warm" {
				n = 1 << 20
			}
			if r.URL.Path != "/unknown" {
				w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			chunk := make([]byte, 64<<10)
			for ; n > 0; n -= int64(len(chunk)) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
	}
	h1 := newOrigin(t, tlsH1, big, "big1.test")
	h2 := newOrigin(t, tlsH2, big, "big2.test")
	g := startGate(t, gateConfig{origins: []*origin{h1, h2}, profiles: "[{name: crawl, limits: {response_body: 200MiB}}]",
		env: []string{"GOGC=100"}}) // what is in use is asked for, not how much garbage may gather
	for _, o := range []*origin{h1, h2} {
		if a := curl(t, g, o.url("/warm"), "-o", "/dev/null"); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	before := g.peak(t)
	for n, c := range []struct{ flag, url string }{{"--http2", h1.url("/known")}, {"--http1.1", h2.url("/unknown")}} {
		client := goClient(t, g.proxy, g.ca, c.flag == "--http2")
		resp, err := client.Get(c.url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || got != size || resp.StatusCode != 200 {
			t.Errorf("%s: %d bytes of %d: %v", c.url, got, size, err)
		}
		if ev := g.waitEvents(t, 3+n)[2+n]; ev.BytesIn != size || ev.Decision != "forwarded" || ev.Reason != "ok" {
			t.Errorf("%+v", ev)
		}
	}
	limit := int64(40 << 20)
	if raceEnabled {
		limit *= 2 // the race detector keeps a shadow of what is touched
	}
	if grown := g.peak(t) - before; grown > limit {
		t.Errorf("memory grew by %d MiB for two downloads of 100 MiB", grown>>20)
	}
}

// dialTunnel opens a tunnel by hand and speaks TLS in it.
func dialTunnel(t *testing.T, g *gate, conf *tls.Config, host string, port int) (*tls.Conn, error) {
	t.Helper()
	conn, err := openTunnel(g.proxy, net.JoinHostPort(host, itoa(port)))
	if err != nil {
		return nil, err
	}
	conf = conf.Clone()
	conf.ServerName = host
	c := tls.Client(conn, conf)
	if err := c.Handshake(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// openTunnel sends a CONNECT and gives the connection behind it.
func openTunnel(proxy, target string) (net.Conn, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(proxy, "http://"))
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	line, err := readHead(conn)
	if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		err = errors.New(line)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// readHead reads an answer's head byte by byte, so that nothing behind it is lost, and gives its first line.
func readHead(c net.Conn) (string, error) {
	var head []byte
	b := make([]byte, 1)
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		if _, err := c.Read(b); err != nil {
			return "", err
		}
		head = append(head, b[0])
	}
	line, _, _ := strings.Cut(string(head), "\r\n")
	return line, nil
}

// TestManyTunnels: two hundred tunnels are open at once and each gets its answer.
func TestManyTunnels(t *testing.T) {
	t.Parallel()
	const tunnels = 200
	hosts := make([]string, tunnels)
	for n := range hosts {
		hosts[n] = fmt.Sprintf("h%d.many.test", n)
	}
	o := newOrigin(t, tlsH1, nil, hosts...)
	g := startGate(t, gateConfig{origins: []*origin{o}})
	conf := clientTLS(t, g.ca)
	conns := make([]*tls.Conn, tunnels)
	each := func(do func(n int)) {
		var wg sync.WaitGroup
		for n := range tunnels {
			wg.Go(func() { do(n) })
		}
		wg.Wait()
	}
	each(func(n int) {
		c, err := dialTunnel(t, g, conf, hosts[n], o.port)
		if err != nil {
			t.Errorf("tunnel %d: %v", n, err)
			return
		}
		conns[n] = c
	})
	if t.Failed() {
		return
	}
	if open := g.metric(t, "crawlgate_client_connections"); open < tunnels {
		t.Errorf("%v connections, want %d", open, tunnels)
	}
	each(func(n int) {
		defer conns[n].Close()
		fmt.Fprintf(conns[n], "GET /n%d HTTP/1.1\r\nHost: %s\r\n\r\n", n, hosts[n])
		resp, err := http.ReadResponse(bufio.NewReader(conns[n]), nil)
		if err != nil {
			t.Errorf("tunnel %d: %v", n, err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), fmt.Sprintf("/n%d<", n)) {
			t.Errorf("tunnel %d: %d %q %v", n, resp.StatusCode, body, err)
		}
	})
	if n := len(o.pages()); n != tunnels {
		t.Errorf("%d pages arrived", n)
	}
	agentOnly(t, o.arrivals())
	g.waitEvents(t, tunnels)
	within(t, 10*time.Second, "all connections are closed", func() bool { return g.metric(t, "crawlgate_client_connections") == 0 })
}

// TestClientLeaves: a fetcher that leaves while it waits gives its place back, and nothing is sent for it.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	const gap = 8 * time.Second // long enough for everybody to queue on a busy machine
	type way struct {
		name string
		o    *origin
		h2   bool
	}
	ways := []way{
		{"HTTP/1.1 tunnel", newOrigin(t, tlsH1, nil, "queue1.test"), false},
		{"HTTP/2 tunnel", newOrigin(t, tlsH2, nil, "queue2.test"), true},
		{"plain HTTP", newOrigin(t, plainHTTP, nil, "queue3.test"), false},
	}
	var origins []*origin
	for _, w := range ways {
		origins = append(origins, w.o)
	}
	g := startGate(t, gateConfig{origins: origins, profiles: "[{name: crawl, pacing: {gap: 8s}}]"})
	get := func(ctx context.Context, w way, path string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.o.url(path), nil)
		if err != nil {
			return 0, err
		}
		resp, err := goClient(t, g.proxy, g.ca, w.h2).Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	var wg sync.WaitGroup
	whole := func(path string) {
		for _, w := range ways {
			wg.Go(func() {
				if code, err := get(t.Context(), w, path); code != 200 || err != nil {
					t.Errorf("%s: %s got %d %v", w.name, path, code, err)
				}
			})
		}
	}
	whole("/first")
	wg.Wait()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for n := range 3 {
		for _, w := range ways {
			wg.Go(func() {
				if code, err := get(ctx, w, fmt.Sprintf("/left-%d", n)); err == nil {
					t.Errorf("%s: one that left got %d", w.name, code)
				}
			})
		}
	}
	waiting := func(n float64) {
		t.Helper()
		within(t, gap, fmt.Sprintf("%v wait", n), func() bool { return g.metric(t, "crawlgate_turns_waiting") == n })
	}
	waiting(9)
	whole("/stays")
	waiting(12)
	leave()
	waiting(3)
	wg.Wait()
	for _, w := range ways {
		got := w.o.pages()
		if len(got) != 2 || got[0].URI != "/first" || got[1].URI != "/stays" {
			t.Errorf("%s: the site got %v", w.name, uris(got))
			continue
		}
		if d := got[1].At.Sub(got[0].At); d < gap || d >= 2*gap {
			t.Errorf("%s: the one that stayed came after %v: the gap was not kept, or those that left were waited for", w.name, d)
		}
	}
	left := 0
	for _, e := range g.waitEvents(t, 15) {
		if strings.Contains(e.URL, "/left-") {
			left++
			if e.Decision != "cancelled" || e.Sent || e.Answered != 0 {
				t.Errorf("%+v", e)
			}
		}
	}
	if left != 9 {
		t.Errorf("%d of 9 that left are in the log", left)
	}
}

// rawOrigin speaks HTTP/1.1 by hand over TLS: it answers robots.txt and /ok on a connection it keeps, and closes the
// connection without a byte when anything else arrives, as a server does whose keep-alive time just ran out.
type rawOrigin struct {
	port int

	mu    sync.Mutex
	heads []string // "N METHOD URI", N the connection
}

func newRawOrigin(t *testing.T, host string) *rawOrigin {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{rootCA().leaf(t, host)}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	o := &rawOrigin{port: l.Addr().(*net.TCPAddr).Port}
	go func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go o.serve(n, c)
		}
	}()
	return o
}

func (o *rawOrigin) serve(n int, c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		o.mu.Lock()
		o.heads = append(o.heads, fmt.Sprintf("%d %s %s", n, req.Method, req.RequestURI))
		o.mu.Unlock()
		switch req.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		case "/ok":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		default:
			return
		}
	}
}

func (o *rawOrigin) arrived() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.heads...)
}

// TestOneTurnOneRequest: a request whose kept-alive connection dies is not sent again. One turn is one request on the
// wire; the fetcher reads what happened.
func TestOneTurnOneRequest(t *testing.T) {
	t.Parallel()
	o := newRawOrigin(t, "raw.test")
	g := startGate(t, gateConfig{hosts: []string{"127.0.0.1 raw.test"}, ports: []int{o.port},
		more: "pacing: {backoff: {base: 10ms, factor: 1, jitter: 0}}\n"})
	n := 0
	for _, c := range []struct{ flag, path string }{{"--http1.1", "/dies-1"}, {"--http2", "/dies-2"}, {"--http1.1", "/dies-3"}} {
		base := fmt.Sprintf("https://raw.test:%d", o.port)
		if a := curl(t, g, base+"/ok", c.flag); a.status != 200 || a.body != "ok" {
			t.Fatalf("%+v", a)
		}
		a := curl(t, g, base+c.path, c.flag)
		if a.exit != 0 || a.status != 502 || a.header.Get("Crawlgate-Reason") != "upstream-failed" || !strings.Contains(a.header.Get("Proxy-Status"), "error=connection_terminated") {
			t.Errorf("%+v", a)
		}
		n += 2
		ev := g.waitEvents(t, n)[n-1]
		if ev.Decision != "failed" || ev.Reason != "upstream-failed" || !ev.Sent || ev.Status != 0 || ev.Answered != 502 {
			t.Errorf("%+v", ev)
		}
	}
	got := o.arrived()
	for _, path := range []string{"/dies-1", "/dies-2", "/dies-3"} {
		count, conn := 0, ""
		for _, h := range got {
			if strings.HasSuffix(h, " GET "+path) {
				count++
				conn, _, _ = strings.Cut(h, " ")
			}
		}
		if count != 1 {
			t.Errorf("%s arrived %d times: %v", path, count, got)
		}
		kept := false
		for _, h := range got {
			kept = kept || h == conn+" GET /ok"
		}
		if !kept {
			t.Errorf("%s did not come on a kept connection, so nothing is shown: %v", path, got)
		}
	}
}
