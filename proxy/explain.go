package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// Explanation is what would happen to a URL now, and why: every step's verdict in the order of the path.
type Explanation struct {
	URL     string `json:"url"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"` // a code, or "ok"
	Class   string `json:"class,omitempty"`
	Status  int    `json:"status,omitempty"` // the answer a fetcher would get
	Detail  string `json:"detail,omitempty"`
	// WouldDeny is the code that would refuse it, were this not report-only mode; Detail then says why.
	WouldDeny string `json:"would_deny,omitempty"`

	Client  string `json:"client"`
	Profile string `json:"profile"`
	Agent   string `json:"agent"`
	Token   string `json:"product_token"`
	Kind    string `json:"kind"`

	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Entry  string `json:"entry,omitempty"`        // the allowlist entry or grant
	NoJob  bool   `json:"job_required,omitempty"` // a request without a job would be refused; the question is judged as if it had one

	Addresses []ExplainedAddress `json:"addresses"`
	Robots    *ExplainedRobots   `json:"robots,omitempty"`
	Turn      *ExplainedTurn     `json:"turn,omitempty"`
	Ledger    string             `json:"ledger,omitempty"`

	UserAgent string `json:"user_agent"`
	Signature string `json:"signature"` // signed, or why not
	KeyID     string `json:"keyid,omitempty"`

	At time.Time `json:"at"`
}

// ExplainedAddress is one address of the answer.
type ExplainedAddress struct {
	Address string `json:"address"`
	Class   string `json:"class"`
}

// ExplainedRobots is what robots.txt says.
type ExplainedRobots struct {
	URL         string            `json:"url"`
	Status      int               `json:"status"`
	Class       string            `json:"class"`
	SHA256      string            `json:"sha256,omitempty"`
	FetchedAt   time.Time         `json:"fetched_at,omitzero"`
	Expires     time.Time         `json:"expires,omitzero"`
	Stale       bool              `json:"stale,omitempty"`
	Group       string            `json:"group,omitempty"`
	GroupLine   int               `json:"group_line,omitempty"`
	Rule        string            `json:"rule,omitempty"`
	Line        int               `json:"line,omitempty"`
	Octets      int               `json:"octets,omitempty"`
	Signal      string            `json:"signal,omitempty"`
	SignalLine  int               `json:"signal_line,omitempty"`
	Signals     map[string]string `json:"signals,omitempty"`
	DelayS      float64           `json:"delay_s,omitempty"`
	DelaySource string            `json:"delay_source,omitempty"`
	DelayLine   int               `json:"delay_line,omitempty"`
	Sitemaps    []string          `json:"sitemaps,omitempty"`
	Truncated   bool              `json:"truncated,omitempty"` // longer than 500 KiB
	Mode        string            `json:"mode"`
	Choice      string            `json:"choice,omitempty"` // the setting that decided where no line did, as `robots.mode: named`
	Notes       []string          `json:"notes,omitempty"`
}

// ExplainedTurn is when the turn would come.
type ExplainedTurn struct {
	GapS    float64   `json:"gap_s"`
	Source  string    `json:"source"`
	At      time.Time `json:"at"`
	InS     float64   `json:"in_s"`
	Waiting int       `json:"waiting"`
	Held    bool      `json:"held"`
	Hold    time.Time `json:"hold_until,omitzero"`
	Level   int       `json:"level,omitempty"`
	Breaker string    `json:"breaker,omitempty"`
	OwnGapS float64   `json:"own_gap_s"`
	Reason  string    `json:"reason,omitempty"` // why it would be refused: the turn is too far, the host stopped
}

// Question is what Explain is asked.
type Question struct {
	Client  string // empty: the first configured, or the open client
	Profile string // empty: the client's first
	URL     string
	At      time.Time // zero: now; else robots.txt as it was archived then
}

