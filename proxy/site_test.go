package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answering is a site of bare sockets that gives each request one answer, as it is.
func (r *rig) answering(name string, answer func(head string) string) (plain, secure *origin) {
	serve := func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			head, err := readHead(br)
			if err != nil {
				return
			}
			a := answer(head)
			if _, err := io.WriteString(c, a); err != nil || strings.Contains(a, "Connection: close") || strings.HasPrefix(a, "HTTP/1.0") {
				return
			}
		}
	}
	return r.raw(name, serve), r.rawTLS("s"+name, []string{"http/1.1"}, func(c *tls.Conn) {
		serve(c)
		c.Close()
	})
}

// What a site says of its own connection stays there, whatever else it says, in interim answers and trailers too.
func TestSiteConnectionFields(t *testing.T) {
	r := newRig(t)
	answers := map[string]string{
		"/close":     "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: secret\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\nok",
		"/two":       "HTTP/1.1 200 OK\r\nConnection: close\r\nConnection: x-hop\r\nX-Hop: secret\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\nok",
		"/keepalive": "HTTP/1.1 200 OK\r\nConnection: Keep-Alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: secret\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\nok",
		"/old":       "HTTP/1.0 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: secret\r\nX-Kept: yes\r\n\r\nok",
		"/early": "HTTP/1.1 103 Early Hints\r\nConnection: close, X-Hop\r\nX-Hop: secret\r\nLink: </a.css>\r\n\r\n" +
			"HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: secret\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\nok",
		"/chunks": "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nTransfer-Encoding: chunked\r\nX-Hop: secret\r\nX-Kept: yes\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	}
	plain, secure := r.answering("hop.test", func(head string) string { return answers[strings.Fields(head)[1]] })
	r.start(rigOptions{rules: ignoring})
	for _, s := range sides {
		o := plain
		if s.scheme == "https" {
			o = secure
		}
		for path := range answers {
			resp, body := r.get(r.client(s.h2), o.url(s.scheme, path))
			if resp.StatusCode != 200 || body != "ok" || resp.Header.Get("X-Kept") != "yes" {
				t.Errorf("%s %s: %d %q", s.name, path, resp.StatusCode, body)
			}
			for _, k := range []string{"X-Hop", "Keep-Alive"} {
				if resp.Header[k] != nil {
					t.Errorf("%s %s: %s: %s", s.name, path, k, resp.Header[k])
				}
			}
		}
	}
}

// Answers as sites send them, and what the fetcher gets.
func TestSiteAnswers(t *testing.T) {
	const ok, bad = 200, 502
	cases := []struct {
		name, answer string
		status       int
		body         string
	}{
		{"chunked, HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", ok, "ok"},
		{"chunked beside a length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n", ok, "ok"},
		{"one length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", ok, "ok"},
		{"no reason phrase", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", ok, "ok"},
		{"two spaces before the status", "HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok", ok, "ok"},
		{"lines that end in LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", ok, "ok"},
		{"interim answers first", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 5) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", ok, "ok"},
		{"100 unasked", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", ok, "ok"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\nConnection: close\r\n\r\nokk", bad, ""},
		{"a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nConnection: close\r\n\r\nok", bad, ""},
		{"a signed length", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\nConnection: close\r\n\r\nok", bad, ""},
		{"gzip and chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n", bad, ""},
		{"two codings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n", bad, ""},
		{"HTTP/2.0 in a status line", "HTTP/2.0 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", bad, ""},
		{"no status", "HTTP/1.1 OK\r\nConnection: close\r\n\r\n", bad, ""},
		{"status of two digits", "HTTP/1.1 99 OK\r\nConnection: close\r\n\r\n", bad, ""},
		{"status 099", "HTTP/1.1 099 OK\r\nConnection: close\r\n\r\n", bad, ""},
		{"status with a sign", "HTTP/1.1 +20 OK\r\nConnection: close\r\n\r\n", bad, ""},
		{"a field without a colon", "HTTP/1.1 200 OK\r\nnonsense\r\nConnection: close\r\n\r\n", bad, ""},
		{"a bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\nok\r\n0\r\n\r\n", bad, ""},
		{"no end of interim answers", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", maxHints+1) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", bad, ""},
		{"a head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", answerHeadBytes) + "\r\nConnection: close\r\n\r\n", bad, ""},
		{"not HTTP", "SSH-2.0-OpenSSH\r\nConnection: close", bad, ""},
	}
	r := newRig(t)
	plain, secure := r.answering("answers.test", func(head string) string {
		var i int
		_, _ = fmt.Sscanf(strings.Fields(head)[1], "/%d", &i)
		return cases[i].answer
	})
	r.start(rigOptions{rules: ignoring})
	for i, c := range cases {
		for _, s := range sides {
			o := plain
			if s.scheme == "https" {
				o = secure
			}
			resp, body := r.get(r.client(s.h2), o.url(s.scheme, fmt.Sprintf("/%d", i)))
			if resp.StatusCode != c.status || c.status == ok && body != c.body {
				t.Errorf("%s, %s: %d %q", c.name, s.name, resp.StatusCode, body)
			}
			if c.status == bad && resp.Header.Get("Crawlgate-Reason") != string(UpstreamFailed) {
				t.Errorf("%s, %s: reason %s", c.name, s.name, resp.Header.Get("Crawlgate-Reason"))
			}
		}
	}
}

// A site that answers an upload early and resets the connection is understood all the same: its answer was there before.
func TestSiteAnswersEarlyAndResets(t *testing.T) {
	r := newRig(t)
	o := r.raw("early.test", func(c net.Conn) {
		if _, err := readHead(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nless")
		time.Sleep(20 * time.Millisecond) // the bytes of the body arrive and are not read, so the close is a reset
	})
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.RequestBody = 8 << 20 }})
	answered := 0
	for i := range 10 {
		req, err := http.NewRequest("POST", o.url("http", "/"), bytes.NewReader(make([]byte, 4<<20)))
		must(t, err)
		resp, err := r.client(false).Do(req)
		if err != nil {
			continue // the fetcher was still sending, and did not read
		}
		answered++
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 413 || string(b) != "less" {
			t.Errorf("%d: %d %q %s", i, resp.StatusCode, b, resp.Header.Get("Crawlgate-Reason"))
		}
	}
	if answered == 0 {
		t.Error("no fetcher got an answer")
	}
}

