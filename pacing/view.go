package pacing

import (
	"sort"
	"time"
)

// View is what would happen to a request now. Nothing is changed by looking.
type View struct {
	Known     bool          // there is state for the key
	Reason    Reason        // "" when it would be granted within its Wait
	Until     time.Time     // when its turn would come, a forecast
	Wait      time.Duration // from now until then
	Gap       time.Duration // the gap in force
	Source    string        // of the gap, see Turn.Owed
	State     string        // free | held | owing
	Breaker   string        // closed | open | half-open
	Delay     time.Duration // from robots.txt
	Level     int           // pace level: the gap is doubled so often
	Fails     int           // incidents in a row
	HoldUntil time.Time     // zero: no hold
	OpenUntil time.Time     // zero: the breaker is not open
	Waiting   int
	InFlight  int
	Riders    int
}

// Peek says what Acquire would say, for `check` and the admin page. No state is created.
func (p *Pacer) Peek(r Request) View {
	v := p.peek(&r, r.Key, false)
	if r.DomainKey != "" {
		d := p.peek(&r, domainName(r.DomainKey), true)
		if d.Until.After(v.Until) {
			v.Until, v.Wait = d.Until, d.Wait
			if v.Reason == "" {
				v.Reason = d.Reason
			}
		}
	}
	return v
}

func (p *Pacer) peek(r *Request, name string, wide bool) View {
	var seen *reply
	if p.shared != nil {
		var err error
		if seen, err = p.look(name, r.URL); err != nil {
			now := p.now()
			return View{Reason: Overloaded, Until: p.time(now + int64(overloadRetry)), Wait: overloadRetry, State: "unknown", Breaker: "unknown"}
		}
	}
	s, hash := p.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.find(hash, name), p.now()
	known := k != nil
	if !known {
		k = newEntry(name, newState(p.floor))
	}
	if seen != nil {
		p.mirror(k, seen, now)
		known = known || k.lastEnd != never || k.holdUntil != never || !k.closed()
	}
	w := waiter{want: p.want(r), kind: r.Kind, client: r.Client, deadline: now + int64(min(max(r.Wait, 0), maxWait)), part: &part{wide: wide}}
	if !wide && k.rides(r.Kind, r.Companions == OwnTurn, w.delay) {
		w.class, w.parallel = classRider, int32(p.c.CompanionParallel) //nolint:gosec // a small count
	}
	v := View{Known: known, Delay: max(k.delay, w.delay), Level: int(k.levelNow(&p.c, now)), Fails: int(k.fails), Waiting: k.waiting(), Riders: int(k.riders)}
	gap, src := k.owed(&p.c, &w.want)
	v.Gap, v.Source = gap, src.String()
	for pt := k.turns; pt != nil; pt = pt.next {
		v.InFlight++
	}
	switch {
	case v.InFlight > 0:
		v.State = "held"
	case known && k.ready(&p.c, &want{gap: w.gap}, now) > now:
		v.State = "owing"
	default:
		v.State = "free"
	}
	switch {
	case k.closed():
		v.Breaker = "closed"
	case k.open(now):
		v.Breaker, v.OpenUntil = "open", p.time(k.openUntil)
	default:
		v.Breaker = "half-open"
	}
	if k.holdUntil > now {
		v.HoldUntil = p.time(k.holdUntil)
	}
	if b := p.barred(k, r.Kind, r.URL, now); b != nil {
		v.Reason, v.Until, v.Wait = b.Reason, b.Until, b.Until.Sub(p.time(now))
		return v
	}
	if seen != nil && seen.status == stLeft && r.Kind != Robots {
		v.Reason, v.Wait = URLLeft, time.Duration(seen.wait)*time.Microsecond
		v.Until = p.time(now + int64(v.Wait))
		return v
	}
	at := k.placed(&p.c, &w, now)
	v.Until, v.Wait = p.time(at), time.Duration(at-now)
	if at > w.deadline {
		v.Reason = p.tooFar(k, &w, at, now).Reason
	}
	return v
}

