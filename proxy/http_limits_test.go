package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"crawlgate/audit"
	"crawlgate/pacing"
)

// problemOf reads an answer of ours and checks what every one of them carries.
func problemOf(t *testing.T, resp *http.Response, body string, status int, reason Reason) problem {
	t.Helper()
	var p problem
	if resp.StatusCode != status || resp.Header.Get("Crawlgate-Reason") != string(reason) {
		t.Errorf("got %d %s, want %d %s: %.200s", resp.StatusCode, resp.Header.Get("Crawlgate-Reason"), status, reason, body)
		return p
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Errorf("body %.200q: %v", body, err)
	}
	h := resp.Header
	if p.Reason != reason || p.Status != status || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(h.Get("Proxy-Status"), "crawlgate;error=") || p.RequestID == "" || p.RequestID != h.Get("Crawlgate-Request-Id") {
		t.Errorf("answer %+v %v", p, h)
	}
	return p
}

// The size of an answer: a known length over the limit is refused before its body, an unknown one is cut, loudly.
func TestHTTPAnswerSize(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		n := 0
		_, _ = fmt.Sscanf(req.URL.Path, "/known/%d", &n)
		if n > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(n))
		} else {
			_, _ = fmt.Sscanf(req.URL.Path, "/unknown/%d", &n)
		}
		piece := bytes.Repeat([]byte("x"), 1000)
		rc := http.NewResponseController(w)
		for ; n > 0; n -= len(piece) {
			if _, err := w.Write(piece[:min(n, len(piece))]); err != nil {
				return
			}
			_ = rc.Flush()
		}
	}, rigOptions{rules: func(ru *Rules) { ru.Default.Limits.ResponseBody = 50_000 }}, func(t *testing.T, r *rig, o *origin, s side) {
		c := r.client(s.h2)
		for _, path := range []string{"/known/50000", "/unknown/50000"} {
			if resp, b := r.get(c, o.url(s.scheme, path)); resp.StatusCode != 200 || len(b) != 50_000 {
				t.Errorf("%s: %d, %d bytes", path, resp.StatusCode, len(b))
			}
		}
		resp, b := r.get(c, o.url(s.scheme, "/known/50001"))
		if p := problemOf(t, resp, b, 502, ResponseTooLarge); !strings.Contains(p.Detail, "limits.response_body") || !strings.Contains(resp.Header.Get("Proxy-Status"), "http_response_body_size") {
			t.Errorf("%+v", p)
		}
		resp, err := c.Get(o.url(s.scheme, "/unknown/200000"))
		must(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err == nil || len(got) > 50_000 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
		if ev.Reason != "response-too-large" || ev.Class != "cut" || ev.Decision != audit.Failed || ev.BytesIn <= 50_000 || ev.BytesIn > 100_000 {
			t.Errorf("event %s %s %s %d", ev.Decision, ev.Reason, ev.Class, ev.BytesIn)
		}
	})
}

