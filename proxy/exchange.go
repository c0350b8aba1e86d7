package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// exchange is one request on its way: what is known of it, what it holds, and its audit event. It ends once,
// whatever happens.
type exchange struct {
	g     *Gate
	rules *Rules
	in    *http.Request // as the fetcher sent it; never changed
	from  *inbound
	empty bool // the request's body was looked at, and there is none
	tun   *tunnel
	began time.Time
	ev    *audit.Event

	id      *identity
	profile *Profile
	job     string

	url    *url.URL // normalised target
	target string   // the same as text
	host   guard.Host
	port   uint16

	kind        kindOf
	admitted    allowlist.Admission
	request     allowlist.Request
	verdict     policy.Verdict
	slow        time.Duration // the ledger's gap, 0: none
	ticket      *pacing.Ticket
	turn        *pacing.Turn
	turnOver    bool     // the turn was given back, the exchange goes on
	leavesNoGap bool     // a robots.txt fetch after which nothing is owed
	wire        *wireLog // what the transport saw
	outcome     pacing.Outcome
	asked       time.Duration // the site's Retry-After
	page        *openPage     // the page turn this exchange opened
	sentUA      string
	stored      revalidation
	jobLimit    int  // max-pages of the request
	charged     *Job // the job that was charged for this page
	rechecked   int  // times the rules were looked at again

	no       *refusal
	recorded sync.Once
	released sync.Once
	cancel   context.CancelCauseFunc
	sending  context.Context // of the request that left
}

// recordPatience bounds the wait for an event that must be on disk before its answer is given.
const recordPatience = 5 * time.Second

// begin starts the exchange of a request.
func (g *Gate) begin(in *inbound) *exchange {
	r, t := in.r, in.tunnel
	now := time.Now()
	rules := g.rules()
	x := &exchange{g: g, rules: rules, in: r, from: in, tun: t, began: now}
	x.ev = &audit.Event{Type: audit.TypeRequest, ID: audit.NewID(), Time: now, Method: r.Method, PolicySHA256: rules.Hash, Intercepted: t != nil}
	if t != nil {
		x.ev.SetClient(t.client.addr)
	} else if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		x.ev.SetClient(a)
	}
	x.ev.ClientUserAgent = strings.Clone(r.Header.Get("User-Agent")) // events live long, and heads share their text
	x.ev.Reason = string(reasonOK)
	return x
}

// beginBare starts the exchange of a request that could not even be parsed.
func (g *Gate) beginBare(t *tunnel, from net.Addr) *exchange {
	rules := g.rules()
	x := &exchange{g: g, rules: rules, began: time.Now(), tun: t}
	x.ev = &audit.Event{Type: audit.TypeRequest, ID: audit.NewID(), Time: x.began, PolicySHA256: rules.Hash, Intercepted: t != nil}
	if a, err := netip.ParseAddrPort(from.String()); err == nil {
		x.ev.SetClient(a)
	}
	if t != nil {
		t.requests.Add(1)
		x.setClient(t.client)
		x.ev.Host, x.ev.Port = t.host.Name, int(t.port)
	}
	return x
}

func (x *exchange) setClient(id *identity) {
	x.id = id
	x.ev.Client.Name, x.ev.Client.Auth = id.client.Name, id.auth
	x.job = id.job
	x.ev.Job = id.job
}

// refuse ends the exchange with an answer of ours and records it.
func (x *exchange) refuse(no *refusal) *http.Response {
	resp := x.refuseLater(no)
	x.end()
	return resp
}

// refuseLater builds the answer and leaves the recording to the deferred call of the path.
func (x *exchange) refuseLater(no *refusal) *http.Response {
	x.no = no
	ev := x.ev
	ev.Decision, ev.Reason, ev.Class = audit.Refused, string(no.code), no.class
	switch no.code {
	case UpstreamFailed, UpstreamTimeout, UpstreamTLS, DNSFailed:
		ev.Decision = audit.Failed
	case reasonClientGone:
		ev.Decision = audit.Cancelled
	}
	if x.wire != nil && x.wire.sent() {
		ev.Decision = audit.Failed
	}
	if no.upstreamIP != "" {
		ev.Upstream.IP = no.upstreamIP
	}
	if len(no.resolved) > 0 {
		ev.Upstream.Resolved = no.resolved
	}
	if no.err != nil {
		x.g.log.Debug("refused", "request_id", ev.ID, "reason", string(no.code), "class", no.class, "error", no.err.Error())
	}
	var agent string
	shown := x.target
	if x.url == nil {
		shown = x.wanted()
	}
	if x.profile != nil && x.profile.Agent != nil {
		agent = x.profile.Agent.Token
	}
	if no.class != "" && x.rules.Uniform && x.host.Name != "" && !x.host.IsLiteral() && (no.code == DNSFailed || no.code == AddressDenied) {
		no.code, no.class = AddressDenied, "destination_refused"
	}
	resp := no.answer(x.in, ev.ID, shown, agent, x.wantsHTML())
	if x.in == nil {
		resp.Request = nil
	}
	if no.code == reasonClientGone {
		resp.StatusCode = statusClientGone // nobody is there to read it
	}
	ev.Answered = resp.StatusCode
	if no.code == reasonClientGone {
		ev.Answered = 0
	}
	if x.in != nil && x.in.Body != nil && x.in.ContentLength != 0 && x.in.ProtoMajor == 1 {
		resp.Close = true // the body was not read: the connection cannot go on
	}
	return resp
}

