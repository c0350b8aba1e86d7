package proxy

import (
	"context"
	"net"
	"strconv"
	"time"

	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// serveOpaque passes a tunnel on without decryption, for hosts of intercept.tunnel_hosts only. What can be judged
// without seeing the requests is judged: address, stops, sites, one turn for the whole tunnel. A profile whose
// robots.txt mode needs the URL cannot be kept blind, so it is refused.
func (g *Gate) serveOpaque(t *tunnel, tc *tunnelConn) {
	x := &exchange{g: g, rules: g.rules(), tun: t, began: t.opened, host: t.host, port: t.port}
	x.ev = &audit.Event{Type: audit.TypeTunnel, ID: t.id, Time: t.opened, Method: "CONNECT", Host: t.host.Name, Port: int(t.port), PolicySHA256: x.rules.Hash, Reason: string(reasonOK), Kind: pacing.Page.String()}
	x.ev.SetClient(t.client.addr)
	x.setClient(t.client)
	t.requests.Add(1)
	defer x.end()
	defer tc.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if no := x.opaqueAllowed(ctx); no != nil {
		x.refuseLater(no)
		return
	}
	if x.profile.Pacing.Mode != pacing.ModeNone {
		req := applyProfile(pacing.Request{Key: t.host.Name, Client: t.client.client.Name, Kind: pacing.Page, Wait: x.profile.Pacing.MaxWait, Gap: x.profile.Pacing.Gap, Slow: x.slow}, x.profile.Pacing)
		turn, no := x.opaqueTurn(ctx, tc, req)
		if no != nil {
			x.refuseLater(no)
			return
		}
		x.turn = turn
		x.ev.TurnWaitMS = turn.Waited().Milliseconds()
		x.noteOwed(turn)
	}
	if err := g.audit.Ready(); err != nil {
		x.refuseLater(&refusal{code: AuditUnavailable, err: err})
		return
	}
	up, err := g.guard().DialContext(ctx, "tcp", net.JoinHostPort(trimBrackets(t.host.Name), strconv.Itoa(int(t.port))))
	if err != nil {
		x.outcome.Err, x.outcome.Sent = err, true
		x.refuseLater(refusalFor(err))
		return
	}
	defer up.Close()
	x.outcome.Sent, x.outcome.Status = true, 200
	x.ev.Sent, x.ev.SentAt, x.ev.Decision, x.ev.Sig.State = true, time.Now(), audit.Forwarded, "tunnel"
	if gc, ok := up.(*guard.Conn); ok {
		x.ev.SetUpstream(gc.Remote(), gc.Resolved())
		x.ev.Exception = gc.Exception()
	}
	_ = tc.SetDeadline(time.Time{})
	done := g.drain.relay(tc)
	defer done()
	x.ev.BytesOut, x.ev.BytesIn = pump(tc, up, x.rules.Server.StreamIdle)
	x.ev.DoneAt = time.Now()
}

// opaqueTurn waits for the turn, until the fetcher leaves or the gate stops.
func (x *exchange) opaqueTurn(ctx context.Context, c net.Conn, req pacing.Request) (*pacing.Turn, *refusal) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := &queued{Context: ctx, d: x.g.drain}
	defer queue.done()
	stop := whenLeft(c, cancel)
	turn, err := x.g.pacer.Acquire(queue, req)
	stop()
	switch {
	case ctx.Err() != nil:
		if err == nil {
			turn.Done(pacing.Outcome{Sent: false})
		}
		return nil, &refusal{code: reasonClientGone, class: "client_gone", err: err}
	case err == nil:
		return turn, nil
	}
	if no := queue.refusal(); no != nil {
		return nil, no
	}
	return nil, refusalFor(err)
}

func (x *exchange) opaqueAllowed(ctx context.Context) *refusal {
	p, ok := x.id.client.profile(x.id.profile)
	if !ok {
		return &refusal{code: ProfileDenied, class: "profile_unknown"}
	}
	x.profile = p
	x.ev.Profile, x.ev.Agent = p.Name, p.Agent.Name
	if p.Robots.Mode != policy.ModeIgnore {
		return &refusal{code: RobotsUnreadable, class: "tunnel_blind"}
	}
	if err := x.g.guard().CheckHost(x.host, x.port); err != nil {
		return refusalFor(err)
	}
	if no := x.stopped(); no != nil {
		return no
	}
	u, _ := urlOf("https", x.host, x.port)
	x.request = allowRequestFor(x, u)
	a, err := x.g.list.CheckContext(ctx, x.request)
	if err != nil {
		return x.unlessReporting(refusalFor(err))
	}
	x.admitted = a
	x.ev.Entry, x.ev.Grant = a.Entry, a.Grant
	return nil
}

func trimBrackets(h string) string {
	if len(h) > 1 && h[0] == '[' {
		return h[1 : len(h)-1]
	}
	return h
}
