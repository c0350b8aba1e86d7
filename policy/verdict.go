package policy

import (
	"net/url"
	"time"
)

// Classes of a verdict: the finer word beside the reason code.
const (
	ClassRobotsItself     = "robots_txt_itself"       // the URL is /robots.txt
	ClassNotConsulted     = "not_consulted"           // mode ignore, or a file of a page whose own host was not read
	ClassNoRobots         = "no_robots"               // a plain 4xx, or more than five redirects
	ClassNoGroup          = "no_group"                // no group binds us
	ClassNoMatch          = "no_match"                // a group, but no rule matches
	ClassRuleAllow        = "rule_allow"              // an Allow line decided
	ClassRuleDisallow     = "rule_disallow"           // a Disallow line decided
	ClassContentSignal    = "content_signal"          // a signal in stop_on
	ClassResponseSignal   = "response_signal"         // a signal in an earlier answer's header, with response_signals: bind
	ClassUnreadableAllow  = "unreadable_allowed"      // not readable, and the profile says when_unreadable: allow
	ClassUnreachable      = "robots_unreachable"      // 5xx, network, a transfer cut short, a redirect to nowhere
	ClassRateLimited      = "robots_rate_limited"     // 429
	ClassForbidden        = "robots_forbidden"        // 401 or 403 with on_401_403: deny
	ClassChallenge        = "robots_challenge"        // a recognised bot check
	ClassRedirectBlocked  = "robots_redirect_blocked" // a redirect to a refused address, port or scheme
	ClassTooManyRedirects = "robots_too_many_redirects"
	ClassVisitTime        = "visit_time"         // outside the Visit-time, with visit_time: enforce
	ClassNotArchived      = "robots_not_stored"  // the version read could not be stored, so nothing is judged by it
	ClassNoVersion        = "robots_no_version"  // a question about the past that the archive cannot answer
	ClassWaitedTooLong    = "robots_wait"        // the file was not there within the time the caller waits
	ClassInvalidURL       = "robots_invalid_url" // a URL without scheme and host
	ClassStoreAway        = "store_away"         // the shared store does not say what another instance's answer said
)

// Reason codes that policy answers with.
const (
	ReasonOK         = "ok"
	ReasonDisallow   = "robots-disallow"
	ReasonSignal     = "robots-signal"
	ReasonUnreadable = "robots-unreadable"
	ReasonChallenge  = "robots-challenge"
	ReasonAudit      = "audit-unavailable"
	ReasonStoreAway  = "overloaded"
)

// Query is one question: may this agent fetch this URL?
type Query struct {
	URL   *url.URL // normalised: lower-case scheme and host, no default port, no userinfo
	Agent string   // name of the agent: each has its own copy of a site's file, since it may differ by user agent
	Token string   // its product token
	// Fallback are further tokens, tried in order when no group names Token.
	Fallback []string
	// StopOn is what a signal must say to stop us when Profile.StopOn is nil; see [StopOnFor].
	StopOn  []string
	Profile ProfileConfig
	// CacheOnly judges by what is known and fetches nothing: for a page's files on other hosts (third_party: if_read).
	CacheOnly bool
	// Wait is the longest time to wait for the file, its turn included. With 0 there is no wait for a turn, only
	// for an exchange that can be made now. Negative: no wait at all; what is not known is refused with RetryAfter.
	Wait time.Duration
	// At asks for the past: the archived version in force then decides. Zero means now.
	At time.Time
	// Requester is handed to the Fetcher unread.
	Requester any
}

// Verdict is the answer, with everything needed to explain it.
type Verdict struct {
	Allowed bool
	Reason  string // "ok", or a reason code
	Class   string // one of the Class constants, or the class of the error in Cause

	Rule       string // the deciding line, as `Disallow: /x`, value as written
	Line       int    // its number, from 1; 0 when no line decided
	RuleOctets int    // length of its canonical pattern
	Group      string // name of the group that binds: the token, "*", or ""
	GroupLine  int    // its first User-agent line

	Delay       time.Duration // gap the site asks for
	DelaySource string        // "" (asks for none), "crawl-delay" or "request-rate"
	DelayLine   int

	Signal     string            // the stop_on entry that refused, as `ai-input=no`
	SignalLine int               // its line; 0 for a response header
	Signals    map[string]string // effective signals for this URL; not to be changed
	Sitemaps   []string          // the file's Sitemap values; not to be changed

	RobotsURL  string    // where the file was asked for; "" when it was not consulted
	Status     int       // HTTP status of the last answer, 0 for none
	SHA256     string    // of the body judged by, hex; "" when there was none
	FetchedAt  time.Time // when it was last read or confirmed
	Expires    time.Time // until when it is used without asking again
	Stale      bool      // older than that: in use because asking again failed
	Truncated  bool      // longer than 500 KiB; the rest was not read
	RetryAfter time.Duration
	Notes      []string
	Cause      error // what stopped the fetch, as the Fetcher gave it
}

