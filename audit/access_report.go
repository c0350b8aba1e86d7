package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// AccessSchema names the form of a report.
const AccessSchema = "crawlgate.audit.report/1"

// AccessReport is what an audit found. Its JSON is the report: integers only, and the same bytes for the
// same inputs.
type AccessReport struct {
	Schema     string                     `json:"schema"`
	Inputs     []AccessInput              `json:"inputs"`
	Totals     AccessTotals               `json:"totals"`
	Malformed  AccessMalformed            `json:"malformed"`
	Crawlers   map[string]*AccessCrawler  `json:"crawlers"`
	Categories map[string]*AccessCategory `json:"categories"`
	Robots     []AccessRobots             `json:"robots"`
	SelfCheck  AccessSelfCheck            `json:"selfcheck"`
	Settings   AccessSettings             `json:"settings"`

	// Problems say why the command fails although there is a report: inputs cut short, a self-check that failed.
	Problems []string `json:"-"`

	hours map[int64]*hourCounts
}

// AccessInput is one log.
type AccessInput struct {
	Path        string `json:"path"`
	Compression string `json:"compression"`
	Format      string `json:"format"`
	Lines       int64  `json:"lines"`
	Requests    int64  `json:"requests"`
	Malformed   int64  `json:"malformed"`
	Skipped     string `json:"skipped"`
	Error       string `json:"error,omitempty"`
}

// AccessTotals are sums over all inputs.
type AccessTotals struct {
	Lines        int64 `json:"lines"`
	Blank        int64 `json:"blank"`
	Comments     int64 `json:"comments"`
	Malformed    int64 `json:"malformed"`
	Filtered     int64 `json:"filtered"`
	Duplicates   int64 `json:"duplicates"`
	Requests     int64 `json:"requests"`
	NotCrawler   int64 `json:"not_crawler"`
	Claims       int64 `json:"claims"`
	Genuine      int64 `json:"genuine"`
	Verified     int64 `json:"verified"`
	Unverified   int64 `json:"unverified"`
	Impersonated int64 `json:"impersonated"`
	Allowed      int64 `json:"allowed"`
	Disallowed   int64 `json:"disallowed"`
	Unjudged     int64 `json:"unjudged"`
}

// AccessMalformed counts lines that could not be read, by the first part that failed.
type AccessMalformed struct {
	Structure int64 `json:"structure"`
	Address   int64 `json:"address"`
	Time      int64 `json:"time"`
	Request   int64 `json:"request"`
	Status    int64 `json:"status"`
	JSON      int64 `json:"json"`
	Format    int64 `json:"format"`
}

// AccessCrawler is one crawler's account.
type AccessCrawler struct {
	Operator              string              `json:"operator"`
	Category              string              `json:"category"`
	Total                 int64               `json:"total"`
	Genuine               int64               `json:"genuine"`
	Verified              int64               `json:"verified"`
	Unverified            int64               `json:"unverified"`
	Impersonated          int64               `json:"impersonated"`
	Allowed               int64               `json:"allowed"`
	Disallowed            int64               `json:"disallowed"`
	Unjudged              int64               `json:"unjudged"`
	Grace                 int64               `json:"grace"`
	RobotsFetches         int64               `json:"robots_fetches"`
	First                 string              `json:"first"`
	Last                  string              `json:"last"`
	Status                AccessStatus        `json:"status"`
	NonProductive         AccessNonProductive `json:"non_productive"`
	Indexing              AccessIndexing      `json:"indexing"`
	CrawlDelay            *AccessDelay        `json:"crawl_delay,omitempty"`
	Violations            []AccessViolation   `json:"violations"`
	Impersonators         []AccessAddress     `json:"impersonators"`
	ImpersonatorAddresses int64               `json:"impersonator_addresses"`
}

// AccessStatus counts genuine requests by the class of the answer.
type AccessStatus struct {
	C1   int64 `json:"1xx"`
	C2   int64 `json:"2xx"`
	C3   int64 `json:"3xx"`
	C4   int64 `json:"4xx"`
	C5   int64 `json:"5xx"`
	None int64 `json:"none"`
}

