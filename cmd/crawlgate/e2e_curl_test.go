package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answer is what curl got.
type answer struct {
	status   int
	proto    string // of the client's side
	connect  int    // status of the CONNECT
	header   http.Header
	body     string
	exit     int
	message  string
	duration time.Duration
}

// curl asks for one URL by way of the gate.
func curl(t *testing.T, g *gate, url string, more ...string) answer {
	t.Helper()
	return curlVia(t, g.proxy, g.ca, url, more...)
}

func curlVia(t *testing.T, proxy, ca, url string, more ...string) answer {
	t.Helper()
	dir := t.TempDir()
	head, body := filepath.Join(dir, "head"), filepath.Join(dir, "body")
	args := []string{"-sS", "--max-time", "60", "--proxy", proxy, "--noproxy", "", "-D", head, "-o", body, "--suppress-connect-headers", "-w", "%{json}"}
	if ca != "" {
		args = append(args, "--cacert", ca)
	}
	began := time.Now()
	r := execute(t, bareEnv(dir), "curl", append(append(args, more...), url)...)
	a := answer{exit: r.code, message: strings.TrimSpace(r.err), duration: time.Since(began)}
	var info struct {
		Code    int    `json:"http_code"`
		Version string `json:"http_version"`
		Connect int    `json:"http_connect"`
	}
	if err := json.Unmarshal([]byte(r.out), &info); err != nil {
		t.Fatalf("curl: %v: %q %s", err, r.out, r.err)
	}
	a.status, a.proto, a.connect = info.Code, info.Version, info.Connect
	if raw, err := os.ReadFile(body); err == nil {
		a.body = string(raw)
	}
	a.header = lastHead(t, head)
	return a
}

// lastHead reads the fields of the last answer in a file that curl -D wrote.
func lastHead(t *testing.T, file string) http.Header {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		return http.Header{}
	}
	var h http.Header
	r := textproto.NewReader(bufio.NewReader(strings.NewReader(string(raw))))
	for {
		if line, err := r.ReadLine(); err != nil || !strings.HasPrefix(line, "HTTP/") {
			return h
		}
		m, err := r.ReadMIMEHeader()
		if err != nil && len(m) == 0 {
			return h
		}
		h = http.Header(m)
	}
}

// agentOnly fails when a request carried another name than the agent's, or a field that tells of client or proxy.
func agentOnly(t *testing.T, list []arrival) {
	t.Helper()
	for _, a := range list {
		if ua := a.Header["User-Agent"]; len(ua) != 1 || ua[0] != agentUA {
			t.Errorf("%s %s came as %q", a.Method, a.URI, ua)
		}
		for name := range a.Header {
			low := strings.ToLower(name)
			if strings.HasPrefix(low, "sec-ch-ua") || strings.HasPrefix(low, "proxy-") || strings.HasPrefix(low, "crawlgate-") || strings.HasPrefix(low, "x-forwarded") ||
				low == "via" || low == "forwarded" {
				t.Errorf("%s %s carried %s: %v", a.Method, a.URI, name, a.Header[name])
			}
		}
	}
}

// apart fails when two pages began closer together than the gap after the one before.
func apart(t *testing.T, list []arrival, gap time.Duration) {
	t.Helper()
	for n := 1; n < len(list); n++ {
		if d := list[n].At.Sub(list[n-1].At); d < gap {
			t.Errorf("%s came %v after %s, not %v", list[n].URI, d, list[n-1].URI, gap)
		}
	}
}

