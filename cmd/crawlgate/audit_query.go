package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"crawlgate/audit"
	"crawlgate/proxy"

	"github.com/spf13/cobra"
)

func newAuditTailCmd(a *app) *cobra.Command {
	var place logPlace
	var filter filterFlags
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:     "tail",
		Short:   "print the newest events",
		Example: "  crawlgate audit tail --limit 50\n  crawlgate audit tail --follow --decision refused",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := filter.query()
			if err != nil {
				return err
			}
			files, err := place.files(a)
			if err != nil && !follow {
				return err
			}
			// What is recorded between the two readings belongs to the second.
			head, err := audit.ReadHead(place.file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail("read the audit log: %v", err)
			}
			recs, err := audit.Last(cmd.Context(), files, q, nil)
			if err != nil {
				return fail("read the audit log: %v", err)
			}
			recs = slices.DeleteFunc(recs, func(r audit.Record) bool { return r.Event.Seq > head.Seq })
			if err := printRecords(a.stdout, recs, asJSON); err != nil || !follow {
				return err
			}
			q.After = head.Seq
			return audit.Follow(cmd.Context(), place.file, q, func(r audit.Record) error {
				return printRecords(a.stdout, []audit.Record{r}, asJSON)
			})
		},
	}
	place.flags(cmd)
	filter.flags(cmd, 20)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the lines of the log")
	return cmd
}

func newAuditQueryCmd(a *app) *cobra.Command {
	var place logPlace
	var filter filterFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "query",
		Short:   "find events",
		Long:    "Prints the events that all given filters choose, oldest first; --limit keeps the newest. Nothing found is no error.",
		Example: "  crawlgate audit query --host example.com --decision refused --since 7d\n  crawlgate audit query --reason address-denied --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := filter.query()
			if err != nil {
				return err
			}
			files, err := place.files(a)
			if err != nil {
				return err
			}
			if q.Limit > 0 {
				recs, err := audit.Last(cmd.Context(), files, q, a.badLine)
				if err != nil {
					return fail("read the audit log: %v", err)
				}
				return printRecords(a.stdout, recs, asJSON)
			}
			err = audit.Read(cmd.Context(), files, q, func(r audit.Record) error {
				return printRecords(a.stdout, []audit.Record{r}, asJSON)
			}, a.badLine)
			if err != nil {
				return fail("read the audit log: %v", err)
			}
			return nil
		},
	}
	place.flags(cmd)
	filter.flags(cmd, 1000)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the lines of the log")
	return cmd
}

// badLine tells of a line that is no event.
func (a *app) badLine(file string, line int) {
	fmt.Fprintf(a.stderr, "crawlgate: %s line %d is not an event (crawlgate audit verify says more)\n", file, line)
}

func newAuditExportCmd(a *app) *cobra.Command {
	var place logPlace
	var filter filterFlags
	var format, out string
	var schema, table bool
	cmd := &cobra.Command{
		Use:   "export [FILE...]",
		Short: "write events as ECS, OCSF or CSV",
		Long: `Writes events in another schema: ecs (Elastic Common Schema), ocsf (HTTP Activity, class 4002), both one JSON object a
line, or csv with all fields. --schema prints the JSON Schema of the log's own lines, --fields the table of all fields.`,
		Example: "  crawlgate audit export --format ecs --since 1h\n  crawlgate audit export --format csv --host example.com -o example.csv",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case schema:
				_, err := a.stdout.Write(audit.EventSchema)
				return err
			case table:
				_, err := io.WriteString(a.stdout, audit.FieldsMarkdown())
				return err
			}
			q, err := filter.query()
			if err != nil {
				return err
			}
			if !slices.Contains([]string{audit.FormatECS, audit.FormatOCSF, audit.FormatCSV}, format) {
				return usage("--format %q is not one of ecs, ocsf, csv", format)
			}
			files, err := expandLogs(args)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				files, err = place.files(a)
			} else {
				files, err = audit.Order(files)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			w := a.stdout
			if out != "" {
				f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
				if err != nil {
					return usage("-o: %v", err)
				}
				defer func() {
					if cerr := f.Close(); err == nil && cerr != nil {
						err = fail("export: %v", cerr)
					}
				}()
				w = f
			}
			x, err := audit.NewExporter(format, w)
			if err != nil {
				return err
			}
			if err := audit.Read(cmd.Context(), files, q, func(r audit.Record) error { return x.Write(r.Event) }, a.badLine); err != nil {
				return fail("export: %v", err)
			}
			if err := x.Flush(); err != nil {
				return fail("export: %v", err)
			}
			return nil
		},
	}
	place.flags(cmd)
	filter.flags(cmd, 0)
	cmd.Flags().StringVar(&format, "format", audit.FormatECS, "ecs, ocsf or csv")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `FILE`")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of an event")
	cmd.Flags().BoolVar(&table, "fields", false, "print the table of fields as Markdown")
	return cmd
}

