package pacing

import (
	"math"
	"time"
)

// Times inside the process are nanoseconds on the monotonic clock since the pacer started; never is long before that.
const never = -1 << 60

// state is what a key owes: small, because there may be a million of them.
type state struct {
	lastEnd    int64         // end of the last turn that leaves a gap
	robotsEnd  int64         // end of the last robots.txt fetch that leaves a gap
	holdUntil  int64         // nothing at all goes to the host before
	incidentAt int64         // end of the last incident
	levelAt    int64         // when level was set
	endGap     time.Duration // profile gap of the turn that ended at lastEnd
	robotsGap  time.Duration // profile gap of the fetch that ended at robotsEnd
	slow       time.Duration // the operator's gap
	delay      time.Duration // from robots.txt
	window     []int64       // of the breaker, see outcomes: the end of an outcome, shifted left by one; the lowest bit: bad
	openUntil  int64         // 0: the breaker is closed
	fails      uint16
	goodRun    uint16
	opens      uint16 // how often the breaker opened in a row
	level      uint8  // pace level at levelAt
	endLevel   uint8  // pace level that counts for lastEnd
}

// small is n as one of the counts of a state.
func small(n int64) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

func newState(floor int64) state {
	return state{lastEnd: floor, robotsEnd: never, holdUntil: never, incidentAt: never, levelAt: never}
}

// gap is gap(level) of section 2: profile is the gap of the profile or profiles concerned.
func (c *Config) gap(profile, slow, delay time.Duration, level uint8) time.Duration {
	base := max(profile, slow, delay)
	if level == 0 {
		return min(base, c.LongestDelay)
	}
	if profile == 0 && slow == 0 {
		base = max(base, time.Second)
	}
	return min(min(base, c.LongestDelay)<<level, c.LongestDelay)
}

// levelNow is the pace level after its decay.
func (s *state) levelNow(c *Config, now int64) uint8 {
	if s.level == 0 {
		return 0
	}
	down := (now - s.levelAt) / int64(c.Slow.Decay)
	if down >= int64(s.level) {
		return 0
	}
	return s.level - uint8(max(down, 0)) //nolint:gosec // below s.level
}

// want is what counts of a request for its moment: its class and its profile's gap.
type want struct {
	gap       time.Duration // the profile's
	delay     time.Duration
	notBefore int64 // of a redirect: the Retry-After of its 3xx
	parallel  int32
	class     class
	free      bool // robots.txt without a gap
}

// class says which queue a request stands in.
type class uint8

const (
	classPage     class = iota // the ring
	classRedirect              // before the ring, no gap before
	classRobots                // before everything
	classRider                 // no turn, only a slot
)

// nextAt is when the gap of the last end is over for w.
func (s *state) nextAt(c *Config, w *want) int64 {
	g := max(s.endGap, w.gap)
	if w.class == classRobots {
		g = min(max(g, s.slow), c.LongestDelay)
		return max(s.lastEnd+int64(g), s.robotsEnd+int64(max(s.robotsGap, w.gap)))
	}
	at := s.lastEnd + int64(c.gap(g, s.slow, max(s.delay, w.delay), s.endLevel))
	return max(at, s.robotsEnd+int64(max(s.robotsGap, w.gap)))
}

// ready is when nobody in flight and the state alone would let w go.
func (s *state) ready(c *Config, w *want, now int64) int64 {
	switch {
	case w.class == classRider || w.class == classRobots && w.free:
		return max(now, s.holdUntil)
	case w.class == classRedirect:
		return max(now, s.holdUntil, w.notBefore)
	default:
		return max(now, s.holdUntil, w.notBefore, s.nextAt(c, w))
	}
}

// step is the gap between two turns that follow each other from now on, w the later one.
func (s *state) step(c *Config, other time.Duration, w *want, now int64) int64 {
	return int64(c.gap(max(other, w.gap), s.slow, max(s.delay, w.delay), s.levelNow(c, now)))
}
