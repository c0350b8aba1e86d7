package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// goneAfter is how long a request runs before its connection is watched for the fetcher's leaving. Most requests that
// need no waiting are over by then.
const goneAfter = 10 * time.Millisecond

// h1Reader reads a fetcher's connection, and tells when the fetcher leaves while its request is served. For that it reads
// one byte ahead, which the next request then begins with.
type h1Reader struct {
	conn net.Conn

	mu      sync.Mutex
	turned  *sync.Cond
	timer   *time.Timer        // begins the watch
	gone    context.CancelFunc // of the request being served; nil: none is watched
	answer  *h1Response        // to it
	armed   bool               // the timer is this request's
	ahead   bool               // a byte is being read ahead, or a half-closed connection looked at
	aborted bool               // and shall not be
	has     bool               // a byte was read ahead
	b       [1]byte
	unread  bool          // nothing of the request's body was read: the connection is looked at, and not read
	pause   time.Duration // till the next look at a half-closed connection, or at one that is not read; 0: it is none
}

func newH1Reader(c net.Conn) *h1Reader {
	r := &h1Reader{conn: c}
	r.turned = sync.NewCond(&r.mu)
	return r
}

// Read is for the reader of requests and bodies. It is never called while a byte is read ahead.
func (r *h1Reader) Read(p []byte) (int, error) {
	if r.has && len(p) > 0 {
		p[0], r.has = r.b[0], false
		return 1, nil
	}
	return r.conn.Read(p)
}

// timedOut tells whether err is of a deadline.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// awaitByte waits until there is something to read.
func (r *h1Reader) awaitByte() error {
	if r.has {
		return nil
	}
	n, err := r.readByte()
	r.has = n == 1
	return err
}

// readByte reads one byte into b.
func (r *h1Reader) readByte() (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.conn.Read(r.b[:])
	}
	if n == 1 {
		err = nil
	}
	return n, err
}

// watch calls gone when the fetcher leaves, until unwatch. now: nothing more of this request is to be read. Else the end lies
// behind the body, which stays where it is as long as the request waits for its turn; the state of the connection shows it all
// the same.
func (r *h1Reader) watch(gone context.CancelFunc, answer *h1Response, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone, r.answer, r.pause, r.unread = gone, answer, 0, !now && canTellHalfClose
	if now || r.unread {
		r.arm(goneAfter)
	}
}

// bodyBegins ends looking at the connection beside its reader, who finds the end by himself.
func (r *h1Reader) bodyBegins() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread {
		r.unread, r.armed, r.pause = false, false, 0
	}
}

// bodyRead begins the watch after a body's end.
func (r *h1Reader) bodyRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone != nil {
		r.arm(goneAfter)
	}
}

func (r *h1Reader) arm(d time.Duration) {
	r.armed = true
	if r.timer == nil {
		r.timer = time.AfterFunc(d, r.look)
		return
	}
	r.timer.Reset(d)
}

// look is the timer's: it waits for a byte or for the connection's end, or looks again at a half-closed one.
func (r *h1Reader) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.armed || r.has || r.ahead {
		return
	}
	r.ahead = true
	answer, pause := r.answer, r.pause
	if r.unread {
		r.lookBeside(answer)
		return
	}
	r.mu.Unlock()
	n, err, stays := 0, io.EOF, false
	if pause > 0 {
		stays = !wasReset(r.conn) && answer.asks()
	} else {
		began := time.Now()
		n, err = r.readByte()
		stays = (err == io.EOF || err == io.ErrUnexpectedEOF) && answer.stays(time.Since(began) < endWasThere)
	}
	r.mu.Lock()
	r.ahead = false
	r.has = n == 1
	switch {
	case err == nil, r.aborted && timedOut(err), r.gone == nil:
	case stays:
		r.pause = max(halfClosedPause, min(4*pause, halfClosedPauseMax))
		r.arm(r.pause)
	default:
		r.gone()
	}
	r.turned.Broadcast()
}

// lookBeside looks at a connection whose body is not read yet. It is called with the lock.
func (r *h1Reader) lookBeside(answer *h1Response) {
	r.mu.Unlock()
	came, ok := endCame(r.conn)
	left := came && (wasReset(r.conn) || !answer.canAsk() || !answer.asks())
	r.mu.Lock()
	r.ahead = false
	switch {
	case !r.unread || r.gone == nil:
		if r.armed { // the body has been read meanwhile
			r.arm(goneAfter)
		}
	case left:
		r.gone()
	case came:
		r.pause = max(halfClosedPause, min(4*r.pause, halfClosedPauseMax))
		r.arm(r.pause)
	case ok:
		r.pause = max(goneAfter, min(2*r.pause, unreadPauseMax))
		r.arm(r.pause)
	}
	r.turned.Broadcast()
}

// unwatch ends the watch and waits for the read ahead to end.
func (r *h1Reader) unwatch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone == nil {
		return
	}
	r.gone, r.answer, r.armed, r.unread = nil, nil, false, false
	if r.timer != nil {
		r.timer.Stop()
	}
	if !r.ahead {
		return
	}
	r.aborted = true
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	for r.ahead {
		r.turned.Wait()
	}
	r.aborted = false
	_ = r.conn.SetReadDeadline(time.Time{})
}
