package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

// TestIdentityMissing: until there is an agent nothing leaves for any host but loopback, and the way out is told.
func TestIdentityMissing(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, plainHTTP, nil, "local.test")
	dns := dnstest.New(t, func(dnstest.Question) dnstest.Reply { return dnstest.Reply{RCode: dnsmessage.RCodeNameError} })
	g := startGate(t, gateConfig{agents: "[]", origins: []*origin{o}, egress: []string{"dns: [" + dns.Addr + "]"}})
	if !strings.Contains(g.err.String(), `crawlgate: no agent is configured, so nothing leaves for other hosts than loopback; end that with
  agents: [{name: example, product_token: ExampleBot, user_agent: "ExampleBot/1.0 (+https://bot.example/about)"}]
in the configuration, or with --user-agent "ExampleBot/1.0 (+https://bot.example/about)"
`) {
		t.Errorf("the start does not tell the way out:\n%s", g.err)
	}
	for n, url := range []string{"http://www.example.org/", "https://www.example.org/", "http://192.0.2.1/"} {
		a := curl(t, g, url)
		if a.status != 503 || a.header.Get("Crawlgate-Reason") != "identity-missing" || !strings.Contains(readProblem(t, a.body).Detail, "agents: [{") {
			t.Errorf("%s: %+v", url, a)
		}
		if ev := g.waitEvents(t, n+1)[n]; ev.Reason != "identity-missing" || ev.Sent {
			t.Errorf("%+v", ev)
		}
	}
	if q := dns.Questions(); len(q) != 0 {
		t.Errorf("looked up: %v", q)
	}
	if a := curl(t, g, o.url("/a")); a.status != 200 {
		t.Errorf("loopback: %+v", a)
	}
	if status, _, body := ask(t, "GET", g.admin+"/readyz", ""); status != 503 || !strings.Contains(body, "no agent is configured") {
		t.Errorf("readyz: %d %s", status, body)
	}
	r := g.cli(t, "check", "http://www.example.org/")
	if r.code != 3 || !strings.HasPrefix(r.out, "refused   identity-missing") {
		t.Errorf("%+v", r)
	}
}

