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
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// who is step 1: the client, its profile and job.
func (x *exchange) who() *refusal {
	if x.g.drain.draining() {
		return drainingNow()
	}
	if no := x.wellFormed(); no != nil {
		return no
	}
	id := (*identity)(nil)
	switch {
	case x.own != nil:
		id = x.own.id
	case x.tun != nil:
		id = x.tun.client
	default:
		var no *refusal
		if id, no = x.g.identify(x.in); no != nil {
			return no
		}
	}
	x.setClient(id)
	profile := id.profile
	h := x.in.Header
	if id.client.Fields {
		if v := h.Get("Crawlgate-Profile"); v != "" {
			profile = v
		}
		if v := h.Get("Crawlgate-Job"); v != "" {
			name, rest, _ := strings.Cut(v, ";")
			if name = strings.TrimSpace(name); !plainName(name) {
				return &refusal{code: BadRequest, class: "job_name", detail: "Crawlgate-Job does not name a job"}
			}
			x.job, x.ev.Job = name, name
			x.jobLimit = jobLimit(rest)
		}
	}
	p, ok := id.client.profile(profile)
	if !ok {
		return &refusal{code: ProfileDenied, class: "profile_unknown"}
	}
	x.profile = p
	x.ev.Profile, x.ev.Agent = p.Name, p.Agent.Name
	if p.Job.Required && x.job == "" {
		return &refusal{code: JobRequired}
	}
	return nil
}

// wellFormed checks what net/http lets pass: number of fields, length of the target.
func (x *exchange) wellFormed() *refusal {
	n, size := 0, 0
	for k, v := range x.in.Header {
		n += len(v)
		for _, s := range v {
			size += len(k) + len(s) + 4
		}
	}
	if limit := x.rules.Server.HeadBytes; limit > 0 && size > limit {
		return &refusal{code: BadRequest, status: http.StatusRequestHeaderFieldsTooLarge, class: "header_too_large",
			detail: "The request's header is larger than " + strconv.Itoa(limit) + " bytes (server.head_bytes). Send less."}
	}
	if limit := x.rules.Server.Fields; limit > 0 && n > limit {
		return &refusal{code: BadRequest, status: http.StatusRequestHeaderFieldsTooLarge, class: "header_too_large",
			detail: "The request has more than " + strconv.Itoa(limit) + " header fields (server.fields). Send fewer."}
	}
	if limit := x.rules.Server.TargetBytes; limit > 0 && len(x.in.RequestURI) > limit {
		return &refusal{code: BadRequest, status: http.StatusRequestURITooLong, class: "uri_too_long",
			detail: "The request target is longer than " + strconv.Itoa(limit) + " bytes (server.target_bytes). Send a shorter one."}
	}
	return nil
}

// what is step 2: one spelling of the target. Host never finds a target on the proxy port; inside a tunnel the
// tunnel's host and port count, and the request's host must be the same.
func (x *exchange) what() *refusal {
	r := x.in
	if x.own != nil {
		u, host, port, err := guard.ParseURL(x.own.url.String())
		if err != nil {
			return refusalFor(err)
		}
		x.setTarget(u, host, port)
		return nil
	}
	if x.tun == nil {
		u, host, port, err := guard.ParseTarget(r.RequestURI)
		if err != nil {
			no := refusalFor(err)
			var he *guard.HostError
			if errors.As(err, &he) {
				switch he.Class {
				case "https_needs_connect":
					no.detail = "https:// in absolute form is not served, since cookies would cross the network in clear. Use CONNECT: set HTTPS_PROXY, or the client's https proxy."
				case "not_a_proxy_request":
					no.detail = "This is the proxy port of crawlgate. Set it as the proxy of your client (http_proxy, https_proxy), and its CA from the admin port's /ca.pem."
				}
			}
			return no
		}
		x.setTarget(u, host, port)
		return nil
	}
	t := x.tun
	if r.Method == http.MethodConnect {
		return &refusal{code: MethodDenied, class: "method_denied", allow: x.profile.Limits.Methods, detail: "A tunnel inside a tunnel is not served. Send the request itself."}
	}
	scheme := "http"
	if t.secure(r) {
		scheme = "https"
	}
	raw := r.Host
	if strings.Contains(r.RequestURI, "://") {
		// An absolute target inside a tunnel must name the tunnel's host, and its scheme, too.
		if u, err := url.Parse(r.RequestURI); err == nil {
			raw = u.Host
			if !strings.EqualFold(u.Scheme, scheme) {
				return &refusal{code: SchemeDenied, class: "scheme_denied", detail: "The target's scheme is not the tunnel's. Send the path alone."}
			}
		}
	}
	h, _, err := guard.ParseAuthority(raw, t.port)
	if err != nil {
		return refusalFor(err)
	}
	if h.Name != t.host.Name {
		return &refusal{code: HostMismatch, class: "authority_mismatch"}
	}
	target := r.RequestURI
	if strings.Contains(target, "://") {
		u := *r.URL
		u.Scheme, u.Host = "", ""
		target = u.RequestURI()
	}
	if !strings.HasPrefix(target, "/") {
		if target == "*" {
			return &refusal{code: BadRequest, class: "request_malformed", detail: "The target * is not served. Name a path."}
		}
		return &refusal{code: BadRequest, class: "request_malformed"}
	}
	u, host, port, err := guard.ParseURL(scheme + "://" + t.host.Name + ":" + strconv.Itoa(int(t.port)) + target)
	if err != nil {
		return refusalFor(err)
	}
	x.setTarget(u, host, port)
	if scheme == "http" && port == 443 {
		return &refusal{code: SchemeDenied, class: "connect_not_tls", detail: "Plain HTTP in a tunnel to port 443 is not served. Speak TLS in the tunnel."}
	}
	return nil
}

