package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// An HTTP/2 site may write any Content-Length, several too. The fetcher gets one that its body keeps to, none, or an error.
func TestHTTPLengthsOfAnHTTP2Site(t *testing.T) {
	r := newRig(t)
	lengths := map[string][]string{
		"/same": {"5", "5"}, "/differ": {"5", "3"}, "/longer": {"3", "5"}, "/signed": {"+5"}, "/negative": {"-5"}, "/word": {"x"}, "/list": {"5, 5"}, "/padded": {"005"},
	}
	o := r.h2Site("lengths.test", nil, func(p *h2Peer, _ int, head *http2.MetaHeadersFrame) {
		fields := []string{":status", "200"}
		for _, v := range lengths[head.PseudoValue("path")] {
			fields = append(fields, "content-length", v)
		}
		p.head(head.StreamID, false, fields...)
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.WriteData(head.StreamID, true, []byte("hello"))
	})
	r.start(rigOptions{rules: ignoring})
	sound := map[string]bool{"/same": true, "/padded": true}
	for path := range lengths {
		c := r.rawConn(o.origin, true)
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, o.hostport())
		must(t, err)
		raw, err := io.ReadAll(c)
		must(t, err)
		head, _, _ := strings.Cut(string(raw), "\r\n\r\n")
		if n := strings.Count(strings.ToLower(head), "\r\ncontent-length:"); n > 1 {
			t.Errorf("%s: %d lengths: %q", path, n, head)
		}
		resp, b := h1Answer(t, bufio.NewReader(strings.NewReader(string(raw))), "GET")
		if !sound[path] {
			problemOf(t, resp, b, 502, UpstreamFailed)
		} else if resp.StatusCode != 200 || b != "hello" {
			t.Errorf("%s: %d %q", path, resp.StatusCode, b)
		}
		for _, h2 := range []bool{true, false} {
			resp, b := r.get(r.client(h2), o.url("https", path))
			if sound[path] != (resp.StatusCode == 200) {
				t.Errorf("%s, h2=%v: %d %q", path, h2, resp.StatusCode, b)
			}
		}
	}
}

// An HTTP/2 request whose Content-Length is not that of its body, or whose Host is not its authority, is malformed and
// does not go on (RFC 9113 8.1.1, 8.3.1).
func TestHTTPMalformedHTTP2Requests(t *testing.T) {
	r := newRig(t)
	var asked int
	o := r.originOf("strict.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		asked++
		hello(w, req)
	})
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Methods, ru.Default.Limits.RequestBody = []string{"GET", "POST"}, 100
	}})
	f := r.framer(o)
	stream := uint32(1)
	for _, c := range []struct {
		name, body string
		fields     []string
		status     string
		reason     Reason
	}{
		{"a length and no body", "", []string{"content-length", "5"}, "400", BadRequest},
		{"two lengths", "hello", []string{"content-length", "5", "content-length", "4"}, "400", BadRequest},
		{"a length that is none", "", []string{"content-length", "x"}, "400", BadRequest},
		{"another host", "hello", []string{"host", "other.test"}, "421", HostMismatch},
		{"a host that is none", "hello", []string{"host", "a@b/c"}, "421", HostMismatch},
		{"the same length twice", "hello", []string{"content-length", "5", "content-length", "5"}, "200", ""},
		{"a length of nothing", "", []string{"content-length", "0"}, "200", ""},
		{"the same host", "hello", []string{"host", "STRICT.test"}, "200", ""},
	} {
		f.request(stream, c.body == "", "POST", o, "/", c.fields...)
		if c.body != "" {
			must(t, f.WriteData(stream, true, []byte(c.body)))
		}
		m, err := f.answer(stream)
		if err != nil || m[":status"] != c.status || m["crawlgate-reason"] != string(c.reason) {
			t.Errorf("%s: %v %v", c.name, m, err)
		}
		stream += 2
	}
	if asked != 3 {
		t.Errorf("the site was asked %d times", asked)
	}
}

