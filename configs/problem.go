package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong, or worth a warning, with its place.
type Problem struct {
	File string `json:"file,omitempty"` // the file as it was named; "" when the value came from elsewhere
	Line int    `json:"line,omitempty"` // 1-based; 0: no line
	Key  string `json:"key,omitempty"`  // path such as profiles[0].pacing.gap, or the variable's or flag's name
	Text string `json:"text"`           // what is wrong, and what to write instead

	from     origin
	meant    string // the key that an unknown one was probably meant to be
	sentence bool   // Text goes on from the key ("is not a key"), so no colon stands between
}

// String is the problem without file and line.
func (p Problem) String() string {
	switch {
	case p.Key == "":
		return p.Text
	case p.sentence:
		return p.Key + " " + p.Text
	}
	return p.Key + ": " + p.Text
}

func (p Problem) group() string {
	if p.File != "" {
		return p.File
	}
	switch p.from {
	case fromEnv:
		return "environment"
	case fromFlag:
		return "flags"
	}
	return "configuration"
}

// Error holds every problem of a load.
type Error struct{ Problems []Problem }

// Error is one block for each file: its name and count, then a line for each problem.
func (e *Error) Error() string { return formatProblems(e.Problems, "problem") }

// formatProblems writes the block form of problems or warnings, without a last newline.
func formatProblems(ps []Problem, noun string) string {
	ps = slices.Clone(ps)
	var order []string
	groups := map[string][]Problem{}
	for _, p := range ps {
		g := p.group()
		if _, ok := groups[g]; !ok {
			order = append(order, g)
		}
		groups[g] = append(groups[g], p)
	}
	var b strings.Builder
	for _, g := range order {
		list := groups[g]
		slices.SortStableFunc(list, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		plural := "s"
		if len(list) == 1 {
			plural = ""
		}
		fmt.Fprintf(&b, "%s: %d %s%s", g, len(list), noun, plural)
		width := 0
		for _, p := range list {
			if p.Line > 0 {
				width = max(width, len(fmt.Sprint(p.Line)))
			}
		}
		for _, p := range list {
			switch {
			case p.Line > 0:
				fmt.Fprintf(&b, "\n  line %-*d  %s", width, p.Line, clean(p.String()))
			default:
				fmt.Fprintf(&b, "\n  %s", clean(p.String()))
			}
		}
	}
	return b.String()
}

// clean keeps one problem on one line whatever the file holds.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// FormatWarnings is the block form of warnings, in the form of Error; "" for none.
func FormatWarnings(ps []Problem) string {
	if len(ps) == 0 {
		return ""
	}
	return formatProblems(ps, "warning")
}
