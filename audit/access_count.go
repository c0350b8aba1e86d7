package audit

import (
	"net/netip"
	"slices"
	"strings"
)

// accessCounts is all that one worker counted. Merging is commutative: the result does not depend on how the lines were
// spread over workers.
type accessCounts struct {
	inputs     []inputCounts
	malformed  [reasons]int64
	notCrawler int64
	faults     int64 // panics of ours
	fault      string
	crawlers   []*crawlerCounts // nil: no claim
	versions   []versionCounts
	hours      hourly
	delays     *delayTimes
}

type inputCounts struct {
	lines, blank, comments, malformed, filtered, duplicates, requests int64
}

// hourCounts are the outcomes of one hour, for the pictures.
type hourCounts struct {
	Allowed, Disallowed, Unjudged, Impersonated, Other int64
}

// total counts the claims.
func (h hourCounts) total() int64 { return h.Allowed + h.Disallowed + h.Unjudged + h.Impersonated }

func (h *hourCounts) add(o *hourCounts) {
	h.Allowed += o.Allowed
	h.Disallowed += o.Disallowed
	h.Unjudged += o.Unjudged
	h.Impersonated += o.Impersonated
	h.Other += o.Other
}

// hourly is hourCounts by hour since 1970. Logs are in order mostly, so that the hour of the request before is the one.
type hourly struct {
	all  map[int64]*hourCounts
	hour int64
	last *hourCounts
}

func (h *hourly) at(hour int64) *hourCounts {
	if h.last != nil && h.hour == hour {
		return h.last
	}
	n := h.all[hour]
	if n == nil {
		n = &hourCounts{}
		h.all[hour] = n
	}
	h.hour, h.last = hour, n
	return n
}

func (h *hourly) merge(o *hourly) {
	for hour, n := range o.all {
		h.at(hour).add(n)
	}
}

type crawlerCounts struct {
	total, verified, unverified, impersonated int64
	allowed, disallowed, unjudged, grace      int64
	fetches                                   int64
	first, last                               int64
	status                                    [6]int64 // none, 1xx .. 5xx
	np                                        nonProductive
	noindex, nofollow                         int64
	impersonators                             map[netip.Addr]int64
	violations                                map[violationKey]*violationCounts
	hours                                     hourly
}

type nonProductive struct {
	disallowed, notInSitemap, parameter, duplicate, redirect, clientError, serverError, total int64
}

type violationKey struct {
	version, line int32
	host          string
}

type violationCounts struct {
	rule        string
	requests    int64
	first, last int64
	examples    []string // the three smallest
}

type versionCounts struct {
	judged, disallowed int64
	first, last        int64
}

func newAccessCounts(a *auditor) *accessCounts {
	c := &accessCounts{
		inputs: make([]inputCounts, len(a.inputs)), crawlers: make([]*crawlerCounts, len(a.crawlers.all)),
		versions: make([]versionCounts, len(a.robots.all)), hours: hourly{all: map[int64]*hourCounts{}},
	}
	for i := range c.versions {
		c.versions[i].first, c.versions[i].last = maxTime, minTime
	}
	if a.o.Delay {
		c.delays = newDelayTimes(a.o.spill / a.o.Workers)
	}
	return c
}

func (c *accessCounts) crawler(i int32) *crawlerCounts {
	if c.crawlers[i] == nil {
		c.crawlers[i] = &crawlerCounts{first: maxTime, last: minTime, impersonators: map[netip.Addr]int64{}, violations: map[violationKey]*violationCounts{},
			hours: hourly{all: map[int64]*hourCounts{}}}
	}
	return c.crawlers[i]
}

func (c *accessCounts) merge(o *accessCounts) {
	for i := range o.inputs {
		a, b := &c.inputs[i], &o.inputs[i]
		a.lines += b.lines
		a.blank += b.blank
		a.comments += b.comments
		a.malformed += b.malformed
		a.filtered += b.filtered
		a.duplicates += b.duplicates
		a.requests += b.requests
	}
	for i := range o.malformed {
		c.malformed[i] += o.malformed[i]
	}
	c.notCrawler += o.notCrawler
	c.faults += o.faults
	if o.fault != "" && (c.fault == "" || o.fault < c.fault) {
		c.fault = o.fault
	}
	for i, b := range o.crawlers {
		if b != nil {
			c.crawler(int32(i)).merge(b)
		}
	}
	for i := range o.versions {
		a, b := &c.versions[i], &o.versions[i]
		a.judged += b.judged
		a.disallowed += b.disallowed
		a.first, a.last = min(a.first, b.first), max(a.last, b.last)
	}
	c.hours.merge(&o.hours)
	if c.delays != nil {
		c.delays.merge(o.delays)
	}
}

func (c *accessCounts) close() {
	if c.delays != nil {
		c.delays.close()
	}
}

func (c *crawlerCounts) merge(o *crawlerCounts) {
	c.total += o.total
	c.verified += o.verified
	c.unverified += o.unverified
	c.impersonated += o.impersonated
	c.allowed += o.allowed
	c.disallowed += o.disallowed
	c.unjudged += o.unjudged
	c.grace += o.grace
	c.fetches += o.fetches
	c.first, c.last = min(c.first, o.first), max(c.last, o.last)
	for i := range o.status {
		c.status[i] += o.status[i]
	}
	c.np.add(&o.np)
	c.hours.merge(&o.hours)
	c.noindex += o.noindex
	c.nofollow += o.nofollow
	for a, n := range o.impersonators {
		c.impersonators[a] += n
	}
	for k, b := range o.violations {
		a := c.violations[k]
		if a == nil {
			c.violations[k] = b
			continue
		}
		a.requests += b.requests
		a.first, a.last = min(a.first, b.first), max(a.last, b.last)
		for _, e := range b.examples {
			a.example(e)
		}
	}
}

func (n *nonProductive) add(o *nonProductive) {
	n.disallowed += o.disallowed
	n.notInSitemap += o.notInSitemap
	n.parameter += o.parameter
	n.duplicate += o.duplicate
	n.redirect += o.redirect
	n.clientError += o.clientError
	n.serverError += o.serverError
	n.total += o.total
}

const maxExamples = 3

// example keeps the smallest targets, as bytes.
func (v *violationCounts) example(target string) {
	i, found := slices.BinarySearch(v.examples, target)
	if found || i == maxExamples {
		return
	}
	if len(v.examples) == maxExamples {
		v.examples = v.examples[:maxExamples-1]
	}
	v.examples = slices.Insert(v.examples, i, strings.Clone(target))
}

// wants tells whether a target would be kept, without a copy of it.
func (v *violationCounts) wants(target []byte) bool {
	n := len(v.examples)
	if n == maxExamples && string(target) >= v.examples[n-1] {
		return false
	}
	for _, e := range v.examples {
		if e == string(target) {
			return false
		}
	}
	return true
}
