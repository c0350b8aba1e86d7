package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

const (
	doctorExchange = 10 * time.Second     // one page, redirects not included
	doctorLookup   = 10 * time.Second     // one question to the DNS
	caEndsSoon     = 30 * 24 * time.Hour  // time for clients to take the next CA
	keyIsOld       = 180 * 24 * time.Hour // an active key
	clockTolerance = 2 * time.Second      // what the stricter half of verifiers may still take
)

// doctor looks at a gate as outsiders and operators would.
type doctor struct {
	cfg       *configs.Config
	client    *http.Client
	dns       *net.Resolver
	clock     sign.Clock
	gateClock *float64 // of the running gate, seconds
	out       []finding
}

func newDoctorCmd(a *app) *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check what outsiders see: key directory, names of the addresses, info page, clock, files",
		Long: `Looks at the gate as a site owner and a verifier of signatures would: does the info page answer; is the key
directory there, signed, and complete, and for which generations of verifiers; do the published addresses resolve back
and forth; is the clock right. And at what an operator forgets: file modes, the age of keys, the CA's end, Redis. It
changes nothing.

Verifiers look for keys in different places: those of draft-ietf-webbotauth-httpsig-protocol-01 fetch the value of
signature_agent itself, those of -00 and before take it for an origin and look at the well-known path below it.

Exit status: 0 nothing failed, 1 something did, 2 wrong usage or configuration.`,
		Example: "  crawlgate doctor\n  crawlgate doctor --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usage("--timeout %s is not a positive duration", timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return a.doctor(ctx, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "for everything together; what is not done then fails")
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
	d := &doctor{cfg: cfg, client: client, dns: resolverOf(cfg)}
	client.Timeout = doctorExchange
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Transport = dated{client.Transport, &d.clock}
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

// dated compares the clock with the Date of every answer.
type dated struct {
	http.RoundTripper
	clock *sign.Clock
}

func (t dated) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		t.clock.Observe(r.URL.Hostname(), resp.Header, time.Now())
	}
	return resp, err
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
	d.out = append(d.out, finding{level, what, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")})
}

func (d *doctor) report(a *app, asJSON bool) error {
	count := map[string]int{}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	for _, f := range d.out {
		count[f.Level]++
		if asJSON {
			if err := enc.Encode(f); err != nil {
				return fail("%w", err)
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.What, f.Text)
	}
	if err := w.Flush(); err != nil {
		return fail("%w", err)
	}
	if !asJSON {
		fmt.Fprintf(a.stderr, "%d ok, %d to look at, %d failed\n", count["ok"], count["warn"], count["fail"])
		if len(d.cfg.Agents) == 0 {
			fmt.Fprintf(a.stderr, "%s\n", identityHint)
		}
	}
	if count["fail"] > 0 {
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
		d.warn("state", "%s has mode %04o; with 0700 only its owner sees keys and logs (chmod 700)", dir, st.Mode().Perm())
	}
	open := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			if name := e.Name(); path != dir && (name == "audit" || name == "robots") {
				return fs.SkipDir // no secrets, and perhaps very many files
			}
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a running gate replaced it
		}
		if err != nil {
			return err
		}
		if allowed := d.secretMode(dir, path); allowed != 0 && info.Mode().Perm()&^allowed != 0 {
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

// secretMode is the widest mode that a file of the state folder may have, 0 for one that holds no secret.
func (d *doctor) secretMode(dir, path string) fs.FileMode {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return 0
	}
	rel = filepath.ToSlash(rel)
	switch {
	case strings.HasPrefix(rel, "keys/") && d.cfg.Sign.AllowGroupRead:
		return 0o640
	case strings.HasPrefix(rel, "keys/"), strings.HasSuffix(rel, ".key"), strings.HasSuffix(rel, ".token"), rel == "clients.yaml":
		return 0o600
	}
	return 0
}

// running asks the instance that holds the state folder.
func (d *doctor) running(ctx context.Context) {
	c, err := dialControl(d.cfg.StateDir)
	if err != nil {
		d.warn("gate", "none runs on this state folder, so what it would publish may not answer below")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorExchange)
	defer cancel()
	var st status
	if err := c.get(ctx, "/status", &st); err != nil {
		d.fail("gate", "does not answer on control.sock: %v", err)
		return
	}
	d.gateClock = st.Clock
	for _, n := range st.NotReady {
		d.fail("gate", "not ready: %s", n)
	}
	if st.Policy != d.cfg.Hash() {
		d.warn("gate", "process %d runs another configuration than the file says (SIGHUP reloads it)", st.PID)
	}
	if len(st.NotReady) == 0 {
		d.ok("gate", "process %d on %s, ready", st.PID, st.Proxy)
	}
}

// authority looks at the interception CA, without making one.
func (d *doctor) authority() {
	if file := filepath.Join(d.cfg.StateDir, "ca", "ca.pem"); d.cfg.Intercept.CACertFile == "" {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			d.warn("CA", "%s is not there yet; the first start makes it", file)
			return
		}
	}
	ca, err := openCA(d.cfg)
	if err != nil {
		d.fail("CA", "%v", err)
		return
	}
	renew := "run `crawlgate ca renew` and have clients trust the new one"
	if d.cfg.Intercept.CACertFile != "" {
		renew = "put a new pair into intercept.ca_cert_file and ca_key_file and have clients trust it"
	}
	day := ca.Cert.NotAfter.Format(time.DateOnly)
	switch left := time.Until(ca.Cert.NotAfter); {
	case left <= 0:
		d.fail("CA", "%s ended on %s, so clients refuse every https site; %s", ca.File, day, renew)
	case left < caEndsSoon:
		d.warn("CA", "%s ends on %s, in %d days; %s in time", ca.File, day, int(left.Hours()/24), renew)
	default:
		d.ok("CA", "%s until %s", ca.File, day)
	}
}

func (d *doctor) redis() {
	c, err := openRedis(d.cfg, slog.New(slog.DiscardHandler)) // what fails is a finding
	if err != nil {
		d.fail("redis", "%v", err)
		return
	}
	c.Close()
	d.ok("redis", "answers, and evicts nothing")
}

// resolverOf is the resolver that the configuration names; its servers are asked in turn.
func resolverOf(cfg *configs.Config) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if servers := cfg.Egress.DNS; len(servers) > 0 {
		var asked atomic.Uint32
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, servers[int(asked.Add(1)-1)%len(servers)])
		}
	}
	return r
}
