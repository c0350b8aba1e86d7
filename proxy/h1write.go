package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// h1Response writes one HTTP/1.1 answer: a head, and a body framed by the length that the head names, by chunks, or
// (to HTTP/1.0) by the connection's end. Nothing is guessed: no type from the content, no length from a first piece.
type h1Response struct {
	c      *h1Conn
	r      *http.Request
	bw     *bufio.Writer
	header http.Header
	body   *h1Body // of the request; nil: it has none

	mu       sync.Mutex // the transport asks for the body while the answer may begin
	wrote    bool       // the head
	bodyless bool       // whatever the fields say
	chunked  bool       // by chunks
	left     int64      // bytes still owed of the length named; -1: none was
	closes   bool       // the connection ends with this answer
	half     bool       // the fetcher has ended its direction and waits
	hijacked bool
	trailers []string // announced
}

// Header is the answer's header until the head is written, and its trailers afterwards.
func (w *h1Response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// take makes h the answer's header, so that it need not be copied.
func (w *h1Response) take(h http.Header) { w.header = h }

var (
	errH1Length  = errors.New("more bytes than Content-Length named")
	errH1Missing = errors.New("fewer bytes than Content-Length named")
	crlf         = []byte("\r\n")
)

// goOn says 100 (Continue), unless the answer has begun.
func (w *h1Response) goOn() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote {
		return nil
	}
	_, err := w.c.conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	return err
}

// WriteHeader writes the head into the buffer; a 1xx head goes out at once.
func (w *h1Response) WriteHeader(code int) {
	if w.wrote || w.hijacked {
		return
	}
	if code < 200 && code != http.StatusSwitchingProtocols {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.status(code)
		_ = w.header.Write(w.bw)
		_, _ = w.bw.Write(crlf)
		_ = w.FlushError()
		return
	}
	w.mu.Lock()
	w.wrote = true
	w.mu.Unlock()
	h := w.Header()
	w.frame(code, h)
	w.status(code)
	_ = h.Write(w.bw)
	_, _ = w.bw.Write(crlf)
	if names := h["Trailer"]; len(names) > 0 && w.chunked {
		for _, v := range names {
			for n := range strings.SplitSeq(v, ",") {
				w.trailers = append(w.trailers, http.CanonicalHeaderKey(strings.TrimSpace(n)))
			}
		}
	}
	w.header = nil // what comes now is a trailer
}

func (w *h1Response) status(code int) {
	var b [64]byte
	line := append(b[:0], "HTTP/1.1 "...)
	line = strconv.AppendInt(line, int64(code), 10)
	line = append(line, ' ')
	line = append(line, http.StatusText(code)...)
	_, _ = w.bw.Write(append(line, '\r', '\n'))
}

// frame decides how the body's end is told (RFC 9112 6.3) and whether the connection goes on.
func (w *h1Response) frame(code int, h http.Header) {
	delete(h, "Transfer-Encoding")
	if _, ok := h["Date"]; !ok {
		h["Date"] = []string{httpDate()} // RFC 9110 6.6.1
	}
	w.bodyless = noBodyStatus(w.r.Method, code)
	length := h.Get("Content-Length")
	switch n, err := strconv.ParseInt(length, 10, 64); {
	case w.bodyless:
		if code == http.StatusNoContent {
			delete(h, "Content-Length")
		}
	case length != "" && err == nil && n >= 0:
		w.left = n
	default:
		delete(h, "Content-Length")
		w.chunked = w.r.ProtoAtLeast(1, 1)
		w.closes = w.closes || !w.chunked
		if w.chunked {
			h["Transfer-Encoding"] = []string{"chunked"}
		}
	}
	if !w.chunked {
		delete(h, "Trailer")
	}
	if w.r.Close || hasToken(h["Connection"], "close") || w.body != nil && !w.body.read() || w.c.g.drain.draining() || w.half && w.c.br.Buffered() == 0 {
		w.closes = true
	}
	switch {
	case w.closes:
		h["Connection"] = []string{"close"}
	case !w.r.ProtoAtLeast(1, 1):
		h["Connection"] = []string{"keep-alive"}
	}
}

