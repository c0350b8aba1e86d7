package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"crawlgate/allowlist"
	"crawlgate/proxy/guard"
)

// where is step 3.
func (x *exchange) where(ctx context.Context) *refusal {
	x.kind = x.classify()
	x.ev.Kind = x.kind.name()
	if no := x.stopped(); no != nil {
		return no
	}
	// A noise request of a browser is answered before anything is looked up for it.
	if x.kind.denied != "" && x.profile.denies(x.kind.denied) && !(x.kind.denied == kindNoise && x.named()) {
		if no := x.unlessReporting(&refusal{code: KindDenied, class: x.kind.class, detail: x.kind.detail}); no != nil {
			return no
		}
	}
	if x.profile.Agent.Missing && !x.loopbackTarget() {
		return &refusal{code: IdentityMissing, detail: "No agent is configured, so nothing leaves for other hosts than loopback. " +
			"Add to the configuration: agents: [{name: NAME, product_token: NAMEBot, user_agent: \"NAMEBot/1.0 (+https://...)\"}], or start with --user-agent."}
	}
	if ref := x.viaLoop(); ref != nil {
		return ref
	}
	if no := x.methodAllowed(); no != nil {
		return no
	}
	if err := x.g.guard().CheckPort(x.host, x.port); err != nil {
		return refusalFor(err)
	}
	if no := x.listed(ctx); no != nil {
		return no
	}
	if no := x.locked(); no != nil {
		return no
	}
	if no := x.goneForGood(); no != nil {
		return x.unlessReporting(no)
	}
	if no := x.hops(); no != nil {
		if no = x.unlessReporting(no); no != nil {
			return no
		}
	}
	if no := x.jobAllows(ctx); no != nil {
		return x.unlessReporting(no)
	}
	return nil
}

// stopped asks the operator's ledger: a stop answers before anything else and touches no network; a slow entry is kept
// for the turn.
func (x *exchange) stopped() *refusal {
	if x.g.ledger == nil {
		return nil
	}
	e, ok := x.g.ledger.Get(x.host.Name)
	if !ok {
		return nil
	}
	if e.Action == allowlist.ActionStop {
		return &refusal{code: SiteStopped, class: "ledger", detail: stopDetail(e)}
	}
	x.slow = e.Gap
	return nil
}

// named tells whether the client's own sites name the host, which switches the list of browser noise off for it.
func (x *exchange) named() bool {
	if x.id.client == x.rules.open {
		return false
	}
	req := x.allowRequest()
	req.Peek = true
	a, err := x.g.list.Check(req)
	return err == nil && a.Listed
}

// loopbackTarget tells whether the target is loopback by its very spelling or by the static hosts.
func (x *exchange) loopbackTarget() bool {
	if x.host.IsLiteral() {
		return x.host.Addr.IsLoopback()
	}
	addrs := x.g.guard().Static(x.host.Name)
	return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netipAddr) bool { return !a.IsLoopback() })
}

func (x *exchange) viaLoop() *refusal {
	for _, v := range x.in.Header["Via"] {
		if strings.Contains(v, x.g.pseudonym) {
			return &refusal{code: Loop, class: "proxy_loop"}
		}
	}
	return nil
}

// methodAllowed checks method, body and upgrade against the profile's limits.
func (x *exchange) methodAllowed() *refusal {
	l, method := &x.profile.Limits, x.in.Method
	if method == http.MethodOptions && x.in.Header.Get("Origin") != "" {
		if m := x.in.Header.Get("Access-Control-Request-Method"); m != "" {
			method = m // a preflight is judged as the request it announces
		}
	}
	if method == http.MethodConnect || method == http.MethodTrace || !slices.Contains(l.Methods, method) {
		return &refusal{code: MethodDenied, class: "method_denied", allow: l.Methods,
			detail: "The profile " + x.profile.Name + " sends " + strings.Join(l.Methods, ", ") + " only (limits.methods). Use one of these."}
	}
	if x.in.ContentLength > l.RequestBody || x.in.ContentLength < 0 && l.RequestBody == 0 && x.in.ProtoMajor == 1 {
		return &refusal{code: BodyDenied, class: "request_body",
			detail: fmt.Sprintf("The profile %s sends bodies of at most %d bytes (limits.request_body). Send a smaller one.", x.profile.Name, l.RequestBody)}
	}
	if x.in.ContentLength < 0 && l.RequestBody == 0 && !x.bodyless() {
		return &refusal{code: BodyDenied, class: "request_body",
			detail: fmt.Sprintf("The profile %s sends no bodies (limits.request_body). Send none.", x.profile.Name)}
	}
	if isWebSocket(x.in.Header) && l.WebSocket == "deny" {
		return &refusal{code: SchemeDenied, class: "upgrade_denied",
			detail: "The profile " + x.profile.Name + " opens no WebSocket (limits.websocket). Do without it, or have it allowed."}
	}
	return nil
}

// bodyless looks whether an HTTP/2 request that announced no length has any body at all.
func (x *exchange) bodyless() bool {
	if stall := x.rules.Server.StallTimeout; x.from.readBy != nil && stall > 0 {
		_ = x.from.readBy(time.Now().Add(stall))
		defer func() { _ = x.from.readBy(time.Time{}) }()
	}
	var one [1]byte
	n, err := x.in.Body.Read(one[:])
	x.empty = n == 0 && err == io.EOF
	return x.empty
}

