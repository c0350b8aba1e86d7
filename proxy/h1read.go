package proxy

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

const h1NoLimit = math.MaxInt64

// goneAfter is how long a request runs before its connection is watched for the fetcher's leaving. Most requests that
// need no waiting are over by then.
const goneAfter = 10 * time.Millisecond

// h1Reader reads a tunnel's connection: it follows the heads (headScan), bounds them, and tells when a fetcher leaves
// while its request is served. For that it reads one byte ahead, which the next request then begins with.
type h1Reader struct {
	conn  net.Conn
	heads headScan
	left  int64 // bytes a head may still have
	late  bool  // a read ran out of time

	mu      sync.Mutex
	turned  *sync.Cond
	timer   *time.Timer        // begins the watch
	gone    context.CancelFunc // of the request being served; nil: none is watched
	armed   bool               // the timer is this request's
	ahead   bool               // a byte is being read ahead
	aborted bool               // and shall not be
	has     bool               // a byte was read ahead
	b       [1]byte
}

func newH1Reader(c net.Conn) *h1Reader {
	r := &h1Reader{conn: c, left: h1NoLimit}
	r.turned = sync.NewCond(&r.mu)
	return r
}

// Read is for the reader of requests and bodies. It is never called while a byte is read ahead.
func (r *h1Reader) Read(p []byte) (n int, err error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	if r.has {
		p[0], r.has, n = r.b[0], false, 1
	} else {
		n, err = r.conn.Read(p)
	}
	if err != nil && timedOut(err) {
		r.late = true
	}
	r.left -= int64(n)
	if n > 0 && !r.heads.off {
		r.heads.scan(p[:n])
	}
	return n, err
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
	for {
		n, err := r.conn.Read(r.b[:])
		if n == 1 {
			r.has = true
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// watch calls gone when the fetcher leaves, until unwatch. now: nothing more of this request is to be read.
func (r *h1Reader) watch(gone context.CancelFunc, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = gone
	if now {
		r.arm()
	}
}

// bodyRead begins the watch after a body's end.
func (r *h1Reader) bodyRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone != nil {
		r.arm()
	}
}

func (r *h1Reader) arm() {
	r.armed = true
	if r.timer == nil {
		r.timer = time.AfterFunc(goneAfter, r.readAhead)
		return
	}
	r.timer.Reset(goneAfter)
}

// readAhead waits for a byte or for the connection's end.
func (r *h1Reader) readAhead() {
	r.mu.Lock()
	if !r.armed || r.has || r.ahead {
		r.mu.Unlock()
		return
	}
	r.ahead = true
	r.mu.Unlock()
	n, err := r.conn.Read(r.b[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = false
	r.has = n == 1
	if err != nil && !(r.aborted && timedOut(err)) && r.gone != nil {
		r.gone()
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
	r.gone, r.armed = nil, false
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

// h1Body is a request's body. Reading it asks the fetcher to go on where it waits for that (RFC 9110 10.1.1). It is
// read by the transport's goroutine, which may go on after the answer came; after end it reads nothing any more.
type h1Body struct {
	c       *h1Conn
	w       *h1Response
	src     io.ReadCloser
	expects bool // the fetcher waits for 100 (Continue)

	mu    sync.Mutex // held while it is read
	state sync.Mutex // guards what follows
	whole bool
	over  bool
}

func (b *h1Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done() {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.expects {
		b.expects = false
		if err := b.w.goOn(); err != nil {
			return 0, err
		}
	}
	n, err := b.src.Read(p)
	if err == io.EOF {
		b.state.Lock()
		first := !b.whole
		b.whole = true
		b.state.Unlock()
		if first {
			b.c.in.bodyRead()
		}
	}
	return n, err
}

// Close leaves the rest unread; the connection then ends with the answer.
func (b *h1Body) Close() error { return nil }

func (b *h1Body) done() bool {
	b.state.Lock()
	defer b.state.Unlock()
	return b.over
}

// read reports whether all of the body was read.
func (b *h1Body) read() bool {
	b.state.Lock()
	defer b.state.Unlock()
	return b.whole
}

// end stops whoever still reads, and reports whether the body was read whole.
func (b *h1Body) end() bool {
	b.state.Lock()
	b.over = true
	whole := b.whole
	b.state.Unlock()
	if whole {
		return true
	}
	_ = b.c.conn.SetReadDeadline(time.Unix(1, 0))
	b.mu.Lock()
	defer b.mu.Unlock()
	return false
}
