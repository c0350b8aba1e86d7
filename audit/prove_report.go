package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxFindings is how many findings of each check are kept; all are counted.
const maxFindings = 100

// Proof is what [Prove] found: sent = proven + exempt + unprovable + violating.
type Proof struct {
	Schema string `json:"schema"`
	OK     bool   `json:"ok"` // no violation, and nothing unprovable
	Since  string `json:"since,omitempty"`
	Until  string `json:"until,omitempty"`
	Log    Report `json:"log"`

	Requests      int64            `json:"requests"` // of clients, in the time asked for
	RobotsFetches int64            `json:"robots_fetches"`
	Hosts         int64            `json:"hosts"`
	Clients       int64            `json:"clients"`
	Refused       map[string]int64 `json:"refused"` // by reason
	Denied        []ProofDenied    `json:"address_denied"`

	Sent       int64 `json:"sent"`
	Proven     int64 `json:"proven"`
	Exempt     int64 `json:"exempt"`
	Unprovable int64 `json:"unprovable"`
	Violating  int64 `json:"violating"`
	InFlight   int64 `json:"in_flight"` // intents of a gate that still runs

	ExemptProfiles []ProofExempt    `json:"exempt_profiles"`
	UnprovableBy   map[string]int64 `json:"unprovable_by"`
	Exceptions     int64            `json:"exceptions"` // sent to addresses that the configuration opens
	Signatures     map[string]int64 `json:"signatures"` // by sig.state
	Configurations []ProofConfig    `json:"configurations"`
	Operator       []ProofNote      `json:"operator"` // changes of the ledger: sites stopped, slowed, let in again

	Checks map[string]*ProofCheck `json:"checks"`
	Gaps   []ProofGap             `json:"gaps"` // by host, the closest to what was owed first
}

// ProofCheck is one check's account.
type ProofCheck struct {
	Checked    int64          `json:"checked"`
	Violations int64          `json:"violations"`
	Findings   []ProofFinding `json:"findings"` // the first 100
}

