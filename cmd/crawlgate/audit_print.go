package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"crawlgate/audit"
)

// printRecords prints events for people in columns, or their lines.
func printRecords(w io.Writer, recs []audit.Record, asJSON bool) error {
	if asJSON {
		for _, r := range recs {
			if _, err := fmt.Fprintf(w, "%s\n", r.Line); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range recs {
		e := r.Event
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", e.Time.Local().Format("2006-01-02 15:04:05"), auditName(e.Client.Name), auditVerdict(e), auditTarget(e), auditDetail(e))
	}
	return t.Flush()
}

func auditName(s string) string {
	if s == "" {
		return "-"
	}
	return audit.Printable(s, 64)
}

// auditVerdict is an event's outcome in a word or two.
func auditVerdict(e *audit.Event) string {
	switch {
	case e.Decision == "":
		return e.Type
	case e.Decision == audit.Forwarded:
		return fmt.Sprintf("forwarded %d", e.Status)
	default:
		return e.Decision + " " + audit.Printable(e.Reason, 40)
	}
}

// auditTarget is the target of an event.
func auditTarget(e *audit.Event) string {
	target := e.URL.String()
	if target == "" {
		target = e.Host
		if e.Port != 0 {
			target = fmt.Sprintf("%s:%d", e.Host, e.Port)
		}
	}
	if target == "" {
		return "-"
	}
	if e.Type == audit.TypeRobots {
		return "robots.txt " + audit.Printable(target, 300)
	}
	return audit.Printable(e.Method+" "+target, 300)
}

// auditDetail is what explains an event: the rule, the address, the wait, the redirect.
func auditDetail(e *audit.Event) string {
	var parts []string
	add := func(format string, args ...any) {
		parts = append(parts, audit.Printable(fmt.Sprintf(format, args...), 300))
	}
	if e.Class != "" {
		add("%s", e.Class)
	}
	if e.Decision == audit.Refused && e.Rule.Line > 0 {
		add("line %d: %s", e.Rule.Line, e.Rule.Text)
	}
	if e.Reason == "address-denied" && e.Upstream.IP != "" {
		add("-> %s", e.Upstream.IP)
	}
	if e.Location.String() != "" {
		add("to %s", e.Location.String())
	}
	if e.TurnWaitMS > 0 {
		add("waited %s", (time.Duration(e.TurnWaitMS) * time.Millisecond).Round(10*time.Millisecond))
	}
	if e.WouldDeny != "" {
		add("would be %s", e.WouldDeny)
	}
	if e.Note != "" {
		add("%s", e.Note)
	}
	if e.Lost > 0 {
		add("%d lost", e.Lost)
	}
	if len(e.Unfinished) > 0 {
		add("%d unfinished", len(e.Unfinished))
	}
	if e.Torn != "" {
		add("torn line in %s", e.Torn)
	}
	if e.ID != "" {
		add("request %s", e.ID)
	}
	return strings.Join(parts, ", ")
}