// AccessNonProductive counts genuine requests that fetched nothing worth having; one request may count under several
// names, and once in Total. ShareBP is in hundredths of a percent of the genuine ones.
type AccessNonProductive struct {
	Disallowed   int64 `json:"disallowed"`
	NotInSitemap int64 `json:"not_in_sitemap"`
	Parameter    int64 `json:"parameter"`
	Duplicate    int64 `json:"duplicate"`
	Redirect     int64 `json:"redirect"`
	ClientError  int64 `json:"client_error"`
	ServerError  int64 `json:"server_error"`
	Total        int64 `json:"total"`
	ShareBP      int64 `json:"share_bp"`
}

// AccessIndexing counts answers that carried X-Robots-Tag.
type AccessIndexing struct {
	Noindex  int64 `json:"noindex"`
	Nofollow int64 `json:"nofollow"`
}

// AccessDelay counts gaps shorter than Crawl-delay. MinGapMS is -1 when none was checked.
type AccessDelay struct {
	Checked    int64 `json:"checked"`
	Violations int64 `json:"violations"`
	MinGapMS   int64 `json:"min_gap_ms"`
}

// AccessViolation is one rule that was broken.
type AccessViolation struct {
	Host     string   `json:"host"`
	Version  string   `json:"version"`
	SHA256   string   `json:"sha256"`
	Line     int      `json:"line"`
	Rule     string   `json:"rule"`
	Reason   string   `json:"reason"` // rule, robots_unreachable
	Requests int64    `json:"requests"`
	First    string   `json:"first"`
	Last     string   `json:"last"`
	Examples []string `json:"examples"`
}

// AccessAddress is one impersonator.
type AccessAddress struct {
	Address  string `json:"address"`
	Requests int64  `json:"requests"`
}

// AccessCategory sums the crawlers of one purpose.
type AccessCategory struct {
	Crawlers      int64 `json:"crawlers"`
	Total         int64 `json:"total"`
	Genuine       int64 `json:"genuine"`
	Impersonated  int64 `json:"impersonated"`
	Allowed       int64 `json:"allowed"`
	Disallowed    int64 `json:"disallowed"`
	Unjudged      int64 `json:"unjudged"`
	NonProductive int64 `json:"non_productive"`
}

// AccessRobots is one version of a robots.txt. Host "" stands for every host, Effective "" for all time.
type AccessRobots struct {
	Host       string `json:"host"`
	Effective  string `json:"effective"`
	Status     int    `json:"status"`
	SHA256     string `json:"sha256"`
	Judged     int64  `json:"judged"`
	Disallowed int64  `json:"disallowed"`
}

// AccessSettings are the options that the report was made with.
type AccessSettings struct {
	Robots             []string `json:"robots"`
	Crawlers           []string `json:"crawlers"`
	Ranges             string   `json:"ranges"`
	TrustedProxies     []string `json:"trusted_proxies"`
	DNS                string   `json:"dns"`
	DNSCache           string   `json:"dns_cache"`
	Sitemaps           []string `json:"sitemaps"`
	Host               string   `json:"host"`
	LogFormat          string   `json:"log_format"`
	Since              string   `json:"since"`
	Until              string   `json:"until"`
	GraceMS            int64    `json:"grace_ms"`
	Delay              bool     `json:"delay"`
	DelayToleranceMS   int64    `json:"delay_tolerance_ms"`
	Dedupe             string   `json:"dedupe"`
	NoVersion          string   `json:"no_version"`
	Unverified         string   `json:"unverified"`
	UnreachableLimitMS int64    `json:"unreachable_limit_ms"`
	As                 string   `json:"as"`
	Top                int      `json:"top"`
}

// WriteJSON writes the report.
func (r *AccessReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Count gives the number that `--fail-on NAME` looks at: violations, impersonated, malformed, delay.
func (r *AccessReport) Count(name string) (n int64, ok bool) {
	switch name {
	case "violations":
		return r.Totals.Disallowed, true
	case "impersonated":
		return r.Totals.Impersonated, true
	case "malformed":
		return r.Totals.Malformed, true
	case "delay":
		for _, c := range r.Crawlers {
			if c.CrawlDelay != nil {
				n += c.CrawlDelay.Violations
			}
		}
		return n, true
	}
	return 0, false
}

// names are the crawlers by category in the order of reports, then by name.
func (r *AccessReport) names() []string {
	var out []string
	for n := range r.Crawlers {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b string) int {
		x, y := r.Crawlers[a], r.Crawlers[b]
		return cmp.Or(cmp.Compare(slices.Index(categories, x.Category), slices.Index(categories, y.Category)), cmp.Compare(a, b))
	})
	return out
}

