package admin

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// span is a count over three windows and since the start.
type span struct {
	Hour  uint64    `json:"1h"`
	Day   uint64    `json:"24h"`
	Week  uint64    `json:"7d"`
	Total uint64    `json:"total"`
	Last  time.Time `json:"last,omitzero"`
}

func spanOf(w *window, now time.Time) span {
	return span{w.hour(now), w.day(now), w.week(now), w.total, w.last}
}

func (s *state) totals(now time.Time) map[string]span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]span{"requests": spanOf(&s.all, now), "sent": spanOf(&s.sent, now), "refused": spanOf(&s.refused, now)}
}

// refusals returns the reasons that happened.
func (s *state) refusals(now time.Time) map[string]span {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]span{}
	for r, w := range s.reasons {
		if w.total > 0 {
			out[r] = spanOf(w, now)
		}
	}
	return out
}

// hostRow is one host as the page and /api/hosts show it: what pacing holds
// now, and what the events since the start add up to.
type hostRow struct {
	Host     string       `json:"host"`
	State    string       `json:"state,omitempty"`
	Cause    string       `json:"cause,omitempty"`
	Since    time.Time    `json:"since,omitzero"`
	Until    time.Time    `json:"until,omitzero"`
	NextTurn time.Time    `json:"next_turn,omitzero"`
	Gap      float64      `json:"gap_s,omitempty"`
	Level    int          `json:"level,omitempty"`
	InFlight int          `json:"in_flight,omitempty"`
	Waiting  int          `json:"waiting"`
	Queue    []QueueEntry `json:"queue,omitempty"`
	Robots   LiveRobots   `json:"robots,omitzero"`
	// RobotsBefore is the version of robots.txt before the one in use.
	RobotsBefore string `json:"robots_before,omitempty"`

	Requests    int       `json:"requests"`
	Sent        int       `json:"sent"`
	Refused     int       `json:"refused"`
	BytesIn     int64     `json:"bytes_in"`
	Waited      float64   `json:"waited_s"`
	Last        time.Time `json:"last,omitzero"`
	LastReason  string    `json:"last_reason,omitempty"`
	LastStatus  int       `json:"last_status,omitempty"`
	SmallestGap *float64  `json:"smallest_gap_s,omitempty"`
	GapOwed     *float64  `json:"gap_owed_s,omitempty"` // what was owed at the smallest gap
	New         bool      `json:"new,omitempty"`
	Clients     []string  `json:"clients,omitempty"`
	MoreClients bool      `json:"more_clients,omitempty"`
}

// TooClose says whether a gap was smaller than the one owed. Events carry whole
// milliseconds, hence the grace.
func (h *hostRow) TooClose() bool {
	return h.SmallestGap != nil && *h.SmallestGap < *h.GapOwed-0.001
}

// GapOwedThen is what was owed at the smallest gap, in seconds.
func (h *hostRow) GapOwedThen() float64 {
	if h.GapOwed == nil {
		return 0
	}
	return *h.GapOwed
}

// Held says whether nothing goes to the host now.
func (h *hostRow) Held() bool { return h.State == "held_back" || h.State == "stopped" }

// weight orders hosts, the worst first.
func (h *hostRow) weight() int {
	switch h.State {
	case "stopped":
		return 4
	case "held_back":
		return 3
	case "slowed":
		return 2
	}
	if h.Waiting > 0 {
		return 1
	}
	return 0
}

// hostRows joins the snapshot with the counts.
func (s *Server) hostRows(l Live, now time.Time) []hostRow {
	s.state.mu.Lock()
	rows := make([]hostRow, 0, len(l.Hosts)+s.state.hosts.len())
	seen := make(map[string]bool, len(l.Hosts))
	for _, h := range l.Hosts {
		if seen[h.Host] {
			continue
		}
		seen[h.Host] = true
		row := hostRow{
			Host: h.Host, State: h.State, Cause: h.Cause, Since: h.Since, Until: h.Until, NextTurn: h.NextTurn,
			Gap: h.Gap.Seconds(), Level: h.Level, InFlight: h.InFlight, Waiting: h.Waiting, Queue: h.Queue, Robots: h.Robots,
		}
		if st, ok := s.state.hosts.get(h.Host); ok {
			row.count(&st)
			row.New = s.state.isNew(st.First, now)
		}
		rows = append(rows, row)
	}
	s.state.hosts.each(func(host string, st *hostStat) {
		if !seen[host] {
			row := hostRow{Host: host, New: s.state.isNew(st.First, now)}
			row.count(st)
			rows = append(rows, row)
		}
	})
	s.state.mu.Unlock()
	slices.SortFunc(rows, func(a, b hostRow) int {
		return cmp.Or(b.weight()-a.weight(), b.Waiting-a.Waiting, b.Requests-a.Requests, cmp.Compare(a.Host, b.Host))
	})
	return rows
}

// orders are the ways to sort hosts, the most first; "" is the worst first.
var orders = map[string]func(a, b hostRow) int{
	"":         func(hostRow, hostRow) int { return 0 },
	"requests": func(a, b hostRow) int { return b.Requests - a.Requests },
	"refused":  func(a, b hostRow) int { return b.Refused - a.Refused },
	"received": func(a, b hostRow) int { return cmp.Compare(b.BytesIn, a.BytesIn) },
	"waited":   func(a, b hostRow) int { return cmp.Compare(b.Waited, a.Waited) },
}

