package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"crawlgate/allowlist"
)

// siteLedger is the operator's ledger as the commands use it: the running instance's, or the one in the state folder.
type siteLedger interface {
	Stop(e allowlist.Entry) (allowlist.Entry, error)
	Slow(e allowlist.Entry) (allowlist.Entry, error)
	// Resume gives the removed entry, or nil; allowlist.ErrStillCovered when one of a host above still holds.
	Resume(host string) (*allowlist.Entry, error)
	List() ([]allowlist.Entry, error)
	Close() error
}

// sitesFlags are what the sites commands share.
type sitesFlags struct {
	open   func(ctx context.Context, a *app) (siteLedger, error)
	asJSON bool
}

// newSitesCmd is `crawlgate sites`.
func newSitesCmd(a *app) *cobra.Command { return sitesCmd(a, openSiteLedger) }

func sitesCmd(a *app, open func(ctx context.Context, a *app) (siteLedger, error)) *cobra.Command {
	f := &sitesFlags{open: open}
	cmd := &cobra.Command{
		Use:   "sites",
		Short: "stop, slow and resume sites: the ledger of site owners' wishes",
		Long: `The operator's ledger: what owners of web sites asked for. An entry is in force
at once, for every client, before DNS, robots.txt and the turn, and it survives
restarts. It holds for the host as written; --subdomains for those below too.
While an instance runs, the command asks it; else it opens the state folder.`,
		Example: "  crawlgate sites stop example.com --subdomains --reason \"owner's mail of 3 May\"\n  crawlgate sites list",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.AddCommand(newSitesStopCmd(a, f), newSitesSlowCmd(a, f), newSitesResumeCmd(a, f), newSitesListCmd(a, f))
	return cmd
}

// wishFlags are those of an entry.
type wishFlags struct {
	subdomains  bool
	reason, who string
}

func (w *wishFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.subdomains, "subdomains", false, "also for the hosts below HOST")
	cmd.Flags().StringVar(&w.reason, "reason", "", "why, for `why` and for whoever reads the ledger later")
	cmd.Flags().StringVar(&w.who, "who", "", "who enters it (default: the user of this machine)")
}

func (w *wishFlags) entry(host string) (allowlist.Entry, error) {
	h, err := allowlist.LedgerHost(host)
	if err != nil {
		return allowlist.Entry{}, usage("%w", err)
	}
	who := w.who
	if who == "" {
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
	}
	return allowlist.Entry{Host: h, Subdomains: w.subdomains, Reason: w.reason, Who: who}, nil
}

func newSitesStopCmd(a *app, f *sitesFlags) *cobra.Command {
	w := &wishFlags{}
	cmd := &cobra.Command{
		Use:   "stop HOST",
		Short: "send nothing to a host until it is resumed",
		Long: `Every request to HOST is refused with site-stopped from now on; nothing is
resolved, fetched or asked. Entering it again replaces the entry.`,
		Example: "  crawlgate sites stop example.com --reason \"removal request\"\n  crawlgate sites stop example.com --subdomains",
		Args:    oneArg("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := w.entry(args[0])
			if err != nil {
				return err
			}
			return f.write(cmd.Context(), a, func(l siteLedger) (allowlist.Entry, error) { return l.Stop(e) })
		},
	}
	w.add(cmd)
	return cmd
}

func newSitesSlowCmd(a *app, f *sitesFlags) *cobra.Command {
	w := &wishFlags{}
	var gap string
	cmd := &cobra.Command{
		Use:     "slow HOST --gap DURATION",
		Short:   "keep at least a gap between two requests to a host",
		Long:    "The longer of the profile's gap, the site's own wishes and this one counts.",
		Example: "  crawlgate sites slow example.com --gap 30s\n  crawlgate sites slow example.com --gap 5m --subdomains --reason \"asked by mail\"",
		Args:    oneArg("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := w.entry(args[0])
			if err != nil {
				return err
			}
			if gap == "" {
				return usage("--gap is missing: how long to wait between two requests, such as --gap 30s")
			}
			if e.Gap, err = time.ParseDuration(gap); err != nil {
				if strings.Trim(gap, "0123456789.") == "" {
					return usage("--gap %s has no unit; write %ss", gap, gap)
				}
				return usage("--gap %q is not a duration such as 30s or 5m", gap)
			}
			if e.Gap <= 0 || e.Gap > allowlist.MaxGap {
				return usage("--gap %s is not above 0s and at most %s", gap, shortDuration(allowlist.MaxGap))
			}
			return f.write(cmd.Context(), a, func(l siteLedger) (allowlist.Entry, error) { return l.Slow(e) })
		},
	}
	cmd.Flags().StringVar(&gap, "gap", "", "least `DURATION` between the end of a request and the next")
	w.add(cmd)
	return cmd
}

