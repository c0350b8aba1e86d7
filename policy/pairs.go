package policy

import "strings"

// A file with many wildcard rules is searched for few of them: a target that lacks one of the rarer pairs of octets of
// a pattern cannot match it, and which pairs it has is looked up once.

// fewWild is the number of wildcard rules up to which looking at each is faster.
const fewWild = 16

// pairSet is a set of pairs of neighbouring octets, by an 11-bit hash: it may hold a pair too many, never one too few.
type pairSet [32]uint64

func pairHash(a, b byte) uint16 {
	return uint16((uint32(a)<<8 | uint32(b)) * 2654435761 >> 21)
}

func (s *pairSet) fill(target []byte) {
	s[anyPair>>6] |= 1 << (anyPair & 63)
	for i := 1; i < len(target); i++ {
		h := pairHash(target[i-1], target[i])
		s[h>>6] |= 1 << (h & 63)
	}
}

func (s *pairSet) hold(pairs [3]uint16) bool {
	a, b, c := pairs[0], pairs[1], pairs[2]
	return s[a>>6]>>(a&63)&1 == 1 && s[b>>6]>>(b&63)&1 == 1 && s[c>>6]>>(c&63)&1 == 1
}

// pairsOf picks the rarest pairs of each wildcard rule; nil when there are few rules.
func pairsOf(g *Group) [][3]uint16 {
	if len(g.wild) <= fewWild {
		return nil
	}
	out := make([][3]uint16, len(g.wild))
	for i, w := range g.wild {
		out[i] = rarestPairs(g.str(g.rules[w].pat))
	}
	return out
}

// anyPair stands for a pair where a pattern has too few; every set holds it.
var anyPair = pairHash(0, 0)

// rarestPairs are the three rarest pairs of a pattern; anyPair where it has fewer.
func rarestPairs(pattern string) (out [3]uint16) {
	rank := [3]int{1 << 20, 1 << 20, 1 << 20}
	out = [3]uint16{anyPair, anyPair, anyPair}
	for _, piece := range strings.Split(strings.TrimSuffix(pattern, "$"), "*") {
		for i := 1; i < len(piece); i++ {
			r := int(frequency[piece[i-1]]) + int(frequency[piece[i]])
			for k := range rank {
				if r < rank[k] {
					copy(rank[k+1:], rank[k:])
					copy(out[k+1:], out[k:])
					rank[k], out[k] = r, pairHash(piece[i-1], piece[i])
					break
				}
			}
		}
	}
	return out
}
