package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"crawlgate/configs"
)

func newConfigCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "check and show the configuration",
		Example: "  crawlgate config check\n  crawlgate config show --origin",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCmd(a), newConfigShowCmd(a))
	return cmd
}

func newConfigCheckCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check the configuration and name every problem with file and line",
		Long: "Reads the configuration as serve would and starts nothing. Problems go to stderr with file and line, all at once.\n" +
			"Exit 0: usable, warnings included. Exit 2: not usable.",
		Example: "  crawlgate config check\n  crawlgate --config /etc/crawlgate/crawlgate.yaml config check --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, src, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ()})
			if asJSON {
				return checkJSON(a, src, err)
			}
			if w := configs.FormatWarnings(src.Warnings); w != "" {
				printError(a.stderr, errors.New(w))
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			_, err = fmt.Fprintf(a.stdout, "%s: ok\n", configName(src))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print file, problems and warnings as JSON")
	return cmd
}

// checkJSON is the answer of `config check --json`; its keys are fixed.
func checkJSON(a *app, src *configs.Sources, err error) error {
	out := struct {
		File     string            `json:"file"`
		OK       bool              `json:"ok"`
		Problems []configs.Problem `json:"problems"`
		Warnings []configs.Problem `json:"warnings"`
	}{src.File, err == nil, []configs.Problem{}, append([]configs.Problem{}, src.Warnings...)}
	var e *configs.Error
	if errors.As(err, &e) {
		out.Problems = e.Problems
	}
	if jerr := json.NewEncoder(a.stdout).Encode(out); jerr != nil {
		return jerr
	}
	if err != nil {
		return &exitError{exitUsage, nil}
	}
	return nil
}

func newConfigShowCmd(a *app) *cobra.Command {
	var origin, asJSON, hash bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show the values in force, secrets masked",
		Long: "Prints the configuration in force: defaults, preset, file, environment and flags put over each other, secrets masked.\n" +
			"--origin ends each line with where its value came from.",
		Example: "  crawlgate config show\n  crawlgate config show --origin | grep CRAWLGATE_",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, src, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ()})
			if err != nil {
				return &exitError{exitUsage, err}
			}
			switch {
			case hash:
				_, err = fmt.Fprintln(a.stdout, c.Hash())
			case asJSON:
				var b []byte
				if b, err = c.ShowJSON(); err == nil {
					_, err = fmt.Fprintf(a.stdout, "%s\n", b)
				}
			case origin:
				_, err = fmt.Fprint(a.stdout, c.Show(src))
			default:
				_, err = fmt.Fprint(a.stdout, c.Show(nil))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&origin, "origin", false, "end each line with where the value came from")
	f.BoolVar(&asJSON, "json", false, "print JSON: durations as text, sizes in bytes")
	f.BoolVar(&hash, "hash", false, "print only the hash of the policy, which audit events and the page carry")
	cmd.MarkFlagsMutuallyExclusive("origin", "json", "hash")
	return cmd
}

// configName is the file in force in words.
func configName(src *configs.Sources) string {
	if src.File == "" {
		return "built-in defaults"
	}
	return src.File
}
