package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crawlgate/audit"
	"crawlgate/policy"
)

// afterInterim reads the final answer, and how many interim ones came before.
func afterInterim(t *testing.T, c net.Conn) (resp *http.Response, body string, interim int) {
	t.Helper()
	br := bufio.NewReader(c)
	for ; ; interim++ {
		resp, body = h1Answer(t, br, "GET")
		if resp.StatusCode >= 200 {
			if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
				t.Errorf("then %q %v", rest, err)
			}
			return resp, body, interim
		}
	}
}

func closeWriteOf(t *testing.T, c net.Conn) {
	t.Helper()
	must(t, closeWrite(c))
}

// A fetcher that sends all it has, ends its direction and waits (nc -N) gets the true answer, however slow the site is with
// its head or its body.
func TestH1HalfClosed(t *testing.T) {
	r := newRig(t)
	slow := func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if req.URL.Path == "/body" {
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
		}
		<-time.After(400 * time.Millisecond)
		_, _ = io.WriteString(w, req.URL.Path)
	}
	secure, plain := r.originOf("half.test", []string{"http/1.1"}, "", slow), r.origin("halfplain.test", false, "", slow)
	r.start(rigOptions{rules: ignoring})
	for _, s := range []struct {
		name string
		o    *origin
		conn func() net.Conn
	}{
		{"on the port", plain, func() net.Conn { return r.rawConn(plain, false) }},
		{"in a tunnel with TLS", secure, func() net.Conn { return r.rawConn(secure, true) }},
		{"in a tunnel without", plain, func() net.Conn { c, _ := r.tunnel(plain.hostport()); return c }},
	} {
		for _, q := range []struct{ name, head, body, want string }{
			{"at once", "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", "/", "/"},
			{"later", "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", "/", "/"},
			{"an upload", "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\n\r\nhello", "/", "/"},
			{"slow body", "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", "/body", "a/body"},
		} {
			t.Run(s.name+", "+q.name, func(t *testing.T) {
				c := s.conn()
				target := q.body
				if s.name == "on the port" {
					target = s.o.url("http", q.body)
				}
				fmt.Fprintf(c, q.head, target, s.o.hostport())
				if q.name == "later" {
					<-time.After(100 * time.Millisecond)
				}
				closeWriteOf(t, c)
				resp, b, interim := afterInterim(t, c)
				if resp.StatusCode != 200 || b != q.want {
					t.Errorf("%d %q", resp.StatusCode, b)
				}
				if q.body == "/" && (interim < 2 || interim > 5 || !resp.Close) {
					t.Errorf("%d interim answers, close %v", interim, resp.Close)
				}
			})
		}
	}
	// All of several requests that came at once.
	c := r.rawConn(plain, false)
	_, err := io.WriteString(c, strings.Repeat(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: h\r\n\r\n", plain.url("http", "/")), 2))
	must(t, err)
	closeWriteOf(t, c)
	all, err := io.ReadAll(c)
	if n := strings.Count(string(all), "HTTP/1.1 200 "); n != 2 || err != nil {
		t.Errorf("%d answers: %q %v", n, all, err)
	}
}

// The wait for a turn is waited for too; and a fetcher that closes leaves the queue at once.
func TestH1HalfClosedInTheQueue(t *testing.T) {
	r := newRig(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	h := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/held" {
			asked <- struct{}{}
			<-release
		}
		hello(w, req)
	}
	secure, plain := r.originOf("queue.test", []string{"http/1.1"}, "", h), r.origin("queueplain.test", false, "", h)
	r.start(rigOptions{rules: func(ru *Rules) {
		ru.Default.Robots.Mode = policy.ModeIgnore
		ru.Default.Pacing.Parallel, ru.Default.Pacing.MaxWait, ru.Default.Limits.Timeout = 1, time.Minute, time.Minute
	}})
	for _, inside := range []bool{true, false} {
		o := secure
		if !inside {
			o = plain
		}
		send := func(path string) net.Conn {
			c := r.rawConn(o, inside)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.target(inside, path), o.hostport())
			return c
		}
		held := send("/held")
		<-asked
		stays, leaves := send("/stays"), send("/leaves")
		r.until("both to wait", func() bool { return r.pacer.Stats().Waiting == 2 })
		closeWriteOf(t, stays)
		<-time.After(300 * time.Millisecond)
		if n := r.pacer.Stats().Waiting; n != 2 {
			t.Fatalf("inside=%v: %d wait after one half-closed", inside, n)
		}
		began := time.Now()
		leaves.Close()
		r.until("the closed one to leave", func() bool { return r.pacer.Stats().Waiting == 1 })
		if d := time.Since(began); d > time.Second {
			t.Errorf("inside=%v: it left after %s", inside, d)
		}
		r.waitEvent("its event", func(e *audit.Event) bool {
			return e.Host == o.name && strings.HasSuffix(e.URL.String(), "/leaves") && e.Reason == "client-gone"
		})
		release <- struct{}{}
		h1Answer(t, bufio.NewReader(held), "GET")
		if resp, b, _ := afterInterim(t, stays); resp.StatusCode != 200 || b != "hello" {
			t.Errorf("inside=%v: the half-closed one got %d %q", inside, resp.StatusCode, b)
		}
	}
	if n := len(plain.requests()) + len(secure.requests()); n != 4 {
		t.Errorf("the sites saw %d requests", n)
	}
}