// A site may answer an upload without asking for its body and read it all the same, as long as its connection goes on.
func TestSiteAnswersBeforeItAsks(t *testing.T) {
	r := newRig(t)
	o := r.raw("reads.test", func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			b, _ := io.ReadAll(req.Body)
			fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(b), b)
		}
	})
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.RequestBody = 1 << 20 }})
	c := r.client(false)
	c.Transport.(*http.Transport).ExpectContinueTimeout = 10 * time.Second
	c.Timeout = 10 * time.Second
	for range 5 {
		req, err := http.NewRequest("POST", o.url("http", "/"), strings.NewReader("hello"))
		must(t, err)
		req.Header.Set("Expect", "100-continue")
		resp, err := c.Do(req)
		must(t, err)
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" {
			t.Errorf("%d %q %v", resp.StatusCode, b, err)
		}
		resp.Body.Close()
	}
}

// A site that ends an exchange in the middle of an upload is to blame for it, and not the fetcher whose body is read no more.
func TestSiteEndsInAnUpload(t *testing.T) {
	stop := func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.ReadFull(req.Body, make([]byte, 5))
		panic(http.ErrAbortHandler)
	}
	opt := rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.RequestBody = 8 << 20 }}
	answered := 0
	onSides(t, stop, opt, func(t *testing.T, r *rig, o *origin, s side) {
		c := r.client(s.h2)
		for i := range 20 {
			pr, pw := io.Pipe()
			go func() {
				for err := error(nil); err == nil; {
					_, err = pw.Write(make([]byte, 1000))
				}
			}()
			resp, err := fetch(t.Context(), c, "POST", o.url(s.scheme, "/"), pr)
			pr.Close()
			if err != nil {
				continue // the fetcher was still sending, and did not read
			}
			answered++
			if resp.StatusCode != 502 || resp.Header.Get("Crawlgate-Reason") != string(UpstreamFailed) {
				t.Errorf("%d: %d %s", i, resp.StatusCode, resp.Header.Get("Crawlgate-Reason"))
			}
		}
	})
	if answered == 0 {
		t.Error("no fetcher got an answer")
	}
}

// heldConn is a connection whose writes wait while they are held.
type heldConn struct {
	net.Conn
	held    atomic.Bool
	release chan struct{}
}

func (c *heldConn) Write(p []byte) (int, error) {
	if c.held.Load() {
		<-c.release
	}
	return c.Conn.Write(p)
}

