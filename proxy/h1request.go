package proxy

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"crawlgate/proxy/guard"
)

// chunkedCoding is the one transfer coding there is.
const chunkedCoding = "chunked"

// readH1 reads one request from br: its head, of at most limit bytes, and as its body what follows. begun tells whether
// anything of it came. The error is *malformed, or the reader's. What it accepts http.ReadRequest accepts too, and takes in
// the same way, but for a percent sign that begins no escape; it refuses more.
func readH1(br *bufio.Reader, limit int) (r *http.Request, begun bool, err error) {
	h := newH1Head()
	defer h.free()
	if err = h.read(br, limit); err != nil {
		return nil, h.begun(), err
	}
	r, no := h.message()
	if no != nil {
		return nil, true, no
	}
	r.Body = bodyOf(r, br)
	return r, true, nil
}

// message makes the head a request, without its body.
func (h *h1Head) message() (*http.Request, *malformed) {
	line := string(h.raw[:h.proto+len("HTTP/1.1")])
	r := &http.Request{
		Method: line[:h.target-1], RequestURI: line[h.target : h.proto-1], Proto: line[h.proto:],
		ProtoMajor: 1, ProtoMinor: h.minor, Header: h.header(),
	}
	if r.URL = targetURL(r.Method, r.RequestURI); r.URL == nil {
		return nil, headMalformed
	}
	if no := takeHost(r); no != nil {
		return nil, no
	}
	if no := frameRequest(r); no != nil {
		return nil, no
	}
	if e := r.Header["Expect"]; len(e) > 0 && e[0] != "" && !strings.EqualFold(e[0], "100-continue") {
		return nil, headExpects // RFC 9110 10.1.1
	}
	noCache(r.Header)
	r.Close = closes(h.minor, r.Header)
	return r, nil
}

// targetURL reads a request target, or gives nil. CONNECT has host and port alone (RFC 9112 3.2.3).
func targetURL(method, target string) *url.URL {
	authority := method == http.MethodConnect && !strings.HasPrefix(target, "/")
	switch {
	case authority:
		target = "http://" + target
	case strings.HasPrefix(target, "/"):
		target = guard.EscapeStrayTarget(target)
	default:
		target = guard.EscapeStray(target)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	if authority {
		u.Scheme = ""
	}
	return u
}

// takeHost takes Host out of the header. There is one, in every request of HTTP/1.1 (RFC 9112 3.2) but CONNECT, whose
// target says the same and which some send without.
func takeHost(r *http.Request) *malformed {
	hosts := r.Header["Host"]
	if len(hosts) > 1 || len(hosts) == 0 && r.ProtoMinor > 0 && r.Method != http.MethodConnect {
		return headMalformed
	}
	r.Host = r.URL.Host
	if len(hosts) == 0 {
		return nil
	}
	if !httpguts.ValidHostHeader(hosts[0]) {
		return headHost
	}
	if r.Host == "" {
		r.Host = hosts[0]
	}
	delete(r.Header, "Host")
	return nil
}

// frameRequest finds how the body's end is told (RFC 9112 6.3). Of two lengths that say the same one stays; beside a coding
// none does.
func frameRequest(r *http.Request) *malformed {
	lengths, codings := r.Header["Content-Length"], r.Header["Transfer-Encoding"]
	if len(codings) > 0 {
		switch {
		case r.ProtoMinor == 0:
			return headMalformed // RFC 9112 6.1
		case len(codings) > 1 || len(codings[0]) != len(chunkedCoding) || !strings.EqualFold(codings[0], chunkedCoding):
			return headFraming
		}
		delete(r.Header, "Transfer-Encoding")
		r.TransferEncoding, r.ContentLength = []string{chunkedCoding}, -1
	}
	if len(lengths) > 0 {
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || slices.ContainsFunc(lengths, func(v string) bool { return v != lengths[0] }) {
			return headMalformed
		}
		switch {
		case len(codings) > 0:
			delete(r.Header, "Content-Length")
		default:
			r.ContentLength = int64(n)
			r.Header["Content-Length"] = lengths[:1:1]
		}
	}
	if len(codings) == 0 {
		return nil
	}
	if announced, ok := r.Header["Trailer"]; ok {
		if r.Trailer, ok = trailerNames(announced); !ok {
			return headMalformed
		}
		delete(r.Header, "Trailer")
	}
	return nil
}

// bodyOf is what follows a request's head in br.
func bodyOf(r *http.Request, br *bufio.Reader) io.ReadCloser {
	switch {
	case r.ContentLength > 0:
		return &h1Length{br: br, left: r.ContentLength}
	case r.ContentLength < 0:
		return &h1Chunks{br: br, r: r, chunks: httputil.NewChunkedReader(br)}
	}
	return http.NoBody
}
