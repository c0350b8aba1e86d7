package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elazarl/goproxy"

	"crawlgate/audit"
)

// The tests of this file are one for each fault that goproxy's own interception loop has: the way of this package must
// have none of them.

// Fault 1: the request's context is not cancelled when the fetcher leaves, so its place in the queue is kept and the
// request is still sent.
func TestFaultFetcherThatLeavesGivesItsPlaceBack(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			r := newRig(t)
			release := make(chan struct{})
			first := make(chan struct{}, 1)
			o := r.origin("slow.test", true, "", func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/first" {
					first <- struct{}{}
					<-release
				}
				hello(w, req)
			})
			r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Pacing.Parallel = 1 }})
			c := r.client(h2)
			done := make(chan error, 1)
			go func() {
				resp, err := c.Get(o.url("https", "/first"))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
			<-first
			ctx, cancel := context.WithCancel(context.Background())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url("https", "/left"), nil)
			must(t, err)
			gone := make(chan error, 1)
			go func() { _, err := c.Do(req); gone <- err }()
			// A pacer tells nobody that somebody waits; it has to be asked.
			if n := settled(0, func() int { return 1 - r.pacer.Stats().Waiting }); n != 0 {
				t.Fatal("the second request does not wait")
			}
			cancel()
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Fatalf("the fetcher got %v", err)
			}
			ev := r.waitEvent("cancelled", func(e *audit.Event) bool { return e.Decision == audit.Cancelled })
			if ev.Sent {
				t.Error("a byte went out for a fetcher that had left")
			}
			close(release)
			must(t, <-done)
			if n := len(o.requests()); n != 1 {
				t.Errorf("the site saw %d requests", n)
			}
			r.noTurnsLeft()
		})
	}
}

// Fault 2: the inner Host decides the target, whatever the CONNECT said. (The vectors of hosts.json hold every form.)
func TestFaultTunnelToACarriesNothingForB(t *testing.T) {
	r := newRig(t)
	a := r.origin("a.test", true, "", hello)
	b := r.origin("b.test", true, "", hello)
	r.start(rigOptions{})
	tc := r.tls(fmt.Sprintf("a.test:%d", a.port), "a.test")
	fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: b.test:%d\r\n\r\n", b.port)
	resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
	must(t, err)
	if resp.StatusCode != http.StatusMisdirectedRequest || resp.Header.Get("Crawlgate-Reason") != "host-mismatch" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	if len(b.requests())+len(a.requests()) != 0 {
		t.Error("a site was asked")
	}
}

// Fault 3: an upstream failure in an HTTP/1.1 tunnel closes the connection without an answer.
func TestFaultUpstreamFailureIsAnswered(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		r := newRig(t)
		o := r.raw("broken.test", func(c net.Conn) {}) // accepts and closes
		r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Robots.Mode = "ignore" }})
		resp, body := r.get(r.client(h2), o.url("https", "/"))
		if resp.StatusCode != 502 || !strings.HasPrefix(resp.Header.Get("Crawlgate-Reason"), "upstream-") {
			t.Errorf("h2=%v: got %d %s", h2, resp.StatusCode, body)
		}
	}
}

// Fault 4: a body of unknown length that the origin cuts ends as a complete answer.
func TestFaultTruncationIsLoud(t *testing.T) {
	for _, originH2 := range []bool{false, true} {
		for _, clientH2 := range []bool{false, true} {
			for _, known := range []bool{false, true} {
				t.Run(fmt.Sprintf("origin-h2=%v client-h2=%v known=%v", originH2, clientH2, known), func(t *testing.T) {
					r := newRig(t)
					protos := []string{"http/1.1"}
					if originH2 {
						protos = []string{"h2", "http/1.1"}
					}
					o := r.originOf("cut.test", protos, "", func(w http.ResponseWriter, _ *http.Request) {
						if known {
							w.Header().Set("Content-Length", "1000000")
						}
						_, _ = io.WriteString(w, strings.Repeat("x", 20000))
						_ = http.NewResponseController(w).Flush()
						panic(http.ErrAbortHandler)
					})
					r.start(rigOptions{})
					resp, err := r.client(clientH2).Get(o.url("https", "/"))
					if err != nil {
						return // the head itself was lost: as loud
					}
					defer resp.Body.Close()
					if resp.StatusCode == 502 {
						return // it broke off before anything was passed on
					}
					began := time.Now()
					if b, err := io.ReadAll(resp.Body); err == nil || time.Since(began) > 3*time.Second {
						t.Fatalf("a cut answer ended with %v after %d bytes and %s", err, len(b), time.Since(began))
					}
					ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
					if ev.Reason != "upstream-failed" {
						t.Errorf("event %q %q", ev.Reason, ev.Class)
					}
				})
			}
		}
	}
}