// ProofFinding is one violation.
type ProofFinding struct {
	Seq    uint64 `json:"seq"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	ID     string `json:"id,omitempty"`
	Host   string `json:"host,omitempty"`
	URL    string `json:"url,omitempty"`
	Reason string `json:"reason"` // a word
	Text   string `json:"text"`
}

// ProofDenied is a request that would have reached an address that is not public.
type ProofDenied struct {
	Time    string `json:"time"`
	ID      string `json:"id"`
	Client  string `json:"client"`
	URL     string `json:"url"`
	Address string `json:"address"`
	Class   string `json:"class"`
}

// ProofExempt counts what a profile's own configuration takes out of a check.
type ProofExempt struct {
	Profile string `json:"profile"`
	Rules   int64  `json:"rules"` // robots.mode: ignore
	Pace    int64  `json:"pace"`  // pacing.mode: none
}

// ProofConfig is one configuration in force; Known says that it was at hand.
type ProofConfig struct {
	SHA256 string `json:"sha256"`
	From   string `json:"from"`
	Until  string `json:"until"` // "": still
	Known  bool   `json:"known"`
	Sent   int64  `json:"sent"`
}

// ProofNote is something that the operator did.
type ProofNote struct {
	Time string `json:"time"`
	Note string `json:"note"`
}

// ProofGap is the smallest gap of a host before a request that owed one, in milliseconds.
type ProofGap struct {
	Host       string `json:"host"`
	Requests   int64  `json:"requests"`
	SmallestMS int64  `json:"smallest_ms"`
	OwedMS     int64  `json:"owed_ms"`
	Seq        uint64 `json:"seq"`
}

func newProof() *Proof {
	r := &Proof{Schema: ProofSchema, Refused: map[string]int64{}, Denied: []ProofDenied{}, ExemptProfiles: []ProofExempt{}, UnprovableBy: map[string]int64{},
		Signatures: map[string]int64{}, Configurations: []ProofConfig{}, Operator: []ProofNote{}, Checks: map[string]*ProofCheck{}, Gaps: []ProofGap{}}
	for _, name := range proofChecks {
		r.Checks[name] = &ProofCheck{Findings: []ProofFinding{}}
	}
	return r
}

// add counts a violation and keeps the first ones.
func (r *Proof) add(check string, f ProofFinding) {
	c := r.Checks[check]
	if c.Violations++; len(c.Findings) < maxFindings {
		c.Findings = append(c.Findings, f)
	}
}

// denied keeps the first refusals of addresses.
func (r *Proof) denied(e *Event) {
	if len(r.Denied) < maxFindings {
		r.Denied = append(r.Denied, ProofDenied{Time: wallTime(e.Time), ID: e.ID, Client: e.Client.Name, URL: Printable(e.URL.String(), 300), Address: e.Upstream.IP, Class: e.Class})
	}
}

// violations counts them over all checks.
func (r *Proof) violations() (n int64) {
	for _, c := range r.Checks {
		n += c.Violations
	}
	return n
}

// Passed tells whether nothing was violated and at most so many requests cannot be proven.
func (r *Proof) Passed(unprovable int64) bool {
	return r.violations() == 0 && r.Unprovable <= unprovable
}

// WriteJSON writes the proof as one JSON object.
func (r *Proof) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// wallTime writes a time as the log does.
func wallTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func compareText(a, b string) int { return strings.Compare(a, b) }

// WriteText writes the proof for people; findings bounds the lines for each check.
func (r *Proof) WriteText(w io.Writer, findings int, now time.Time) error {
	var b strings.Builder
	refused := int64(0)
	for _, n := range r.Refused {
		refused += n
	}
	share := ""
	if r.Requests > 0 {
		share = fmt.Sprintf(" (%.1f%%)", 100*float64(refused)/float64(r.Requests))
	}
	fmt.Fprintf(&b, "requests %s   hosts %s   clients %s   refused %s%s\n", Group(r.Requests), Group(r.Hosts), Group(r.Clients), Group(refused), share)
	r.writeRefused(&b)
	fmt.Fprintf(&b, "sent     %s = %s proven + %s exempt + %s unprovable + %s violating\n", Group(r.Sent), Group(r.Proven), Group(r.Exempt), Group(r.Unprovable), Group(r.Violating))
	for _, x := range r.ExemptProfiles {
		fmt.Fprintf(&b, "  exempt      profile %s: rules %s (robots.mode ignore), pace %s (pacing.mode none)\n", x.Profile, Group(x.Rules), Group(x.Pace))
	}
	for _, why := range sortedKeys(r.UnprovableBy) {
		fmt.Fprintf(&b, "  unprovable  %s %s\n", why, Group(r.UnprovableBy[why]))
	}
	for _, name := range proofChecks {
		r.writeCheck(&b, name, findings)
	}
	r.writeConfigs(&b)
	r.writeLog(&b, now)
	if r.violations() == 0 && r.Unprovable == 0 {
		b.WriteString("proven   every request that was sent kept the rules\n")
	} else {
		fmt.Fprintf(&b, "NOT proven   %s violations, %s requests that cannot be proven\n", Group(r.violations()), Group(r.Unprovable))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRefused lists refusals by reason, the most first, and each attempt on an address that is not public.
func (r *Proof) writeRefused(b *strings.Builder) {
	if len(r.Refused) == 0 {
		return
	}
	reasons := sortedKeys(r.Refused)
	slices.SortStableFunc(reasons, func(x, y string) int { return cmp.Compare(r.Refused[y], r.Refused[x]) })
	b.WriteString(" ")
	for _, reason := range reasons {
		fmt.Fprintf(b, " %s %s  ", reason, Group(r.Refused[reason]))
		if reason == "address-denied" {
			b.WriteString("(!)  ")
		}
	}
	b.WriteString("\n")
	if len(r.Denied) > 0 {
		b.WriteString("address-denied\n")
		for _, d := range r.Denied[:min(len(r.Denied), 10)] {
			fmt.Fprintf(b, "  %s  %s  %s -> %s (%s)   request %s\n", d.Time, Printable(d.Client, 40), d.URL, Printable(d.Address, 60), Printable(d.Class, 40), d.ID)
		}
	}
}

// writeCheck says how one check ended.
func (r *Proof) writeCheck(b *strings.Builder, name string, findings int) {
	c := r.Checks[name]
	switch name {
	case CheckChain:
		return // with the log
	case CheckPace:
		fmt.Fprintf(b, "pace     %s gaps below the promise in %s requests", Group(c.Violations), Group(c.Checked))
		if len(r.Gaps) > 0 {
			g := r.Gaps[0]
			fmt.Fprintf(b, "; closest %s of %s owed (%s)", ms(g.SmallestMS), ms(g.OwedMS), g.Host)
		}
		b.WriteString("\n")
	case CheckOne:
		fmt.Fprintf(b, "alone    %s overlaps in %s requests\n", Group(c.Violations), Group(c.Checked))
	case CheckAddress:
		fmt.Fprintf(b, "address  %s wrong addresses in %s requests", Group(c.Violations), Group(c.Checked))
		if r.Exceptions > 0 {
			fmt.Fprintf(b, "; %s by egress.allow_private", Group(r.Exceptions))
		}
		b.WriteString("\n")
	case CheckIdentity:
		fmt.Fprintf(b, "identity %s wrong in %s requests", Group(c.Violations), Group(c.Checked))
		for _, state := range sortedKeys(r.Signatures) {
			fmt.Fprintf(b, "   %s %s", Printable(state, 30), Group(r.Signatures[state]))
		}
		b.WriteString("\n")
	case CheckRules:
		fmt.Fprintf(b, "rules    %s broken in %s requests\n", Group(c.Violations), Group(c.Checked))
	case CheckComplete:
		fmt.Fprintf(b, "complete %s things missing", Group(c.Violations))
		if r.InFlight > 0 {
			fmt.Fprintf(b, "; %s under way", Group(r.InFlight))
		}
		b.WriteString("\n")
	}
	for i, f := range c.Findings {
		if i == findings {
			break
		}
		what := f.URL
		if what == "" {
			what = f.Host
		}
		fmt.Fprintf(b, "  %s line %d  %s  %s  (%s, seq %d", filepath.Base(f.File), f.Line, what, f.Text, f.Reason, f.Seq)
		if f.ID != "" {
			fmt.Fprintf(b, ", request %s", f.ID)
		}
		b.WriteString(")\n")
	}
	if more := c.Violations - int64(min(findings, len(c.Findings))); more > 0 {
		fmt.Fprintf(b, "  and %s more\n", Group(more))
	}
}

// writeConfigs lists the configurations in force.
func (r *Proof) writeConfigs(b *strings.Builder) {
	if len(r.Configurations) == 0 {
		return
	}
	fmt.Fprintf(b, "configs  %d in force: ", len(r.Configurations))
	for i, c := range r.Configurations {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%.8s", c.SHA256)
		if c.Until != "" {
			fmt.Fprintf(b, " until %s", c.Until)
		}
		if !c.Known {
			b.WriteString(" (not at hand)")
		}
	}
	b.WriteString("\n")
	for _, n := range r.Operator[max(0, len(r.Operator)-10):] {
		fmt.Fprintf(b, "operator %s  %s\n", n.Time, n.Note)
	}
}

// writeLog says what the log is.
func (r *Proof) writeLog(b *strings.Builder, now time.Time) {
	last := ""
	if at, err := time.Parse(time.RFC3339, r.Log.LastTime); err == nil {
		last = ", last event " + Age(at, now)
	}
	files := "files"
	if r.Log.Files == 1 {
		files = "file"
	}
	if f := r.Log.Broken; f != nil {
		fmt.Fprintf(b, "log      %d %s, chain BROKEN: %s\n", r.Log.Files, files, f)
		return
	}
	fmt.Fprintf(b, "log      %d %s, %s events, chain whole%s, head %s\n", r.Log.Files, files, Group(r.Log.Events), last, r.Log.Head)
}

func sortedKeys(m map[string]int64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
