package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The figures of docs/performance.md: go test ./cmd/crawlgate -run TestIdleTunnels -v -tunnels 10000 -active 1000
var (
	idleTunnels   = flag.Int("tunnels", 200, "idle tunnels to open")
	activeTunnels = flag.Int("active", 100, "tunnels with an answer under way to open")
)

// footprint is a process's resident memory in bytes, and its open files.
func (p *process) footprint(t *testing.T) (rss int64, files int) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	raw, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			rss = kb << 10
		}
	}
	list, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	return rss, len(list)
}

// TestIdleTunnels: a tunnel that idles after its request costs a bounded amount of memory and one open file, over HTTP/1.1
// and HTTP/2; one with an answer under way costs more, and ends whole.
func TestIdleTunnels(t *testing.T) {
	for _, c := range []struct {
		name   string
		proto  string
		active bool
		limit  float64 // KiB resident for each, with the collector's headroom, where there are many
	}{{"idle over HTTP/1.1", "http/1.1", false, 45}, {"idle over HTTP/2", "h2", false, 60}, {"active over HTTP/1.1", "http/1.1", true, 120}} {
		t.Run(c.name, func(t *testing.T) {
			release := make(chan struct{})
			o := newOrigin(t, tlsH2, func(o *origin) {
				o.handle = func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "begun")
					if r.URL.Path == "/hold" {
						_ = http.NewResponseController(w).Flush()
						<-release
						_, _ = io.WriteString(w, " and whole")
					}
				}
			}, "idle.test")
			g := startGate(t, gateConfig{origins: []*origin{o}, profiles: "[{name: crawl, pacing: {mode: none}, limits: {timeout: 2m}}]",
				more: "server: {idle: 30m, upstream_idle: 1s, read_head: 1m, tunnels: 40000, tunnels_client: 20000}\npacing: {stall_timeout: 10m}\n"})
			conf := clientTLS(t, g.ca)
			conf.NextProtos = []string{c.proto}
			n, path := *idleTunnels, "/"
			if c.active {
				n, path = *activeTunnels, "/hold"
			}
			one := func() (*tls.Conn, *bufio.Reader, error) {
				conn, err := dialTunnel(t, g, conf, "idle.test", o.port)
				if err != nil {
					return nil, nil, err
				}
				br := bufio.NewReaderSize(conn, 512)
				if c.proto == "h2" {
					return conn, br, getH2(conn, o.url(path))
				}
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: idle.test\r\n\r\n", path)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					return conn, br, err
				}
				if c.active {
					_, err = br.Peek(len("5\r\nbegun"))
				} else if _, err = io.Copy(io.Discard, resp.Body); resp.StatusCode != 200 {
					err = fmt.Errorf("status %d", resp.StatusCode)
				}
				return conn, br, err
			}
			// What a first tunnel needs once is not counted: code, certificates, buffers.
			warm := *idleTunnels / 20
			readers := make([]*bufio.Reader, warm+n)
			open := func(from, to int) {
				var wg sync.WaitGroup
				slots := make(chan struct{}, 16)
				for i := from; i < to; i++ {
					slots <- struct{}{}
					wg.Go(func() {
						defer func() { <-slots }()
						conn, br, err := one()
						if err != nil {
							t.Errorf("tunnel %d: %v", i, err)
							return
						}
						t.Cleanup(func() { conn.Close() })
						readers[i] = br
					})
				}
				wg.Wait()
			}
			open(0, warm)
			before, filesBefore := g.process.footprint(t)
			open(warm, warm+n)
			if t.Failed() {
				return
			}
			var after int64
			var files int
			within(t, 20*time.Second, "the connections to the site are idle no more", func() bool {
				after, files = g.process.footprint(t)
				return c.active || files <= filesBefore+n
			})
			each := float64(after-before) / float64(n) / 1024
			t.Logf("%d tunnels: %.1f KiB each resident, %d open files for %d tunnels", n, each, files-filesBefore, n)
			if files > filesBefore+n+6 {
				t.Errorf("%d open files for %d tunnels", files-filesBefore, n)
			}
			if n >= 1000 && !raceEnabled && each > c.limit {
				t.Errorf("%.1f KiB for each tunnel", each)
			}
			close(release)
			if !c.active {
				return
			}
			for i, br := range readers {
				var got strings.Builder
				for !strings.Contains(got.String(), "0\r\n\r\n") {
					b, err := br.ReadByte()
					if err != nil {
						t.Fatalf("tunnel %d: %q %v", i, got.String(), err)
					}
					got.WriteByte(b)
				}
				if !strings.Contains(got.String(), " and whole") {
					t.Errorf("tunnel %d: %q", i, got.String())
				}
			}
		})
	}
}

// getH2 fetches once over HTTP/2 and leaves the connection open.
func getH2(conn *tls.Conn, url string) error {
	tr := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		return fmt.Errorf("status %d by %s", resp.StatusCode, resp.Proto)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
