package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// h1Head is a request's head, or the trailer of a body, as it is read: line by line, and given up at the first line that
// two readers may understand in two ways. Lines end in CRLF and nothing else does (RFC 9112 2.2).
type h1Head struct {
	raw    []byte // all of it; the names of fields are in their canonical spelling
	fields []h1Field
	target int // where it begins and ends in the request line
	proto  int
	minor  int
}

// h1Field tells where a field is in the head.
type h1Field struct{ name, colon, value, end int }

// malformed is why a request's head is refused before anything is known of it.
type malformed struct {
	status int
	class  string
}

var (
	headMalformed = &malformed{http.StatusBadRequest, "request_malformed"}
	headTooSlow   = &malformed{http.StatusRequestTimeout, "header_timeout"}
	headTooLarge  = &malformed{http.StatusRequestHeaderFieldsTooLarge, "header_too_large"}
	headVersion   = &malformed{http.StatusHTTPVersionNotSupported, "request_version"}
	headFraming   = &malformed{http.StatusNotImplemented, "request_framing"}
	headExpects   = &malformed{http.StatusExpectationFailed, "request_expect"}
	headNotTLS    = &malformed{http.StatusBadRequest, "plain_http"}
	headHost      = &malformed{http.StatusBadRequest, "host_malformed"}
)

func (no *malformed) Error() string { return no.class }

var h1Heads = sync.Pool{New: func() any { return &h1Head{} }}

const (
	// keptHead is how large a head's memory may be and still be kept for the next.
	keptHead = 16 << 10
	// sharedHead is how long a head's fields may be whose values share one string: whoever keeps one of them keeps all.
	sharedHead = 4 << 10
)

func newH1Head() *h1Head { return h1Heads.Get().(*h1Head) }

func (h *h1Head) free() {
	if cap(h.raw) > keptHead {
		return
	}
	h.raw, h.fields = h.raw[:0], h.fields[:0]
	h1Heads.Put(h)
}

// read reads a head of at most limit bytes and the empty line after it. One empty line before is passed over, as some
// send after a body (RFC 9112 2.2). The error is *malformed, or the reader's.
func (h *h1Head) read(br *bufio.Reader, limit int) error {
	line, err := h.line(br, limit)
	if err == nil && len(line) == 0 {
		h.raw = h.raw[:0]
		line, err = h.line(br, limit)
	}
	if err != nil {
		return err
	}
	if no := h.request(line); no != nil {
		return no
	}
	return h.rest(br, limit)
}

// rest reads fields until the empty line.
func (h *h1Head) rest(br *bufio.Reader, limit int) error {
	for {
		at := len(h.raw)
		line, err := h.line(br, limit)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if !h.field(at, line) {
			return headMalformed
		}
	}
}

// begun tells whether anything of it has come.
func (h *h1Head) begun() bool { return len(h.raw) > 0 }

// line adds a line and gives it without its end.
func (h *h1Head) line(br *bufio.Reader, limit int) ([]byte, error) {
	at := len(h.raw)
	for {
		b, err := br.ReadSlice('\n')
		h.raw = append(h.raw, b...)
		if len(h.raw) > limit {
			return nil, headTooLarge
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	line := h.raw[at:]
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return nil, headMalformed
	}
	return line[:len(line)-2], nil
}

// request reads the request line: method, target, version, one space between them (RFC 9112 3).
func (h *h1Head) request(line []byte) *malformed {
	method := bytes.IndexByte(line, ' ')
	proto := bytes.LastIndexByte(line, ' ')
	if method <= 0 || proto <= method+1 || !isToken(line[:method]) {
		return headMalformed
	}
	for _, c := range line[method+1 : proto] {
		if c <= ' ' || c == 0x7f {
			return headMalformed
		}
	}
	v := line[proto+1:]
	if len(v) != len("HTTP/x.y") || string(v[:5]) != "HTTP/" || !isDigit(v[5]) || v[6] != '.' || !isDigit(v[7]) {
		return headMalformed
	}
	if v[5] != '1' {
		return headVersion
	}
	h.target, h.proto, h.minor = method+1, proto+1, int(v[7]-'0')
	return nil
}

// field reads a field's line, which begins at at, and reports whether it is one. A folded line is none (RFC 9112 5.2).
func (h *h1Head) field(at int, line []byte) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || !canonical(line[:colon]) {
		return false
	}
	start, end := colon+1, len(line)
	for start < end && (line[start] == ' ' || line[start] == '\t') {
		start++
	}
	for end > start && (line[end-1] == ' ' || line[end-1] == '\t') {
		end--
	}
	for _, c := range line[start:end] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false // RFC 9110 5.5
		}
	}
	h.fields = append(h.fields, h1Field{at, at + colon, at + start, at + end})
	return true
}

// header makes the fields a header.
func (h *h1Head) header() http.Header {
	out := make(http.Header, len(h.fields))
	if len(h.fields) == 0 {
		return out
	}
	values := make([]string, len(h.fields))
	at := h.fields[0].name
	raw := string(h.raw[at:])
	share := len(raw) <= sharedHead
	for i, f := range h.fields {
		name := raw[f.name-at : f.colon-at]
		values[i] = raw[f.value-at : f.end-at]
		if !share {
			name, values[i] = strings.Clone(name), strings.Clone(values[i])
		}
		if had, ok := out[name]; ok {
			out[name] = append(had, values[i])
		} else {
			out[name] = values[i : i+1 : i+1]
		}
	}
	return out
}

// canonical gives a name the spelling that http.Header has, in place, and reports whether it is a token.
func canonical(name []byte) bool {
	upper := true
	for i, c := range name {
		if !isTokenByte(c) {
			return false
		}
		if upper && c >= 'a' && c <= 'z' {
			name[i] = c - 'a' + 'A'
		} else if !upper && c >= 'A' && c <= 'Z' {
			name[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	return true
}

func isToken(b []byte) bool {
	for _, c := range b {
		if !isTokenByte(c) {
			return false
		}
	}
	return true
}

// isTokenByte tells whether b may stand in a token, and so begin an HTTP method (RFC 9110 5.6.2).
func isTokenByte(b byte) bool { return httpguts.IsTokenRune(rune(b)) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// closes tells whether a connection ends after the message by what the message says (RFC 9112 9.3).
func closes(minor int, h http.Header) bool {
	v := h["Connection"]
	return httpguts.HeaderValuesContainsToken(v, "close") || minor == 0 && !httpguts.HeaderValuesContainsToken(v, "keep-alive")
}

// noCache is what Pragma says to those who know only Cache-Control (RFC 9111 5.4).
func noCache(h http.Header) {
	if p := h["Pragma"]; len(p) > 0 && p[0] == "no-cache" {
		if _, said := h["Cache-Control"]; !said {
			h["Cache-Control"] = []string{"no-cache"}
		}
	}
}

// trailerNames are the names that Trailer announces, or false where one may not come so late (RFC 9110 6.5.1).
func trailerNames(values []string) (http.Header, bool) {
	var out http.Header
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			switch name {
			case "":
				continue
			case "Transfer-Encoding", "Trailer", "Content-Length":
				return nil, false
			}
			if out == nil {
				out = http.Header{}
			}
			out[name] = nil
		}
	}
	return out, true
}
