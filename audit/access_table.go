package audit

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// TableStyle says how [AccessReport.WriteTable] writes.
type TableStyle struct {
	Width     int // columns; 0: 100
	Color     bool
	ByPurpose bool // one block for each category
}

// tableList is how many violations, and files with malformed lines, a table shows.
const tableList = 40

// WriteTable writes the report for people.
func (r *AccessReport) WriteTable(w io.Writer, style TableStyle) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	t := &tableWriter{r: r, style: style, width: max(style.Width, 40)}
	t.summary()
	t.crawlers()
	t.violations()
	t.delays()
	t.impersonators()
	t.inputs()
	t.check()
	_, err := io.WriteString(w, t.b.String())
	return err
}

type tableWriter struct {
	r     *AccessReport
	style TableStyle
	width int
	b     strings.Builder
}

const (
	inkBold = "\x1b[1m"
	inkDim  = "\x1b[2m"
	inkRed  = "\x1b[31m"
	inkOff  = "\x1b[0m"
)

func (t *tableWriter) ink(ink, s string) string {
	if !t.style.Color || s == "" {
		return s
	}
	return ink + s + inkOff
}

func (t *tableWriter) heading(s string) { fmt.Fprintf(&t.b, "\n%s\n", t.ink(inkBold, s)) }

// text writes words, broken at the width, with an indent for the lines after the first.
func (t *tableWriter) text(indent, more int, s string) {
	t.b.WriteString(strings.Repeat(" ", indent))
	t.textAt(indent, more, s)
}

// textAt is text for a line that has been begun up to column col.
func (t *tableWriter) textAt(col, more int, s string) {
	line := ""
	for i, word := range strings.Fields(s) {
		n := utf8.RuneCountInString(word)
		if i > 0 && col+1+n > t.width {
			t.b.WriteString(line + "\n")
			col, line = more, strings.Repeat(" ", more)
		} else if i > 0 {
			line += " "
			col++
		}
		line += strings.ReplaceAll(word, "\x00", " ")
		col += n
	}
	t.b.WriteString(line + "\n")
}

// cut shortens logged text to n columns and makes it safe to print.
func cut(s string, n int) string {
	s = Printable(s, 4*max(n, 8))
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:max(n-1, 1)]) + "…"
}

// list joins the counts that are not 0.
func countList(pairs ...any) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if n := pairs[i].(int64); n != 0 {
			out = append(out, Group(n)+" "+pairs[i+1].(string))
		}
	}
	return strings.Join(out, ", ")
}

// plural is a count with its noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Group(n) + " " + many
}

func (t *tableWriter) summary() {
	x := &t.r.Totals
	t.b.WriteString(t.ink(inkBold, "crawler access audit") + "\n")
	first, last := t.span()
	if first != "" {
		fmt.Fprintf(&t.b, "  crawlers seen from %s to %s\n", people(first), people(last))
	}
	rest := countList(x.Malformed, "malformed", x.Filtered, "outside the window", x.Duplicates, "duplicates", x.Blank, "blank", x.Comments, "comments")
	if rest != "" {
		rest = " (" + rest + ")"
	}
	t.text(2, 4, fmt.Sprintf("%s in %s: %s%s", plural(x.Lines, "line", "lines"), plural(int64(len(t.r.Inputs)), "log", "logs"), plural(x.Requests, "request", "requests"), rest))
	t.text(2, 4, fmt.Sprintf("%s by known crawlers: %s genuine (%s verified, %s not checkable), %s impersonated", Group(x.Claims), Group(x.Genuine), Group(x.Verified), Group(x.Unverified), Group(x.Impersonated)))
	t.text(2, 4, fmt.Sprintf("of the genuine: %s allowed, %s disallowed, %s unjudged", Group(x.Allowed), Group(x.Disallowed), Group(x.Unjudged)))
}

// span is the first and the last genuine request.
func (t *tableWriter) span() (first, last string) {
	for _, c := range t.r.Crawlers {
		if c.First == "" {
			continue
		}
		if first == "" || c.First < first {
			first = c.First
		}
		last = max(last, c.Last)
	}
	return first, last
}

// people shortens a time of the report.
func people(stamp string) string {
	if len(stamp) < 19 {
		return stamp
	}
	return stamp[:10] + " " + stamp[11:19] + "Z"
}

type tableColumn struct {
	name  string
	value func(c *AccessCrawler) string
	drop  int // the higher, the sooner it goes when the width is short
	red   bool
}

