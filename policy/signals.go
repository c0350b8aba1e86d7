package policy

import (
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// The keys of Content-Signal that say something, and their values, the least restrictive first. Level 0 is silence.
const (
	sigSearch = iota
	sigAIInput
	sigAITrain
	sigUse
	sigKeys
)

var (
	signalKeys   = [sigKeys]string{"search", "ai-input", "ai-train", "use"}
	signalValues = [sigKeys][]string{{"yes", "no"}, {"yes", "no"}, {"yes", "no"}, {"full", "reference", "immediate"}}
)

// levels holds one level per key: 0 nothing said, else 1 + index in signalValues; the higher binds.
type levels [sigKeys]uint8

// signal is one Content-Signal or Content-Usage line. pat is empty for a line that covers every path.
type signal struct {
	levels   levels
	usage    bool
	line     int32
	pat, val text
}

// effective is what all signals together say about one URL: the level of each key and the line it comes from, as an
// index into Group.signals.
type effective struct {
	levels levels
	from   [sigKeys]int32
	values map[string]string
}

// parseSignal reads the value of a line; a path in front is returned as written. ok is false when it says nothing.
func parseSignal(k kind, value string) (s signal, pattern string, ok bool) {
	if strings.HasPrefix(value, "/") {
		i := strings.IndexAny(value, " \t")
		if i < 0 {
			return s, "", false
		}
		pattern, value = value[:i], trimValue(value[i:])
	}
	if k == kindContentUsage {
		s.usage = true
		s.levels = usageLevels([]string{value})
	} else {
		signalPairs(value, func(key, val string) { s.levels.raise(key, val) })
	}
	return s, pattern, s.levels != levels{}
}

// raise takes one pair in; of two values of one key the more restrictive counts. known is false if it says nothing.
func (l *levels) raise(key, val string) (known bool) {
	k := slices.Index(signalKeys[:], strings.ToLower(key))
	if k < 0 {
		return false
	}
	v := slices.Index(signalValues[k], strings.ToLower(val))
	if v < 0 && k != sigUse {
		v = slices.Index([]string{"y", "n"}, strings.ToLower(val))
	}
	if v < 0 {
		return false
	}
	l[k] = max(l[k], uint8(v+1))
	return true
}

// signalPairs calls f for each `key=value` of a Content-Signal: separated by comma, semicolon or blank, blanks around
// the =, quotes around the value. An item without = is passed with an empty value.
func signalPairs(s string, f func(key, val string)) {
	sep := func(c byte) bool { return c == ',' || c == ';' || asciiSpace(c) }
	for i := 0; i < len(s); {
		if sep(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && !sep(s[i]) && s[i] != '=' {
			i++
		}
		key := s[start:i]
		j := i
		for j < len(s) && asciiSpace(s[j]) {
			j++
		}
		if j == len(s) || s[j] != '=' {
			f(key, "")
			continue
		}
		for i = j + 1; i < len(s) && asciiSpace(s[i]); {
			i++
		}
		start = i
		if i < len(s) && (s[i] == '"' || s[i] == '\'') {
			if end := strings.IndexByte(s[i+1:], s[i]); end >= 0 {
				f(key, trimASCII(s[i+1:i+1+end]))
				i += end + 2
				continue
			}
		}
		for i < len(s) && !sep(s[i]) {
			i++
		}
		f(key, s[start:i])
	}
}

// usageLevels reads Content-Usage: an RFC 9651 dictionary, of which `search` and `train-ai` with the tokens y and n
// count (draft-ietf-aipref-vocab). A line that is no dictionary says nothing.
func usageLevels(lines []string) (l levels) {
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return l
	}
	for _, name := range dict.Names() {
		k := slices.Index([]string{"search", "train-ai"}, name)
		if k < 0 {
			continue
		}
		member, _ := dict.Get(name)
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		k = []int{sigSearch, sigAITrain}[k]
		switch item.Value {
		case httpsfv.Token("y"):
			l[k] = 1
		case httpsfv.Token("n"):
			l[k] = 2
		}
	}
	return l
}

// combine works out what all lines say together about a target. Of each kind of line and for each key the longest
// path that matches counts, no path being the shortest; among equals, and between the two kinds, the most restrictive.
// Content-Usage says nothing about a path that may not be crawled (draft-ietf-aipref-attach).
func (g *Group) combine(target []byte, crawled bool) (e effective) {
	var octets [2][sigKeys]uint32
	var at [2]levels
	var from [2][sigKeys]int32
	budget := matchBudget
	for i := range g.signals {
		s := &g.signals[i]
		if s.usage && !crawled || s.pat.n > 0 && !patternMatch(g.str(s.pat), target, &budget) {
			continue
		}
		if budget <= 0 {
			return g.strictest(crawled)
		}
		kind := 0
		if s.usage {
			kind = 1
		}
		for k, v := range s.levels {
			switch old, n := at[kind][k], octets[kind][k]; {
			case v == 0, old > 0 && s.pat.n < n, old > 0 && s.pat.n == n && v <= old:
			default:
				at[kind][k], octets[kind][k], from[kind][k] = v, s.pat.n, int32(i)
			}
		}
	}
	for k := range sigKeys {
		kind := 0
		switch a, b := at[0][k], at[1][k]; {
		case b > a, b == a && from[1][k] < from[0][k]:
			kind = 1
		}
		e.levels[k], e.from[k] = at[kind][k], from[kind][k]
	}
	e.values = e.levels.words()
	return e
}

// strictest takes every line for one that covers every path: the answer when working out which do takes too long.
func (g *Group) strictest(crawled bool) (e effective) {
	for i := range g.signals {
		if g.signals[i].usage && !crawled {
			continue
		}
		for k, v := range g.signals[i].levels {
			if v > e.levels[k] {
				e.levels[k], e.from[k] = v, int32(i)
			}
		}
	}
	e.values = e.levels.words()
	return e
}

// words gives the levels as text, nil for none.
func (l levels) words() map[string]string {
	if l == (levels{}) {
		return nil
	}
	m := make(map[string]string, sigKeys)
	for k, v := range l {
		if v > 0 {
			m[signalKeys[k]] = signalValues[k][v-1]
		}
	}
	return m
}

// String gives the levels as `ai-input=no, search=yes`, in a fixed order.
func (l levels) String() string {
	var b strings.Builder
	for k, v := range l {
		if v == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(signalKeys[k] + "=" + signalValues[k][v-1])
	}
	return b.String()
}

// staticSignals is the answer for every URL when no line has a path, so that no request works it out again.
func (g *Group) staticSignals() *effective {
	for i := range g.signals {
		if g.signals[i].pat.n > 0 {
			return nil
		}
	}
	if len(g.signals) == 0 {
		return nil
	}
	e := g.combine(nil, true)
	return &e
}

// signalsFor is what the signals say about a target that may be crawled; nil when there are none. Dot segments are
// resolved before.
func (g *Group) signalsFor(target []byte) *effective {
	if len(g.signals) == 0 || g.static != nil {
		return g.static
	}
	if hasDotSegment(target[:pathLen(target)]) {
		target = resolveDots(target)
	}
	e := g.combine(target, true)
	return &e
}

// signalsOfDenied is what the signals say about a target that a rule denies.
func (g *Group) signalsOfDenied(target []byte) map[string]string {
	if hasDotSegment(target[:pathLen(target)]) {
		target = resolveDots(target)
	}
	e := g.combine(target, false)
	return e.values
}

// hasUsage tells whether any line is a Content-Usage.
func (g *Group) hasUsage() bool {
	for i := range g.signals {
		if g.signals[i].usage {
			return true
		}
	}
	return false
}

// stopped finds the line of the signals that stops a target, and what they say then. Like the rules, they are asked
// about a target with dot segments as written, too: it is stopped if either is.
func (g *Group) stopped(sig *effective, target []byte, stopOn []string) (says *effective, from int32, stop string) {
	from, stop = g.stopAt(sig, stopOn)
	if from >= 0 || sig == nil || sig == g.static || len(stopOn) == 0 || !hasDotSegment(target[:pathLen(target)]) {
		return sig, from, stop
	}
	raw := g.combine(target, true)
	if from, stop = g.stopAt(&raw, stopOn); from >= 0 {
		sig = &raw
	}
	return sig, from, stop
}

// Signals are the effective signals for a URL as text: keys search, ai-input, ai-train and use. The map must not be
// changed; it is nil when the file says nothing.
func (g *Group) Signals(target string) map[string]string {
	if e := g.signalsFor(appendTargetString(nil, target)); e != nil {
		return e.values
	}
	return nil
}

// stopAt finds the first line with a signal that is in stopOn (`key=value`). No Allow lifts it: it is a Disallow: /.
func (g *Group) stopAt(e *effective, stopOn []string) (from int32, stop string) {
	from = -1
	if e == nil {
		return from, ""
	}
	for _, s := range stopOn {
		k, v := stopLevel(s)
		if k < 0 || e.levels[k] != v {
			continue
		}
		if f := e.from[k]; from < 0 || g.signals[f].line < g.signals[from].line {
			from, stop = f, s
		}
	}
	return from, stop
}

// stopLevel reads one entry of stop_on; key -1 means that it is none.
func stopLevel(s string) (key int, level uint8) {
	name, value, _ := strings.Cut(s, "=")
	for k, n := range signalKeys {
		if n != name {
			continue
		}
		for v, w := range signalValues[k] {
			if w == value {
				return k, uint8(v + 1)
			}
		}
	}
	return -1, 0
}

func (g *Group) signalText(i int32) string {
	s := &g.signals[i]
	k := kindContentSignal
	if s.usage {
		k = kindContentUsage
	}
	return k.label() + ": " + clean(g.str(s.val))
}

// patternMatch tells whether any canonical pattern, literal or not, matches. With the budget spent it says yes.
func patternMatch(pattern string, target []byte, budget *int) bool {
	*budget--
	if p, ok := literal(pattern); ok {
		return len(target) >= len(p) && string(target[:len(p)]) == p
	}
	return wildMatch(pattern, target, budget) || *budget <= 0
}

// StopOnFor is what stops an agent that says what it uses content for and sets no stop_on: X=no for each purpose X,
// with search also use=immediate.
func StopOnFor(purposes []string) []string {
	out := []string{}
	for _, p := range purposes {
		if k := slices.Index(signalKeys[:sigUse], p); k < 0 {
			continue
		}
		out = append(out, p+"=no")
		if p == signalKeys[sigSearch] {
			out = append(out, "use=immediate")
		}
	}
	return out
}