// Options are what a decision depends on besides the file and the URL.
type Options struct {
	StopOn             []string
	NamedGroupStopsAll bool
	EnforceVisitTime   bool
	At                 time.Time // moment for time windows; zero means now
}

// Decide judges a URL by the group: rules first, then signals, then Visit-time.
func (g *Group) Decide(u *url.URL, o Options) Verdict {
	var buf [1024]byte
	var v Verdict
	g.decide(&v, appendTarget(buf[:0], u), o)
	return v
}

// DecideString is [Group.Decide] for a URL as text, which need not be well formed.
func (g *Group) DecideString(target string, o Options) Verdict {
	var v Verdict
	g.decide(&v, appendTargetString(nil, target), o)
	return v
}

// decide fills in what the file says about a target.
func (g *Group) decide(v *Verdict, target []byte, o Options) {
	at := o.At
	if at.IsZero() && (len(g.visits) > 0 || len(g.delays) > 0) {
		at = time.Now()
	}
	v.Group, v.GroupLine = g.token, int(g.line)
	v.Sitemaps, v.Truncated = g.sitemaps, g.truncated
	v.Delay, v.DelaySource, v.DelayLine = g.Delay(at)
	sig := g.signalsFor(target)
	if sig != nil {
		v.Signals = sig.values
	}
	i, class, spent := g.judge(target)
	v.allow(class)
	if spent {
		v.Notes = append(v.Notes, "the file's wildcards take too long to work out, so the next Disallow line decides")
	}
	if class == ClassRobotsItself {
		return
	}
	if class == ClassUnreachable {
		v.refuse(ReasonUnreadable, class)
		v.Cause = g.err
		return
	}
	if o.NamedGroupStopsAll && g.firstNo >= 0 && g.token != star && class != ClassRuleDisallow {
		i, class = g.firstNo, ClassRuleDisallow
		v.Notes = append(v.Notes, "a Disallow in a group that names the agent stops the whole site (robots.named_group_stops_all)")
	}
	if i >= 0 {
		v.Rule, v.Line, v.RuleOctets = g.ruleText(i), int(g.rules[i].line), int(g.rules[i].pat.n)
	}
	if class == ClassRuleDisallow {
		v.refuse(ReasonDisallow, class)
		if g.hasUsage() {
			v.Signals = g.signalsOfDenied(target)
		}
		return
	}
	if sig, from, stop := g.stopped(sig, target, o.StopOn); from >= 0 {
		v.refuse(ReasonSignal, ClassContentSignal)
		v.Signals = sig.values
		v.Rule, v.Line, v.RuleOctets = g.signalText(from), int(g.signals[from].line), int(g.signals[from].pat.n)
		v.Signal, v.SignalLine = stop, v.Line
		return
	}
	if o.EnforceVisitTime {
		g.decideVisit(v, at)
	}
}

// decideVisit refuses outside all Visit-time windows of the group.
func (g *Group) decideVisit(v *Verdict, at time.Time) {
	for i := range g.visits {
		if g.visits[i].window.contains(at) {
			return
		}
	}
	for i := range g.visits {
		e := &g.visits[i]
		if wait := e.window.until(at); i == 0 || wait < v.RetryAfter {
			v.refuse(ReasonDisallow, ClassVisitTime)
			v.Rule, v.Line, v.RuleOctets = kindVisitTime.label()+": "+clean(g.str(e.val)), int(e.line), 0
			v.RetryAfter = wait
		}
	}
}

func (v *Verdict) allow(class string) {
	v.Allowed, v.Reason, v.Class = true, ReasonOK, class
}

func (v *Verdict) refuse(reason, class string) {
	v.Allowed, v.Reason, v.Class = false, reason, class
}
