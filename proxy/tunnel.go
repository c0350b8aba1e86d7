package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"crawlgate/proxy/guard"
)

var (
	errNotHere   = errors.New("nothing is dialled here")
	errNotTunnel = errors.New("not a tunnel connection")
)

func noDial(context.Context, string, string) (net.Conn, error) { return nil, errNotHere }

// tunnel is one accepted CONNECT: who asked, and for which host. Every request inside is judged by itself, with the
// tunnel's host and port.
type tunnel struct {
	gate   *Gate
	id     string // request id of the CONNECT
	host   guard.Host
	port   uint16
	client *identity
	remote string // the fetcher's address and port
	opened time.Time

	requests atomic.Int64           // requests that arrived inside
	counted  sync.Once              // taken off the count of open tunnels
	misnamed atomic.Pointer[string] // the server name of a ClientHello that is not the tunnel's host
}

// tunnelConn is the client's connection with its tunnel; handshakes and requests find the tunnel through it.
type tunnelConn struct {
	net.Conn
	tunnel *tunnel
	onDone func()
	closed atomic.Bool
}

// Close ends the connection and tells the registry, once.
func (c *tunnelConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		defer c.onDone()
	}
	return c.Conn.Close()
}

// CloseWrite half-closes the connection under it.
func (c *tunnelConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite half-closes c where it can be half-closed.
func closeWrite(c net.Conn) error {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// checkServerName notes a ClientHello for another host than the CONNECT named. No name at all means the CONNECT host (IP
// literals carry none). The handshake goes on all the same: inside, the fetcher can read why each request is refused.
func (t *tunnel) checkServerName(name string) {
	if name == "" {
		return
	}
	if h, err := guard.ParseHost(name); err != nil || h.Name != t.host.Name {
		t.misnamed.Store(&name)
	}
}

// leafName is the host that the leaf certificate of this tunnel is for: the one the fetcher will compare it with, or the
// tunnel's where the server name is no host name.
func (t *tunnel) leafName() string {
	if name := t.misnamed.Load(); name != nil {
		if h, err := guard.ParseHost(*name); err == nil && !h.IsLiteral() {
			return h.Name
		}
	}
	return t.host.Name
}

// acceptConnect judges the CONNECT itself: credentials, syntax, port, load. Everything else is judged inside, where
// the fetcher can read the answer.
func (g *Gate) acceptConnect(in *inbound) (*tunnel, *http.Response) {
	r, x := in.r, g.begin(in)
	x.ev.Method = http.MethodConnect
	if g.drain.draining() {
		return nil, x.refuse(drainingNow())
	}
	id, ref := g.identify(in)
	if ref != nil {
		return nil, x.refuse(ref)
	}
	x.setClient(id)
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		// A CONNECT has no content (RFC 9110 9.3.6): what follows its head belongs to the tunnel, for one reader, and to a body, for another.
		return nil, x.refuse(&refusal{code: BadRequest, class: "request_framing"})
	}
	host, port, err := guard.ParseAuthority(r.RequestURI, 0)
	if err != nil {
		return nil, x.refuse(refusalFor(err))
	}
	x.ev.Host, x.ev.Port = host.Name, int(port)
	if err := g.guard().CheckPort(host, port); err != nil {
		// Our own listeners are told apart inside, as every target is.
		if no := refusalFor(err); no.code != Loop {
			return nil, x.refuse(no)
		}
	}
	if !g.drain.admit(id.client.Name, g.rules().Server.TunnelsClient, g.rules().Server.Tunnels) {
		return nil, x.refuse(&refusal{code: Overloaded, class: "tunnels", retryAfter: 5 * time.Second,
			detail: "Too many tunnels are open (server.tunnels, server.tunnels_client). Reuse connections or try again."})
	}
	return &tunnel{gate: g, id: x.ev.ID, host: host, port: port, client: id, remote: r.RemoteAddr, opened: time.Now()}, nil
}

// serveTunnel owns the connection of an accepted CONNECT until it ends.
func (g *Gate) serveTunnel(t *tunnel, conn net.Conn) {
	defer func() {
		if v := recover(); v != nil {
			g.log.Error("tunnel panicked", "request_id", t.id, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			conn.Close()
			g.uncount(t)
		}
	}()
	limit := g.rules().Server.ReadHead
	_ = conn.SetDeadline(time.Now().Add(limit))
	// RFC 9110 9.3.6: no Content-Length, no Transfer-Encoding.
	if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		g.endTunnel(t, conn, "client_gone")
		return
	}
	tc := &tunnelConn{Conn: conn, tunnel: t}
	tc.onDone = func() { g.drain.remove(tc); g.uncount(t); g.finishTunnel(t) }
	if g.rules().opaque(t.host) {
		g.serveOpaque(t, tc)
		return
	}
	first, pc, err := peekByte(conn)
	if err != nil {
		g.endTunnel(t, conn, "tunnel_not_http")
		return
	}
	tc.Conn = pc
	switch {
	case first == 0x16: // TLS handshake record
		g.serveTLS(t, tc)
	case isTokenByte(first):
		_ = conn.SetDeadline(time.Time{})
		g.drain.add(tc)
		g.serveH1(tc, t, false)
	default:
		g.endTunnel(t, conn, "tunnel_not_http")
	}
}

func (g *Gate) serveTLS(t *tunnel, tc *tunnelConn) {
	c := tls.Server(tc, g.tlsConfig.Load())
	// Bounded by the connection's deadline: a context would close the connection, and the tunnel end as if the fetcher had.
	_ = tc.SetDeadline(time.Now().Add(g.rules().Server.ReadHead))
	if err := c.Handshake(); err != nil {
		class := "tunnel_tls_failed"
		if t.misnamed.Load() != nil {
			class = "sni_mismatch"
		}
		g.endTunnel(t, tc.Conn, class)
		return
	}
	_ = tc.SetDeadline(time.Time{})
	g.drain.add(tc)
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		g.inner2.push(newH2Conn(c, t, g.rules().Server.ReadHead, g.inner2Srv.MaxHeaderBytes))
		return
	}
	g.serveH1(c, t, true)
}

// endTunnel closes a tunnel in which no request ever arrived, and records why.
func (g *Gate) endTunnel(t *tunnel, conn net.Conn, class string) {
	conn.Close()
	g.uncount(t)
	g.recordTunnel(t, class)
}

// uncount takes a tunnel off the count of those open, once.
func (g *Gate) uncount(t *tunnel) {
	t.counted.Do(func() { g.drain.release(t.client.client.Name) })
}

// finishTunnel records a tunnel that served no request (a client that connected and left).
func (g *Gate) finishTunnel(t *tunnel) {
	if t.requests.Load() > 0 {
		return
	}
	class := "client_gone"
	if t.misnamed.Load() != nil {
		class = "sni_mismatch"
	}
	g.recordTunnel(t, class)
}

// peekByte waits for the first byte and returns a connection that still has it.
func peekByte(c net.Conn) (byte, net.Conn, error) {
	var b [1]byte
	for {
		n, err := c.Read(b[:])
		if n == 1 {
			return b[0], &firstByteConn{Conn: c, first: b[0], has: true}, nil
		}
		if err != nil {
			return 0, nil, err
		}
	}
}

type firstByteConn struct {
	net.Conn
	first byte
	has   bool
}

// CloseWrite half-closes the connection under it.
func (c *firstByteConn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *firstByteConn) Read(p []byte) (int, error) {
	if c.has && len(p) > 0 {
		c.has = false
		p[0] = c.first
		return 1, nil
	}
	return c.Conn.Read(p)
}
