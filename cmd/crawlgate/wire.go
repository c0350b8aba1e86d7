package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/configs"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// instance is one gate with everything it stands on: the one place where the packages meet.
type instance struct {
	cfg  atomic.Pointer[configs.Config]
	src  atomic.Pointer[configs.Sources]
	log  *slog.Logger
	load func() (*configs.Config, *configs.Sources, error) // reads the configuration again

	db      *stateFile
	dialer  atomic.Pointer[guard.Dialer]
	pacer   *pacing.Pacer
	signer  *sign.Signer
	list    *allowlist.List
	ledger  *allowlist.Ledger
	locks   *allowlist.Locks
	gone    *allowlist.Gone
	audit   *audit.Log
	clock   sign.Clock
	archive *policy.Archive
	share   func(*policy.Policy) // shares robots.txt through Redis; nil without it
	jobs    proxy.SharedJobs     // nil without Redis
	ca      atomic.Pointer[proxy.CA]
	gate    *proxy.Gate

	started   time.Time
	listeners listeners
	control   *controlServer
	admin     *adminServer
	chain     atomic.Pointer[chainWatch]
	proof     proofReader

	reloadMu  sync.Mutex
	reloadErr atomic.Pointer[string]
	reloadAt  atomic.Int64 // unix nanoseconds of the last good load
	closers   []func() error
}

// lateGate lets packages that are made before the gate reach it.
type lateGate struct{ gate atomic.Pointer[proxy.Gate] }

// FetchSitemap passes a sitemap request to the gate.
func (l *lateGate) FetchSitemap(ctx context.Context, r allowlist.SitemapRequest) (*allowlist.SitemapResponse, error) {
	g := l.gate.Load()
	if g == nil {
		return nil, errors.New("the gate is not up yet")
	}
	return g.FetchSitemap(ctx, r)
}

// open takes the state folder and builds the gate. It listens on nothing yet. On an error nothing stays open.
func openInstance(cfg *configs.Config, src *configs.Sources, log *slog.Logger) (_ *instance, err error) {
	i := &instance{log: log, started: time.Now()}
	i.src.Store(src)
	i.cfg.Store(cfg)
	i.reloadAt.Store(time.Now().UnixNano())
	defer func() {
		if err != nil {
			i.close()
		}
	}()
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, usage("state_dir: %w", err)
	}
	if i.db, err = openState(cfg.StateDir); err != nil {
		return nil, err
	}
	i.closers = append(i.closers, i.db.Close)

	ca, err := openCA(cfg)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	i.ca.Store(ca)
	dialer, err := guard.New(cfg.Egress, log)
	if err != nil {
		return nil, usage("egress: %w", err)
	}
	dialer.SetSelf(i.listeners.addrs)
	i.dialer.Store(dialer)
	if i.signer, err = sign.Open(cfg.Sign, cfg.StateDir, cfg.SignAgents(), log); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if err := i.signer.SetPublish(cfg.Publish); err != nil {
		return nil, usage("publish: %w", err)
	}
	// The sinks of signed heads are the operator's own machines, so a plain dialer leads there and not the guarded one.
	if i.audit, err = audit.OpenVia(new(net.Dialer).DialContext, cfg.Audit, cfg.StateDir, log); err != nil {
		return nil, usage("audit: %w", err)
	}
	i.closers = append(i.closers, i.audit.Close)
	i.recordConfig("start")
	if err := i.openKeepers(cfg); err != nil {
		return nil, err
	}
	late := &lateGate{}
	if err := i.openLists(cfg, late); err != nil {
		return nil, err
	}
	archive, err := policy.OpenArchive(filepath.Join(cfg.StateDir, "robots"), cfg.Robots)
	if err != nil {
		return nil, fmt.Errorf("robots archive: %w", err)
	}
	i.archive = archive
	i.closers = append(i.closers, archive.Close)
	jobs, err := newJobStore(i.db)
	if err != nil {
		return nil, err
	}
	rules, err := compileRules(cfg)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	answers, err := openAnswers(cfg, log)
	if err != nil {
		return nil, err
	}
	i.gate, err = proxy.New(proxy.Parts{
		Log: log, Guard: dialer, Pacer: i.pacer, Signer: i.signer, List: i.list, Ledger: i.ledger, Locks: i.locks, Gone: i.gone, Audit: i.audit, Clock: &i.clock, CA: ca, Jobs: jobs, Answers: answers,
		SharedJobs: i.jobs, JobsDown: cfg.Redis,
		Policy: func(f policy.Fetcher) *policy.Policy {
			p := policy.New(cfg.Robots, f, archive, log)
			if i.share != nil {
				i.share(p)
			}
			return p
		},
	}, rules)
	if err != nil {
		return nil, err
	}
	i.closers = append(i.closers, i.gate.Policy().Close)
	if answers != nil {
		i.ledger.OnChange(func(c allowlist.Change) {
			if c.After != nil && c.After.Action == allowlist.ActionStop {
				answers.ForgetHosts(c.After.Covers)
			}
		})
	}
	late.gate.Store(i.gate)
	return i, nil
}

