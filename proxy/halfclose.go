package proxy

import (
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// halfClosedPause is the first pause between two looks at a connection whose fetcher ended its direction; they grow.
	halfClosedPause    = 5 * time.Millisecond
	halfClosedPauseMax = 5 * time.Second
	// endWasThere is how long reading an end takes at most that had come before.
	endWasThere = 2 * time.Millisecond
	// unreadPauseMax is how long the fetcher of an upload that waits may be gone before that is seen; the pauses grow to it.
	unreadPauseMax = 250 * time.Millisecond
)

// An end of the fetcher's direction means that it left, or that it has said all and waits for the answer (a half-close:
// `nc -N`). The read tells no difference, but writing does: a socket that was closed answers to data with a reset, and one
// that still reads takes it. So an interim answer goes out, which any HTTP/1.1 fetcher passes over (RFC 9110 15.2), and the
// connection's state tells later whether a reset came back. It goes out more than once: a fetcher may take one and then
// close, or a relay before it, which both end without another word.

// stays reports whether a fetcher that has ended its direction may be waiting for the answer. there: the end had come before
// it was looked for. An end that comes after an answer has begun is taken for the fetcher's leaving.
func (w *h1Response) stays(there bool) bool {
	if !w.canAsk() {
		return false
	}
	w.mu.Lock()
	begun := w.wrote
	if !begun {
		w.half = true
	}
	w.mu.Unlock()
	return (!begun || there) && w.asks()
}

// canAsk tells whether the fetcher takes an interim answer.
func (w *h1Response) canAsk() bool {
	return canTellHalfClose && w.r.ProtoAtLeast(1, 1) && (w.c.tunnel != nil || w.r.Method != http.MethodConnect)
}

// asks sends what tells, unless the answer has begun, and reports whether it could.
func (w *h1Response) asks() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote {
		return true
	}
	_, err := io.WriteString(w.c.conn, "HTTP/1.1 102 Processing\r\n\r\n")
	return err == nil
}

// whenLeft calls gone when the fetcher of a connection that nobody reads ends its direction, until stop.
func whenLeft(c net.Conn, gone func()) (stop func()) {
	if !canTellHalfClose {
		return func() {}
	}
	quit, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		t := time.NewTicker(unreadPauseMax)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				if came, _ := endCame(c); came {
					gone()
					return
				}
			}
		}
	}()
	return func() { close(quit); <-over }
}
