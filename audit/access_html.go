package audit

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed access_report.html.tmpl
var accessPage string

//go:embed access_report.css
var accessStyle string

var accessTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"num":   func(n int64) string { return solid(Group(n)) },
	"day":   people,
	"safe":  func(s string) string { return Printable(s, 400) },
	"host":  hostShown,
	"share": func(part, whole int64) string { return share(part, whole) },
	"bp":    func(n int64) string { return share(n, 10_000) },
	"secs":  func(ms int64) string { return fmt.Sprintf("%d.%03d s", ms/1000, ms%1000) },
	"short": func(s string) string { return s[:min(len(s), 12)] },
}).Parse(accessPage))

// WriteHTML writes the report as one page that needs nothing else: no script, no file, no network. All text of the log
// is escaped, and the page's own policy forbids everything but its style.
func (r *AccessReport) WriteHTML(w io.Writer) error {
	sum := sha256.Sum256([]byte(accessStyle))
	return accessTemplate.Execute(w, struct {
		*AccessReport
		Style      template.CSS
		StyleHash  string
		Title      string
		Span       string
		Verdict    []string
		Time       barChart
		Crawler    rowChart
		Each       stripChart
		Waste      rowChart
		Names      []string
		Wasted     int64
		Violations []htmlViolation
		More       int
	}{
		r, template.CSS(accessStyle), base64.StdEncoding.EncodeToString(sum[:]), r.title(), r.spanText(), r.verdict(),
		r.timeChart(), r.crawlerChart(), r.stripChart(), r.wasteChart(), r.names(), r.wasted(), r.htmlViolations(), max(0, r.ruleCount()-htmlRows),
	})
}

const htmlRows = 200

type htmlViolation struct {
	Crawler string
	AccessViolation
}

// wasted counts the genuine requests that brought nothing.
func (r *AccessReport) wasted() (n int64) {
	for _, c := range r.Crawlers {
		n += c.NonProductive.Total
	}
	return n
}

func (r *AccessReport) ruleCount() (n int) {
	for _, c := range r.Crawlers {
		n += len(c.Violations)
	}
	return n
}

// htmlViolations are the rules broken most often.
func (r *AccessReport) htmlViolations() []htmlViolation {
	var out []htmlViolation
	for _, n := range r.names() {
		for _, v := range r.Crawlers[n].Violations {
			out = append(out, htmlViolation{n, v})
		}
	}
	slices.SortStableFunc(out, func(a, b htmlViolation) int { return cmp.Compare(b.Requests, a.Requests) })
	return out[:min(len(out), htmlRows)]
}

// title names the hosts that were judged.
func (r *AccessReport) title() string {
	var hosts []string
	for _, v := range r.Robots {
		if v.Judged > 0 && v.Host != "" && !slices.Contains(hosts, v.Host) {
			hosts = append(hosts, v.Host)
		}
	}
	if len(hosts) == 0 && r.Settings.Host != "" {
		hosts = append(hosts, r.Settings.Host)
	}
	switch {
	case len(hosts) == 0:
		return "Crawler access audit"
	case len(hosts) > 3:
		return fmt.Sprintf("Crawlers at %s and %d more hosts", strings.Join(hosts[:2], ", "), len(hosts)-2)
	}
	return "Crawlers at " + strings.Join(hosts, ", ")
}

func (r *AccessReport) spanText() string {
	from, to := int64(maxTime), int64(minTime)
	for h := range r.hours {
		from, to = min(from, h), max(to, h)
	}
	if from > to {
		return ""
	}
	day := func(h int64) string { return time.Unix(h*3600, 0).UTC().Format("2 January 2006") }
	if day(from) == day(to) {
		return day(from)
	}
	return day(from) + " to " + day(to)
}

func share(part, whole int64) string {
	if whole == 0 {
		return "0\u00a0%"
	}
	bp := (2*1000*part + whole) / (2 * whole)
	return fmt.Sprintf("%d.%d\u00a0%%", bp/10, bp%10)
}

// solid keeps a number on one line.
func solid(s string) string { return strings.ReplaceAll(s, " ", "\u00a0") }

