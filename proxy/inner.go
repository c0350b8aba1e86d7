package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// innerListener hands connections that were accepted, authenticated and decrypted elsewhere to the standard
// library's server, which brings HTTP/1.1 and HTTP/2, time limits and graceful shutdown.
type innerListener struct {
	ch     chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInnerListener() *innerListener {
	return &innerListener{ch: make(chan net.Conn), closed: make(chan struct{})}
}

// push gives one connection to the server; after Close it closes the connection.
func (l *innerListener) push(c net.Conn) {
	select {
	case l.ch <- c:
	case <-l.closed:
		c.Close()
	}
}

// Accept returns the next pushed connection.
func (l *innerListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *innerListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr names the listener in logs.
func (l *innerListener) Addr() net.Addr { return innerAddr{} }

type innerAddr struct{}

func (innerAddr) Network() string { return "tunnel" }
func (innerAddr) String() string  { return "tunnel" }

// answerListener wraps what the outer listener accepts, so that malformed requests get our answer too.
type answerListener struct {
	net.Listener
	gate *Gate
	via  *listenerOf
}

// Accept returns the next connection.
func (l *answerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a := &answerConn{Conn: c, gate: l.gate, via: l.via}
	stall := l.gate.rules().Server.StallTimeout
	a.stall.Store(int64(stall))
	if stall > 0 {
		unacknowledged(c, max(stall, 2*time.Second)) // no less: a packet may be lost
	}
	return a, nil
}

// answerConn stands between the standard server and a connection. What the server cannot parse it answers by one
// fixed write before any handler runs, without a reason, a request id or an audit event. Such an answer is known by
// its fields (a handler's answer always has Date) and is replaced by ours.
type answerConn struct {
	net.Conn
	gate  *Gate
	via   *listenerOf
	heads headScan
	stall atomic.Int64 // nanoseconds one write may take; 0: no limit

	tunnel atomic.Bool // the CONNECT's head has come whole
	stops  atomic.Bool // the deadline for reads is there to stop a read
	late   atomic.Bool // its head was too slow and was answered; nothing more is written
}

// The fields net/http puts on the answers it writes by itself (net/http/server.go, conn.serve).
var (
	bareFields  = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	barePrefix  = []byte("HTTP/1.1 ")
	bareMaximum = 1024
)

func (c *answerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heads.off {
		c.heads.scan(p[:n])
	}
	if err != nil && timedOut(err) && !c.stops.Load() && (c.heads.begun() || c.heads.connect && !c.tunnel.Load()) && c.late.CompareAndSwap(false, true) {
		// The server says nothing to a head that did not come in time, or that it is malformed, by where it broke off.
		_ = c.Conn.SetWriteDeadline(time.Now().Add(lingering))
		_, _ = c.Conn.Write(c.gate.answerMalformed(nil, c.RemoteAddr(), headTooSlow))
	}
	return n, err
}

// SetReadDeadline bounds reads. The server ends a read that it does not want any more by a deadline long past.
func (c *answerConn) SetReadDeadline(t time.Time) error {
	c.stops.Store(!t.IsZero() && time.Since(t) > time.Hour)
	return c.Conn.SetReadDeadline(t)
}

// bareLine is the status and text of an answer that the server makes by itself, or "".
func bareLine(p []byte) string {
	if len(p) >= bareMaximum || !bytes.HasPrefix(p, []byte("HTTP/1.")) || len(p) < len("HTTP/1.1 400") {
		return ""
	}
	if i := bytes.Index(p, bareFields); i > 0 && bytes.IndexByte(p[:i], '\r') < 0 && bytes.HasPrefix(p, barePrefix) {
		return string(p[len(barePrefix):i])
	}
	// An expectation it does not know is refused before any handler too, by an answer that has a Date.
	if rest := p[len(barePrefix):]; bytes.HasPrefix(rest, []byte("417 ")) && !bytes.Contains(p, []byte("\r\nCrawlgate-Request-Id: ")) {
		line, _, _ := bytes.Cut(rest, []byte("\r"))
		return string(line)
	}
	return ""
}

func (c *answerConn) Write(p []byte) (int, error) {
	if c.late.Load() {
		return 0, net.ErrClosed
	}
	if line := bareLine(p); line != "" {
		if _, err := c.Conn.Write(c.gate.answerMalformed(nil, c.RemoteAddr(), malformedAs(line))); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	// A fetcher that does not read must not hold a goroutine for ever. Every write of every tunnel ends here too.
	if d := c.stall.Load(); d == writesNothing {
		return 0, net.ErrClosed
	} else if d > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Duration(d)))
	}
	n, err := c.Conn.Write(p)
	if err != nil && timedOut(err) {
		c.forget()
	}
	return n, err
}