// The fetcher of an upload that waits leaves as any other, though its end lies behind the body, which nobody reads yet.
func TestH1UploadLeavesTheQueue(t *testing.T) {
	r := newRig(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	h := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/held" {
			asked <- struct{}{}
			<-release
		}
		b, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s got %s", req.URL.Path, b)
	}
	secure, plain := r.originOf("queue.test", []string{"http/1.1"}, "", h), r.origin("queueplain.test", false, "", h)
	r.start(rigOptions{rules: func(ru *Rules) {
		ru.Default.Robots.Mode = policy.ModeIgnore
		ru.Default.Pacing.Parallel, ru.Default.Pacing.MaxWait, ru.Default.Limits.Timeout = 1, time.Minute, time.Minute
		ru.Default.Limits.Methods, ru.Default.Limits.RequestBody = []string{"GET", "POST"}, 1<<20
	}})
	for _, inside := range []bool{true, false} {
		o := secure
		if !inside {
			o = plain
		}
		send := func(path, body string) net.Conn {
			c := r.rawConn(o, inside)
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\n%s", o.target(inside, path), o.hostport(), body)
			return c
		}
		held := send("/held", "Content-Length: 1\r\n\r\n1")
		<-asked
		stays := send("/stays", "Content-Length: 5\r\n\r\nhello")
		halves := send("/halves", "Content-Length: 5\r\n\r\nhello")
		var leave []net.Conn
		for _, body := range []string{
			"Content-Length: 5\r\n\r\nhello", "Content-Length: 9\r\n\r\nhello", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		} {
			leave = append(leave, send("/leaves", body))
		}
		r.until("all to wait", func() bool { return r.pacer.Stats().Waiting == len(leave)+2 })
		<-time.After(100 * time.Millisecond) // some looks
		closeWriteOf(t, halves)
		<-time.After(300 * time.Millisecond)
		if n := r.pacer.Stats().Waiting; n != len(leave)+2 {
			t.Fatalf("inside=%v: %d wait after one half-closed", inside, n)
		}
		began := time.Now()
		for _, c := range leave {
			c.Close()
		}
		r.until("the closed ones to leave", func() bool { return r.pacer.Stats().Waiting == 2 })
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("inside=%v: they left after %s", inside, d)
		}
		r.waitEvent("an event", func(e *audit.Event) bool {
			return e.Host == o.name && strings.HasSuffix(e.URL.String(), "/leaves") && e.Reason == "client-gone" && !e.Sent
		})
		release <- struct{}{}
		h1Answer(t, bufio.NewReader(held), "POST")
		if _, b := h1Answer(t, bufio.NewReader(stays), "POST"); b != "/stays got hello" {
			t.Errorf("inside=%v: the one that stays got %q", inside, b)
		}
		if _, b, _ := afterInterim(t, halves); b != "/halves got hello" {
			t.Errorf("inside=%v: the half-closed one got %q", inside, b)
		}
	}
	if n := len(plain.requests()) + len(secure.requests()); n != 6 {
		t.Errorf("the sites saw %d requests", n)
	}
}