// The size of a request's body: announced, or found in mid-stream, where nothing announced it.
func TestHTTPRequestSize(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		n, err := io.Copy(io.Discard, req.Body)
		fmt.Fprint(w, n, err)
	}, rigOptions{rules: func(ru *Rules) { ru.Default.Limits.RequestBody = 10_000 }}, func(t *testing.T, r *rig, o *origin, s side) {
		for n, want := range map[int]int{10_000: 200, 10_001: 413, 200_000: 413} {
			for _, known := range []bool{true, false} {
				req, err := http.NewRequest(http.MethodPost, o.url(s.scheme, "/"), io.MultiReader(bytes.NewReader(make([]byte, n))))
				must(t, err)
				req.ContentLength = -1
				if known {
					req.ContentLength = int64(n)
				}
				resp, err := r.client(s.h2).Do(req)
				if err != nil {
					t.Errorf("%d bytes, known %v: %v", n, known, err)
					continue
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want == 200 {
					if resp.StatusCode != 200 || string(b) != "10000 <nil>" {
						t.Errorf("%d bytes, known %v: %d %s", n, known, resp.StatusCode, b)
					}
					continue
				}
				problemOf(t, resp, string(b), 413, BodyDenied)
			}
		}
		if hosts := r.pacer.Hosts(10); len(hosts) > 0 && hosts[0].Fails > 0 {
			t.Errorf("the site is blamed for the fetcher's bodies: %+v", hosts[0])
		}
	})
	t.Run("none at all", func(t *testing.T) {
		r := newRig(t)
		o := r.origin("nobody.test", true, "", hello)
		r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Limits.RequestBody = 0 }})
		for _, h2 := range []bool{false, true} {
			for _, n := range []int64{1, -1} {
				req, err := http.NewRequest(http.MethodPost, o.url("https", "/"), io.MultiReader(strings.NewReader("x")))
				must(t, err)
				req.ContentLength = n
				resp, err := r.client(h2).Do(req)
				must(t, err)
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				problemOf(t, resp, string(b), 413, BodyDenied)
			}
		}
	})
}

// Heads of requests: size, number of fields, length of the target; on both protocols with an answer of ours.
func TestHTTPRequestHeads(t *testing.T) {
	r := newRig(t)
	o := r.origin("heads.test", true, "", hello)
	p := r.origin("headsplain.test", false, "", hello)
	r.start(rigOptions{})
	for _, s := range sides {
		site := o
		if s.scheme == "http" {
			site = p
		}
		do := func(path string, h http.Header) (*http.Response, string) {
			req, err := http.NewRequest(http.MethodGet, site.url(s.scheme, path), nil)
			must(t, err)
			req.Header = h
			resp, err := r.client(s.h2).Do(req)
			must(t, err)
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp, string(b)
		}
		many := http.Header{}
		for i := range 201 {
			many.Set(fmt.Sprintf("X-%d", i), "1")
		}
		resp, b := do("/", many)
		problemOf(t, resp, b, 431, BadRequest)
		resp, b = do("/"+strings.Repeat("a", 9<<10), http.Header{})
		problemOf(t, resp, b, 414, BadRequest)
		resp, b = do("/", http.Header{"X-Long": {strings.Repeat("a", 80<<10)}})
		problemOf(t, resp, b, 431, BadRequest)
		if resp, _ = do("/"+strings.Repeat("a", 7<<10), http.Header{"X-Long": {strings.Repeat("a", 40<<10)}}); resp.StatusCode != 200 {
			t.Errorf("%s: within the limits: %d", s.name, resp.StatusCode)
		}
	}
}

