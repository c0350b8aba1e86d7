package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"crawlgate/audit"

	"github.com/spf13/cobra"
)

// auditPaths finds the live log file and the state folder from the configuration.
func auditPaths(a *app) (file, stateDir string, err error) {
	cfg, _, err := a.loader(identityFlags{}, nil)()
	if err != nil {
		return "", "", err
	}
	file = cfg.Audit.File
	if file == "" {
		file = filepath.Join(cfg.StateDir, "audit", "crawlgate.jsonl")
	}
	return file, cfg.StateDir, nil
}

// logPlace is where a command finds the log: flags over configuration.
type logPlace struct {
	file, stateDir string
	other          bool // --file names a log that is not this machine's own
}

func (p *logPlace) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.file, "file", "", "live log `FILE` (default: as configured, else audit/crawlgate.jsonl in the state folder)")
	cmd.Flags().StringVar(&p.stateDir, "state-dir", "", "state folder `DIR` (default: as configured, else ~/.local/state/crawlgate)")
}

// find fills what no flag said.
func (p *logPlace) find(a *app) error {
	if p.stateDir != "" && p.file == "" {
		p.file = filepath.Join(p.stateDir, "audit", "crawlgate.jsonl")
	}
	if p.file != "" && p.stateDir != "" {
		return nil
	}
	file, stateDir, err := auditPaths(a)
	if err != nil {
		return err
	}
	if p.file == "" {
		p.file = file
	}
	if p.stateDir == "" {
		p.other = filepath.Clean(p.file) != filepath.Clean(file)
		p.stateDir = stateDir
	}
	return nil
}

