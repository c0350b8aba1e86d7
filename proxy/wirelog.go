package proxy

import (
	"errors"
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

// wireLog is what really happened on the wire: the audit event and the pace check believe nothing else.
type wireLog struct {
	mu       sync.Mutex
	got      time.Time   // a connection was there: the first byte goes out no earlier
	wrote    bool        // the request's head was written
	answered bool        // an answer came, so it was written; HTTP/2 tells of the writing late
	under    *originConn // that carried it
	h2       *multiConn  // over HTTP/2
	seat     *seat       // of the connection
	reused   bool        // which had carried another request
	remote   netip.AddrPort
	resolved []netip.Addr
	except   string

	hint   func(int, http.Header)      // passes on a 1xx answer; nil: none is
	early  sync.Mutex                  // held while one is passed on
	hints  int                         // 1xx answers seen
	over   atomic.Bool                 // the wait for the answer's head is over: no 1xx any more, no head timer
	upload atomic.Pointer[uploadError] // why the request's body could not be read
	// headTimer ends the wait for the answer's head; an upload that moves sets it forward.
	headTimer *time.Timer
	bare      bool // the request has no content
	to        site
	limit     int          // of connections to the site; 0: none
	out       atomic.Int64 // body bytes sent
	in        atomic.Int64 // body bytes received
}

// carriedBy notes the connection; h2 is nil over HTTP/1.1.
func (w *wireLog) carriedBy(oc *originConn, h2 *multiConn, reused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got, w.under, w.h2, w.seat, w.reused = time.Now(), oc, h2, oc.seat, reused
	if gc, ok := oc.Conn.(*guard.Conn); ok {
		w.remote, w.resolved, w.except = gc.Remote(), gc.Resolved(), gc.Exception()
	}
}

// parts notes that the connection serves others from now on.
func (w *wireLog) parts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seat = nil
}

// trace has HTTP/2 tell what happens.
func (w *wireLog) trace() *httptrace.ClientTrace {
	t := &httptrace.ClientTrace{WroteHeaders: w.wroteHead}
	if w.hint != nil {
		t.Got1xxResponse = func(code int, h textproto.MIMEHeader) error { return w.earlyHint(code, http.Header(h).Clone()) }
	}
	return t
}

func (w *wireLog) wroteHead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote = true
}

// maxHints bounds the 1xx answers before a head.
const maxHints = 16

var errTooManyHints = errors.New("malformed answer: too many 1xx heads")

// earlyHint passes 1xx answers on, but for 100 and 101, which are of one connection. Over HTTP/2 it is called from a
// goroutine of its own, which may outlive the wait for the head; nothing is written then.
func (w *wireLog) earlyHint(code int, h http.Header) error {
	w.early.Lock()
	defer w.early.Unlock()
	if w.hints++; w.hints > maxHints {
		return errTooManyHints
	}
	if w.hint == nil || w.over.Load() || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
		return nil
	}
	stripAnswer(h)
	w.hint(code, h)
	return nil
}

// endedBare tells whether a TLS connection ended without close_notify.
func (w *wireLog) endedBare() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.under != nil && w.under.secure && w.under.ended.Load()
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

// unused tells whether a request without content failed because the kept connection it got had ended, and before any of
// it was written.
func (w *wireLog) unused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bare && w.reused && !w.wrote && !w.answered
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
		ev.Reused = w.reused
	}
	ev.BytesIn, ev.BytesOut = w.in.Load(), w.out.Load()
}
