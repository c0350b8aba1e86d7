package admin

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// Bounds of what is remembered. Past them the oldest goes; the audit log has it all.
const (
	maxRecords     = 1000    // events kept for the page and for a subscriber that comes back
	maxRecordBytes = 4 << 20 // of them together
	maxHosts       = 5000    // hosts with counts
	maxClients     = 500     // clients with counts
	maxHostClients = 8       // clients remembered by name for one host
	maxProfiles    = 16      // profiles remembered by name for one client
)

// newFor is how long a host or a reason counts as new on the page.
const newFor = time.Hour

// state is what the page remembers of the events that passed.
type state struct {
	mu    sync.Mutex
	start time.Time

	ring  []*record // oldest first
	bytes int

	hosts   *lru[hostStat]
	clients *lru[clientStat]

	reasons map[string]*window
	sent    window
	refused window
	all     window

	lost       uint64 // events lost, by gap events
	checkpoint time.Time

	subs map[*subscriber]struct{}
}

// hostStat is what one host's events add up to since the start.
type hostStat struct {
	Requests, Sent, Refused int
	First                   time.Time // when this process saw it first
	BytesIn                 int64
	Waited                  time.Duration
	Last                    time.Time
	LastReason              string
	LastStatus              int
	MinGap, MinGapOwed      time.Duration // gap seen that came closest to what was owed then; MinGap < 0: none
	Clients                 []string      // bounded
	MoreClients             bool
	RobotsSHA256            string
	RobotsBefore            string // the version before this one
	RobotsState             string
	RobotsStatus            int
	RobotsFetched           time.Time
	Rule                    string
	RuleLine                int
	Incident                string // what last slowed us down: "429, Retry-After: 2m"
	IncidentAt              time.Time
	lastDone                time.Time // end of the last turn
}

// clientStat is what one client's events add up to since the start.
type clientStat struct {
	Requests, Sent, Refused int
	First, Last             time.Time
	Waited                  time.Duration
	Reasons                 map[string]int // closed list
	Profiles                []string       // bounded
	Kinds                   []string       // closed list
}

func newState() *state {
	s := &state{
		start:   time.Now(),
		hosts:   newLRU[hostStat](maxHosts),
		clients: newLRU[clientStat](maxClients),
		reasons: make(map[string]*window, len(reasons)+1),
		subs:    make(map[*subscriber]struct{}),
	}
	for _, r := range reasons {
		s.reasons[r] = new(window)
	}
	s.reasons[reasonOther] = new(window)
	return s
}

// add takes one record in. It is called in the order of the log.
func (s *state) add(r *record, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = append(s.ring, r)
	s.bytes += r.size
	drop := 0
	for len(s.ring)-drop > maxRecords || s.bytes > maxRecordBytes && len(s.ring)-drop > 1 {
		s.bytes -= s.ring[drop].size
		s.ring[drop] = nil
		drop++
	}
	s.ring = s.ring[drop:]
	for sub := range s.subs {
		sub.offer(r)
	}

	switch r.Type {
	case "gap":
		s.lost += r.Lost
	case "checkpoint":
		s.checkpoint = r.Time
	}
	if !r.judged() {
		return
	}
	s.all.add(now)
	if r.Sent {
		s.sent.add(now)
	}
	if r.Refused() {
		s.refused.add(now)
		s.reasons[known(reasons, r.Reason)].add(now)
	}
	if r.Host != "" {
		s.addHost(r, now)
	}
	// A name that came with a wrong secret is anybody's word.
	if r.Client != "" && r.Reason != "auth-failed" && r.Reason != "auth-required" {
		s.addClient(r)
	}
}

