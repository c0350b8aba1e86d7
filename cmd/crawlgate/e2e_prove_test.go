package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"crawlgate/audit"
)

// TestProveARun: what a gate did is proven from its own log and archive, and a copy of the log with one event cut out is
// not.
func TestProveARun(t *testing.T) {
	t.Parallel()
	busy := 0
	var mu sync.Mutex
	site := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/to", http.StatusMovedPermanently)
		case "/minute":
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/busy":
			mu.Lock()
			busy++
			first := busy == 1
			mu.Unlock()
			if first {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			fallthrough
		default:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<title>%s</title><img src=/i.png>", r.URL.Path)
		}
	}
	h2 := newOrigin(t, tlsH2, func(o *origin) { o.robots, o.handle = "User-agent: *\nDisallow: /no\nDisallow: /*?secret=\n", site }, "h2.test")
	h1 := newOrigin(t, tlsH1, func(o *origin) { o.robots, o.handle = "User-agent: ExampleBot\nCrawl-delay: 1\n", site }, "h1.test")
	bare := newOrigin(t, plainHTTP, func(o *origin) { o.robots, o.handle = "", site }, "bare.test")
	g, _ := startSigned(t, gateConfig{origins: []*origin{h2, h1, bare}, profiles: "[{name: crawl, pacing: {gap: 300ms}}, {name: direct, robots: {mode: named}, pacing: {gap: 400ms}}]",
		more: "pacing: {backoff: {base: 500ms}}\n"})
	u, err := url.Parse(g.proxy)
	if err != nil {
		t.Fatal(err)
	}
	get := func(c *http.Client, target string, header ...string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Error(err)
			return
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	var wg sync.WaitGroup
	for n, profile := range []string{"crawl", "direct"} {
		proxy := *u
		proxy.User = url.UserPassword("default+"+profile, "x")
		c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&proxy), TLSClientConfig: clientTLS(t, g.ca), ForceAttemptHTTP2: n == 1}}
		t.Cleanup(c.CloseIdleConnections)
		wg.Go(func() {
			html := []string{"Accept", "text/html", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "none"}
			for i := range 3 {
				get(c, h2.url(fmt.Sprintf("/%d/%d?token=abc", n, i)), html...)
				get(c, h2.url("/i.png"), "Sec-Fetch-Dest", "image", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "same-origin", "Referer", h2.url(fmt.Sprintf("/%d/%d?token=abc", n, i)))
				get(c, h1.url(fmt.Sprintf("/%d/%d", n, i)))
				get(c, bare.url(fmt.Sprintf("/%d/%d", n, i)))
			}
			get(c, h2.url("/no"))
			get(c, h2.url("/moved"), html...)
			get(c, bare.url("/busy"))
			get(c, bare.url("/after"))
		})
	}
	wg.Wait()
	// Another configuration comes into force, and the operator lets a site in again that asked for a minute.
	file, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, g.file, strings.Replace(string(file), "gap: 300ms", "gap: 200ms", 1), 0o600)
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the configuration is reloaded", func() bool { return strings.Contains(g.err.String(), "configuration reloaded") })
	c := goClient(t, g.proxy, g.ca, false)
	get(c, bare.url("/minute"))
	get(c, bare.url("/waits"), "Crawlgate-Max-Wait", "0")
	for _, args := range [][]string{{"sites", "slow", "bare.test", "--gap", "250ms"}, {"sites", "resume", "bare.test"}} {
		if r := g.cli(t, args...); r.code != 0 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	get(c, bare.url("/again"))
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.exit(t, 20*time.Second); code != 0 {
		t.Fatalf("serve ended with %d\n%s", code, g.err)
	}
	prove := func(args ...string) (p audit.Proof, code int) {
		t.Helper()
		out, errs, code := runProve(t, newAuditProveCmd, g.file, append([]string{"--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		return p, code
	}
	p, code := prove()
	text, _, _ := runProve(t, newAuditProveCmd, g.file)
	if code != 0 || !p.OK || p.Proven != p.Sent || p.Sent < 24 || p.Clients != 1 || p.Hosts != 3 || p.Signatures["signed"] == 0 || len(p.Gaps) != 3 || p.Refused["robots-disallow"] == 0 ||
		p.Refused["host-backoff"] == 0 || len(p.Configurations) != 2 || len(p.Operator) != 2 {
		t.Errorf("exit %d\n%s", code, text)
	}
	t.Logf("\n%s", text)

	// Without the archive nothing is proven, and with an event cut out neither.
	empty := t.TempDir()
	if p, code := prove("--archive", empty); code != 1 || p.Checks[audit.CheckRules].Violations == 0 || p.Checks[audit.CheckPace].Violations != 0 {
		t.Errorf("exit %d: %+v", code, p.Checks)
	}
	log, err := os.ReadFile(filepath.Join(g.state, "audit", "crawlgate.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(empty, "cut.jsonl")
	lines := splitLines(log)
	var kept []byte
	for n, line := range lines {
		if n != len(lines)/2 {
			kept = append(kept, line...)
		}
	}
	writeFile(t, cut, string(kept), 0o600)
	if p, code := prove(cut); code != 1 || p.Checks[audit.CheckChain].Violations != 1 || p.Checks[audit.CheckComplete].Violations != 1 {
		t.Errorf("exit %d: %+v", code, p.Checks)
	}
}

// splitLines splits a log into its lines, ends included.
func splitLines(b []byte) (lines [][]byte) {
	start := 0
	for i, c := range b {
		if c == '\n' {
			lines = append(lines, b[start:i+1])
			start = i + 1
		}
	}
	return lines
}