// verdict says in sentences what a site's owner wants to know first.
func (r *AccessReport) verdict() []string {
	t := &r.Totals
	var out []string
	switch {
	case t.Claims == 0:
		return []string{"No known crawler was seen in these logs."}
	case t.Genuine == 0:
		out = append(out, "No genuine crawler was seen in these logs.")
	case t.Disallowed == 0 && t.Unjudged == t.Genuine:
		out = append(out, fmt.Sprintf("%s of genuine crawlers. No robots.txt was given for their time, so none could be judged.", plural(t.Genuine, "request", "requests")))
	case t.Disallowed == 0:
		out = append(out, fmt.Sprintf("Genuine crawlers kept robots.txt in all %s that could be judged.", plural(t.Allowed, "request", "requests")))
	default:
		broke := 0
		worst := ""
		for _, n := range r.names() {
			if c := r.Crawlers[n]; c.Disallowed > 0 {
				broke++
				if worst == "" || c.Disallowed > r.Crawlers[worst].Disallowed {
					worst = n
				}
			}
		}
		out = append(out, fmt.Sprintf("%s of %s by genuine crawlers went where robots.txt forbade it (%s), by %s; most by %s.", Group(t.Disallowed),
			plural(t.Genuine, "request", "requests"), share(t.Disallowed, t.Genuine), plural(int64(broke), "crawler", "crawlers"), worst))
	}
	if t.Impersonated > 0 {
		out = append(out, fmt.Sprintf("%s used a crawler's name from an address that is not that crawler's. They count for nothing else.", plural(t.Impersonated, "request", "requests")))
	}
	return out
}

// barChart is stacked bars over time.
type barChart struct {
	Unit    string
	Bars    []timeBar
	Ticks   []tick
	Labels  []tick
	Changes []change // of robots.txt
	Rows    []timeRow
}

type timeBar struct {
	X, W  float64
	Parts []part
	Title string
}

type part struct {
	Class   string
	X, Y    float64
	W, H    float64
	Percent string
}

type tick struct {
	At   float64
	Text string
}

type change struct {
	At    float64
	Title string
}

// maxChanges is how many changes of robots.txt a picture marks; more would hide the bars.
const maxChanges = 12

// changes places those that lie inside the picture.
func (r *AccessReport) changes(first, last, size int64, slot float64) (out []change) {
	for i, v := range r.Robots {
		if i == 0 || r.Robots[i-1].Host != v.Host || v.Judged+r.Robots[i-1].Judged == 0 {
			continue
		}
		at, err := time.Parse(time.RFC3339, v.Effective)
		if err != nil {
			continue
		}
		x := float64(at.Unix())/3600/float64(size) - float64(first)
		if x > 0 && x < float64(last-first+1) {
			out = append(out, change{chartLeft + slot*x, fmt.Sprintf("%s: robots.txt since %s, status %d", hostShown(v.Host), people(v.Effective), v.Status)})
		}
	}
	if len(out) > maxChanges {
		return nil
	}
	return out
}

type timeRow struct {
	Name string
	hourCounts
}

// Geometry of the pictures, in the units of their view boxes.
const (
	chartWidth, chartLeft, chartHeight, chartTop = 1000.0, 56.0, 240.0, 12.0
)

func (r *AccessReport) timeChart() barChart {
	var c barChart
	s, ok := r.timeScale()
	if !ok {
		return c
	}
	c.Unit = s.unit
	sums, top := s.sums(r.hours)
	step := niceStep(top)
	top = (top + step - 1) / step * step
	y := func(n int64) float64 { return chartTop + chartHeight*(1-float64(n)/float64(top)) }
	for v := int64(0); v <= top; v += step {
		c.Ticks = append(c.Ticks, tick{y(v), Group(v)})
	}
	slot := s.slot(chartLeft, chartWidth)
	c.Changes = r.changes(s.first, s.last, s.size, slot)
	c.Labels = s.labels(chartLeft, chartWidth)
	for b := s.first; b <= s.last; b++ {
		n := sums[b]
		if n == nil {
			continue
		}
		if n.total() > 0 {
			c.Bars = append(c.Bars, stacked(s.name(b), n, chartLeft+slot*(float64(b-s.first)+0.5), slot, y))
		}
		if n.total()+n.Other > 0 {
			c.Rows = append(c.Rows, timeRow{s.name(b), *n})
		}
	}
	return c
}

