package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// HEAD keeps Content-Length; 204 and 304 have no body; and the connection goes on after each.
func TestHTTPBodilessAnswers(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(304)
		case "/0":
			w.Header().Set("Content-Length", "0")
		default:
			w.Header().Set("Content-Length", "5")
			hello(w, req)
		}
	}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
		c := r.client(s.h2)
		for range 2 {
			for path, want := range map[string]int{"/204": 204, "/304": 304, "/0": 200, "/": 200} {
				for _, method := range []string{"GET", "HEAD"} {
					req, err := http.NewRequest(method, o.url(s.scheme, path), nil)
					must(t, err)
					resp, err := c.Do(req)
					must(t, err)
					b, err := io.ReadAll(resp.Body)
					must(t, err)
					resp.Body.Close()
					body := ""
					if path == "/" && method == "GET" {
						body = "hello"
					}
					if resp.StatusCode != want || string(b) != body {
						t.Errorf("%s %s: got %d %q", method, path, resp.StatusCode, b)
					}
					if path == "/" && resp.ContentLength != 5 {
						t.Errorf("%s %s: Content-Length %d", method, path, resp.ContentLength)
					}
				}
			}
		}
		for _, req := range o.requests() {
			if req.ContentLength > 0 || req.Header.Get("Content-Length") != "" || len(req.TransferEncoding) > 0 {
				t.Errorf("%s %s came with a body: %d %v", req.Method, req.URL, req.ContentLength, req.TransferEncoding)
			}
		}
	})
}

// Bodies of requests: known length, unknown length, none; and not one octet where there was none.
func TestHTTPUploads(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%d %v %d %v", len(b), err, req.ContentLength, req.TransferEncoding)
	}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
		c := r.client(s.h2)
		post := func(body io.Reader, n int64, fields ...string) string {
			req, err := http.NewRequest(http.MethodPost, o.url(s.scheme, "/"), body)
			must(t, err)
			req.ContentLength = n
			for i := 0; i+1 < len(fields); i += 2 {
				req.Header.Set(fields[i], fields[i+1])
			}
			resp, err := c.Do(req)
			must(t, err)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			must(t, err)
			return string(b)
		}
		if got := post(strings.NewReader("0123456789"), 10); got != "10 <nil> 10 []" {
			t.Errorf("known length: %s", got)
		}
		if got := post(io.MultiReader(strings.NewReader("0123456789")), -1); !strings.HasPrefix(got, "10 <nil> -1 ") {
			t.Errorf("unknown length: %s", got)
		}
		if got := post(http.NoBody, 0); got != "0 <nil> 0 []" {
			t.Errorf("no body: %s", got)
		}
		if got := post(http.NoBody, 0, "Idempotency-Key", "k"); !strings.HasPrefix(got, "0 <nil> ") || strings.Contains(got, "chunked") {
			t.Errorf("no body, to be repeated: %s", got)
		}
	})
}

// A request that dies on a kept connection is never sent again by the transport: one turn is one request.
func TestHTTPNeverSentTwice(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(fmt.Sprintf("tls=%v %s", secure, method), func(t *testing.T) {
				r := newRig(t)
				serve := func(c net.Conn) {
					br := bufio.NewReader(c)
					if _, err := readHead(br); err != nil {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					if _, err := readHead(br); err == nil {
						r.mu.Lock()
						r.seconds++
						r.mu.Unlock()
					}
				}
				var o *origin
				if secure {
					o = r.rawTLS("once.test", []string{"http/1.1"}, func(c *tls.Conn) { serve(c); c.Close() })
				} else {
					o = r.raw("once.test", serve)
				}
				r.start(rigOptions{rules: ignoring})
				scheme := "http"
				if secure {
					scheme = "https"
				}
				c := r.client(false)
				const rounds = 20
				failed := 0
				for range rounds {
					for range 2 {
						req, err := http.NewRequest(method, o.url(scheme, "/"), nil)
						must(t, err)
						req.Header.Set("Idempotency-Key", "k")
						resp, err := c.Do(req)
						must(t, err)
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode == 502 {
							failed++
						}
					}
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.seconds != failed {
					t.Errorf("%d requests died on a kept connection, %d answers say so", r.seconds, failed)
				}
			})
		}
	}
}

// A request that is refused is refused before its body is asked for, and its connection ends; one that is allowed gets
// its 100.
func TestHTTPExpectContinue(t *testing.T) {
	r := newRig(t)
	o := r.origin("expect.test", true, "User-agent: *\nDisallow: /no\n", func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s", b)
	})
	r.start(rigOptions{})
	for path, allowed := range map[string]bool{"/yes": true, "/no": false} {
		c := r.rawConn(o, true)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", path, o.hostport())
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		must(t, err)
		if !allowed {
			if resp.StatusCode != 403 || !resp.Close {
				t.Errorf("refused: %d close=%v", resp.StatusCode, resp.Close)
			}
			continue
		}
		if resp.StatusCode != 100 {
			t.Fatalf("got %d", resp.StatusCode)
		}
		_, _ = io.WriteString(c, "12345")
		resp, err = http.ReadResponse(br, nil)
		must(t, err)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "12345" {
			t.Errorf("got %d %q", resp.StatusCode, b)
		}
	}
}

