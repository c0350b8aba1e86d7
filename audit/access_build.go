package audit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// report turns counts into a report and checks it.
func (a *auditor) report(c *accessCounts) (*AccessReport, error) {
	defer c.close()
	r := &AccessReport{
		Schema: AccessSchema, Inputs: []AccessInput{}, Crawlers: map[string]*AccessCrawler{},
		Categories: map[string]*AccessCategory{}, Robots: []AccessRobots{}, Settings: a.settings(), hours: c.hours.all, each: map[string]map[int64]*hourCounts{},
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
		r.each[def.Name] = k.hours.all
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