// Requests that arrive together are judged one by one: what the second lacks is not held against the first.
func TestHTTPPipelinedFaults(t *testing.T) {
	r := newRig(t)
	secure, plain := r.originOf("pipe.test", []string{"http/1.1"}, "", hello), r.origin("pipeplain.test", false, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Methods, ru.Default.Limits.RequestBody = []string{"GET", "POST"}, 100
	}})
	const ok = "GET TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n"
	for _, c := range []struct {
		name, requests string
		want           []int
	}{
		{"the second has no Host", ok + "GET TARGET HTTP/1.1\r\n\r\n", []int{200, 400}},
		{"the first has none", "GET TARGET HTTP/1.1\r\n\r\n" + ok, []int{400}},
		{"the second is no request", ok + "nonsense\r\n\r\n", []int{200, 400}},
		{"the second has an unknown coding", ok + "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: x\r\n\r\n", []int{200, 501}},
		{"the first is folded", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\r\n z\r\n\r\n" + ok, []int{400}},
		{"an empty line after a body", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\nab\r\n" + ok, []int{200, 200}},
		{"an empty line after a body, then a fold", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\nab\r\nGET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\r\n z\r\n\r\n", []int{200, 400}},
		{"many", strings.Repeat(ok, 40) + "GET TARGET HTTP/1.1\r\n\r\n", append(slicesOf(200, 40), 400)},
	} {
		for _, inside := range []bool{true, false} {
			o := secure
			if !inside {
				o = plain
			}
			conn := r.rawConn(o, inside)
			_, err := io.WriteString(conn, strings.NewReplacer("TARGET", o.target(inside, "/"), "HOST", o.hostport()).Replace(c.requests))
			must(t, err)
			br := bufio.NewReader(conn)
			for i, want := range c.want {
				if resp, b := h1Answer(t, br, "GET"); resp.StatusCode != want {
					t.Errorf("%s, inside=%v: answer %d is %d %s", c.name, inside, i+1, resp.StatusCode, b)
					break
				}
			}
			conn.Close()
		}
	}
}

func slicesOf(v, n int) (s []int) {
	for range n {
		s = append(s, v)
	}
	return s
}

// After a request for another protocol that was not granted, no head escapes the look at it.
func TestHTTPHeadsAfterAnUpgrade(t *testing.T) {
	r := newRig(t)
	secure, plain := r.originOf("up.test", []string{"http/1.1"}, "", hello), r.origin("upplain.test", false, "", hello)
	r.start(rigOptions{rules: ignoring})
	for _, inside := range []bool{true, false} {
		for _, first := range []string{
			"GET TARGET HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
			"GET TARGET HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			"BREW TARGET HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		} {
			o := secure
			if !inside {
				o = plain
			}
			conn := r.rawConn(o, inside)
			words := strings.NewReplacer("TARGET", o.target(inside, "/"), "HOST", o.hostport())
			_, err := words.WriteString(conn, first)
			must(t, err)
			br := bufio.NewReader(conn)
			h1Answer(t, br, "GET")
			_, _ = words.WriteString(conn, "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: y\r\n folded\r\n\r\n") // the connection may have ended
			if resp, err := http.ReadResponse(br, nil); err == nil && resp.StatusCode != 400 {
				t.Errorf("%.30q, inside=%v: a folded head got %d", first, inside, resp.StatusCode)
			} else if isTimeout(err) {
				t.Errorf("%.30q, inside=%v: %v", first, inside, err)
			}
			conn.Close()
		}
	}
}

// A fetcher that is refused before its body and then sends it slowly, or never, does not keep its connection.
func TestHTTPRefusedUploadsEnd(t *testing.T) {
	r := newRig(t)
	secure, plain := r.originOf("upload.test", []string{"http/1.1"}, "", hello), r.origin("uploadplain.test", false, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.RequestBody = 100 }})
	for _, inside := range []bool{true, false} {
		for _, fields := range []string{"Content-Length: 5\r\n", "Content-Length: 5\r\nExpect: 100-continue\r\n", "Transfer-Encoding: chunked\r\n"} {
			o := secure
			if !inside {
				o = plain
			}
			conn := r.rawConn(o, inside)
			_, err := fmt.Fprintf(conn, "BREW %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", o.target(inside, "/"), o.hostport(), fields)
			must(t, err)
			br := bufio.NewReader(conn)
			resp, b := h1Answer(t, br, "BREW")
			problemOf(t, resp, b, 405, MethodDenied)
			if _, err := io.Copy(io.Discard, br); isTimeout(err) {
				t.Errorf("%q, inside=%v: the connection stays open", fields, inside)
			}
		}
	}
}

// Over HTTP/2 a fetcher that sends on what was refused is read on for a moment, and its stream ends whole: a reset loses some
// the answer. One that never ends is not waited for.
func TestHTTPRefusedUploadsOverHTTP2(t *testing.T) {
	r := newRig(t)
	o := r.origin("upload2.test", true, "", hello)
	r.start(rigOptions{rules: ignoring})
	f := r.framer(o)
	for i, ends := range []bool{true, false} {
		stream := uint32(2*i + 1)
		f.request(stream, false, "BREW", o, "/", "content-length", "20000")
		h, err := f.answer(stream)
		must(t, err)
		if h[":status"] != "405" {
			t.Errorf("%v", h)
		}
		must(t, f.WriteData(stream, false, make([]byte, 10_000)))
		if ends {
			must(t, f.WriteData(stream, true, make([]byte, 10_000)))
		}
		for whole := false; !whole; {
			fr, err := f.ReadFrame()
			must(t, err)
			switch fr := fr.(type) {
			case *http2.DataFrame:
				whole = fr.StreamEnded()
			case *http2.RSTStreamFrame:
				t.Fatalf("stream %d was reset: %s", stream, fr.ErrCode)
			}
		}
	}
}

