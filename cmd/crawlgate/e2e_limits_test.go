package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestCrash: what is owed survives a gate that was killed: a site's Retry-After, the operator's ledger and the log.
func TestCrash(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/limited" {
				w.Header().Set("Retry-After", "600")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			fmt.Fprint(w, "ok")
		}
	}, "site.test", "stopped.test")
	conf := gateConfig{origins: []*origin{o}}
	g := startGate(t, conf)
	a := curl(t, g, o.url("/limited"))
	if a.status != 429 || a.header.Get("Retry-After") != "600" || a.header.Get("Crawlgate-Reason") != "" {
		t.Fatalf("the site's own 429: %+v", a)
	}
	if r := g.cli(t, "sites", "stop", "stopped.test", "--reason", "owner_asked"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	g.waitEvents(t, 1)
	owed := func() {
		t.Helper()
		a := curl(t, g, o.url("/again"))
		if a.status != 429 || a.header.Get("Crawlgate-Reason") != "host-backoff" || len(a.header.Get("Retry-After")) != 3 {
			t.Errorf("the host asked for 600 s: %+v", a)
		}
		if a := curl(t, g, o.at("stopped.test", "/")); a.header.Get("Crawlgate-Reason") != "site-stopped" {
			t.Errorf("%+v", a)
		}
	}
	owed()
	within(t, 10*time.Second, "what is owed is on disk (once a second)", func() bool {
		raw, err := os.ReadFile(g.state + "/state.db")
		return err == nil && bytes.Contains(raw, []byte(`"hold":`))
	})
	// Seen may be just before it counts; the file takes one change after the other, so the end of a later one settles it.
	if r := g.cli(t, "sites", "slow", "later.test", "--gap", "5s"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if err := g.cmd.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	<-g.done
	if _, err := os.Lstat(g.state + "/control.sock"); err != nil {
		t.Errorf("a killed gate leaves its socket, so nothing is shown: %v", err)
	}
	g.proxy = ""
	g.serve(t, conf)
	owed()
	if got := uris(o.arrivals()); len(got) != 2 {
		t.Errorf("the site got %v", got)
	}
	if r := g.cli(t, "audit", "verify"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := g.cli(t, "sites", "resume", "site.test"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if a := curl(t, g, o.url("/resumed")); a.status != 200 {
		t.Errorf("after sites resume: %+v", a)
	}
}

// TestTooLarge: an answer past the limit is refused where its length is known, and cut loudly where it is not.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	big := func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/known" {
				w.Header().Set("Content-Length", fmt.Sprint(3<<20))
			}
			for range 48 {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		}
	}
	h1, h2 := newOrigin(t, tlsH1, big, "one.test"), newOrigin(t, tlsH2, big, "two.test")
	g := startGate(t, gateConfig{origins: []*origin{h1, h2}, profiles: "[{name: crawl, limits: {response_body: 1MiB}, pacing: {gap: 50ms}}]"})
	n := 0
	for _, o := range []*origin{h1, h2} {
		for _, flag := range []string{"--http1.1", "--http2"} {
			a := curl(t, g, o.url("/known"), flag)
			if a.exit != 0 || a.status != 502 || a.header.Get("Crawlgate-Reason") != "response-too-large" || !strings.Contains(a.body, "limits.response_body") {
				t.Errorf("%s: %+v", flag, a)
			}
			a = curl(t, g, o.url("/unknown"), flag)
			if a.exit == 0 || len(a.body) > 1<<20 || a.status != 200 {
				t.Errorf("%s: a cut body looks whole: exit %d, status %d, %d bytes", flag, a.exit, a.status, len(a.body))
			}
			n += 2
			list := g.waitEvents(t, n)
			if ev := list[n-1]; ev.Reason != "response-too-large" || ev.Decision != "failed" || !ev.Sent || ev.Status != 200 {
				t.Errorf("%+v", ev)
			}
		}
	}
}

