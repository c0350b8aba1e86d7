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
	"runtime"
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
	idleConnsHost  = 16 // or as many as there may be
	// An HTTP/2 connection whose site is gone without a word would take every request to it until TCP gives up, which
	// is a quarter of an hour: one that brought nothing for pingAfter is asked, and left when it does not answer.
	pingAfter    = 15 * time.Second
	pingPatience = 10 * time.Second
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
	conns *conns
	ping  http.HTTP2Config
}

type generation struct {
	tr    *http.Transport
	dials atomic.Int64
	old   atomic.Bool // replaced
}

func newUpstream(dialer func() *guard.Dialer, r *Rules) (*upstream, error) {
	u := &upstream{conns: newConns(), ping: http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingPatience}, dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
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
		Proxy:                  nil, // never from the environment
		DialContext:            u.dialSeated,
		TLSClientConfig:        &tls.Config{RootCAs: u.roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(512)},
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true, // bodies pass as they come
		ForceAttemptHTTP2:      true,
		ExpectContinueTimeout:  expectPatience,
		HTTP2:                  &u.ping,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    u.rules.idleConns(),
		IdleConnTimeout:        u.rules.Server.UpstreamIdle,
		MaxResponseHeaderBytes: answerHeadBytes,
		ReadBufferSize:         8 << 10,
	}
	u.cur.Store(g)
	if old != nil {
		old.old.Store(true)
		old.tr.CloseIdleConnections()
	}
}

func (u *upstream) close() { u.cur.Load().tr.CloseIdleConnections() }

// roundTrip sends one request, once. It follows no redirect and repeats nothing.
func (u *upstream) roundTrip(r *http.Request, w *wireLog) (*http.Response, error) {
	g := u.cur.Load()
	w.gen = g
	resp, err := g.tr.RoundTrip(r)
	for (errors.Is(err, errLookAgain) || w.unused(err)) && r.Context().Err() == nil {
		resp, err = g.tr.RoundTrip(r) // nothing was sent: it waited for a connection, or got one that had just ended
	}
	if !w.reused.Load() && g.dials.Add(1) == dialsPerTransport {
		u.replace(g)
	}
	return resp, err
}

// errSentOnce ends a request that the Transport was about to send again.
var errSentOnce = errors.New("the site refused the request after it was written")

// noBody is an empty request body of a type of its own, without GetBody: http.NoBody (or nil) would let the Transport
// send a request again by itself when a kept-alive connection died, and one turn must be one request on the wire.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, errEOF }
func (noBody) Close() error             { return nil }

// WriteTo keeps the Transport from taking a buffer of 32 KiB to copy nothing.
func (noBody) WriteTo(io.Writer) (int64, error) { return 0, nil }

// once keeps the Transport from repeating a request without content over HTTP/1.1. Methods that it never repeats by
// itself keep no body at all, so that they carry Content-Length: 0; the others get noBody, and identity tells the
// Transport not to guess whether there is something to read. It is called when the connection is known, since over
// HTTP/2 any body at all costs an empty DATA frame, which browsers never send and some sites refuse (golang/go#53894).
func once(r *http.Request) {
	if r.Body != nil {
		return
	}
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
	seat  *seat       // nil: not counted
	waits atomic.Bool // a read waits for the site
	shut  atomic.Bool
	ended atomic.Bool
	proto atomic.Int32 // what was agreed on in the handshake: 0 not asked yet, 1 or 2
}

// h2 tells whether HTTP/2 is spoken on it, under t. The answer is kept: a connection's state is a large copy.
func (c *originConn) h2(t *tls.Conn) bool {
	v := c.proto.Load()
	if v == 0 {
		v = 1
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			v = 2
		}
		c.proto.Store(v)
	}
	return v == 2
}

// Close gives the seat to the next.
func (c *originConn) Close() error {
	c.shut.Store(true)
	err := c.Conn.Close()
	if c.seat != nil {
		c.seat.leave()
	}
	return err
}

func (c *originConn) Read(p []byte) (int, error) {
	c.waits.Store(true)
	n, err := c.Conn.Read(p)
	c.waits.Store(false)
	if err == io.EOF {
		c.ended.Store(true)
	}
	return n, err
}

// settlePatience bounds settle, for when this process gets no time.
const settlePatience = 50 * time.Millisecond

// settle waits until an HTTP/1.1 connection that served a request before has shown that nothing is left of it. A site
// may send more than its answer: a body after HEAD or 304, or a second answer. The Transport ends such a connection, but
// looks for the rest only when it has already given the connection on, and a request that is quicker than the look takes
// the rest for its own answer. With nothing left, its reader waits for the site.
func (c *originConn) settle() {
	end := time.Now().Add(settlePatience)
	for n := 0; !c.waits.Load() && !c.shut.Load() && time.Now().Before(end); n++ {
		if n < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(100 * time.Microsecond)
		}
	}
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
	seat     *seat       // of the connection
	h2       bool
	has      bool          // a connection was there
	queued   chan struct{} // closed when one is, for a dial that waits
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
	req       *http.Request   // as it leaves
	stop      func(error)     // ends it
	gone      <-chan struct{} // closed when it has ended
	bare      bool            // it has no content
	gen       *generation
	to        site
	limit     int                  // of connections to the site; 0: none
	dialling  atomic.Pointer[seat] // of the connection it made
	out       atomic.Int64         // body bytes sent
	in        atomic.Int64         // body bytes received
}

func (w *wireLog) trace(early func(int, http.Header)) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.reused.Store(false)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.has = false
		},
		PutIdleConn: func(error) {
			if w.gen.old.Load() {
				w.gen.tr.CloseIdleConnections() // nobody would use it any more, and it holds a seat
			}
		},
		GotConn: func(i httptrace.GotConnInfo) {
			w.reused.Store(i.Reused)
			c := i.Conn
			t, secure := c.(*tls.Conn)
			if secure {
				c = t.NetConn()
			}
			oc, ours := c.(*originConn)
			// The Transport calls this from the goroutine that then writes the request, and before it does.
			h2 := secure && ours && oc.h2(t)
			if !h2 {
				if once(w.req); i.Reused && ours {
					oc.settle()
				}
			} else if w.sent() {
				// A stream or connection that the site refused: what has been written is not written again. The
				// Transport looks at the context before it writes.
				w.stop(errSentOnce)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.got, w.h2, w.has = time.Now(), h2, true
			if w.queued != nil {
				close(w.queued)
				w.queued = nil
			}
			if ours {
				w.seat = oc.seat
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
		TLSHandshakeDone: func(cs tls.ConnectionState, err error) {
			if st := w.dialling.Load(); st != nil && err == nil {
				st.speaks(cs.NegotiatedProtocol == "h2")
			}
		},
		Got1xxResponse: w.earlyHint(early),
	}
}

// on makes the context of a request that leaves: what happens to it on the wire is noted in w.
func (w *wireLog) on(ctx context.Context, early func(int, http.Header)) context.Context {
	return context.WithValue(httptrace.WithClientTrace(ctx, w.trace(early)), wireKey{}, w)
}

// served is closed once the request has a connection.
func (w *wireLog) served() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.queued
	if c == nil {
		c = make(chan struct{})
		if w.has {
			close(c)
		} else {
			w.queued = c
		}
	}
	return c
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

// unused tells whether a request without content failed with err because the kept connection it got had ended, and
// before any of it was written.
func (w *wireLog) unused(err error) bool { return err != nil && w.bare && w.reused.Load() && !w.sent() }

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
