package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/proxy"
	"crawlgate/sign"
)

func newCheckCmd(a *app) *cobra.Command {
	var id identityFlags
	var client, profile, at string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check URL...",
		Short: "what would happen to a URL now, and why",
		Long: `Walks the path of a request for each URL and stops before it is sent: every step's verdict, the rule and its line, and when
the turn would come. It sends at most a robots.txt fetch. Exit 0 when all are allowed, 3 when one is refused.`,
		Example: "  crawlgate check https://example.com/private/a.html\n  crawlgate check --profile site --at 2026-11-24T09:00:00Z https://example.com/",
		Args:    someArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var when time.Time
			if at != "" {
				t, err := time.Parse(time.RFC3339, at)
				if err != nil {
					return usage("--at %q is not a time like 2026-11-24T09:00:00Z", at)
				}
				when = t
			}
			return a.check(cmd.Context(), a.loader(id, nil), proxy.Question{Client: client, Profile: profile, At: when}, args, asJSON)
		},
	}
	id.register(cmd)
	cmd.Flags().StringVar(&client, "client", "", "judge as this client (default: the first)")
	cmd.Flags().StringVar(&profile, "profile", "", "judge by this profile (default: the client's first)")
	cmd.Flags().StringVar(&at, "at", "", "judge by the robots.txt that was in force at `TIME` (RFC 3339)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// bareHost matches a URL without its scheme. What names another scheme, or no host, is judged as it stands.
var bareHost = regexp.MustCompile(`^[^\s/?#:@\\*]+(:\d+)?([/?#]|$)`)

// explainer answers questions: the running instance's gate, or one opened for this command alone.
type explainer func(context.Context, proxy.Question) (*proxy.Explanation, error)

// openExplainer asks the instance that holds the state folder; without one it opens the state itself.
func (a *app) openExplainer(load loadFunc) (explainer, func(), error) {
	cfg, src, err := load()
	if err != nil {
		return nil, nil, err
	}
	if c, err := dialControl(cfg.StateDir); err == nil {
		return c.explain, func() {}, nil
	}
	if !hasFlag(a, "log-level") {
		a.logLevel = "warn" // the answer is what was asked for
	}
	log, err := a.logger()
	if err != nil {
		return nil, nil, err
	}
	i, err := openInstance(cfg, src, log)
	if err != nil {
		var held *heldError
		if errors.As(err, &held) {
			if c, derr := dialControl(cfg.StateDir); derr == nil {
				return c.explain, func() {}, nil
			}
		}
		return nil, nil, err
	}
	return i.gate.Explain, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = i.gate.Shutdown(ctx)
		i.close()
	}, nil
}

func (a *app) check(ctx context.Context, load loadFunc, q proxy.Question, urls []string, asJSON bool) error {
	explain, done, err := a.openExplainer(load)
	if err != nil {
		return err
	}
	defer done()
	refused := false
	for n, u := range urls {
		if bareHost.MatchString(u) {
			u = "https://" + u // as in a browser's address line
		}
		q.URL = u
		slow := time.AfterFunc(2*time.Second, func() { fmt.Fprintf(a.stderr, "crawlgate: still looking at %s (name, robots.txt)\n", u) })
		e, err := explain(ctx, q)
		slow.Stop()
		if err != nil {
			return usage("%w", err)
		}
		refused = refused || !e.Allowed
		if asJSON {
			if err := json.NewEncoder(a.stdout).Encode(e); err != nil {
				return fail("%w", err)
			}
			continue
		}
		if n > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprint(a.stdout, explanationText(e))
	}
	if refused {
		return &exitError{code: exitRefused}
	}
	return nil
}

// explanationText says an explanation to people.
func explanationText(e *proxy.Explanation) string {
	var b strings.Builder
	switch {
	case !e.Allowed:
		fmt.Fprintf(&b, "refused   %s", e.Reason)
		if e.Class != "" {
			fmt.Fprintf(&b, " (%s)", e.Class)
		}
		b.WriteByte('\n')
	case e.Turn != nil && e.Turn.InS >= 0.05:
		fmt.Fprintf(&b, "allowed   after %.1fs\n", e.Turn.InS)
	default:
		b.WriteString("allowed   now\n")
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, shown(fmt.Sprintf(format, args...)))
	}
	if e.Allowed && e.WouldDeny != "" {
		line("report", "enforce is false: it is sent, and recorded as refused by %s", e.WouldDeny)
	}
	if e.Detail != "" {
		line("why", "%s", e.Detail)
	}
	line("client", "%s, profile %s, agent %s", e.Client, e.Profile, e.Agent)
	if e.NoJob {
		line("job", "required: name one in the proxy user name, CLIENT+%s+JOB", e.Profile)
	}
	if e.Host != "" {
		entry := ""
		if e.Entry != "" {
			entry = ", " + e.Entry
		}
		line("target", "%s %s %d%s", e.Scheme, e.Host, e.Port, entry)
	}
	if e.Ledger != "" {
		line("ledger", "%s", e.Ledger)
	}
	if len(e.Addresses) > 0 {
		var parts []string
		for _, a := range e.Addresses {
			class := a.Class
			if e.Allowed && class != "public" {
				class += " (an exception of egress.allow_private)"
			}
			parts = append(parts, a.Address+" "+class)
		}
		line("address", "%s", strings.Join(parts, ", "))
	}
	if r := e.Robots; r != nil {
		robotsLines(line, e, r)
	}
	if t := e.Turn; t != nil {
		turnLines(line, e, t)
	}
	if e.Signature != "" {
		sig := "unsigned: " + e.Signature
		switch e.Signature {
		case sign.Signed:
			sig = "signed, key " + e.KeyID
		case sign.Disabled:
			sig = "unsigned: the agent has no signature_agent or no key"
		}
		line("identity", "%s, %s", e.UserAgent, sig)
	}
	_ = w.Flush()
	return b.String()
}

