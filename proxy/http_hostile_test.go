package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Requests that two readers may understand in two ways are answered 4xx or 5xx and nothing of them goes on. HOST and TARGET stand
// for the site's.
var ambiguous = []struct {
	name, request string
	status        int // 0: any from 400
}{
	{"bare LF everywhere", "GET TARGET HTTP/1.1\nHost: HOST\n\n", 400},
	{"bare LF after a field", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\nContent-Length: 30\r\n\r\n", 400},
	{"bare LF at the end", "GET TARGET HTTP/1.1\r\nHost: HOST\r\n\n", 400},
	{"folded field", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\r\n folded\r\n\r\n", 400},
	{"folded with a tab", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n", 400},
	{"field before the first", "GET TARGET HTTP/1.1\r\n X: y\r\nHost: HOST\r\n\r\n", 400},
	{"lone CR", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n", 400},
	{"NUL in a value", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\x00z\r\n\r\n", 400},
	{"NUL in a name", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX\x00: y\r\n\r\n", 400},
	{"space before the colon", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length : 5\r\n\r\nhello", 400},
	{"space in a name", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX Y: 5\r\n\r\n", 400},
	{"no name", "GET TARGET HTTP/1.1\r\nHost: HOST\r\n: y\r\n\r\n", 400},
	{"no colon", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nnonsense\r\n\r\n", 400},
	{"two lengths", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
	{"list of lengths", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5, 5\r\n\r\nhello", 400},
	{"signed length", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: +5\r\n\r\nhello", 400},
	{"negative length", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: -5\r\n\r\nhello", 400},
	{"hexadecimal length", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0x5\r\n\r\nhello", 400},
	{"empty length", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: \r\n\r\nhello", 400},
	{"huge length", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 99999999999999999999\r\n\r\nhello", 400},
	{"unknown coding", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
	{"coding twice", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
	{"coding in a list", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501},
	{"coding after a tab", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400},
	{"coding in HTTP/1.0", "POST TARGET HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
	{"no Host", "GET TARGET HTTP/1.1\r\n\r\n", 400},
	{"two Hosts", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n", 400},
	{"Host with a path", "GET TARGET HTTP/1.1\r\nHost: HOST/x\r\n\r\n", 0},
	{"Host with a user", "GET TARGET HTTP/1.1\r\nHost: a@HOST\r\n\r\n", 0},
	{"space in the target", "GET TARGET x HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
	{"NUL in the target", "GET TARGET\x00 HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
	{"two spaces", "GET  TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
	{"no version", "GET TARGET\r\n\r\n", 400},
	{"HTTP/0.9", "GET TARGET\r\nHost: HOST\r\n\r\n", 400},
	{"HTTP/2.0", "GET TARGET HTTP/2.0\r\nHost: HOST\r\n\r\n", 505},
	{"HTTP/9.9", "GET TARGET HTTP/9.9\r\nHost: HOST\r\n\r\n", 505},
	{"version with letters", "GET TARGET HTTP/1.x\r\nHost: HOST\r\n\r\n", 400},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
	{"unknown expectation", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nExpect: magic\r\nContent-Length: 5\r\n\r\nhello", 417},
	{"unknown expectation, HTTP/1.0", "GET TARGET HTTP/1.0\r\nHost: HOST\r\nExpect: magic\r\n\r\n", 417},
	{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n", 0},
	{"empty lines first", "\r\n\r\nGET TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
	{"binary", "\x80\x81\x82 TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n", 0},
	{"bad method", "GE(T TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
	{"no chunk size", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello", 400},
	{"bad chunk size", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400},
	{"huge chunk size", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello", 400},
	{"chunk longer than its size", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", 400},
	{"bare LF after a chunk size", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400},
	{"bare LF in a chunk extension", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n", 400},
	{"endless chunk extensions", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("a", 8<<10) + "\r\nhello\r\n0\r\n\r\n", 400},
}

func TestHTTPAmbiguousRequests(t *testing.T) {
	r := newRig(t)
	var whole atomic.Int64
	h := func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err == nil {
			whole.Add(1)
		}
		hello(w, req)
	}
	secure, plain := r.originOf("odd.test", []string{"http/1.1"}, "", h), r.origin("oddplain.test", false, "", h)
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Server.ReadHead = 2 * time.Second }})
	for _, c := range ambiguous {
		for _, inside := range []bool{true, false} {
			o := secure
			if !inside {
				o = plain
			}
			conn := r.rawConn(o, inside)
			req := strings.NewReplacer("TARGET", o.target(inside, "/"), "HOST", o.hostport()).Replace(c.request)
			if _, err := io.WriteString(conn, req); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s, inside=%v: %v", c.name, inside, err)
				continue
			}
			b, _ := io.ReadAll(resp.Body)
			if c.status != 0 && resp.StatusCode != c.status || resp.StatusCode < 400 {
				t.Errorf("%s, inside=%v: %d %s", c.name, inside, resp.StatusCode, b)
			}
			if resp.Header.Get("Crawlgate-Reason") == "" || resp.Header.Get("Crawlgate-Request-Id") == "" {
				t.Errorf("%s, inside=%v: no reason: %v", c.name, inside, resp.Header)
			}
			if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Reason != string(BadRequest) && ev.Reason != string(MethodDenied) && ev.Reason != string(HostMismatch) {
				t.Errorf("%s, inside=%v: event %s %s", c.name, inside, ev.Reason, ev.Class)
			}
			conn.Close()
		}
	}
	if n := whole.Load(); n != 0 {
		t.Errorf("sites got %d whole requests", n)
	}
	// What is odd and clear passes.
	for _, req := range []string{
		"GET TARGET HTTP/1.1\r\nhOST:HOST\r\nX:\t y \t\r\nX-Empty:\r\n\r\n",
		"POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: Chunked\r\n\r\n5;ext=\"v\"\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
		"POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\n\n\n \nxGET TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET TARGET HTTP/1.0\r\nHost: HOST\r\n\r\n",
	} {
		conn := r.rawConn(secure, true)
		_, _ = io.WriteString(conn, strings.NewReplacer("TARGET", "/", "HOST", secure.hostport()).Replace(req))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%.60q: %v %v", req, resp, err)
		}
		conn.Close()
	}
}

// A CONNECT with content is two things at once.
func TestHTTPConnectWithContent(t *testing.T) {
	r := newRig(t)
	o := r.origin("content.test", true, "", hello)
	r.start(rigOptions{})
	for _, field := range []string{"Content-Length: 5", "Transfer-Encoding: chunked"} {
		c := r.rawConn(o, false)
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\nhello", o.hostport(), o.hostport(), field)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		problemOf(t, resp, string(b), 400, BadRequest)
	}
}

// Bytes that are no TLS, or stop being it, end the tunnel and nothing else.
func TestHTTPGarbageTLS(t *testing.T) {
	r := newRig(t)
	o := r.origin("tls.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = time.Second }})
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	for name, first := range map[string][]byte{
		"handshake record of noise": append([]byte{0x16, 3, 1, 0x0f, 0}, noise...),
		"record too long":           append([]byte{0x16, 3, 1, 0xff, 0xff}, noise...),
		"SSL 2":                     append([]byte{0x80, 0x2e, 1, 3, 1}, noise[:41]...),
		"alert":                     {0x15, 3, 1, 0, 2, 2, 40},
		"half a record":             {0x16, 3, 1, 0, 200, 1},
		"empty records":             []byte(strings.Repeat("\x16\x03\x01\x00\x00", 100)),
	} {
		c, _ := r.tunnel(o.hostport())
		_, _ = c.Write(first)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadAll(c); isTimeout(err) {
			t.Errorf("%s: still open", name)
		}
	}
	if n := settled(0, r.gate.Tunnels); n != 0 {
		t.Errorf("%d tunnels are counted as open", n)
	}
	r.mu.Lock()
	seen := slices.Clone(r.events)
	r.mu.Unlock()
	for _, e := range seen {
		if e.Class != "tunnel_tls_failed" && e.Class != "tunnel_not_http" {
			t.Errorf("event %s %s", e.Reason, e.Class)
		}
	}
	// Garbage after the handshake, and in the middle of a request.
	for _, before := range []string{"", "GET / HTTP/1.1\r\nHost: "} {
		tc := r.tls(o.hostport(), o.name)
		_, _ = io.WriteString(tc, before)
		_, _ = tc.NetConn().Write(noise)
		_ = tc.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadAll(tc); isTimeout(err) {
			t.Errorf("after %q: still open", before)
		}
	}
	if resp, _ := r.get(r.client(true), o.url("https", "/")); resp.StatusCode != 200 {
		t.Errorf("after all that: %d", resp.StatusCode)
	}
	if n := len(o.requests()); n != 1 {
		t.Errorf("the site saw %d requests", n)
	}
}

// TLS to a fetcher: 1.2 at least; a leaf the site cannot show is the gate's to refuse: expired, another host's, unknown.
func TestHTTPSiteTLS(t *testing.T) {
	r := newRig(t)
	good := r.originCA
	other := newTestCA(t)
	serve := func(c net.Conn, cfg *tls.Config) { _ = tls.Server(c, cfg).Handshake() }
	wrong := r.raw("wrong.test", func(c net.Conn) {
		serve(c, &tls.Config{Certificates: []tls.Certificate{good.leaf(t, "elsewhere.test")}})
	})
	unknown := r.raw("unknown.test", func(c net.Conn) {
		serve(c, &tls.Config{Certificates: []tls.Certificate{other.leaf(t, "unknown.test")}})
	})
	old := r.raw("old.test", func(c net.Conn) {
		serve(c, &tls.Config{Certificates: []tls.Certificate{good.leaf(t, "old.test")}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	})
	mutual := r.rawTLS("mutual.test", nil, func(c *tls.Conn) {})
	plain := r.raw("plain443.test", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	r.start(rigOptions{rules: ignoring})
	for o, perr := range map[*origin]string{wrong: "tls_certificate_error", unknown: "tls_certificate_error", old: "tls_protocol_error", plain: "tls_protocol_error"} {
		resp, b := r.get(r.client(true), o.url("https", "/"))
		problemOf(t, resp, b, 502, UpstreamTLS)
		if ps := resp.Header.Get("Proxy-Status"); !strings.Contains(ps, perr) {
			t.Errorf("%s: %s", o.name, ps)
		}
	}
	if resp, b := r.get(r.client(true), mutual.url("https", "/")); resp.StatusCode != 502 {
		t.Errorf("closing after the handshake: %d %s", resp.StatusCode, b)
	}
}

// HTTP/2 rapid reset: streams opened and reset at once ask no site more than the limit of streams, and other fetchers
// are served meanwhile.
func TestHTTPRapidReset(t *testing.T) {
	r := newRig(t)
	o := r.origin("rapid.test", true, "", hello)
	r.start(rigOptions{})
	f := r.framer(o)
	go func() { _, _ = io.Copy(io.Discard, f.conn) }()
	sent := 0
	for id := uint32(1); id < 10_000; id += 2 {
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block("GET", o.hostport(), "/"), EndHeaders: true, EndStream: true}) != nil ||
			f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
		sent++
	}
	if resp, b := r.get(r.client(true), o.url("https", "/after")); resp.StatusCode != 200 {
		t.Errorf("another fetcher: %d %s", resp.StatusCode, b)
	}
	f.conn.Close()
	for r.gate.Tunnels() > 1 {
		<-time.After(time.Millisecond)
	}
	for st := r.pacer.Stats(); st.InFlight != 0 || st.Waiting != 0; st = r.pacer.Stats() {
		<-time.After(time.Millisecond)
	}
	t.Logf("%d streams were reset, the site saw %d requests", sent, len(o.requests()))
}

// Frames that HTTP/2 forbids end the stream or the connection.
func TestHTTPForbiddenFrames(t *testing.T) {
	r := newRig(t)
	o := r.origin("frames.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		hello(w, req)
	})
	r.start(rigOptions{})
	for name, attack := range map[string]func(f *framer){
		"connection field":  func(f *framer) { f.request(1, true, "GET", o, "/", "connection", "close") },
		"transfer-encoding": func(f *framer) { f.request(1, true, "GET", o, "/", "transfer-encoding", "chunked") },
		"upper case":        func(f *framer) { f.request(1, true, "GET", o, "/", "X-Upper", "1") },
		"CR LF in a value":  func(f *framer) { f.request(1, true, "GET", o, "/", "x", "a\r\nHost: evil") },
		"NUL in a value":    func(f *framer) { f.request(1, true, "GET", o, "/", "x", "a\x00b") },
		"second path":       func(f *framer) { f.request(1, true, "GET", o, "/", ":path", "/other") },
		"late pseudo field": func(f *framer) { f.request(1, true, "GET", o, "/", "x", "y", ":authority", "evil.test") },
		"te: gzip":          func(f *framer) { f.request(1, true, "GET", o, "/", "te", "gzip") },
		"length and more": func(f *framer) {
			f.request(1, false, "POST", o, "/", "content-length", "3")
			_ = f.WriteData(1, true, []byte("hello"))
		},
		"length and less": func(f *framer) {
			f.request(1, false, "POST", o, "/", "content-length", "9")
			_ = f.WriteData(1, true, []byte("hello"))
		},
		"data on idle": func(f *framer) { _ = f.WriteData(1, true, []byte("hello")) },
		"even stream":  func(f *framer) { f.request(2, true, "GET", o, "/") },
		"CONNECT protocol": func(f *framer) {
			f.buf.Reset()
			f.request(1, false, "CONNECT", o, "/", ":protocol", "websocket")
		},
		"path without slash": func(f *framer) { f.request(1, true, "GET", o, "nopath") },
		"absolute path":      func(f *framer) { f.request(1, true, "GET", o, "http://evil.test/") },
		"path with a space":  func(f *framer) { f.request(1, true, "GET", o, "/a b HTTP/1.1\r\nHost: evil") },
		"settings flood": func(f *framer) {
			for range 20_000 {
				if f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}) != nil {
					return
				}
			}
			_ = f.WriteData(1, true, nil)
		},
	} {
		f := r.framer(o)
		go attack(f)
		m, err := f.answer(1)
		if err == nil && m[":status"] < "400" {
			t.Errorf("%s: answered %v", name, m)
		}
		if isTimeout(err) {
			t.Errorf("%s: nothing came back", name)
		}
		f.conn.Close()
	}
	for _, req := range o.requests() {
		b, _ := io.ReadAll(req.Body)
		if req.Method == "GET" || len(b) > 0 {
			t.Errorf("the site saw %s %s", req.Method, req.RequestURI)
		}
	}
}

// Random bytes on the proxy port and in tunnels: an answer or a close, and the gate goes on.
func TestHTTPNoise(t *testing.T) {
	r := newRig(t)
	o := r.origin("noise.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = 500 * time.Millisecond }})
	rnd := rand.New(rand.NewPCG(7, 9))
	words := []string{"GET ", "CONNECT ", "/", "http://", o.hostport(), " HTTP/1.1", "\r\n", "\n", "\r", "Host: ", "Content-Length: ", "5", "Transfer-Encoding: chunked", ":", " ", "\x00", "\xff", "Upgrade: websocket", "Connection: ", "@", "[::1]", "%00"}
	for i := range 300 {
		var b strings.Builder
		for range 1 + rnd.IntN(20) {
			b.WriteString(words[rnd.IntN(len(words))])
		}
		if i%3 == 0 {
			b.WriteString("\r\n\r\n")
		}
		c := r.rawConn(o, i%6 == 1)
		_, _ = io.WriteString(c, b.String())
		if i%2 == 0 {
			if cw, ok := c.(interface{ CloseWrite() error }); ok {
				_ = cw.CloseWrite()
			}
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.ReadAll(c); isTimeout(err) {
				t.Errorf("%q: still open", b.String())
			}
		}
		c.Close()
	}
	if resp, _ := r.get(r.client(false), o.url("https", "/fine")); resp.StatusCode != 200 {
		t.Errorf("after all that: %d", resp.StatusCode)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Reason == string(Internal) {
			t.Errorf("a fault of ours: %s %s %s", e.Method, e.Host, e.Class)
		}
	}
}

// A site's own 417 passes as any answer does, and its fetcher is not told that the gate made it.
func TestHTTPExpectationFailedAtTheSite(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Site", "1")
		w.WriteHeader(http.StatusExpectationFailed)
	}, rigOptions{rules: ignoring}, func(t *testing.T, r *rig, o *origin, s side) {
		resp, _ := r.get(r.client(s.h2), o.url(s.scheme, "/"))
		if resp.StatusCode != http.StatusExpectationFailed || resp.Header.Get("X-Site") != "1" || resp.Header.Get("Crawlgate-Reason") != "" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	})
}

// A client that offers HTTP/1.0 alone in its handshake (curl -0) is served; one that offers what nobody speaks here is not.
func TestHTTPOldALPN(t *testing.T) {
	r := newRig(t)
	o := r.origin("old.test", true, "", hello)
	r.start(rigOptions{rules: ignoring})
	tc := r.tls(o.hostport(), o.name, "http/1.0")
	fmt.Fprintf(tc, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", o.hostport())
	resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
	must(t, err)
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" || tc.ConnectionState().NegotiatedProtocol != "http/1.0" {
		t.Errorf("%q %v", b, err)
	}
	c, _ := r.tunnel(o.hostport())
	if err := tls.Client(c, &tls.Config{RootCAs: r.trust(o.name).RootCAs, ServerName: o.name, NextProtos: []string{"spdy/3.1"}}).Handshake(); err == nil {
		t.Error("a protocol that nobody speaks was agreed on")
	}
}