func (s *state) addHost(r *record, now time.Time) {
	h, fresh := s.hosts.touch(r.Host)
	if fresh {
		h.MinGap, h.First = -1, now
	}
	h.Requests++
	h.Last = r.Time
	h.LastReason, h.LastStatus = r.Why(), r.Status
	h.BytesIn += r.BytesIn
	h.Waited += r.TurnWait
	if r.Refused() {
		h.Refused++
	}
	if r.Client != "" && !slices.Contains(h.Clients, r.Client) {
		if len(h.Clients) < maxHostClients {
			h.Clients = append(h.Clients, r.Client)
		} else {
			h.MoreClients = true
		}
	}
	if r.RobotsSHA256 != "" && r.RobotsSHA256 != h.RobotsSHA256 {
		h.RobotsBefore, h.RobotsSHA256 = h.RobotsSHA256, r.RobotsSHA256
	}
	if r.RobotsState != "" && r.RobotsState != "not_consulted" {
		h.RobotsState, h.RobotsStatus = r.RobotsState, r.RobotsStatus
		if !r.RobotsFetched.IsZero() {
			h.RobotsFetched = r.RobotsFetched
		}
	}
	if r.RuleText != "" {
		h.Rule, h.RuleLine = r.RuleText, r.RuleLine
	}
	if !r.Sent {
		return
	}
	h.Sent++
	if what := r.incident(); what != "" {
		h.Incident, h.IncidentAt = what, r.end()
	}
	// A file that rides along owes no gap and says so; only turns are measured.
	if r.Owed == 0 || r.SentAt.IsZero() {
		return
	}
	if !h.lastDone.IsZero() {
		// The closest call, not the shortest gap: 3s are too few where 5s were owed, and 1s enough where 1s was.
		if gap := max(0, r.SentAt.Sub(h.lastDone)); h.MinGap < 0 || gap-r.Owed < h.MinGap-h.MinGapOwed {
			h.MinGap, h.MinGapOwed = gap, r.Owed
		}
	}
	if end := r.end(); end.After(h.lastDone) {
		h.lastDone = end
	}
}

func (s *state) addClient(r *record) {
	c, fresh := s.clients.touch(r.Client)
	if fresh {
		c.First = r.Time
		c.Reasons = make(map[string]int)
	}
	c.Last = r.Time
	c.Requests++
	c.Waited += r.TurnWait
	if r.Sent {
		c.Sent++
	}
	if r.Refused() {
		c.Refused++
		c.Reasons[known(reasons, r.Reason)]++
	}
	if r.Profile != "" && len(c.Profiles) < maxProfiles && !slices.Contains(c.Profiles, r.Profile) {
		c.Profiles = append(c.Profiles, r.Profile)
	}
	if k := r.Kind; slices.Contains(kinds, k) && !slices.Contains(c.Kinds, k) {
		c.Kinds = append(c.Kinds, k)
	}
}

// isNew says whether something first seen at t deserves a mark: within the last
// hour, and not just because this process has been up no longer than that.
func (s *state) isNew(t, now time.Time) bool {
	return now.Sub(t) < newFor && t.Sub(s.start) > newFor
}

// records returns the newest n records that keep selects, newest first.
func (s *state) records(n int, keep func(*record) bool) []*record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*record
	for i := len(s.ring) - 1; i >= 0 && len(out) < n; i-- {
		if keep == nil || keep(s.ring[i]) {
			out = append(out, s.ring[i])
		}
	}
	return out
}

// after returns the records with a higher number, oldest first, and how many
// between seq and the first of them are not kept any more. s.mu is held.
func (s *state) after(seq uint64) (rs []*record, lost uint64) {
	i, _ := slices.BinarySearchFunc(s.ring, seq+1, func(r *record, seq uint64) int {
		switch {
		case r.Seq < seq:
			return -1
		case r.Seq > seq:
			return 1
		}
		return 0
	})
	rs = slices.Clone(s.ring[i:])
	if len(rs) > 0 && rs[0].Seq > seq+1 {
		lost = rs[0].Seq - seq - 1
	}
	return rs, lost
}

// lru is a map with a bound: past it the entry untouched for longest goes.
type lru[T any] struct {
	max   int
	m     map[string]*list.Element
	order *list.List // front: touched last
}

type lruEntry[T any] struct {
	key   string
	value T
}

func newLRU[T any](n int) *lru[T] {
	return &lru[T]{max: n, m: make(map[string]*list.Element), order: list.New()}
}

// touch returns the entry for key, made if it was not there.
func (l *lru[T]) touch(key string) (v *T, fresh bool) {
	if e, ok := l.m[key]; ok {
		l.order.MoveToFront(e)
		return &e.Value.(*lruEntry[T]).value, false
	}
	if len(l.m) >= l.max {
		old := l.order.Back()
		delete(l.m, old.Value.(*lruEntry[T]).key)
		l.order.Remove(old)
	}
	en := &lruEntry[T]{key: key}
	l.m[key] = l.order.PushFront(en)
	return &en.value, true
}

func (l *lru[T]) get(key string) (T, bool) {
	if e, ok := l.m[key]; ok {
		return e.Value.(*lruEntry[T]).value, true
	}
	var zero T
	return zero, false
}

// each visits the entries, touched last first.
func (l *lru[T]) each(f func(key string, v *T)) {
	for e := l.order.Front(); e != nil; e = e.Next() {
		en := e.Value.(*lruEntry[T])
		f(en.key, &en.value)
	}
}

func (l *lru[T]) len() int { return len(l.m) }
