package policy

import (
	"slices"
	"strings"
)

// reachBudget bounds the work for one pattern with wildcards, in octets of pattern times octets of target.
const reachBudget = 1 << 22

// Depends tells whether what is not known of a target could change what the group decides about it. An audit asks it of a
// URL whose query was masked: where no rule looks there, the decision stands.
//
// The target (a path, or an absolute URL) is given in parts; between two of them stands a masked value, which holds
// neither & nor ; nor ?. The first part has the whole path and the question mark. With open anything may follow the last
// part. The answer may be a yes too much, never a no too much.
func (g *Group) Depends(parts []string, open bool, o Options) bool {
	if len(parts) == 0 {
		return true
	}
	parts = slices.Clone(parts)
	last := &parts[len(parts)-1]
	if i := strings.LastIndexByte(*last, '%'); open && i >= 0 && i > len(*last)-3 {
		*last = (*last)[:i] // half an escape says nothing
	}
	target := appendTargetString(nil, parts[0])
	resolved := target
	if hasDotSegment(target[:pathLen(target)]) {
		resolved = resolveDots(target)
	}
	if isRobotsTxt(resolved) {
		return false
	}
	for i := 1; i < len(parts); i++ {
		parts[i] = string(appendCanonical(nil, parts[i], false))
	}
	parts[0] = string(resolved)
	if g.depends(parts, open, o) {
		return true
	}
	if len(resolved) == len(target) {
		return false
	}
	parts[0] = string(target)
	return g.depends(parts, open, o)
}

// depends tells whether a signal may count or not, or a rule that may match would overrule the best of those that do.
func (g *Group) depends(parts []string, open bool, o Options) bool {
	if len(o.StopOn) > 0 && slices.ContainsFunc(g.signals, func(s signal) bool {
		must, may := reach(g.str(s.pat), parts, open)
		return s.pat.n > 0 && may && !must
	}) {
		return true
	}
	if g.token == "" {
		return false
	}
	best := int32(-1)
	var perhaps []int32
	for i := range g.rules {
		must, may := reach(g.str(g.rules[i].pat), parts, open)
		switch n := int32(i); {
		case must:
			if best < 0 || g.better(n, best) {
				best = n
			}
		case may:
			perhaps = append(perhaps, n)
		}
	}
	allowed := best < 0 || g.rules[best].allow
	return slices.ContainsFunc(perhaps, func(n int32) bool {
		return g.rules[n].allow != allowed && (best < 0 || g.better(n, best))
	})
}

// reach tells whether a canonical pattern matches a target whatever stands for what is not known of it, and whether it
// may match.
func reach(pattern string, parts []string, open bool) (must, may bool) {
	if pattern == "" {
		return true, true
	}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if len(pattern)*size > reachBudget {
		return false, true
	}
	anchored := pattern[len(pattern)-1] == '$'
	if anchored {
		pattern = pattern[:len(pattern)-1]
	}
	sure, perhaps := newStates(pattern, anchored), newStates(pattern, anchored)
	for i, p := range parts {
		if i > 0 {
			sure.starred()
			perhaps.masked()
		}
		for k := range len(p) {
			sure.read(p[k])
			perhaps.read(p[k])
		}
	}
	if !open {
		return sure.ended(), perhaps.ended()
	}
	return sure.done, perhaps.done || slices.Contains(perhaps.at, true)
}

// states follow a pattern through a target: at[i] says that its first i octets may have matched what was read so far.
type states struct {
	pattern  string
	at       []bool
	anchored bool
	done     bool // all of it matched: what follows does not matter
}

func newStates(pattern string, anchored bool) *states {
	s := &states{pattern: pattern, at: make([]bool, len(pattern)+1), anchored: anchored}
	s.at[0] = true
	s.skip()
	return s
}

// skip lets stars stand for nothing.
func (s *states) skip() {
	for i := range len(s.pattern) {
		if s.at[i] && s.pattern[i] == '*' {
			s.at[i+1] = true
		}
	}
	s.done = s.done || s.at[len(s.pattern)] && !s.anchored
}

func (s *states) read(c byte) {
	for i := len(s.pattern); i >= 0; i-- {
		step := i > 0 && s.at[i-1] && s.pattern[i-1] != '*' && s.pattern[i-1] == c
		stay := i < len(s.pattern) && s.at[i] && s.pattern[i] == '*'
		s.at[i] = step || stay
	}
	s.skip()
}

// masked reads a value of which nothing is known but what it does not hold.
func (s *states) masked() {
	for i := range len(s.pattern) {
		if c := s.pattern[i]; s.at[i] && c != '&' && c != ';' && c != '?' {
			s.at[i+1] = true
		}
	}
	s.skip()
}

// starred reads any value by stars alone.
func (s *states) starred() {
	for i := range s.at {
		s.at[i] = s.at[i] && i < len(s.pattern) && s.pattern[i] == '*'
	}
	s.skip()
}

func (s *states) ended() bool { return s.done || s.at[len(s.pattern)] }