// Fault 5: the fields that Connection names leak, since Connection is deleted first.
func TestFaultConnectionNamedFieldsStay(t *testing.T) {
	r := newRig(t)
	o := r.originOf("hop.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Connection", "X-Answer-Hop")
		w.Header().Set("X-Answer-Hop", "1")
		hello(w, req)
	})
	r.start(rigOptions{})
	tc := r.tls(fmt.Sprintf("hop.test:%d", o.port), "hop.test")
	fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: hop.test\r\nConnection: X-Drop, keep-alive, User-Agent, Signature\r\nX-Drop: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers, gzip\r\nSignature: sig1=:AA==:\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
	must(t, err)
	if resp.Header.Get("X-Answer-Hop") != "" {
		t.Error("a hop-by-hop field of the origin reached the fetcher")
	}
	req := o.requests()[0]
	for _, f := range []string{"X-Drop", "Keep-Alive", "Signature"} {
		if req.Header.Get(f) != "" {
			t.Errorf("the site saw %s", f)
		}
	}
	if req.Header.Get("User-Agent") == "" || req.Header.Get("Te") != "trailers" {
		t.Errorf("the site saw %v", req.Header)
	}
}

// Fault 6: 103 is dropped, and a malformed request closes without a 400.
func TestFaultEarlyHintsPassAndMalformedIsAnswered(t *testing.T) {
	r := newRig(t)
	o := r.origin("early.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Link", "</s.css>; rel=preload")
		w.Header().Set("Crawlgate-Reason", "forged")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Crawlgate-Reason")
		hello(w, req)
	})
	r.start(rigOptions{})
	tc := r.tls(fmt.Sprintf("early.test:%d", o.port), "early.test")
	fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: early.test\r\n\r\n")
	br := bufio.NewReader(tc)
	hint, err := http.ReadResponse(br, nil)
	must(t, err)
	if hint.StatusCode != 103 || hint.Header.Get("Link") == "" || hint.Header.Get("Crawlgate-Reason") != "" {
		t.Errorf("got %d %v", hint.StatusCode, hint.Header)
	}
	final, err := http.ReadResponse(br, nil)
	must(t, err)
	if b, _ := io.ReadAll(final.Body); final.StatusCode != 200 || string(b) != "hello" {
		t.Errorf("got %d %q", final.StatusCode, b)
	}
	for _, bad := range []string{
		"GET / HTTP/1.1\r\nHost: early.test\r\nX : y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: early.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"BAD\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: early.test\r\nX-Long: " + strings.Repeat("y", 80<<10) + "\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: early.test\r\nTransfer-Encoding: gzip\r\n\r\n",
	} {
		for _, inside := range []bool{false, true} {
			var c net.Conn
			if inside {
				c = r.tls(fmt.Sprintf("early.test:%d", o.port), "early.test")
			} else {
				c, err = net.Dial("tcp", r.addr)
				must(t, err)
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			}
			go func() { _, _ = io.WriteString(c, bad) }()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("inside=%v %.60q: %v", inside, bad, err)
				c.Close()
				continue
			}
			if resp.StatusCode < 400 || resp.Header.Get("Crawlgate-Reason") != "bad-request" || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("inside=%v %.60q: got %d %v", inside, bad, resp.StatusCode, resp.Header)
			}
			id := resp.Header.Get("Crawlgate-Request-Id")
			if ev := r.eventOf(id); ev.Reason != "bad-request" || ev.Sent {
				t.Errorf("event %+v", ev)
			}
			resp.Body.Close()
			c.Close()
		}
	}
}