// report turns counts into a report and checks it.
func (a *auditor) report(c *accessCounts) (*AccessReport, error) {
	defer c.close()
	r := &AccessReport{
		Schema: AccessSchema, Inputs: []AccessInput{}, Crawlers: map[string]*AccessCrawler{},
		Categories: map[string]*AccessCategory{}, Robots: []AccessRobots{}, Settings: a.settings(), hours: c.hours,
	}
	t := &r.Totals
	for i, in := range a.inputs {
		n := &c.inputs[i]
		x := AccessInput{Path: shown(in.path), Compression: in.compression, Format: in.format.String(), Lines: n.lines, Requests: n.requests,
			Malformed: n.malformed, Skipped: shown(in.skipped)}
		if in.err != nil {
			x.Error = shown(in.err.Error())
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %s", x.Path, x.Error))
		}
		r.Inputs = append(r.Inputs, x)
		t.Lines += n.lines
		t.Blank += n.blank
		t.Comments += n.comments
		t.Malformed += n.malformed
		t.Filtered += n.filtered
		t.Duplicates += n.duplicates
		t.Requests += n.requests
	}
	m := &c.malformed
	r.Malformed = AccessMalformed{m[badStructure], m[badAddress], m[badTime], m[badRequest], m[badStatus], m[badJSON], m[badFormat]}
	t.NotCrawler = c.notCrawler
	for i, k := range c.crawlers {
		if k == nil {
			continue
		}
		def := a.crawlers.all[i]
		x := a.crawlerReport(def, k)
		r.Crawlers[def.Name] = x
		cat := r.Categories[def.Category]
		if cat == nil {
			cat = &AccessCategory{}
			r.Categories[def.Category] = cat
		}
		cat.add(x)
		t.Claims += x.Total
		t.Genuine += x.Genuine
		t.Verified += x.Verified
		t.Unverified += x.Unverified
		t.Impersonated += x.Impersonated
		t.Allowed += x.Allowed
		t.Disallowed += x.Disallowed
		t.Unjudged += x.Unjudged
		if len(def.missing) > 0 {
			a.o.Warn(fmt.Sprintf("no range file %s: requests that say %s can not be checked by address", strings.Join(def.missing, ", "), def.Name))
		}
	}
	for i, v := range a.robots.all {
		n := &c.versions[i]
		r.Robots = append(r.Robots, AccessRobots{shown(v.host), stampOf(v.effective), v.status, v.sha256, n.judged, n.disallowed})
	}
	if err := a.delays(r, c); err != nil {
		return nil, err
	}
	a.selfCheck(r, c)
	if err := a.dns.save(); err != nil {
		a.o.Warn("answers of the DNS could not be kept: " + err.Error())
	}
	if c.faults > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d lines could not be judged through a fault of crawlgate (%s): they count as malformed", c.faults, shown(c.fault)))
	}
	return r, nil
}

func (c *AccessCategory) add(x *AccessCrawler) {
	c.Crawlers++
	c.Total += x.Total
	c.Genuine += x.Genuine
	c.Impersonated += x.Impersonated
	c.Allowed += x.Allowed
	c.Disallowed += x.Disallowed
	c.Unjudged += x.Unjudged
	c.NonProductive += x.NonProductive.Total
}

