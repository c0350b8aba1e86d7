package policy

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// Match is what the Allow and Disallow lines of a group say about one URL.
type Match struct {
	Allowed bool
	Class   string // robots_txt_itself, no_group, no_match, rule_allow, rule_disallow; robots_unreachable with [Ruleset.Err]
	Rule    string // "Disallow: /x" with the value as written; "" when no line decided
	Line    int    // its line, 0 when no line decided
	Octets  int    // length of its canonical pattern
	Group   string // the token, "*", or "" for none
}

// matchBudget bounds the work of one decision, in steps of up to 10 ns: see find. A file that needs more, which none
// does that was written to be read, is answered by its first Disallow line that is left: deny, as for every rule that
// cannot be evaluated.
const matchBudget = 1 << 18

// prefixNode is one literal pattern, or one with stars only at its end. Nodes are sorted by their text; best is the
// rule that wins among the node and all nodes that are prefixes of it.
type prefixNode struct {
	rule   int32 // whose pattern holds the text
	n      int32 // length of the text
	parent int32 // the longest other node that is a prefix of this one, or -1
	best   int32
}

// literal splits a pattern whose wildcards, if any, stand only at its end. `/a*` matches what `/a` does, but has one
// octet more.
func literal(pattern string) (prefix string, ok bool) {
	trimmed := strings.TrimRight(pattern, "*")
	if anchored := strings.HasSuffix(pattern, "$"); anchored {
		inner := pattern[:len(pattern)-1]
		trimmed = strings.TrimRight(inner, "*")
		if len(trimmed) == len(inner) {
			return "", false
		}
	}
	return trimmed, strings.IndexByte(trimmed, '*') < 0
}

// better tells whether rule a wins over rule b: more octets, then Allow, then the line that comes first.
func (g *Group) better(a, b int32) bool {
	x, y := &g.rules[a], &g.rules[b]
	if x.pat.n != y.pat.n {
		return x.pat.n > y.pat.n
	}
	if x.allow != y.allow {
		return x.allow
	}
	return x.line < y.line
}

// index sorts the rules into prefixes, found by one binary search, and wildcard patterns, tried best first.
func (g *Group) index() {
	type lit struct {
		prefix string
		rule   int32
	}
	var lits []lit
	for i := range g.rules {
		pattern := g.str(g.rules[i].pat)
		if p, ok := literal(pattern); ok {
			lits = append(lits, lit{p, int32(i)})
		} else {
			g.wild = append(g.wild, int32(i))
		}
	}
	slices.SortFunc(lits, func(a, b lit) int {
		return cmp.Or(strings.Compare(a.prefix, b.prefix), cmp.Compare(a.rule, b.rule))
	})
	nodes := make([]prefixNode, 0, len(lits))
	var open []int32 // nodes that are prefixes of the one at hand
	for i := 0; i < len(lits); {
		p, best := lits[i].prefix, lits[i].rule
		n := prefixNode{rule: best, n: int32(len(p)), parent: -1}
		for i++; i < len(lits) && lits[i].prefix == p; i++ {
			if g.better(lits[i].rule, best) {
				best = lits[i].rule
			}
		}
		for len(open) > 0 && !strings.HasPrefix(p, g.prefix(&nodes[open[len(open)-1]])) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			n.parent = open[len(open)-1]
			if b := nodes[n.parent].best; g.better(b, best) {
				best = b
			}
		}
		n.best = best
		open = append(open, int32(len(nodes)))
		nodes = append(nodes, n)
	}
	g.prefixes = slices.Clip(nodes)
	slices.SortFunc(g.wild, func(a, b int32) int {
		switch {
		case a == b:
			return 0
		case g.better(a, b):
			return -1
		}
		return 1
	})
	g.wild = slices.Clip(g.wild)
	g.pairs = pairsOf(g)
}

func (g *Group) prefix(n *prefixNode) string { return g.text[g.rules[n.rule].pat.off:][:n.n] }