// The site decides about an expectation: one that answers at once gets no body, and the fetcher is not asked for it; one
// that says nothing gets it after a while. Nothing else can be expected.
func TestHTTPExpectationIsTheSites(t *testing.T) {
	r := newRig(t)
	asked := make(chan bool, 1)
	o := r.originOf("expects.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/full" {
			w.WriteHeader(http.StatusInsufficientStorage) // before the body is asked for
			asked <- false
			return
		}
		b, _ := io.ReadAll(req.Body)
		asked <- true
		_, _ = w.Write(b)
	})
	silent := r.rawTLS("silent.test", []string{"http/1.1"}, func(c *tls.Conn) {
		br := bufio.NewReader(c)
		for {
			head, err := readHead(br)
			if err != nil {
				return
			}
			if strings.Contains(head, "Expect: 100-continue") {
				_, _ = io.ReadFull(br, make([]byte, 5))
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		}
	})
	plain := r.origin("expectsplain.test", false, "", hello)
	r.start(rigOptions{rules: ignoring})
	post := func(c net.Conn, o *origin, target, expect string) (*bufio.Reader, *http.Response) {
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nExpect: %s\r\nContent-Length: 5\r\n\r\n", target, o.hostport(), expect)
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		must(t, err)
		return br, resp
	}
	if _, resp := post(r.rawConn(o, true), o, "/full", "100-continue"); resp.StatusCode != http.StatusInsufficientStorage || <-asked {
		t.Errorf("a site that wants no body: %d", resp.StatusCode)
	}
	c := r.rawConn(o, true)
	br, resp := post(c, o, "/", "100-continue")
	if resp.StatusCode != 100 {
		t.Fatalf("a site that wants it: %d", resp.StatusCode)
	}
	_, _ = io.WriteString(c, "12345")
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 || !<-asked {
		t.Errorf("a site that wants it: %v %v", resp, err)
	}
	c = r.rawConn(silent, true)
	br, resp = post(c, silent, "/", "100-continue")
	if resp.StatusCode != 100 {
		t.Fatalf("a site that says nothing: %d", resp.StatusCode)
	}
	_, _ = io.WriteString(c, "12345")
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("a site that says nothing: %v %v", resp, err)
	}
	if _, resp := post(r.rawConn(plain, false), plain, plain.url("http", "/"), "wonders"); resp.StatusCode != http.StatusExpectationFailed || resp.Header.Get("Crawlgate-Reason") != "bad-request" {
		t.Errorf("another expectation: %d %v", resp.StatusCode, resp.Header)
	}
}

// Content-Length beside Transfer-Encoding: one reading goes on, and the connection does not (RFC 9112 6.1).
func TestHTTPBothLengthAndCoding(t *testing.T) {
	r := newRig(t)
	o := r.originOf("both.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s|%s|%v", b, req.Header.Get("Content-Length"), req.TransferEncoding)
	})
	p := r.origin("bothplain.test", false, "", hello)
	r.start(rigOptions{})
	for _, inside := range []bool{true, false} {
		site := o
		if !inside {
			site = p
		}
		c := r.rawConn(site, inside)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", site.target(inside, "/"), site.hostport())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || !resp.Close || inside && string(b) != "abc||[chunked]" {
			t.Errorf("inside=%v: %d close=%v %q", inside, resp.StatusCode, resp.Close, b)
		}
		if n := len(site.requests()); n != 1 {
			t.Errorf("the site saw %d requests", n)
		}
	}
}

// Requests sent at once are answered in order.
func TestHTTPPipelining(t *testing.T) {
	r := newRig(t)
	h := func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.URL.Path) }
	secure, plain := r.origin("pipe.test", true, "", h), r.origin("pipeplain.test", false, "", h)
	r.start(rigOptions{})
	for _, o := range []*origin{secure, plain} {
		inside := o == secure
		c := r.rawConn(o, inside)
		var b strings.Builder
		for i := range 5 {
			fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.target(inside, "/"+strconv.Itoa(i)), o.hostport())
		}
		_, err := io.WriteString(c, b.String())
		must(t, err)
		br := bufio.NewReader(c)
		for i := range 5 {
			resp, err := http.ReadResponse(br, nil)
			must(t, err)
			if got, _ := io.ReadAll(resp.Body); string(got) != "/"+strconv.Itoa(i) {
				t.Errorf("answer %d is %q", i, got)
			}
		}
	}
}

// The ClientHello may come in one segment with the CONNECT.
func TestHTTPEarlyClientHello(t *testing.T) {
	r := newRig(t)
	o := r.origin("hello.test", true, "", hello)
	r.start(rigOptions{})
	c := r.rawConn(o, false)
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.Cert)
	early := &earlyConn{Conn: c, head: fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.hostport(), o.hostport())}
	tc := tls.Client(early, &tls.Config{RootCAs: pool, ServerName: "hello.test"})
	fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: hello.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
	must(t, err)
	if b, _ := io.ReadAll(resp.Body); string(b) != "hello" {
		t.Errorf("got %d %q", resp.StatusCode, b)
	}
}