func (t *tableWriter) columns() []tableColumn {
	num := func(f func(c *AccessCrawler) int64) func(c *AccessCrawler) string {
		return func(c *AccessCrawler) string { return Group(f(c)) }
	}
	return []tableColumn{
		{"total", num(func(c *AccessCrawler) int64 { return c.Total }), 0, false},
		{"genuine", num(func(c *AccessCrawler) int64 { return c.Genuine }), 1, false},
		{"verified", num(func(c *AccessCrawler) int64 { return c.Verified }), 5, false},
		{"impersonated", num(func(c *AccessCrawler) int64 { return c.Impersonated }), 2, true},
		{"allowed", num(func(c *AccessCrawler) int64 { return c.Allowed }), 3, false},
		{"disallowed", num(func(c *AccessCrawler) int64 { return c.Disallowed }), 0, true},
		{"unjudged", num(func(c *AccessCrawler) int64 { return c.Unjudged }), 6, false},
		{"unproductive", func(c *AccessCrawler) string {
			return fmt.Sprintf("%d.%02d %%", c.NonProductive.ShareBP/100, c.NonProductive.ShareBP%100)
		}, 4, false},
	}
}

func (t *tableWriter) crawlers() {
	names := t.r.names()
	if len(names) == 0 {
		t.heading("crawlers")
		t.b.WriteString("  none of the known ones\n")
		return
	}
	if !t.style.ByPurpose {
		t.heading("crawlers")
		t.table(names, true)
		return
	}
	for _, cat := range categories {
		var in []string
		for _, n := range names {
			if t.r.Crawlers[n].Category == cat {
				in = append(in, n)
			}
		}
		if in != nil {
			t.heading(cat)
			t.table(in, false)
		}
	}
}

