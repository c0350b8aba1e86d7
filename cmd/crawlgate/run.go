package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/audit"
	"crawlgate/configs"
	"crawlgate/proxy"
)

type runOptions struct {
	id                    identityFlags
	client, profile, job  string
	proxy, caFile, skipTo string
	stateDir              string
	quiet                 bool
}

func newRunCmd(a *app) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "run a program with its traffic sent through a gate",
		Long: `Starts a gate on a free loopback port, or uses the one that holds the state folder, sets the proxy and CA variables that common
clients read, runs CMD and returns its exit code. A summary of what went out, what did not, and why goes to standard error.

Variables are a request, not a fence: a program can ignore them. To enforce, let only the gate reach the network.
Exit 125 when the gate itself failed, 126 and 127 as shells do.`,
		Example: "  crawlgate run --user-agent 'ExampleBot/1.0 (+https://example.org/bot)' -- curl -sS https://example.com/\n  crawlgate run --profile site --job job42 -- python crawl.py",
		Args:    someArgs("CMD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), o, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.id.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.client, "client", "", "act as this client (default: the first)")
	f.StringVar(&o.profile, "profile", "", "profile to fetch by (default: the client's first)")
	f.StringVar(&o.job, "job", "", "job that the requests belong to")
	f.StringVar(&o.proxy, "proxy", "", "use the gate at `URL` instead of one of this machine's")
	f.StringVar(&o.caFile, "ca-file", "", "with --proxy: that gate's CA certificate")
	f.StringVar(&o.skipTo, "no-proxy", "", "hosts that CMD may reach past the gate (NO_PROXY); empty by default")
	f.StringVar(&o.stateDir, "state-dir", "", "state folder `DIR`")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no summary")
	return cmd
}

// isNameRune tells whether a name of a client, profile or job may hold r.
func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

// gateAt is a gate that a command can be sent through.
type gateAt struct {
	proxy   string // URL without credentials
	caFile  string
	spki    string
	audit   string
	agents  []string
	profile string // the client's first; "" when it is not known
	private bool
	summary *summary
	done    func()
}

func gateFailed(err error) error {
	var e *exitError
	if errors.As(err, &e) && e.code == exitUsage {
		return err
	}
	return &exitError{exitGate, err}
}

