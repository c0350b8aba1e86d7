package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"crawlgate/admin"
	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/configs"
	"crawlgate/proxy"
	"crawlgate/sign"
)

// adminServer is the admin listener, and the published paths' own if one is configured.
type adminServer struct {
	server  *admin.Server
	http    []*http.Server
	addr    net.Addr
	cancels []func()
}

func (s *adminServer) url() string { return "http://" + s.addr.String() + "/" }

// openAdmin opens the admin listener and, apart from it, publish.listen.
func (i *instance) openAdmin(cfg *configs.Config) error {
	token, readToken, err := adminToken(cfg)
	if err != nil {
		return err
	}
	a := &adminServer{}
	a.server = admin.New(i.adminOptions(a, token, readToken))
	a.cancels = append(a.cancels, i.audit.Subscribe(a.server.Observe))
	if cfg.Admin.Listen != "" {
		l, err := i.listen("admin.listen", cfg.Admin.Listen)
		if err != nil {
			return err
		}
		a.addr = l.Addr()
		a.serve(l, a.server.Handler(), i.log.Debug)
		i.admin = a
	}
	if cfg.Publish.Listen != "" {
		l, err := i.listen("publish.listen", cfg.Publish.Listen)
		if err != nil {
			return err
		}
		a.serve(l, a.server.PublishHandler(), i.log.Debug)
	}
	i.currentDialer().SetSelf(i.listeners.addrs)
	i.closers = append(i.closers, func() error { a.close(); return nil })
	return nil
}

func (s *adminServer) serve(l net.Listener, h http.Handler, debug func(string, ...any)) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 90 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10, ErrorLog: log.New(debugWriter{debug, "admin listener"}, "", 0)}
	s.http = append(s.http, srv)
	go func() { _ = srv.Serve(l) }()
}

// debugWriter takes what net/http would print.
type debugWriter struct {
	debug func(string, ...any)
	who   string
}