// An unfinished header block on HTTP/2 ends after read_head, also beside a stream that goes on, and whether it lacks
// bytes or its CONTINUATION. So does a connection without a preface.
func TestHTTPUnfinishedHeaderBlock(t *testing.T) {
	for name, attack := range map[string]func(f *framer, o *origin){
		"no continuation": func(f *framer, o *origin) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: f.block("GET", o.hostport(), "/"), EndStream: true})
		},
		"continuations without end": func(f *framer, o *origin) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: f.block("GET", o.hostport(), "/"), EndStream: true})
			for range 20 {
				if f.WriteContinuation(3, false, nil) != nil {
					return
				}
				<-time.After(50 * time.Millisecond)
			}
		},
		"half a frame": func(f *framer, _ *origin) { _, _ = f.conn.Write([]byte{0, 0, 100, 1, 5, 0, 0, 0, 3, 0x82}) },
		"half a head":  func(f *framer, _ *origin) { _, _ = f.conn.Write([]byte{0, 0, 100}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			o := r.origin("half.test", true, "", func(w http.ResponseWriter, req *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-req.Context().Done()
			})
			r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = 500 * time.Millisecond }})
			f := r.framer(o)
			f.request(1, true, "GET", o, "/stream")
			if _, err := f.answer(1); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			go attack(f, o)
			_ = f.conn.SetReadDeadline(time.Now().Add(8 * time.Second))
			for {
				if _, err := f.ReadFrame(); err != nil {
					break
				}
			}
			if d := time.Since(began); d > 4*time.Second {
				t.Errorf("closed after %s", d)
			}
		})
	}
	t.Run("no preface", func(t *testing.T) {
		r := newRig(t)
		o := r.origin("half.test", true, "", hello)
		r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = time.Second }})
		for _, first := range []string{"", "PRI * HT", "GET / HTTP/1.1\r\nHost: half.test\r\n\r\n"} {
			c := r.tls(o.hostport(), o.name, "h2")
			_, _ = io.WriteString(c, first)
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if b, err := io.ReadAll(c); isTimeout(err) || bytes.Contains(b, []byte("hello")) {
				t.Errorf("%q: %q %v", first, b, err)
			}
		}
	})
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// A fetcher that does not read its answer holds nothing past the stall limit.
func TestHTTPFetcherThatDoesNotRead(t *testing.T) {
	endless := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/small" {
			_, _ = w.Write(make([]byte, 3000))
			return
		}
		piece := make([]byte, 64<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	r := newRig(t)
	secure, plain := r.origin("stall.test", true, "", endless), r.origin("stallplain.test", false, "", endless)
	r.start(rigOptions{rules: func(ru *Rules) {
		ru.Server.StallTimeout = 400 * time.Millisecond
		ru.Default.Limits.ResponseBody = 0
	}})
	stalled := func(host string) {
		t.Helper()
		ev := r.waitEvent(host, func(e *audit.Event) bool { return e.Host == host && e.Type == audit.TypeRequest && e.Status == 200 })
		if ev.Class != "stalled" && ev.Class != "client_left_body" {
			t.Errorf("%s: event %s %s", host, ev.Reason, ev.Class)
		}
		r.until("a turn is left", func() bool { return r.pacer.Stats().InFlight == 0 })
		if v := r.pacer.Peek(pacing.Request{Key: host}); v.Fails != 0 {
			t.Errorf("%s: the site is blamed for its fetcher", host)
		}
	}
	c := r.rawConn(plain, false)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", plain.url("http", "/"), plain.hostport())
	stalled("stallplain.test")
	f := r.framer(secure)
	f.request(1, true, "GET", secure, "/") // a window of 64 KiB that is never opened
	stalled("stall.test")
	// A window of nothing, and an answer small enough to wait in the server's own buffer; and one of ours.
	must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	f.request(3, true, "GET", secure, "/small")
	f.request(5, true, "TRACE", secure, "/small")
	for left := map[uint32]bool{3: true, 5: true}; len(left) > 0; {
		fr, err := f.ReadFrame()
		must(t, err)
		if rst, ok := fr.(*http2.RSTStreamFrame); ok {
			delete(left, rst.StreamID)
		}
	}
	r.noTurnsLeft()
}

// A fetcher that pipelines requests and reads no answer: its connection ends.
func TestHTTPPipelineThatIsNotRead(t *testing.T) {
	r := newRig(t)
	o := r.origin("pipestall.test", false, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 32<<10)) })
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.StallTimeout = 300 * time.Millisecond }})
	c := r.rawConn(o, false)
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // the buffers between are large, and a busy machine fills them slowly
	req := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nX: %s\r\n\r\n", o.url("http", "/"), o.hostport(), strings.Repeat("x", 1000))
	began := time.Now()
	for {
		if _, err := io.WriteString(c, req); err != nil {
			if isTimeout(err) {
				t.Error("still open")
			}
			break
		}
	}
	if d := time.Since(began); d > 50*time.Second {
		t.Errorf("closed after %s", d)
	}
}

