package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
)

// readHead reads one head of an answer, a 1xx one too.
func (x *siteExchange) readHead() (*http.Response, error) {
	line, err := x.tp.ReadLine()
	if err != nil {
		return nil, x.headError(err, true)
	}
	proto, rest, ok := strings.Cut(line, " ")
	major, minor, known := http.ParseHTTPVersion(proto)
	code, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ") // some send more than one space (RFC 9112 3)
	status, err := strconv.Atoi(code)
	if !ok || !known || major != 1 || len(code) != 3 || err != nil || status < 100 {
		return nil, fmt.Errorf("%w: status line %.80q", errAnswerInvalid, line)
	}
	h, err := x.tp.ReadMIMEHeader()
	if err != nil {
		return nil, x.headError(err, false)
	}
	return &http.Response{StatusCode: status, Proto: proto, ProtoMajor: major, ProtoMinor: minor, Header: http.Header(h), Request: x.r, Body: http.NoBody}, nil
}

// headError names what is wrong with a head that could not be read: it is not HTTP, or the connection ended.
func (x *siteExchange) headError(err error, nothing bool) error {
	if p, ok := err.(textproto.ProtocolError); ok {
		return fmt.Errorf("%w: %s", errAnswerInvalid, strconv.Quote(string(p)))
	}
	if nothing && err == io.EOF {
		return err
	}
	return x.failed(err)
}

// frame decides where the answer's body ends (RFC 9112 6.3) and whether the connection goes on after it.
func (x *siteExchange) frame(resp *http.Response) error {
	h := resp.Header
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &upgraded{x: x}
		return nil
	}
	coding, chunked := h["Transfer-Encoding"]
	if chunked && (len(coding) != 1 || !strings.EqualFold(textproto.TrimString(coding[0]), "chunked")) {
		return fmt.Errorf("%w: unsupported transfer encoding %.80q", errAnswerInvalid, coding)
	}
	length, err := contentLength(h["Content-Length"])
	if err != nil {
		return err
	}
	keep := goesOn(resp)
	b := &siteBody{x: x, keep: keep}
	switch {
	case noBodyStatus(x.r.Method, resp.StatusCode):
		resp.ContentLength = length
		if chunked {
			delete(h, "Content-Length")
			resp.ContentLength = -1
		}
		x.end(keep)
		return nil
	case chunked:
		// It overrides a length. Of HTTP/1.0 the framing is not to be trusted any further (RFC 9112 6.1).
		delete(h, "Content-Length")
		b.keep = keep && resp.ProtoMinor >= 1 && length < 0
		b.src, b.trailer, b.left = httputil.NewChunkedReader(x.br), &resp.Trailer, -1
		resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
		var ok bool
		if resp.Trailer, ok = trailerNames(h["Trailer"]); !ok {
			return fmt.Errorf("%w: Trailer %.80q", errAnswerInvalid, h["Trailer"])
		}
		delete(h, "Trailer")
	case length == 0:
		x.end(keep)
		return nil
	case length > 0:
		resp.ContentLength = length
		b.src, b.left = x.br, length
	default:
		resp.ContentLength, b.keep = -1, false
		b.src, b.left = x.br, -1
	}
	resp.Body = b
	return nil
}

// goesOn tells whether the connection goes on after an answer, by its head.
func goesOn(resp *http.Response) bool {
	c := resp.Header["Connection"]
	return resp.ProtoMinor >= 1 && !hasToken(c, "close") || resp.ProtoMinor == 0 && hasToken(c, "keep-alive")
}

// contentLength is the one length that an answer names, or -1.
func contentLength(values []string) (int64, error) {
	if len(values) == 0 {
		return -1, nil
	}
	first := textproto.TrimString(values[0])
	for _, v := range values[1:] {
		if textproto.TrimString(v) != first {
			return 0, fmt.Errorf("%w: several values of Content-Length", errAnswerInvalid)
		}
	}
	n, err := strconv.ParseUint(first, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: Content-Length %.80q", errAnswerInvalid, first)
	}
	return int64(n), nil
}

// siteBody is the body of an answer. At its end the connection is given back at once, not when somebody closes it.
type siteBody struct {
	x       *siteExchange
	src     io.Reader
	left    int64 // of a known length; -1: unknown
	trailer *http.Header
	keep    bool
	err     error // once it has ended
}

func (b *siteBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.left > 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.src.Read(p)
	if b.left > 0 {
		if b.left -= int64(n); b.left == 0 {
			err = io.EOF
		} else if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == io.EOF && b.trailer != nil {
		err = b.readTrailer()
	}
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		err = b.x.failed(err)
	}
	b.onWait(nil) // the connection may be another's next
	b.err = err
	b.x.end(err == io.EOF && b.keep)
	return n, err
}

// onWait has f called before a read waits for the site; nil: nothing any more.
func (b *siteBody) onWait(f func()) {
	if b.err == nil {
		b.x.c.under.waits = f
	}
}

// here tells whether all of the body has been read from the connection.
func (b *siteBody) here() bool {
	return b.err == nil && b.left > 0 && int64(b.x.br.Buffered()) >= b.left
}

// maxTrailerBytes bounds the trailers of an answer.
const maxTrailerBytes = 64 << 10

// readTrailer takes what stands after the last chunk.
func (b *siteBody) readTrailer() error {
	b.x.c.left = maxTrailerBytes + int64(b.x.br.Buffered())
	h, err := b.x.tp.ReadMIMEHeader()
	b.x.c.left = noHeadLimit
	if err != nil {
		return b.x.headError(err, false)
	}
	if len(h) > 0 && *b.trailer == nil {
		*b.trailer = http.Header{}
	}
	for k, v := range h {
		(*b.trailer)[k] = v
	}
	return io.EOF
}

// Close ends the exchange. A body that was not read to its end ends the connection too.
func (b *siteBody) Close() error {
	if b.err == nil {
		b.onWait(nil)
		b.err = http.ErrBodyReadAfterClose
		b.x.end(false)
	}
	return nil
}

// upgraded is a connection that speaks another protocol from now on.
type upgraded struct{ x *siteExchange }

func (u *upgraded) Read(p []byte) (int, error)  { return u.x.br.Read(p) }
func (u *upgraded) Write(p []byte) (int, error) { return u.x.c.Conn.Write(p) }

// CloseWrite passes the end of one direction on.
func (u *upgraded) CloseWrite() error { return closeWrite(u.x.c.Conn) }

func (u *upgraded) Close() error {
	if u.x.over.Swap(true) {
		return nil
	}
	u.x.stop()
	return u.x.c.Conn.Close()
}
