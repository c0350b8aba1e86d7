package audit

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// robotsMaxAge is how long a robots.txt may be used without asking again (RFC 9309 2.4).
const robotsMaxAge = 24 * time.Hour

// rulesKey names compiled rules.
type rulesKey struct {
	profile *ProofProfile
	sha     string
}

// nothingAllowed refuses everything but robots.txt itself.
var nothingAllowed = []byte("User-agent: *\nDisallow: /\n")

// rules checks a request against the robots.txt that was in effect, and notes the delay that file asked for.
func (p *prover) rules(s *proofSent, e *Event, prof *ProofProfile) {
	if prof.Ignore {
		s.exempt = true
		x := p.exempt[e.Profile]
		x[0]++
		p.exempt[e.Profile] = x
		return
	}
	p.rep.Checks[CheckRules].Checked++
	if e.Type == TypeRobots {
		return // the file itself, which is never forbidden (RFC 9309 2.2.2)
	}
	if reason, text := p.rule(s, e, prof); reason != "" {
		p.violation(s, CheckRules, reason, text, e)
	}
}

// rule says what is wrong, or "".
func (p *prover) rule(s *proofSent, e *Event, prof *ProofProfile) (reason, text string) {
	key := robotsURL(e) + "\n" + e.Agent
	switch e.Robots.State {
	case "not_consulted":
		return p.unconsulted(s, e, prof, key)
	case "fresh", "stale":
	default:
		return "no_rules", "it was sent though no rules were known"
	}
	used := p.archive.read(key, &e.Robots)
	if e.Robots.SHA256 != "" {
		switch _, err := p.archive.body(e.Robots.SHA256); {
		case errors.Is(err, errBodyDiffers):
			return "body_differs", err.Error() + " (" + e.Robots.SHA256 + ")"
		case err != nil:
			return "body_missing", err.Error() + " (" + e.Robots.SHA256 + ")"
		}
	}
	if used == nil {
		return "not_in_archive", "the archive knows of no such reading of " + robotsURL(e) + " at " + wallTime(e.Robots.FetchedAt)
	}
	if reason, text := inEffect(p.archive.last(key, judgedAt(e)), used, e, prof); reason != "" {
		return reason, text
	}
	if used.SHA256 == "" {
		return absent(used, prof)
	}
	return p.judge(s, e, prof, used.SHA256)
}

// judgedAt is the latest moment at which the rules must have been looked at: when it was sent, less the time it took to
// connect. During the wait for a turn the gate looks again.
func judgedAt(e *Event) time.Time {
	at := e.SentAt.Add(-time.Duration(max(0, e.QueuedMS-e.TurnWaitMS)+1) * time.Millisecond)
	if at.Before(e.Robots.FetchedAt) {
		return e.Robots.FetchedAt
	}
	return at
}

// inEffect checks that used was the last reading, or may have stood in for one that failed.
func inEffect(last, used *archiveLine, e *Event, prof *ProofProfile) (reason, text string) {
	age := e.SentAt.Sub(e.Robots.FetchedAt)
	limit, cached := robotsMaxAge, e.Kind == "subresource" && !prof.ThirdPartyOwn
	switch {
	case last == nil || last.same(used):
		if e.Robots.State == "stale" {
			limit = max(limit, prof.StaleUse)
		}
	case !last.failed():
		return "superseded", "a newer robots.txt had been read at " + wallTime(last.Fetched)
	case cached: // judged by what was known
	case prof.StaleUse == 0 || last.Class != archiveUnreachable && last.Class != archiveRateLimited:
		return "unreadable", "robots.txt could not be read since " + wallTime(last.Effective) + " (" + last.Class + ")"
	default:
		limit = max(limit, prof.StaleUse)
	}
	// A file that ran out while the request waited for its connection was good when it was looked at.
	if age > limit+time.Duration(max(0, e.QueuedMS-e.TurnWaitMS))*time.Millisecond+time.Second {
		return "too_old", fmt.Sprintf("the robots.txt was %s old, and may be used for %s", age.Round(time.Second), limit)
	}
	return "", ""
}

