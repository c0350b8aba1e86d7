package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/configs"
	"crawlgate/sign"
)

// finding is one thing that doctor looked at.
type finding struct {
	Level string `json:"level"` // ok, warn, fail
	What  string `json:"what"`
	Text  string `json:"text"`
}

// doctor looks at a gate as outsiders and operators would.
type doctor struct {
	cfg    *configs.Config
	client *http.Client
	dns    *net.Resolver
	clock  sign.Clock
	out    []finding
}

func newDoctorCmd(a *app) *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check what outsiders see: key directory, names of the addresses, info page, clock, files",
		Long: `Looks at the gate as a site owner and a verifier would: is the key directory there, complete and signed, and for which
generations of verifiers; does the info page answer; do the published addresses resolve back and forth; is the clock right; and at
what an operator forgets: file modes, the age of keys, the CA's end, Redis. Exit 0 when nothing failed, 1 otherwise.`,
		Example: "  crawlgate doctor\n  crawlgate doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return a.doctor(ctx, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "for everything together")
	return cmd
}

func (a *app) doctor(ctx context.Context, asJSON bool) error {
	cfg, src, err := a.loader(identityFlags{}, nil)()
	if err != nil {
		return err
	}
	client, err := keySetClient(a)
	if err != nil {
		return err
	}
	client.Timeout = 10 * time.Second
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d := &doctor{cfg: cfg, client: client, dns: resolverOf(cfg)}
	for _, w := range src.Warnings {
		d.warn("configuration", "%s", w)
	}
	if len(src.Warnings) == 0 {
		d.ok("configuration", "%s", fileOrDefaults(src.File))
	}
	d.files()
	d.running(ctx)
	d.authority()
	d.identity(ctx)
	d.keys(ctx)
	d.addresses(ctx)
	d.time()
	if cfg.Redis.URL != "" {
		d.redis()
	}
	return d.report(a, asJSON)
}

func fileOrDefaults(file string) string {
	if file == "" {
		return "built-in defaults"
	}
	return file
}

func (d *doctor) ok(what, format string, args ...any)   { d.add("ok", what, format, args...) }
func (d *doctor) warn(what, format string, args ...any) { d.add("warn", what, format, args...) }
func (d *doctor) fail(what, format string, args ...any) { d.add("fail", what, format, args...) }
func (d *doctor) add(level, what, format string, args ...any) {
	d.out = append(d.out, finding{level, what, fmt.Sprintf(format, args...)})
}

func (d *doctor) report(a *app, asJSON bool) error {
	failed := 0
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range d.out {
		if f.Level == "fail" {
			failed++
		}
		if asJSON {
			if err := json.NewEncoder(a.stdout).Encode(f); err != nil {
				return fail("%w", err)
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.What, f.Text)
	}
	if err := w.Flush(); err != nil {
		return fail("%w", err)
	}
	if failed > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}

// files checks the modes of what must not be readable by others.
func (d *doctor) files() {
	dir := d.cfg.StateDir
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		d.warn("state", "%s is not there yet; the first start makes it", dir)
		return
	}
	if err != nil {
		d.fail("state", "%v", err)
		return
	}
	if st.Mode().Perm()&0o077 != 0 {
		d.warn("state", "%s has mode %04o; 0700 keeps keys and logs to their owner", dir, st.Mode().Perm())
	}
	open := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		secret := strings.HasSuffix(path, ".key") || strings.HasSuffix(path, ".token") || strings.Contains(path, string(filepath.Separator)+"keys"+string(filepath.Separator)) || e.Name() == "clients.yaml"
		if secret && info.Mode().Perm()&0o077 != 0 {
			open++
			d.fail("state", "%s has mode %04o; it holds a secret (chmod 600)", path, info.Mode().Perm())
		}
		return nil
	})
	switch {
	case err != nil:
		d.fail("state", "%v", err)
	case open == 0:
		d.ok("state", "%s, secrets readable by their owner only", dir)
	}
}