// Whoever hides the host behind a user name is refused inside a tunnel as outside.
func TestHTTPUserInATunnelsTarget(t *testing.T) {
	r := newRig(t)
	o := r.originOf("user.test", []string{"http/1.1"}, "", hello)
	r.start(rigOptions{rules: ignoring})
	conn := r.rawConn(o, true)
	_, err := fmt.Fprintf(conn, "GET https://u:p@%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", o.hostport(), o.hostport())
	must(t, err)
	resp, b := h1Answer(t, bufio.NewReader(conn), "GET")
	problemOf(t, resp, b, 400, BadRequest)
}

// A trailer whose name is none is not announced either.
func TestHTTPTrailerWithoutAName(t *testing.T) {
	r := newRig(t)
	o := r.raw("trailer.test", func(c net.Conn) {
		if _, err := readHead(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\nX Sum: 2\r\n\r\n")
		}
		c.Close()
	})
	r.start(rigOptions{rules: ignoring})
	conn := r.rawConn(o, false)
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", o.target(false, "/"), o.hostport())
	must(t, err)
	b, err := io.ReadAll(conn)
	must(t, err)
	if s := string(b); !strings.Contains(s, "\r\nTrailer: X-Sum\r\n") || strings.Contains(s, "X Sum") {
		t.Errorf("%q", s)
	}
}

// What an HTTP/2 site does instead of an answer has the same class as over HTTP/1.1.
func TestHTTPFaultsOfAnHTTP2Site(t *testing.T) {
	r := newRig(t)
	o := r.h2Site("faults.test", nil, func(p *h2Peer, _ int, head *http2.MetaHeadersFrame) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch head.PseudoValue("path") {
		case "/reset":
			_ = p.WriteRSTStream(head.StreamID, http2.ErrCodeInternal)
		case "/nonsense":
			_ = p.WriteRawFrame(0xff, 0, 1<<30, make([]byte, 1<<20)) // larger than any frame may be
		}
	})
	r.start(rigOptions{rules: ignoring})
	for path, class := range map[string]string{"/reset": "connection_lost", "/nonsense": "response_invalid"} {
		resp, b := r.get(r.client(false), o.url("https", path))
		problemOf(t, resp, b, 502, UpstreamFailed)
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Class != class {
			t.Errorf("%s: class %s, want %s", path, ev.Class, class)
		}
	}
}

// A site that sends more than its answers does not answer the next request with the rest, nor make it fail; each request
// is on the wire once.
func TestHTTPMoreThanTheAnswer(t *testing.T) {
	r := newRig(t)
	var asked atomic.Int64
	serve := func(c net.Conn) {
		defer c.Close()
		br := bufio.NewReader(c)
		for {
			head, err := readHead(br)
			if err != nil {
				return
			}
			asked.Add(1)
			path := strings.Fields(head)[1]
			answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
			switch {
			case strings.HasPrefix(head, "HEAD"), strings.HasPrefix(path, "/304"):
				answer = "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 4\r\n\r\nrest"
			case strings.HasPrefix(path, "/more"):
				answer += "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nrest"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
	plain := r.raw("moreplain.test", serve)
	secure := r.rawTLS("more.test", []string{"http/1.1"}, func(c *tls.Conn) { serve(c) })
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.Connections = 2 }})
	const fetchers, each = 8, 20
	for _, u := range []string{plain.url("http", ""), secure.url("https", "")} {
		asked.Store(0)
		var wg sync.WaitGroup
		for n := range fetchers {
			wg.Go(func() {
				c := r.client(n%2 == 0)
				for i := range each {
					method, path := "GET", fmt.Sprintf("/%s/%d/%d", []string{"ok", "more", "304", "ok", "head"}[i%5], n, i)
					if i%5 == 4 {
						method = "HEAD"
					}
					req, err := http.NewRequest(method, u+path, nil)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := c.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					b, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if ok := resp.StatusCode == 200 && string(b) == path || resp.StatusCode == 304 && i%5 > 1; !ok || err != nil {
						t.Errorf("%s %s: %d %q %v", method, path, resp.StatusCode, b, err)
					}
				}
			})
		}
		wg.Wait()
		if got := asked.Load(); got != fetchers*each {
			t.Errorf("%s: the site was asked %d times for %d", u, got, fetchers*each)
		}
	}
}

// An expectation that nobody knows is told so over HTTP/2 as over HTTP/1.1 (RFC 9110 10.1.1), and does not reach the site.
func TestHTTPUnknownExpectationOverHTTP2(t *testing.T) {
	r := newRig(t)
	o := r.origin("expect.test", true, "", hello)
	r.start(rigOptions{rules: ignoring})
	resp, b := r.get(r.client(true), o.url("https", "/"), "Expect", "magic")
	if p := problemOf(t, resp, b, http.StatusExpectationFailed, BadRequest); p.Class != "request_expect" {
		t.Errorf("class %q", p.Class)
	}
	if n := len(o.requests()); n > 0 {
		t.Errorf("%d requests reached the site", n)
	}
	if resp, b := r.get(r.client(true), o.url("https", "/"), "Expect", "100-Continue"); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}