func (x *exchange) setTarget(u *url.URL, h guard.Host, port uint16) {
	x.url, x.host, x.port = u, h, port
	x.ev.SetURL(u)
}

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
	if no := x.hops(); no != nil {
		if no = x.unlessReporting(no); no != nil {
			return no
		}
	}
	if no := x.jobAllows(); no != nil {
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
		return &refusal{code: SchemeDenied, class: "upgrade_denied"}
	}
	return nil
}

// bodyless looks whether an HTTP/2 request that announced no length has any body at all.
func (x *exchange) bodyless() bool {
	if stall := x.rules.Server.StallTimeout; x.readBy != nil && stall > 0 {
		_ = x.readBy(time.Now().Add(stall))
		defer func() { _ = x.readBy(time.Time{}) }()
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
		if u, err := url.Parse(v); err == nil {
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

// userAgent is the name the request goes out under.
func (x *exchange) userAgent() string {
	if x.profile.Agent.Pass {
		return x.in.Header.Get("User-Agent")
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

// allowed is step 4.
func (x *exchange) allowed(ctx context.Context) *refusal {
	queued, done := x.g.drain.queued(ctx)
	v := x.g.policy.Check(queued, x.query())
	done()
	x.verdict = v
	x.noteVerdict(v)
	if v.FetchedAt.After(x.began) {
		// Read for this request: a delay that changed moves those who wait, both ways.
		x.g.pacer.SetDelay(x.host.Name, v.Delay)
	}
	if v.Allowed {
		return nil
	}
	if ctx.Err() != nil {
		return &refusal{code: reasonClientGone, class: "client_gone"}
	}
	if no := drainCause(v.Cause); no != nil {
		return no
	}
	no := &refusal{code: Reason(v.Reason), class: v.Class, retryAfter: v.RetryAfter, err: v.Cause}
	switch no.code {
	case RobotsDisallow, RobotsSignal, RobotsChallenge:
		no.verdict = &v
		if no.code == RobotsChallenge {
			x.noteRefusal(0)
		}
	case RobotsUnreadable:
		no.verdict = &v
		no.retryAfter = max(no.retryAfter, time.Second)
	default:
		// The host's own name, address or TLS failed, or pacing refused the fetch: the page gets that code. Facts of
		// the refusal (addresses for the log) ride in the cause.
		if cause := refusalFor(v.Cause); v.Cause != nil && cause.code == no.code {
			cause.retryAfter = max(cause.retryAfter, no.retryAfter)
			return cause
		}
		return no
	}
	return x.unlessReporting(no)
}

// drainCause is the refusal by which the gate's end ended a wait, or nil.
func drainCause(err error) *refusal {
	var no *refusal
	if errors.As(err, &no) && no.code == Draining {
		return no
	}
	return nil
}

func (x *exchange) query() policy.Query {
	a := x.profile.Agent
	return policy.Query{
		URL: x.url, Agent: a.Name, Token: a.Token, Fallback: a.Fallback, StopOn: a.StopOn, Profile: x.profile.Robots,
		CacheOnly: x.kind.thirdParty && !x.kind.frame && x.profile.Robots.ThirdParty != "own",
		Wait:      x.maxWait(), Requester: &robotsAsker{x: x, listed: x.admitted.Listed},
	}
}

func (x *exchange) noteVerdict(v policy.Verdict) {
	x.ev.Rule.Line, x.ev.Rule.Text, x.ev.Rule.Group = v.Line, v.Rule, v.Group
	if v.Signal != "" && !v.Allowed {
		x.ev.Rule.Line, x.ev.Rule.Text = v.SignalLine, v.Signal
	}
	x.ev.Robots.SHA256, x.ev.Robots.FetchedAt, x.ev.Robots.Status = v.SHA256, v.FetchedAt, v.Status
	switch {
	case v.Class == "not_consulted" || v.Class == "robots_txt_itself":
		x.ev.Robots.State = "not_consulted"
	case v.FetchedAt.IsZero():
		x.ev.Robots.State = "none"
	case v.Stale:
		x.ev.Robots.State = "stale"
	default:
		x.ev.Robots.State = "fresh"
	}
	x.ev.Class = v.Class
}

// rulesExpired tells whether the rules ran out while the request waited for its turn.
func (x *exchange) rulesExpired() bool {
	if x.turn == nil || x.turn.Waited() <= 0 || x.verdict.Expires.IsZero() || !x.verdict.Expires.Before(time.Now()) {
		return false
	}
	x.rechecked++
	return x.rechecked <= 2
}

// giveTurnBack returns an unused turn: nothing was sent, so no gap is owed.
func (x *exchange) giveTurnBack() {
	x.turn.Done(pacing.Outcome{Sent: false})
	x.turn = nil
}

// wait is step 5.
func (x *exchange) wait(ctx context.Context) *refusal {
	if x.profile.Pacing.Mode == pacing.ModeNone {
		x.page = x.g.pages.open(x)
		return nil
	}
	x.book()
	queued, done := x.g.drain.queued(ctx)
	defer done()
	t, err := x.g.pacer.Acquire(queued, x.pacingRequest())
	if err != nil {
		x.ticket.Cancel()
		var busy *pacing.Busy
		if errors.As(err, &busy) && busy.Reason == pacing.URLLeft {
			x.noteRefusal(0)
		}
		if ctx.Err() != nil {
			return &refusal{code: reasonClientGone, class: "client_gone", err: err}
		}
		if no := drainCause(context.Cause(queued)); no != nil {
			return no
		}
		return refusalFor(err)
	}
	x.turn = t
	x.ev.TurnWaitMS += t.Waited().Milliseconds()
	x.noteOwed(t)
	if ctx.Err() != nil {
		// Granted in the moment the client left: the turn goes back unused.
		return &refusal{code: reasonClientGone, class: "client_gone"}
	}
	x.page = x.g.pages.open(x)
	return nil
}

// noteOwed records the gap that was owed before a turn, and from what.
func (x *exchange) noteOwed(t *pacing.Turn) {
	gap, source := t.Owed()
	x.ev.DelayOwedMS = gap.Milliseconds()
	switch source {
	case "gap":
		source = "default"
	case "robots":
		source = x.verdict.DelaySource
	case "slowed":
		source = "backoff"
	}
	x.ev.DelaySource = source
}

// book asks the pacer whether the request may go as the kind its evidence suggests: a file or a second look needs an
// open page of the same client, a redirect an answer that pointed here. What it refuses goes as a page.
func (x *exchange) book() {
	k := x.kind
	if k.kind == pacing.Page || k.kind == pacing.Sitemap || k.kind == pacing.Robots {
		return
	}
	c := pacing.Companion{Kind: k.kind, Client: x.id.client.Name, URL: x.url.String(), Key: x.host.Name, Hops: x.profile.Limits.Redirects}
	if k.owner != nil {
		c.Page, c.PageKey = k.owner.url, k.owner.host
	}
	t, ok := x.g.pacer.Companion(c)
	if !ok && k.again != pacing.Page {
		// The redirect was followed before: this is another look at the page it led to.
		x.kind.kind, x.kind.hop, x.ev.RedirectOf = k.again, nil, ""
		c.Kind = k.again
		t, ok = x.g.pacer.Companion(c)
		x.ev.Kind = x.kind.name()
	}
	if !ok {
		x.kind.kind = pacing.Page
		x.ev.Kind = x.kind.name()
		return
	}
	x.ticket = t
}

// maxWait is the longest the fetcher waits: the profile's, which Crawlgate-Max-Wait may shorten, less what passed.
func (x *exchange) maxWait() time.Duration {
	w := x.profile.Pacing.MaxWait
	if v := x.in.Header.Get("Crawlgate-Max-Wait"); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < w.Seconds() {
			w = time.Duration(s * float64(time.Second))
		}
	}
	return max(0, w-time.Since(x.began))
}

func (x *exchange) pacingRequest() pacing.Request {
	p := x.profile.Pacing
	r := pacing.Request{
		Key: x.host.Name, Client: x.id.client.Name, Kind: x.kind.kind, URL: x.url.String(),
		Wait: x.maxWait(), Gap: x.profile.Pacing.Gap, Slow: x.slow, Delay: x.verdict.Delay, Ticket: x.ticket,
	}
	if r.Kind != pacing.Page && r.Kind != pacing.Sitemap && r.Kind != pacing.Robots && r.Kind != pacing.Redirect {
		r.Wait = min(r.Wait, p.CompanionMaxWait)
	}
	return applyProfile(r, p)
}
