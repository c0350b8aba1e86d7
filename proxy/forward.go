package proxy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

var errCtxCanceled = context.Canceled

const indexingField = "Crawlgate-Indexing"

// forward serves one request on either side: it runs the path and writes what the path answered.
func (g *Gate) forward(w http.ResponseWriter, in *inbound) {
	r := in.r
	if r.ProtoAtLeast(1, 1) {
		in.early = func(code int, h http.Header) {
			maps.Copy(w.Header(), h)
			w.WriteHeader(code)
			clear(w.Header())
		}
	}
	rc := http.NewResponseController(w)
	if r.ContentLength != 0 {
		by := &bodyDeadline{set: rc.SetReadDeadline}
		defer by.end()
		in.readBy = by.readBy
	}
	resp := g.serve(in)
	if resp.StatusCode == statusClientGone && resp.Header.Get("Crawlgate-Reason") == string(reasonClientGone) {
		panic(http.ErrAbortHandler) // the code is none of the wire's
	}
	if rb, ok := resp.Body.(*relayBody); ok {
		g.relay(w, resp, rb)
		return
	}
	b, streamed := resp.Body.(*body)
	if !streamed {
		resp.Close = resp.Close || lastOfConnection(r)
		writeWhole(w, r, resp, g.rules().Server.StallTimeout)
		if in.readBy != nil && r.ProtoMajor == 2 && r.Header["Expect"] == nil {
			lingerOnStream(rc, r.Body)
		}
		return
	}
	defer b.Close()
	if lastOfConnection(r) {
		resp.Header["Connection"] = []string{"close"}
	}
	announce(resp.Header, resp.Trailer) // now: the end of the body, which is read beside the head's sending, fills the trailer in
	var said string                     // of the page's directives, with the head
	takesTrailers := hasToken(r.Header["Te"], "trailers") && r.ProtoAtLeast(1, 1)
	head := func() {
		h := resp.Header
		if said = b.directives(); said != "" {
			h[indexingField] = []string{said}
		}
		if takesTrailers && b.learning() {
			h.Add("Trailer", indexingField)
			if r.ProtoMajor == 1 {
				// Only a chunked message has trailers there, and the fetcher asked for them (RFC 9112 7.1.2). The body
				// is not touched, and one that breaks off lacks its last chunk.
				h.Del("Content-Length")
			}
		}
		giveHeader(w, h)
		w.WriteHeader(resp.StatusCode)
	}
	if instead := b.copyTo(w, head); instead != nil {
		instead.Close = instead.Close || lastOfConnection(r)
		writeWhole(w, r, instead, g.rules().Server.StallTimeout)
		return
	}
	sendTrailers(w, resp.Trailer)
	delete(w.Header(), indexingField) // of the head: what is there now goes out as a trailer
	if late := b.directives(); late != said && takesTrailers {
		w.Header()[indexingField] = []string{late}
	}
}

// bodyDeadline bounds the next read of a request's body as long as the request is served. Who sends the body to the site
// may go on for a moment after that, when the connection serves the next request; and to the standard library a stream
// that has ended is a nil pointer.
type bodyDeadline struct {
	mu  sync.Mutex
	set func(time.Time) error // nil once the request has been served
}

func (d *bodyDeadline) readBy(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.set == nil {
		return http.ErrBodyReadAfterClose
	}
	return d.set(t)
}

func (d *bodyDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = nil
}

// lastOfConnection tells whether the connection ends with the answer because of its request: one that used
// Transfer-Encoding does not keep it (RFC 9112 6.1).
func lastOfConnection(r *http.Request) bool { return r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 }

// giveHeader makes h the header of the answer.
func giveHeader(w http.ResponseWriter, h http.Header) {
	if ours, ok := w.(*h1Response); ok {
		ours.take(h)
		return
	}
	maps.Copy(w.Header(), h)
	if _, ok := h["Content-Type"]; !ok {
		w.Header()["Content-Type"] = nil // else the standard server guesses one
	}
}

// writeWhole writes an answer of ours.
func writeWhole(w http.ResponseWriter, r *http.Request, resp *http.Response, stall time.Duration) {
	defer resp.Body.Close()
	giveHeader(w, resp.Header)
	w.Header()["Content-Length"] = []string{strconv.FormatInt(resp.ContentLength, 10)}
	if resp.Close && r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
	if r.ProtoMajor == 2 && stall > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall)) // of this stream
	}
	w.WriteHeader(resp.StatusCode)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, resp.Body)
	}
}

// lingerOnStream reads on for a moment what a fetcher still sends of a body that was refused. The standard server resets a
// stream whose body was not read, and some fetchers then lose the answer, though it came before (RFC 9113 8.1).
func lingerOnStream(rc *http.ResponseController, body io.Reader) {
	if rc.Flush() != nil || rc.SetReadDeadline(time.Now().Add(lingering)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, body)
}

// announce names the trailers that the origin announced and that may pass.
func announce(h http.Header, trailer http.Header) {
	if len(trailer) == 0 {
		return
	}
	names := make([]string, 0, len(trailer))
	for k := range trailer {
		if httpguts.ValidHeaderFieldName(k) && httpguts.ValidTrailerHeader(k) && !strings.HasPrefix(k, "Crawlgate-") && k != "Proxy-Status" {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		h["Trailer"] = []string{strings.Join(names, ", ")}
	}
}

// sendTrailers passes the trailers on, cleaned as the head was. Fields that frame or route a message, or give it its
// type, may not come this late (RFC 9110 6.5.1).
func sendTrailers(w http.ResponseWriter, trailer http.Header) {
	if len(trailer) == 0 {
		return
	}
	stripAnswer(trailer)
	declared := w.Header()["Trailer"]
	for k, v := range trailer {
		switch {
		case !httpguts.ValidTrailerHeader(k):
		case hasToken(declared, k):
			w.Header()[k] = v
		default:
			w.Header()[http.TrailerPrefix+k] = v
		}
	}
}
