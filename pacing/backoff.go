package pacing

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// verdict is the class of an outcome.
type verdict uint8

const (
	notSent verdict = iota
	aborted
	throttle
	failure
	refusal
	redirected
	good
	verdicts
)

var verdictNames = [verdicts]string{"not_sent", "aborted", "throttle", "failure", "refusal", "redirected", "good"}

func (v verdict) String() string { return verdictNames[v] }
func (v verdict) incident() bool { return v == throttle || v == failure }
func (v verdict) bad() bool      { return v == throttle || v == failure || v == refusal }

// verdict classifies an outcome. What the head of an answer already said counts more than how its body ended.
func (o *Outcome) verdict() verdict {
	switch {
	case !o.Sent:
		return notSent
	case o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable:
		return throttle
	case o.Status >= 500:
		return failure
	case o.Status == http.StatusUnauthorized || o.Status == http.StatusForbidden || o.Status == http.StatusUnavailableForLegalReasons:
		return refusal
	case o.Err != nil:
		var over *Overrun
		var lost *LeaseLost
		if errors.Is(o.Err, context.Canceled) || errors.As(o.Err, &over) || errors.As(o.Err, &lost) {
			return aborted
		}
		return failure
	case o.Status == 0:
		return aborted // sent, and nobody waited for the answer
	case o.Status >= 300 && o.Status < 400 && o.Status != http.StatusNotModified:
		return redirected
	default:
		return good
	}
}

// grown is min(most, base * factor^n).
func grown(base time.Duration, factor float64, n int, most time.Duration) time.Duration {
	d := float64(base) * math.Pow(factor, float64(n))
	if d >= float64(most) {
		return most
	}
	return time.Duration(d)
}

// hold is how long an incident asks for: the longer of our own back-off and Retry-After, jitter only ever added.
func (c *Config) hold(fails int, after time.Duration) time.Duration {
	var own time.Duration
	if fails > 0 {
		own = grown(c.Backoff.Base, c.Backoff.Factor, fails-1, c.Backoff.Cap)
	}
	d := max(own, after)
	return d + time.Duration(float64(d)*c.Backoff.Jitter*rand.Float64()) //nolint:gosec // spreads load, no secret
}

// incident is section 7: what a 429, a 5xx or an error that ended at t does to the back-off. granted is when the request
// was let go, after its Retry-After (0: none).
func (s *state) incident(c *Config, granted, t int64, after time.Duration) {
	if granted < s.incidentAt { // on its way when we learned
		if after > 0 {
			s.holdUntil = max(s.holdUntil, t+int64(c.hold(0, after)))
		}
		return
	}
	before := s.incidentAt != never
	quiet := max(s.holdUntil, s.incidentAt)
	if t >= quiet+int64(c.Backoff.ForgetAfter) {
		s.fails = 0
	}
	s.fails = small(int64(s.fails) + 1)
	if before && t-quiet <= int64(c.Slow.Window) {
		s.level = min(uint8(c.Slow.MaxLevel), s.levelNow(c, t)+1) //nolint:gosec // validated
		s.levelAt = t
		s.endLevel = max(s.endLevel, s.level)
	}
	s.goodRun = 0
	s.incidentAt = t
	s.holdUntil = max(s.holdUntil, t+int64(c.hold(int(s.fails), after)))
}

// answered is what a good or redirected answer does.
func (s *state) answered(c *Config, granted, t int64) {
	if granted < s.incidentAt {
		return
	}
	s.fails = 0
	s.goodRun = small(int64(s.goodRun) + 1)
	if int(s.goodRun) < c.Slow.RecoverAfter {
		return
	}
	if l := s.levelNow(c, t); l > 0 {
		s.level, s.levelAt, s.goodRun = l-1, t, 0
	}
}

// ended records that a turn which leaves a gap ended at t.
func (s *state) ended(c *Config, w *want, t int64) {
	switch {
	case w.class == classRider:
	case w.class == classRobots:
		if !w.free {
			s.robotsEnd, s.robotsGap = t, w.gap
		}
	case w.class == classRedirect: // it came without a gap: what the page before it owed to a wider profile stays owed
		rest := time.Duration(s.lastEnd + int64(s.endGap) - t)
		s.lastEnd, s.endGap, s.endLevel = t, max(w.gap, rest), s.levelNow(c, t)
	default:
		s.lastEnd, s.endGap, s.endLevel = t, w.gap, s.levelNow(c, t)
	}
}