// A fetcher that sends its body slowly may; one that stops is answered 408 and the site not blamed. The wait for the
// head counts from the last piece.
func TestHTTPSlowUpload(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		n, err := io.Copy(io.Discard, req.Body)
		fmt.Fprint(w, n, err)
	}, rigOptions{rules: func(ru *Rules) {
		ru.Server.StallTimeout = 2 * time.Second
		ru.Default.Limits.Timeout = 2500 * time.Millisecond
	}}, func(t *testing.T, r *rig, o *origin, s side) {
		t.Parallel()
		pr, pw := io.Pipe()
		go func() {
			for range 10 {
				_, _ = io.WriteString(pw, "x")
				<-time.After(300 * time.Millisecond)
			}
			pw.Close()
		}()
		resp, err := r.client(s.h2).Post(o.url(s.scheme, "/"), "text/plain", pr)
		must(t, err)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "10 <nil>" {
			t.Errorf("slow but steady: %d %s", resp.StatusCode, b)
		}
		resp.Body.Close()
		if s.h2 {
			f := r.framer(o)
			f.request(1, false, "POST", o, "/")
			m, err := f.answer(1)
			if err != nil || m[":status"] != "408" || m["crawlgate-reason"] != "bad-request" {
				t.Errorf("stopped: %v %v", m, err)
			}
			return
		}
		inside := s.scheme == "https"
		c := r.rawConn(o, inside)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nabc", o.target(inside, "/"), o.hostport())
		resp, err = http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		problemOf(t, resp, string(b), 408, BadRequest)
		if hosts := r.pacer.Hosts(10); len(hosts) > 0 && hosts[0].Fails > 0 {
			t.Errorf("the site is blamed: %+v", hosts[0])
		}
	})
}

