package policy

import (
	"bytes"
	"strings"
)

// wildMatch tells whether a canonical pattern matches from the first octet: the pieces between the stars are searched
// from left to right, the leftmost occurrence each (the leftmost leaves most room for the rest), first and last
// anchored. Neither backtracking nor allocation.
func wildMatch(pattern string, target []byte, budget *int) bool {
	*budget--
	anchored := pattern[len(pattern)-1] == '$'
	if anchored {
		pattern = pattern[:len(pattern)-1]
	}
	i := strings.IndexByte(pattern, '*')
	if i < 0 {
		return string(target) == pattern // only with an anchor: else it is a prefix
	}
	if len(target) < i || string(target[:i]) != pattern[:i] {
		return false
	}
	target, pattern = target[i:], pattern[i+1:]
	if anchored {
		j := strings.LastIndexByte(pattern, '*')
		last := pattern[j+1:]
		rest := len(target) - len(last)
		if rest < 0 || string(target[rest:]) != last {
			return false
		}
		target, pattern = target[:rest], pattern[:max(j, 0)]
	}
	for pattern != "" {
		piece := pattern
		if j := strings.IndexByte(pattern, '*'); j >= 0 {
			piece, pattern = pattern[:j], pattern[j+1:]
		} else {
			pattern = ""
		}
		if piece == "" {
			continue
		}
		j := indexPiece(target, piece, budget)
		if j < 0 {
			return false
		}
		target = target[j+len(piece):]
	}
	return true
}

// indexPiece is bytes.Index that counts its work: one step for 64 octets passed over and for each candidate, plus one
// for 32 octets of the piece compared.
func indexPiece(s []byte, piece string, budget *int) int {
	rare := rarest(piece)
	c, cost := piece[rare], 1+len(piece)/32
	for i := rare; ; i++ {
		if i+len(piece)-rare > len(s) {
			return -1
		}
		j := bytes.IndexByte(s[i:len(s)-len(piece)+rare+1], c)
		if j < 0 {
			*budget -= 1 + (len(s)-i)/64
			return -1
		}
		*budget -= cost + j/64
		if *budget <= 0 {
			return -1
		}
		i += j
		if string(s[i-rare:i-rare+len(piece)]) == piece {
			return i - rare
		}
	}
}

// rarest is the place of the octet of a piece that is rarest in URLs, among its first 8.
func rarest(piece string) int {
	at, best := 0, uint8(255)
	for i := range min(len(piece), 8) {
		if f := frequency[piece[i]]; f < best {
			at, best = i, f
		}
	}
	return at
}

// frequency ranks octets by how often they stand in URLs; the figures matter only relative to each other.
var frequency = func() (t [256]uint8) {
	for i, c := range []byte("_~ABCDEFGHIJKLMNOPQRSTUVWXYZ:;,!'()@+&=?jqxzkvw7689543210%bfgymhdplucnsrtoiae.-/") {
		t[c] = uint8(i + 1)
	}
	return t
}()