// wanted names what was asked for in a refusal that came before the target was judged, as far as it can be read. Who is
// not known writes nothing of any length into the log.
func (x *exchange) wanted() string {
	if x.in == nil || x.from.own != nil || len(x.in.RequestURI) > x.rules.Server.TargetBytes && x.rules.Server.TargetBytes > 0 {
		return ""
	}
	if x.tun != nil {
		x.ev.Host, x.ev.Port = x.tun.host.Name, int(x.tun.port)
	} else if x.in.Method == http.MethodConnect {
		if h, port, err := guard.ParseAuthority(x.in.RequestURI, 0); err == nil {
			x.ev.Host, x.ev.Port = h.Name, int(port)
		}
		return ""
	}
	u, host, port, no := x.readTarget()
	if no != nil {
		// What is no target for us is named as it was sent; audit takes user name and password away, and so do we.
		if x.in.URL == nil || x.in.URL.Host == "" || x.tun != nil {
			return ""
		}
		u = cloneURL(x.in.URL)
		u.User = nil
	}
	switch {
	case x.id != nil:
		x.ev.SetURL(u)
	case no == nil:
		x.ev.Scheme, x.ev.Host, x.ev.Port = u.Scheme, host.Name, int(port)
	}
	return u.String()
}

// statusClientGone marks an answer that is never written: its fetcher has left.
const statusClientGone = 499

// wantsHTML tells whether a person looks at the answer: a browser's navigation that asks for HTML.
func (x *exchange) wantsHTML() bool {
	if x.in == nil || x.in.Method == http.MethodConnect {
		return false
	}
	a := x.in.Header.Get("Accept")
	if !strings.Contains(a, "text/html") {
		return false
	}
	d := x.in.Header.Get("Sec-Fetch-Dest")
	return d == "" || d == "document" || d == "iframe" || d == "frame"
}

// settle is the deferred call of the path: no way out of it leaves a turn held or an event unwritten. When an answer
// of the site is on its way, its body ends the exchange instead.
func (x *exchange) settle(panicked any, resp *http.Response) *http.Response {
	if panicked != nil {
		x.g.log.Error("request panicked", "request_id", x.ev.ID, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		if x.outcome.Err == nil {
			x.outcome.Err = fmt.Errorf("panic: %v", panicked)
		}
		resp = x.refuseLater(&refusal{code: Internal, class: "panic"})
	}
	if resp == nil {
		resp = x.refuseLater(&refusal{code: Internal, class: "no_answer"})
	}
	if x.no != nil {
		x.end()
	}
	return resp
}

// end records the event and gives the turn back; both happen once.
func (x *exchange) end() {
	x.record()
	x.release()
}

// record writes the audit event. It comes before the answer's last byte reaches the fetcher.
func (x *exchange) record() {
	x.recorded.Do(func() {
		now := time.Now()
		ev := x.ev
		ev.TotalMS = now.Sub(x.began).Milliseconds()
		ev.QueuedMS = ev.TotalMS
		if w := x.wire; w != nil {
			if w.sent() {
				ev.Sent, ev.SentAt, ev.DoneAt = true, w.sentAt(), now
				ev.UpstreamMS = now.Sub(ev.SentAt).Milliseconds()
				ev.QueuedMS = ev.SentAt.Sub(x.began).Milliseconds()
				x.outcome.Sent = true
			}
			w.describe(ev)
		}
		ev.BytesStored = x.stored.bytes
		if ev.Decision == "" {
			ev.Decision = audit.Forwarded
		}
		// The event outlives the fetcher; a disk that hangs may hold the answer back, but not for ever.
		ctx := &patient{limit: recordPatience}
		defer ctx.done()
		if err := x.g.audit.Record(ctx, ev); err != nil {
			x.g.log.Error("audit event not written", "request_id", ev.ID, "error", err)
		}
		if x.id != nil && x.id.via != nil && x.id.via.observe != nil {
			x.id.via.observe(ev)
		}
	})
}

// release gives the turn back with what happened, or reports it where no turn was held.
func (x *exchange) release() {
	x.released.Do(func() {
		if !x.turnOver {
			x.g.pace.ended(x)
		}
		if x.wire != nil {
			x.g.upstream.ended(x.wire)
		}
		x.settleJob()
		if x.turn != nil {
			x.turn.Done(x.outcome)
		} else if x.outcome.Sent && x.profile != nil && x.profile.Pacing.Mode == pacing.ModeNone {
			x.g.pacer.Observe(x.pacingRequest(), x.outcome)
		}
		if x.page != nil {
			x.page.ended(x.outcome)
		}
		if x.stored.kept != nil {
			x.stored.kept.close()
		}
		if x.cancel != nil {
			x.cancel(context.Canceled)
		}
	})
}

func (x *exchange) ctx() context.Context {
	if x.from == nil {
		return context.Background()
	}
	return x.from.ctx
}

// cause tells why the exchange was cut by us, or nil.
func (x *exchange) cause() error {
	if x.sending == nil || x.sending.Err() == nil {
		return nil
	}
	return context.Cause(x.sending)
}
