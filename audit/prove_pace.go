package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// paceClass says how a request relates to a turn, as the gate decided it.
type paceClass uint8

const (
	paceTurn   paceClass = iota // waits for the gap
	paceHop                     // a redirect's target: takes the turn, without a gap before it
	paceRobots                  // robots.txt: the gaps of the profiles alone
	paceRides                   // no turn
	paceFree                    // a profile without turns
)

// proofSent is one request that was sent (or an attempt that never reached the site, which only the end matters of).
type proofSent struct {
	spot
	host, domain int32 // domain -1: none
	start, end   int64 // milliseconds since 1970
	granted      int64 // no earlier was it let go
	owed         int64 // as recorded
	gap          int64 // of its profile
	delay        int64 // that the archived robots.txt asked for
	after        int64 // Retry-After
	pacing       *ProofPacing
	parallel     int32
	class        paceClass
	companion    bool
	quiet        bool // robots.txt that keeps no gap
	attempt      bool // nothing reached the site
	incident     bool // 429 or 5xx
	perhaps      bool // a failure that the gate may have taken for one
	good         bool // an answer that ends a back-off
	judged       bool
	known        bool // its configuration is at hand

	violating, unprovable, exempt bool
	why                           string
}

// note keeps of an event what its host's pace needs.
func (p *prover) note(e *Event) *proofSent {
	attempt := !e.Sent && e.Decision == Failed
	if !e.Sent && !attempt {
		return nil
	}
	s := &proofSent{spot: p.at, host: p.name(e.Host), domain: -1, attempt: attempt, owed: e.DelayOwedMS, after: e.RetryAfterS * 1000}
	s.granted = e.Time.UnixMilli() + e.TurnWaitMS
	if attempt {
		s.start = e.Time.UnixMilli() + e.TotalMS
		s.end = s.start
	} else {
		s.start, s.end = e.SentAt.UnixMilli(), max(e.SentAt.UnixMilli(), e.DoneAt.UnixMilli())
	}
	if e.Status == 101 || strings.HasPrefix(strings.ToLower(e.ContentType), "text/event-stream") {
		s.end = s.start // an upgraded connection and an event stream hold no turn once their head is there
	}
	s.incident = e.Status == 429 || e.Status >= 500
	s.perhaps = e.Decision == Failed
	s.good = !s.incident && e.Status >= 200 && e.Status != 401 && e.Status != 403 && e.Status != 451 && e.Decision == Forwarded
	if e.Status >= 300 && e.Status < 400 {
		p.threes[e.ID] = e.Host
	}
	switch e.Kind {
	case "robots":
		s.class = paceRobots
	case "redirect":
		from, known := p.threes[e.RedirectOf]
		if e.RedirectOf != "" && (!known || from == e.Host) {
			s.class = paceHop
		}
	case "subresource", "render", "repeat":
		s.companion = true
		if e.DelayOwedMS == 0 {
			s.class = paceRides
		}
	}
	if attempt {
		s.quiet = true
	}
	p.sent = append(p.sent, s)
	return s
}

// promise takes over what the profile promises.
func (s *proofSent) promise(e *Event, pol *ProofPolicy, prof *ProofProfile) {
	if prof == nil {
		return
	}
	s.known, s.pacing = true, &pol.Pacing
	s.gap, s.parallel = prof.Gap.Milliseconds(), int32(min(max(prof.Parallel, 1), 1000))
	switch {
	case prof.Unpaced:
		s.class = paceFree
	case s.class == paceHop && prof.OwnRedirects, s.class == paceRides && prof.OwnCompanions:
		s.class = paceTurn
	case s.class == paceRobots && (prof.FreeRobots || e.Hops > 0 && e.DelayOwedMS == 0):
		s.quiet = true
	}
}

// pace replays each host's requests, and each domain's, in the order they went out.
func (p *prover) pace() {
	byKey := make([][]*proofSent, len(p.names))
	for _, s := range p.sent {
		byKey[s.host] = append(byKey[s.host], s)
		if s.domain >= 0 {
			byKey[s.domain] = append(byKey[s.domain], s)
		}
	}
	for key, list := range byKey {
		if len(list) > 0 {
			w := &paceWalk{p: p, key: int32(key), wide: strings.HasPrefix(p.names[key], "*."), lastEnd: -1, robotsEnd: -1, otherEnd: -1, hold: -1, incidentAt: -1, learned: -1}
			w.walk(list)
		}
	}
}

// paceWalk is the state of one key. It is a lower bound of what the gate owed: jitter, the operator's own slowing and
// failures of the network only ever add to it.
type paceWalk struct {
	p    *prover
	key  int32
	wide bool // a domain: gaps alone

	lastEnd, robotsEnd, otherEnd int64 // ends of turns, of robots.txt with a gap, of any robots.txt; -1: none
	endGap, robotsGap            int64
	endLevel                     int
	hold, incidentAt             int64
	learned                      int64 // the last moment at which the gate may have learned of an incident
	fails, level, goodRun        int
	levelAt                      int64
	inFlight, riders             []*proofSent
	lives, resumes               int
}

