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
	"strings"
	"testing"
	"time"
)

// h1Answer reads one answer to method and its body.
func h1Answer(t *testing.T, br *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(b)
}

// untilWatched waits until a connection is read ahead, to see whether its fetcher leaves.
func (r *rig) untilWatched() {
	r.until("a connection to be watched", func() bool {
		r.gate.h1.mu.Lock()
		defer r.gate.h1.mu.Unlock()
		for c := range r.gate.h1.all {
			c.in.mu.Lock()
			ahead := c.in.ahead
			c.in.mu.Unlock()
			if ahead {
				return true
			}
		}
		return false
	})
}

// Requests that come at once, and one that comes while another is served (and is read ahead), are answered in their order.
func TestH1OneAfterTheOther(t *testing.T) {
	r := newRig(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	o := r.originOf("h1.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			asked <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, req.URL.Path)
	})
	r.start(rigOptions{rules: ignoring})
	c := r.rawConn(o, true)
	br := bufio.NewReader(c)
	get := func(path string) string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, o.hostport())
	}
	_, err := io.WriteString(c, get("/a")+get("/b")+get("/slow"))
	must(t, err)
	<-asked
	r.untilWatched()
	for _, path := range []string{"/c", "/d"} {
		_, err = io.WriteString(c, get(path))
		must(t, err)
	}
	close(release)
	for _, want := range []string{"/a", "/b", "/slow", "/c", "/d"} {
		if resp, b := h1Answer(t, br, "GET"); resp.StatusCode != 200 || b != want {
			t.Fatalf("%s: %d %q", want, resp.StatusCode, b)
		}
	}
}

// A body follows its head after the connection was watched for another request.
func TestH1BodyAfterAWatch(t *testing.T) {
	r := newRig(t)
	asked := make(chan struct{}, 32)
	o := r.originOf("h1body.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		b, _ := io.ReadAll(req.Body)
		r.untilWatched()
		_, _ = w.Write(b)
	})
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Methods, ru.Default.Limits.RequestBody = []string{"GET", "POST"}, 1<<20
	}})
	c := r.rawConn(o, true)
	br := bufio.NewReader(c)
	for n := range 20 {
		body := strings.Repeat(string(rune('a'+n)), 1+n*977)
		_, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", o.hostport(), len(body))
		must(t, err)
		if n%2 == 0 {
			<-asked // the body comes when the site has the head
		}
		_, err = io.WriteString(c, body)
		must(t, err)
		if n%2 == 1 {
			<-asked
		}
		if resp, b := h1Answer(t, br, "POST"); resp.StatusCode != 200 || b != body {
			t.Fatalf("%d: %d, %d bytes of %d", n, resp.StatusCode, len(b), len(body))
		}
	}
}

// An HTTP/1.0 fetcher keeps its connection where it asks for that and the length is known, and is told so.
func TestH1Version10(t *testing.T) {
	r := newRig(t)
	o := r.originOf("h10.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/known" {
			w.Header().Set("Content-Length", "5")
		}
		_, _ = io.WriteString(w, "hel")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "lo")
	})
	r.start(rigOptions{rules: ignoring})
	c := r.rawConn(o, true)
	br := bufio.NewReader(c)
	for _, s := range []struct {
		path  string
		close bool
	}{{"/known", false}, {"/known", false}, {"/open", true}} {
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: keep-alive\r\n\r\n", s.path, o.hostport())
		must(t, err)
		resp, b := h1Answer(t, br, "GET")
		if resp.Close != s.close || !s.close && resp.Header.Get("Connection") != "keep-alive" || len(resp.TransferEncoding) > 0 || b != "hello" {
			t.Errorf("%s: %v %v %q", s.path, resp.Header, resp.TransferEncoding, b)
		}
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("after that: %v", err)
	}
}

// Nothing is guessed about an answer: no type from its content. A date is added where the site sent none.
func TestHTTPNothingGuessed(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		_, _ = io.WriteString(w, "<html><body>a page</body></html>")
	}, rigOptions{rules: ignoring}, func(t *testing.T, r *rig, o *origin, s side) {
		resp, _ := r.get(r.client(s.h2), o.url(s.scheme, "/"))
		if ct, ok := resp.Header["Content-Type"]; ok {
			t.Errorf("Content-Type: %v", ct)
		}
		if _, err := http.ParseTime(resp.Header.Get("Date")); err != nil {
			t.Errorf("Date: %v", resp.Header["Date"])
		}
	})
}

// A refused upload is not read, and its answer arrives all the same, whole, before the connection ends.
func TestH1RefusedUpload(t *testing.T) {
	r := newRig(t)
	o := r.originOf("h1up.test", []string{"http/1.1"}, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Methods = []string{"GET"}
	}})
	for range 10 {
		c := r.rawConn(o, true)
		go func() {
			_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", o.hostport(), 1<<20)
			_, _ = c.Write(make([]byte, 1<<20))
		}()
		resp, b := h1Answer(t, bufio.NewReader(c), "POST")
		if resp.StatusCode != http.StatusMethodNotAllowed || !resp.Close || !strings.Contains(b, "method-denied") {
			t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, b)
		}
	}
}