// placed is the forecast for a request that is not in the queue.
func (k *entry) placed(c *Config, w *waiter, now int64) int64 {
	if w.class != classPage || k.waiting() == 0 {
		return k.alone(c, &w.want, now)
	}
	q := &k.ext.queues
	q.pages.push(w)
	at := k.earliest(c, w, now)
	q.pages.remove(w)
	return at
}

// HostView is one host as the admin page shows it.
type HostView struct {
	Host      string        `json:"host"`
	State     string        `json:"state"` // known | owing | held_back | slowed | stopped
	Waiting   int           `json:"waiting"`
	Clients   []string      `json:"clients,omitempty"` // who waits, in ring order
	InFlight  int           `json:"in_flight"`
	Riders    int           `json:"riders,omitempty"`
	NextAt    time.Time     `json:"next_at"` // for a page of the profile that went last
	Gap       time.Duration `json:"gap"`
	Delay     time.Duration `json:"delay,omitempty"`
	Level     int           `json:"level,omitempty"`
	Fails     int           `json:"fails,omitempty"`
	HoldUntil time.Time     `json:"hold_until,omitzero"`
	OpenUntil time.Time     `json:"open_until,omitzero"`
	PagesLeft int           `json:"pages_left,omitempty"`
}

// The states of a host in metrics, the worst last.
const (
	stateKnown = iota
	stateOwing
	stateHeldBack
	stateSlowed
	stateStopped
	hostStates
)

var hostStateNames = [hostStates]string{"known", "owing", "held_back", "slowed", "stopped"}

func (k *entry) hostState(c *Config, now int64) int {
	switch {
	case !k.closed():
		return stateStopped
	case now < k.holdUntil:
		return stateHeldBack
	case k.levelNow(c, now) > 0:
		return stateSlowed
	case k.turns != nil || now < k.nextAt(c, &want{}):
		return stateOwing
	}
	return stateKnown
}

// Hosts are the n hosts in the worst state, then with the most waiting. It walks all keys, one shard at a time.
func (p *Pacer) Hosts(n int) []HostView {
	type item struct {
		HostView
		rank int
	}
	var all []item
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		now := p.now()
		for k := range s.all() {
			if k.scope == scopeAddress {
				continue
			}
			rank := k.hostState(&p.c, now)
			it := item{p.hostView(k, rank, now), rank}
			all = append(all, it)
		}
		s.mu.Unlock()
		if len(all) > 4*n+1024 {
			sort.Slice(all, func(i, j int) bool { return worse(&all[i].HostView, all[i].rank, &all[j].HostView, all[j].rank) })
			all = all[:n]
		}
	}
	sort.Slice(all, func(i, j int) bool { return worse(&all[i].HostView, all[i].rank, &all[j].HostView, all[j].rank) })
	views := make([]HostView, 0, min(n, len(all)))
	for i := range min(n, len(all)) {
		views = append(views, all[i].HostView)
	}
	return views
}

func worse(a *HostView, ra int, b *HostView, rb int) bool {
	switch {
	case ra != rb:
		return ra > rb
	case a.Waiting != b.Waiting:
		return a.Waiting > b.Waiting
	case !a.NextAt.Equal(b.NextAt):
		return a.NextAt.After(b.NextAt)
	}
	return a.Host < b.Host
}

func (p *Pacer) hostView(k *entry, rank int, now int64) HostView {
	w := want{}
	v := HostView{
		Host: k.name, State: hostStateNames[rank], Waiting: k.waiting(), Riders: int(k.riders), Delay: k.delay,
		Level: int(k.levelNow(&p.c, now)), Fails: int(k.fails), NextAt: p.time(max(now, k.alone(&p.c, &w, now))),
		Gap: p.c.gap(k.endGap, k.slow, k.delay, k.endLevel),
	}
	for pt := k.turns; pt != nil; pt = pt.next {
		v.InFlight++
	}
	if k.holdUntil > now {
		v.HoldUntil = p.time(k.holdUntil)
	}
	if k.open(now) {
		v.OpenUntil = p.time(k.openUntil)
	}
	if k.ext != nil {
		for _, l := range k.ext.queues.pages.lines {
			v.Clients = append(v.Clients, l.client)
		}
		for id := range k.ext.pages.m {
			if k.ext.pages.left(&p.c, id, now) != 0 {
				v.PagesLeft++
			}
		}
	}
	return v
}
