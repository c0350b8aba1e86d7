package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// expectPatience is how long a site may take to say 100 (Continue) before the body goes out without it (RFC 9110 10.1.1).
// The fetcher is asked for its body then, not before.
const expectPatience = time.Second

// headBuffer holds a request's head while it is put together.
type headBuffer struct {
	b     []byte
	names []string
}

var headBuffers = sync.Pool{New: func() any { return &headBuffer{b: make([]byte, 0, 2<<10)} }}

// writeHead sends the request's head in one write.
func (x *siteExchange) writeHead() error {
	h := headBuffers.Get().(*headBuffer)
	defer headBuffers.Put(h)
	if err := h.put(x.r); err != nil {
		return err
	}
	n, err := x.c.Conn.Write(h.b)
	if n > 0 {
		x.w.wroteHead()
	}
	return err
}

// put makes the head of r: the fields that say where to and from whom first, then how the body ends, then the others by
// name (RFC 9112 2.1, 3.2, 6). A byte that would end a line early is an error.
func (h *headBuffer) put(r *http.Request) error {
	h.b, h.names = h.b[:0], h.names[:0]
	target := r.URL.RequestURI()
	for _, s := range [...]string{r.Method, target, r.Host} {
		if s == "" || strings.ContainsAny(s, " \r\n\x00") {
			return fmt.Errorf("%w: %q in the request line or Host", errBadField, s)
		}
	}
	h.b = append(h.b, r.Method...)
	h.b = append(h.b, ' ')
	h.b = append(h.b, target...)
	h.b = append(h.b, " HTTP/1.1\r\nHost: "...)
	h.b = append(h.b, r.Host...)
	h.b = append(h.b, '\r', '\n')
	if err := h.fields("User-Agent", r.Header["User-Agent"]); err != nil {
		return err
	}
	switch {
	case r.Body != nil && r.ContentLength > 0:
		h.b = append(h.b, "Content-Length: "...)
		h.b = strconv.AppendInt(h.b, r.ContentLength, 10)
		h.b = append(h.b, '\r', '\n')
	case r.Body != nil:
		h.b = append(h.b, "Transfer-Encoding: chunked\r\n"...)
		if len(r.Trailer) > 0 {
			for k := range r.Trailer {
				h.names = append(h.names, k)
			}
			slices.Sort(h.names)
			if err := h.fields("Trailer", []string{strings.Join(h.names, ", ")}); err != nil {
				return err
			}
			h.names = h.names[:0]
		}
	case r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		h.b = append(h.b, "Content-Length: 0\r\n"...)
	}
	for k := range r.Header {
		switch k {
		case "Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer":
		default:
			h.names = append(h.names, k)
		}
	}
	slices.Sort(h.names)
	for _, k := range h.names {
		if err := h.fields(k, r.Header[k]); err != nil {
			return err
		}
	}
	h.b = append(h.b, '\r', '\n')
	return nil
}

var errBadField = errors.New("the request's head cannot be sent")

func (h *headBuffer) fields(name string, values []string) error {
	for _, v := range values {
		if name == "" || strings.ContainsAny(name, ": \r\n\x00") || strings.IndexByte(v, '\n') >= 0 || strings.IndexByte(v, '\r') >= 0 || strings.IndexByte(v, 0) >= 0 {
			return fmt.Errorf("%w: %q", errBadField, name)
		}
		h.b = append(h.b, name...)
		h.b = append(h.b, ':', ' ')
		h.b = append(h.b, v...)
		h.b = append(h.b, '\r', '\n')
	}
	return nil
}

// siteUpload sends a request's body beside the reading of the answer: a site may answer before it has all. A nil one is
// that of a request without content.
type siteUpload struct {
	x      *siteExchange
	wanted chan struct{} // closed when the body is to go out, or never will
	once   sync.Once
	skip   atomic.Bool // the answer came before the site asked for the body
	done   chan struct{}
	err    error                 // once done
	fault  atomic.Pointer[error] // of the body itself, which is why the connection was closed
}