func newSitesResumeCmd(a *app, f *sitesFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume HOST",
		Short: "remove a host's entry, and forget its back-off and gone pages",
		Long: `Removes the entry of HOST and ends what holds the host: back-off and the pause
after many refusals, and pages that answered 410 (on_410: final) are asked for
again. Its pace stays. Without an entry it does the latter only.
Exit status 1 when an entry of a host above, with --subdomains, still holds.`,
		Example: "  crawlgate sites resume example.com\n  crawlgate sites resume example.com --json",
		Args:    oneArg("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := allowlist.LedgerHost(args[0])
			if err != nil {
				return usage("%w", err)
			}
			l, err := f.open(cmd.Context(), a)
			if err != nil {
				return err
			}
			defer l.Close()
			removed, err := l.Resume(host)
			held := errors.Is(err, allowlist.ErrStillCovered)
			if err != nil && !held {
				return fail("%w", err)
			}
			if f.asJSON {
				out := struct {
					Host    string     `json:"host"`
					Removed *siteEntry `json:"removed"`
					Held    bool       `json:"still_held"`
				}{Host: host, Held: held}
				if removed != nil {
					s := siteEntryOf(*removed)
					out.Removed = &s
				}
				if err := json.NewEncoder(a.stdout).Encode(out); err != nil {
					return err
				}
			} else if removed != nil {
				fmt.Fprintf(a.stdout, "%s resumed (was: %s)\n", host, describe(*removed))
			} else {
				fmt.Fprintf(a.stdout, "%s had no entry; its back-off is forgotten\n", host)
			}
			if held {
				return fail("%w", err)
			}
			return nil
		},
	}
}

func newSitesListCmd(a *app, f *sitesFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "list [HOST]",
		Short:   "print the ledger, or what of it holds for a host",
		Example: "  crawlgate sites list\n  crawlgate sites list www.example.com --json",
		Args:    atMostOneArg("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			host := ""
			if len(args) > 0 {
				var err error
				if host, err = allowlist.LedgerHost(args[0]); err != nil {
					return usage("%w", err)
				}
			}
			l, err := f.open(cmd.Context(), a)
			if err != nil {
				return err
			}
			defer l.Close()
			entries, err := l.List()
			if err != nil {
				return fail("%w", err)
			}
			list := []siteEntry{}
			for _, e := range entries {
				if host == "" || e.Covers(host) {
					list = append(list, siteEntryOf(e))
				}
			}
			if f.asJSON {
				return json.NewEncoder(a.stdout).Encode(map[string][]siteEntry{"ledger": list})
			}
			if len(list) == 0 {
				if host != "" {
					fmt.Fprintf(a.stderr, "crawlgate: no entry holds for %s\n", host)
				} else {
					fmt.Fprintln(a.stderr, "crawlgate: the ledger is empty")
				}
				return nil
			}
			return printSites(a, list, time.Now())
		},
	}
}

// write makes an entry and prints it.
func (f *sitesFlags) write(ctx context.Context, a *app, do func(siteLedger) (allowlist.Entry, error)) error {
	l, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	defer l.Close()
	e, err := do(l)
	if err != nil {
		return fail("%w", err)
	}
	if f.asJSON {
		return json.NewEncoder(a.stdout).Encode(siteEntryOf(e))
	}
	_, err = fmt.Fprintln(a.stdout, describe(e))
	return err
}

// siteEntry is an entry as --json prints it; the keys are fixed.
type siteEntry struct {
	Host       string    `json:"host"`
	Action     string    `json:"action"` // stop or slow
	GapSeconds float64   `json:"gap_s"`  // of slow, else 0
	Subdomains bool      `json:"subdomains"`
	Reason     string    `json:"reason"`
	Who        string    `json:"who"`
	When       time.Time `json:"when"`
}

func siteEntryOf(e allowlist.Entry) siteEntry {
	return siteEntry{e.Host, e.Action, e.Gap.Seconds(), e.Subdomains, e.Reason, e.Who, e.When.UTC().Truncate(time.Second)}
}

// describe says what an entry does: example.com and the hosts below it: stopped.
func describe(e allowlist.Entry) string {
	s := e.Host
	if e.Subdomains {
		s += " and the hosts below it"
	}
	if e.Action == allowlist.ActionSlow {
		return fmt.Sprintf("%s: at least %s between requests", s, shortDuration(e.Gap))
	}
	return s + ": stopped"
}

func printSites(a *app, list []siteEntry, now time.Time) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tACTION\tGAP\tBELOW\tAGE\tWHO\tREASON")
	for _, e := range list {
		gap, below := "-", "no"
		if e.Action == allowlist.ActionSlow {
			gap = shortDuration(time.Duration(e.GapSeconds * float64(time.Second)))
		}
		if e.Subdomains {
			below = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Host, e.Action, gap, below, age(e.When, now), oneWord(e.Who), plain(e.Reason))
	}
	return w.Flush()
}

// age is a time for people, in one word: 5m, 3h, 12d.
func age(t, now time.Time) string {
	switch d := max(now.Sub(t), 0); {
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// shortDuration leaves out the zero parts: 24h, not 24h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// plain keeps a stored text from steering a terminal or breaking a column.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return ' '
		}
		return r
	}, s)
}

func oneWord(s string) string {
	if s = strings.Join(strings.Fields(plain(s)), "_"); s == "" {
		return "-"
	}
	return s
}
