package proxy

import (
	"bufio"
	"bytes"
	"io"
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
func newConnector(log *slog.Logger, accept func(*http.Request) (*tunnel, *http.Response), serve func(*tunnel, net.Conn)) *connector {
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
		t, refusal := accept(ctx.Req)
		if refusal != nil {
			refusal.Close = true // goproxy closes the connection; a client that answers the challenge has to open another
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

// connect serves one CONNECT request.
func (c *connector) connect(w http.ResponseWriter, r *http.Request) {
	c.g.ServeHTTP(&replayWriter{ResponseWriter: w}, r)
}

// replayWriter hands goproxy a hijacked connection that first gives back what the server had read past the CONNECT
// head: a client may send its ClientHello in the same segment, and goproxy's hijack drops those bytes.
type replayWriter struct{ http.ResponseWriter }

// Hijack takes the connection over with its buffered bytes.
func (w *replayWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if n := rw.Reader.Buffered(); n > 0 {
		early, _ := rw.Reader.Peek(n)
		conn = &replayConn{Conn: conn, r: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}
		rw = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	}
	return conn, rw, nil
}

type replayConn struct {
	net.Conn
	r io.Reader
}

func (c *replayConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite half-closes the connection under it.
func (c *replayConn) CloseWrite() error { return closeWrite(c.Conn) }

// goproxyLog sends goproxy's own messages to the operational log, at debug: it has nothing to say that the audit
// event does not.
type goproxyLog struct{ log *slog.Logger }

func (l goproxyLog) Printf(format string, _ ...any) { l.log.Debug("goproxy", "message", format) }