// sortHosts orders rows by one of orders; equal ones stay the worst first.
func sortHosts(rows []hostRow, by string) error {
	order, ok := orders[by]
	if !ok {
		return &BadInput{"sort is one of requests, refused, received, waited"}
	}
	slices.SortStableFunc(rows, order)
	return nil
}

func (h *hostRow) count(st *hostStat) {
	h.Requests, h.Sent, h.Refused = st.Requests, st.Sent, st.Refused
	h.BytesIn, h.Waited = st.BytesIn, st.Waited.Seconds()
	h.Last, h.LastReason, h.LastStatus = st.Last, st.LastReason, st.LastStatus
	if st.MinGap >= 0 {
		gap, owed := st.MinGap.Seconds(), st.MinGapOwed.Seconds()
		h.SmallestGap, h.GapOwed = &gap, &owed
	}
	h.Clients, h.MoreClients = slices.Clone(st.Clients), st.MoreClients
	h.RobotsBefore = st.RobotsBefore
	if h.Robots.SHA256 == "" {
		h.Robots.SHA256 = st.RobotsSHA256
	}
	if h.Robots.State == "" {
		h.Robots.State, h.Robots.Status, h.Robots.Fetched = st.RobotsState, st.RobotsStatus, st.RobotsFetched
	}
	if h.Cause == "" && h.weight() > 1 { // pacing knows that it waits, the events know for what
		h.Cause, h.Since = st.Incident, st.IncidentAt
	}
	if h.Robots.Rule == "" && st.Rule != "" {
		h.Robots.Rule = ruleText(st.Rule, st.RuleLine)
	}
}

// clientRow is one client, configured or seen.
type clientRow struct {
	Name     string
	Profiles []string
	Kinds    []string
	Sites    string
	Waiting  int
	Requests int
	Sent     int
	Refused  int
	Waited   time.Duration
	First    time.Time
	Last     time.Time
	Reasons  []reasonCount // most first
	Alone    int           // hosts that no other client asked for
}

type reasonCount struct {
	Reason string
	N      int
}

func (s *Server) clientRows(l Live) []clientRow {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	alone := map[string]int{}
	s.state.hosts.each(func(_ string, st *hostStat) {
		if len(st.Clients) == 1 && !st.MoreClients {
			alone[st.Clients[0]]++
		}
	})
	var rows []clientRow
	seen := map[string]bool{}
	for _, c := range l.Clients {
		row := clientRow{Name: c.Name, Profiles: c.Profiles, Sites: c.Sites, Waiting: c.Waiting, Alone: alone[c.Name]}
		if st, ok := s.state.clients.get(c.Name); ok {
			row.count(&st)
		}
		seen[c.Name] = true
		rows = append(rows, row)
	}
	s.state.clients.each(func(name string, st *clientStat) {
		if !seen[name] {
			row := clientRow{Name: name, Alone: alone[name]}
			row.count(st)
			rows = append(rows, row)
		}
	})
	slices.SortStableFunc(rows, func(a, b clientRow) int {
		return cmp.Or(b.Requests-a.Requests, cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func (c *clientRow) count(st *clientStat) {
	c.Requests, c.Sent, c.Refused, c.Waited, c.First, c.Last = st.Requests, st.Sent, st.Refused, st.Waited, st.First, st.Last
	if len(c.Profiles) == 0 {
		c.Profiles = slices.Clone(st.Profiles)
	}
	c.Kinds = slices.Clone(st.Kinds)
	for r, n := range st.Reasons {
		c.Reasons = append(c.Reasons, reasonCount{r, n})
	}
	slices.SortFunc(c.Reasons, func(a, b reasonCount) int { return cmp.Or(b.N-a.N, cmp.Compare(a.Reason, b.Reason)) })
}

// reasonRow is one reason code with its counts.
type reasonRow struct {
	Reason string
	span
	New bool
}

// reasonRows lists the reasons that happened: address-denied on top, since it
// means that somebody was led to a private address; then the most frequent.
func (s *Server) reasonRows(now time.Time) []reasonRow {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	var rows []reasonRow
	for r, w := range s.state.reasons {
		if w.total > 0 {
			rows = append(rows, reasonRow{Reason: r, span: spanOf(w, now), New: s.state.isNew(w.first, now)})
		}
	}
	top := func(r reasonRow) int {
		if r.Reason == "address-denied" {
			return 1
		}
		return 0
	}
	slices.SortFunc(rows, func(a, b reasonRow) int {
		return cmp.Or(top(b)-top(a), cmp.Compare(b.Day, a.Day), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Reason, b.Reason))
	})
	return rows
}

// dots are the requests to one host for the turns picture, oldest first.
func (s *Server) dots(host string, n int) []Dot {
	rs := s.state.records(n, func(r *record) bool { return r.judged() && r.Host == host && r.Decision != "cancelled" })
	out := make([]Dot, 0, len(rs))
	for _, r := range slices.Backward(rs) {
		out = append(out, r.dot())
	}
	return out
}

// busiest are the n hosts with the most events among the newest, a request that
// went out counting more: the picture is one of turns.
func (s *Server) busiest(n int) []string {
	count := map[string]int{}
	for _, r := range s.state.records(maxRecords, func(r *record) bool { return r.judged() && r.Host != "" }) {
		count[r.Host]++
		if r.Sent && r.Owed > 0 {
			count[r.Host] += 3
		}
	}
	hosts := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(a, b))
	})
	return hosts[:min(n, len(hosts))]
}