// Explain runs the steps of the path for a URL and stops before anything is sent but robots.txt. The error says that
// the question itself cannot be answered (unknown client or profile, unreadable URL).
func (g *Gate) Explain(ctx context.Context, q Question) (*Explanation, error) {
	rules := g.rules()
	c := rules.open
	if len(rules.Clients) > 0 {
		c = rules.Clients[0]
		if q.Client != "" {
			c = rules.byName[q.Client]
		}
	}
	if c == nil || q.Client != "" && c.Name != q.Client {
		return nil, errors.New("no client is named " + q.Client)
	}
	p, ok := c.profile(q.Profile)
	if !ok {
		return nil, errors.New("client " + c.Name + " has no profile " + q.Profile)
	}
	u, host, port, err := guard.ConfigURL(q.URL)
	e := &Explanation{URL: q.URL, Client: c.Name, Profile: p.Name, Agent: p.Agent.Name, Token: p.Agent.Token, UserAgent: p.Agent.UserAgent, Kind: "page", At: time.Now(), NoJob: p.Job.Required}
	if p.Agent.Pass {
		e.UserAgent = "the fetcher's own"
	}
	x := &exchange{g: g, rules: rules, began: time.Now(), profile: p, id: &identity{client: c, auth: "none", session: "check"}}
	x.in = (&http.Request{Method: http.MethodGet, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	x.from = &inbound{ctx: ctx, r: x.in, raw: guard.StrayTarget(withScheme(q.URL))}
	x.ev = &audit.Event{ID: "check"}
	if err != nil {
		return e.refused(x, refusalFor(err)), nil
	}
	x.url, x.host, x.port = u, host, port
	x.kind = kindOf{kind: pacing.Page, document: true}
	e.URL, e.Scheme, e.Host, e.Port = u.String(), u.Scheme, host.Name, int(port)
	if no := x.explainWhere(ctx, e); no != nil {
		return e.refused(x, no), nil
	}
	if no := x.explainRobots(ctx, e, q.At); no != nil {
		return e.refused(x, no), nil
	}
	e.Allowed, e.Reason = true, string(reasonOK)
	if q.At.IsZero() {
		if no := x.explainTurn(e); no != nil {
			e.refused(x, no)
		}
	}
	e.Signature = x.signState(u)
	if e.Signature == "signed" {
		e.KeyID = g.signer.ActiveKey(p.Agent.Name)
	}
	return e, nil
}

func (e *Explanation) refused(x *exchange, no *refusal) *Explanation {
	t := table[no.code]
	e.Allowed, e.Reason, e.Class, e.Status, e.Detail = false, string(no.code), no.class, t.status, no.sentence(t)
	if no.status != 0 {
		e.Status = no.status
	}
	return e
}

// explainWhere is steps 1 to 3, and the addresses that a dial would check.
func (x *exchange) explainWhere(ctx context.Context, e *Explanation) *refusal {
	if x.profile.Agent.Missing && !x.loopbackTarget() {
		return &refusal{code: IdentityMissing}
	}
	if x.g.ledger != nil {
		if l, ok := x.g.ledger.Get(x.host.Name); ok {
			e.Ledger = l.Action + " since " + l.When.UTC().Format(time.DateOnly) + " " + l.Reason
		}
	}
	if no := x.stopped(); no != nil {
		return no
	}
	if err := x.g.guard().CheckPort(x.host, x.port); err != nil {
		return refusalFor(err)
	}
	if err := x.g.guard().CheckHost(x.host, x.port); err != nil {
		return refusalFor(err)
	}
	x.request = x.allowRequest()
	x.request.Peek = true
	a, err := x.g.list.CheckContext(ctx, x.request)
	if err != nil {
		var d *allowlist.Denied
		if errors.As(err, &d) {
			e.Entry = d.Entry
		}
		if no := x.unlessReportingTo(e, refusalFor(err)); no != nil {
			return no
		}
	} else {
		x.admitted = a
		e.Entry = a.Entry
	}
	if a.Grant != "" {
		e.Entry = "grant " + a.Grant + " " + a.Entry
	}
	if no := x.locked(); no != nil {
		return no
	}
	if no := x.goneForGood(); no != nil {
		if no = x.unlessReportingTo(e, no); no != nil {
			return no
		}
	}
	addrs, err := x.g.guard().Resolve(ctx, x.host.Name, x.port)
	var d *guard.Denied
	if errors.As(err, &d) {
		addrs = d.Resolved
	}
	for _, a := range addrs {
		e.Addresses = append(e.Addresses, ExplainedAddress{a.String(), guard.Classify(a)})
	}
	if err != nil {
		return refusalFor(err)
	}
	return nil
}

// withScheme makes a URL without a scheme one with.
func withScheme(u string) string {
	if !strings.Contains(u, "://") {
		return "http://" + u
	}
	return u
}

func (x *exchange) explainRobots(ctx context.Context, e *Explanation, at time.Time) *refusal {
	q := x.query()
	q.At = at
	v := x.judge(ctx, q)
	x.verdict = v
	if v.RobotsURL != "" || v.Class != "" {
		e.Robots = &ExplainedRobots{
			URL: v.RobotsURL, Status: v.Status, Class: v.Class, SHA256: v.SHA256, FetchedAt: v.FetchedAt, Expires: v.Expires, Stale: v.Stale,
			Group: v.Group, GroupLine: v.GroupLine, Rule: v.Rule, Line: v.Line, Octets: v.RuleOctets, Signal: v.Signal, SignalLine: v.SignalLine,
			Signals: v.Signals, DelayS: v.Delay.Seconds(), DelaySource: v.DelaySource, DelayLine: v.DelayLine, Sitemaps: v.Sitemaps, Truncated: v.Truncated,
			Mode: x.profile.Robots.Mode, Choice: robotsChoice(&v, &x.profile.Robots), Notes: v.Notes,
		}
		if v.Cause != nil {
			e.Robots.Notes = append(slices.Clip(v.Notes), "it could not be read: "+v.Cause.Error())
		}
	}
	if v.Allowed {
		return nil
	}
	no := &refusal{code: Reason(v.Reason), class: v.Class, verdict: &v, retryAfter: v.RetryAfter}
	switch no.code {
	case RobotsDisallow, RobotsSignal, RobotsChallenge, RobotsUnreadable:
		return x.unlessReportingTo(e, no)
	}
	return no
}

// robotsChoice names the setting that decided where neither a line of the file nor RFC 9309 alone did.
func robotsChoice(v *policy.Verdict, c *policy.ProfileConfig) string {
	switch v.Class {
	case policy.ClassNotConsulted:
		return "robots.mode: " + c.Mode
	case policy.ClassNoRobots, policy.ClassForbidden, policy.ClassTooManyRedirects:
		switch {
		case v.Status == http.StatusUnauthorized || v.Status == http.StatusForbidden:
			return "robots.on_401_403: " + c.On401403
		case v.Status < 400:
			return "robots.too_many_redirects: " + c.TooManyRedirects
		}
	case policy.ClassNoGroup:
		if c.Mode == policy.ModeNamed {
			return "robots.mode: " + c.Mode
		}
	case policy.ClassUnreadableAllow, policy.ClassUnreachable, policy.ClassRateLimited, policy.ClassChallenge, policy.ClassRedirectBlocked:
		return "robots.when_unreadable: " + c.WhenUnreadable
	case policy.ClassVisitTime:
		return "robots.visit_time: " + c.VisitTime
	case policy.ClassResponseSignal:
		return "robots.response_signals: " + c.ResponseSignals
	}
	return ""
}

// unlessReportingTo is unlessReporting for an explanation.
func (x *exchange) unlessReportingTo(e *Explanation, no *refusal) *refusal {
	if x.enforced() {
		return no
	}
	if e.WouldDeny == "" {
		e.WouldDeny, e.Class, e.Detail = string(no.code), no.class, no.sentence(table[no.code])
	}
	return nil
}

func (x *exchange) explainTurn(e *Explanation) *refusal {
	if x.profile.Pacing.Mode == pacing.ModeNone {
		e.Turn = &ExplainedTurn{Source: "pacing.mode: none"}
		return nil
	}
	v := x.g.pacer.Peek(x.pacingRequest())
	e.Turn = explainedView(v)
	e.Turn.OwnGapS = x.profile.Pacing.Gap.Seconds()
	if v.Reason != "" {
		return &refusal{code: Reason(v.Reason), retryAfter: v.Wait}
	}
	return nil
}

func explainedView(v pacing.View) *ExplainedTurn {
	return &ExplainedTurn{
		GapS: v.Gap.Seconds(), Source: v.Source, At: v.Until, InS: max(0, v.Wait.Seconds()), Waiting: v.Waiting, Held: v.State == "held",
		Hold: v.HoldUntil, Level: v.Level, Breaker: v.Breaker, Reason: string(v.Reason),
	}
}
