package admin

import (
	"strconv"
	"sync"
	"time"

	"crawlgate/audit"
)

// record is what the page and the metrics need of one audit event, with the
// event itself as JSON. It is immutable once made.
type record struct {
	Seq  uint64
	Type string // request, robots, tunnel, config, ...
	ID   string
	Time time.Time

	Client, Profile, Job, Agent, Kind string

	Method, URL, Host string
	UserAgent         string

	Decision, Reason, Class string

	Sent           bool
	SentAt, DoneAt time.Time
	Queued         time.Duration // from arrival until sent, refused or given up
	TurnWait       time.Duration // waited for the turn
	Owed           time.Duration // gap owed before this request
	OwedFrom       string        // default, crawl-delay, ...
	Total          time.Duration

	RuleLine           int
	RuleText           string
	RobotsSHA256       string
	RobotsState        string
	RobotsStatus       int
	RobotsFetched      time.Time
	Signature          string // sig.state
	Status, Answered   int
	BytesIn, BytesOut  int64
	BytesStored        int64 // given from kept answers
	Revalidation       string
	Kept               bool
	RetryAfter         int64
	UpstreamIP         string
	Resolved           []string
	RedirectOf, Parent string
	WouldDeny          string // report only: the code that would have refused it
	Note               string
	Lost               uint64 // of a gap event

	size int // bytes it counts for in the bound of what is kept

	event   *audit.Event // of raw; nil once it is written
	written sync.Once    // of raw: only events that somebody looks at are
	line    []byte
	laidOut sync.Once // of pretty: likewise
	text    string
}

// judged says whether the event is a request that somebody made, or a tunnel:
// what counts in the totals.
func (r *record) judged() bool {
	return r.Type == "request" || r.Type == "robots" || r.Type == "tunnel"
}

// Refused says whether the gate itself said no.
func (r *record) Refused() bool { return r.Decision == "refused" }

// Why is the reason with its finer word, for the table.
func (r *record) Why() string {
	if r.Reason == "" || r.Reason == "ok" {
		return ""
	}
	return r.Reason
}

// end is when the request was over, as far as the event says.
func (r *record) end() time.Time {
	switch {
	case !r.DoneAt.IsZero():
		return r.DoneAt
	case r.Total > 0:
		return r.Time.Add(r.Total)
	}
	return r.Time
}

// Decided is when the event was over: the order that the page lists events in.
func (r *record) Decided() time.Time { return r.end() }

// outcome is the label of crawlgate_turns_total: the class that pacing gives
// the end of a turn. Only for a request that was sent.
func (r *record) outcome() string {
	switch {
	case r.Decision == "cancelled":
		return "aborted"
	case r.Type == "tunnel" && r.Decision == "forwarded":
		return "good" // what was answered inside, nobody saw
	case r.Status == 429, r.Status == 503:
		return "throttle"
	case r.Status >= 500, r.Status == 0:
		return "failure"
	case r.Status == 401, r.Status == 403, r.Status == 451:
		return "refusal"
	case r.Status >= 300 && r.Status < 400 && r.Status != 304:
		return "redirected"
	}
	return "good"
}

var outcomes = []string{"good", "redirected", "refusal", "throttle", "failure", "aborted"}

// incident says in words why pacing slows down after this request; "" if it does not.
func (r *record) incident() string {
	switch r.outcome() {
	case "throttle", "failure":
	default:
		return ""
	}
	what := strconv.Itoa(r.Status)
	if r.Status == 0 {
		what = r.Reason
	}
	if r.RetryAfter > 0 {
		what += ", Retry-After: " + short(time.Duration(r.RetryAfter)*time.Second)
	}
	return what
}

// dot is the record as a mark of the turns picture.
func (r *record) dot() Dot {
	d := Dot{Client: r.Client, Start: r.SentAt, End: r.end(), Owed: r.Owed, Hold: r.OwedFrom == "backoff"}
	if d.Client == "" {
		d.Client = "(gate)" // its own robots.txt fetches
	}
	if d.Start.IsZero() {
		d.Start = r.Time
		if r.Refused() {
			d.Start = r.end()
		}
	}
	d.Label = r.Time.Format("15:04:05") + " " + r.Method + " " + shorten(r.URL, 120)
	switch {
	case !r.Sent:
		d.Mark = DotRefused
		d.Label += " " + r.Decision + ": " + r.Reason
	case r.outcome() == "throttle" || r.outcome() == "failure":
		d.Mark = DotBad
		d.Asked = time.Duration(r.RetryAfter) * time.Second
	default:
		d.Mark = DotSent
	}
	// The event says what gap the request owed; none is a file that rides along
	// with a page, or a profile without pace.
	d.Rides = r.Owed == 0
	if r.Status > 0 {
		d.Label += " " + strconv.Itoa(r.Status)
	}
	if r.TurnWait > 0 {
		d.Label += ", waited " + short(r.TurnWait)
	}
	return d
}

// ruleText quotes a rule with its line.
func ruleText(rule string, line int) string {
	if line > 0 {
		return rule + " (line " + strconv.Itoa(line) + ")"
	}
	return rule
}
