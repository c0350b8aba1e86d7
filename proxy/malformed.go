package proxy

import (
	"bytes"
	"errors"
	"net"
)

// malformedDetails says what is wrong, where there is more to say than that it is malformed.
var malformedDetails = map[string]string{
	"header_timeout":   "The request's head did not come whole in time (server.read_head). Send it at once.",
	"header_too_large": "The request's head is too large (server.head_bytes). Send less.",
	"request_version":  "This version of HTTP is not spoken here, or only under TLS (HTTP/2). Use HTTP/1.1.",
	"request_framing":  "Of transfer codings only chunked is served. Send the body with it, or with Content-Length.",
	"request_expect":   "This expectation is not known. Send 100-continue, or no Expect field.",
	"plain_http":       "This port speaks TLS (server.tls). Write https:// before the proxy's address.",
	"host_malformed":   "The Host field names no host. Send the host that the request is for.",
}

// answerMalformed builds the whole answer for a request that could not be parsed, and records it.
func (g *Gate) answerMalformed(t *tunnel, from net.Addr, no *malformed) []byte {
	x := g.beginBare(t, from)
	resp := x.refuse(&refusal{code: BadRequest, status: no.status, class: no.class, detail: malformedDetails[no.class]})
	resp.Header.Set("Connection", "close")
	resp.Header.Set("Date", httpDate())
	var b bytes.Buffer
	if err := resp.Write(&b); err != nil && !errors.Is(err, net.ErrClosed) {
		g.log.Error("write malformed answer", "error", err)
	}
	return b.Bytes()
}
