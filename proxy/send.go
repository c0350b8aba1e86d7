package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// dress is step 6 but for the signature: it makes the request that leaves. Fields of the fetcher's connection, of other
// proxies and of foreign identities go; the agent's user agent comes last.
func (x *exchange) dress(ctx context.Context) (*http.Request, *refusal) {
	r := x.in
	h := passable(r.Header)
	websocket := isWebSocket(h)
	x.ev.Sig.Stripped = sign.Strip(h)
	trailers := stripConnection(h)
	if trailers {
		h["Te"] = []string{"trailers"}
	}
	if websocket {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	if x.profile.Limits.Authorization != "pass" {
		delete(h, "Authorization")
	}
	x.sentUA = x.userAgent()
	h["User-Agent"] = []string{x.sentUA} // always set: an absent one would get Go's
	x.ev.UserAgent = x.sentUA
	if x.ev.ClientUserAgent == x.sentUA {
		x.ev.ClientUserAgent = ""
	}
	if x.rules.Via {
		h["Via"] = []string{strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor) + " " + x.g.pseudonym}
	}
	if err := x.g.audit.Ready(); err != nil {
		return nil, &refusal{code: AuditUnavailable, retryAfter: 5 * time.Second, err: err}
	}
	x.wire = &wireLog{hint: x.from.early}
	rctx, cancel := context.WithCancelCause(ctx)
	x.cancel = cancel
	if x.turn != nil {
		x.turn.OnEnd(cancel)
	}
	out := &http.Request{
		Method: r.Method, URL: cloneURL(x.url), Host: x.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.ContentLength != 0 && r.Body != nil && !x.empty {
		up := &upload{r: r.Body, x: x, wire: x.wire, left: x.profile.Limits.RequestBody, in: r}
		out.Body, out.ContentLength = up, r.ContentLength
		if up.trailer = r.Trailer.Clone(); up.trailer != nil {
			x.ev.Sig.Stripped += sign.Strip(up.trailer)
			stripTrailer(up.trailer)
			out.Trailer = up.trailer
		}
	}
	return out.WithContext(rctx), nil
}

// sign signs the request or notes why it is not signed. A failure to sign refuses it: never unsigned instead.
func (x *exchange) sign(method string, u *url.URL, h http.Header) *refusal {
	x.ev.Sig.State = x.signState(u)
	if x.ev.Sig.State != "signed" {
		return nil
	}
	path := u.EscapedPath()
	info, err := x.g.signer.Sign(sign.Request{Agent: x.profile.Agent.Name, Method: method, Authority: u.Host, Path: path}, h)
	if err != nil {
		x.ev.Sig.State = "failed"
		return &refusal{code: SignFailed, err: err}
	}
	s := &x.ev.Sig
	s.State, s.KeyID, s.Label, s.Created, s.Expires, s.Components, s.Agent = info.State, info.KeyID, info.Label, info.Created, info.Expires, info.Components, info.AgentURL
	return nil
}

// signState decides whether a request is signed (web bot auth, section 3): https, to a listed site, not a file that
// another site's page loads, by an agent that has a key.
func (x *exchange) signState(u *url.URL) string {
	switch {
	case x.profile.Sign == "never":
		return "never"
	case u.Scheme != "https":
		return "http"
	case x.profile.Agent.Missing:
		return "disabled"
	case x.kind.thirdParty:
		return "cross-site"
	case x.profile.Sign == "sites" && !x.admitted.Listed:
		return "not-listed"
	}
	if state, _ := x.g.signer.State(x.profile.Agent.Name); state == sign.Disabled {
		return "disabled"
	}
	return "signed" // also for an agent that the signer does not know: it fails, and nothing goes out
}

// send is steps 7 and 8: one request on the wire, and what came of it.
func (x *exchange) send(out *http.Request) (*http.Response, *refusal) {
	if x.turn != nil {
		// A shared turn's lease may have run out while the request was made ready.
		if err := x.turn.Held(); err != nil {
			return nil, &refusal{code: Overloaded, class: "lease_lost", retryAfter: time.Second, err: err}
		}
	}
	if err := x.g.audit.Intent(out.Context(), x.ev); err != nil {
		return nil, &refusal{code: AuditUnavailable, retryAfter: 5 * time.Second, err: err}
	}
	x.sending = out.Context()
	x.wire.headTimer = time.AfterFunc(x.profile.Limits.Timeout, func() {
		if !x.wire.over.Load() {
			x.cancel(errHeadTimeout)
		}
	})
	x.g.pace.begin(x)
	x.wire.to, x.wire.limit, x.wire.bare = siteOf(out.URL, isWebSocket(out.Header)), x.profile.connections(), out.Body == nil
	resp, err := x.g.upstream.roundTrip(out, x.wire)
	x.wire.endHead()
	headLate := !x.wire.headTimer.Stop()
	if err == nil && headLate && out.Context().Err() != nil {
		resp.Body.Close()
		err = context.Cause(out.Context())
	}
	if err != nil {
		if cause := context.Cause(out.Context()); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		if up := x.wire.upload.Load(); up != nil {
			err = up // a read of the body that failed cancels the request too, and is why
		}
		no := refusalFor(err)
		x.outcome.Err = err
		x.outcome.Sent = x.wire.sent()
		switch no.code {
		case DNSFailed, UpstreamFailed, UpstreamTimeout, UpstreamTLS:
			x.outcome.Sent = true // the origin failed, whether or not a byte went out
		case BadRequest, BodyDenied, reasonClientGone:
			x.outcome.Err = errCanceled // the fetcher failed, and the origin is not blamed for it
		}
		return nil, no
	}
	x.wire.answer()
	if x.g.clock != nil {
		x.g.clock.Observe(x.host.Name, resp.Header, time.Now())
	}
	x.outcome.Sent = true
	x.outcome.Status = resp.StatusCode
	if resp.Header["Retry-After"] != nil {
		x.outcome.RetryAfter, x.asked = pacing.RetryAfter(resp.Header, time.Now())
	}
	x.outcome.Date = resp.Header.Get("Date")
	return resp, nil
}

// give is step 9, for an answer of the site or a kept one.
func (x *exchange) give(answer *http.Response) *http.Response {
	answer, no := x.admit(answer)
	if no != nil {
		return x.refuseLater(no)
	}
	return answer
}

// admit is step 9: what the answer's head says is noted and cleaned, and its body wrapped.
func (x *exchange) admit(resp *http.Response) (*http.Response, *refusal) {
	ev, h := x.ev, resp.Header
	ev.Status = x.outcome.Status // of the site, which may have been 304
	if resp.StatusCode < 100 || resp.StatusCode > 599 {
		resp.Body.Close()
		return nil, &refusal{code: UpstreamFailed, class: "response_invalid", proxyError: "http_protocol_error"}
	}
	x.observe(resp)
	if no := soundLength(resp); no != nil {
		resp.Body.Close()
		return nil, no
	}
	if resp.StatusCode == http.StatusProxyAuthRequired {
		// Passed on, it would make the fetcher send its proxy secret to the site's next challenge.
		resp.Body.Close()
		return nil, &refusal{code: UpstreamFailed, class: "origin_407", proxyError: "http_protocol_error"}
	}
	upgraded := resp.StatusCode == http.StatusSwitchingProtocols
	if _, both := resp.Body.(io.ReadWriteCloser); upgraded && (!both || !isWebSocket(x.in.Header) || !hasToken(h["Upgrade"], "websocket")) {
		// Nobody asked for it: what follows would be an unjudged tunnel.
		resp.Body.Close()
		return nil, &refusal{code: UpstreamFailed, class: "upgrade_unasked", proxyError: "http_protocol_error"}
	}
	if limit := x.profile.Limits.ResponseBody; limit > 0 && resp.ContentLength > limit && x.in.Method != http.MethodHead {
		resp.Body.Close()
		return nil, &refusal{code: ResponseTooLarge, class: "size", detail: "The answer has " + strconv.FormatInt(resp.ContentLength, 10) +
			" bytes and the profile " + x.profile.Name + " takes " + strconv.FormatInt(limit, 10) + " (limits.response_body). Have the limit raised if the file is wanted."}
	}
	if eventStream(h) {
		if !x.wire.stays() {
			resp.Body.Close()
			return nil, refusalFor(errSiteFull)
		}
		x.endTurn() // it may stay open for hours; nothing is asked of the site meanwhile
	}
	accept := h["Sec-Websocket-Accept"]
	stripAnswer(h)
	h["Crawlgate-Request-Id"] = []string{ev.ID}
	if x.ev.TurnWaitMS > 0 {
		h["Crawlgate-Waited"] = []string{strconv.FormatFloat(float64(x.ev.TurnWaitMS)/1000, 'f', 2, 64)}
	}
	if x.stored.reuse {
		h[storedField] = []string{ev.Revalidation}
	}
	if ev.Indexing != "" {
		h["Crawlgate-Indexing"] = []string{ev.Indexing}
	}
	ev.Answered = resp.StatusCode
	ev.Reason = string(reasonOK)
	if upgraded {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		if accept != nil {
			h["Sec-Websocket-Accept"] = accept
		}
		x.endTurn() // an upgraded connection holds no turn
		resp.Body = &relayBody{ReadWriteCloser: resp.Body.(io.ReadWriteCloser), x: x}
		return resp, nil
	}
	resp.Body = newBody(x, resp)
	return resp, nil
}

// soundLength leaves at most one Content-Length of an answer, a plain number that the body is held to. Over HTTP/2 the
// library passes on whatever stands there and follows a single value only; two that differ would have the fetcher's
// reader find the end in another place than ours (RFC 9110 8.6). That of a 304 is the length of a body that does not come,
// and Go's HTTP/2 client waits for it.
func soundLength(resp *http.Response) *refusal {
	values := resp.Header["Content-Length"]
	if len(values) == 0 {
		return nil
	}
	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil || !oneLength(values, int64(n)) {
		return &refusal{code: UpstreamFailed, class: "response_invalid", proxyError: "http_protocol_error"}
	}
	if len(values) > 1 && resp.ContentLength < 0 || resp.StatusCode == http.StatusNotModified {
		delete(resp.Header, "Content-Length")
		return nil
	}
	resp.Header["Content-Length"] = []string{strconv.FormatUint(n, 10)}
	return nil
}

// observe notes what the rules and the audit use of an answer's head.
func (x *exchange) observe(resp *http.Response) {
	ev, h := x.ev, resp.Header
	ev.ContentType = h.Get("Content-Type")
	ev.RobotsTag = strings.Join(h["X-Robots-Tag"], ", ")
	ev.Indexing = policy.IndexingDirectives(h, x.profile.Agent.Token)
	ev.RetryAfterS = int64(x.asked / time.Second)
	ev.AcceptSignature = h.Get("Accept-Signature") != ""
	ev.RateLimit = strings.Join(append(h["Ratelimit"], h["Ratelimit-Policy"]...), ", ")
	ev.Signals = x.g.policy.ObserveResponse(x.query(), resp.StatusCode, h)
	if x.page != nil {
		x.page.answered(resp.StatusCode)
	}
	switch resp.StatusCode {
	case 301, 302, 303, 307, 308:
		x.redirected(resp)
	case 401, 403, 407, 451:
		x.noteRefusal(resp.StatusCode)
	case http.StatusGone:
		x.noteGone()
	}
}

// redirected notes where an answer points: the next request of this fetcher to that URL is its hop.
func (x *exchange) redirected(resp *http.Response) {
	loc := resp.Header.Get("Location")
	x.ev.SetLocation(loc)
	x.ev.Permanent = resp.StatusCode == 301 || resp.StatusCode == 308
	u, err := x.url.Parse(guard.EscapeStray(loc))
	if err != nil || loc == "" {
		return
	}
	u, host := normalised(u)
	if u == nil {
		return
	}
	n := 1
	if x.kind.hop != nil {
		n = x.kind.hop.count + 1
	}
	x.outcome.Location = u.String()
	x.g.pages.redirected(x.id.session, u.String(), hop{count: n, from: x.ev.ID, host: host, at: time.Now()})
	x.g.list.ObserveRedirect(x.request, x.admitted, u)
}

// endTurn gives the turn back before the exchange ends, which goes on without it: the turn's end does not cut it.
func (x *exchange) endTurn() {
	if x.turn == nil || x.turnOver {
		return
	}
	x.turnOver = true
	x.g.pace.ended(x)
	x.turn.Done(x.outcome)
}

func cloneURL(u *url.URL) *url.URL {
	c := *u
	return &c
}

// upload is a request body on its way: counted, and bounded also where no field announced its length. The wait for the
// answer's head begins anew with each piece, and a fetcher that sends none for long ends the exchange. Of the trailers
// that arrive at its end only those pass that were announced and may pass.
type upload struct {
	r       io.ReadCloser
	x       *exchange
	wire    *wireLog
	left    int64
	in      *http.Request
	trailer http.Header
	closed  atomic.Bool
}

// uploadError is a fault of the request's body, which is the fetcher's and not the site's.
type uploadError struct{ err error }

func (e *uploadError) Error() string { return "request body: " + e.err.Error() }
func (e *uploadError) Unwrap() error { return e.err }

func (u *upload) Read(p []byte) (int, error) {
	stall := u.x.rules.Server.StallTimeout
	if u.x.from.readBy != nil && stall > 0 {
		_ = u.x.from.readBy(time.Now().Add(stall))
	}
	n, err := u.r.Read(p)
	u.wire.out.Add(int64(n))
	if n > 0 && u.wire.headTimer != nil && !u.wire.over.Load() {
		u.wire.headTimer.Reset(u.x.profile.Limits.Timeout)
	}
	if u.left -= int64(n); u.left < 0 {
		return 0, errReqTooLarge
	}
	switch {
	case err == io.EOF:
		if u.x.from.readBy != nil && stall > 0 {
			_ = u.x.from.readBy(time.Time{})
		}
		for k := range u.trailer {
			u.trailer[k] = u.in.Trailer[k]
		}
	case err != nil && u.closed.Load():
		// Whoever sent it wants no more, since the site ended the exchange: the fetcher is not to blame.
	case err != nil:
		up := &uploadError{err}
		u.wire.upload.Store(up)
		err = up
	}
	return n, err
}

// Close ends the reading; one that waits fails.
func (u *upload) Close() error {
	u.closed.Store(true)
	return u.r.Close()
}