// TestRedirects: a chain is followed as far as the limit says, each hop judged by itself.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var base string
	o := newOrigin(t, tlsH1, func(o *origin) {
		o.robots = "User-agent: *\nDisallow: /private/\n"
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			var n int
			switch {
			case r.URL.Path == "/to-lan":
				http.Redirect(w, r, "https://lan.test/", http.StatusFound)
			case r.URL.Path == "/to-private":
				http.Redirect(w, r, "/private/x", http.StatusMovedPermanently)
			default:
				if _, err := fmt.Sscanf(r.URL.Path, "/hop/%d", &n); err == nil {
					http.Redirect(w, r, fmt.Sprintf("%s/hop/%d", base, n+1), http.StatusFound)
				}
			}
		}
	}, "site.test")
	base = strings.TrimSuffix(o.url("/"), "/")
	g := startGate(t, gateConfig{origins: []*origin{o}, hosts: []string{"10.0.0.7 lan.test"}, profiles: "[{name: crawl, pacing: {gap: 50ms}}]"})
	for _, c := range []struct {
		path, reason string
		status, sent int
	}{
		{"/hop/0", "too-many-redirects", 508, 6},
		{"/to-lan", "address-denied", 403, 1},
		{"/to-private", "robots-disallow", 403, 1},
	} {
		before := len(o.pages())
		a := curl(t, g, o.url(c.path), "-L")
		if a.exit != 0 || a.status != c.status || a.header.Get("Crawlgate-Reason") != c.reason {
			t.Errorf("%s: %+v", c.path, a)
		}
		if got := o.pages()[before:]; len(got) != c.sent {
			t.Errorf("%s: the site got %v", c.path, uris(got))
		}
	}
}

// h2Refuser speaks HTTP/2 by hand: it answers robots.txt and /ok, and refuses every other stream (REFUSED_STREAM), which
// clients are invited to try again.
type h2Refuser struct {
	port int

	mu    sync.Mutex
	paths []string
}

func newH2Refuser(t *testing.T, host string) *h2Refuser {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{rootCA().leaf(t, host)}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	o := &h2Refuser{port: l.Addr().(*net.TCPAddr).Port}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go o.serve(c)
		}
	}()
	return o
}

func (o *h2Refuser) serve(c net.Conn) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(c, c)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if fr.WriteSettings() != nil {
		return
	}
	var buf bytes.Buffer
	enc := hpack.NewEncoder(&buf)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = fr.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			path := f.PseudoValue("path")
			o.mu.Lock()
			o.paths = append(o.paths, path)
			o.mu.Unlock()
			if path != "/robots.txt" && path != "/ok" {
				_ = fr.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
				continue
			}
			buf.Reset()
			_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: map[string]string{"/ok": "200", "/robots.txt": "404"}[path]})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: buf.Bytes(), EndHeaders: true, EndStream: true})
		}
	}
}

// TestRefusedStream: a stream that an HTTP/2 site refuses is not sent again either.
func TestRefusedStream(t *testing.T) {
	t.Parallel()
	o := newH2Refuser(t, "raw2.test")
	g := startGate(t, gateConfig{hosts: []string{"127.0.0.1 raw2.test"}, ports: []int{o.port}, profiles: "[{name: crawl, pacing: {gap: 50ms}}]",
		more: "pacing: {backoff: {base: 10ms, factor: 1, jitter: 0}}\n"})
	base := fmt.Sprintf("https://raw2.test:%d", o.port)
	for n, path := range []string{"/ok", "/refused-1", "/refused-2"} {
		a := curl(t, g, base+path)
		if n == 0 && a.status != 200 || n > 0 && (a.status != 502 || a.header.Get("Crawlgate-Reason") != "upstream-failed") {
			t.Errorf("%s: %+v", path, a)
		}
	}
	within(t, 5*time.Second, "all is recorded", func() bool { return len(g.requests(t)) == 3 })
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := strings.Join(o.paths, " "); got != "/robots.txt /ok /refused-1 /refused-2" {
		t.Errorf("the site got %s", got)
	}
}
