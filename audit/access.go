package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strings"
	"time"
)

// Judge reads robots.txt bodies. The program fills it with the matcher that the gate itself obeys, so that a report and
// the gate never disagree about a rule.
type Judge interface {
	Parse(body []byte) RobotsFile
}

// RobotsFile is one parsed robots.txt. It is used by many goroutines at once.
type RobotsFile interface {
	// Group is what binds a crawler: the group of the first token that has one, else the `*` group, else no rule.
	Group(tokens []string) RobotsGroup
	// Sitemaps are the values of the Sitemap lines.
	Sitemaps() []string
}

// RobotsGroup is the part of a robots.txt that binds one crawler. It is used by many goroutines at once.
type RobotsGroup interface {
	// Match judges a request target: path and query as logged, not necessarily well formed.
	Match(target string) RobotsMatch
	// Token is the name of the group, "*", or "" for none. Line is its first User-agent line, 0 for none.
	Token() string
	Line() int
	// CrawlDelay is the largest numeric Crawl-delay, 0 for none.
	CrawlDelay() time.Duration
}

// RobotsMatch is what a group says about one target.
type RobotsMatch struct {
	Allowed bool
	Itself  bool   // the target is /robots.txt, which is always allowed
	Rule    string // the deciding line as written, "" for none
	Line    int    // 0 for none
}

// AccessOptions say what [Access] reads and how it judges. The zero value of a member is its default.
type AccessOptions struct {
	Logs  []string  // files, folders, patterns; "-" is Stdin
	Stdin io.Reader // read for "-"

	Judge          Judge // required
	Robots         []string
	Crawlers       []string // definition files; none: the built-in list
	Ranges         string
	TrustedProxies []netip.Prefix
	DNS            string // off, cache, live; "" is cache with a file, else off
	DNSCache       string
	Resolver       DNSResolver // for live; nil: the system's
	Sitemaps       []string
	Host           string
	LogFormat      string // auto, combined, common, vhost, w3c, json, squid, alb, crawlgate, or an nginx log_format
	Since, Until   time.Time

	Grace            time.Duration
	Delay            bool
	DelayTolerance   time.Duration
	Dedupe           string        // none, overlap, lines
	NoVersion        string        // unjudged, allowed
	Unverified       string        // genuine, impersonated
	UnreachableLimit time.Duration // 0: 30 days
	As               string
	Top              int // length of address lists; 0: 10

	Workers  int                  // 0: one for each core
	Progress func(AccessProgress) // called now and then from one goroutine; nil: never
	Warn     func(problem string) // called before the work begins and at its end; nil: never
	spill    int                  // times kept in memory with Delay; 0: delaySpill
}

// AccessProgress is how far the reading has come.
type AccessProgress struct {
	Input       string // being read
	Done, Total int64  // bytes of the files as they lie on disk; Total is 0 when unknown
	Lines       int64
}

// Access reads web servers' access logs and judges every request of every known crawler by the robots.txt that was in
// effect at its time. An error means that nothing could be judged (bad options, unreadable files or definitions); what
// went wrong later stands in [AccessReport.Problems].
func Access(ctx context.Context, o AccessOptions) (*AccessReport, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &auditor{o: &o}
	if err := a.prepare(ctx); err != nil {
		return nil, err
	}
	defer a.close()
	counts, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	return a.report(counts)
}

func (o *AccessOptions) complete() error {
	oneOf := func(name string, value *string, words ...string) error {
		if *value == "" {
			*value = words[0]
		}
		for _, w := range words {
			if *value == w {
				return nil
			}
		}
		return fmt.Errorf("%s %q is not one of %s", name, *value, strings.Join(words, ", "))
	}
	if o.DNS == "" {
		o.DNS = "off"
		if o.DNSCache != "" {
			o.DNS = "cache"
		}
	}
	if o.UnreachableLimit == 0 {
		o.UnreachableLimit = 30 * 24 * time.Hour
	}
	if o.Top == 0 {
		o.Top = 10
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if o.spill == 0 {
		o.spill = delaySpill
	}
	var errs []error
	errs = append(errs,
		oneOf("dns", &o.DNS, "off", "cache", "live"),
		oneOf("dedupe", &o.Dedupe, "none", "overlap", "lines"),
		oneOf("no-version", &o.NoVersion, "unjudged", "allowed"),
		oneOf("unverified", &o.Unverified, "genuine", "impersonated"))
	if o.Judge == nil {
		errs = append(errs, errors.New("no judge of robots.txt"))
	}
	if len(o.Logs) == 0 {
		errs = append(errs, errors.New("no log to read"))
	}
	if o.DNS == "cache" && o.DNSCache == "" {
		errs = append(errs, errors.New("dns cache needs a dns cache file"))
	}
	if o.Grace < 0 || o.DelayTolerance < 0 || o.UnreachableLimit < 0 || o.Top < 0 {
		errs = append(errs, errors.New("grace, delay tolerance, unreachable limit and top must not be negative"))
	}
	if !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until) {
		errs = append(errs, errors.New("since is not before until"))
	}
	if o.DNS == "live" {
		// A worker waits for its answers: so many are asked at once.
		o.Workers = max(o.Workers, dnsParallel)
		if o.Resolver == nil {
			o.Resolver = NetResolver{}
		}
	}
	return errors.Join(errs...)
}

// auditor holds what all workers read: nothing in it changes while they run, except behind its own locks.
type auditor struct {
	o        *AccessOptions
	inputs   []*accessInput
	format   *logFormat // nil: detected for each input
	crawlers *crawlerList
	trusted  prefixSet
	dns      *dnsBook
	robots   *robotsHistory
	sitemap  sitemapSet
	host     string // of requests that name none
	as       int32  // crawler of every request, or -1
	seen     *lineCounts
	since    int64
	until    int64
}

func (a *auditor) prepare(ctx context.Context) error {
	o := a.o
	var err error
	if a.format, err = parseLogFormat(o.LogFormat); err != nil {
		return err
	}
	if a.crawlers, err = loadCrawlers(o.Crawlers, o.Ranges); err != nil {
		return err
	}
	a.as = -1
	if o.As != "" {
		if a.as = a.crawlers.byName(o.As); a.as < 0 {
			return fmt.Errorf("as: no crawler is called %q", o.As)
		}
	}
	a.trusted = newPrefixSet(o.TrustedProxies)
	if a.dns, err = openDNSBook(o); err != nil {
		return err
	}
	if a.robots, err = loadRobots(o.Robots, o.Judge, len(a.crawlers.all), o.UnreachableLimit, o.Grace); err != nil {
		return err
	}
	if a.sitemap, err = loadSitemaps(o.Sitemaps); err != nil {
		return err
	}
	if a.sitemap != nil {
		a.sitemap.exempt(a.robots)
	}
	a.host = hostName(o.Host)
	if o.Host == "" {
		a.host = a.robots.onlyHost()
	}
	a.since, a.until = minTime, maxTime
	if !o.Since.IsZero() {
		a.since = o.Since.UnixMilli()
	}
	if !o.Until.IsZero() {
		a.until = o.Until.UnixMilli()
	}
	if o.Dedupe == "lines" {
		a.seen = newLineCounts()
	}
	if a.inputs, err = listInputs(o.Logs, o.Stdin); err != nil {
		return err
	}
	return a.compareInputs(ctx)
}

func (a *auditor) close() {
	for _, in := range a.inputs {
		in.forget()
	}
}

const (
	minTime = -1 << 62
	maxTime = 1<<62 - 1
)