func (a *auditor) crawlerReport(def *crawler, k *crawlerCounts) *AccessCrawler {
	np := &k.np
	x := &AccessCrawler{
		Operator: def.Operator, Category: def.Category, Total: k.total, Genuine: k.verified + k.unverified, Verified: k.verified,
		Unverified: k.unverified, Impersonated: k.impersonated, Allowed: k.allowed, Disallowed: k.disallowed, Unjudged: k.unjudged,
		Grace: k.grace, RobotsFetches: k.fetches, First: stampOf(k.first), Last: stampOf(k.last),
		Status: AccessStatus{k.status[1], k.status[2], k.status[3], k.status[4], k.status[5], k.status[0]},
		NonProductive: AccessNonProductive{np.disallowed, np.notInSitemap, np.parameter, np.duplicate, np.redirect, np.clientError,
			np.serverError, np.total, 0},
		Indexing: AccessIndexing{k.noindex, k.nofollow}, Violations: []AccessViolation{}, Impersonators: []AccessAddress{},
		ImpersonatorAddresses: int64(len(k.impersonators)),
	}
	if x.Genuine > 0 {
		x.NonProductive.ShareBP = (2*10_000*np.total + x.Genuine) / (2 * x.Genuine)
	}
	for key, v := range k.violations {
		version := a.robots.all[key.version]
		y := AccessViolation{Host: shown(key.host), Version: stampOf(version.effective), SHA256: version.sha256, Line: int(key.line), Rule: shown(v.rule),
			Reason: "rule", Requests: v.requests, First: stampOf(v.first), Last: stampOf(v.last), Examples: []string{}}
		if version.kind() == robotsUnreachable {
			y.Reason = "robots_unreachable"
		}
		for _, e := range v.examples {
			y.Examples = append(y.Examples, shown(e))
		}
		x.Violations = append(x.Violations, y)
	}
	slices.SortFunc(x.Violations, func(a, b AccessViolation) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Line, b.Line), cmp.Compare(a.SHA256, b.SHA256))
	})
	for addr, n := range k.impersonators {
		x.Impersonators = append(x.Impersonators, AccessAddress{addr.String(), n})
	}
	slices.SortFunc(x.Impersonators, func(a, b AccessAddress) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Address, b.Address))
	})
	if len(x.Impersonators) > a.o.Top {
		x.Impersonators = slices.Clone(x.Impersonators[:a.o.Top])
	}
	return x
}

// delays checks the gaps between one crawler's requests to one host.
func (a *auditor) delays(r *AccessReport, c *accessCounts) error {
	if c.delays == nil {
		return nil
	}
	if c.delays.err != nil {
		return fmt.Errorf("keep the times of requests: %w", c.delays.err)
	}
	for _, x := range r.Crawlers {
		x.CrawlDelay = &AccessDelay{MinGapMS: -1}
	}
	var errs []error
	for _, k := range c.delays.keys() {
		d := r.Crawlers[a.crawlers.all[k.crawler].Name].CrawlDelay
		vs := a.robots.of(k.host)
		before, first := int64(0), true
		errs = append(errs, c.delays.each(k, func(t int64) {
			gap := t - before
			before = t
			if first {
				first = false
				return
			}
			i := at(vs, t)
			if i < 0 || vs[i].kind() != robotsRules {
				return
			}
			owed := vs[i].group(a.crawlers, k.crawler).CrawlDelay()
			if owed <= 0 {
				return
			}
			d.Checked++
			if d.MinGapMS < 0 || gap < d.MinGapMS {
				d.MinGapMS = gap
			}
			if gap < owed.Milliseconds()-a.o.DelayTolerance.Milliseconds() {
				d.Violations++
			}
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("read the times of requests: %w", err)
	}
	return nil
}

func (a *auditor) settings() AccessSettings {
	o := a.o
	all := func(in []string) []string {
		out := []string{}
		for _, s := range in {
			out = append(out, shown(s))
		}
		return out
	}
	stamp := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return stampOf(t.UnixMilli())
	}
	s := AccessSettings{
		Robots: all(o.Robots), Crawlers: all(o.Crawlers), Ranges: shown(o.Ranges), TrustedProxies: []string{}, DNS: o.DNS, DNSCache: shown(o.DNSCache),
		Sitemaps: all(o.Sitemaps), Host: shown(a.host), LogFormat: cmp.Or(shown(o.LogFormat), "auto"), Since: stamp(o.Since), Until: stamp(o.Until),
		GraceMS: o.Grace.Milliseconds(), Delay: o.Delay, DelayToleranceMS: o.DelayTolerance.Milliseconds(), Dedupe: o.Dedupe,
		NoVersion: o.NoVersion, Unverified: o.Unverified, UnreachableLimitMS: o.UnreachableLimit.Milliseconds(), As: shown(o.As), Top: o.Top,
	}
	if len(s.Crawlers) == 0 {
		s.Crawlers = append(s.Crawlers, "built-in")
	}
	for _, p := range o.TrustedProxies {
		s.TrustedProxies = append(s.TrustedProxies, p.String())
	}
	return s
}

// stampOf writes a time of a report; the ends of time are "".
func stampOf(ms int64) string {
	if ms == minTime || ms == maxTime {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// shown is a logged text as a report has it: invalid UTF-8 as \xHH.
func shown(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