func (a *app) run(ctx context.Context, o runOptions, args []string) error {
	if !hasFlag(a, "log-level") {
		a.logLevel = "warn"
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return &exitError{127, fmt.Errorf("%s: command not found", args[0])}
		}
		return &exitError{126, fmt.Errorf("%s: %w", args[0], err)}
	}
	if strings.ContainsFunc(o.job, func(r rune) bool { return !isNameRune(r) }) {
		return usage("--job %q is not a name: letters, digits, . _ -", o.job)
	}
	g, err := a.findGate(ctx, o)
	if err != nil {
		return gateFailed(err)
	}
	env, err := childEnv(os.Environ(), g, o)
	if err != nil {
		g.done()
		return gateFailed(err)
	}
	if !o.quiet {
		kind := "gate"
		if g.private {
			kind = "private gate"
		}
		agents := "no agent"
		if len(g.agents) > 0 {
			agents = "agent " + strings.Join(g.agents, ", ")
		}
		fmt.Fprintf(a.stderr, "crawlgate: %s on %s, %s, audit %s\n", kind, g.proxy, agents, g.audit)
		if len(g.agents) == 0 {
			fmt.Fprintf(a.stderr, "crawlgate: %s\n", identityHint)
		}
		for _, name := range []string{"NO_PROXY", "no_proxy"} {
			if v := os.Getenv(name); v != "" && o.skipTo == "" {
				fmt.Fprintf(a.stderr, "crawlgate: %s=%q is emptied for %s, so that nothing slips past (--no-proxy keeps some)\n", name, v, args[0])
				break
			}
		}
	}
	code, err := a.child(path, args, env)
	g.done()
	if err != nil {
		return err
	}
	if !o.quiet && g.summary != nil {
		g.summary.print(a.stderr, filepath.Base(args[0]))
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// findGate starts a gate, or joins the one that holds the state folder: two keepers of turns would break the pace.
func (a *app) findGate(ctx context.Context, o runOptions) (*gateAt, error) {
	if o.proxy != "" {
		return remoteGate(o)
	}
	overrides := map[string]string{}
	if o.stateDir != "" {
		overrides["state_dir"] = o.stateDir
	}
	cfg, src, err := a.loader(identityFlags{}, overrides)()
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if c, err := dialControl(cfg.StateDir); err == nil {
			g, err := joinGate(ctx, c, o)
			if err == nil || try > 2 {
				return g, err
			}
			var e *exitError
			if errors.As(err, &e) {
				return nil, err
			}
			continue // it ended at this moment
		}
		g, err := a.privateGate(ctx, o, overrides, src)
		var held *heldError
		if errors.As(err, &held) && try < 20 {
			// Another run starts or ends at this moment.
			select {
			case <-time.After(150 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			continue
		}
		return g, err
	}
}

func (a *app) privateGate(ctx context.Context, o runOptions, overrides map[string]string, _ *configs.Sources) (*gateAt, error) {
	over := map[string]string{"listen": "127.0.0.1:0", "admin.listen": "", "publish.listen": ""}
	for k, v := range overrides {
		over[k] = v
	}
	load := a.loader(o.id, over)
	cfg, src, err := load()
	if err != nil {
		return nil, err
	}
	log, err := a.logger()
	if err != nil {
		return nil, err
	}
	i, err := openInstance(cfg, src, log)
	if err != nil {
		return nil, err
	}
	i.load = load
	if err := i.openControl(); err != nil {
		i.close()
		return nil, err
	}
	i.background(ctx)
	l, err := i.listen("listen", "127.0.0.1:0")
	if err != nil {
		i.stop(log)
		i.close()
		return nil, err
	}
	i.listeners.main = l.Addr()
	i.currentDialer().SetSelf(i.listeners.addrs)
	s := newSummary()
	errs := make(chan error, 1)
	go func() {
		errs <- i.gate.ServeTrusted(l, o.client, func(e *audit.Event) { s.add(newSummaryEvent(e)) })
	}()
	select {
	case err := <-errs:
		i.stop(log)
		i.close()
		return nil, usage("%w", err)
	default:
	}
	if err := o.asks(ctx, i.gate.Explain); err != nil {
		i.stop(log)
		i.close()
		return nil, err
	}
	st := i.status()
	return &gateAt{proxy: st.Proxy, caFile: st.CAFile, spki: st.SPKI, audit: st.Audit, agents: st.Agents, profile: i.firstProfile(o.client), private: true, summary: s, done: func() {
		i.control.waitAlone(ctx) // another run may share this gate
		i.stop(log)
		i.close()
	}}, nil
}

// asks tells whether the gate knows the client and profile that were named. Without it each request would be refused for them.
func (o runOptions) asks(ctx context.Context, explain explainer) error {
	if o.client == "" && o.profile == "" {
		return nil
	}
	_, err := explain(ctx, proxy.Question{Client: o.client, Profile: o.profile, URL: "about:blank"})
	var away *url.Error
	if err == nil || errors.As(err, &away) {
		return err
	}
	return usage("%w", err)
}

// joinGate uses the gate of a running instance.
func joinGate(ctx context.Context, c *controlClient, o runOptions) (*gateAt, error) {
	if err := o.asks(ctx, c.explain); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://control/join?client="+url.QueryEscape(o.client), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	dec := json.NewDecoder(bufio.NewReader(resp.Body))
	var st status
	if err := dec.Decode(&st); err != nil {
		resp.Body.Close()
		cancel()
		return nil, err
	}
	if ua := o.id.userAgent; ua != "" && !contains(st.UAs, ua) {
		resp.Body.Close()
		cancel()
		return nil, &exitError{exitGate, fmt.Errorf("the running gate (process %d) knows no agent with the user agent %q; it has %s", st.PID, ua, strings.Join(st.UAs, ", "))}
	}
	s := newSummary()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var e summaryEvent
			if dec.Decode(&e) != nil {
				return
			}
			s.add(&e)
		}
	}()
	return &gateAt{proxy: st.Proxy, caFile: st.CAFile, spki: st.SPKI, audit: st.Audit, agents: st.Agents, profile: st.Profile, summary: s, done: func() {
		// The last events are on their way: a body's end and its event are a moment apart.
		select {
		case <-ended:
		case <-time.After(200 * time.Millisecond):
		}
		cancel()
		resp.Body.Close()
		<-ended
	}}, nil
}

func remoteGate(o runOptions) (*gateAt, error) {
	u, err := url.Parse(o.proxy)
	if err != nil || u.Host == "" {
		return nil, usage("--proxy %q is not a URL like http://127.0.0.1:3128", o.proxy)
	}
	if o.caFile == "" {
		return nil, usage("--proxy needs --ca-file, that gate's CA certificate (its admin listener's /ca.pem)")
	}
	spki, err := spkiOf(o.caFile)
	if err != nil {
		return nil, usage("--ca-file: %w", err)
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.Dial("tcp", u.Host)
	if err != nil {
		return nil, &exitError{exitGate, fmt.Errorf("no gate answers at %s: %w", o.proxy, err)}
	}
	c.Close()
	return &gateAt{proxy: o.proxy, caFile: o.caFile, spki: spki, audit: "kept by that gate", agents: []string{"of that gate"}, done: func() {}}, nil
}

// child runs the program, passes signals on and returns its code as shells do.
func (a *app) child(path string, args, env []string) (int, error) {
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, &exitError{126, fmt.Errorf("%s: %w", args[0], err)}
	}
	onTerminal := isTerminalReader(a.stdin)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				if onTerminal && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
					continue // the terminal sent it to the child as well
				}
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, &exitError{126, fmt.Errorf("%s: %w", args[0], err)}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

func isTerminalReader(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
