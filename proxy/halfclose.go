package proxy

import "time"

const (
	// halfClosedPause is the first pause between two looks at a connection whose fetcher ended its direction; they grow.
	halfClosedPause    = 5 * time.Millisecond
	halfClosedPauseMax = time.Second
	// endWasThere is how long reading an end takes at most that had come before.
	endWasThere = 2 * time.Millisecond
)

// An end of the fetcher's direction means that it left, or that it has said all and waits for the answer (a half-close:
// `nc -N`). The read tells no difference, but writing does: a socket that was closed answers to data with a reset, and one
// that still reads takes it. So an interim answer goes out, which any HTTP/1.1 fetcher passes over (RFC 9110 15.2), and the
// connection's state tells later whether a reset came back.

// stays reports whether a fetcher that has ended its direction may be waiting for the answer, and sends what tells. there:
// the end had come before it was looked for. After an answer has begun nothing can go between, and an end that comes later
// is taken for the fetcher's leaving.
func (w *h1Response) stays(there bool) bool {
	if !canTellHalfClose || !w.r.ProtoAtLeast(1, 1) || w.c.tunnel == nil && w.r.Method == "CONNECT" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote {
		return there
	}
	w.half = true
	_, err := w.c.conn.Write([]byte("HTTP/1.1 102 Processing\r\n\r\n"))
	return err == nil
}

// lookAgain looks whether the fetcher of a half-closed connection is still there. It is called with mu held.
func (r *h1Reader) lookAgain() {
	if wasReset(r.conn) {
		r.gone()
		return
	}
	r.pause = min(2*r.pause, halfClosedPauseMax)
	r.arm(r.pause)
}
