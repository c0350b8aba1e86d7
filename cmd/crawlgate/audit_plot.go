package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"crawlgate/admin"
	"crawlgate/audit"

	"github.com/spf13/cobra"
)

// plotFlags are the flags of audit plot.
type plotFlags struct {
	place        logPlace
	host, output string
	since, until string
	width        int
}

func newAuditPlotCmd(a *app) *cobra.Command {
	f := &plotFlags{}
	cmd := &cobra.Command{
		Use:   "plot --host HOST [LOG...]",
		Short: "draw the turns of a host as SVG",
		Long: `Draws when requests to one host went out: a line for each client, the gap owed
after each request shaded across all of them. A request that came too close is
ringed. The picture is one SVG file that needs no script.`,
		Example: "  crawlgate audit plot --host example.com --since 1h -o turns.svg\n  crawlgate audit plot --host example.com --since 2026-01-31T12:00:00Z --until 2026-01-31T12:05:00Z > turns.svg",
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(a, cmd, args) },
	}
	f.place.flags(cmd)
	l := cmd.Flags()
	l.StringVar(&f.host, "host", "", "`HOST` to draw")
	l.StringVar(&f.since, "since", "", "from `T` on: RFC 3339, a date, or an age like 24h or 7d")
	l.StringVar(&f.until, "until", "", "before `T`")
	l.IntVar(&f.width, "width", 960, "width of the drawing in `UNITS`")
	l.StringVarP(&f.output, "output", "o", "", "write to `FILE`")
	return cmd
}

func (f *plotFlags) run(a *app, cmd *cobra.Command, args []string) error {
	now := time.Now()
	q := audit.Query{Types: []string{audit.TypeRequest, audit.TypeRobots, audit.TypeTunnel}, Host: strings.TrimSuffix(strings.ToLower(f.host), ".")}
	if q.Host == "" || strings.HasPrefix(q.Host, ".") {
		return usage("--host HOST is needed: the gap belongs to one host")
	}
	if f.width < 300 || f.width > 10000 {
		return usage("--width %d is not between 300 and 10000", f.width)
	}
	var err error
	if q.Since, err = parseWhen(f.since, now); err != nil {
		return usage("--since: %v", err)
	}
	if q.Until, err = parseWhen(f.until, now); err != nil {
		return usage("--until: %v", err)
	}
	files, err := expandLogs(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		files, err = f.place.files(a)
	} else {
		files, err = audit.Order(files)
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	var dots []admin.Dot
	err = audit.Read(cmd.Context(), files, q, func(r audit.Record) error {
		dots = append(dots, dotOf(r.Event))
		return nil
	}, a.badLine)
	if err != nil {
		return fail("read the audit log: %v", err)
	}
	if len(dots) == 0 {
		return fail("no request to %s in the log (%s)", q.Host, strings.Join(files, ", "))
	}
	var b bytes.Buffer
	if err := admin.TurnsSVG(&b, dots, admin.TurnsOptions{Title: "turns of " + q.Host, Width: f.width, From: q.Since, To: q.Until, Standalone: true}); err != nil {
		return fail("draw: %v", err)
	}
	if f.output == "" {
		_, err = a.stdout.Write(b.Bytes())
		return err
	}
	if err := os.WriteFile(f.output, b.Bytes(), 0o644); err != nil {
		return usage("--output: %v", err)
	}
	return nil
}

// dotOf is an event as a mark of the picture.
func dotOf(e *audit.Event) admin.Dot {
	d := admin.Dot{
		Client: e.Client.Name, Start: e.SentAt, End: e.DoneAt, Mark: admin.DotSent, Owed: time.Duration(e.DelayOwedMS) * time.Millisecond,
		Hold: e.DelaySource == "backoff", Rides: e.DelayOwedMS == 0,
		Label: fmt.Sprintf("%s %s %s", e.Time.UTC().Format("15:04:05"), e.Method, audit.Printable(e.URL.String(), 120)),
	}
	if d.Client == "" {
		d.Client = "(gate)" // its own robots.txt fetches
	}
	switch {
	case !e.Sent:
		d.Mark = admin.DotRefused
		d.Start = e.Time.Add(time.Duration(e.TotalMS) * time.Millisecond)
		d.End = d.Start
		d.Label += " " + e.Decision + ": " + e.Reason
	case e.Status == 429 || e.Status >= 500 || e.Status == 0 && e.Type != audit.TypeTunnel:
		d.Mark = admin.DotBad
	}
	if e.Status > 0 {
		d.Label += fmt.Sprintf(" %d", e.Status)
	}
	if e.TurnWaitMS > 0 {
		d.Label += ", waited " + (time.Duration(e.TurnWaitMS) * time.Millisecond).String()
	}
	return d
}