// absent judges a file that is not there or could not be read.
func absent(l *archiveLine, prof *ProofProfile) (reason, text string) {
	switch {
	case prof.AllowUnreadable:
	case l.failed():
		return "unreadable", "robots.txt could not be read (" + l.Class + ")"
	case l.Class == archiveManyRedirects && prof.DenyRedirects:
		return "unreadable", "robots.txt was redirected too often"
	case (l.HTTPStatus == 401 || l.HTTPStatus == 403) && prof.DenyForbidden:
		return "unreadable", "robots.txt answered " + strconv.Itoa(l.HTTPStatus)
	}
	return "", ""
}

// unconsulted judges a request that was sent without a look at the rules: robots.txt itself, or another host's file whose
// rules were not known.
func (p *prover) unconsulted(s *proofSent, e *Event, prof *ProofProfile, key string) (reason, text string) {
	if p.compiled(prof, "", nothingAllowed).Judge(e.URL.String(), e.SentAt).Allowed {
		return "", ""
	}
	if e.Kind != "subresource" || prof.ThirdPartyOwn {
		return "not_consulted", "the rules were not looked at"
	}
	l := p.archive.last(key, e.Time.Add(-time.Millisecond))
	if l != nil && l.failed() {
		l = l.Good
	}
	if l == nil || l.SHA256 == "" || l.Fetched.After(e.Time) || e.SentAt.Sub(l.Fetched) > robotsMaxAge {
		return "", ""
	}
	if _, err := p.archive.body(l.SHA256); err != nil {
		return "body_missing", err.Error() + " (" + l.SHA256 + ")"
	}
	return p.judge(s, e, prof, l.SHA256)
}

// judge asks an archived file.
func (p *prover) judge(s *proofSent, e *Event, prof *ProofProfile, sha string) (reason, text string) {
	body, _ := p.archive.body(sha)
	rules := p.compiled(prof, sha, body)
	// Where the decision depends on nothing unknown, the text as it stands in the log is as good as the whole URL.
	if parts, open := partsOf(e); (len(parts) > 1 || open) && rules.Depends(parts, open, e.SentAt) {
		p.unproven(s, UnprovenQuery)
		return "", ""
	}
	target := e.URL.String()
	v := rules.Judge(target, e.SentAt)
	s.delay = min(v.Delay, rules.Judge(target, e.Time).Delay).Milliseconds()
	if v.Allowed {
		return "", ""
	}
	text = "robots.txt forbids it"
	if v.Line > 0 {
		text += fmt.Sprintf(" in line %d (%s)", v.Line, Printable(v.Rule, 100))
	}
	return v.Reason, text
}

// compiled keeps what was compiled.
func (p *prover) compiled(prof *ProofProfile, sha string, body []byte) ProofRules {
	if len(p.ruled) >= 4096 {
		clear(p.ruled)
	}
	k := rulesKey{prof, sha}
	r := p.ruled[k]
	if r == nil {
		r = prof.Rules(body)
		p.ruled[k] = r
	}
	return r
}

// robotsURL names the robots.txt that binds an event's URL.
func robotsURL(e *Event) string {
	scheme := e.Scheme
	switch scheme {
	case "ws":
		scheme = "http"
	case "wss":
		scheme = "https"
	}
	host := e.Host
	if e.Port != 0 && !(scheme == "http" && e.Port == 80) && !(scheme == "https" && e.Port == 443) {
		host += ":" + strconv.Itoa(e.Port)
	}
	return (&url.URL{Scheme: scheme, Host: host, Path: "/robots.txt"}).String()
}

// partsOf splits an event's URL at its masked values; open says that its end is not known either.
func partsOf(e *Event) (parts []string, open bool) {
	u := e.URL.String()
	open = slices.Contains(e.Cut, "url")
	if !e.QueryMasked {
		return []string{u}, open
	}
	head, query, found := strings.Cut(u, "?")
	if !found { // the whole query was dropped
		return []string{u + "?"}, true
	}
	var b strings.Builder
	b.WriteString(head + "?")
	token := 0 // start of a name or value
	flush := func(end int) {
		t := query[token:end]
		if !strings.Contains(t, "*") || strings.Trim(t, "*?") != "" {
			b.WriteString(t)
			return
		}
		for _, c := range t {
			if c == '*' {
				parts = append(parts, b.String())
				b.Reset()
			} else {
				b.WriteRune(c)
			}
		}
	}
	name := true
	for i := range len(query) {
		if c := query[i]; c == '&' || c == ';' || c == '=' && name {
			flush(i)
			b.WriteByte(c)
			token, name = i+1, c != '='
		}
	}
	flush(len(query))
	return append(parts, b.String()), open
}
