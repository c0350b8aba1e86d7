package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// port serves a second port of the gate until the test ends.
func (r *rig) port(wrap func(net.Listener) net.Listener) (addr string, ended chan error) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	addr, ended = l.Addr().String(), make(chan error, 1)
	go func() { ended <- r.gate.Serve(wrap(l), "") }()
	return addr, ended
}

// A port that speaks TLS serves requests and tunnels; who speaks plain HTTP to it is told so, and recorded.
func TestH1PortWithTLS(t *testing.T) {
	r := newRig(t)
	secure, plain := r.origin("tlsport.test", true, "", hello), r.origin("tlsportplain.test", false, "", hello)
	r.start(rigOptions{rules: ignoring})
	addr, _ := r.port(func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{r.originCA.leaf(t, "proxy.test")}, NextProtos: []string{"http/1.1"}})
	})
	dial := func() *tls.Conn {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		return c
	}
	c := dial()
	br := bufio.NewReader(c)
	for range 2 {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", plain.url("http", "/"), plain.hostport())
		if resp, b := h1Answer(t, br, "GET"); resp.StatusCode != 200 || b != "hello" {
			t.Errorf("%d %q", resp.StatusCode, b)
		}
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", secure.hostport())
	if resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	inner := tls.Client(c, r.trust(secure.name))
	fmt.Fprintf(inner, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", secure.hostport())
	if resp, b := h1Answer(t, bufio.NewReader(inner), "GET"); resp.StatusCode != 200 || b != "hello" {
		t.Errorf("in a tunnel: %d %q", resp.StatusCode, b)
	}
	// A half-close is TLS's: without an end of the TCP connection.
	c = dial()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", plain.url("http", "/"), plain.hostport())
	must(t, c.CloseWrite())
	if b, _ := io.ReadAll(c); !strings.Contains(string(b), "HTTP/1.1 200 ") {
		t.Errorf("half-closed: %q", b)
	}
	for _, head := range []string{"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("tcp", addr)
		must(t, err)
		_, _ = io.WriteString(c, head)
		resp, b := h1Answer(t, bufio.NewReader(c), "GET")
		if p := problemOf(t, resp, b, 400, BadRequest); p.Class != "plain_http" || !strings.Contains(p.Detail, "https://") || !resp.Close {
			t.Errorf("plain HTTP: %+v", p)
		}
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Class != "plain_http" {
			t.Errorf("event %s", ev.Class)
		}
		c.Close()
	}
	other, err := net.Dial("tcp", addr)
	must(t, err)
	_, _ = other.Write([]byte{0x80, 0x2e, 1, 3, 1})
	_ = other.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(other); isTimeout(err) || len(b) > 7 {
		t.Errorf("garbage: %q %v", b, err)
	}
}

// The port's own answers: to a request for itself, and OPTIONS *; the connection goes on.
func TestH1PortForItself(t *testing.T) {
	r := newRig(t)
	o := r.origin("own.test", false, "", hello)
	r.start(rigOptions{rules: ignoring})
	c := r.rawConn(o, false)
	br := bufio.NewReader(c)
	for _, line := range []string{"GET / HTTP/1.1", "OPTIONS * HTTP/1.1", "GET /a%zz HTTP/1.1"} {
		fmt.Fprintf(c, "%s\r\nHost: %s\r\n\r\n", line, r.addr)
		resp, b := h1Answer(t, br, "GET")
		if p := problemOf(t, resp, b, 400, BadRequest); p.Class != "not_a_proxy_request" || !strings.Contains(p.Detail, "proxy port") || resp.Close {
			t.Errorf("%s: %+v", line, p)
		}
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", o.url("http", "/"))
	if resp, b := h1Answer(t, br, "GET"); resp.StatusCode != 200 || b != "hello" {
		t.Errorf("%d %q", resp.StatusCode, b)
	}
	// A refused CONNECT ends its connection.
	fmt.Fprint(c, "CONNECT own.test HTTP/1.1\r\n\r\n")
	if resp, _ := h1Answer(t, br, "GET"); resp.StatusCode != 400 || !resp.Close {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("then %v", err)
	}
}

// A CONNECT and what follows it may come in one piece, however large.
func TestH1PortEarlyBytes(t *testing.T) {
	r := newRig(t)
	o := r.origin("earlybytes.test", false, "", hello)
	r.start(rigOptions{rules: ignoring})
	for _, n := range []int{1, 100, 4 << 10, 10 << 10} {
		c := r.rawConn(o, false)
		_, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: %[1]s\r\nX: %s\r\n\r\n", o.hostport(), strings.Repeat("x", n))
		must(t, err)
		br := bufio.NewReader(c)
		if resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		if resp, b := h1Answer(t, br, "GET"); resp.StatusCode != 200 || b != "hello" {
			t.Errorf("%d: %d %q", n, resp.StatusCode, b)
		}
	}
}

// Shutdown closes the port, and its connections that wait, at once; a request under way is answered.
func TestH1PortShutdown(t *testing.T) {
	r := newRig(t)
	asked, release := make(chan struct{}), make(chan struct{})
	o := r.origin("portstop.test", false, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			asked <- struct{}{}
			<-release
		}
		hello(w, req)
	})
	r.start(rigOptions{rules: ignoring})
	_, ended := r.port(func(l net.Listener) net.Listener { return l })
	fresh, idle, busy := r.rawConn(o, false), r.rawConn(o, false), r.rawConn(o, false)
	br := bufio.NewReader(idle)
	fmt.Fprintf(idle, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", o.url("http", "/"))
	h1Answer(t, br, "GET")
	fmt.Fprintf(busy, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", o.url("http", "/slow"))
	<-asked
	r.until("all to be accepted", func() bool {
		r.gate.h1.mu.Lock()
		defer r.gate.h1.mu.Unlock()
		return len(r.gate.h1.all) == 3
	})
	done := make(chan error, 1)
	go func() { done <- r.gate.Shutdown(context.Background()) }()
	for name, c := range map[string]io.Reader{"waits": br, "is new": fresh} {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection that %s: %v", name, err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("the port: %v", err)
	}
	if _, err := net.Dial("tcp", r.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it still takes connections: %v", err)
	}
	close(release)
	if resp, b := h1Answer(t, bufio.NewReader(busy), "GET"); resp.StatusCode != 200 || b != "hello" || !resp.Close {
		t.Errorf("the one under way: %d %q %v", resp.StatusCode, b, resp.Header)
	}
	must(t, <-done)
	// A port that comes late is closed.
	_, ended = r.port(func(l net.Listener) net.Listener { return l })
	must(t, <-ended)
}

// A shutdown whose time is over cuts what is under way.
func TestH1PortShutdownCuts(t *testing.T) {
	r := newRig(t)
	asked := make(chan struct{})
	o := r.origin("portcut.test", false, "", func(_ http.ResponseWriter, req *http.Request) {
		close(asked)
		<-req.Context().Done()
	})
	r.start(rigOptions{rules: ignoring})
	c := r.rawConn(o, false)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", o.url("http", "/"))
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.gate.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if b, err := io.ReadAll(c); isTimeout(err) || len(b) > 0 {
		t.Errorf("%q %v", b, err)
	}
}

// starved is a port that for a while cannot accept.
type starved struct {
	net.Listener
	left atomic.Int64
	then error
}

func (s *starved) Accept() (net.Conn, error) {
	if s.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	if s.then != nil {
		return nil, s.then
	}
	return s.Listener.Accept()
}

// A port that runs out of descriptors goes on when there are some again; another fault ends it.
func TestH1PortOutOfDescriptors(t *testing.T) {
	r := newRig(t)
	o := r.origin("emfile.test", false, "", hello)
	r.start(rigOptions{rules: ignoring})
	var s *starved
	addr, _ := r.port(func(l net.Listener) net.Listener { s = &starved{Listener: l}; s.left.Store(3); return s })
	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", o.url("http", "/"))
	if resp, b := h1Answer(t, bufio.NewReader(c), "GET"); resp.StatusCode != 200 || b != "hello" || s.left.Load() >= 0 {
		t.Errorf("%d %q", resp.StatusCode, b)
	}
	_, ended := r.port(func(l net.Listener) net.Listener { return &starved{Listener: l, then: io.ErrClosedPipe} })
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// HTTP/1.0 on the port: kept where it asks for that.
func TestH1PortVersion10(t *testing.T) {
	r := newRig(t)
	o := r.origin("port10.test", false, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
	})
	r.start(rigOptions{rules: ignoring})
	c := r.rawConn(o, false)
	br := bufio.NewReader(c)
	for _, keep := range []bool{true, true, false} {
		field := ""
		if keep {
			field = "Connection: Keep-Alive\r\n"
		}
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\n%s\r\n", o.url("http", "/"), field)
		if resp, b := h1Answer(t, br, "GET"); resp.StatusCode != 200 || b != "hello" || resp.Close == keep {
			t.Errorf("keep=%v: %d %q %v", keep, resp.StatusCode, b, resp.Header)
		}
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("then %v", err)
	}
}

// Who is refused a CONNECT may have sent more than its head: a ClientHello, or a body. It gets the answer whole all the same.
func TestConnectRefusedUnread(t *testing.T) {
	r := newRig(t)
	r.start(rigOptions{})
	for range 20 {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		_, err = fmt.Fprintf(c, "CONNECT a.test:1 HTTP/1.1\r\nHost: a.test:1\r\nContent-Length: 100000\r\n\r\n")
		must(t, err)
		_, _ = c.Write(make([]byte, 100000))
		<-time.After(10 * time.Millisecond)
		all, err := io.ReadAll(c)
		if !strings.HasPrefix(string(all), "HTTP/1.1 400 ") || !strings.HasSuffix(string(all), "}\n") || err != nil {
			t.Fatalf("%q %v", all, err)
		}
		c.Close()
	}
}