// walk goes through starts and ends in order; at one moment ends come first.
func (w *paceWalk) walk(list []*proofSent) {
	starts := slices.Clone(list)
	slices.SortStableFunc(starts, func(a, b *proofSent) int { return cmp.Compare(a.start, b.start) })
	ends := list
	slices.SortStableFunc(ends, func(a, b *proofSent) int { return cmp.Compare(a.end, b.end) })
	began := map[*proofSent]bool{}
	e := 0
	for _, s := range starts {
		for e < len(ends) && ends[e].end <= s.start && (began[ends[e]] || ends[e].attempt) {
			w.ended(ends[e])
			e++
		}
		w.newLife(s.start)
		w.resumed(s.start)
		if s.attempt {
			continue
		}
		w.begin(s)
		began[s] = true
	}
}

// newLife drops what a restart loses: after a crash the count of failures, not what is owed.
func (w *paceWalk) newLife(now int64) {
	for ; w.lives < len(w.p.lives) && w.p.lives[w.lives].at <= now; w.lives++ {
		w.endGap, w.robotsGap = 0, 0
		if w.p.lives[w.lives].unclean {
			w.fails, w.level, w.endLevel, w.goodRun, w.incidentAt = 0, 0, 0, 0, -1
		}
		w.inFlight, w.riders = nil, nil
	}
}

// resumed forgets the back-off of a host that the operator let in again. The gap stays owed.
func (w *paceWalk) resumed(now int64) {
	all := w.p.resumed[w.key]
	for ; w.resumes < len(all) && all[w.resumes] <= now; w.resumes++ {
		w.hold, w.incidentAt, w.learned = -1, -1, -1
		w.fails, w.level, w.goodRun = 0, 0, 0
	}
}

// begin judges a start.
func (w *paceWalk) begin(s *proofSent) {
	if s.class == paceFree {
		return
	}
	if s.judged && s.known && !w.wide {
		w.p.rep.Checks[CheckPace].Checked++
		w.p.rep.Checks[CheckOne].Checked++
	}
	if s.class != paceRides {
		s.granted = max(s.granted, w.lastEnd, w.robotsEnd)
	}
	switch {
	case !s.judged || !s.known:
	case w.wide:
		if s.class == paceTurn {
			w.gapKept(s)
		}
	default:
		w.alone(s)
		if s.start < w.hold-1 && s.granted >= w.learned {
			w.bad(s, "held", fmt.Sprintf("the host asked to be left alone, and it was sent %s too early", ms(w.hold-s.start)))
		} else {
			w.gapKept(s)
		}
	}
	if s.class == paceRides {
		w.riders = append(w.riders, s)
	} else {
		w.inFlight = append(w.inFlight, s)
	}
}

// bad reports a breach of the pace.
func (w *paceWalk) bad(s *proofSent, reason, text string) {
	w.p.violation(s, CheckPace, reason, text, nil)
}

// alone checks that no more are under way than the profile allows.
func (w *paceWalk) alone(s *proofSent) {
	if s.class == paceRides {
		if n := len(w.riders) + 1; s.pacing.Riders > 0 && n > s.pacing.Riders {
			w.p.violation(s, CheckOne, "riders", fmt.Sprintf("%d files of pages were under way at once", n), nil)
		}
		return
	}
	limit := int(s.parallel)
	if s.delay > 0 || w.levelNow(s.pacing, s.start) > 0 {
		limit = 1
	}
	for _, o := range w.inFlight {
		if o.known {
			limit = min(limit, int(o.parallel)) // the smallest promise of those concerned
		}
	}
	if n := len(w.inFlight) + 1; n > limit {
		other := w.inFlight[0]
		w.p.violation(s, CheckOne, "overlap", fmt.Sprintf("%d requests were under way at once; the one of seq %d ended %s after this one began", n, other.seq, ms(other.end-s.start)), nil)
	}
}

// gapKept compares the gap before a request with what was owed, as recorded and as worked out again.
func (w *paceWalk) gapKept(s *proofSent) {
	var need, since int64
	switch {
	case s.class == paceTurn:
		need = w.gap(s)
	case s.class == paceRobots && !s.quiet:
		need = min(max(w.endGap, s.gap), s.pacing.LongestDelay.Milliseconds())
	case s.class == paceRides && s.delay > 0:
		w.bad(s, "rides", fmt.Sprintf("the site asks for %s between requests, and it waited for no turn", ms(s.delay)))
		return
	default:
		return
	}
	if w.lastEnd >= 0 {
		since = s.start - w.lastEnd
		if s.class == paceTurn && !w.wide {
			w.measure(s, since, need)
		}
		if since < need-1 {
			w.bad(s, "below_gap", fmt.Sprintf("it was sent %s after the end of the one before, and %s were owed", ms(since), ms(need)))
			return
		}
	}
	if w.robotsEnd >= 0 && !w.wide {
		if since, need := s.start-w.robotsEnd, max(w.robotsGap, s.gap); since < need-1 {
			w.bad(s, "below_gap", fmt.Sprintf("it was sent %s after the end of a robots.txt fetch, and %s were owed", ms(since), ms(need)))
			return
		}
	}
	if w.wide {
		return
	}
	if end := max(w.lastEnd, w.robotsEnd); end >= 0 && s.start-end < s.owed-1 {
		w.bad(s, "below_owed", fmt.Sprintf("it was sent %s after the end of the one before, and %s are recorded as owed", ms(s.start-end), ms(s.owed)))
		return
	}
	// Right after robots.txt the profile's own gap is what is recorded.
	if w.otherEnd > w.lastEnd {
		need = min(need, s.gap)
	}
	if s.owed < need {
		w.bad(s, "owed_understated", fmt.Sprintf("%s are recorded as owed, and it was %s", ms(s.owed), ms(need)))
	}
}

