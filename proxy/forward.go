package proxy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
)

var errCtxCanceled = context.Canceled

// forward serves one request on either side: it runs the path and writes what the path answered.
func (g *Gate) forward(w http.ResponseWriter, r *http.Request, t *tunnel) {
	in := &inbound{r: r, tunnel: t}
	if r.ProtoAtLeast(1, 1) {
		in.early = func(code int, h http.Header) {
			maps.Copy(w.Header(), h)
			w.WriteHeader(code)
			clear(w.Header())
		}
	}
	resp := g.serve(r.Context(), in)
	if rb, ok := resp.Body.(*relayBody); ok {
		g.relay(w, resp, rb)
		return
	}
	b, streamed := resp.Body.(*body)
	if !streamed {
		writeWhole(w, r, resp)
		return
	}
	defer b.Close()
	// Framing is the server's: a request that used Transfer-Encoding does not keep its connection (RFC 9112 6.1).
	if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
	head := func() {
		maps.Copy(w.Header(), resp.Header)
		announce(w.Header(), resp.Trailer)
		w.WriteHeader(resp.StatusCode)
	}
	announced := len(resp.Trailer)
	if instead := b.copyTo(w, head); instead != nil {
		writeWhole(w, r, instead)
		return
	}
	sendTrailers(w, resp.Trailer, announced)
}

// writeWhole writes an answer of ours.
func writeWhole(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	if resp.Close && r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
	w.WriteHeader(resp.StatusCode)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, resp.Body)
	}
}

// announce names the trailers that the origin announced.
func announce(h http.Header, trailer http.Header) {
	if len(trailer) == 0 {
		return
	}
	names := make([]string, 0, len(trailer))
	for k := range trailer {
		if !strings.HasPrefix(strings.ToLower(k), "crawlgate-") {
			names = append(names, k)
		}
	}
	if len(names) > 0 {
		h["Trailer"] = []string{strings.Join(names, ", ")}
	}
}

// sendTrailers passes the trailers on, cleaned as the head was.
func sendTrailers(w http.ResponseWriter, trailer http.Header, announced int) {
	if len(trailer) == 0 {
		return
	}
	stripAnswer(trailer)
	prefix := ""
	if len(trailer) != announced {
		prefix = http.TrailerPrefix
	}
	for k, v := range trailer {
		w.Header()[prefix+k] = v
	}
}
