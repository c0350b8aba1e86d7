package policy

import (
	"slices"
	"strings"
)

// reachBudget bounds the work for one pattern with wildcards, in octets of pattern times octets of target.
const reachBudget = 1 << 22

// Depends tells whether what may follow known, the beginning of a target (a path, or an absolute URL), could change what
// the group decides. An audit asks it of a URL whose query was masked: where no rule looks that far, the decision stands.
// The answer may be a yes too much, never a no too much. The end of the path must be part of known.
func (g *Group) Depends(known string, o Options) bool {
	if i := strings.LastIndexByte(known, '%'); i >= 0 && i > len(known)-3 {
		known = known[:i] // half an escape says nothing
	}
	target := appendTargetString(nil, known)
	resolved := target
	if hasDotSegment(target[:pathLen(target)]) {
		resolved = resolveDots(target)
	}
	if isRobotsTxt(resolved) {
		return false
	}
	if len(o.StopOn) > 0 && slices.ContainsFunc(g.signals, func(s signal) bool {
		_, open := reach(g.str(s.pat), string(resolved))
		return s.pat.n > 0 && open
	}) {
		return true
	}
	return g.token != "" && (g.depends(string(resolved)) || len(resolved) != len(target) && g.depends(string(target)))
}

// depends tells whether a rule that may match would overrule the best of those that do.
func (g *Group) depends(target string) bool {
	best := int32(-1)
	var open []int32
	for i := range g.rules {
		matched, more := reach(g.str(g.rules[i].pat), target)
		switch n := int32(i); {
		case matched:
			if best < 0 || g.better(n, best) {
				best = n
			}
		case more:
			open = append(open, n)
		}
	}
	allowed := best < 0 || g.rules[best].allow
	return slices.ContainsFunc(open, func(n int32) bool {
		return g.rules[n].allow != allowed && (best < 0 || g.better(n, best))
	})
}

// reach tells whether a canonical pattern matches every target that begins with known, or, if not, whether it matches
// some of them.
func reach(pattern, known string) (matched, open bool) {
	if pattern == "" {
		return true, false
	}
	anchored := pattern[len(pattern)-1] == '$'
	if anchored {
		pattern = pattern[:len(pattern)-1]
	}
	if strings.IndexByte(pattern, '*') < 0 {
		if !anchored && strings.HasPrefix(known, pattern) {
			return true, false
		}
		return false, strings.HasPrefix(pattern, known)
	}
	if len(pattern)*len(known) > reachBudget {
		return false, true
	}
	// at[i]: the first i octets of the pattern may have matched what was read so far.
	at := make([]bool, len(pattern)+1)
	at[0] = true
	skip := func() { // a star may stand for nothing
		for i := range len(pattern) {
			if at[i] && pattern[i] == '*' {
				at[i+1] = true
			}
		}
	}
	skip()
	for k := range len(known) {
		if at[len(pattern)] && !anchored {
			return true, false
		}
		for i := len(pattern); i >= 0; i-- {
			from := i > 0 && at[i-1] && pattern[i-1] == known[k]
			stay := i < len(pattern) && at[i] && pattern[i] == '*'
			at[i] = from && pattern[i-1] != '*' || stay
		}
		skip()
	}
	if at[len(pattern)] && !anchored {
		return true, false
	}
	return false, slices.Contains(at, true)
}