// running asks the instance that holds the state folder.
func (d *doctor) running(ctx context.Context) {
	c, err := dialControl(d.cfg.StateDir)
	if err != nil {
		d.warn("gate", "none runs on this state folder")
		return
	}
	var st status
	if err := c.get(ctx, "/status", &st); err != nil {
		d.fail("gate", "does not answer on control.sock: %v", err)
		return
	}
	for _, n := range st.NotReady {
		d.fail("gate", "not ready: %s", n)
	}
	if st.Policy != d.cfg.Hash() {
		d.warn("gate", "process %d runs another configuration than the file (SIGHUP reloads it)", st.PID)
	}
	if len(st.NotReady) == 0 {
		d.ok("gate", "process %d on %s, ready", st.PID, st.Proxy)
	}
}

// authority looks at the interception CA.
func (d *doctor) authority() {
	ca, err := openCA(d.cfg)
	if err != nil {
		d.fail("CA", "%v", err)
		return
	}
	left := time.Until(ca.Cert.NotAfter)
	switch {
	case left < 30*24*time.Hour:
		d.warn("CA", "ends on %s: run `crawlgate ca renew` now, so that clients can take the next one in time", ca.Cert.NotAfter.Format(time.DateOnly))
	default:
		d.ok("CA", "%s until %s", ca.File, ca.Cert.NotAfter.Format(time.DateOnly))
	}
}

// identity looks at who the agents say they are.
func (d *doctor) identity(ctx context.Context) {
	if len(d.cfg.Agents) == 0 {
		d.fail("identity", "%s", strings.SplitN(identityHint, ";", 2)[0])
	}
	for _, ag := range d.cfg.Agents {
		what := "agent " + ag.Name
		if ag.UserAgent == configs.UserAgentPass {
			d.ok(what, "leaves the fetcher's own user agent")
			continue
		}
		if ag.InfoURL == "" {
			d.warn(what, "has no info_url: site owners find nobody to ask")
			continue
		}
		resp, err := d.get(ctx, ag.InfoURL)
		switch {
		case err != nil:
			d.fail(what, "the info page %s cannot be read: %v", ag.InfoURL, err)
		case resp != http.StatusOK:
			d.fail(what, "the info page %s answers %d", ag.InfoURL, resp)
		default:
			d.ok(what, "%s, info page answers", ag.UserAgent)
		}
	}
}

// get fetches a URL as an outsider and returns the status.
func (d *doctor) get(ctx context.Context, u string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return 0, err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	d.clock.Observe(req.URL.Host, resp.Header, time.Now())
	return resp.StatusCode, nil
}

// keys looks at the signing keys and at what verifiers find of them.
func (d *doctor) keys(ctx context.Context) {
	s, err := sign.Open(d.cfg.Sign, d.cfg.StateDir, d.cfg.SignAgents(), nil)
	if err != nil {
		d.fail("keys", "%v", err)
		return
	}
	if err := s.SetPublish(d.cfg.Publish); err != nil {
		d.fail("keys", "publish: %v", err)
	}
	ring := sign.Keyring{StateDir: d.cfg.StateDir, Config: d.cfg.Sign, Publish: d.cfg.Publish, Agents: d.cfg.SignAgents()}
	for _, ag := range d.cfg.SignAgents() {
		what := "keys " + ag.Name
		if ag.SignatureAgent == "" {
			d.ok(what, "unsigned: no signature_agent")
			continue
		}
		if state, why := s.State(ag.Name); state != sign.Ready {
			d.fail(what, "requests go out unsigned: %s", why)
			continue
		}
		if list, err := ring.List(); err == nil {
			for _, k := range list {
				if k.Agent == ag.Name && k.State == sign.StateActive && !k.Since.IsZero() && time.Since(k.Since) > 180*24*time.Hour {
					d.warn(what, "the active key %s is %d days old; rotate it", k.ID, int(time.Since(k.Since).Hours()/24))
				}
			}
		}
		d.directory(ctx, what, ag.SignatureAgent, s.ActiveKey(ag.Name))
	}
}