// Sites that are slow, say nonsense, or too much.
func TestHTTPHostileSites(t *testing.T) {
	big := strings.Repeat("x", 300<<10)
	for _, c := range []struct {
		name, answer string
		hold         bool
		status       int
		reason       Reason
		perr         string
	}{
		{name: "no answer", hold: true, status: 504, reason: UpstreamTimeout, perr: "http_response_timeout"},
		{name: "half a head", answer: "HTTP/1.1 200 OK\r\nX: ", hold: true, status: 504, reason: UpstreamTimeout, perr: "http_response_timeout"},
		{name: "closes", status: 502, reason: UpstreamFailed, perr: "connection_terminated"},
		{name: "closes in the head", answer: "HTTP/1.1 200 OK\r\nX: y\r\n", status: 502, reason: UpstreamFailed, perr: "connection_terminated"},
		{name: "big head", answer: "HTTP/1.1 200 OK\r\nX: " + big + "\r\n\r\n", hold: true, status: 502, reason: UpstreamFailed, perr: "http_response_header_section_size"},
		{name: "head without end", answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyy\r\n", 20000), hold: true, status: 502, reason: UpstreamFailed, perr: "http_response_header_section_size"},
		{name: "status 099", answer: "HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "status 600", answer: "HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "status 999", answer: "HTTP/1.1 999 High\r\nContent-Length: 0\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "status 1000", answer: "HTTP/1.1 1000 X\r\nContent-Length: 0\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "status -1", answer: "HTTP/1.1 -1 X\r\nContent-Length: 0\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "status 407", answer: "HTTP/1.1 407 X\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "not HTTP", answer: "SSH-2.0-OpenSSH_9.2\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "HTTP/0.9", answer: "<html>hello</html>", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "garbage", answer: "\x00\x01\x02\x03\r\n\r\n", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "two lengths", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "signed length", answer: "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "unknown coding", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "NUL in a field", answer: "HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 5\r\n\r\nhello", status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
		{name: "bad chunk", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", status: 502, reason: UpstreamFailed, perr: "http_response_incomplete"},
		{name: "endless chunk extension", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + big, hold: true, status: 502, reason: UpstreamFailed, perr: "http_response_incomplete"},
		{name: "huge chunk size", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx", status: 502, reason: UpstreamFailed, perr: "http_response_incomplete"},
		{name: "flood of 103", answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n", 3000), hold: true, status: 502, reason: UpstreamFailed, perr: "http_protocol_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			serve := func(conn net.Conn) {
				if _, err := readHead(bufio.NewReader(conn)); err != nil {
					return
				}
				go func() { _, _ = io.WriteString(conn, c.answer); closeUnless(c.hold, conn) }()
				_, _ = io.Copy(io.Discard, conn)
			}
			secure := r.rawTLS("bad.test", []string{"http/1.1"}, func(tc *tls.Conn) { serve(tc) })
			plain := r.raw("badplain.test", serve)
			r.start(rigOptions{rules: func(ru *Rules) {
				ignoring(ru)
				if c.status == http.StatusGatewayTimeout { // the others are never to be it, on a busy machine too
					ru.Default.Limits.Timeout = 700 * time.Millisecond
				}
			}})
			for _, s := range sides {
				o := secure
				if s.scheme == "http" {
					o = plain
				}
				resp, err := r.client(s.h2).Get(o.url(s.scheme, "/"))
				must(t, err)
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if c.perr == "http_response_incomplete" && resp.StatusCode == 200 && err != nil {
					continue // on a busy machine the head is out before the fault shows: then it is a cut
				}
				problemOf(t, resp, string(b), c.status, c.reason)
				if ps := resp.Header.Get("Proxy-Status"); !strings.Contains(ps, "error="+c.perr) {
					t.Errorf("%s: Proxy-Status %s", s.name, ps)
				}
			}
		})
	}
}

func closeUnless(hold bool, c net.Conn) {
	if !hold {
		c.Close()
	}
}

// A site whose body stops is cut after the stall limit; one that trickles is not; an event stream may be silent longer.
func TestHTTPStalledSites(t *testing.T) {
	wait := make(chan struct{})
	r := newRig(t)
	o := r.origin("slow.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		rc := http.NewResponseController(w)
		if req.URL.Path == "/sse" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, "a")
		_ = rc.Flush()
		switch req.URL.Path {
		case "/trickle":
			for range 8 {
				<-time.After(200 * time.Millisecond)
				_, _ = io.WriteString(w, "b")
				_ = rc.Flush()
			}
		case "/sse":
			<-time.After(1500 * time.Millisecond)
			_, _ = io.WriteString(w, "b")
		default:
			select {
			case <-req.Context().Done():
			case <-wait:
			}
		}
	})
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.StallTimeout = time.Second }})
	defer close(wait)
	for _, h2 := range []bool{false, true} {
		resp, err := r.client(h2).Get(o.url("https", "/stall"))
		must(t, err)
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("h2=%v: clean end after %q", h2, b)
		}
		resp.Body.Close()
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Reason != "upstream-timeout" || ev.Class != "stalled" {
			t.Errorf("event %s %s", ev.Reason, ev.Class)
		}
		r.until("the site's time-out was not counted", func() bool { return r.pacer.Peek(pacing.Request{Key: "slow.test"}).Fails == 1 })
		r.pacer.Resume("slow.test")
	}
	if _, b := r.get(r.client(true), o.url("https", "/trickle")); b != "abbbbbbbb" {
		t.Errorf("trickle: %q", b)
	}
	if _, b := r.get(r.client(true), o.url("https", "/sse")); b != "ab" {
		t.Errorf("sse: %q", b)
	}
}

// Too many tunnels: the CONNECT says so.
func TestHTTPTunnelLimit(t *testing.T) {
	r := newRig(t)
	o := r.origin("many.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.TunnelsClient = 3 }})
	var last net.Conn
	for range 3 {
		last, _ = r.tunnel(o.hostport())
	}
	c := r.rawConn(o, false)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.hostport(), o.hostport())
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	b, _ := io.ReadAll(resp.Body)
	if p := problemOf(t, resp, string(b), 503, Overloaded); !strings.Contains(p.Detail, "server.tunnels_client") {
		t.Errorf("%+v", p)
	}
	last.Close()
	for r.gate.Tunnels() > 2 {
		<-time.After(time.Millisecond)
	}
	r.tunnel(o.hostport())
}