// Fault 7: no limits of time: silent tunnels and half heads stay for ever; and Shutdown does not wait for tunnels, so a
// stream is cut.
func TestFaultSilentTunnelsEnd(t *testing.T) {
	r := newRig(t)
	o := r.origin("quiet.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = time.Second }})
	authority := fmt.Sprintf("quiet.test:%d", o.port)
	silent, _ := r.tunnel(authority)
	half := r.tls(authority, "quiet.test")
	fmt.Fprint(half, "GET / HTTP/1.1\r\nHost: quiet")
	hello, _ := r.tunnel(authority)
	_, _ = hello.Write([]byte{0x16, 3, 1}) // a ClientHello that never comes whole
	for name, c := range map[string]net.Conn{"silent": silent, "half a head": half, "half a handshake": hello} {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadAll(c); err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				t.Errorf("%s: still open", name)
			}
		}
	}
}

func TestFaultShutdownWaitsForTunnels(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			r := newRig(t)
			next := make(chan int)
			o := r.origin("sse.test", true, "", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				rc := http.NewResponseController(w)
				_ = rc.Flush()
				for n := range next {
					fmt.Fprintf(w, "data: %d\n\n", n)
					_ = rc.Flush()
				}
			})
			r.start(rigOptions{})
			resp, err := r.client(h2).Get(o.url("https", "/"))
			must(t, err)
			defer resp.Body.Close()
			br := bufio.NewReader(resp.Body)
			next <- 1
			if l, err := br.ReadString('\n'); err != nil || l != "data: 1\n" {
				t.Fatalf("%q %v", l, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.gate.Shutdown(ctx) }()
			<-r.gate.drain.stopped.Done()
			for n := 2; n <= 6; n++ {
				next <- n
			}
			close(next)
			rest, err := io.ReadAll(br)
			if err != nil || strings.Count(string(rest), "data:") != 5 {
				t.Errorf("the stream was cut: %q %v", rest, err)
			}
			resp.Body.Close()
			if err := <-ended; err != nil {
				t.Errorf("shutdown: %v", err)
			}
		})
	}
}

// Fault 8: garbage in a tunnel stays open until the peer closes.
func TestFaultGarbageInATunnelIsClosed(t *testing.T) {
	r := newRig(t)
	o := r.origin("garbage.test", true, "", hello)
	r.start(rigOptions{})
	c, _ := r.tunnel(fmt.Sprintf("garbage.test:%d", o.port))
	_, _ = c.Write([]byte{0, 1, 2, 3})
	if _, err := io.ReadAll(c); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			t.Error("still open")
		}
	}
	ev := r.waitEvent("tunnel_not_http", func(e *audit.Event) bool { return e.Class == "tunnel_not_http" })
	if ev.Method != http.MethodConnect || ev.Host != "garbage.test" {
		t.Errorf("event %+v", ev)
	}
}

// Fault 9: the built-in signer: a year long, with goproxy's name in the subject, and RSA where the CA is.
func TestFaultLeavesAreShortAndQuiet(t *testing.T) {
	r := newRig(t)
	o := r.origin("leaf.test", true, "", hello)
	r.start(rigOptions{})
	tc := r.tls(fmt.Sprintf("leaf.test:%d", o.port), "leaf.test")
	chain := tc.ConnectionState().PeerCertificates
	leaf := chain[0]
	if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 8*24*time.Hour {
		t.Errorf("leaf lives %s", life)
	}
	if strings.Contains(strings.ToLower(leaf.Subject.String()), "goproxy") || leaf.Subject.CommonName != "" {
		t.Errorf("subject %s", leaf.Subject)
	}
	if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != "leaf.test" || leaf.PublicKeyAlgorithm.String() != "ECDSA" {
		t.Errorf("leaf for %v with %s", leaf.DNSNames, leaf.PublicKeyAlgorithm)
	}
	if len(chain) != 2 || !chain[1].Equal(r.ca.Cert) {
		t.Error("the CA is not sent along, so Chromium's pin cannot match")
	}
	if leaf.NotBefore.After(time.Now().Add(-50 * time.Minute)) {
		t.Errorf("not back-dated: %s", leaf.NotBefore)
	}
}

