package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// robotsClient is who fetches robots.txt: the gate itself.
const robotsClient = "crawlgate"

// robotsAsker is the request whose rules are wanted; it rides through policy unopened.
type robotsAsker struct {
	x      *exchange
	listed bool // the page's site is on the client's list: its robots.txt is signed as the page would be
}

// robotsFetcher fetches robots.txt the way every request goes, minus robots.txt: the same guard, the same turns, the
// agent's own name and signature, an audit event of its own. Nothing of the fetcher's request is part of it.
type robotsFetcher struct{ g *Gate }

// Fetch does one exchange and follows no redirect. The body must be closed: that ends the turn and records the event.
// Every error is a *policy.FetchError.
func (f robotsFetcher) Fetch(ctx context.Context, r policy.FetchRequest) (*policy.FetchResponse, error) {
	asker, _ := r.Requester.(*robotsAsker)
	if asker == nil || asker.x == nil {
		return nil, &refusal{code: Internal, class: "robots_without_requester"}
	}
	g := f.g
	req := (&http.Request{Method: http.MethodGet, URL: r.URL, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	x := &exchange{g: g, rules: asker.x.rules, in: req, from: &inbound{ctx: ctx, r: req}, began: time.Now(), profile: asker.x.profile, id: asker.x.id}
	x.admitted.Listed = asker.listed && r.URL.Host == asker.x.url.Host
	x.kind.kind = pacing.Robots
	x.ev = &audit.Event{Type: audit.TypeRobots, ID: audit.NewID(), Time: x.began, Method: http.MethodGet, PolicySHA256: x.rules.Hash,
		Profile: x.profile.Name, Agent: x.profile.Agent.Name, Kind: "robots", Parent: asker.x.ev.ID, Hops: r.Hop, Reason: string(reasonOK)}
	x.ev.Robots.State = "not_consulted"
	resp, err := x.fetchRobots(ctx, r)
	if err != nil {
		no := refusalFor(err)
		x.refuseLater(no)
		x.end()
		return nil, &policy.FetchError{Reason: string(no.code), Class: no.class, RetryAfter: no.retryAfter, Final: no.final, Err: err}
	}
	return resp, nil
}

func (x *exchange) fetchRobots(ctx context.Context, r policy.FetchRequest) (_ *policy.FetchResponse, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &refusal{code: Internal, class: "panic"}
			x.g.log.Error("robots fetch panicked", "request_id", x.ev.ID, "panic", v)
		}
	}()
	u, host, port, err := guard.ParseURL(r.URL.String())
	if err != nil {
		return nil, err
	}
	x.setTarget(u, host, port)
	if err := x.g.guard().CheckPort(host, port); err != nil {
		return nil, err
	}
	if err := x.g.guard().CheckHost(host, port); err != nil {
		return nil, err
	}
	if no := x.stopped(); no != nil {
		return nil, no
	}
	if x.profile.Pacing.Mode != pacing.ModeNone {
		req := x.pacingRequest()
		req.Client, req.Wait, req.Delay = robotsClient, r.Wait, 0
		if r.Hop > 0 && r.SameHost && req.Robots != pacing.RobotsFree {
			req.Robots = pacing.RobotsFree // a hop on the same host follows at once
		}
		x.leavesNoGap = req.Robots == pacing.RobotsFree
		queue := &queued{Context: ctx, d: x.g.drain}
		defer queue.done()
		t, err := x.g.pacer.Acquire(queue, req)
		if err != nil {
			if no := queue.refusal(); no != nil {
				return nil, no
			}
			return nil, err
		}
		x.turn = t
		x.ev.TurnWaitMS = t.Waited().Milliseconds()
		x.noteOwed(t)
	}
	h := http.Header{}
	for k, v := range r.Header {
		h[k] = v
	}
	h["Accept"] = []string{"text/plain, */*;q=0.5"}
	x.sentUA = x.profile.Agent.UserAgent
	if x.profile.Agent.Pass {
		x.sentUA = "" // no fetcher's user agent is the gate's own
	}
	h["User-Agent"] = []string{x.sentUA}
	x.ev.UserAgent = x.sentUA
	if err := x.g.audit.Ready(); err != nil {
		return nil, &refusal{code: AuditUnavailable, retryAfter: 5 * time.Second, err: err}
	}
	if no := x.sign(http.MethodGet, u, h); no != nil {
		return nil, no
	}
	x.wire = &wireLog{}
	rctx, cancel := context.WithCancelCause(ctx)
	x.cancel = cancel
	out := (&http.Request{Method: http.MethodGet, URL: cloneURL(u), Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(rctx)
	resp, no := x.send(out)
	if no != nil {
		return nil, no
	}
	x.ev.Status, x.ev.Robots.Status = resp.StatusCode, resp.StatusCode
	x.ev.ContentType = resp.Header.Get("Content-Type")
	x.ev.RetryAfterS = int64(x.asked / time.Second)
	if loc := resp.Header.Get("Location"); loc != "" {
		x.ev.SetLocation(loc)
		x.ev.Permanent = resp.StatusCode == 301 || resp.StatusCode == 308
	}
	b := &robotsBody{x: x, r: resp.Body, sum: sha256.New()}
	b.timer = time.AfterFunc(x.rules.Server.StallTimeout, func() { x.cancel(errStalled) })
	return &policy.FetchResponse{Status: resp.StatusCode, Header: resp.Header, Body: b, Received: time.Now()}, nil
}

// robotsBody ends the exchange when policy has read enough.
type robotsBody struct {
	x     *exchange
	r     io.ReadCloser
	sum   hash.Hash
	timer *time.Timer
	read  bool
}

func (b *robotsBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.x.wire.in.Add(int64(n))
	b.sum.Write(p[:n])
	b.read = b.read || n > 0
	if err != nil && err != io.EOF {
		b.x.outcome.Err = err
	}
	return n, err
}

// Close ends the turn and records the event.
func (b *robotsBody) Close() error {
	b.timer.Stop()
	err := b.r.Close()
	if b.read && b.x.ev.Status >= 200 && b.x.ev.Status < 300 {
		b.x.ev.Robots.SHA256 = hex.EncodeToString(b.sum.Sum(nil))
		b.x.ev.Robots.FetchedAt = time.Now()
	}
	b.x.end()
	return err
}

type (
	netipAddr     = netip.Addr
	netipAddrPort = netip.AddrPort
)

// hostPort renders a target for messages.
func hostPort(h guard.Host, port uint16) string { return h.Name + ":" + strconv.Itoa(int(port)) }