func robotsLines(line func(string, string, ...any), e *proxy.Explanation, r *proxy.ExplainedRobots) {
	switch {
	case r.Class == "not_consulted":
		line("robots", "not read for this profile")
		return
	case r.URL == "":
		line("robots", "%s", r.Class)
		return
	}
	state := r.Class
	if r.Status > 0 {
		state = fmt.Sprint(r.Status)
	}
	if !r.FetchedAt.IsZero() {
		state += ", read " + ago(e.At.Sub(r.FetchedAt))
	}
	if !r.Expires.IsZero() {
		state += ", kept until " + moment(e.At, r.Expires)
	}
	if r.Stale {
		state += ", stale: the last refresh failed (robots.stale_on_error: keep)"
	}
	line("robots", "%s  %s", r.URL, state)
	at := ""
	if r.GroupLine > 0 {
		at = fmt.Sprintf("   line %d", r.GroupLine)
	}
	switch {
	case r.Group == "*":
		line("group", "User-agent: *%s   (no group names %s)", at, e.Token)
	case r.Group != "":
		line("group", "User-agent: %s%s   (own group: rules for * do not apply)", r.Group, at)
	case r.Class == "no_group" && r.Mode == "named":
		line("group", "none names %s, and no other counts", e.Token)
	case r.Class == "no_group":
		line("group", "none names %s, and there is none for *", e.Token)
	}
	choice := ""
	if r.Choice != "" {
		choice = ", " + r.Choice
	}
	if r.Rule != "" {
		octets := ""
		if r.Octets > 0 && strings.HasPrefix(r.Class, "rule_") {
			octets = fmt.Sprintf("   longest match, %s", count(r.Octets, "octet"))
		}
		line("rule", "%s   line %d%s", r.Rule, r.Line, octets)
	} else if r.Signal == "" {
		line("rule", "none decides (%s%s)", r.Class, choice)
	}
	switch {
	case r.Signal != "" && r.SignalLine > 0:
		line("signal", "%s   line %d", r.Signal, r.SignalLine)
	case r.Signal != "":
		line("signal", "%s   in the last answer for this URL%s", r.Signal, choice)
	case len(r.Signals) > 0:
		var says []string
		for _, k := range slices.Sorted(maps.Keys(r.Signals)) {
			says = append(says, k+"="+r.Signals[k])
		}
		none := ""
		if e.Allowed {
			none = "   none of them stops this agent (its purposes, robots.stop_on)"
		}
		line("signals", "%s%s", strings.Join(says, ", "), none)
	}
	if r.Truncated {
		line("note", "the file is longer than 500 KiB; its end was not read")
	}
	for _, n := range r.Notes {
		line("note", "%s", n)
	}
}

func turnLines(line func(string, string, ...any), e *proxy.Explanation, t *proxy.ExplainedTurn) {
	if t.Source == "pacing.mode: none" {
		line("pace", "none for this profile")
		return
	}
	pace := fmt.Sprintf("one request per %s", seconds(t.GapS))
	if r := e.Robots; r != nil && r.DelayS > 0 {
		where := ""
		if r.DelayLine > 0 {
			where = fmt.Sprintf(", line %d", r.DelayLine)
		}
		pace += fmt.Sprintf(": %s: %s%s (our own minimum is %s)", r.DelaySource, seconds(r.DelayS), where, seconds(t.OwnGapS))
	} else if t.Source != "" {
		pace += " (" + t.Source + ")"
	}
	if t.Level > 0 {
		pace += fmt.Sprintf(", slowed %d times after the host asked for less", t.Level)
	}
	line("pace", "%s", pace)
	if t.Waiting > 0 || t.InS >= 0.05 {
		line("queue", "%d ahead, next turn %s", t.Waiting, t.At.Local().Format("15:04:05"))
	}
	if !t.Hold.IsZero() {
		line("hold", "the host asked us to stay away until %s", t.Hold.Local().Format("15:04:05"))
	}
	if t.Breaker != "" && t.Breaker != "closed" {
		line("breaker", "%s", t.Breaker)
	}
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// moment is a time of day, with its date when that is another one.
func moment(now, at time.Time) string {
	now, at = now.Local(), at.Local()
	if now.YearDay() == at.YearDay() && now.Year() == at.Year() {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04")
}

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	}
	return fmt.Sprintf("%dh ago", int(d.Hours()))
}