// signers is the file of the public keys that the log's checkpoints are signed with, "" if there is none: beside the log, or
// in the state folder, but another machine's log is not checked by the keys of this one.
func (p *logPlace) signers() string {
	const name = "checkpoint-keys.json"
	at := []string{filepath.Join(filepath.Dir(p.file), name)}
	if !p.other {
		at = append(at, filepath.Join(p.stateDir, "audit", name))
	}
	for _, file := range at {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// files lists the log's files, oldest first; none is an error that says what to do.
func (p *logPlace) files(a *app) ([]string, error) {
	if err := p.find(a); err != nil {
		return nil, err
	}
	files, err := audit.Files(p.file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0 {
		return nil, usage("no audit log at %s (a gate writes it; --state-dir or --file names another)", p.file)
	}
	if err != nil {
		return nil, usage("read the audit log: %v", err)
	}
	return files, nil
}

// newAuditCmd is `audit`; extra holds the sub commands of other files.
func newAuditCmd(a *app, extra ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "read and verify the log of decisions",
		Long:    "Reads and verifies the gate's own log: one JSON line for each decision, in a hash chain.",
		Example: "  crawlgate audit verify\n  crawlgate audit query --reason robots-disallow --since 24h",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAuditVerifyCmd(a), newAuditHeadCmd(a), newAuditTailCmd(a), newAuditQueryCmd(a), newAuditExportCmd(a))
	cmd.AddCommand(extra...)
	return cmd
}

func newAuditVerifyCmd(a *app) *cobra.Command {
	var place logPlace
	var head, keys string
	var saved []string
	var from uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "check the log's hash chain",
		Long: `Checks that no line of the log was altered, removed, doubled or moved, and prints the first bad place. Files are put in
order by themselves, compressed or not; a folder stands for the logs in it. Without FILE it is this machine's log.

A chain cannot show that its newest events were cut off, nor that its owner wrote all of it anew since the last head kept
elsewhere. So keep heads on another machine: what audit.checkpoint_to delivers there (a file, a URL, syslog) goes to
--checkpoints, as the receiver keeps it: records one a line, lines of syslog with a prefix, records inside other JSON.
What "audit head" prints goes to --head.

Exit code 0 whole, 1 broken, 2 could not be read.`,
		Example: "  crawlgate audit verify\n  crawlgate audit verify --head 9b41... --keys checkpoint-keys.json /backup/audit/*.jsonl.gz\n" +
			"  ssh loghost grep checkpoint /var/log/gate.log | crawlgate audit verify --checkpoints -",
		RunE: func(_ *cobra.Command, args []string) error {
			if head != "" && !isHex64(head) {
				return usage("--head %q is not a hash of 64 hex digits, as `crawlgate audit head` prints it", head)
			}
			files, err := expandLogs(args)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if files, err = place.files(a); err != nil {
					return err
				}
				if keys == "" {
					keys = place.signers()
				}
			}
			if files, err = audit.Order(files); err != nil {
				return usage("read the log: %v", err)
			}
			opt := audit.VerifyOptions{Head: strings.ToLower(head), From: from}
			if keys != "" {
				if opt.Keys, err = audit.LoadKeys(keys); err != nil {
					return usage("--keys: %v", err)
				}
			}
			if opt.Saved, err = a.savedHeads(saved); err != nil {
				return err
			}
			rep, err := audit.Verify(files, opt)
			if err != nil {
				return usage("read the log: %v", err)
			}
			if asJSON {
				err = json.NewEncoder(a.stdout).Encode(rep)
			} else {
				err = printVerify(a.stdout, rep, keys)
			}
			if err != nil {
				return err
			}
			if !rep.OK {
				return &exitError{exitFailed, nil}
			}
			return nil
		},
	}
	place.flags(cmd)
	cmd.Flags().StringVar(&head, "head", "", "`HASH` that the chain must reach")
	cmd.Flags().StringVar(&keys, "keys", "", "public checkpoint keys `FILE` (JWK set or PEM); signatures by others are bad")
	cmd.Flags().StringArrayVar(&saved, "checkpoints", nil, "`FILE` of another machine with signed heads, - for standard input (repeat)")
	cmd.Flags().Uint64Var(&from, "from", 0, "first `SEQ` to check: what is before it may be missing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// savedHeads reads the files of --checkpoints, nil for none.
func (a *app) savedHeads(files []string) ([]audit.Saved, error) {
	if len(files) == 0 {
		return nil, nil
	}
	all := []audit.Saved{}
	for _, file := range files {
		var list []audit.Saved
		var err error
		if file == "-" {
			list, err = audit.ReadSavedFrom(a.stdin, "standard input")
		} else {
			list, err = audit.ReadSaved(file)
		}
		switch {
		case err != nil:
			return nil, usage("--checkpoints: %v", err)
		case len(list) == 0:
			return nil, usage("--checkpoints: no signed head is in %s", file)
		}
		all = append(all, list...)
	}
	return all, nil
}

func printVerify(w io.Writer, rep audit.Report, keys string) error {
	var b strings.Builder
	if rep.Broken != nil {
		fmt.Fprintf(&b, "broken   %s\n", rep.Broken)
		if rep.Last > 0 {
			fmt.Fprintf(&b, "whole    before that: seq %s to %s\n", audit.Group(int64(rep.First)), audit.Group(int64(rep.Last)))
		}
	} else {
		last := ""
		if at, err := time.Parse(time.RFC3339, rep.LastTime); err == nil {
			last = ", last event " + audit.Age(at, time.Now())
		}
		fmt.Fprintf(&b, "whole    %s, %s events, seq %s to %s%s\n", counted(rep.Files, "file"), audit.Group(rep.Events), audit.Group(int64(rep.First)), audit.Group(int64(rep.Last)), last)
		if keys == "" {
			b.WriteString("signed   not checked (--keys FILE names the checkpoint keys)\n")
		} else if rep.Signed == 0 {
			b.WriteString("signed   no head yet\n")
		} else {
			fmt.Fprintf(&b, "signed   up to seq %s\n", audit.Group(int64(rep.Signed)))
		}
		if s := rep.Saved; s != nil {
			older := ""
			if s.Before > 0 {
				older = fmt.Sprintf(" (%s older than these files)", audit.Group(int64(s.Before)))
			}
			fmt.Fprintf(&b, "saved    %s of %s kept elsewhere found, up to seq %s%s\n", audit.Group(int64(s.Matched)), counted(s.Heads, "head"), audit.Group(int64(s.Newest)), older)
		}
		fmt.Fprintf(&b, "head     %s\n", rep.Head)
	}
	for _, f := range rep.Warnings {
		fmt.Fprintf(&b, "warning  %s\n", f)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func counted(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%s %ss", audit.Group(int64(n)), word)
}

// expandLogs turns globs and folders into files; what matches nothing is an error.
func expandLogs(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		st, err := os.Stat(arg)
		switch {
		case err == nil && st.IsDir():
			found := 0
			for _, pattern := range []string{"*.jsonl", "*.jsonl.gz"} {
				in, err := filepath.Glob(filepath.Join(arg, pattern))
				if err != nil {
					return nil, usage("%s: %v", arg, err)
				}
				files = append(files, in...)
				found += len(in)
			}
			if found == 0 {
				return nil, usage("%s holds no .jsonl or .jsonl.gz files", arg)
			}
		case err == nil:
			files = append(files, arg)
		case strings.ContainsAny(arg, "*?["):
			in, gerr := filepath.Glob(arg)
			if gerr != nil {
				return nil, usage("%s: %v", arg, gerr)
			}
			if len(in) == 0 {
				return nil, usage("%s matches no file", arg)
			}
			files = append(files, in...)
		default:
			return nil, usage("read the log: %v", err)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func newAuditHeadCmd(a *app) *cobra.Command {
	var place logPlace
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "head",
		Short:   "print the hash of the last event",
		Long:    "Prints the hash, number and time of the last event. Kept on another machine, the hash proves later that nothing was cut off.",
		Example: "  crawlgate audit head\n  crawlgate audit head | ssh backup 'cat >> gate-heads'",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := place.find(a); err != nil {
				return err
			}
			h, err := audit.ReadHead(place.file)
			if errors.Is(err, fs.ErrNotExist) {
				return usage("no audit log at %s (a gate writes it; --state-dir or --file names another)", place.file)
			}
			if err != nil {
				return fail("read the head: %v", err)
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(h)
			}
			_, err = fmt.Fprintf(a.stdout, "%s  seq %d  %s\n", h.Head, h.Seq, h.Time.Format(time.RFC3339))
			return err
		},
	}
	place.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// isHex64 tells whether s is a SHA-256 in hex.
func isHex64(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range s {
		if !strings.ContainsRune("0123456789abcdefABCDEF", c) {
			return false
		}
	}
	return true
}
