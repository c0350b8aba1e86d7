package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of every command (run passes on the child's own).
const (
	exitOK      = 0 // done, or allowed
	exitFailed  = 1 // tried and failed; chain broken; signature invalid
	exitUsage   = 2 // bad usage or configuration; nothing was started
	exitRefused = 3 // policy says no
	exitGate    = 125
)

// app is what every command shares: the streams and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	flags      *pflag.FlagSet
	configFile string
	logLevel   string
	logFormat  string
}

// exitError ends a command with a code. err may be nil when everything was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// fail ends a command with exit code 1, usage with 2.
func fail(format string, args ...any) error {
	return &exitError{exitFailed, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run is the whole program: it returns the exit code and touches no global.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRootCmd(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var e *exitError
	if errors.As(err, &e) {
		if e.err != nil {
			printError(stderr, e.err)
		}
		return e.code
	}
	// What cobra itself refuses (unknown command, unknown flag, missing argument) is a usage error.
	printError(stderr, err)
	return exitUsage
}

func printError(w io.Writer, err error) {
	fmt.Fprintf(w, "crawlgate: %s\n", strings.TrimSuffix(err.Error(), "\n"))
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "crawlgate",
		Short:         "a forward egress proxy that enforces crawl policy",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       buildVersion(),
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			_, err := a.logger() // a wrong --log-level is wrong for commands that log nothing, too
			return err
		},
	}
	root.SetVersionTemplate("crawlgate {{.Version}}\n")
	f := root.PersistentFlags()
	a.flags = f
	f.StringVar(&a.configFile, "config", "", "configuration `FILE` (default ./crawlgate.yaml, then $XDG_CONFIG_HOME/crawlgate/crawlgate.yaml, then built-in defaults)")
	f.StringVar(&a.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "", "text or json (default: text on a terminal, else json)")
	root.AddCommand(newServeCmd(a), newRunCmd(a), newDemoCmd(a), newCheckCmd(a), newSitesCmd(a), newKeysCmd(a), newVerifyCmd(a), newCACmd(a),
		newJobsCmd(a), newClientCmd(a), newAddressCmd(a), newRobotsCmd(a), newAuditCmd(a, newAuditAccessCmd(a), newAuditProveCmd(a), newAuditPlotCmd(a)), newWhyCmd(a), newDoctorCmd(a), newPageCmd(a), newConfigCmd(a), newVersionCmd(a))
	root.InitDefaultCompletionCmd()
	root.SetHelpCommand(newHelpCmd())
	withSuggestions(root)
	return root
}

// newHelpCmd is help as a command; unlike cobra's it fails on a command that is not there.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				if err := of.ValidateArgs(rest); of.HasSubCommands() && err != nil {
					return err
				}
			}
			return of.Help()
		},
	}
}

// logger builds the operational log from the global flags. What libraries write to Go's own log goes there too, at debug:
// any site can make the transport write a line.
func (a *app) logger() (*slog.Logger, error) {
	l, err := a.newLogger()
	if err == nil {
		log.SetFlags(0)
		log.SetOutput(libraryLog{l})
	}
	return l, err
}

type libraryLog struct{ *slog.Logger }

func (l libraryLog) Write(p []byte) (int, error) {
	l.Debug("library", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

func (a *app) newLogger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return nil, usage("--log-level %q is not one of debug, info, warn, error", a.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, opts)), nil
	case "":
		if isTerminal(a.stderr) {
			return slog.New(slog.NewTextHandler(a.stderr, opts)), nil
		}
		return slog.New(slog.NewJSONHandler(a.stderr, opts)), nil
	}
	return nil, usage("--log-format %q is not one of text, json", a.logFormat)
}

// hasFlag tells whether a global flag was given.
func hasFlag(a *app, name string) bool {
	f := a.flags.Lookup(name)
	return f != nil && f.Changed
}
