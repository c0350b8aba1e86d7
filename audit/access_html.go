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
