package admin

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Marks of a Dot: what became of the request.
const (
	DotSent    = "sent"    // went out and was answered
	DotBad     = "bad"     // went out; the site said wait, or failed (429, 5xx, no answer)
	DotRefused = "refused" // the gate said no; nothing went out
)

// Dot is one request in the turns picture.
type Dot struct {
	Client string
	Start  time.Time     // first byte sent, or the refusal
	End    time.Time     // end of the answer; zero: at Start
	Mark   string        // DotSent, DotBad or DotRefused
	Owed   time.Duration // gap owed before this request
	Hold   bool          // that gap was a back-off, not the usual pace
	Asked  time.Duration // the site's own wish in its answer: Retry-After
	Label  string        // shown by a pointer: "GET /p/1 200"
	// Rides says that the request owes no gap of its own (a page's file).
	Rides bool
}

// TurnsOptions shapes the turns picture. The zero value is usable.
type TurnsOptions struct {
	Title    string // above the first panel
	Width    int    // of the drawing, in its own units; 0: 960
	From, To time.Time
	// Gap shades so much after each request that has no follower with an Owed.
	Gap time.Duration
	// Relative counts seconds from From on the axis; else the clock is shown.
	Relative bool
	// Compare draws a second panel in the same scale: the same fetchers
	// without the gate.
	Compare      []Dot
	CompareTitle string
	// Standalone adds the colours, for a file of its own. Inside a page the
	// page's style has them (classes turns-*).
	Standalone bool
}

// Bounds of the picture: it stays readable and small whatever happens.
const (
	maxLanes   = 10   // clients with a lane of their own; the rest share one
	maxDots    = 2000 // newest are drawn
	laneOthers = "others"

	laneHeight = 34
	svgLeft    = 132
	svgRight   = 20
	labelRunes = 16
)

// turnsStyle are the colours of a standalone picture: told apart without colour
// too, by shape.
const turnsStyle = `.turns{font:12px ui-sans-serif,system-ui,sans-serif;color-scheme:light dark}
.turns-bg{fill:#fff}.turns-text{fill:#1c2733}.turns-dim{fill:#5c6b7a}.turns-title{font-weight:600;font-size:14px}
.turns-lane{stroke:#d5dce3}.turns-axis{stroke:#9aa7b4}.turns-gap{fill:#2f6fde;fill-opacity:.13}.turns-hold{fill:#c47f00;fill-opacity:.2}
.turns-sent{fill:#2f6fde}.turns-bar{fill:#2f6fde;fill-opacity:.45}.turns-bad{fill:#b86e00}.turns-refused{stroke:#c62b3b;fill:none}.turns-close{stroke:#c62b3b;fill:none}
@media (prefers-color-scheme:dark){.turns-bg{fill:#11171d}.turns-text{fill:#e4eaf0}.turns-dim{fill:#95a3b1}.turns-lane{stroke:#2a343e}.turns-axis{stroke:#5c6b7a}
.turns-gap{fill:#6ea3ff;fill-opacity:.16}.turns-hold{fill:#e5a83a;fill-opacity:.22}.turns-sent{fill:#6ea3ff}.turns-bar{fill:#6ea3ff}.turns-bad{fill:#e5a83a}.turns-refused,.turns-close{stroke:#ff7a86}}`

// TurnsSVG draws one lane per client and one mark per request, with the gap
// owed after each request shaded across all lanes: the gap belongs to the host,
// whoever asks. A request that starts inside a shaded gap is ringed. All dots
// are of one host. The picture needs no script and no file besides.
func TurnsSVG(w io.Writer, dots []Dot, o TurnsOptions) error {
	if o.Width <= 0 {
		o.Width = 960
	}
	d := drawing{o: o}
	main, rest := tidy(dots), tidy(o.Compare)
	d.scale(append(slices.Clone(main), rest...))
	body := d.panel(main, o.Title)
	if len(rest) > 0 || o.CompareTitle != "" {
		d.y += 18
		body += d.panel(rest, o.CompareTitle)
	}
	d.legend()
	height := d.y + 10

	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" class="turns" role="img" viewBox="0 0 %d %d"`, o.Width, height)
	if o.Standalone {
		fmt.Fprintf(&out, ` width="%d" height="%d"`, o.Width, height)
	}
	title := o.Title
	if title == "" {
		title = "turns"
	}
	fmt.Fprintf(&out, "><title>%s</title><desc>%s</desc>\n", esc(title), esc(body))
	if o.Standalone {
		fmt.Fprintf(&out, "<style>%s</style>\n<rect class=\"turns-bg\" width=\"%d\" height=\"%d\"/>\n", turnsStyle, o.Width, height)
	}
	out.Write(d.buf.Bytes())
	out.WriteString("</svg>\n")
	_, err := w.Write(out.Bytes())
	return err
}