// stacked is one bar around x, in a slot so wide.
func stacked(name string, n *hourCounts, x, slot float64, y func(int64) float64) timeBar {
	width := min(slot*0.78, 46)
	bar := timeBar{X: x - width/2, W: width, Title: fmt.Sprintf("%s: %d allowed, %d disallowed, %d unjudged, %d impersonated", name, n.Allowed, n.Disallowed, n.Unjudged, n.Impersonated)}
	base := int64(0)
	for _, p := range []struct {
		class string
		n     int64
	}{{"allowed", n.Allowed}, {"disallowed", n.Disallowed}, {"unjudged", n.Unjudged}, {"impersonated", n.Impersonated}} {
		if p.n > 0 {
			bar.Parts = append(bar.Parts, part{Class: p.class, Y: y(base + p.n), H: y(base) - y(base+p.n)})
			base += p.n
		}
	}
	return bar
}

// timeScale is the time of the pictures, in units of so many hours since 1970.
type timeScale struct {
	size, first, last int64
	unit              string
}

// timeScale takes the smallest unit of which there are not too many; ok is false without any crawler.
func (r *AccessReport) timeScale() (s timeScale, ok bool) {
	from, to := int64(maxTime), int64(minTime)
	for h, n := range r.hours {
		if n.total() > 0 {
			from, to = min(from, h), max(to, h)
		}
	}
	if from > to {
		return s, false
	}
	for _, u := range []struct {
		hours, most int64
		name        string
	}{{1, 48, "hour"}, {24, 100, "day"}, {7 * 24, 100, "week"}, {28 * 24, 100, "four weeks"}, {364 * 24, 1 << 40, "year"}} {
		s = timeScale{u.hours, floorDiv(from, u.hours), floorDiv(to, u.hours), u.name}
		if s.last-s.first < u.most {
			break
		}
	}
	return s, true
}

// sums adds hours up; top is the most claims of one unit.
func (s timeScale) sums(hours map[int64]*hourCounts) (sums map[int64]*hourCounts, top int64) {
	sums, top = map[int64]*hourCounts{}, 1
	for h, n := range hours {
		b := floorDiv(h, s.size)
		if sums[b] == nil {
			sums[b] = &hourCounts{}
		}
		sums[b].add(n)
	}
	for _, n := range sums {
		top = max(top, n.total())
	}
	return sums, top
}

// slot is the width of one unit between two sides of a picture.
func (s timeScale) slot(left, right float64) float64 {
	return (right - left) / float64(s.last-s.first+1)
}

func (s timeScale) name(b int64) string {
	at := time.Unix(b*s.size*3600, 0).UTC()
	if s.size == 1 {
		return at.Format("2006-01-02 15:00")
	}
	return at.Format("2006-01-02")
}

// labels names about ten of the units.
func (s timeScale) labels(left, right float64) (out []tick) {
	slot, every := s.slot(left, right), max(1, (s.last-s.first+10)/10)
	for b := s.first; b <= s.last; b += every {
		at := time.Unix(b*s.size*3600, 0).UTC()
		label := at.Format("2 Jan")
		switch {
		case s.size == 1 && (at.Hour() == 0 || b == s.first):
			label = at.Format("2 Jan 15:00")
		case s.size == 1:
			label = at.Format("15:00")
		}
		if x := left + slot*(float64(b-s.first)+0.5); x < right-20 {
			out = append(out, tick{x, label})
		}
	}
	return out
}

// stripChart is bars over time, a row for each crawler.
type stripChart struct {
	Unit   string
	Height float64
	Rows   []strip
	Labels []tick
	Table  []stripRow
}

type strip struct {
	Name string
	Y    float64 // of its top
	Bars []timeBar
	Text string
}

// stripRow is one time: the requests of each crawler that has a row.
type stripRow struct {
	Name  string
	Total []int64
}

const (
	stripRows              = 12
	stripHeight, stripSpan = 46.0, 36.0
	stripRight             = rowEnd - 20
)