// openAnswers opens the store of answers, which belongs to this instance alone: what instances share is owed to sites, and
// a copy is not. nil: it is off.
func openAnswers(cfg *configs.Config, log *slog.Logger) (*proxy.Answers, error) {
	if !cfg.Revalidate.Enabled {
		return nil, nil
	}
	return proxy.OpenAnswers(filepath.Join(cfg.StateDir, "answers"), proxy.AnswersConfig{MaxSize: cfg.Revalidate.MaxSize, FullEvery: cfg.Revalidate.FullEvery, Lastmod: cfg.Revalidate.Lastmod}, log)
}

// openLists opens the allowlist, and has the pacer hear of the ledger's changes.
func (i *instance) openLists(cfg *configs.Config, late *lateGate) (err error) {
	i.ledger.OnChange(func(c allowlist.Change) {
		var gap time.Duration
		var below bool
		if c.After != nil {
			gap, below = c.After.Gap, c.After.Subdomains
		}
		if c.Before != nil {
			below = below || c.Before.Subdomains
		}
		i.pacer.SetGap(c.Host, gap, below)
		if c.After == nil {
			i.recordConfig("sites resume " + c.Host)
			i.pacer.Resume(c.Host)
			if _, err := i.gone.Lift(c.Host); err != nil {
				i.log.Error("gone pages not lifted", "host", c.Host, "error", err)
			}
		} else {
			i.recordConfig("sites " + c.After.Action + " " + c.Host)
		}
	})
	if i.list, err = allowlist.New(cfg.Allowlist(), late, i.log); err != nil {
		return usage("clients: %w", err)
	}
	i.closers = append(i.closers, i.list.Close)
	return nil
}

func (i *instance) currentDialer() *guard.Dialer { return i.dialer.Load() }

// close ends what openInstance began, the last first.
func (i *instance) close() {
	for n := len(i.closers) - 1; n >= 0; n-- {
		if err := i.closers[n](); err != nil {
			i.log.Error("close", "error", err)
		}
	}
	i.closers = nil
}

// heldError says that another instance owns the state folder.
type heldError struct {
	dir string
	by  string
}

func (e *heldError) Error() string {
	return fmt.Sprintf("state_dir %s is held by %s; use that one, or give this one a state_dir of its own", e.dir, e.by)
}

// openCA opens the interception CA. Its file's name is given to programs that run in other folders, so it is absolute.
func openCA(cfg *configs.Config) (*proxy.CA, error) {
	if cfg.Intercept.CACertFile != "" {
		file, err := filepath.Abs(cfg.Intercept.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("intercept.ca_cert_file: %w", err)
		}
		return proxy.LoadCA(file, cfg.Intercept.CAKeyFile)
	}
	dir, err := filepath.Abs(filepath.Join(cfg.StateDir, "ca"))
	if err != nil {
		return nil, fmt.Errorf("state_dir: %w", err)
	}
	return proxy.OpenCA(dir)
}

