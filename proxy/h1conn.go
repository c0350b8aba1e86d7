package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// h1Conn serves HTTP/1.1 inside one tunnel: one request after the other, in one goroutine. It is the data path of
// every intercepted HTTP/1.1 request, and most tunnels idle: the standard library's server reads ahead in a goroutine for
// each request and keeps two buffers for each idle connection. Reading a message is still the library's
// (http.ReadRequest); framing an answer is h1Response. docs/decisions/0005 has the reasons.
type h1Conn struct {
	g      *Gate
	tunnel *tunnel
	conn   net.Conn
	tls    bool
	in     *h1Reader
	br     *bufio.Reader // over in; nil while nothing is there to read
	state  atomic.Int32
}

// States of a connection: Shutdown closes those that wait for a request.
const (
	h1Idle int32 = iota
	h1Active
	h1Closed
)

const (
	// lingering is how long a connection that ends is read on, so that a fetcher that still sends can read the answer:
	// closing at once would reset the connection and lose it (RFC 9112 9.6).
	lingering      = 500 * time.Millisecond
	lingeringBytes = 256 << 10
)

var (
	h1Readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}
	h1Writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}
)

// serveH1 serves the requests in a tunnel until it ends. It returns at once; the registry of connections is the owner
// of the goroutine.
func (g *Gate) serveH1(conn net.Conn, t *tunnel, secure bool) {
	c := &h1Conn{g: g, tunnel: t, conn: conn, tls: secure}
	c.in = newH1Reader(conn)
	if !g.h1.add(c) {
		conn.Close()
		return
	}
	go c.serve() // on a stack of its own: the one that made the handshake is deep, and tunnels idle for long
}

func (c *h1Conn) serve() {
	hijacked := false
	defer func() {
		if v := recover(); v != nil {
			c.g.log.Error("tunnel panicked", "request_id", c.tunnel.id, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
		c.g.h1.remove(c)
		if !hijacked {
			c.conn.Close()
		}
	}()
	for first := true; c.await(first); first = false {
		if !c.state.CompareAndSwap(h1Idle, h1Active) {
			return
		}
		r, no := c.read()
		if no != nil {
			c.answerMalformed(no)
			return
		}
		if r == nil {
			return
		}
		var keep bool
		if keep, hijacked = c.handle(r); !keep {
			return
		}
		if !c.state.CompareAndSwap(h1Active, h1Idle) {
			return
		}
		// A shutdown that began since handle looked has passed this connection by: it was active then.
		if c.g.drain.draining() {
			return
		}
	}
}

// await waits for the first byte of a request and reports whether there is one. The first request of a connection must
// begin within the time for a head, the next ones within the idle time.
func (c *h1Conn) await(first bool) bool {
	if c.br != nil && c.br.Buffered() > 0 {
		return true // the next one came along with the last
	}
	c.giveReader()
	c.in.heads = headScan{}
	s := &c.g.rules().Server
	wait := s.Idle
	if first || wait <= 0 {
		wait = s.ReadHead
		if !first {
			wait = 0
		}
	}
	var by time.Time
	if wait > 0 {
		by = time.Now().Add(wait)
	}
	_ = c.conn.SetReadDeadline(by)
	return c.in.awaitByte() == nil
}

func (c *h1Conn) giveReader() {
	if c.br != nil {
		c.br.Reset(nil)
		h1Readers.Put(c.br)
		c.br = nil
	}
}

// malformed is why a request's head is refused before anything is known of it.
type malformed struct {
	status int
	class  string
}

// read takes a request's head. It returns neither a request nor a fault when the connection ended.
func (c *h1Conn) read() (*http.Request, *malformed) {
	s := &c.g.rules().Server
	if c.br == nil {
		c.br = h1Readers.Get().(*bufio.Reader)
		c.br.Reset(c.in)
	}
	if s.ReadHead > 0 {
		_ = c.conn.SetReadDeadline(time.Now().Add(s.ReadHead))
	}
	limit := int64(s.HeadBytes)
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	c.in.left = limit + int64(c.br.Size()) // what is buffered of the body counts in
	r, err := http.ReadRequest(c.br)
	exhausted := c.in.left <= 0
	c.in.left = h1NoLimit
	if err != nil {
		return nil, c.fault(err, exhausted)
	}
	if no := c.acceptable(r); no != nil {
		return nil, no
	}
	_ = c.conn.SetReadDeadline(time.Time{})
	return r, nil
}

// fault tells a head that cannot be understood from a connection that ended.
func (c *h1Conn) fault(err error, exhausted bool) *malformed {
	var late net.Error
	var op *net.OpError
	switch {
	case exhausted:
		return &malformed{http.StatusRequestHeaderFieldsTooLarge, "header_too_large"}
	case c.in.heads.coding == codingUnknown && !c.in.heads.spoilt:
		return &malformed{http.StatusNotImplemented, "request_framing"}
	case errors.As(err, &late) && late.Timeout():
		return &malformed{http.StatusRequestTimeout, "header_timeout"}
	case errors.Is(err, io.EOF), errors.As(err, &op), errors.Is(err, net.ErrClosed):
		return nil
	}
	// Also a head that breaks off: who has closed one direction still reads the other.
	return &malformed{http.StatusBadRequest, "request_malformed"}
}

// acceptable checks what http.ReadRequest leaves to servers (RFC 9112 2.3, 3.2; RFC 9110 5.1, 5.5).
func (c *h1Conn) acceptable(r *http.Request) *malformed {
	if r.ProtoMajor != 1 {
		return &malformed{http.StatusHTTPVersionNotSupported, "request_version"}
	}
	if r.ProtoAtLeast(1, 1) && c.in.heads.followed && !c.in.heads.named {
		return &malformed{http.StatusBadRequest, "request_malformed"} // no Host
	}
	if e := r.Header.Get("Expect"); e != "" && !strings.EqualFold(e, "100-continue") {
		return &malformed{http.StatusExpectationFailed, "request_expect"} // RFC 9110 10.1.1
	}
	if !httpguts.ValidHostHeader(r.Host) {
		return &malformed{http.StatusBadRequest, "host_malformed"}
	}
	for k, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(k) {
			return &malformed{http.StatusBadRequest, "request_malformed"}
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return &malformed{http.StatusBadRequest, "request_malformed"}
			}
		}
	}
	return nil
}