// earlyConn puts a CONNECT before the first bytes written, and takes its 200 off the first bytes read.
type earlyConn struct {
	net.Conn
	head string
	br   *bufio.Reader
}

func (c *earlyConn) Write(p []byte) (int, error) {
	if c.head == "" {
		return c.Conn.Write(p)
	}
	_, err := c.Conn.Write(append([]byte(c.head), p...))
	c.head = ""
	return len(p), err
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if c.br == nil {
		c.br = bufio.NewReader(c.Conn)
		for {
			l, err := c.br.ReadString('\n')
			if err != nil {
				return 0, err
			}
			if l == "\r\n" {
				break
			}
		}
	}
	return c.br.Read(p)
}

// A body that breaks off is never a clean end: with and without close_notify, each framing, both protocols of the fetcher.
// (Resets by an HTTP/2 site and aborts of an HTTP/1.1 one are in TestFaultTruncationIsLoud.)
func TestHTTPTruncation(t *testing.T) {
	framings := map[string]string{
		"known":   "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 50000),
		"chunked": "Transfer-Encoding: chunked\r\n\r\n2710\r\n" + strings.Repeat("x", 10000) + "\r\n2710\r\n" + strings.Repeat("x", 5000),
		"between": "Transfer-Encoding: chunked\r\n\r\n2710\r\n" + strings.Repeat("x", 10000) + "\r\n",
		"size":    "Transfer-Encoding: chunked\r\n\r\n2710\r\n" + strings.Repeat("x", 10000) + "\r\n27",
		"closed":  "\r\n" + strings.Repeat("x", 10000),
	}
	ends := map[string]func(*tls.Conn){
		"fin":   func(c *tls.Conn) { c.NetConn().Close() }, // no close_notify
		"close": func(c *tls.Conn) { c.Close() },
	}
	r := newRig(t)
	o := r.rawTLS("cut.test", []string{"http/1.1"}, func(c *tls.Conn) {
		head, err := readHead(bufio.NewReader(c))
		if err != nil {
			return
		}
		parts := strings.Split(strings.Fields(head)[1], "/")
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"+framings[parts[1]])
		ends[parts[2]](c)
	})
	r.start(rigOptions{rules: ignoring})
	for framing := range framings {
		for end := range ends {
			for _, h2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s h2=%v", framing, end, h2), func(t *testing.T) {
					resp, err := r.client(h2).Get(o.url("https", "/"+framing+"/"+end))
					must(t, err)
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
					if framing == "closed" {
						// A length that only the close gives cannot be checked; without close_notify the log says so.
						want := "ok"
						if end == "fin" {
							want = "upstream-failed"
						}
						if err != nil || len(b) != 10000 || ev.Reason != want {
							t.Errorf("%d bytes, %v; event %s %s", len(b), err, ev.Reason, ev.Class)
						}
						return
					}
					if resp.StatusCode != 502 && err == nil {
						t.Errorf("%d bytes and a clean end", len(b))
					}
					if ev.Reason != "upstream-failed" {
						t.Errorf("event %s %s", ev.Reason, ev.Class)
					}
				})
			}
		}
	}
}

// An answer of known length over HTTP/2 is read to its end mark: the site sees no reset.
func TestHTTPWholeStreamsAreNotReset(t *testing.T) {
	r := newRig(t)
	reset := make(chan error, 64)
	o := r.origin("whole.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush() // the end mark comes apart
		select {
		case <-req.Context().Done():
			reset <- errors.New("reset")
		case <-time.After(20 * time.Millisecond):
			reset <- nil
		}
	})
	r.start(rigOptions{})
	for _, h2 := range []bool{false, true} {
		if _, b := r.get(r.client(h2), o.url("https", "/")); b != "hello" {
			t.Errorf("got %q", b)
		}
		if err := <-reset; err != nil {
			t.Errorf("h2=%v: the site's stream was reset", h2)
		}
	}
}

// An HTTP/1.0 fetcher knows the end of a body by the end of the connection alone: a cut one ends with a reset.
func TestHTTPTruncationForHTTP10(t *testing.T) {
	r := newRig(t)
	cut := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 20000))
		_ = http.NewResponseController(w).Flush()
		<-time.After(50 * time.Millisecond) // the head is out
		panic(http.ErrAbortHandler)
	}
	secure, plain := r.origin("ten.test", true, "", cut), r.origin("tenplain.test", false, "", cut)
	r.start(rigOptions{})
	for _, inside := range []bool{true, false} {
		o := secure
		if !inside {
			o = plain
		}
		c := r.rawConn(o, inside)
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", o.target(inside, "/"), o.hostport())
		b, err := io.ReadAll(c)
		if !strings.HasPrefix(string(b), "HTTP/1.1 200") {
			continue // answered instead, or lost with the reset: as loud
		}
		if err == nil {
			t.Errorf("inside=%v: a clean end after %d bytes", inside, len(b))
		}
	}
}