// bestPrefix finds the winning rule among the literal patterns, or -1. The last node that sorts at or before the
// target shares with it every prefix that any node has: the longest one is that node or one of its parents.
func (g *Group) bestPrefix(target []byte) int32 {
	lo, hi := 0, len(g.prefixes)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if g.prefix(&g.prefixes[mid]) <= string(target) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return -1
	}
	at := int32(lo - 1)
	text := g.prefix(&g.prefixes[at])
	same := 0
	for same < len(text) && same < len(target) && text[same] == target[same] {
		same++
	}
	for at >= 0 && int(g.prefixes[at].n) > same {
		at = g.prefixes[at].parent
	}
	if at < 0 {
		return -1
	}
	return g.prefixes[at].best
}

// find returns the winning rule for a canonical target, or -1.
func (g *Group) find(target []byte, budget *int) int32 {
	best := g.bestPrefix(target)
	var seen pairSet
	for i, w := range g.wild {
		if best >= 0 && !g.better(w, best) {
			break
		}
		if g.pairs != nil {
			if i == 0 {
				seen.fill(target)
			}
			if !seen.hold(g.pairs[i]) {
				continue
			}
		}
		if wildMatch(g.str(g.rules[w].pat), target, budget) {
			return w
		}
		if *budget <= 0 {
			return g.givenUp(w, best)
		}
	}
	return best
}

// givenUp answers for a target when the budget is spent at rule from.
func (g *Group) givenUp(from, best int32) int32 {
	for _, w := range g.wild[slices.Index(g.wild, from):] {
		if best >= 0 && !g.better(w, best) {
			break
		}
		if !g.rules[w].allow {
			return w
		}
	}
	return best
}

// Match tells what the rules binding token say about u: the shortest way for one question about one file. For many
// questions compile a [Group] once.
func (rs *Ruleset) Match(token string, fallback []string, u *url.URL) Match {
	return rs.Group(token, fallback...).Match(u)
}

// Match judges one URL: its path and query, by what is sent.
func (g *Group) Match(u *url.URL) Match {
	var buf [1024]byte
	return g.matchTarget(appendTarget(buf[:0], u))
}

// MatchString is [Group.Match] for an absolute URL or a request target as text; it need not be well formed.
func (g *Group) MatchString(target string) Match {
	var buf [1024]byte
	return g.matchTarget(appendTargetString(buf[:0], target))
}

func (g *Group) matchTarget(target []byte) Match {
	i, class, _ := g.judge(target)
	m := Match{Allowed: class != ClassRuleDisallow && class != ClassUnreachable, Class: class, Group: g.token}
	if i >= 0 {
		m.Rule, m.Line, m.Octets = g.ruleText(i), int(g.rules[i].line), int(g.rules[i].pat.n)
	}
	return m
}

// judge finds the deciding rule (or -1) and the class. A target with dot segments is judged as written and resolved:
// it is denied if either is. spent tells that the budget was, so that the rule may not be the one that matches.
func (g *Group) judge(target []byte) (rule int32, class string, spent bool) {
	resolved := target
	if hasDotSegment(target[:pathLen(target)]) {
		resolved = resolveDots(target)
	}
	if isRobotsTxt(resolved) {
		return -1, ClassRobotsItself, false
	}
	if g.err != nil {
		return -1, ClassUnreachable, false
	}
	if g.token == "" {
		return -1, ClassNoGroup, false
	}
	budget := matchBudget
	i := g.find(resolved, &budget)
	if len(resolved) != len(target) && (i < 0 || g.rules[i].allow) {
		if raw := g.find(target, &budget); raw >= 0 && !g.rules[raw].allow {
			i = raw
		}
	}
	switch {
	case i < 0:
		return -1, ClassNoMatch, budget <= 0
	case g.rules[i].allow:
		return i, ClassRuleAllow, budget <= 0
	}
	return i, ClassRuleDisallow, budget <= 0
}

func (g *Group) ruleText(i int32) string {
	r := &g.rules[i]
	k := kindDisallow
	if r.allow {
		k = kindAllow
	}
	return k.label() + ": " + clean(g.str(r.val))
}
