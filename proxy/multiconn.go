package proxy

import (
	"container/list"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// multiConn is an HTTP/2 connection to a site, of the standard library.
type multiConn struct {
	cc      *http.ClientConn
	known   bool // the site's settings are; guarded by the lock of conns
	under   *originConn
	seat    *seat
	age     int
	used    atomic.Bool
	retired atomic.Bool
	place   *list.Element // in resting; guarded by the lock of conns
}

// roundTrip sends one request on a stream that was reserved for it. The library never repeats it.
func (m *multiConn) roundTrip(r *http.Request, w *wireLog) (*http.Response, error) {
	w.carriedBy(m.under, m, m.used.Swap(true))
	return m.cc.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), w.trace())))
}

// retire closes the connection once it carries nothing.
func (m *multiConn) retire() {
	m.retired.Store(true)
	if m.cc.InFlight() == 0 {
		m.close()
	}
}

func (m *multiConn) close() { m.cc.Close() }

// newMultiConn makes a decrypted connection one of the library's.
func newMultiConn(ctx context.Context, h2 *http.Transport, m *multiConn, conn net.Conn) error {
	w := &multiWire{Conn: conn, m: m}
	cc, err := h2.NewClientConn(context.WithValue(ctx, handKey{}, w), "http", m.seat.of.addr)
	if err != nil {
		return err
	}
	if err := cc.Reserve(); err != nil { // for the request that made it, before anybody else sees it
		return err
	}
	// The library calls it with locks held, its own and ours.
	cc.SetStateHook(func(*http.ClientConn) {
		if m.retired.Load() || m.seat.c.waiting.Load() > 0 {
			go m.seat.c.changed(m)
		}
	})
	m.seat.c.join(m, cc)
	return nil
}

type handKey struct{}

// handedOver gives the library the connection that was made for it.
func handedOver(ctx context.Context, _, _ string) (net.Conn, error) {
	w, ok := ctx.Value(handKey{}).(*multiWire)
	if !ok {
		return nil, errNotHere
	}
	return w, nil
}

// multiWire reads the beginning of an HTTP/2 connection along. A site begins with its settings (RFC 9113 3.4), and before
// they are known the library believes that it takes a hundred streams: what was given to a connection that takes fewer
// would wait there, past other connections. So others than the request that made it get it only then.
type multiWire struct {
	net.Conn
	m     *multiConn
	head  [3]byte // the length of the first frame
	have  int
	left  int // of the frame, its head included
	known bool
}

func (w *multiWire) Read(p []byte) (int, error) {
	if !w.known && w.have == len(w.head) && w.left <= 0 {
		w.known = true // the library has taken in what it read before it reads on
		w.m.seat.c.join(w.m, nil)
	}
	n, err := w.Conn.Read(p)
	if !w.known && n > 0 {
		k := copy(w.head[w.have:], p[:n])
		if w.have += k; w.have == len(w.head) && k > 0 {
			w.left = int(binary.BigEndian.Uint32([]byte{0, w.head[0], w.head[1], w.head[2]})) + 9 - (len(w.head) - k)
		}
		w.left -= n
	}
	return n, err
}

// CloseWrite half-closes the connection.
func (w *multiWire) CloseWrite() error { return closeWrite(w.Conn) }