// openKeepers opens what is owed to sites: turns, the operator's ledger, identity locks. They are this instance's own, or
// shared through Redis.
func (i *instance) openKeepers(cfg *configs.Config) error {
	if cfg.Redis.URL != "" {
		return i.openShared(cfg)
	}
	store, err := pacing.NewBoltStore(i.db)
	if err != nil {
		return fmt.Errorf("pacing state: %w", err)
	}
	if i.pacer, err = pacing.New(cfg.Pacing, store, i.log); err != nil {
		return usage("pacing: %w", err)
	}
	i.closers = append(i.closers, i.pacer.Close)
	bolt, err := allowlist.NewBoltStore(i.db)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if i.ledger, err = allowlist.NewLedger(bolt, i.log); err != nil {
		return err
	}
	if i.locks, err = allowlist.NewLocks(bolt, longestLock(cfg), i.log); err != nil {
		return err
	}
	i.gone, err = allowlist.NewGone(bolt, i.log)
	return err
}

func longestLock(cfg *configs.Config) (d time.Duration) {
	for _, p := range cfg.Profiles {
		d = max(d, p.IdentityLock)
	}
	return d
}

// compileRules turns the configuration into what the gate decides by.
func compileRules(c *configs.Config) (*proxy.Rules, error) {
	r := &proxy.Rules{
		Agents: map[string]*proxy.Agent{}, Profiles: map[string]*proxy.Profile{}, Open: c.Open, Enforce: c.Enforce, Tunnels: c.Intercept.TunnelHosts,
		Hash: c.Hash(), Via: c.Egress.Via, Uniform: c.Egress.UniformRefusals,
		Server: proxy.Server{
			ReadHead: c.Server.ReadHead, Idle: c.Server.Idle, UpstreamIdle: c.Server.UpstreamIdle, StreamIdle: c.Server.StreamIdle,
			HeadBytes: int(c.Server.HeadBytes), Fields: 200, TargetBytes: 8 << 10, Tunnels: c.Server.Tunnels, TunnelsClient: c.Server.TunnelsClient,
			Grace: c.Server.Grace, StallTimeout: c.Pacing.StallTimeout, CompanionWindow: c.Pacing.CompanionWindow,
		},
	}
	if c.Egress.RootCAFile != "" {
		pem, err := os.ReadFile(c.Egress.RootCAFile)
		if err != nil {
			return nil, fmt.Errorf("egress.root_ca_file: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("egress.root_ca_file: %s: no certificate in it", c.Egress.RootCAFile)
		}
		r.Roots = pem
	}
	for _, a := range c.Agents {
		r.Agents[a.Name] = &proxy.Agent{Name: a.Name, Token: a.ProductToken, Fallback: a.FallbackTokens, UserAgent: a.UserAgent,
			Pass: a.UserAgent == configs.UserAgentPass, InfoURL: a.InfoURL, Contact: a.Contact, StopOn: policy.StopOnFor(a.Purposes)}
	}
	for _, p := range c.Profiles {
		agent := r.Agents[p.Agent]
		if agent == nil {
			// No identity: only loopback may be reached, under the program's own name.
			agent = &proxy.Agent{Name: "none", Token: "crawlgate", UserAgent: "crawlgate (no identity configured)", Missing: true}
		}
		rp := &proxy.Profile{Name: p.Name, Agent: agent, Sign: p.Sign, AnySite: p.Sites == configs.SitesAny, IdentityLock: p.IdentityLock, GoneIsFinal: p.On410 == configs.On410Final,
			Robots: p.Robots, Pacing: p.Pacing, Job: proxy.JobRules(p.Job),
			Limits: proxy.Limits{Methods: p.Limits.Methods, RequestBody: p.Limits.RequestBody, ResponseBody: p.Limits.ResponseBody, Redirects: p.Limits.Redirects,
				Timeout: p.Limits.Timeout, Authorization: p.Limits.Authorization, WebSocket: p.Limits.WebSocket, Connections: p.Limits.Connections, DenyKinds: p.Limits.DenyKinds}}
		r.Profiles[p.Name] = rp
		r.Order = append(r.Order, rp)
	}
	if len(r.Order) > 0 {
		r.Default = r.Order[0]
	}
	for _, cl := range c.Clients {
		pc := &proxy.Client{Name: cl.Name, SecretHash: cl.SecretHash, Listen: cl.Listen, Fields: cl.Fields, Enforce: cl.Enforce}
		for _, s := range cl.Sources {
			p, err := configs.ParseSource(s)
			if err != nil {
				return nil, fmt.Errorf("clients: %s: sources: %w", cl.Name, err)
			}
			pc.Sources = append(pc.Sources, p)
		}
		for _, name := range cl.Profiles {
			pc.Profiles = append(pc.Profiles, r.Profiles[name])
		}
		r.Clients = append(r.Clients, pc)
	}
	return r, nil
}

// reload reads the whole configuration and puts it in force, or keeps the old one and says why.
func (i *instance) reload() error {
	i.reloadMu.Lock()
	defer i.reloadMu.Unlock()
	err := i.tryReload()
	if err != nil {
		text := err.Error()
		i.reloadErr.Store(&text)
		i.log.Error("configuration not reloaded, the old one stays", "error", text)
		return err
	}
	i.reloadErr.Store(nil)
	i.reloadAt.Store(time.Now().UnixNano())
	i.log.Info("configuration reloaded", "policy_sha256", i.cfg.Load().Hash())
	return nil
}

func (i *instance) tryReload() error {
	cfg, src, err := i.load()
	if err != nil {
		return err
	}
	old := i.cfg.Load()
	if keys := configs.RestartOnly(old, cfg); len(keys) > 0 {
		return fmt.Errorf("%s changed, which needs a restart", strings.Join(keys, ", "))
	}
	// Everything that can fail is made first; then all of it is swapped.
	rules, err := compileRules(cfg)
	if err != nil {
		return err
	}
	dialer, err := guard.New(cfg.Egress, i.log)
	if err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	dialer.SetSelf(i.listeners.addrs)
	if err := cfg.Allowlist().Validate(); err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	ca, err := openCA(cfg)
	if err != nil {
		return err
	}
	commitKeys, err := i.signer.Prepare(cfg.Sign, cfg.SignAgents(), cfg.Publish)
	if err != nil {
		return err
	}
	if err := i.audit.Reload(cfg.Audit); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	// The keys come first: rules must not name an agent that the signer does not know.
	commitKeys()
	if err := i.gate.Reload(rules, dialer); err != nil {
		return err
	}
	if err := i.list.Reload(cfg.Allowlist()); err != nil {
		return err
	}
	if ca.Fingerprint() != i.ca.Load().Fingerprint() {
		if err := i.gate.ReplaceCA(ca); err != nil {
			return err
		}
		i.ca.Store(ca)
	}
	i.gate.Policy().Reload(cfg.Robots)
	i.locks.SetRetain(longestLock(cfg))
	i.dialer.Store(dialer)
	i.src.Store(src)
	i.cfg.Store(cfg)
	i.recordConfig("reload")
	return nil
}

// recordConfig notes in the audit log which configuration is in force from now on, or a change of the ledger, and keeps the
// configuration for a later proof.
func (i *instance) recordConfig(note string) {
	if err := keepPolicy(i.cfg.Load()); err != nil {
		i.log.Error("configuration not kept for audit prove", "error", err)
	}
	ev := &audit.Event{Type: audit.TypeConfig, PolicySHA256: i.cfg.Load().Hash(), Version: buildVersion(), Note: note}
	if err := i.audit.Record(context.Background(), ev); err != nil {
		i.log.Error("audit event not written", "error", err)
	}
}

// cardFacts is what the signature agent card says of how an agent behaves: only what its profiles enforce.
func cardFacts(c *configs.Config, agent string) sign.CardFacts {
	f := sign.CardFacts{Compliant: true, Trigger: "crawler"}
	used := false
	for _, p := range c.Profiles {
		if p.Agent != agent {
			continue
		}
		used = true
		if p.Robots.Mode != policy.ModeObey {
			f.Compliant = false
		}
	}
	f.Compliant = f.Compliant && used
	return f
}