// filterFlags are the filters of tail, query and export.
type filterFlags struct {
	q            audit.Query
	types        []string
	since, until string
}

func (f *filterFlags) flags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.types, "type", nil, "event `TYPE` (repeat): request, robots, tunnel, intent, config, start, stop, gap, checkpoint")
	fl.StringVar(&f.q.Client, "client", "", "client `NAME`")
	fl.StringVar(&f.q.Agent, "agent", "", "agent `NAME`")
	fl.StringVar(&f.q.Profile, "profile", "", "profile `NAME`")
	fl.StringVar(&f.q.Job, "job", "", "job `ID`")
	fl.StringVar(&f.q.Kind, "kind", "", "`KIND` of request: page, subresource, ...")
	fl.StringVar(&f.q.Host, "host", "", "`HOST`; .HOST also takes those below it")
	fl.StringVar(&f.q.Reason, "reason", "", "reason `CODE`, or ok")
	fl.StringVar(&f.q.Class, "class", "", "finer `WORD` of the reason")
	fl.StringVar(&f.q.Decision, "decision", "", "forwarded, refused, cancelled or failed")
	fl.StringVar(&f.q.ID, "id", "", "request `ID`")
	fl.StringVar(&f.since, "since", "", "from `T` on: RFC 3339, a date, or an age like 24h or 7d")
	fl.StringVar(&f.until, "until", "", "before `T`")
	fl.IntVar(&f.q.Limit, "limit", limit, "at most `N` events; 0 for all")
}

// knownReason refuses a reason that no event can have: nothing would be found, which reads as nothing happened.
func knownReason(reason string) error {
	codes := []string{"", "ok", "client-gone"}
	for _, r := range proxy.ReasonTable() {
		codes = append(codes, r.Code)
	}
	if slices.Contains(codes, reason) {
		return nil
	}
	if n := nearest(reason, codes); n != "" {
		return usage("--reason %q is not a reason code; did you mean %s?", reason, n)
	}
	return usage("--reason %q is not a reason code; docs/reference.md lists them, and ok is what was let through", reason)
}

func (f *filterFlags) query() (audit.Query, error) {
	q := f.q
	q.Types = f.types
	known := []string{"request", "robots", "tunnel", "intent", "config", "start", "stop", "gap", "checkpoint"}
	for _, t := range q.Types {
		if !slices.Contains(known, t) {
			return q, usage("--type %q is not one of %s", t, strings.Join(known, ", "))
		}
	}
	decisions := []string{"", audit.Forwarded, audit.Refused, audit.Cancelled, audit.Failed}
	if !slices.Contains(decisions, q.Decision) {
		return q, usage("--decision %q is not one of %s", q.Decision, strings.Join(decisions[1:], ", "))
	}
	if err := knownReason(q.Reason); err != nil {
		return q, err
	}
	if q.Limit < 0 {
		return q, usage("--limit %d is negative", q.Limit)
	}
	q.Host = strings.TrimSuffix(strings.ToLower(q.Host), ".")
	now := time.Now()
	var err error
	if q.Since, err = parseWhen(f.since, now); err != nil {
		return q, usage("--since: %v", err)
	}
	if q.Until, err = parseWhen(f.until, now); err != nil {
		return q, usage("--until: %v", err)
	}
	return q, nil
}

// parseWhen reads a moment: RFC 3339, a date (UTC), or an age (`90m`, `24h`, `7d`) before now.
func parseWhen(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a time (2026-01-31T12:00:00Z), a date, nor an age (24h, 7d)", s)
}
