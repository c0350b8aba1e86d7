package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

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