// A request may have been answered before its body is read for the first time. That ends nothing but the request.
func TestSiteUploadReadLate(t *testing.T) {
	r := newRig(t)
	o := r.originOf("late.test", []string{"h2"}, "", func(_ http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) })
	hc := &heldConn{release: make(chan struct{})}
	r.start(rigOptions{
		rules: func(ru *Rules) {
			ignoring(ru)
			ru.Default.Limits.RequestBody, ru.Default.Limits.Timeout = 1<<20, time.Second
		},
		dial: func(network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, addr)
			if hc.Conn != nil {
				return c, err
			}
			hc.Conn = c
			return hc, err
		},
	})
	c := r.client(true)
	resp, err := fetch(t.Context(), c, "POST", o.url("https", "/"), strings.NewReader("hello"))
	must(t, err)
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	hc.held.Store(true)
	resp, err = fetch(t.Context(), c, "POST", o.url("https", "/"), strings.NewReader("hello"))
	must(t, err)
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Error(resp.Status)
	}
	time.Sleep(100 * time.Millisecond) // its handler returns, which nothing tells of
	hc.held.Store(false)
	close(hc.release)
	time.Sleep(100 * time.Millisecond) // the body is read, which is to do nothing
	if resp, err := fetch(t.Context(), c, "POST", o.url("https", "/"), strings.NewReader("hello")); err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
}

// A connection is used again after every kind of answer that ends, uploads too; and one that the site has ended in the
// meantime is replaced without a word.
func TestSiteConnectionsAreKept(t *testing.T) {
	for _, protos := range [][]string{nil, {"http/1.1"}} {
		r := newRig(t)
		o := r.originOf("kept.test", protos, "", func(w http.ResponseWriter, req *http.Request) {
			n, _ := io.Copy(io.Discard, req.Body)
			switch req.URL.Path {
			case "/none":
				w.WriteHeader(204)
			case "/chunks":
				w.Header().Set("Trailer", "X-End")
				_, _ = io.WriteString(w, "a")
				_ = http.NewResponseController(w).Flush()
				w.Header().Set("X-End", "1")
			default:
				fmt.Fprint(w, n)
			}
		})
		scheme := "http"
		if protos != nil {
			scheme = "https"
		}
		r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.RequestBody = 1 << 20 }})
		c := r.client(false)
		for range 20 {
			for _, path := range []string{"/", "/none", "/chunks"} {
				if resp, _ := r.get(c, o.url(scheme, path)); resp.StatusCode >= 300 {
					t.Errorf("%s %s: %d", scheme, path, resp.StatusCode)
				}
			}
			for _, body := range []io.Reader{strings.NewReader("0123456789"), io.MultiReader(strings.NewReader("0123456789"))} {
				if resp, err := fetch(t.Context(), c, "POST", o.url(scheme, "/"), body); err != nil || resp.StatusCode != 200 {
					t.Errorf("%s: POST: %v", scheme, err)
				}
			}
			if resp, err := fetch(t.Context(), c, "HEAD", o.url(scheme, "/"), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("%s: HEAD: %v", scheme, err)
			}
		}
		if _, made := o.conns.get(); made != 1 {
			t.Errorf("%s: %d connections were made", scheme, made)
		}
		for range 5 {
			o.srv.SetKeepAlivesEnabled(false) // ends those that idle
			r.until("no connection", func() bool { return o.conns.now() == 0 })
			o.srv.SetKeepAlivesEnabled(true)
			if resp, _ := r.get(c, o.url(scheme, "/")); resp.StatusCode != 200 {
				t.Errorf("%s: after the site ended its connection: %d", scheme, resp.StatusCode)
			}
		}
	}
}

// What a site sends beyond its answer may have been decrypted with the answer's end, where the system knows nothing of it.
// It is nobody's answer.
func TestSiteSendsMoreThanItsAnswer(t *testing.T) {
	for _, size := range []int{10, 5000, 9000, 40000} {
		r := newRig(t)
		plain, secure := r.answering("more.test", func(head string) string {
			path := strings.Fields(head)[1]
			body := path + strings.Repeat(".", size)
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother", len(body), body)
		})
		r.start(rigOptions{rules: ignoring})
		for _, s := range sides {
			o := plain
			if s.scheme == "https" {
				o = secure
			}
			c := r.client(s.h2)
			for i := range 5 {
				path := fmt.Sprintf("/%d", i)
				if resp, body := r.get(c, o.url(s.scheme, path)); resp.StatusCode != 200 || !strings.HasPrefix(body, path+"..") {
					t.Errorf("%s, body of %d: %s got %d %.40q", s.name, size, path, resp.StatusCode, body)
				}
			}
		}
	}
}

