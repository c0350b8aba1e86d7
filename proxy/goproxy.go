package proxy

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/elazarl/goproxy"
)

// connector is goproxy, fenced in: it takes a CONNECT, runs our check and hands us the connection. It never
// decrypts, never signs, never dials and never answers on its own; every default of it that would do so is replaced
// here, and this is the only file that knows it.
type connector struct{ g *goproxy.ProxyHttpServer }

// newConnector wires goproxy so that accept decides each CONNECT: it returns the tunnel to serve, or the answer
// that refuses it. serve owns the connection from then on and returns when the tunnel ended.
func newConnector(log *slog.Logger, accept func(*inbound) (*tunnel, *http.Response), serve func(*tunnel, net.Conn)) *connector {
	g := goproxy.NewProxyHttpServer()
	g.Logger = goproxyLog{log}
	g.KeepAcceptEncoding = true
	// The defaults read proxy variables of the environment and skip certificate checks. Nothing may dial through
	// goproxy at all: a transport that always fails, and no dialer.
	g.Tr = &http.Transport{Proxy: nil, DialContext: noDial}
	g.ConnectDial = nil
	g.ConnectDialWithReq = func(*http.Request, string, string) (net.Conn, error) { return nil, errNotHere }
	g.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "bad request", http.StatusBadRequest)
	})
	// One handler that answers every CONNECT: without any, goproxy would open a blind tunnel.
	g.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		c, _ := ctx.Req.Context().Value(connectKey{}).(*connectCall)
		t, refusal := accept(c.in)
		if refusal != nil {
			c.refused, refusal.Close = true, true // goproxy closes the connection; a client that answers the challenge has to open another
			ctx.Resp = refusal
			return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
		}
		return &goproxy.ConnectAction{
			Action: goproxy.ConnectHijack,
			Hijack: func(_ *http.Request, c net.Conn, _ *goproxy.ProxyCtx) { serve(t, c) },
		}, host
	})
	return &connector{g}
}

// connectKey finds a CONNECT in the context of the request that goproxy hands back.
type connectKey struct{}

// connectCall is a CONNECT on its way through goproxy.
type connectCall struct {
	in      *inbound
	refused bool
}

// connect serves one CONNECT request.
func (c *connector) connect(w *h1Response, in *inbound) {
	call := &connectCall{in: in}
	c.g.ServeHTTP(hijackable{w, call}, in.r.WithContext(context.WithValue(in.ctx, connectKey{}, call)))
}

// hijackable hands goproxy the connection. What was read past the CONNECT's head comes from it again: a client may send its
// ClientHello in the same segment, and goproxy drops what the reader beside it holds.
type hijackable struct {
	*h1Response
	call *connectCall
}

// Hijack takes the connection over.
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, err := h.takeOver()
	if err == nil && h.call.refused {
		conn = &refusedConn{Conn: conn}
	}
	return conn, &bufio.ReadWriter{}, err
}

// refusedConn takes the answer that refuses a CONNECT, which goproxy writes line by line before it closes the connection: the
// answer leaves in one piece, and the fetcher, which may send its ClientHello or a body all the same, is read on for a moment.
type refusedConn struct {
	net.Conn
	answer bytes.Buffer
}

func (c *refusedConn) Write(p []byte) (int, error) { return c.answer.Write(p) }

// Close sends the answer and ends the connection.
func (c *refusedConn) Close() error {
	if _, err := c.Conn.Write(c.answer.Bytes()); err == nil {
		lingerOn(c.Conn)
	}
	return c.Conn.Close()
}

// goproxyLog sends goproxy's own messages to the operational log, at debug: it has nothing to say that the audit
// event does not.
type goproxyLog struct{ log *slog.Logger }

func (l goproxyLog) Printf(format string, _ ...any) { l.log.Debug("goproxy", "message", format) }
