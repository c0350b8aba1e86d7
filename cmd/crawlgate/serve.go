package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/configs"
)

// identityHint is the way out of identity-missing, the same wherever it is told.
const identityHint = `no agent is configured, so nothing leaves for other hosts than loopback; end that with
  agents: [{name: example, product_token: ExampleBot, user_agent: "ExampleBot/1.0 (+https://bot.example/about)"}]
in the configuration, or with --user-agent "ExampleBot/1.0 (+https://bot.example/about)"`

// identityFlags are the flags that name an agent without a file.
type identityFlags struct{ userAgent, productToken string }

func (f *identityFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.userAgent, "user-agent", "", "the crawler's user agent, where no agent is configured; its first product is the robots.txt token")
	cmd.Flags().StringVar(&f.productToken, "product-token", "", "the robots.txt token, where --user-agent begins with Mozilla")
}

// loader reads the configuration the way a command's flags ask for, now and at each reload.
func (a *app) loader(id identityFlags, overrides map[string]string) loadFunc {
	return func() (*configs.Config, *configs.Sources, error) {
		cfg, src, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ(), Overrides: overrides})
		if err != nil {
			return nil, src, &exitError{exitUsage, err}
		}
		if id.userAgent != "" || id.productToken != "" {
			if err := configs.WithUserAgent(cfg, id.userAgent, id.productToken); err != nil {
				return nil, src, &exitError{exitUsage, err}
			}
		}
		return cfg, src, nil
	}
}

func newServeCmd(a *app) *cobra.Command {
	var id identityFlags
	var listen, admin, stateDir string
	var probe bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run the proxy and the admin listener",
		Long: `Runs the proxy until SIGTERM or SIGINT, then lets running requests end; a second signal ends at once.
SIGHUP, or a change of the file, reloads the configuration: all of it, or nothing when it has a fault.`,
		Example: "  crawlgate serve\n  crawlgate serve --config /etc/crawlgate/crawlgate.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			overrides := map[string]string{}
			for key, flag := range map[string]string{"listen": "listen", "admin.listen": "admin-listen", "state_dir": "state-dir"} {
				if f := cmd.Flags().Lookup(flag); f.Changed {
					overrides[key] = f.Value.String()
				}
			}
			load := a.loader(id, overrides)
			if probe {
				return a.probe(cmd.Context(), load)
			}
			return a.serve(cmd.Context(), load)
		},
	}
	id.register(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "proxy listener `HOST:PORT` (default 127.0.0.1:3128)")
	cmd.Flags().StringVar(&admin, "admin-listen", "", "admin listener `HOST:PORT`; empty switches it off (default 127.0.0.1:3129)")
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "state folder `DIR`")
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the running gate whether it is ready, and exit 0 or 1")
	return cmd
}

// serve runs a gate until it is told to stop.
func (a *app) serve(ctx context.Context, load loadFunc) error {
	keepHeapFloor()
	log, err := a.logger()
	if err != nil {
		return err
	}
	cfg, src, err := load()
	if err != nil {
		return err
	}
	i, err := openInstance(cfg, src, log)
	if err != nil {
		return err
	}
	i.load = load
	defer i.close()
	if err := i.openProxyPorts(cfg); err != nil {
		return err
	}
	if err := i.openAdmin(cfg); err != nil {
		i.stop(log)
		return err
	}
	if err := i.openControl(); err != nil {
		i.stop(log)
		return err
	}
	// Before anybody is told that it runs: who hears so may end it at once, and it shall drain.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	i.announce(a.stderr)
	i.background(ctx)
	i.watchChain(ctx)
	notifySystemd("READY=1")

	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	changed := make(chan struct{}, 1)
	go func() {
		if err := configs.Watch(watch, i.src.Load().Files(), log, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}); err != nil && !errors.Is(err, context.Canceled) {
			log.Warn("the configuration file is not watched; SIGHUP reloads it", "error", err)
		}
	}()
	for {
		select {
		case <-changed:
			_ = i.reload()
		case s := <-signals:
			if s == syscall.SIGHUP {
				_ = i.reload()
				if err := i.audit.Reopen(); err != nil {
					log.Error("audit log not reopened", "error", err)
				}
				continue
			}
			notifySystemd("STOPPING=1")
			log.Info("draining", "signal", s.String(), "tunnels", i.gate.Tunnels())
			go func() {
				<-signals
				log.Warn("second signal, ending now")
				i.close()
				os.Exit(exitFailed)
			}()
			i.stop(log)
			return nil
		case <-ctx.Done():
			i.stop(log)
			return nil
		}
	}
}

// stop drains the gate and ends everything it started.
func (i *instance) stop(log interface{ Info(string, ...any) }) {
	grace := i.cfg.Load().Server.Grace
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := i.gate.Shutdown(ctx); err != nil {
		log.Info("not everything ended in time", "grace", grace.String(), "error", err.Error())
	}
	i.gate.FlushJobs()
	i.closeControl()
	i.closeAdmin()
}

// announce says what runs, where, and under which names.
func (i *instance) announce(w io.Writer) {
	cfg := i.cfg.Load()
	fmt.Fprintf(w, "crawlgate: proxy  %s\n", i.proxyURL())
	if i.admin != nil {
		fmt.Fprintf(w, "crawlgate: admin  %s\n", i.admin.url())
	}
	fmt.Fprintf(w, "crawlgate: CA     %s (sha256 %s)\n", i.ca.Load().File, i.ca.Load().Fingerprint()[:16])
	from := i.src.Load().File
	if from == "" {
		from = "built-in defaults"
	}
	fmt.Fprintf(w, "crawlgate: config %s, state %s\n", from, cfg.StateDir)
	for _, ag := range cfg.Agents {
		state, why := i.signer.State(ag.Name)
		signing := "signs requests"
		if state != "ready" {
			signing = "unsigned: " + why
		}
		fmt.Fprintf(w, "crawlgate: agent  %s, %s, %s\n", ag.Name, ag.UserAgent, signing)
	}
	if len(cfg.Agents) == 0 {
		fmt.Fprintf(w, "crawlgate: %s\n", identityHint)
	}
	for _, warning := range i.src.Load().Warnings {
		fmt.Fprintf(w, "crawlgate: warning: %s\n", warning)
	}
}

// background runs what a gate does between requests, until ctx ends.
func (i *instance) background(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				i.gate.FlushJobs()
			case <-ctx.Done():
				return
			}
		}
	}()
	i.closers = append(i.closers, func() error { cancel(); <-done; return nil })
}

// probe asks the instance that holds state_dir whether it is ready.
func (a *app) probe(ctx context.Context, load loadFunc) error {
	cfg, _, err := load()
	if err != nil {
		return err
	}
	c, err := dialControl(cfg.StateDir)
	if err != nil {
		return fail("no gate runs on %s", cfg.StateDir)
	}
	var st status
	if err := c.get(ctx, "/status", &st); err != nil {
		return fail("the gate on %s does not answer: %w", cfg.StateDir, err)
	}
	if len(st.NotReady) > 0 {
		return fail("not ready: %s", strings.Join(st.NotReady, ", "))
	}
	return nil
}

// notifySystemd tells the service manager, where there is one.
func notifySystemd(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:]
	}
	c, err := net.Dial("unixgram", name)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, state)
}

// controlPath is where an instance answers the other commands.
func controlPath(stateDir string) string { return filepath.Join(stateDir, "control.sock") }

// loadFunc reads the configuration, now or again.
type loadFunc func() (*configs.Config, *configs.Sources, error)