// A tunnel that is passed on unread, and waits for its turn, leaves the queue with its fetcher.
func TestOpaqueLeavesTheQueue(t *testing.T) {
	r := newRig(t)
	var dialled atomic.Int32
	o := r.raw("opaque.test", func(c net.Conn) {
		dialled.Add(1)
		_, _ = io.Copy(c, c)
	})
	r.start(rigOptions{rules: func(ru *Rules) {
		ru.Tunnels = []string{o.name}
		ru.Default.Robots.Mode = policy.ModeIgnore
		ru.Default.Pacing.Parallel, ru.Default.Pacing.MaxWait = 1, time.Minute
	}})
	held, br := r.tunnel(o.hostport())
	fmt.Fprint(held, "x")
	_, err := br.ReadByte()
	must(t, err)
	leaves, _ := r.tunnel(o.hostport())
	fmt.Fprint(leaves, "unread")
	r.until("one to wait", func() bool { return r.pacer.Stats().Waiting == 1 })
	leaves.Close()
	r.until("it to leave", func() bool { return r.pacer.Stats().Waiting == 0 })
	r.waitEvent("its event", func(e *audit.Event) bool { return e.Host == o.name && e.Reason == "client-gone" && !e.Sent })
	held.Close()
	r.until("the other to end", func() bool { return r.gate.Tunnels() == 0 })
	if n := dialled.Load(); n != 1 {
		t.Errorf("the site saw %d connections", n)
	}
}

// One that half-closed and then closes or resets leaves too, also if it has taken all that it was sent until then; an
// HTTP/1.0 fetcher cannot be asked.
func TestH1HalfClosedThenGone(t *testing.T) {
	r := newRig(t)
	asked, gone := make(chan struct{}, 1), make(chan time.Time, 1)
	o := r.origin("gone.test", false, "", func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
		gone <- time.Now()
	})
	r.start(rigOptions{rules: ignoring})
	for _, s := range []struct {
		version string
		leave   func(c *net.TCPConn)
	}{
		{"1.1", func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() }},
		{"1.1", func(c *net.TCPConn) {
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if b, _ := io.ReadAll(c); len(b) == 0 {
				t.Error("nothing was asked")
			}
			c.Close()
		}},
		{"1.0", nil},
	} {
		c := r.rawConn(o, false)
		fmt.Fprintf(c, "GET %s HTTP/%s\r\nHost: h\r\n\r\n", o.url("http", "/"), s.version)
		<-asked
		closeWriteOf(t, c)
		if s.leave != nil {
			<-time.After(100 * time.Millisecond)
			select {
			case <-gone:
				t.Error("it counted as gone while it waited")
			default:
			}
			s.leave(c.(*net.TCPConn))
		}
		select {
		case <-gone:
		case <-time.After(6 * time.Second):
			t.Error("it is still waited for")
		}
		if s.leave == nil {
			if b, _ := io.ReadAll(c); len(b) != 0 {
				t.Errorf("HTTP/1.0 was told %q", b)
			}
		}
	}
}

// A half-close in mid-head leaves a head that is none, and one in mid-body no whole request.
func TestH1HalfClosedTooEarly(t *testing.T) {
	r := newRig(t)
	h := func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err == nil {
			t.Error("the site got a whole request")
		}
		hello(w, req)
	}
	secure, plain := r.originOf("early.test", []string{"http/1.1"}, "", h), r.origin("earlyplain.test", false, "", h)
	r.start(rigOptions{rules: ignoring})
	for _, inside := range []bool{true, false} {
		o := secure
		if !inside {
			o = plain
		}
		for _, head := range []string{"GET", "GET %s HTTP/1.1\r\nHost: %s\r\n", "GET %s HTTP/1.1\r\nHost: %s\r\nX: y"} {
			c := r.rawConn(o, inside)
			_, err := io.WriteString(c, strings.NewReplacer("%s HTTP", o.target(inside, "/")+" HTTP", "%s", o.hostport()).Replace(head))
			must(t, err)
			closeWriteOf(t, c)
			resp, b, _ := afterInterim(t, c)
			if p := problemOf(t, resp, b, 400, BadRequest); p.Class != "request_malformed" {
				t.Errorf("%q: class %s", head, p.Class)
			}
		}
		c := r.rawConn(o, inside)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 9\r\n\r\nhello", o.target(inside, "/"), o.hostport())
		closeWriteOf(t, c)
		_, _ = io.ReadAll(c)
		r.waitEvent("the cut upload", func(e *audit.Event) bool { return e.Host == o.name && e.Class == "client_left_upload" })
	}
}