// Write sends a piece of the body.
func (w *h1Response) Write(p []byte) (int, error) {
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if w.bodyless || len(p) == 0 {
		return len(p), nil
	}
	if !w.chunked {
		if w.left >= 0 {
			if int64(len(p)) > w.left {
				return 0, errH1Length
			}
			w.left -= int64(len(p))
		}
		return w.bw.Write(p)
	}
	var b [18]byte
	if _, err := w.bw.Write(append(strconv.AppendInt(b[:0], int64(len(p)), 16), '\r', '\n')); err != nil {
		return 0, err
	}
	n, err := w.bw.Write(p)
	if err == nil {
		_, err = w.bw.Write(crlf)
	}
	return n, err
}

// FlushError sends what is buffered.
func (w *h1Response) FlushError() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.bw.Buffered() == 0 {
		return nil
	}
	return w.bw.Flush()
}

// finish ends the answer. A body shorter than its head named is an error, and the connection must end.
func (w *h1Response) finish() error {
	if !w.wrote {
		w.Header()["Content-Length"] = []string{"0"}
		w.WriteHeader(http.StatusOK)
	}
	if w.left > 0 && !w.bodyless {
		_ = w.FlushError()
		return errH1Missing
	}
	if w.chunked {
		_, _ = io.WriteString(w.bw, "0\r\n")
		if len(w.header) > 0 {
			_ = w.trailer().Write(w.bw)
		}
		_, _ = w.bw.Write(crlf)
	}
	return w.FlushError()
}

// trailer is what was set after the head: the fields that were announced, and those marked as trailers.
func (w *h1Response) trailer() http.Header {
	out := http.Header{}
	for _, k := range w.trailers {
		if v, ok := w.header[k]; ok {
			out[k] = v
		}
	}
	for k, v := range w.header {
		if name, ok := strings.CutPrefix(k, http.TrailerPrefix); ok {
			out[name] = v
		}
	}
	return out
}

// SetReadDeadline bounds reads of the request's body.
func (w *h1Response) SetReadDeadline(t time.Time) error {
	if w.body == nil {
		return nil
	}
	return w.body.readBy(t)
}

// SetWriteDeadline bounds writes of the answer.
func (w *h1Response) SetWriteDeadline(t time.Time) error { return w.c.conn.SetWriteDeadline(t) }

// takeOver hands the connection over, before any answer. What was read of it and not used comes from it again.
func (w *h1Response) takeOver() (net.Conn, error) {
	if w.wrote {
		return nil, errors.New("the answer has begun")
	}
	c := w.c
	c.in.unwatch()
	if w.body != nil {
		w.body.end()
	}
	w.hijacked = true
	c.g.h1.remove(c)
	early, _ := c.br.Peek(c.br.Buffered())
	early = bytes.Clone(early)
	if c.in.has {
		early = append(early, c.in.b[0])
	}
	c.giveReader()
	w.giveWriter()
	_ = c.conn.SetDeadline(time.Time{})
	if len(early) == 0 {
		return c.conn, nil
	}
	return &replayConn{Conn: c.conn, early: early}, nil
}

func (w *h1Response) giveWriter() {
	w.bw.Reset(nil)
	h1Writers.Put(w.bw)
	w.bw = nil
}

// replayConn is a connection of which something was read already.
type replayConn struct {
	net.Conn
	early []byte
}

func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.early) == 0 || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.early)
	if c.early = c.early[n:]; len(c.early) == 0 {
		c.early = nil
	}
	return n, nil
}

// CloseWrite half-closes the connection under it.
func (c *replayConn) CloseWrite() error { return closeWrite(c.Conn) }

// dateSecond is a date as HTTP writes it.
type dateSecond struct {
	unix int64
	text string
}

var lastDate atomic.Pointer[dateSecond]

// httpDate is the present second (RFC 9110 5.6.7).
func httpDate() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.unix == now.Unix() {
		return d.text
	}
	d := &dateSecond{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