func (w debugWriter) Write(p []byte) (int, error) {
	w.debug(w.who, "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

func (s *adminServer) close() {
	for _, c := range s.cancels {
		c()
	}
	s.cancels = nil
	_ = s.server.Close() // ends the streams, which the servers would wait for
	for _, h := range s.http {
		_ = h.Close()
	}
}

func (i *instance) closeAdmin() {
	if i.admin != nil {
		i.admin.close()
	}
}

// adminToken reads the token that changes need, making it at the first start.
func adminToken(cfg *configs.Config) (token string, forReading bool, err error) {
	file := cfg.Admin.TokenFile
	if file == "" {
		file = filepath.Join(cfg.StateDir, "admin.token")
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			var b [24]byte
			if _, err := rand.Read(b[:]); err != nil {
				return "", false, err
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return "", false, usage("admin.token_file: %w", err)
			}
			_, werr := io.WriteString(f, base64.RawURLEncoding.EncodeToString(b[:])+"\n")
			if err := errors.Join(werr, f.Close()); err != nil {
				return "", false, usage("admin.token_file: %w", err)
			}
		}
	}
	st, err := os.Stat(file)
	if err != nil {
		return "", false, usage("admin.token_file: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", false, usage("admin.token_file: %s has mode %04o; it must not be readable by others (chmod 600)", file, st.Mode().Perm())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", false, usage("admin.token_file: %w", err)
	}
	token = strings.TrimSpace(string(raw))
	if len(token) < 16 {
		return "", false, usage("admin.token_file: %s holds fewer than 16 characters", file)
	}
	host, _, err := net.SplitHostPort(cfg.Admin.Listen)
	if err == nil {
		ip, perr := netip.ParseAddr(host)
		forReading = !(perr == nil && ip.IsLoopback() || host == "localhost")
	}
	return token, forReading, nil
}

func (i *instance) adminOptions(a *adminServer, token string, readToken bool) admin.Options {
	return admin.Options{
		Log: i.log, Addr: func() net.Addr { return a.addr }, Hosts: i.cfg.Load().Admin.Hosts, Token: token, ReadToken: readToken, Pprof: i.cfg.Load().Admin.Pprof,
		CAPEM: func() []byte { return i.ca.Load().PEM },
		ProxyAddr: func() string {
			_, hostport, _ := strings.Cut(i.proxyURL(), "://")
			return hostport
		},
		Directory: http.HandlerFunc(i.signer.ServeDirectory), Authorities: i.signer.DirectoryHosts,
		IgnoreHost: i.cfg.Load().Publish.IgnoreHost, ServeRoot: i.cfg.Load().Publish.ServeRoot,
		IPRanges: i.ipRanges, Card: i.card, About: i.about, Ready: i.ready, Live: i.live, Gauges: i.gauges,
		Explain: func(ctx context.Context, client, profile, raw string, at time.Time) (any, error) {
			e, err := i.gate.Explain(ctx, proxy.Question{Client: client, Profile: profile, URL: raw, At: at})
			if err != nil {
				return nil, &admin.BadInput{Text: err.Error()}
			}
			return explained{e}, nil
		},
		Ledger: ledgerView{i}, Jobs: jobsView{i}, Proof: i.lastProof, Audit: i.queryAudit, Version: buildVersion(),
		RobotsFile: func(sha string) ([]byte, bool) {
			b, err := i.archive.Body(sha)
			return b, err == nil
		},
	}
}

// explained shows an explanation as `check` does.
type explained struct{ *proxy.Explanation }

// Text is the explanation in words.
func (e explained) Text() string { return explanationText(e.Explanation) }

// ready lists what must hold before traffic is sent here.
func (i *instance) ready() []admin.Check {
	cfg := i.cfg.Load()
	out := []admin.Check{{Name: "configuration", OK: true}}
	if e := i.reloadErr.Load(); e != nil {
		out[0].Detail = "the last reload was refused; the one before it is in force"
	}
	c := admin.Check{Name: "audit", OK: true}
	if err := i.audit.Ready(); err != nil {
		c.OK, c.Detail = false, "the audit log cannot take events, so nothing goes out"
	}
	out = append(out, c)
	out = append(out, i.trailChecks()...)
	id := admin.Check{Name: "identity", OK: len(cfg.Agents) > 0}
	if !id.OK {
		id.Detail = "no agent is configured: nothing leaves for other hosts than loopback"
	}
	out = append(out, id)
	for _, a := range cfg.Agents {
		state, why := i.signer.State(a.Name)
		k := admin.Check{Name: "keys " + a.Name, OK: true, Detail: why}
		if state != sign.Ready {
			k.Detail = "unsigned: " + why
			k.OK = !cfg.Sign.Required
		}
		out = append(out, k)
	}
	if i.clock.State() == "error" {
		out = append(out, admin.Check{Name: "clock", Detail: "the clock differs from the sites' by more than 30 seconds, so signatures are refused"})
	}
	out = append(out, admin.Check{Name: "proxy listener", OK: i.listeners.main != nil})
	return out
}

func (i *instance) ipRanges() []netip.Addr {
	var out []netip.Addr
	for _, s := range i.cfg.Load().Egress.SourceAddresses {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// about is the public page, of the configuration in force.
func (i *instance) about() ([]byte, bool) {
	cfg := i.cfg.Load()
	if len(cfg.Agents) == 0 {
		return nil, false
	}
	b, err := admin.BuildPage(cfg, pageKeys(cfg, true)).HTML()
	if err != nil {
		i.log.Error("about page", "error", err)
		return nil, false
	}
	return b, true
}

// card is the signature agent card of the agent that a Host belongs to.
func (i *instance) card(host string) ([]byte, bool) {
	cfg := i.cfg.Load()
	a, ok := sign.CardAgent(cfg.SignAgents(), cfg.Publish, host)
	if !ok {
		return nil, false
	}
	b, err := sign.Card(a, cfg.Publish, cardFacts(cfg, a.Name))
	if err != nil {
		i.log.Warn("no signature agent card", "error", err)
		return nil, false
	}
	return b, true
}

// live is the snapshot behind the page.
func (i *instance) live() admin.Live {
	cfg := i.cfg.Load()
	l := admin.Live{
		Started: i.started, Version: buildVersion(), Proxy: strings.TrimPrefix(i.proxyURL(), "http://"), Store: "disk", ReportOnly: !cfg.Enforce,
		ConfigFile: i.src.Load().File, ConfigHash: cfg.Hash(), ConfigLoaded: time.Unix(0, i.reloadAt.Load()),
		Chain: i.liveChain(),
		CA:    admin.LiveCA{Expires: i.ca.Load().Cert.NotAfter, Fingerprint: i.ca.Load().Fingerprint(), SPKI: i.ca.Load().SPKI()},
	}
	if e := i.reloadErr.Load(); e != nil {
		l.ConfigError = *e
	}
	for _, a := range cfg.Agents {
		state, why := i.signer.State(a.Name)
		la := admin.LiveAgent{Name: a.Name, Token: a.ProductToken, UserAgent: a.UserAgent, InfoURL: a.InfoURL, SignatureAgent: a.SignatureAgent, Signing: state}
		if state == sign.Ready {
			la.KeyID = i.signer.ActiveKey(a.Name)
		} else {
			la.Signing = why
		}
		l.Agents = append(l.Agents, la)
	}
	for _, c := range cfg.Clients {
		sites := strconv.Itoa(len(c.Sites)) + " site entries"
		if len(c.Sites) == 1 {
			sites = "1 site entry"
		}
		l.Clients = append(l.Clients, admin.LiveClient{Name: c.Name, Profiles: c.Profiles, Sites: sites})
	}
	l.Hosts = admin.LiveHosts(i.pacer.Hosts(500))
	st := i.pacer.Stats()
	l.Waiting, l.InFlight = st.Waiting, st.InFlight
	if cfg.Redis.URL != "" {
		l.Store = "redis"
	}
	return l
}

func (i *instance) gauges() admin.Gauges {
	as := i.audit.Status()
	offset, _ := i.clock.Offset()
	g := admin.Gauges{
		ClockOffset: offset, ConfigReloadOK: i.reloadErr.Load() == nil, ConfigReloadAt: time.Unix(0, i.reloadAt.Load()),
		SignReloadFailures: i.signer.ReloadFailures(), CAExpires: i.ca.Load().Cert.NotAfter, CertsMinted: uint64(max(0, i.gate.Minted())),
		Connections: i.gate.Tunnels(), AuditSeq: as.Seq, AuditQueue: as.Queued, AuditQueueMax: as.QueueLimit, AuditLost: uint64(max(0, as.Lost)),
		AuditDiskFree: as.Free, AuditSinks: as.Sinks,
	}
	if s := i.gate.Answers(); s != nil {
		g.AnswersKept, g.AnswersKeptBytes = s.Size()
	}
	if c := i.lastChain(); c != nil {
		g.ChainVerifiedAt, g.ChainWhole = c.at, c.whole()
	}
	if k, err := i.lastProof(); err == nil && k != nil {
		g.ProofAt, g.ProofPassed = k.Made, k.Passed
	}
	g.Pacing(i.pacer.Stats())
	return g
}

// queryAudit writes the events of a query, oldest first.
func (i *instance) queryAudit(ctx context.Context, q admin.AuditQuery, w io.Writer) error {
	if err := i.audit.Flush(); err != nil {
		return err
	}
	files, err := audit.Files(i.audit.Path())
	if err != nil {
		return err
	}
	last, err := audit.Last(ctx, files, audit.Query{Since: q.Since, Host: q.Host, Client: q.Client, Reason: q.Reason, Limit: q.Limit}, nil)
	if err != nil {
		return err
	}
	for _, r := range last {
		if _, err := w.Write(append(r.Line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// ledgerView is the operator's ledger as the admin API sees it.
type ledgerView struct{ i *instance }

// List gives all entries.
func (v ledgerView) List() []admin.LedgerEntry {
	var out []admin.LedgerEntry
	for _, e := range v.i.ledger.List() {
		out = append(out, admin.LedgerEntry{Host: e.Host, Subdomains: e.Subdomains, Action: e.Action, GapSeconds: e.Gap.Seconds(), Reason: e.Reason, Since: e.When})
	}
	return out
}

// Stop enters a stop.
func (v ledgerView) Stop(_ context.Context, host string, subdomains bool, reason string) error {
	_, err := v.i.ledger.Stop(allowlist.Entry{Host: host, Subdomains: subdomains, Reason: reason, Who: "admin"})
	return badInput(err)
}

// Slow enters a longer gap.
func (v ledgerView) Slow(_ context.Context, host string, subdomains bool, gap time.Duration, reason string) error {
	_, err := v.i.ledger.Slow(allowlist.Entry{Host: host, Subdomains: subdomains, Gap: gap, Reason: reason, Who: "admin"})
	return badInput(err)
}

// Resume removes an entry.
func (v ledgerView) Resume(_ context.Context, host string) (bool, error) {
	removed, err := v.i.ledger.Resume(host) // its listeners have the pacer forget the back-off
	return removed != nil, badInput(err)
}

func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &admin.BadInput{Text: err.Error()}
}

// jobsView shows the jobs.
type jobsView struct{ i *instance }

// List gives all jobs.
func (v jobsView) List() []admin.Job {
	var out []admin.Job
	for _, j := range v.i.gate.Jobs() {
		out = append(out, admin.Job{ID: j.ID, Client: j.Client, Profile: j.Profile, Site: j.Site, Started: j.Began, Last: j.Last, Pages: j.Pages, MaxPages: j.MaxPages, Sent: j.Pages, Refused: j.Refused, Stopped: j.Stopped})
	}
	return out
}

// End ends a job.
func (v jobsView) End(client, id string) bool {
	for _, j := range v.i.gate.Jobs() {
		if j.ID == id && (client == "" || j.Client == client) {
			return v.i.gate.EndJob(j.Client, id)
		}
	}
	return false
}

// Limit lowers a job's budget.
func (v jobsView) Limit(client, id string, pages int) (bool, error) {
	ok, err := v.i.gate.LimitJob(client, id, pages)
	return ok, badInput(err)
}