func startUpload(x *siteExchange) *siteUpload {
	u := &siteUpload{x: x, done: make(chan struct{})}
	if x.r.Header["Expect"] != nil {
		u.wanted = make(chan struct{})
	}
	go u.run()
	return u
}

// goOn is the site's wish for the body.
func (u *siteUpload) goOn() {
	if u != nil && u.wanted != nil {
		u.once.Do(func() { close(u.wanted) })
	}
}

// answered notes that the answer came: who still waits to be asked sends nothing.
func (u *siteUpload) answered() {
	if u != nil && u.wanted != nil {
		u.once.Do(func() { u.skip.Store(true); close(u.wanted) })
	}
}

// uploadPatience bounds the wait for the last piece to be written when the answer is there already.
const uploadPatience = 50 * time.Millisecond

// whole tells whether all of the body was sent.
func (u *siteUpload) whole() bool {
	if u == nil {
		return true
	}
	select {
	case <-u.done:
	default:
		timer := time.NewTimer(uploadPatience)
		defer timer.Stop()
		select {
		case <-u.done:
		case <-timer.C:
			return false
		}
	}
	return u.err == nil
}

// abandon ends it: whoever reads the body is woken.
func (u *siteUpload) abandon() {
	if u == nil {
		return
	}
	select {
	case <-u.done:
	default:
		u.answered()
		_ = u.x.r.Body.Close()
	}
}

var errNotAskedFor = errors.New("the site did not ask for the body")

func (u *siteUpload) run() {
	defer close(u.done)
	defer u.x.r.Body.Close()
	if u.wanted != nil {
		timer := time.NewTimer(expectPatience)
		select {
		case <-u.wanted:
		case <-timer.C:
		case <-u.x.r.Context().Done():
		}
		timer.Stop()
		if u.skip.Load() || u.x.r.Context().Err() != nil {
			u.err = errNotAskedFor
			return
		}
	}
	var bad *uploadError
	if u.err = u.send(); errors.As(u.err, &bad) || errors.Is(u.err, errReqTooLarge) {
		u.fault.Store(&u.err)
		u.x.c.under.Close() // what was sent must not look whole, and no answer is worth the wait
	}
}

// send copies the body, piece by piece as it comes, framed as the head said.
func (u *siteUpload) send() error {
	const room = 18 // for a chunk's size line
	r, to := u.x.r, u.x.c.Conn
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	b := *buf
	left := r.ContentLength
	for {
		n, err := r.Body.Read(b[room : len(b)-2])
		if n > 0 && left > 0 {
			if left -= int64(n); left < 0 {
				return &uploadError{errors.New("longer than its Content-Length")}
			}
			if left == 0 {
				left = -1 // all of it
			}
			if _, werr := to.Write(b[room : room+n]); werr != nil {
				return werr
			}
		} else if n > 0 {
			if r.ContentLength > 0 {
				return &uploadError{errors.New("longer than its Content-Length")}
			}
			at := room - len(strconv.FormatInt(int64(n), 16)) - 2
			copy(b[room+n:], "\r\n")
			copy(b[at:], strconv.AppendInt(nil, int64(n), 16))
			copy(b[room-2:], "\r\n")
			if _, werr := to.Write(b[at : room+n+2]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if r.ContentLength > 0 {
		if left > 0 {
			return &uploadError{io.ErrUnexpectedEOF}
		}
		return nil
	}
	return u.last()
}

// last ends a body of chunks, with the trailers that came.
func (u *siteUpload) last() error {
	h := headBuffers.Get().(*headBuffer)
	defer headBuffers.Put(h)
	h.b = append(h.b[:0], "0\r\n"...)
	for k, v := range u.x.r.Trailer {
		if err := h.fields(k, v); err != nil {
			return &uploadError{err}
		}
	}
	h.b = append(h.b, '\r', '\n')
	_, err := u.x.c.Conn.Write(h.b)
	return err
}
