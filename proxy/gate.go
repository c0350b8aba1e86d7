// Package proxy is the path of one request through the gate: who asks, where it may go, what the site allows, when
// it is its turn, under which name it leaves, and what is recorded. Read path.go first: it is the whole way, top to
// bottom.
package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// Parts are the packages a gate asks. All but Ledger, Locks, Gone and Jobs are needed.
type Parts struct {
	Log    *slog.Logger
	Guard  *guard.Dialer
	Pacer  *pacing.Pacer
	Signer *sign.Signer
	List   *allowlist.List
	Ledger *allowlist.Ledger
	Locks  *allowlist.Locks
	Gone   *allowlist.Gone
	Audit  *audit.Log
	Clock  *sign.Clock // learns the sites' time; nil: not compared
	CA     *CA
	Jobs   JobStore // nil: in memory
	// Answers are kept answers of sites, to ask by whether they still hold; nil: none are, and conditional requests are
	// the fetchers' own alone.
	Answers *Answers
	// SharedJobs keeps jobs for several instances, JobsDown says what happens when it does not answer; nil: Jobs alone.
	SharedJobs SharedJobs
	JobsDown   pacing.RedisConfig
	// Policy makes the robots.txt keeper around the gate's own fetcher.
	Policy func(policy.Fetcher) *policy.Policy
}

// Gate is the proxy.
type Gate struct {
	log    *slog.Logger
	dialer atomic.Pointer[guard.Dialer]
	policy *policy.Policy
	pacer  *pacing.Pacer
	signer *sign.Signer
	list   *allowlist.List
	ledger *allowlist.Ledger
	locks  *allowlist.Locks
	gone   *allowlist.Gone
	audit  *audit.Log
	clock  *sign.Clock
	// answers are kept ones; nil: none.
	answers *Answers

	current   atomic.Pointer[Rules]
	upstream  *upstream
	certs     *certs
	tlsConfig atomic.Pointer[tls.Config]
	keeper    *gatekeeper
	pages     *pages
	jobs      *jobs
	drain     *drain
	pace      *paceCheck

	h1        *h1Conns     // HTTP/1.1: the proxy port, and in tunnels
	inner2Srv *http.Server // HTTP/2 in tunnels
	inner2    *innerListener
	connector *connector
	pseudonym string // in Via, when it is added

}

// New builds a gate. It listens on nothing yet.
func New(p Parts, r *Rules) (*Gate, error) {
	certs, err := newCerts(p.CA)
	if err != nil {
		return nil, fmt.Errorf("leaf key: %w", err)
	}
	g := &Gate{
		log: p.Log, pacer: p.Pacer, signer: p.Signer, list: p.List, ledger: p.Ledger, locks: p.Locks, gone: p.Gone, audit: p.Audit, clock: p.Clock, answers: p.Answers,
		certs: certs, keeper: newGatekeeper(), pages: newPages(), drain: newDrain(), h1: newH1Conns(), inner2: newInnerListener(), pace: newPaceCheck(),
		pseudonym: "crawlgate-" + strings.ToLower(audit.NewID()[12:]),
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.dialer.Store(p.Guard)
	g.current.Store(r.compile())
	g.jobs = newJobs(&p, g.log)
	g.tlsConfig.Store(certs.tlsConfig())
	if g.upstream, err = newUpstream(g.guard, r); err != nil {
		return nil, err
	}
	g.policy = p.Policy(robotsFetcher{g})
	g.connector = newConnector(g.log, g.acceptConnect, g.serveTunnel)
	// The handshake was done by us, and what the server gets is our own connection (h2Conn): unencrypted to it.
	g.inner2Srv = g.newServer(http.HandlerFunc(g.serveInner))
	g.inner2Srv.Protocols = new(http.Protocols)
	g.inner2Srv.Protocols.SetUnencryptedHTTP2(true)
	g.inner2Srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReadFrameSize: h2MaxFrame, MaxDecoderHeaderTableSize: h2TableSize}
	// A head past the limit gets our own answer (wellFormed; past four times as much, by h2Door).
	if g.inner2Srv.MaxHeaderBytes *= 4; g.inner2Srv.MaxHeaderBytes <= 0 {
		g.inner2Srv.MaxHeaderBytes = http.DefaultMaxHeaderBytes
	}
	go func() { _ = g.inner2Srv.Serve(g.inner2) }()
	return g, nil
}