// More than the bound of idle connections to all sites are not kept.
func TestSiteRestingIsBounded(t *testing.T) {
	c := newConns()
	c.resting.expire = c.expire
	var closed atomic.Int64
	var all []*siteConn
	for i := range idleConns + 10 {
		to := site{"http", fmt.Sprintf("h%d:80", i), false}
		f, err := c.take(context.Background(), to, 6)
		must(t, err)
		oc := &originConn{Conn: &countedClose{closed: &closed}, seat: f.seat}
		all = append(all, &siteConn{Conn: oc, under: oc, seat: f.seat})
	}
	for _, ic := range all {
		c.rest(ic)
	}
	if got := closed.Load(); got != 10 || len(c.sites) != idleConns || c.resting.idle.Len() != idleConns {
		t.Errorf("%d closed, %d sites, %d at rest", got, len(c.sites), c.resting.idle.Len())
	}
	if all[9].place != nil || all[10].place == nil {
		t.Error("the one not used for longest was to go first")
	}
	c.renew()
	if got := closed.Load(); got != idleConns+10 || len(c.sites) != 0 {
		t.Errorf("%d closed in the end, %d sites", got, len(c.sites))
	}
}

type countedClose struct {
	net.Conn
	closed *atomic.Int64
}

func (c *countedClose) Close() error { c.closed.Add(1); return nil }

// byteConn is a connection whose other side has sent everything already.
type byteConn struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *byteConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *byteConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *byteConn) Close() error                { return nil }

// answerTo reads what answer means as the answer to a request.
func answerTo(method string, answer []byte) (*http.Response, []byte, error) {
	c := newConns()
	f, err := c.take(context.Background(), site{"http", "h:80", false}, 6)
	if err != nil {
		return nil, nil, err
	}
	oc := &originConn{Conn: &byteConn{in: bytes.NewReader(answer)}, seat: f.seat}
	sc := &siteConn{Conn: oc, under: oc, seat: f.seat}
	r, err := http.NewRequest(method, "http://h/", nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := sc.roundTrip(r, &wireLog{to: f.seat.of})
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil, resp.Body.Close()
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	return resp, b, err
}

// FuzzSiteAnswer compares what we understand of an answer with what the standard library does: whatever is taken for a
// whole answer is the same to both.
func FuzzSiteAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 103 x\r\nLink: a\r\n\r\nHTTP/1.1 204 None\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nrest", "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\nz",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\nConnection: close, x\r\n\r\nok",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, answer string, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		got, body, err := answerTo(method, []byte(answer))
		if err != nil || got.StatusCode == http.StatusSwitchingProtocols || got.ProtoMinor == 0 && got.TransferEncoding != nil {
			return // the library leaves the coding of HTTP/1.0 alone
		}
		req, _ := http.NewRequest(method, "http://h/", nil)
		br := bufio.NewReader(strings.NewReader(answer))
		for {
			want, err := http.ReadResponse(br, req)
			if err != nil {
				t.Fatalf("we read %d %v %q, the library: %v", got.StatusCode, got.Header, body, err)
			}
			if want.StatusCode < 200 {
				continue
			}
			all, err := io.ReadAll(want.Body)
			if err != nil && strings.Contains(err.Error(), "trailer") {
				return // it wants CRLF there, and no more than a buffer
			}
			if err != nil || want.StatusCode != got.StatusCode || !bytes.Equal(all, body) {
				t.Fatalf("we read %d %q, the library %d %q %v", got.StatusCode, body, want.StatusCode, all, err)
			}
			for k, v := range want.Header {
				if k != "Trailer" && k != "Content-Length" && k != "Connection" && !slices.Equal(v, got.Header[k]) {
					t.Fatalf("%s: we read %q, the library %q", k, got.Header[k], v)
				}
			}
			for k, v := range want.Trailer {
				if !slices.Equal(v, got.Trailer[k]) {
					t.Fatalf("trailer %s: we read %q, the library %q", k, got.Trailer[k], v)
				}
			}
			return
		}
	})
}
