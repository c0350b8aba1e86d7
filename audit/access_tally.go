package audit

import (
	"bytes"
)

// count adds one request.
func (w *accessWorker) count(e *entry, j *judgement) {
	hour := floorDiv(e.time, 3_600_000)
	all := w.counts.hours.at(hour)
	if j.crawler < 0 {
		w.counts.notCrawler++
		all.Other++
		return
	}
	c := w.counts.crawler(j.crawler)
	own := c.hours.at(hour)
	c.total++
	switch j.identity {
	case impersonated:
		c.impersonated++
		c.impersonators[j.client]++
		all.Impersonated++
		own.Impersonated++
		return
	case verified:
		c.verified++
	default:
		c.unverified++
	}
	c.first, c.last = min(c.first, e.time), max(c.last, e.time)
	if s := e.status / 100; s >= 1 && s <= 5 {
		c.status[s]++
	} else {
		c.status[0]++
	}
	np := nonProductive{}
	switch {
	case !j.judged:
		c.unjudged++
		all.Unjudged++
		own.Unjudged++
	case j.allowed:
		c.allowed++
		all.Allowed++
		own.Allowed++
		if j.grace {
			c.grace++
		}
	default:
		c.disallowed++
		all.Disallowed++
		own.Disallowed++
		np.disallowed = 1
		w.violation(c, e, j)
	}
	if v := j.version; v != nil {
		vc := &w.counts.versions[v.index]
		vc.judged++
		vc.first, vc.last = min(vc.first, e.time), max(vc.last, e.time)
		vc.disallowed += np.disallowed
	}
	if j.verdict.itself {
		c.fetches++
	}
	set := func(n *int64, yes bool) {
		if yes {
			*n = 1
			np.total = 1
		}
	}
	set(&np.disallowed, np.disallowed == 1)
	set(&np.notInSitemap, j.sitemap)
	set(&np.parameter, j.verdict.parameter)
	set(&np.duplicate, j.verdict.duplicate)
	set(&np.redirect, e.status/100 == 3 && e.status != 304)
	set(&np.clientError, e.status/100 == 4)
	set(&np.serverError, e.status/100 == 5)
	if np.total > 0 {
		c.np.add(&np)
	}
	if j.noindex {
		c.noindex++
	}
	if j.nofollow {
		c.nofollow++
	}
	if w.counts.delays != nil {
		w.counts.delays.add(j.crawler, j.host.name, e.time)
	}
}

func (w *accessWorker) violation(c *crawlerCounts, e *entry, j *judgement) {
	k := violationKey{version: j.version.index, line: j.verdict.line, host: j.host.name}
	rule := j.verdict.rule
	if j.version.kind() == robotsUnreachable {
		k.line, rule = 0, ""
	}
	v := c.violations[k]
	if v == nil {
		v = &violationCounts{rule: rule, first: maxTime, last: minTime}
		c.violations[k] = v
	}
	v.requests++
	v.first, v.last = min(v.first, e.time), max(v.last, e.time)
	if v.wants(e.target) {
		v.example(string(e.target))
	}
}

var trackers = []string{"gclid", "fbclid", "msclkid", "sid", "sessionid", "phpsessid", "jsessionid"}

// spelling tells of a target whether it has a query, and whether a plainer spelling of it exists.
func spelling(target []byte) (parameter, duplicate bool) {
	path, query, asked := bytes.Cut(target, []byte("?"))
	parameter = len(query) > 0
	if asked && !parameter || bytes.Contains(path, []byte("//")) {
		return parameter, true
	}
	for i := bytes.IndexByte(path, ';'); i >= 0; {
		if rest := path[i+1:]; len(rest) > 10 && equalFoldASCII(rest[:11], "jsessionid=") {
			return parameter, true
		}
		next := bytes.IndexByte(path[i+1:], ';')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	for rest := path; len(rest) > 0; {
		rest = rest[1:]
		end := bytes.IndexByte(rest, '/')
		segment := rest
		if end >= 0 {
			segment = rest[:end]
		}
		if isDots(segment) {
			return parameter, true
		}
		if end < 0 {
			for _, name := range [...]string{"index.html", "index.htm", "index.php", "default.aspx"} {
				if equalFoldASCII(segment, name) {
					return parameter, true
				}
			}
			break
		}
		rest = rest[end:]
	}
	for more := parameter; more; {
		var pair []byte
		pair, query, more = bytes.Cut(query, []byte("&"))
		name, _, _ := bytes.Cut(pair, []byte("="))
		if len(name) >= 4 && equalFoldASCII(name[:4], "utm_") {
			return parameter, true
		}
		for _, t := range trackers {
			if equalFoldASCII(name, t) {
				return parameter, true
			}
		}
	}
	return parameter, false
}

// isDots tells whether a segment is `.` or `..`, also written as %2e.
func isDots(s []byte) bool {
	n := 0
	for len(s) > 0 {
		switch {
		case s[0] == '.':
			s = s[1:]
		case len(s) >= 3 && s[0] == '%' && s[1] == '2' && s[2]|0x20 == 'e':
			s = s[3:]
		default:
			return false
		}
		n++
	}
	return n == 1 || n == 2
}
