package audit

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
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

	hours map[int64]*hourCounts            // since 1970
	each  map[string]map[int64]*hourCounts // of each crawler
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