// gap is what a turn owes after the one before (pacing, section 2).
func (w *paceWalk) gap(s *proofSent) int64 {
	longest := s.pacing.LongestDelay.Milliseconds()
	profile := max(w.endGap, s.gap)
	base := max(profile, s.delay)
	if w.endLevel == 0 {
		return min(base, longest)
	}
	if profile == 0 {
		base = max(base, 1000)
	}
	return min(min(base, longest)<<w.endLevel, longest)
}

// measure keeps the smallest gap of a host.
func (w *paceWalk) measure(s *proofSent, since, need int64) {
	g := w.p.gaps[w.p.names[s.host]]
	if g == nil {
		g = &ProofGap{SmallestMS: since, OwedMS: max(need, s.owed), Seq: s.seq}
		w.p.gaps[w.p.names[s.host]] = g
	}
	g.Requests++
	if since < g.SmallestMS {
		g.SmallestMS, g.OwedMS, g.Seq = since, max(need, s.owed), s.seq
	}
}

// ended takes an end into the state.
func (w *paceWalk) ended(s *proofSent) {
	drop := func(list []*proofSent) []*proofSent {
		return slices.DeleteFunc(list, func(o *proofSent) bool { return o == s })
	}
	w.inFlight, w.riders = drop(w.inFlight), drop(w.riders)
	if s.class == paceRobots {
		w.otherEnd = s.end
	}
	if s.attempt {
		w.learned = max(w.learned, s.end)
		return
	}
	if s.pacing != nil && !w.wide {
		w.answered(s)
	}
	switch {
	case s.class == paceRides, s.class == paceFree:
	case s.class == paceRobots:
		if !s.quiet && !w.wide {
			w.robotsEnd, w.robotsGap = s.end, s.gap
		}
	case s.class == paceHop:
		rest := int64(0)
		if w.lastEnd >= 0 {
			rest = w.lastEnd + w.endGap - s.end
		}
		w.lastEnd, w.endGap, w.endLevel = s.end, max(s.gap, rest), w.levelNow(s.pacing, s.end)
	default:
		w.lastEnd, w.endGap, w.endLevel = s.end, s.gap, w.levelNow(s.pacing, s.end)
	}
}

// answered is what an answer does to the back-off (pacing, section 7).
func (w *paceWalk) answered(s *proofSent) {
	c, t := s.pacing, s.end
	switch {
	case s.incident:
		after := min(s.after, c.RetryAfterCap.Milliseconds())
		// What was on its way when the gate learned is the same incident. Of what a profile without turns sends nobody
		// can tell from the log whether it is: only the site's own word is certain.
		same := s.class == paceFree || s.granted < w.learned
		w.learned = max(w.learned, t)
		if same {
			if after > 0 {
				w.hold = max(w.hold, t+after)
			}
			return
		}
		before, quiet := w.incidentAt >= 0, max(w.hold, w.incidentAt)
		if t >= quiet+c.ForgetAfter.Milliseconds() {
			w.fails = 0
		}
		w.fails++
		if before && t-quiet <= c.SlowWindow.Milliseconds() {
			w.level, w.levelAt = min(c.SlowLevels, w.levelNow(s.pacing, s.end)+1), t
		}
		w.goodRun, w.incidentAt = 0, t
		own := float64(c.BackoffBase.Milliseconds())
		for n := 1; n < w.fails && own < float64(c.BackoffCap.Milliseconds()); n++ {
			own *= c.BackoffFactor
		}
		w.hold = max(w.hold, t+max(min(int64(own), c.BackoffCap.Milliseconds()), after))
	case s.perhaps:
		w.learned = max(w.learned, t)
	case s.good && s.start >= w.incidentAt:
		w.fails = 0
		if w.goodRun++; w.goodRun >= c.SlowRecover {
			if l := w.levelNow(s.pacing, s.end); l > 0 {
				w.level, w.levelAt, w.goodRun = l-1, t, 0
			}
		}
	}
}

// levelNow is the pace level after its decay.
func (w *paceWalk) levelNow(c *ProofPacing, t int64) int {
	if w.level == 0 || c == nil || c.SlowDecay < time.Millisecond {
		return 0
	}
	return max(0, w.level-int(max(0, t-w.levelAt)/c.SlowDecay.Milliseconds()))
}

// ms says a time for people.
func ms(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
