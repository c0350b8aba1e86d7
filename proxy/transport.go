package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"crawlgate/audit"
	"crawlgate/proxy/guard"
)

const (
	answerHeadBytes  = 256 << 10
	handshakeTimeout = 10 * time.Second
	// expectPatience is how long a site may take to say 100 (Continue) before the body goes out without it
	// (RFC 9110 10.1.1). The fetcher is asked for its body then, not before.
	expectPatience = time.Second
	idleConns      = 1024
	idleConnsHost  = 16
	// dialsPerTransport bounds a Transport's life: it keeps an entry for each host it ever dialled
	// (golang/go#33849), and a crawl visits millions.
	dialsPerTransport = 20_000
)

// upstream is the way out. It holds one http.Transport at a time and replaces it after so many dials.
type upstream struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	mu    sync.Mutex
	rules *Rules
	roots *x509.CertPool
	cur   atomic.Pointer[generation]
}

type generation struct {
	tr    *http.Transport
	dials atomic.Int64
}

func newUpstream(dialer func() *guard.Dialer, r *Rules) (*upstream, error) {
	u := &upstream{dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialer().DialContext(ctx, network, addr)
	}}
	return u, u.reload(r)
}

// reload takes new roots and limits; connections of the old transport end when they are idle.
func (u *upstream) reload(r *Rules) error {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(r.Roots) > 0 && !pool.AppendCertsFromPEM(r.Roots) {
		return errors.New("egress.root_ca_file: no certificate could be read")
	}
	u.mu.Lock()
	u.rules, u.roots = r, pool
	u.mu.Unlock()
	u.replace(u.cur.Load())
	return nil
}

// replace swaps the transport if old is still the current one.
func (u *upstream) replace(old *generation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cur.Load() != old {
		return
	}
	g := &generation{}
	g.tr = &http.Transport{
		Proxy: nil, // never from the environment
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := u.dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &originConn{Conn: c}, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: u.roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(512)},
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true, // bodies pass as they come
		ForceAttemptHTTP2:      true,
		ExpectContinueTimeout:  expectPatience,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConnsHost,
		IdleConnTimeout:        u.rules.Server.UpstreamIdle,
		MaxResponseHeaderBytes: answerHeadBytes,
		ReadBufferSize:         8 << 10,
	}
	u.cur.Store(g)
	if old != nil {
		old.tr.CloseIdleConnections()
	}
}

func (u *upstream) close() { u.cur.Load().tr.CloseIdleConnections() }

// roundTrip sends one request, once. It follows no redirect and repeats nothing.
func (u *upstream) roundTrip(r *http.Request, w *wireLog) (*http.Response, error) {
	g := u.cur.Load()
	resp, err := g.tr.RoundTrip(r)
	if !w.reused.Load() && g.dials.Add(1) == dialsPerTransport {
		u.replace(g)
	}
	return resp, err
}

// noBody is an empty request body of a type of its own, without GetBody: http.NoBody (or nil) would let the Transport
// send a request again by itself when a kept-alive connection died, and one turn must be one request on the wire.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, errEOF }
func (noBody) Close() error             { return nil }

// WriteTo keeps the Transport from taking a buffer of 32 KiB to copy nothing.
func (noBody) WriteTo(io.Writer) (int64, error) { return 0, nil }

// empty makes a request one without content. Methods that the Transport never repeats by itself get no body at all,
// so that they carry Content-Length: 0; the others get noBody, and identity tells the Transport not to guess whether
// there is something to read.
func empty(r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
	default:
		if r.Header["Idempotency-Key"] == nil && r.Header["X-Idempotency-Key"] == nil {
			return
		}
	}
	r.Body, r.TransferEncoding = noBody{}, []string{"identity"}
}

// originConn is a connection to a site. It remembers whether the site ended it: crypto/tls takes an end without
// close_notify for a clean one, and a body that only the end ends cannot then be told from a cut one.
type originConn struct {
	net.Conn
	ended atomic.Bool
}

func (c *originConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		c.ended.Store(true)
	}
	return n, err
}

// CloseWrite half-closes the connection.
func (c *originConn) CloseWrite() error { return closeWrite(c.Conn) }

// wireLog is what really happened on the wire, seen by the transport's trace: the audit event and the pace check
// believe nothing else.
type wireLog struct {
	mu       sync.Mutex
	got      time.Time   // a connection was there: the first byte goes out no earlier
	wrote    bool        // the request's head was written
	answered bool        // an answer came, so it was written; HTTP/2 tells of the writing late
	secure   *originConn // under TLS
	remote   netip.AddrPort
	resolved []netip.Addr
	except   string
	reused   atomic.Bool
	early    sync.Mutex                  // held while a 1xx answer is passed on
	hints    int                         // 1xx answers seen
	over     atomic.Bool                 // the wait for the answer's head is over: no 1xx any more, no head timer
	upload   atomic.Pointer[uploadError] // why the request's body could not be read
	// headTimer ends the wait for the answer's head; an upload that moves sets it forward.
	headTimer *time.Timer
	out       atomic.Int64 // body bytes sent
	in        atomic.Int64 // body bytes received
}

func (w *wireLog) trace(early func(int, http.Header)) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			w.reused.Store(i.Reused)
			c := i.Conn
			t, secure := c.(*tls.Conn)
			if secure {
				c = t.NetConn()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.got = time.Now()
			if oc, ok := c.(*originConn); ok {
				if secure {
					w.secure = oc
				}
				c = oc.Conn
			}
			if gc, ok := c.(*guard.Conn); ok {
				w.remote, w.resolved, w.except = gc.Remote(), gc.Resolved(), gc.Exception()
			}
		},
		WroteHeaders: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.wrote = true
		},
		Got1xxResponse: w.earlyHint(early),
	}
}

// maxHints bounds the 1xx answers before a head: the transport sets no limit of its own when they are passed on.
const maxHints = 16

var errTooManyHints = errors.New("malformed answer: too many 1xx heads")

// earlyHint passes 1xx answers on, but for 100 and 101, which are of one connection. The transport calls it from a
// goroutine of its own, which may outlive the wait for the head; nothing is written then.
func (w *wireLog) earlyHint(early func(int, http.Header)) func(int, textproto.MIMEHeader) error {
	if early == nil {
		return nil
	}
	return func(code int, h textproto.MIMEHeader) error {
		w.early.Lock()
		defer w.early.Unlock()
		if w.hints++; w.hints > maxHints {
			return errTooManyHints
		}
		if w.over.Load() || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
			return nil
		}
		hh := http.Header(h).Clone()
		stripAnswer(hh)
		early(code, hh)
		return nil
	}
}

// endedBare tells whether a TLS connection ended without close_notify.
func (w *wireLog) endedBare() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secure != nil && w.secure.ended.Load()
}

// endHead ends the time in which 1xx answers may be written, and waits for one that is being written.
func (w *wireLog) endHead() {
	w.over.Store(true)
	w.early.Lock()
	defer w.early.Unlock()
}

func (w *wireLog) sent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote || w.answered
}

func (w *wireLog) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
}

func (w *wireLog) sentAt() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got
}

func (w *wireLog) describe(ev *audit.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.remote.IsValid() {
		ev.SetUpstream(w.remote, w.resolved)
		ev.Exception = w.except
		ev.Reused = w.reused.Load()
	}
	ev.BytesIn, ev.BytesOut = w.in.Load(), w.out.Load()
}