// newServer is the standard server, for HTTP/2, with our limits. WriteTimeout stays 0: it would cut long downloads and SSE; the
// exchange watches its own progress.
func (g *Gate) newServer(h http.Handler) *http.Server {
	s := g.rules().Server
	return &http.Server{
		Handler: h,
		// OPTIONS * would be answered by the server itself, without an audit event.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            s.ReadHead,
		IdleTimeout:                  s.Idle,
		MaxHeaderBytes:               s.HeadBytes,
		ErrorLog:                     log.New(slogWriter{g.log}, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

type slogWriter struct{ log *slog.Logger }

func (w slogWriter) Write(p []byte) (int, error) {
	w.log.Debug("http server", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

type connKey struct{}

// listenerOf is one proxy listener.
type listenerOf struct {
	client  string             // its only client, if it has one of its own
	trusted bool               // whoever reaches it is that client: opened by the owner of the state folder for one command
	observe func(*audit.Event) // sees every event of requests that came this way
}

func (g *Gate) rules() *Rules { return g.current.Load() }

func (g *Gate) guard() *guard.Dialer { return g.dialer.Load() }

// Reload swaps the compiled configuration and the dialer; requests under way keep the rules they began with.
func (g *Gate) Reload(r *Rules, d *guard.Dialer) error {
	if err := g.upstream.reload(r); err != nil {
		return err
	}
	g.dialer.Store(d)
	g.current.Store(r.compile())
	return nil
}

// ReplaceCA swaps the interception CA; leaves signed by the old one end with their connections.
func (g *Gate) ReplaceCA(ca *CA) error {
	c, err := newCerts(ca)
	if err != nil {
		return err
	}
	g.tlsConfig.Store(c.tlsConfig())
	return nil
}

// Serve accepts connections until Shutdown. client names the only client of this listener, or is empty.
func (g *Gate) Serve(l net.Listener, client string) error {
	return g.serveOn(l, &listenerOf{client: client})
}

// ServeTrusted accepts connections of one command of the owner: they need no secret, and are the client's (the first
// configured, or the open client, when client is empty). observe sees every event they make.
func (g *Gate) ServeTrusted(l net.Listener, client string, observe func(*audit.Event)) error {
	rules := g.rules()
	if client == "" && len(rules.Clients) > 0 {
		client = rules.Clients[0].Name
	}
	if client != "" && rules.byName[client] == nil {
		l.Close()
		return fmt.Errorf("no client is named %s", client)
	}
	return g.serveOn(l, &listenerOf{client: client, trusted: true, observe: observe})
}

// Policy is the robots.txt keeper, for `check` and the admin page.
func (g *Gate) Policy() *policy.Policy { return g.policy }

// Answers are the kept answers, or nil.
func (g *Gate) Answers() *Answers { return g.answers }

// Tunnels tells how many tunnels are open.
func (g *Gate) Tunnels() int { return g.drain.open() }

// Minted tells how many leaf certificates were signed.
func (g *Gate) Minted() int64 {
	g.certs.mu.Lock()
	defer g.certs.mu.Unlock()
	return g.certs.minted
}

// Shutdown drains: no new tunnel, no new request; running ones end until ctx does; WebSockets last.
func (g *Gate) Shutdown(ctx context.Context) error {
	g.drain.stop()
	h2 := make(chan error, 1)
	go func() { h2 <- g.inner2Srv.Shutdown(ctx) }() // at the same time: its fetchers are told at once
	err := g.h1.shutdown(ctx)
	if err2 := <-h2; err == nil {
		err = err2
	}
	select {
	case <-g.drain.waitRelays():
	case <-ctx.Done():
	}
	g.h1.close()
	_ = g.inner2Srv.Close()
	_ = g.inner2.Close()
	g.drain.closeAll()
	g.upstream.close()
	g.certs.close()
	g.pages.close()
	return err
}

// serveInner is the handler of HTTP/2 in tunnels.
func (g *Gate) serveInner(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	c, ok := ctx.Value(connKey{}).(*h2Conn)
	if !ok {
		http.Error(w, "no tunnel", http.StatusInternalServerError)
		return
	}
	c.tunnel.requests.Add(1)
	in := &inbound{ctx: ctx, r: r, tunnel: c.tunnel, secure: true}
	in.readDoor()
	g.forward(w, in)
}
