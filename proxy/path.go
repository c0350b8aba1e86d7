package proxy

import (
	"context"
	"net"
	"net/http"
	"time"
)

// inbound is one request as it arrived: on the proxy port (plain HTTP, absolute form) or inside a tunnel.
type inbound struct {
	ctx    context.Context // ends when the fetcher leaves
	r      *http.Request
	tunnel *tunnel                // nil on the proxy port
	conn   net.Conn               // the fetcher's; nil where it is none of HTTP/1
	via    *listenerOf            // of the proxy port
	secure bool                   // under TLS, in the tunnel
	early  func(int, http.Header) // passes on a 1xx answer
	readBy func(time.Time) error  // bounds the next read of the body
	own    *ownFetch              // a fetch of the gate for itself (sitemaps): no fetcher asked
	raw    string                 // path and query as the fetcher wrote them, where the path holds a percent sign that begins no escape
	fault  *malformed             // what is wrong with the head, of a request that could be read all the same
}

// serve is the way of every request, top to bottom. Each step answers one question and is one call; a step that says
// no returns why, and nothing after it happens. The order is a promise: a host that is not on the list never sees
// even a robots.txt fetch, a URL that robots.txt forbids never spends a turn, and a signature is made after the wait,
// so that it is fresh when it leaves.
//
// It always returns an answer and never a nil one. The deferred call is the only place that ends an exchange early,
// so no way out can forget the turn or the audit event.
func (g *Gate) serve(in *inbound) (resp *http.Response) {
	ctx, x := in.ctx, g.begin(in)
	defer func() { resp = x.settle(recover(), resp) }()

	// 1. Who asks: client, profile, job; and what kind of request is it?
	if no := x.who(); no != nil {
		return x.refuseLater(no)
	}
	// 2. What for: the target, in one spelling; inside a tunnel it must be the tunnel's.
	if no := x.what(); no != nil {
		return x.refuseLater(no)
	}
	// 3. May this client go there: scheme, port, method, literal address, stops, sites, identity lock.
	if no := x.where(ctx); no != nil {
		return x.refuseLater(no)
	}
	// 4. Does the site allow it, and 5. is it our turn? Rules that ran out during the wait are looked at again.
	for {
		if no := x.allowed(ctx); no != nil {
			return x.refuseLater(no)
		}
		// What the site's sitemap says has not changed needs no turn.
		if kept := x.spare(ctx); kept != nil {
			return x.give(kept)
		}
		if no := x.wait(ctx); no != nil {
			return x.refuseLater(no)
		}
		if !x.rulesExpired() {
			break
		}
		x.giveTurnBack()
	}
	// 6. Say who we are: foreign fields away, the agent's user agent; a kept answer makes the request conditional; the
	// signature last.
	out, no := x.dress(ctx)
	if no != nil {
		return x.refuseLater(no)
	}
	x.recall(out)
	if no := x.sign(out.Method, x.url, out.Header); no != nil {
		return x.refuseLater(no)
	}
	// 7. Send: the guarded dialer resolves once and dials a checked address; 8. what came of it paces the next.
	answer, no := x.send(out)
	if no != nil {
		return x.refuseLater(no)
	}
	// What the site says has not changed comes from what is kept.
	if answer, no = x.revive(answer); no != nil {
		return x.refuseLater(no)
	}
	// 9. Answer: limits, our fields, the body as it comes; 10. its end records the event and gives the turn back.
	return x.give(answer)
}
