package configs

import (
	"fmt"
	"slices"
	"strings"
)

// suggest names the key that was probably meant: a near one here, else the same word elsewhere.
func (p *parser) suggest(s *shape, word string) (hint, meant string) {
	if len(p.problems) >= maxTold {
		return "", ""
	}
	names := make([]string, 0, len(s.fields))
	for _, f := range s.fields {
		names = append(names, f.name)
	}
	if strings.Contains(word, ".") {
		var whole string
		keyPaths(s, "", func(path string) {
			if path == strings.ToLower(word) {
				whole = path
			}
		})
		if first, rest, ok := strings.Cut(whole, "."); ok {
			return fmt.Sprintf("; write %s: {%s: ...}", first, strings.ReplaceAll(rest, ".", ": {")) + strings.Repeat("}", strings.Count(rest, ".")), ""
		}
	}
	if n := nearest(word, names); n != "" {
		return "; did you mean " + n + "?", n
	}
	var elsewhere []string
	keyPaths(p.root, "", func(path string) {
		if path == word || strings.HasSuffix(path, "."+word) {
			elsewhere = append(elsewhere, path)
		}
	})
	if len(elsewhere) > 0 {
		return "; did you mean " + elsewhere[0] + "?", ""
	}
	if len(names) <= 12 {
		return "; the keys here are " + keyList(s), ""
	}
	return "", ""
}

// keyPaths calls fn for every key of the schema; lists show as profiles[].name.
func keyPaths(s *shape, path string, fn func(string)) {
	switch s.kind {
	case kindStruct:
		for _, f := range s.fields {
			fn(join(path, f.name))
			keyPaths(f.shape, join(path, f.name), fn)
		}
	case kindList:
		keyPaths(s.elem, path+"[]", fn)
	}
}

func keyList(s *shape) string {
	names := make([]string, 0, len(s.fields))
	for _, f := range s.fields {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// nearest is the candidate that a person probably meant, or "".
func nearest(word string, candidates []string) string {
	best, bestDist := "", 1+max(1, min(3, len(word)/3))
	if len(word) > 64 {
		return ""
	}
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c); d < bestDist {
			best, bestDist = c, d
		}
	}
	if best == "" && len(word) >= 3 {
		for _, c := range candidates {
			if strings.HasPrefix(c, strings.ToLower(word)) || strings.HasSuffix(c, "_"+strings.ToLower(word)) {
				return c
			}
		}
	}
	return best
}

// distance is the number of single-letter edits (swaps of neighbours count one) from a to b.
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// sortedKeys is for messages that list names.
func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