// tidy returns the newest dots in the order of their start, each with an end.
func tidy(dots []Dot) []Dot {
	ds := slices.Clone(dots)
	slices.SortStableFunc(ds, func(a, b Dot) int { return a.Start.Compare(b.Start) })
	if len(ds) > maxDots {
		ds = ds[len(ds)-maxDots:]
	}
	for i := range ds {
		if ds[i].End.Before(ds[i].Start) {
			ds[i].End = ds[i].Start
		}
	}
	return ds
}

// drawing is the picture under way: y is the next free line.
type drawing struct {
	o    TurnsOptions
	buf  bytes.Buffer
	y    int
	from time.Time
	span time.Duration
	ride bool // a request rode along: the legend explains the small dot
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.buf, format, args...) }

// scale fixes the time axis over all panels.
func (d *drawing) scale(ds []Dot) {
	from, to := d.o.From, d.o.To
	if len(ds) > 0 {
		if from.IsZero() {
			from = slices.MinFunc(ds, func(a, b Dot) int { return a.Start.Compare(b.Start) }).Start
		}
		if to.IsZero() {
			to = slices.MaxFunc(ds, func(a, b Dot) int { return a.End.Compare(b.End) }).End.Add(d.o.Gap)
		}
	}
	d.from, d.span = from, max(to.Sub(from), time.Second)
}

// x is the place of a moment on the axis, kept inside the panel.
func (d *drawing) x(t time.Time) float64 {
	w := float64(d.o.Width - svgLeft - svgRight)
	f := float64(t.Sub(d.from)) / float64(d.span)
	return svgLeft + w*min(1, max(0, f))
}

func (d *drawing) inside(t time.Time) bool {
	return !t.Before(d.from) && !t.After(d.from.Add(d.span))
}

