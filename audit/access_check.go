package audit

import "fmt"

// AccessSelfCheck is what a report proves about itself. A failure is also one of the report's Problems.
type AccessSelfCheck struct {
	OK       bool                 `json:"ok"`
	Rules    []AccessRuleCheck    `json:"rules"`
	Groups   []AccessGroupCheck   `json:"groups"`
	Versions []AccessVersionCheck `json:"versions"`
	Sums     AccessSumCheck       `json:"sums"`
}

// AccessRuleCheck is one fixed case, run through the matcher that judged the requests.
type AccessRuleCheck struct {
	Path     string `json:"path"`
	Pattern  string `json:"pattern"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// AccessGroupCheck says which group of a version bound a crawler: its token, or "*", or "" for none.
type AccessGroupCheck struct {
	Host      string `json:"host"`
	Effective string `json:"effective"`
	Crawler   string `json:"crawler"`
	Token     string `json:"token"`
	Line      int    `json:"line"`
}

// AccessVersionCheck is one change of a robots.txt inside the log, with the requests judged by the version before it and
// by the one after it.
type AccessVersionCheck struct {
	Host       string `json:"host"`
	At         string `json:"at"`
	Before     int64  `json:"before"`
	After      int64  `json:"after"`
	LastBefore string `json:"last_before"`
	FirstAfter string `json:"first_after"`
	OK         bool   `json:"ok"`
}

// AccessSumCheck counts the sums that were checked and names those that do not add up.
type AccessSumCheck struct {
	Checked int      `json:"checked"`
	Failed  []string `json:"failed"`
}

// ruleChecks are cases that naive matchers get wrong: a wildcard with an anchor, a query after an anchor, a tie.
var ruleChecks = []struct{ path, pattern, body, expected string }{
	{"/a/deep/x.json", "Disallow: /*/deep/*.json$", "User-agent: *\nDisallow: /*/deep/*.json$\nAllow: /a/\n", "disallowed"},
	{"/end?x", "Disallow: /end$", "User-agent: *\nDisallow: /end$\n", "allowed"},
	{"/%7ejoe", "Allow: /~joe", "User-agent: *\nDisallow: /%7Ejoe\nAllow: /~joe\n", "allowed"},
}

func (a *auditor) selfCheck(r *AccessReport, c *accessCounts) {
	s := &r.SelfCheck
	*s = AccessSelfCheck{OK: true, Rules: []AccessRuleCheck{}, Groups: []AccessGroupCheck{}, Versions: []AccessVersionCheck{}, Sums: AccessSumCheck{Failed: []string{}}}
	fail := func(format string, args ...any) {
		s.OK = false
		r.Problems = append(r.Problems, "self-check: "+fmt.Sprintf(format, args...))
	}
	for _, k := range ruleChecks {
		got := "disallowed"
		if a.o.Judge.Parse([]byte(k.body)).Group([]string{"ExampleBot"}).Match(k.path).Allowed {
			got = "allowed"
		}
		s.Rules = append(s.Rules, AccessRuleCheck{k.path, k.pattern, k.expected, got})
		if got != k.expected {
			fail("%s under %q is %s, expected %s", k.path, k.pattern, got, k.expected)
		}
	}
	for i, v := range a.robots.all {
		if v.kind() != robotsRules || c.versions[i].judged == 0 {
			continue
		}
		show := func(j int) {
			g := v.group(a.crawlers, int32(j))
			s.Groups = append(s.Groups, AccessGroupCheck{shown(v.host), stampOf(v.effective), a.crawlers.all[j].Name, shown(g.Token()), g.Line()})
		}
		// Besides the reported crawlers one without a group of its own, so that the fallback can be seen.
		ownless, seen := -1, false
		for j := range a.crawlers.all {
			token := v.group(a.crawlers, int32(j)).Token()
			own := token != "" && token != "*"
			if c.crawlers[j] != nil {
				show(j)
				seen = seen || !own
			} else if !own && ownless < 0 {
				ownless = j
			}
		}
		if !seen && ownless >= 0 {
			show(ownless)
		}
	}
	a.checkVersions(s, c, fail)
	s.Sums.check(r)
	for _, f := range s.Sums.Failed {
		fail("%s", f)
	}
}

// checkVersions checks each change that lies inside a host's judged requests: all of them on each side were judged by
// the version of that side.
func (a *auditor) checkVersions(s *AccessSelfCheck, c *accessCounts, fail func(string, ...any)) {
	for i, v := range a.robots.all {
		n := &c.versions[i]
		if n.judged > 0 && (n.first < v.effective || n.last >= v.next) {
			fail("%s: a request was judged by the version of %s, which was not in effect at its time", hostShown(v.host), stampOf(v.effective))
		}
		if i == 0 || a.robots.all[i-1].host != v.host {
			continue
		}
		before := &c.versions[i-1]
		if before.judged == 0 && n.judged == 0 {
			continue
		}
		k := AccessVersionCheck{Host: shown(v.host), At: stampOf(v.effective), Before: before.judged, After: n.judged,
			LastBefore: stampOf(before.last), FirstAfter: stampOf(n.first), OK: before.last < v.effective && n.first >= v.effective}
		s.Versions = append(s.Versions, k)
	}
}

func hostShown(host string) string {
	if host == "" {
		return "every host"
	}
	return shown(host)
}

func (s *AccessSumCheck) check(r *AccessReport) {
	equal := func(what string, a, b int64) {
		s.Checked++
		if a != b {
			s.Failed = append(s.Failed, fmt.Sprintf("%s: %d is not %d", what, a, b))
		}
	}
	var sum AccessTotals
	for _, name := range r.names() {
		x := r.Crawlers[name]
		equal(name+": total = genuine + impersonated", x.Total, x.Genuine+x.Impersonated)
		equal(name+": genuine = verified + unverified", x.Genuine, x.Verified+x.Unverified)
		equal(name+": genuine = allowed + disallowed + unjudged", x.Genuine, x.Allowed+x.Disallowed+x.Unjudged)
		var broken, status int64
		for _, v := range x.Violations {
			broken += v.Requests
		}
		equal(name+": disallowed = sum of violations", x.Disallowed, broken)
		st := x.Status
		status = st.C1 + st.C2 + st.C3 + st.C4 + st.C5 + st.None
		equal(name+": genuine = sum of status classes", x.Genuine, status)
		sum.Genuine += x.Genuine
		sum.Impersonated += x.Impersonated
		sum.Disallowed += x.Disallowed
		sum.Allowed += x.Allowed
	}
	t := &r.Totals
	equal("claims = genuine + impersonated", t.Claims, sum.Genuine+sum.Impersonated)
	equal("genuine = verified + unverified", t.Genuine, t.Verified+t.Unverified)
	equal("genuine = allowed + disallowed + unjudged", t.Genuine, t.Allowed+t.Disallowed+t.Unjudged)
	equal("requests = claims + not_crawler", t.Requests, t.Claims+t.NotCrawler)
	equal("lines = blank + comments + malformed + filtered + duplicates + requests", t.Lines, t.Blank+t.Comments+t.Malformed+t.Filtered+t.Duplicates+t.Requests)
	m := r.Malformed
	equal("malformed = sum of reasons", t.Malformed, m.Structure+m.Address+m.Time+m.Request+m.Status+m.JSON+m.Format)
	var judged, disallowed int64
	for _, v := range r.Robots {
		judged += v.Judged
		disallowed += v.Disallowed
	}
	equal("disallowed = sum over robots.txt versions", t.Disallowed, disallowed)
	if r.Settings.NoVersion == "unjudged" {
		equal("allowed + disallowed = judged by robots.txt versions", t.Allowed+t.Disallowed, judged)
	}
	byHour := func(all map[int64]*hourCounts) (n hourCounts) {
		for _, h := range all {
			n.add(h)
		}
		return n
	}
	for _, name := range r.names() {
		equal(name+": total = sum over hours", r.Crawlers[name].Total, byHour(r.each[name]).total())
	}
	hours := byHour(r.hours)
	equal("requests = sum over hours", t.Requests, hours.Allowed+hours.Disallowed+hours.Unjudged+hours.Impersonated+hours.Other)
}