// Fault 10: without a matching handler a CONNECT becomes a blind tunnel. Every CONNECT must reach our check: one that
// is not admitted never reaches the site.
func TestFaultNoBlindTunnel(t *testing.T) {
	r := newRig(t)
	var conns atomic.Int64
	o := r.raw("blind.test", func(net.Conn) { conns.Add(1) })
	r.start(rigOptions{})
	c, _ := r.tunnel(fmt.Sprintf("blind.test:%d", o.port))
	_, _ = c.Write([]byte("\x00\x00\x00 not http, not tls"))
	_, _ = io.ReadAll(c)
	if n := conns.Load(); n != 0 {
		t.Errorf("the site got %d connections", n)
	}
}

// Fault 11: goproxy ships a CA whose private key is public. It must never sign here.
func TestFaultShippedCANeverSigns(t *testing.T) {
	leaf := goproxy.GoproxyCa
	cert := leaf.Leaf
	if cert == nil {
		t.Fatal("goproxy's CA has no parsed leaf")
	}
	if err := usableCA(cert, nil); err == nil || !strings.Contains(err.Error(), "goproxy") {
		t.Errorf("the shipped CA was taken: %v", err)
	}
	r := newRig(t)
	o := r.origin("signed.test", true, "", hello)
	r.start(rigOptions{})
	tc := r.tls(fmt.Sprintf("signed.test:%d", o.port), "signed.test")
	for _, c := range tc.ConnectionState().PeerCertificates {
		if c.CheckSignatureFrom(cert) == nil || c.Equal(cert) {
			t.Error("a leaf was signed by goproxy's CA")
		}
	}
}

// Fault 12: proxy variables of the environment reroute the gate's own traffic.
func TestFaultEnvironmentIsNotRead(t *testing.T) {
	var hits atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			c.Close()
		}
	}()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+l.Addr().String())
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	r := newRig(t)
	plain := r.origin("env.test", false, "", hello)
	secure := r.origin("envs.test", true, "", hello)
	r.start(rigOptions{})
	for _, u := range []string{plain.url("http", "/"), secure.url("https", "/")} {
		if resp, _ := r.get(r.client(false), u); resp.StatusCode != 200 {
			t.Errorf("%s: %d", u, resp.StatusCode)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("the environment's proxy was asked %d times", n)
	}
}

// Fault 13: Accept-Encoding is dropped and the transport adds gzip of its own and decodes.
func TestFaultEncodingIsUntouched(t *testing.T) {
	r := newRig(t)
	gz := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff not really"
	o := r.origin("enc.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", `"abc"`)
		_, _ = io.WriteString(w, gz)
	})
	r.start(rigOptions{})
	resp, body := r.get(r.client(true), o.url("https", "/"), "Accept-Encoding", "br, gzip;q=0.5")
	if body != gz || resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("ETag") != `"abc"` {
		t.Errorf("body %q fields %v", body, resp.Header)
	}
	r.get(r.client(true), o.url("https", "/none"))
	reqs := o.requests()
	if got := reqs[0].Header.Get("Accept-Encoding"); got != "br, gzip;q=0.5" {
		t.Errorf("the site saw Accept-Encoding %q", got)
	}
	if got, ok := reqs[1].Header["Accept-Encoding"]; ok {
		t.Errorf("Accept-Encoding %q was invented", got)
	}
}