// forget makes the coming close a reset. After a usual one the system would go on for minutes to offer megabytes to a
// fetcher that does not read.
func (c *answerConn) forget() {
	if t := tcpUnder(c.Conn); t != nil {
		_ = t.SetLinger(0)
	}
}

// tcpUnder finds the TCP connection of an accepted one, which a listener with TLS has wrapped.
func tcpUnder(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	t, _ := c.(*net.TCPConn)
	return t
}

// writesNothing, as the time a write may take, keeps even a close_notify in.
const writesNothing = -1

// patience sets how long one write to the fetcher behind c may take; 0: no limit.
func patience(c net.Conn, d time.Duration) {
	if a := outermost(c); a != nil {
		a.stall.Store(int64(d))
	}
}

// resetOnClose makes the coming close of the fetcher's connection a reset, without close_notify: an HTTP/1.0 fetcher
// takes any other end for the end of the body.
func resetOnClose(c net.Conn) {
	a := outermost(c)
	if a == nil {
		return
	}
	a.stall.Store(writesNothing)
	a.forget()
}

// outermost finds the connection that the proxy's listener accepted under c.
func outermost(c net.Conn) *answerConn {
	for c != nil {
		switch t := c.(type) {
		case *answerConn:
			return t
		case *tls.Conn:
			c = t.NetConn()
		case *tunnelConn:
			c = t.Conn
		case *firstByteConn:
			c = t.Conn
		case *replayConn:
			c = t.Conn
		default:
			return nil
		}
	}
	return nil
}

// CloseWrite lets the server half-close, so that the client can read an early answer.
func (c *answerConn) CloseWrite() error {
	return closeWrite(c.Conn)
}

// malformedAs is the fault that the standard server answers by line: the status and text of its own answer.
func malformedAs(line string) *malformed {
	switch status, text, _ := strings.Cut(line, " "); status {
	case "400":
		if strings.Contains(text, "malformed Host") {
			return &malformed{http.StatusBadRequest, "host_malformed"}
		}
	case "417":
		return &malformed{http.StatusExpectationFailed, "request_expect"}
	case "431":
		return &malformed{http.StatusRequestHeaderFieldsTooLarge, "header_too_large"}
	case "501":
		return &malformed{http.StatusNotImplemented, "request_framing"}
	case "505":
		return &malformed{http.StatusHTTPVersionNotSupported, "request_version"}
	}
	return &malformed{http.StatusBadRequest, "request_malformed"}
}

// malformedDetails says what is wrong, where there is more to say than that it is malformed.
var malformedDetails = map[string]string{
	"header_timeout":   "The request's head did not come whole in time (server.read_head). Send it at once.",
	"header_too_large": "The request's head is too large (server.head_bytes). Send less.",
	"request_version":  "This version of HTTP is not spoken here. Use HTTP/1.1.",
	"request_framing":  "Of transfer codings only chunked is served. Send the body with it, or with Content-Length.",
	"request_expect":   "This expectation is not known. Send 100-continue, or no Expect field.",
	"host_malformed":   "The Host field names no host. Send the host that the request is for.",
}

// answerMalformed builds the whole answer for a request that could not be parsed, and records it.
func (g *Gate) answerMalformed(t *tunnel, from net.Addr, no *malformed) []byte {
	x := g.beginBare(t, from)
	resp := x.refuse(&refusal{code: BadRequest, status: no.status, class: no.class, detail: malformedDetails[no.class]})
	resp.Header.Set("Connection", "close")
	resp.Header.Set("Date", httpDate())
	var b bytes.Buffer
	if err := resp.Write(&b); err != nil && !errors.Is(err, net.ErrClosed) {
		g.log.Error("write malformed answer", "error", err)
	}
	return b.Bytes()
}
