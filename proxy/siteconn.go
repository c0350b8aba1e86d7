package proxy

import (
	"bufio"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/textproto"
	"sync/atomic"
	"time"
)

// siteConn is an HTTP/1.1 connection to a site. It carries one request at a time, in the goroutine of the exchange: there
// is nothing to hand over, and nothing reads ahead while it rests. What it sends and understands is in sitewrite.go and
// siteread.go. docs/decisions/0013 says why it is our own.
type siteConn struct {
	net.Conn // decrypted
	under    *originConn
	secure   *tls.Conn // nil: plain
	seat     *seat
	age      int
	used     bool // it has carried a request

	left  int64 // bytes that the head being read may still have
	since time.Time
	place *list.Element // in resting; guarded by the lock of conns, as since is
}

// noHeadLimit is for what is no head.
const noHeadLimit = math.MaxInt64

// Read is for the reader of answers; it bounds their heads.
func (c *siteConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errAnswerHeadSize
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	if c.left != noHeadLimit {
		c.left -= int64(n)
	}
	return n, err
}

// close ends the connection in good form.
func (c *siteConn) close() { _ = c.Conn.Close() }

// alive tells whether a connection that rested can carry a request: the site has neither ended it nor sent what nobody
// asked for (a body after HEAD or 304, a second answer), which would pass for the next request's answer.
func (c *siteConn) alive() bool {
	what := pending(c.under)
	if what == endPending || c.secure == nil {
		return what == nothingPending
	}
	// What came in one record with the answer's end was decrypted with it, and the system knows nothing of it. What the
	// system has may be of TLS itself: a new session ticket, a change of keys. Reading takes those in, and then finds nothing.
	by := time.Unix(1, 0) // long past: only what is here already is read
	if what == somethingPending {
		by = time.Now().Add(ticketPatience)
	}
	_ = c.secure.SetReadDeadline(by)
	var one [1]byte
	n, err := c.secure.Read(one[:])
	_ = c.secure.SetReadDeadline(time.Time{})
	return n == 0 && timedOut(err)
}

// ticketPatience bounds the reading of what TLS itself sent.
const ticketPatience = time.Millisecond

// siteExchange is one request on a siteConn and its answer.
type siteExchange struct {
	c    *siteConn
	of   *conns
	r    *http.Request
	w    *wireLog
	br   *bufio.Reader
	tp   textproto.Reader
	stop func() bool // ends the watch on the request's context
	up   *siteUpload // of the request's body; nil: none
	over atomic.Bool
}

// roundTrip sends one request and reads the head of its answer.
func (c *siteConn) roundTrip(r *http.Request, w *wireLog) (*http.Response, error) {
	w.carriedBy(c.under, nil, c.used)
	c.used = true
	x := &siteExchange{c: c, of: c.seat.c, r: r, w: w}
	x.stop = context.AfterFunc(r.Context(), func() { c.under.Close() })
	resp, err := x.run()
	if err != nil {
		x.end(false)
		return nil, x.why(err)
	}
	return resp, nil
}

func (x *siteExchange) run() (*http.Response, error) {
	if err := x.writeHead(); err != nil {
		if x.r.Body != nil {
			x.r.Body.Close()
		}
		return nil, err
	}
	if x.r.Body != nil {
		x.up = startUpload(x)
	}
	x.br = h1Readers.Get().(*bufio.Reader)
	x.br.Reset(x.c)
	x.tp.R = x.br
	x.c.left = answerHeadBytes
	for {
		resp, err := x.readHead()
		if err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusContinue {
			x.up.goOn()
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			if resp.StatusCode >= 200 && resp.StatusCode < 300 && goesOn(resp) {
				x.up.goOn() // it did not ask for the body, but reads it: else it would end the connection (RFC 9110 10.1.1)
			}
			x.up.answered()
			x.c.left = noHeadLimit
			return resp, x.frame(resp)
		}
		if err := x.w.earlyHint(resp.StatusCode, resp.Header); err != nil {
			return nil, err
		}
	}
}

// end gives the connection back, or closes it. It happens once.
func (x *siteExchange) end(whole bool) {
	if x.over.Swap(true) {
		return
	}
	whole = whole && x.br.Buffered() == 0 && x.up.whole()
	if whole {
		x.br.Reset(nil)
		h1Readers.Put(x.br)
		x.br, x.tp.R = nil, nil
	}
	if !x.stop() || !whole {
		x.up.abandon()
		_ = x.c.under.Close() // not in good form: it may have to be read on for that
		return
	}
	x.w.parts()
	if !x.w.to.stays {
		x.c.seat.back()
	}
	x.of.rest(x.c)
}

// why names the reason of an exchange that came to no answer: the end of it that somebody wanted, or a body that broke off.
func (x *siteExchange) why(err error) error {
	if cause := context.Cause(x.r.Context()); cause != nil {
		return cause
	}
	if x.up != nil {
		if fault := x.up.fault.Load(); fault != nil {
			return *fault
		}
	}
	return err
}

// failed names the error of a read: why the exchange was ended, if it was.
func (x *siteExchange) failed(err error) error {
	if cause := context.Cause(x.r.Context()); cause != nil {
		return cause
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

var (
	errAnswerHeadSize = errors.New("the answer's head is too large")
	errAnswerInvalid  = errors.New("malformed answer")
)
