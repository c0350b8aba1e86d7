package admin

import (
	"slices"
	"time"

	"crawlgate/audit"
)

// Observe takes one recorded event in: metrics, page and stream follow from it.
// It is meant for audit.Log.Subscribe: called in the order of the log, it does
// not block. It keeps the event, which nobody changes any more.
func (s *Server) Observe(e *audit.Event) {
	r, err := recordOf(e)
	if err != nil {
		s.log.Error("event not shown", "request_id", e.ID, "err", err)
		return
	}
	s.metrics.observe(r)
	s.state.add(r, time.Now())
}

func recordOf(e *audit.Event) (*record, error) {
	r := &record{
		Seq: e.Seq, Type: e.Type, ID: e.ID, Time: e.Time,
		Client: e.Client.Name, Profile: e.Profile, Job: e.Job, Agent: e.Agent, Kind: e.Kind,
		Method: e.Method, URL: e.URL.String(), Host: e.Host, UserAgent: e.UserAgent,
		Decision: e.Decision, Reason: e.Reason, Class: e.Class,
		Sent: e.Sent, SentAt: e.SentAt, DoneAt: e.DoneAt,
		Queued:   ms(e.QueuedMS),
		TurnWait: ms(e.TurnWaitMS),
		Owed:     ms(e.DelayOwedMS), OwedFrom: e.DelaySource,
		Total:    ms(e.TotalMS),
		RuleLine: e.Rule.Line, RuleText: e.Rule.Text,
		RobotsSHA256: e.Robots.SHA256, RobotsState: e.Robots.State, RobotsStatus: e.Robots.Status, RobotsFetched: e.Robots.FetchedAt,
		Signature: e.Sig.State,
		Status:    e.Status, Answered: e.Answered,
		BytesIn: e.BytesIn, BytesOut: e.BytesOut, BytesStored: e.BytesStored, Revalidation: e.Revalidation, Kept: e.Kept,
		RetryAfter: e.RetryAfterS,
		UpstreamIP: e.Upstream.IP, Resolved: e.Upstream.Resolved,
		RedirectOf: e.RedirectOf, Parent: e.Parent,
		WouldDeny: e.WouldDeny,
		Note:      e.Note,
		Lost:      uint64(max(0, e.Lost)),
		event:     e,
	}
	if r.Type == "" {
		r.Type = audit.TypeRequest
	}
	r.size = recordBytes + outside(e)
	if r.size > eagerBytes || !slices.Contains(eventTypes, r.Type) {
		// Its line has a bound, which its own texts have not.
		line, err := e.MarshalJSON()
		if err != nil {
			return nil, err
		}
		r.written.Do(func() { r.line, r.event = line, nil })
		r.size = recordBytes + len(line)
	}
	return r, nil
}

const (
	recordBytes = 2 << 10 // of a record and its event, without the texts that come from outside
	eagerBytes  = 6 << 10
)

// outside is the length of the texts that fetchers and sites can make long.
func outside(e *audit.Event) int {
	n := len(e.URL.String()) + len(e.Location.String()) + len(e.ClientUserAgent) + len(e.UserAgent) + len(e.Rule.Text) +
		len(e.ContentType) + len(e.RobotsTag) + len(e.Indexing) + len(e.Signals) + len(e.RateLimit) + len(e.Method) + len(e.Host) + len(e.Note)
	for _, s := range e.Upstream.Resolved {
		n += len(s)
	}
	return n
}

// raw is the event as one line of JSON, control characters escaped. Events are many and looked at seldom, so it is written
// when somebody does.
func (r *record) raw() []byte {
	r.written.Do(func() {
		line, err := r.event.MarshalJSON()
		if err != nil { // a type without a form, which Observe refuses
			line = []byte("{}")
		}
		r.line, r.event = line, nil
	})
	return r.line
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