// answerMalformed answers what could not be parsed, and reads on for a moment so that the answer arrives.
func (c *h1Conn) answerMalformed(no *malformed) {
	if _, err := c.conn.Write(c.g.answerMalformed(c.tunnel, c.conn.RemoteAddr(), no)); err == nil {
		c.linger()
	}
}

// handle serves one request and reports whether the connection goes on, or is no longer ours.
func (c *h1Conn) handle(r *http.Request) (keep, hijacked bool) {
	r.RemoteAddr = c.tunnel.remote
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &h1Response{c: c, r: r, left: -1}
	w.bw = h1Writers.Get().(*bufio.Writer)
	w.bw.Reset(c.conn)
	if r.ContentLength != 0 && r.Body != nil {
		w.body = &h1Body{c: c, w: w, src: r.Body, expects: strings.EqualFold(r.Header.Get("Expect"), "100-continue") && r.ProtoAtLeast(1, 1)}
		r.Body = w.body
	}
	c.in.watch(cancel, w.body == nil)
	ended := c.run(ctx, w)
	if w.hijacked {
		return false, true
	}
	c.in.unwatch()
	if ended {
		ended = w.finish() == nil
	}
	w.bw.Reset(nil)
	h1Writers.Put(w.bw)
	w.bw = nil
	if !ended {
		return false, false
	}
	if w.body != nil && !w.body.end() || w.closes {
		if w.body != nil {
			c.linger()
		}
		return false, false
	}
	if r.Header["Upgrade"] != nil && c.br.Buffered() > 0 {
		return false, false // bytes of the other protocol, whose like no one has looked at
	}
	return !c.g.drain.draining(), false
}

// run calls the path and reports whether the answer is whole; a panic says that it must not look so.
func (c *h1Conn) run(ctx context.Context, w *h1Response) (whole bool) {
	defer func() {
		if v := recover(); v != nil {
			whole = false
			if v != http.ErrAbortHandler { //nolint:errorlint // the very value
				c.g.log.Error("request panicked", "request_id", c.tunnel.id, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			}
		}
	}()
	c.tunnel.requests.Add(1)
	c.g.forward(w, &inbound{ctx: ctx, r: w.r, tunnel: c.tunnel, conn: c.conn, secure: c.tls})
	return true
}

// linger ends our side and reads what the fetcher still sends, for a moment.
func (c *h1Conn) linger() {
	if closeWrite(c.conn) != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, c.conn, lingeringBytes)
}

// h1Conns are the connections being served.
type h1Conns struct {
	mu     sync.Mutex
	all    map[*h1Conn]struct{}
	closed bool
	empty  chan struct{} // closed when the last one ends after the close
}

func newH1Conns() *h1Conns { return &h1Conns{all: map[*h1Conn]struct{}{}, empty: make(chan struct{})} }

func (s *h1Conns) add(c *h1Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[c] = struct{}{}
	return true
}

// remove takes out a connection that has ended, or that is no longer served here (a WebSocket, which the drain waits for
// last).
func (s *h1Conns) remove(c *h1Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[c]; !there {
		return
	}
	delete(s.all, c)
	if s.closed && len(s.all) == 0 {
		close(s.empty)
	}
}

// shutdown closes the connections that wait for a request and waits for the others, which end after their answer.
func (s *h1Conns) shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if len(s.all) == 0 {
			close(s.empty)
		}
	}
	for c := range s.all {
		if c.state.CompareAndSwap(h1Idle, h1Closed) {
			c.conn.Close()
		}
	}
	s.mu.Unlock()
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
