package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"crawlgate/audit"
	"crawlgate/proxy/guard"

	"github.com/spf13/cobra"
)

// whyLedger says whether the operator's ledger holds a host (state `removed` or `slowed`, the reason given and since
// when). It is a variable for tests.
var whyLedger = askLedger

// whyOutcome is one past decision in the words of `why`.
type whyOutcome struct {
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Class    string    `json:"class,omitempty"`
	Status   int       `json:"status,omitempty"`
	Time     time.Time `json:"time"`
	Client   string    `json:"client,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	Method   string    `json:"method,omitempty"`
	Rule     string    `json:"rule,omitempty"`
	Line     int       `json:"line,omitempty"`
	Group    string    `json:"group,omitempty"`
	Location string    `json:"location,omitempty"`
	Indexing string    `json:"indexing,omitempty"`
	RetryS   int64     `json:"retry_after_s,omitempty"`
	// Revalidation says what the store of answers had to do with it.
	Revalidation string `json:"revalidation,omitempty"`
	ID           string `json:"request_id"`
	Seq          uint64 `json:"seq"`
}

// whyAnswer is what `why` says of one URL.
type whyAnswer struct {
	URL      string       `json:"url"`
	State    string       `json:"state"`
	Text     string       `json:"text"`
	Ledger   *whyEntry    `json:"ledger,omitempty"`
	Outcomes []whyOutcome `json:"outcomes"` // newest first
	Host     *whyOutcome  `json:"host_last,omitempty"`
}

type whyEntry struct {
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// States of `why`: the closed list in its JSON.
const (
	whyAnswered = "answered"    // the site answered with a page (or 304)
	whyRefused  = "refused"     // a rule said no
	whyGone     = "gone"        // 404, 410
	whyMoved    = "moved"       // a redirect
	whyRemoved  = "removed"     // the operator stopped the host at its owner's wish
	whyBacked   = "backed-off"  // the host or the queue asked to wait
	whyBlocked  = "blocked"     // the site said 401, 403, 407, 451
	whyPaywall  = "paywalled"   // 402
	whyFailed   = "failed"      // no answer, or a server error
	whyLeft     = "cancelled"   // the client left
	whyNever    = "never-asked" // nothing in the log
)

// classGone stands beside url-left where the page is gone for good.
const classGone = "gone"

func newWhyCmd(a *app) *cobra.Command {
	var place logPlace
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why URL...",
		Short: "say what did happen to a URL, and why",
		Long: `Reads the ledger and the audit log and prints the last decisions about each URL, newest first: answered, refused with the
rule, gone, moved, removed, backed off, or never asked. Sends nothing. (What would happen now: crawlgate check.)`,
		Example: "  crawlgate why https://example.com/private/a.html\n  crawlgate why --json --limit 1 https://example.com/a https://example.com/b",
		Args:    someArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("--limit %d: at least 1", limit)
			}
			files, err := place.files(a)
			if err != nil {
				printError(a.stderr, err) // the ledger alone has something to say
			}
			red, err := audit.OpenRedactor(audit.Defaults(), place.stateDir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail("why: %v", err)
			}
			for i, arg := range args {
				w, err := why(cmd, a, files, red, arg, limit)
				if err != nil {
					return err
				}
				if asJSON {
					err = json.NewEncoder(a.stdout).Encode(w)
				} else {
					if i > 0 {
						fmt.Fprintln(a.stdout)
					}
					err = printWhy(a.stdout, w, time.Now())
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	place.flags(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "n", 5, "at most `N` decisions for each URL")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each URL")
	return cmd
}

func why(cmd *cobra.Command, a *app, files []string, red *audit.Redactor, arg string, limit int) (*whyAnswer, error) {
	u, err := audit.Normalise(arg)
	if err != nil {
		return nil, usage("%v", err)
	}
	// A name in letters beyond ASCII stands in the log as it goes over the wire.
	if host := hostOf(u.Host); !isASCII(host) {
		h, err := guard.ConfigHost(host)
		if err != nil {
			return nil, usage("%q: %v", arg, err)
		}
		u.Host = h.Name + strings.TrimPrefix(u.Host, host)
	}
	q := audit.Query{Types: []string{audit.TypeRequest, audit.TypeRobots}, Limit: limit}
	text, hash := audit.MaskURL(u), ""
	if red != nil {
		_, hash = red.URL(u)
	}
	q.URL, q.URLHash = text.String(), hash
	if hash != "" {
		q.URL = "" // by hash alone: a masked text stands for many URLs
	}
	recs, err := audit.Last(cmd.Context(), files, q, nil)
	if err != nil {
		return nil, fail("read the audit log: %v", err)
	}
	w := &whyAnswer{URL: text.String(), State: whyNever, Text: "never asked for", Outcomes: []whyOutcome{}}
	for i := len(recs) - 1; i >= 0; i-- {
		w.Outcomes = append(w.Outcomes, outcomeOf(recs[i].Event))
	}
	if len(w.Outcomes) > 0 {
		w.State, w.Text = w.Outcomes[0].State, whyText(w.Outcomes[0])
	} else {
		recs, err := audit.Last(cmd.Context(), files, audit.Query{Types: q.Types, Host: hostOf(u.Host), Limit: 1}, nil)
		if err != nil {
			return nil, fail("read the audit log: %v", err)
		}
		if len(recs) > 0 {
			o := outcomeOf(recs[0].Event)
			w.Host = &o
		}
	}
	if whyLedger != nil {
		state, reason, since, err := whyLedger(cmd, a, hostOf(u.Host))
		if err != nil {
			return nil, err
		}
		if state != "" {
			w.Ledger = &whyEntry{state, reason, since}
			if state == whyRemoved {
				w.State, w.Text = whyRemoved, "removed at the site owner's wish"
			}
		}
	}
	return w, nil
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 0x7e }) < 0
}

func hostOf(hostport string) string {
	if i := strings.LastIndexByte(hostport, ':'); i > strings.LastIndexByte(hostport, ']') {
		return hostport[:i]
	}
	return hostport
}

func outcomeOf(e *audit.Event) whyOutcome {
	o := whyOutcome{
		Reason: e.Reason, Class: e.Class, Status: e.Status, Time: e.Time, Client: e.Client.Name, Agent: e.Agent, Method: e.Method,
		Rule: e.Rule.Text, Line: e.Rule.Line, Group: e.Rule.Group, Location: e.Location.String(), Indexing: e.Indexing,
		RetryS: e.RetryAfterS, ID: e.ID, Seq: e.Seq,
	}
	switch e.Decision {
	case audit.Cancelled:
		o.State = whyLeft
	case audit.Failed:
		o.State = whyFailed
	case audit.Refused:
		switch e.Reason {
		case "site-stopped":
			o.State = whyRemoved
		case "url-left":
			if o.State = whyBacked; e.Class == classGone {
				o.State = whyGone
			}
		case "turn-too-far", "host-backoff", "host-stopped", "overloaded":
			o.State = whyBacked
		default:
			o.State = whyRefused
		}
	default:
		o.Revalidation = e.Revalidation
		switch s := e.Status; {
		case s == 404 || s == 410:
			o.State = whyGone
		case s == 429 || s == 503:
			o.State = whyBacked
		case s == 402:
			o.State = whyPaywall
		case s == 401 || s == 403 || s == 407 || s == 451:
			o.State = whyBlocked
		case s >= 300 && s < 400 && s != 304:
			o.State = whyMoved
		case s >= 500:
			o.State = whyFailed
		default:
			o.State = whyAnswered
		}
	}
	return o
}

// whyText explains an outcome in one line.
func whyText(o whyOutcome) string {
	p := audit.Printable
	switch o.State {
	case whyAnswered:
		if o.Revalidation == audit.Spared {
			return "not changed, by the site's sitemap: the kept page was given, the site was not asked"
		}
		if o.Indexing != "" {
			return fmt.Sprintf("the site answered %d, and asks for %s", o.Status, p(o.Indexing, 100))
		}
		return fmt.Sprintf("the site answered %d", o.Status)
	case whyGone:
		if o.Class == classGone && o.Reason == "url-left" {
			return "the site has said 410, gone for good, so it was not asked again (url-left)"
		}
		if o.Status == 410 {
			return "the site says 410: gone for good"
		}
		return "the site says 404: not found"
	case whyMoved:
		// 301 and 308 replace the address, 302 and 307 leave it the one to ask for.
		if o.Status == 301 || o.Status == 308 {
			return fmt.Sprintf("moved for good (%d) to %s", o.Status, p(o.Location, 300))
		}
		return fmt.Sprintf("redirected (%d) to %s; this address stays the one to ask for", o.Status, p(o.Location, 300))
	case whyBlocked:
		return fmt.Sprintf("the site refused it: %d", o.Status)
	case whyPaywall:
		return "the site wants payment: 402"
	case whyBacked:
		text := o.Reason
		if o.Status != 0 {
			text = fmt.Sprintf("the site answered %d", o.Status)
		}
		if o.RetryS > 0 {
			text += fmt.Sprintf(", come back after %s", time.Duration(o.RetryS)*time.Second)
		}
		return p(text, 200)
	case whyRemoved:
		return "removed at the site owner's wish (site-stopped)"
	case whyLeft:
		return "the client left before it was sent"
	case whyFailed:
		if o.Status != 0 {
			return fmt.Sprintf("the site answered %d", o.Status)
		}
	}
	text := o.Reason
	if o.Class != "" {
		text += " (" + o.Class + ")"
	}
	if o.Line > 0 {
		text += fmt.Sprintf(", robots.txt line %d: %s", o.Line, o.Rule)
		if o.Group != "" {
			text += " (group " + o.Group + ")"
		}
	}
	return p(text, 300)
}

func printWhy(w io.Writer, answer *whyAnswer, now time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", audit.Printable(answer.URL, 400))
	if l := answer.Ledger; l != nil {
		fmt.Fprintf(&b, "  %-11s since %s: %s\n", l.State, l.Since.UTC().Format(time.RFC3339), audit.Printable(l.Reason, 200))
	}
	for _, o := range answer.Outcomes {
		fmt.Fprintf(&b, "  %-11s %s, %s", o.State, whyText(o), audit.Age(o.Time, now))
		if o.Client != "" {
			fmt.Fprintf(&b, ", client %s", audit.Printable(o.Client, 64))
		}
		if o.ID != "" {
			fmt.Fprintf(&b, ", request %s", audit.Printable(o.ID, 40))
		}
		b.WriteByte('\n')
	}
	if len(answer.Outcomes) == 0 {
		fmt.Fprintf(&b, "  %-11s nothing in the log", whyNever)
		if o := answer.Host; o != nil {
			fmt.Fprintf(&b, "; the host's last: %s, %s", whyText(*o), audit.Age(o.Time, now))
		}
		b.WriteString(" (crawlgate check says what would happen now)\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