// stripChart draws those with most requests, each to a scale of its own: how one crawler changes over time is the
// question, and beside a busy one a quiet one would be a flat line.
func (r *AccessReport) stripChart() stripChart {
	var c stripChart
	s, ok := r.timeScale()
	if !ok || s.first == s.last {
		return c
	}
	c.Unit = s.unit
	names := r.busiest(stripRows)
	slot := s.slot(rowName, stripRight)
	table := map[int64][]int64{}
	for i, name := range names {
		sums, top := s.sums(r.each[name])
		row := strip{Name: cut(name, 28), Y: c.Height, Text: fmt.Sprintf("up to %s", Group(top))}
		y := func(n int64) float64 { return stripHeight - stripSpan*float64(n)/float64(top) }
		for b := s.first; b <= s.last; b++ {
			n := sums[b]
			if n == nil {
				continue
			}
			if table[b] == nil {
				table[b] = make([]int64, len(names))
			}
			table[b][i] = n.total()
			row.Bars = append(row.Bars, stacked(name+", "+s.name(b), n, rowName+slot*(float64(b-s.first)+0.5), slot, y))
		}
		c.Rows = append(c.Rows, row)
		c.Height += stripHeight
	}
	c.Labels = s.labels(rowName, stripRight)
	for b := s.first; b <= s.last; b++ {
		if total := table[b]; total != nil {
			c.Table = append(c.Table, stripRow{s.name(b), total})
		}
	}
	return c
}

// busiest are the n crawlers with most requests.
func (r *AccessReport) busiest(n int) []string {
	names := r.names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(r.Crawlers[b].Total, r.Crawlers[a].Total) })
	return names[:min(len(names), n)]
}

// niceStep is a step of 1, 2 or 5 times a power of ten that gives about five ticks.
func niceStep(top int64) int64 {
	for p := int64(1); ; p *= 10 {
		for _, m := range []int64{1, 2, 5} {
			if top <= 5*m*p || p > 1<<58 {
				return m * p
			}
		}
	}
}

// rowChart is horizontal bars, one in each row.
type rowChart struct {
	Height float64
	Rows   []chartRow
}

type chartRow struct {
	Name  string
	Y     float64
	Parts []part
	End   float64
	Text  string
	Title string
}

const (
	rowHeight, rowName, rowEnd = 30.0, 210.0, 890.0
	chartRows                  = 20
)

func (r *AccessReport) crawlerChart() rowChart {
	names := r.busiest(chartRows)
	top := int64(1)
	for _, n := range names {
		top = max(top, r.Crawlers[n].Total)
	}
	var c rowChart
	for _, n := range names {
		x := r.Crawlers[n]
		c.add(n, top, Group(x.Total), fmt.Sprintf("%s: %d allowed, %d disallowed, %d unjudged, %d impersonated", n, x.Allowed, x.Disallowed, x.Unjudged, x.Impersonated),
			"allowed", x.Allowed, "disallowed", x.Disallowed, "unjudged", x.Unjudged, "impersonated", x.Impersonated)
	}
	return c
}

func (r *AccessReport) wasteChart() rowChart {
	var n AccessNonProductive
	for _, x := range r.Crawlers {
		p := &x.NonProductive
		n.Disallowed += p.Disallowed
		n.NotInSitemap += p.NotInSitemap
		n.Parameter += p.Parameter
		n.Duplicate += p.Duplicate
		n.Redirect += p.Redirect
		n.ClientError += p.ClientError
		n.ServerError += p.ServerError
	}
	rows := []struct {
		name, class string
		n           int64
	}{
		{"forbidden by robots.txt", "disallowed", n.Disallowed}, {"not in the sitemap", "waste", n.NotInSitemap}, {"with parameters", "waste", n.Parameter},
		{"another spelling", "waste", n.Duplicate}, {"redirected", "waste", n.Redirect}, {"client error (4xx)", "waste", n.ClientError}, {"server error (5xx)", "waste", n.ServerError},
	}
	if len(r.Settings.Sitemaps) == 0 {
		rows = slices.Delete(rows, 1, 2)
	}
	var c rowChart
	for _, x := range rows {
		c.add(x.name, max(r.Totals.Genuine, 1), Group(x.n)+" ("+share(x.n, r.Totals.Genuine)+")", fmt.Sprintf("%s: %d of %d", x.name, x.n, r.Totals.Genuine), x.class, x.n)
	}
	return c
}

func (c *rowChart) add(name string, top int64, text, title string, parts ...any) {
	row := chartRow{Name: cut(name, 28), Y: c.Height, Text: text, Title: title, End: rowName}
	for i := 0; i+1 < len(parts); i += 2 {
		n := parts[i+1].(int64)
		if n == 0 {
			continue
		}
		w := (rowEnd - rowName) * float64(n) / float64(top)
		row.Parts = append(row.Parts, part{Class: parts[i].(string), X: row.End, W: w})
		row.End += w
	}
	c.Height += rowHeight
	c.Rows = append(c.Rows, row)
}