func (t *tableWriter) table(names []string, withCategory bool) {
	head := []string{"crawler"}
	rows := make([][]string, len(names))
	for i, n := range names {
		rows[i] = []string{cut(n, 28)}
	}
	left := 1
	if withCategory {
		left = 2
		head = append(head, "category")
		for i, n := range names {
			rows[i] = append(rows[i], t.r.Crawlers[n].Category)
		}
	}
	cols := t.columns()
	for {
		width := 0
		all := append([][]string{slices.Clone(head)}, make([][]string, len(rows))...)
		for _, c := range cols {
			all[0] = append(all[0], c.name)
		}
		for i, n := range names {
			all[i+1] = slices.Clone(rows[i])
			for _, c := range cols {
				all[i+1] = append(all[i+1], c.value(t.r.Crawlers[n]))
			}
		}
		widths := make([]int, len(all[0]))
		for _, row := range all {
			for i, cell := range row {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
		for _, n := range widths {
			width += n + 2
		}
		if worst := mostDroppable(cols); width > t.width && worst >= 0 {
			cols = slices.Delete(cols, worst, worst+1)
			continue
		}
		for k, row := range all {
			line := "  "
			for i, cell := range row {
				pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
				if i >= left && k > 0 && cols[i-left].red && cell != "0" {
					cell = t.ink(inkRed, cell)
				}
				if k == 0 {
					cell = t.ink(inkDim, cell)
				}
				if i < left {
					line += cell + pad
				} else {
					line += pad + cell
				}
				line += "  "
			}
			t.b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		return
	}
}

func mostDroppable(cols []tableColumn) int {
	worst := -1
	for i, c := range cols {
		if c.drop > 0 && (worst < 0 || c.drop > cols[worst].drop) {
			worst = i
		}
	}
	return worst
}

func (t *tableWriter) violations() {
	if t.r.Totals.Disallowed == 0 {
		return
	}
	t.heading("requests that robots.txt forbade")
	type row struct {
		name string
		v    *AccessViolation
	}
	var rows []row
	for _, n := range t.r.names() {
		for i := range t.r.Crawlers[n].Violations {
			rows = append(rows, row{n, &t.r.Crawlers[n].Violations[i]})
		}
	}
	last := ""
	for i, x := range rows {
		if i == tableList {
			fmt.Fprintf(&t.b, "  and %d more rules (all of them: --format json, or --format csv --list violations)\n", len(rows)-i)
			break
		}
		if x.name != last {
			fmt.Fprintf(&t.b, "  %s\n", cut(x.name, 60))
			last = x.name
		}
		v := x.v
		where := cut(v.Host, 60) + "/robots.txt "
		rule := fmt.Sprintf("line %d%s: %s", v.Line, since(v.Version), glue(cut(v.Rule, max(t.width-16, 24))))
		if v.Reason != "rule" {
			rule = "could not be read" + since(v.Version) + ": everything is forbidden"
		}
		t.b.WriteString(t.ink(inkRed, fmt.Sprintf("%9s", Group(v.Requests))) + "  ")
		t.textAt(11, 13, where+rule)
		var examples []string
		for _, e := range v.Examples {
			examples = append(examples, cut(e, max(t.width-17, 20)))
		}
		t.b.WriteString(t.ink(inkDim, wrap(15, t.width, examples)))
	}
}

// glue keeps a text on one line: its blanks are not broken at.
func glue(s string) string { return strings.ReplaceAll(s, " ", "\x00") }

// wrap lists texts, as many in a line as fit.
func wrap(indent, width int, items []string) string {
	var b strings.Builder
	col := 0
	for _, s := range items {
		n := utf8.RuneCountInString(s)
		switch {
		case col == 0:
			b.WriteString(strings.Repeat(" ", indent))
			col = indent
		case col+2+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			col = indent
		default:
			b.WriteString("  ")
			col += 2
		}
		b.WriteString(s)
		col += n
	}
	if col > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

func since(version string) string {
	if version == "" {
		return ""
	}
	return " (since\x00" + glue(people(version)) + ")"
}

func (t *tableWriter) delays() {
	if !t.r.Settings.Delay {
		return
	}
	t.heading("gaps against Crawl-delay")
	n := 0
	for _, name := range t.r.names() {
		d := t.r.Crawlers[name].CrawlDelay
		if d == nil || d.Checked == 0 {
			continue
		}
		n++
		short := Group(d.Violations) + " too short"
		if d.Violations > 0 {
			short = t.ink(inkRed, short)
		}
		fmt.Fprintf(&t.b, "  %-24s %s checked, %s, smallest %d.%03d s\n", cut(name, 24), Group(d.Checked), short, d.MinGapMS/1000, d.MinGapMS%1000)
	}
	if n == 0 {
		t.b.WriteString("  no crawler has one\n")
	} else if t.r.Settings.DelayToleranceMS < 1000 {
		t.text(2, 4, "logs in whole seconds show a gap up to a second too short: --delay-tolerance 1s allows for it")
	}
}

func (t *tableWriter) impersonators() {
	if t.r.Totals.Impersonated == 0 {
		return
	}
	t.heading("impersonated: the name is a crawler's, the address is not")
	for _, name := range t.r.names() {
		c := t.r.Crawlers[name]
		if c.Impersonated == 0 {
			continue
		}
		fmt.Fprintf(&t.b, "  %s  %s from %s\n", cut(name, 28), plural(c.Impersonated, "request", "requests"), plural(c.ImpersonatorAddresses, "address", "addresses"))
		var items []string
		for _, a := range c.Impersonators {
			items = append(items, fmt.Sprintf("%s (%s)", a.Address, Group(a.Requests)))
		}
		t.b.WriteString(t.ink(inkDim, wrap(6, t.width, items)))
	}
}

func (t *tableWriter) inputs() {
	m := t.r.Malformed
	if t.r.Totals.Malformed > 0 {
		t.heading("lines that could not be read")
		t.text(2, 4, countList(m.Structure, "structure", m.Address, "address", m.Time, "time", m.Request, "request", m.Status, "status", m.JSON, "JSON", m.Format, "unknown format"))
		n := 0
		for _, in := range t.r.Inputs {
			if in.Malformed == 0 {
				continue
			}
			if n++; n <= tableList {
				fmt.Fprintf(&t.b, "  %7s of %s in %s (%s)\n", Group(in.Malformed), Group(in.Lines), cut(in.Path, t.width-30), in.Format)
			}
		}
	}
	var notes []string
	for _, in := range t.r.Inputs {
		if in.Skipped != "" {
			notes = append(notes, cut(in.Path, 60)+": "+cut(in.Skipped, 80)+", not read")
		}
		if in.Error != "" {
			notes = append(notes, t.ink(inkRed, cut(in.Path, 60)+": "+cut(in.Error, 80)))
		}
	}
	if len(notes) > 0 {
		t.heading("logs")
		for _, n := range notes {
			fmt.Fprintf(&t.b, "  %s\n", n)
		}
	}
}

func (t *tableWriter) check() {
	s := t.r.SelfCheck
	if s.OK {
		t.heading("self-check")
		t.text(2, 4, fmt.Sprintf("passed: %d rules, %d groups, %d changes of robots.txt, %d sums", len(s.Rules), len(s.Groups), len(s.Versions), s.Sums.Checked))
		return
	}
	t.heading(t.ink(inkRed, "SELF-CHECK FAILED: do not rely on this report"))
	for _, p := range t.r.Problems {
		t.text(2, 4, p)
	}
}
