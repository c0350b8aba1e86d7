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
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// h1Conn serves HTTP/1.1 on one connection, of the proxy's port or inside a tunnel: one request after the other, in one
// goroutine, with a buffer only while there is something to read, since most tunnels idle. Reading a request is readH1,
// framing an answer is h1Response. docs/decisions/0005 has the reasons.
type h1Conn struct {
	g      *Gate
	tunnel *tunnel     // nil on the proxy's port
	via    *listenerOf // which port; nil in a tunnel
	conn   net.Conn
	remote string // the fetcher's address and port
	tls    bool   // in the tunnel
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
	g.startH1(&h1Conn{g: g, tunnel: t, conn: conn, remote: t.remote, tls: secure})
}

func (g *Gate) startH1(c *h1Conn) {
	c.in = newH1Reader(c.conn)
	if !g.h1.add(c) {
		c.conn.Close()
		return
	}
	go c.serve() // on a stack of its own: the one that made a tunnel's handshake is deep, and tunnels idle for long
}

// id is what the log knows the connection by.
func (c *h1Conn) id() string {
	if c.tunnel == nil {
		return ""
	}
	return c.tunnel.id
}

func (c *h1Conn) serve() {
	hijacked := false
	defer func() {
		if v := recover(); v != nil {
			c.g.log.Error("connection panicked", "request_id", c.id(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
		c.g.h1.remove(c)
		if !hijacked {
			c.conn.Close()
		}
	}()
	for first := true; ; first = false {
		if err := c.await(first); err != nil {
			c.notTLS(err)
			return
		}
		if !c.state.CompareAndSwap(h1Idle, h1Active) {
			return
		}
		r, no := c.read()
		if r == nil {
			if no != nil {
				c.answerMalformed(no)
			}
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

// await waits for the first byte of a request. The first request of a connection must begin within the time for a head, the
// next ones within the idle time.
func (c *h1Conn) await(first bool) error {
	if c.br != nil && c.br.Buffered() > 0 {
		return nil // the next one came along with the last
	}
	c.giveReader()
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
	return c.in.awaitByte()
}

func (c *h1Conn) giveReader() {
	if c.br != nil {
		c.br.Reset(nil)
		h1Readers.Put(c.br)
		c.br = nil
	}
}

// read takes a request. It returns neither a request nor a fault when the connection ended.
func (c *h1Conn) read() (*http.Request, *malformed) {
	s := &c.g.rules().Server
	if c.br == nil {
		c.br = h1Readers.Get().(*bufio.Reader)
		c.br.Reset(c.in)
	}
	if s.ReadHead > 0 {
		_ = c.conn.SetReadDeadline(time.Now().Add(s.ReadHead))
	}
	limit := s.HeadBytes
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	r, begun, err := readH1(c.br, limit)
	var no *malformed
	switch {
	case err == nil:
		_ = c.conn.SetReadDeadline(time.Time{})
		r.RemoteAddr = c.remote
		return r, nil
	case errors.As(err, &no):
		return nil, no
	case begun && timedOut(err):
		return nil, headTooSlow
	case begun && err == io.EOF:
		return nil, headMalformed // it breaks off: who has closed one direction still reads the other
	}
	return nil, nil
}

// answerMalformed answers what could not be parsed, and reads on for a moment so that the answer arrives.
func (c *h1Conn) answerMalformed(no *malformed) {
	if _, err := c.conn.Write(c.g.answerMalformed(c.tunnel, c.conn.RemoteAddr(), no)); err == nil {
		c.linger()
	}
}

// handle serves one request and reports whether the connection goes on, or is no longer ours.
func (c *h1Conn) handle(r *http.Request) (keep, hijacked bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &h1Response{c: c, r: r, left: -1}
	w.bw = h1Writers.Get().(*bufio.Writer)
	w.bw.Reset(c.conn)
	if r.ContentLength != 0 && r.Body != nil {
		w.body = &h1Body{c: c, w: w, src: r.Body, expects: strings.EqualFold(r.Header.Get("Expect"), "100-continue") && r.ProtoAtLeast(1, 1)}
		r.Body = w.body
	}
	c.in.watch(cancel, w, w.body == nil)
	ended := c.run(ctx, w)
	if w.hijacked {
		return false, true
	}
	c.in.unwatch()
	if ended {
		ended = w.finish() == nil
	}
	w.giveWriter()
	if !ended {
		return false, false
	}
	if w.body != nil && !w.body.end() || w.closes {
		if w.body != nil {
			c.linger()
		}
		return false, false
	}
	if (r.Header["Upgrade"] != nil || r.Method == http.MethodConnect) && c.br.Buffered() > 0 {
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
				c.g.log.Error("request panicked", "request_id", c.id(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			}
		}
	}()
	in := &inbound{ctx: ctx, r: w.r, tunnel: c.tunnel, via: c.via, conn: c.conn, secure: c.tls}
	if c.tunnel != nil {
		c.tunnel.requests.Add(1)
	} else if w.r.Method == http.MethodConnect {
		c.g.connector.connect(w, in)
		return false // the connection is a tunnel's now, or ends
	}
	c.g.forward(w, in)
	return true
}

// notTLS answers who speaks plain HTTP to a port that speaks TLS, where that is why nothing could be read.
func (c *h1Conn) notTLS(err error) {
	var other tls.RecordHeaderError
	if !errors.As(err, &other) || other.Conn == nil || other.RecordHeader[0] < 'A' || other.RecordHeader[0] > 'Z' {
		return
	}
	_ = other.Conn.SetWriteDeadline(time.Now().Add(lingering))
	if _, err := other.Conn.Write(c.g.answerMalformed(nil, c.conn.RemoteAddr(), headNotTLS)); err == nil {
		lingerOn(other.Conn)
	}
}

// linger ends our side and reads what the fetcher still sends, for a moment.
func (c *h1Conn) linger() { lingerOn(c.conn) }

func lingerOn(c net.Conn) {
	if closeWrite(c) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, c, lingeringBytes)
}
