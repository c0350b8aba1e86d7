package admin

import (
	"time"

	"crawlgate/audit"
)

// Observe takes one recorded event in: metrics, page and stream follow from it.
// It is meant for audit.Log.Subscribe: called in the order of the log, it does
// not block and keeps nothing of the event but a copy.
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
	raw, err := e.MarshalJSON() // one line, control characters escaped
	if err != nil {
		return nil, err
	}
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
		BytesIn: e.BytesIn, BytesOut: e.BytesOut,
		RetryAfter: e.RetryAfterS,
		UpstreamIP: e.Upstream.IP, Resolved: e.Upstream.Resolved,
		RedirectOf: e.RedirectOf, Parent: e.Parent,
		WouldDeny: e.WouldDeny,
		Note:      e.Note,
		Lost:      uint64(max(0, e.Lost)),
		Raw:       raw,
	}
	if r.Type == "" {
		r.Type = audit.TypeRequest
	}
	return r, nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
