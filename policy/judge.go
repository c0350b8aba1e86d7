package policy

import "time"

// decide judges by a state: by the copy while it may be used, else by what failed.
func (p *Policy) decide(v *Verdict, k key, st *state, q *Query, target []byte, now time.Time) {
	v.RobotsURL = k.url()
	if !p.onDisk(v, k, st, now) {
		return
	}
	if st.fail == nil {
		p.judge(v, st.good, q, target, now)
		return
	}
	if st.usable(&q.Profile, now) {
		v.Stale = true
		p.judge(v, st.good, q, target, now)
		return
	}
	st.fail.refuse(v, &q.Profile, now)
}

// onDisk tells whether a state is archived, and refuses if it is not.
func (p *Policy) onDisk(v *Verdict, k key, st *state, now time.Time) bool {
	if p.archive == nil || p.stored(k, st, now) {
		return true
	}
	v.refuse(ReasonAudit, ClassNotArchived)
	v.RetryAfter = storeAgain
	return false
}

// usable tells whether the last good copy stands in for a file that cannot be read just now (RFC 9309 2.4).
func (s *state) usable(c *ProfileConfig, now time.Time) bool {
	if s.good == nil || c.StaleOnError == Deny || ahead(s.good.fetched, now) {
		return false
	}
	if s.fail.class != ClassUnreachable && s.fail.class != ClassRateLimited {
		return false
	}
	return now.Before(s.good.fetched.Add(max(maxAge, c.StaleUse)))
}

// refuse answers for a file that cannot be read.
func (f *failure) refuse(v *Verdict, c *ProfileConfig, now time.Time) {
	v.Status, v.FetchedAt, v.Expires, v.Cause = f.status, f.at, f.next, f.cause
	if f.note != "" {
		v.Notes = append(v.Notes, f.note)
	}
	if c.WhenUnreadable == Allow {
		v.allow(ClassUnreadableAllow)
		return
	}
	v.refuse(f.reason, f.class)
	v.RetryAfter = max(f.next.Sub(now), time.Second)
}

// judge answers by a copy.
func (p *Policy) judge(v *Verdict, c *copied, q *Query, target []byte, now time.Time) {
	v.Status, v.SHA256, v.FetchedAt, v.Expires = c.status, c.sha, c.fetched, c.expires
	if v.RobotsURL == "" {
		v.RobotsURL = q.URL.Scheme + "://" + q.URL.Host + "/robots.txt"
	}
	switch c.class {
	case ClassTooManyRedirects:
		v.allow(ClassNoRobots)
		if q.Profile.TooManyRedirects == Deny {
			v.unreadable(ClassTooManyRedirects, c, &q.Profile, now)
		}
		return
	case ClassNoRobots:
		v.allow(ClassNoRobots)
		if q.Profile.On401403 == Deny && (c.status == 401 || c.status == 403) {
			v.unreadable(ClassForbidden, c, &q.Profile, now)
		}
		return
	}
	g := c.group
	if q.Profile.Mode == ModeNamed {
		g = c.named
	}
	stopOn := q.Profile.StopOn
	if stopOn == nil {
		stopOn = q.StopOn
	}
	g.decide(v, target, Options{
		StopOn: stopOn, NamedGroupStopsAll: q.Profile.NamedGroupStopsAll, EnforceVisitTime: q.Profile.VisitTime == Enforce, At: now,
	})
	v.Truncated = c.truncated
}

// unreadable answers for an absent file that the profile takes for an unreadable one.
func (v *Verdict) unreadable(class string, c *copied, pc *ProfileConfig, now time.Time) {
	if pc.WhenUnreadable == Allow {
		v.allow(ClassUnreadableAllow)
		return
	}
	v.refuse(ReasonUnreadable, class)
	v.RetryAfter = max(c.expires.Sub(now), time.Second)
}

// checkPast judges by the version that was in force at a moment.
func (p *Policy) checkPast(v *Verdict, k key, q *Query, target []byte) {
	v.RobotsURL = k.url()
	var st *state
	var err error
	if p.archive != nil {
		st, err = p.archive.restoreAt(k, q.At, q.Token, q.Fallback)
	}
	if st == nil {
		v.refuse(ReasonUnreadable, ClassNoVersion)
		v.Cause = err
		v.Notes = append(v.Notes, "the archive holds no version of this file for that time")
		return
	}
	if st.fail != nil {
		if st.usable(&q.Profile, q.At) {
			v.Stale = true
			p.judge(v, st.good, q, target, q.At)
			return
		}
		st.fail.refuse(v, &q.Profile, q.At)
		return
	}
	p.judge(v, st.good, q, target, q.At)
	if q.At.After(st.good.expires) {
		v.Notes = append(v.Notes, "the file had last been read at "+st.good.fetched.Format(time.RFC3339)+" and was not in use at that time")
	}
}