// TestCurl sends curl over plain HTTP and intercepted HTTP/1.1 and HTTP/2 to origins of each kind.
func TestCurl(t *testing.T) {
	t.Parallel()
	rules := func(o *origin) { o.robots = "User-agent: *\n\nDisallow: /private/\n" }
	plain := newOrigin(t, plainHTTP, rules, "plain.test")
	h1 := newOrigin(t, tlsH1, rules, "one.test")
	h2 := newOrigin(t, tlsH2, rules, "two.test")
	g := startGate(t, gateConfig{origins: []*origin{plain, h1, h2}})
	n := 0
	for _, c := range []struct {
		name          string
		o             *origin
		flag          string
		client, proto string
	}{
		{"plain", plain, "--http1.1", "1.1", "HTTP/1.1"},
		{"h1 to h1", h1, "--http1.1", "1.1", "HTTP/1.1"},
		{"h2 to h1", h1, "--http2", "2", "HTTP/1.1"},
		{"h1 to h2", h2, "--http1.1", "1.1", "HTTP/2.0"},
		{"h2 to h2", h2, "--http2", "2", "HTTP/2.0"},
	} {
		path := "/" + strings.ReplaceAll(c.name, " ", "-") + "?a=1;b=2&q=100%25"
		before := len(c.o.pages())
		a := curl(t, g, c.o.url(path), c.flag, "-A", "curly/9", "-H", "X-Forwarded-For: 10.1.2.3", "-H", "Via: 1.1 other", "-H", "Sec-CH-UA: x", "-H", "Proxy-X: y")
		if a.exit != 0 || a.status != 200 || a.proto != c.client || a.body == "" || a.header.Get("Crawlgate-Request-Id") == "" || a.header["Crawlgate-Reason"] != nil {
			t.Errorf("%s: %+v", c.name, a)
		}
		list := c.o.pages()
		if len(list) != before+1 {
			t.Fatalf("%s: the site got %v", c.name, uris(list))
		}
		if last := list[before]; last.URI != path || last.Proto != c.proto || last.Method != "GET" || last.Body != 0 {
			t.Errorf("%s: the site got %+v", c.name, last)
		}
		n++
		ev := g.waitEvents(t, n)[n-1]
		if ev.ID != a.header.Get("Crawlgate-Request-Id") || ev.Decision != "forwarded" || ev.Reason != "ok" || !ev.Sent || ev.Status != 200 || ev.UserAgent != agentUA ||
			ev.ClientUserAgent != "curly/9" || ev.Intercepted != (c.o != plain) || ev.Upstream.IP != "127.0.0.1" {
			t.Errorf("%s: recorded as %+v", c.name, ev)
		}

		// A page that robots.txt forbids is refused where curl can read it.
		r := curl(t, g, c.o.url("/private/x"), c.flag)
		p := readProblem(t, r.body)
		if r.exit != 0 || r.status != 403 || r.proto != c.client || r.header.Get("Crawlgate-Reason") != "robots-disallow" ||
			r.header.Get("Content-Type") != "application/problem+json" || r.header.Get("Cache-Control") != "no-store" ||
			!strings.HasPrefix(r.header.Get("Proxy-Status"), "crawlgate;error=http_request_denied;details=\"robots-disallow") {
			t.Errorf("%s: refused as %+v", c.name, r)
		}
		if c.o != plain && r.connect != 200 {
			t.Errorf("%s: CONNECT answered %d", c.name, r.connect)
		}
		if p.Reason != "robots-disallow" || p.Status != 403 || p.Line != 3 || p.Rule != "Disallow: /private/" || p.URL != c.o.url("/private/x") ||
			p.RobotsURL != c.o.url("/robots.txt") || p.RequestID != r.header.Get("Crawlgate-Request-Id") || p.Type != "https://crawlgate.invalid/problems/robots-disallow" || p.Agent != "ExampleBot" {
			t.Errorf("%s: problem %+v", c.name, p)
		}
		n++
		if ev := g.waitEvents(t, n)[n-1]; ev.ID != p.RequestID || ev.Decision != "refused" || ev.Reason != "robots-disallow" || ev.Sent || ev.Rule.Line != 3 {
			t.Errorf("%s: recorded as %+v", c.name, ev)
		}
	}
	for _, o := range []*origin{plain, h1, h2} {
		agentOnly(t, o.arrivals())
		apart(t, o.pages(), time.Second)
		for _, a := range o.arrivals() {
			if strings.HasPrefix(a.URI, "/private/") {
				t.Errorf("%s arrived", a.URI)
			}
		}
		if first := o.arrivals()[0]; first.URI != "/robots.txt" {
			t.Errorf("%s was read before robots.txt", first.URI)
		}
	}
}

// TestCurlPrivate: a private address is refused inside the tunnel, by whatever spelling, and nothing is connected to.
func TestCurlPrivate(t *testing.T) {
	t.Parallel()
	secret := newOrigin(t, plainHTTP, nil, "internal.test")
	open := newOrigin(t, tlsH1, nil, "open.test")
	g := startGate(t, gateConfig{origins: []*origin{open}, hosts: []string{"127.0.0.1 internal.test", "10.0.0.7 lan.test", "169.254.169.254 meta.test"}, ports: nil,
		egress: []string{"ports: [80, 443, " + itoa(secret.port) + "]"}})
	for _, c := range []struct{ url, reason string }{
		{"https://lan.test/", "address-denied"},
		{"https://meta.test/latest/", "address-denied"},
		{"http://meta.test/latest/", "address-denied"},
		{"https://10.0.0.7/", "address-denied"},
		{"http://[::ffff:10.0.0.7]/", "address-denied"},
		{"http://127.0.0.1:" + itoa(secret.port) + "/", "address-denied"},
		{"http://internal.test:" + itoa(secret.port) + "/", "address-denied"},
		{"http://localhost:" + itoa(secret.port) + "/", "address-denied"},
	} {
		a := curl(t, g, c.url)
		if a.exit != 0 || a.status != 403 || a.header.Get("Crawlgate-Reason") != c.reason || !strings.Contains(a.header.Get("Proxy-Status"), "error=destination_ip_prohibited") {
			t.Errorf("%s: %+v", c.url, a)
			continue
		}
		if p := readProblem(t, a.body); p.Reason != c.reason || p.Class == "" {
			t.Errorf("%s: %+v", c.url, p)
		}
	}
	if n := secret.connections(); n != 0 {
		t.Errorf("%d connections to the private target", n)
	}
	for _, e := range g.waitEvents(t, 8) {
		if e.Decision != "refused" || e.Sent || e.Reason != "address-denied" {
			t.Errorf("%+v", e)
		}
	}
}