// directory tries each URL at which a generation of verifiers looks for the keys.
func (d *doctor) directory(ctx context.Context, what, agentURL, active string) {
	tried := map[string]error{}
	for _, r := range sign.Resolutions(agentURL, d.cfg.Publish) {
		err, seen := tried[r.URL]
		if !seen {
			f := sign.KeyFetcher{Client: d.client, RequireProof: true, Skew: sign.DefaultSkew}
			var set *sign.KeySet
			if set, _, err = f.Fetch(ctx, r.URL); err == nil {
				if !set.Has(active) {
					err = fmt.Errorf("the active key %s is not in it", active)
				}
			}
			tried[r.URL] = err
		}
		if err != nil {
			d.fail(what, "verifiers of %s find no key at %s: %v", r.Generation, r.URL, err)
		} else {
			d.ok(what, "verifiers of %s find the active key at %s, proven", r.Generation, r.URL)
		}
	}
}

// addresses resolves the published addresses back and forth.
func (d *doctor) addresses(ctx context.Context) {
	list := d.cfg.Page.Addresses
	if len(list) == 0 {
		list = d.cfg.Egress.SourceAddresses
	}
	if len(list) == 0 {
		d.warn("addresses", "none are published (egress.source_addresses, page.addresses)")
		return
	}
	for _, s := range list {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			continue // a prefix: nothing to look up
		}
		names, err := d.dns.LookupAddr(ctx, addr.String())
		if err != nil || len(names) == 0 {
			d.fail("addresses", "%s has no reverse name", addr)
			continue
		}
		name, ok := d.confirmed(ctx, addr, names)
		switch {
		case !ok:
			d.fail("addresses", "%s resolves to %s, which does not resolve back", addr, strings.Join(names, ", "))
		case d.cfg.Page.ReverseDNS != "" && !underPattern(name, d.cfg.Page.ReverseDNS):
			d.fail("addresses", "%s resolves to %s, which is not %s", addr, name, d.cfg.Page.ReverseDNS)
		default:
			d.ok("addresses", "%s resolves to %s and back", addr, name)
		}
	}
}

func (d *doctor) confirmed(ctx context.Context, addr netip.Addr, names []string) (string, bool) {
	for _, n := range names {
		back, err := d.dns.LookupNetIP(ctx, "ip", n)
		if err != nil {
			continue
		}
		for _, b := range back {
			if b.Unmap() == addr {
				return strings.TrimSuffix(n, "."), true
			}
		}
	}
	return "", false
}

func underPattern(name, pattern string) bool {
	name, pattern = strings.ToLower(name), strings.ToLower(pattern)
	if rest, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(name, "."+rest)
	}
	return name == pattern
}

// time compares the clock with what the sites above said.
func (d *doctor) time() {
	offset, ok := d.clock.Offset()
	if !ok {
		d.warn("clock", "too few sites answered to compare it; verifiers refuse signatures from the future")
		return
	}
	if offset > 2*time.Second || offset < -2*time.Second {
		d.fail("clock", "differs from the sites' by %s; verifiers refuse signatures from the future", offset.Round(100*time.Millisecond))
		return
	}
	d.ok("clock", "within %s of the sites'", offset.Abs().Round(100*time.Millisecond))
}

func (d *doctor) redis() {
	c, err := openRedis(d.cfg)
	if err != nil {
		d.fail("redis", "%v", err)
		return
	}
	c.Close()
	d.ok("redis", "answers, and evicts nothing")
}

// resolverOf is the resolver that the configuration names.
func resolverOf(cfg *configs.Config) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if len(cfg.Egress.DNS) > 0 {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, cfg.Egress.DNS[0])
		}
	}
	return r
}