// TestMalformed: what no HTTP reader may guess at gets a 400 with a reason, on the proxy port, in a tunnel and in TLS, and
// an event; nothing reaches the site.
func TestMalformed(t *testing.T) {
	t.Parallel()
	tlsSite := newOrigin(t, tlsH1, nil, "tls.test")
	plain := newOrigin(t, plainHTTP, nil, "plain.test")
	g := startGate(t, gateConfig{origins: []*origin{tlsSite, plain}})
	conf := clientTLS(t, g.ca)
	conf.NextProtos = []string{"http/1.1"}
	sides := []struct {
		name   string
		target string // of the request line, before the path
		host   string
		open   func() (net.Conn, error)
	}{
		{"proxy port", "http://plain.test:" + itoa(plain.port), fmt.Sprintf("plain.test:%d", plain.port), func() (net.Conn, error) {
			return net.Dial("tcp", strings.TrimPrefix(g.proxy, "http://"))
		}},
		{"plain tunnel", "", fmt.Sprintf("plain.test:%d", plain.port), func() (net.Conn, error) {
			return openTunnel(g.proxy, fmt.Sprintf("plain.test:%d", plain.port))
		}},
		{"TLS tunnel", "", fmt.Sprintf("tls.test:%d", tlsSite.port), func() (net.Conn, error) {
			return dialTunnel(t, g, conf, "tls.test", tlsSite.port)
		}},
	}
	n := 0
	for _, s := range sides {
		for _, c := range []struct {
			name, text string
			status     int
		}{
			{"no version", "GET TARGET/x\r\nHost: HOST\r\n\r\n", 400},
			{"space before the colon", "GET TARGET/x HTTP/1.1\r\nHost: HOST\r\nX-A : b\r\n\r\n", 400},
			{"two hosts", "GET TARGET/x HTTP/1.1\r\nHost: HOST\r\nHost: other.test\r\n\r\n", 400},
			{"no host", "GET TARGET/x HTTP/1.1\r\n\r\n", 400},
			{"line without a colon", "GET TARGET/x HTTP/1.1\r\nHost: HOST\r\nwhat\r\n\r\n", 400},
			{"two lengths", "POST TARGET/x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
			{"length and chunks", "POST TARGET/x HTTP/1.1\r\nHost: HOST\r\nContent-Length: x\r\n\r\n", 400},
			{"unknown coding", "POST TARGET/x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
			{"NUL in a field", "GET TARGET/x HTTP/1.1\r\nHost: HOST\r\nX-A: a\x00b\r\n\r\n", 400},
			{"control in the target", "GET TARGET/x\x01y HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
			{"next version", "GET TARGET/x HTTP/3.0\r\nHost: HOST\r\n\r\n", 505},
		} {
			conn, err := s.open()
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = io.WriteString(conn, strings.NewReplacer("TARGET", s.target, "HOST", s.host).Replace(c.text))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s, %s: %v", s.name, c.name, err)
				conn.Close()
				continue
			}
			body, err := io.ReadAll(resp.Body)
			conn.Close()
			if err != nil || resp.StatusCode != c.status || resp.Header.Get("Crawlgate-Reason") != "bad-request" || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s, %s: %d %v %s %v", s.name, c.name, resp.StatusCode, resp.Header, body, err)
				continue
			}
			p := readProblem(t, string(body))
			if p.Reason != "bad-request" || p.Class == "" || p.Status != c.status || p.RequestID == "" || p.RequestID != resp.Header.Get("Crawlgate-Request-Id") {
				t.Errorf("%s, %s: %s", s.name, c.name, body)
			}
			n++
			ev := g.waitEvents(t, n)[n-1]
			if ev.ID != p.RequestID || ev.Reason != "bad-request" || ev.Decision != "refused" || ev.Answered != c.status || ev.Sent || ev.Intercepted != (s.name != "proxy port") {
				t.Errorf("%s, %s: recorded as %+v", s.name, c.name, ev)
			}
		}
	}
	for _, o := range []*origin{tlsSite, plain} {
		if got := o.arrivals(); len(got) != 0 || o.connections() != 0 {
			t.Errorf("%s got %v, %d connections", o.hosts[0], uris(got), o.connections())
		}
	}
}

// TestMalformedConnect: a CONNECT whose target names nothing, or something else than its tunnel carries.
func TestMalformedConnect(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, nil, "tls.test")
	g := startGate(t, gateConfig{origins: []*origin{o}})
	for target, want := range map[string]string{
		"tls.test":       "400 bad-request",
		"tls.test:":      "400 bad-request",
		"tls.test:99999": "400 bad-request",
		"u@tls.test:443": "400 bad-request",
		"tls.test:25":    "403 port-denied",
		"[::1:443":       "400 bad-request",
		"0x7f.1:443":     "403 address-denied",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.proxy, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			conn.Close()
			continue
		}
		resp.Body.Close()
		conn.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Crawlgate-Reason")); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	g.waitEvents(t, 7)
	// A tunnel to one host carries no request for another.
	conf := clientTLS(t, g.ca)
	conf.NextProtos = []string{"http/1.1"}
	c, err := dialTunnel(t, g, conf, "tls.test", o.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: other.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 421 || resp.Header.Get("Crawlgate-Reason") != "host-mismatch" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	conf.ServerName = ""
	raw, err := openTunnel(g.proxy, fmt.Sprintf("tls.test:%d", o.port))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_, _ = io.WriteString(raw, "\x00\x01\x02 not HTTP")
	if b, err := io.ReadAll(raw); len(b) != 0 {
		t.Errorf("an answer to noise: %q %v", b, err)
	}
	list := g.waitEvents(t, 9)
	if last := list[8]; last.Method != "CONNECT" || last.Sent || last.Class != "tunnel_not_http" {
		t.Errorf("%+v", last)
	}
	if n := o.connections(); n != 0 {
		t.Errorf("%d connections at the site", n)
	}
}

// TestAuditFull: when the disk under the audit log is full, nothing is sent any more, and the answer says so; when there
// is room again, requests go on and the chain is whole.
func TestAuditFull(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH2, nil, "site.test")
	dir := t.TempDir()
	disk := filepath.Join(dir, "log")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	conf := gateConfig{origins: []*origin{o}, profiles: "[{name: crawl, pacing: {gap: 10ms}}]",
		more: "audit: {file: " + disk + "/audit.jsonl, min_free: 256KiB, sync: intent}\n"}
	if os.Geteuid() != 0 {
		// Nobody else can make a disk small: ask for more room than any has.
		conf.more = strings.Replace(conf.more, "256KiB", "1000000GiB", 1)
		g := startGate(t, conf)
		a := curl(t, g, o.url("/full"))
		if a.status != 503 || a.header.Get("Crawlgate-Reason") != "audit-unavailable" || len(o.arrivals()) != 0 {
			t.Errorf("%+v; the site got %v", a, uris(o.arrivals()))
		}
		return
	}
	small(t, disk)
	g := startGate(t, conf)
	if a := curl(t, g, o.url("/before")); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	// Fill it to the last byte, as another program might.
	hog := filepath.Join(disk, "hog")
	f, err := os.Create(hog)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 4<<10)
	for {
		if _, err := f.Write(chunk); err != nil {
			break
		}
	}
	f.Close()
	within(t, 20*time.Second, "requests are refused", func() bool {
		a := curl(t, g, o.url("/full"))
		return a.status == 503
	})
	sent := len(o.arrivals())
	for n := range 5 {
		a := curl(t, g, o.url(fmt.Sprintf("/full-%d", n)))
		if a.status != 503 || a.header.Get("Crawlgate-Reason") != "audit-unavailable" || a.header.Get("Retry-After") == "" {
			t.Errorf("%+v", a)
		}
		if strings.Contains(a.body, disk) {
			t.Errorf("the answer names a file: %s", a.body)
		}
	}
	if n := len(o.arrivals()); n != sent {
		t.Errorf("%d requests were sent unrecorded: %v", n-sent, uris(o.arrivals()[sent:]))
	}
	if status, _, body := ask(t, "GET", g.admin+"/readyz", ""); status != 503 || !strings.Contains(body, "audit") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if err := os.Remove(hog); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "requests go on", func() bool { return curl(t, g, o.url("/after")).status == 200 })
	if err := g.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := g.exit(t, 15*time.Second); code != 0 {
		t.Errorf("exit %d: %s", code, g.err)
	}
	if r := g.cli(t, "audit", "verify"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	agentOnly(t, o.arrivals())
}

// small puts a file system of one megabyte on a folder.
func small(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
}
