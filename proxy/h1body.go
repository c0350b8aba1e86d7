package proxy

import (
	"bufio"
	"io"
	"net/http"
	"sync"
	"time"
)

// h1Length is a body whose length its head names.
type h1Length struct {
	br   *bufio.Reader
	left int64
}

// Read gives the end with the last bytes.
func (b *h1Length) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err = b.br.Read(p)
	b.left -= int64(n)
	switch {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close leaves the rest unread.
func (*h1Length) Close() error { return nil }

// trailerBytes bounds the trailer of a request.
const trailerBytes = 4 << 10

// h1Chunks is a body in chunks (RFC 9112 7.1), whose trailer is read as a head's fields are.
type h1Chunks struct {
	br     *bufio.Reader
	r      *http.Request
	chunks io.Reader
	err    error // how it ended
}

// Read gives the end after the trailer, which is then the request's.
func (b *h1Chunks) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.chunks.Read(p)
	if err == io.EOF {
		if err = b.trailer(); err == nil {
			err = io.EOF
		} else if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	b.err = err
	return n, err
}

// Close leaves the rest unread.
func (*h1Chunks) Close() error { return nil }

func (b *h1Chunks) trailer() error {
	h := newH1Head()
	defer h.free()
	if err := h.rest(b.br, trailerBytes); err != nil {
		return err
	}
	if len(h.fields) == 0 {
		return nil
	}
	t := h.header()
	if b.r.Trailer == nil {
		b.r.Trailer = t
		return nil
	}
	for k, v := range t {
		b.r.Trailer[k] = v
	}
	return nil
}

// h1Body is a request's body. Reading it asks the fetcher to go on where it waits for that (RFC 9110 10.1.1). It is
// read by the transport's goroutine, which may go on after the answer came; after end it reads nothing any more.
type h1Body struct {
	c       *h1Conn
	w       *h1Response
	src     io.ReadCloser
	expects bool // the fetcher waits for 100 (Continue)
	begun   bool

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
	if !b.begun {
		b.begun = true
		b.c.in.bodyBegins()
	}
	if b.expects {
		b.expects = false
		if err := b.w.goOn(); err != nil {
			return 0, err
		}
	}
	n, err := b.src.Read(p)
	if err == io.EOF {
		// In this order: once it counts as whole the next request may be read, and this call must not be about that one.
		if !b.read() {
			b.c.in.bodyRead()
		}
		b.state.Lock()
		b.whole = true
		b.state.Unlock()
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

// readBy bounds reads of the body, until its end: what comes then has bounds of its own.
func (b *h1Body) readBy(t time.Time) error {
	b.state.Lock()
	defer b.state.Unlock()
	if b.over {
		return http.ErrBodyReadAfterClose
	}
	return b.c.conn.SetReadDeadline(t)
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