// lanes gives each client its line: in order of name, so that lanes keep their
// places while the picture moves on.
func lanes(ds []Dot) []string {
	count := map[string]int{}
	for _, t := range ds {
		count[t.Client]++
	}
	names := make([]string, 0, len(count))
	for n := range count {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	if len(names) > maxLanes {
		names = names[:maxLanes-1]
		slices.Sort(names)
		return append(names, laneOthers)
	}
	slices.Sort(names)
	return names
}

// panel draws one set of dots and returns its summary in words.
func (d *drawing) panel(ds []Dot, title string) string {
	if title != "" {
		d.printf("<text class=\"turns-text turns-title\" x=\"4\" y=\"%d\">%s</text>\n", d.y+16, esc(title))
		d.y += 28
	}
	names := lanes(ds)
	top, height := d.y, max(1, len(names))*laneHeight
	sum := d.gaps(ds, top, height)
	for i, n := range names {
		y := top + i*laneHeight + laneHeight/2
		d.printf("<line class=\"turns-lane\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", svgLeft, d.o.Width-svgRight, y, y)
		d.printf("<text class=\"turns-text\" x=\"4\" y=\"%d\">%s</text>\n", y+4, esc(shorten(n, labelRunes)))
	}
	if len(names) == 0 {
		d.printf("<text class=\"turns-dim\" x=\"%d\" y=\"%d\">no requests yet</text>\n", svgLeft, top+laneHeight/2+4)
	}
	lastDone, owe := time.Time{}, time.Duration(0)
	for i, t := range ds {
		lane := slices.Index(names, t.Client)
		if lane < 0 {
			lane = len(names) - 1
		}
		y := top + lane*laneHeight + laneHeight/2
		close := false
		if t.Mark != DotRefused && !t.Rides {
			owe = cmp.Or(t.Owed, d.o.Gap)
			// A millisecond of grace: events carry whole milliseconds.
			close = !lastDone.IsZero() && t.Start.Sub(lastDone) < owe-time.Millisecond
			if t.End.After(lastDone) {
				lastDone = t.End
			}
		}
		if d.inside(t.Start) {
			d.mark(ds[i], y, close)
		}
	}
	d.y = top + height
	d.axis(top)
	if title != "" {
		return title + ": " + sum + ". "
	}
	return sum + ". "
}

// gaps shades what is owed after each request and sums the panel up.
func (d *drawing) gaps(ds []Dot, top, height int) string {
	sent, refused := 0, 0
	smallest := time.Duration(-1)
	var last *Dot
	var shaded time.Time // up to here: where gaps overlap, one shade is enough
	shade := func(t *Dot, next *Dot) {
		owed, class := d.o.Gap, "turns-gap"
		if next != nil && next.Owed > 0 {
			owed = next.Owed
			if next.Hold {
				class = "turns-hold"
			}
		} else if next == nil && owed == 0 {
			owed = t.Owed
		}
		if t.Asked > owed {
			owed, class = t.Asked, "turns-hold"
		}
		from, to := t.End, t.End.Add(owed)
		if next != nil && next.End.Before(to) {
			to = next.End // its own gap begins there
		}
		if from.Before(shaded) {
			from = shaded
		}
		if to.After(shaded) {
			shaded = to
		}
		if a, b := d.x(from), d.x(to); b-a > 0.05 {
			d.printf("<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", class, a, top, b-a, height)
		}
	}
	for i := range ds {
		t := &ds[i]
		if t.Mark == DotRefused {
			refused++
			continue
		}
		sent++
		if t.Rides {
			continue
		}
		if last != nil {
			if gap := t.Start.Sub(last.End); smallest < 0 || gap < smallest {
				smallest = max(0, gap)
			}
			shade(last, t)
		}
		last = t
	}
	if last != nil {
		shade(last, nil)
	}
	sum := fmt.Sprintf("%d sent, %d refused", sent, refused)
	if smallest >= 0 {
		sum += ", smallest gap " + short(smallest)
	}
	return sum
}

// mark draws one request: a bar while it was under way and its shape.
func (d *drawing) mark(t Dot, y int, close bool) {
	x := d.x(t.Start)
	d.printf("<g>")
	if t.Label != "" {
		d.printf("<title>%s</title>", esc(t.Label))
	}
	switch t.Mark {
	case DotRefused:
		d.printf(`<path class="turns-refused" stroke-width="2" d="M%.1f %dl8 8m0-8l-8 8"/>`, x-4, y-4)
	case DotBad:
		d.bar(t, x, y)
		d.printf(`<path class="turns-bad" d="M%.1f %dl6 11h-12z"/>`, x, y-7)
	default:
		d.bar(t, x, y)
		r := "5"
		if t.Rides {
			r = "2.5"
			d.ride = true
		}
		d.printf(`<circle class="turns-sent" cx="%.1f" cy="%d" r="%s"/>`, x, y, r)
	}
	if close {
		d.printf(`<circle class="turns-close" stroke-width="1.5" cx="%.1f" cy="%d" r="9"/>`, x, y)
	}
	d.printf("</g>\n")
}

func (d *drawing) bar(t Dot, x float64, y int) {
	if e := d.x(t.End); e-x > 1 {
		d.printf(`<rect class="turns-bar" x="%.1f" y="%d" width="%.1f" height="6" rx="3"/>`, x, y-3, e-x)
	}
}

// steps are the distances of marks on the axis that people read without counting.
var steps = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

func (d *drawing) axis(top int) {
	step := steps[len(steps)-1]
	for _, s := range steps {
		if d.span/s <= 10 {
			step = s
			break
		}
	}
	d.printf("<line class=\"turns-axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", svgLeft, d.o.Width-svgRight, d.y, d.y)
	if !d.from.IsZero() {
		first := d.from
		if !d.o.Relative {
			if first = d.from.Truncate(step); first.Before(d.from) {
				first = first.Add(step)
			}
		}
		for i := 0; i < 40; i++ {
			t := first.Add(time.Duration(i) * step)
			if !d.inside(t) {
				break
			}
			text := t.Format("15:04:05")
			if d.o.Relative {
				text = short(t.Sub(d.from))
			}
			x := d.x(t)
			d.printf("<line class=\"turns-axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x, x, d.y, d.y+4)
			d.printf("<text class=\"turns-dim\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n", x, d.y+17, text)
		}
	}
	d.y += 24
}

// legend says what the shapes mean.
func (d *drawing) legend() {
	y := d.y + 14
	x := svgLeft
	item := func(shape, text string, width int) {
		d.printf("%s<text class=\"turns-dim\" x=\"%d\" y=\"%d\">%s</text>\n", shape, x+12, y+4, text)
		x += width
	}
	item(fmt.Sprintf(`<circle class="turns-sent" cx="%d" cy="%d" r="5"/>`, x, y), "sent", 66)
	if d.ride {
		item(fmt.Sprintf(`<circle class="turns-sent" cx="%d" cy="%d" r="2.5"/>`, x, y), "sent, owes no gap", 148)
	}
	item(fmt.Sprintf(`<path class="turns-bad" d="M%d %dl6 11h-12z"/>`, x, y-7), "the site said wait, or failed", 200)
	item(fmt.Sprintf(`<path class="turns-refused" stroke-width="2" d="M%d %dl8 8m0-8l-8 8"/>`, x-4, y-4), "refused, nothing sent", 160)
	item(fmt.Sprintf(`<rect class="turns-gap" x="%d" y="%d" width="14" height="12"/>`, x-6, y-6), "gap owed", 92)
	item(fmt.Sprintf(`<rect class="turns-hold" x="%d" y="%d" width="14" height="12"/>`, x-6, y-6), "back-off", 86)
	item(fmt.Sprintf(`<circle class="turns-close" stroke-width="1.5" cx="%d" cy="%d" r="6"/>`, x, y), "too close", 80)
	d.y = y + 8
}

// esc makes text safe inside an element or an attribute; what XML does not
// allow becomes U+FFFD.
func esc(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(clean(s))) // a strings.Builder takes everything
	return b.String()
}

// shortHost shortens a host's name at its front: whose it is stands at its end.
func shortHost(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return "…" + string(r[len(r)-n+1:])
}

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