// listed asks the address of a literal and the client's list, in this order; only a sitemap that was not read yet
// touches the network.
func (x *exchange) listed(ctx context.Context) *refusal {
	if err := x.g.guard().CheckHost(x.host, x.port); err != nil {
		return refusalFor(err)
	}
	x.request = x.allowRequest()
	a, err := x.g.list.CheckContext(ctx, x.request)
	if err != nil {
		no := refusalFor(err)
		var d *allowlist.Denied
		if errors.As(err, &d) {
			x.ev.Entry = d.Entry
		}
		return x.unlessReporting(no)
	}
	x.admitted = a
	x.ev.Entry, x.ev.Grant = a.Entry, a.Grant
	return nil
}

// unlessReporting lets a refusal pass in report-only mode and notes what would have been refused.
func (x *exchange) unlessReporting(no *refusal) *refusal {
	if x.enforced() {
		return no
	}
	if x.ev.WouldDeny == "" {
		x.ev.WouldDeny = string(no.code)
	}
	return nil
}

func (x *exchange) enforced() bool { return x.rules.Enforce && x.id.client.Enforce }

func (x *exchange) allowRequest() allowlist.Request {
	h := x.in.Header
	req := allowlist.Request{
		Client: x.id.client.Name, URL: x.url, Method: x.in.Method, Any: x.profile.AnySite || x.id.client == x.rules.open,
		Dest: h.Get("Sec-Fetch-Dest"), Document: x.kind.document, Session: x.id.session,
	}
	if x.kind.preflight {
		req.Method = h.Get("Access-Control-Request-Method")
	}
	v := h.Get("Referer")
	if v == "" {
		v = h.Get("Origin")
	}
	if v != "" {
		if u, err := url.Parse(guard.EscapeStray(v)); err == nil {
			req.Referer = u
		}
	}
	return req
}

// locked is the identity lock: what a site refused to one agent does not go out under another.
func (x *exchange) locked() *refusal {
	if x.g.locks == nil || x.profile.IdentityLock <= 0 {
		return nil
	}
	l, ok := x.g.locks.Find(x.url, x.profile.Agent.Name, x.passedUA(), x.profile.IdentityLock)
	if !ok {
		return nil
	}
	what, agent := "answered "+strconv.Itoa(l.Status), "the agent "+l.Agent
	if l.Status == 0 {
		what = "showed a bot check, or kept answering 429 or 503,"
	}
	if l.Agent == "" {
		agent = "several agents"
	}
	return &refusal{code: IdentitySwitch, class: "identity_lock", detail: fmt.Sprintf(
		"The site %s to %s at %s. A refusal is never worked round by another identity.", what, agent, l.First.UTC().Format(time.RFC3339))}
}

// noteRefusal enters what a site refused to this agent, so that it does not go out under another. status 0: a bot check,
// or a page left for its round.
func (x *exchange) noteRefusal(status int) {
	if x.g.locks == nil || x.profile.IdentityLock <= 0 {
		return
	}
	if err := x.g.locks.Record(x.url, x.profile.Agent.Name, x.passedUA(), status, time.Now()); err != nil {
		x.g.log.Error("refusal of a site not kept", "request_id", x.ev.ID, "error", err)
	}
}

// goneForGood refuses what its site has said is gone for good (410), where the profile takes that for final. The fetcher
// gets the site's own word again, a 410, with our reason. A 404 says nothing of tomorrow (RFC 9110 15.5.5) and is asked
// for again.
func (x *exchange) goneForGood() *refusal {
	if !x.goneCounts() {
		return nil
	}
	since, gone := x.g.gone.Find(x.url)
	if !gone {
		return nil
	}
	return &refusal{code: URLLeft, status: http.StatusGone, class: "gone", detail: "The site said on " + since.UTC().Format(time.DateOnly) +
		" that this page is gone for good (410). Take it off the list; `crawlgate sites resume " + x.host.Name + "` has the host's pages asked for again."}
}

// goneCounts tells whether a 410 is final for the request. It never is for robots.txt, which then has no rules and is read
// again (RFC 9309 2.3.1.3), nor for the gate's own reading of sitemaps.
func (x *exchange) goneCounts() bool {
	return x.profile.GoneIsFinal && x.g.gone != nil && x.url.Path != "/robots.txt" && (x.from == nil || x.from.own == nil) &&
		(x.in.Method == http.MethodGet || x.in.Method == http.MethodHead)
}

// noteGone enters a 410.
func (x *exchange) noteGone() {
	if !x.goneCounts() {
		return
	}
	if err := x.g.gone.Record(x.url, time.Now()); err != nil {
		x.g.log.Error("a page that is gone not kept", "request_id", x.ev.ID, "error", err)
	}
}

// userAgent is the name the request goes out under.
func (x *exchange) userAgent() string {
	if x.profile.Agent.Pass {
		return strings.Clone(x.in.Header.Get("User-Agent"))
	}
	return x.profile.Agent.UserAgent
}

// passedUA is the fetcher's user agent where the profile leaves it, which makes it part of the identity.
func (x *exchange) passedUA() string {
	if x.profile.Agent.Pass {
		return x.userAgent()
	}
	return ""
}