// Shutdown closes the connections that wait, at once; a request under way is answered, and told that its connection ends.
func TestH1Shutdown(t *testing.T) {
	r := newRig(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	o := r.originOf("h1stop.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			asked <- struct{}{}
			<-release
		}
		hello(w, req)
	})
	r.start(rigOptions{rules: ignoring})
	idle, busy := r.rawConn(o, true), r.rawConn(o, true)
	head := "GET %s HTTP/1.1\r\nHost: " + o.hostport() + "\r\n\r\n"
	fmt.Fprintf(idle, head, "/")
	br := bufio.NewReader(idle)
	h1Answer(t, br, "GET")
	fmt.Fprintf(busy, head, "/slow")
	<-asked
	done := make(chan error, 1)
	go func() { done <- r.gate.Shutdown(context.Background()) }()
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("the connection that waits: %v", err)
	}
	close(release)
	resp, b := h1Answer(t, bufio.NewReader(busy), "GET")
	if resp.StatusCode != 200 || b != "hello" || !resp.Close {
		t.Errorf("the one under way: %d %q %v", resp.StatusCode, b, resp.Header)
	}
	must(t, <-done)
}

// A WebSocket is waited for last: meanwhile tunnels of either protocol end as they fall idle, and nothing is reported as
// overdue.
func TestH1ShutdownBesideAWebSocket(t *testing.T) {
	r := newRig(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	o := r.rawTLS("ws.test", []string{"http/1.1"}, func(c *tls.Conn) {
		if _, err := readHead(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(c, c)
		}
	})
	slow := r.originOf("slow.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-release
		hello(w, req)
	})
	r.start(rigOptions{rules: ignoring})
	ws := r.rawConn(o, true)
	fmt.Fprintf(ws, upgradeHead, o.hostport())
	wsr := bufio.NewReader(ws)
	if head, err := readHead(wsr); err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatalf("%q %v", head, err)
	}
	got := make(chan string, 1)
	go func() {
		_, b := r.get(r.client(true), slow.url("https", "/"))
		got <- b
	}()
	<-asked
	done := make(chan error, 1)
	go func() { done <- r.gate.Shutdown(context.Background()) }()
	<-r.gate.drain.stopped.Done()
	close(release)
	if b := <-got; b != "hello" {
		t.Errorf("over HTTP/2: %q", b)
	}
	r.until("all tunnels but the WebSocket's to end", func() bool { return r.gate.Tunnels() == 1 })
	select {
	case err := <-done:
		t.Fatalf("it did not wait for the WebSocket: %v", err)
	default:
	}
	if _, err := io.WriteString(ws, "still"); err != nil {
		t.Error(err)
	}
	if b := make([]byte, 5); true {
		if _, err := io.ReadFull(wsr, b); err != nil || string(b) != "still" {
			t.Errorf("%q %v", b, err)
		}
	}
	ws.Close()
	must(t, <-done)
}

// FuzzH1 sends what nobody should into a tunnel whose every request is refused: whatever comes back is a row of whole
// answers, each with a reason, and the connection ends when its fetcher has.
func FuzzH1(f *testing.F) {
	for _, c := range ambiguous {
		f.Add([]byte(strings.NewReplacer("TARGET", "/", "HOST", "fuzz.test").Replace(c.request)))
	}
	get := "GET / HTTP/1.1\r\nHost: fuzz.test\r\n\r\n"
	for _, s := range []string{
		get + get, "POST / HTTP/1.1\r\nHost: fuzz.test\r\nContent-Length: 3\r\n\r\nabc" + get, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: fuzz.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n" + get,
		"GET / HTTP/1.1\r\nHost: fuzz.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x01a", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HEAD / HTTP/1.1\r\nHost: fuzz.test\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", "\r\n\r\n" + get,
	} {
		f.Add([]byte(s))
	}
	r := newRig(f)
	r.quiet = true
	o := r.origin("fuzz.test", false, "User-agent: *\nDisallow: /\n", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = time.Second }})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || !isTokenByte(in[0]) {
			return // another protocol
		}
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", o.hostport())
		br := bufio.NewReader(c)
		if resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		go func() {
			_, _ = c.Write(in)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		out, err := io.ReadAll(br)
		if err != nil && isTimeout(err) {
			t.Fatalf("still open after %q: %q", in, out)
		}
		head := bytes.HasPrefix(in, []byte("HEAD "))
		for rest := bufio.NewReader(bytes.NewReader(out)); ; {
			if _, err := rest.Peek(1); err != nil {
				return
			}
			method := http.MethodGet
			if head {
				method = http.MethodHead
			}
			resp, err := http.ReadResponse(rest, &http.Request{Method: method})
			if err != nil {
				t.Fatalf("%v in %q after %q", err, out, in)
			}
			if resp.StatusCode == http.StatusProcessing {
				continue // it has ended its direction
			}
			head = false
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode < 400 || resp.Header.Get("Crawlgate-Reason") == "" {
				t.Fatalf("%v: %d %v %q after %q", err, resp.StatusCode, resp.Header, b, in)
			}
			if bytes.Contains(in, []byte("HEAD ")) {
				return // which of the answers have no body is not known here
			}
		}
	})
}
