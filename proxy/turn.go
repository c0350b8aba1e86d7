package proxy

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"crawlgate/pacing"
	"crawlgate/policy"
)

// allowed is step 4.
func (x *exchange) allowed(ctx context.Context) *refusal {
	queue := &queued{Context: ctx, d: x.g.drain}
	v := x.judge(queue, x.query())
	queue.done()
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

// judge asks robots.txt and signals.
func (x *exchange) judge(ctx context.Context, q policy.Query) policy.Verdict {
	v := x.g.policy.Check(ctx, q)
	if u := x.asWritten(); v.Allowed && u != nil {
		q.URL = u
		v = x.g.policy.Check(ctx, q)
	}
	return v
}

// asWritten is the target in the fetcher's own spelling, where that has a stray percent sign, which leaves as %25: a rule may
// be written either way, and the stricter one counts. Otherwise it is nil.
func (x *exchange) asWritten() *url.URL {
	if x.from == nil || x.from.raw == "" || strings.HasPrefix(x.from.raw, "//") {
		return nil
	}
	u := cloneURL(x.url)
	u.Opaque, _, _ = strings.Cut(x.from.raw, "?")
	return u
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
	queue := &queued{Context: ctx, d: x.g.drain}
	defer queue.done()
	t, err := x.g.pacer.Acquire(queue, x.pacingRequest())
	if err != nil {
		x.ticket.Cancel()
		var busy *pacing.Busy
		if errors.As(err, &busy) && busy.Reason == pacing.URLLeft {
			x.noteRefusal(0)
		}
		if ctx.Err() != nil {
			return &refusal{code: reasonClientGone, class: "client_gone", err: err}
		}
		if no := queue.refusal(); no != nil {
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
	c := pacing.Companion{Kind: k.kind, Client: x.id.client.Name, URL: x.target, Key: x.host.Name, Hops: x.profile.Limits.Redirects}
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
	if x.in == nil { // a tunnel that is passed on unread
		return max(0, w-time.Since(x.began))
	}
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
		Key: x.host.Name, Client: x.id.client.Name, Kind: x.kind.kind, URL: x.target,
		Wait: x.maxWait(), Gap: x.profile.Pacing.Gap, Slow: x.slow, Delay: x.verdict.Delay, Ticket: x.ticket,
	}
	if r.Kind != pacing.Page && r.Kind != pacing.Sitemap && r.Kind != pacing.Robots && r.Kind != pacing.Redirect {
		r.Wait = min(r.Wait, p.CompanionMaxWait)
	}
	return applyProfile(r, p)
}
