package admin

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"crawlgate/audit"
)

// wellFormed reads the whole picture as XML and counts its elements.
func wellFormed(t testing.TB, svg []byte) map[string]int {
	t.Helper()
	n := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		if s, ok := tok.(xml.StartElement); ok {
			n[s.Name.Local]++
			for _, a := range s.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "style" {
					t.Errorf("attribute %s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
}

func at(s float64) time.Time { return testTime.Add(time.Duration(s * float64(time.Second))) }

// demoDots is the story that `demo` tells: three fetchers in a hurry, a delay
// of two seconds, one refusal, one 429.
func demoDots() []Dot {
	two := 2 * time.Second
	return []Dot{
		{Client: "browser", Start: at(0), End: at(0.3), Mark: DotSent, Owed: two, Label: "GET / 200"},
		{Client: "scraper", Start: at(2.3), End: at(2.5), Mark: DotSent, Owed: two, Label: "GET /p/1 200"},
		{Client: "browser", Start: at(2.4), Mark: DotSent, End: at(2.6), Rides: true, Label: "GET /logo.png 200"},
		{Client: "shell", Start: at(4.5), End: at(4.9), Mark: DotSent, Owed: two, Label: "GET /p/2 200"},
		{Client: "browser", Start: at(5), Mark: DotRefused, Label: "GET /cart refused: robots-disallow"},
		{Client: "scraper", Start: at(6.9), End: at(7), Mark: DotBad, Owed: two, Label: "GET /p/3 429"},
		{Client: "browser", Start: at(12), End: at(12.2), Mark: DotSent, Owed: 5 * time.Second, Hold: true, Label: "GET / 200"},
	}
}

func TestTurnsSVG(t *testing.T) {
	var without []Dot
	for i := range 60 {
		s := float64(i) * 0.2
		without = append(without, Dot{Client: []string{"browser", "scraper", "shell"}[i%3], Start: at(s), End: at(s + 0.1), Mark: DotSent})
	}
	var b bytes.Buffer
	err := TurnsSVG(&b, demoDots(), TurnsOptions{
		Title: "with the gate", Relative: true, From: testTime, To: at(13), Gap: 2 * time.Second, Standalone: true,
		Compare: without, CompareTitle: "without the gate",
	})
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.Bytes())
	golden(t, "turns.svg", b.Bytes())
	text := b.String()
	if !strings.Contains(text, "with the gate: 6 sent, 1 refused, smallest gap 2s. without the gate: 60 sent, 0 refused, smallest gap 100ms. ") {
		t.Error("the picture in words is not there")
	}
	with, rest, _ := strings.Cut(text, ">without the gate<")
	if strings.Contains(strings.ReplaceAll(with, ".turns-close{", ""), `class="turns-close"`) {
		t.Error("a request that kept the gap is marked")
	}
	if n := strings.Count(rest, `class="turns-close"`); n != 59+1 { // and the legend's
		t.Errorf("%d of 59 are marked as too close", n-1)
	}
}

func TestTurnsSVGEmpty(t *testing.T) {
	for _, o := range []TurnsOptions{{}, {Standalone: true}, {CompareTitle: "without"}, {From: at(5), To: at(1)}} {
		var b bytes.Buffer
		if err := TurnsSVG(&b, nil, o); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, b.Bytes())
		if !strings.Contains(b.String(), "no requests yet") {
			t.Error("an empty picture does not say so")
		}
	}
}

func TestTurnsSVGIsBounded(t *testing.T) {
	var dots []Dot
	for i := range 20000 {
		dots = append(dots, Dot{Client: fmt.Sprintf("client-%d", i%50), Start: at(float64(i)), Mark: DotSent, Label: "x"})
	}
	var b bytes.Buffer
	if err := TurnsSVG(&b, dots, TurnsOptions{}); err != nil {
		t.Fatal(err)
	}
	n := wellFormed(t, b.Bytes())
	if n["g"] > maxDots || n["line"] > maxLanes+60 || b.Len() > 1<<20 {
		t.Errorf("%d dots, %d lines, %d bytes", n["g"], n["line"], b.Len())
	}
	if !strings.Contains(b.String(), ">"+laneOthers+"<") {
		t.Error("the clients past the limit have no lane")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestTurnsSVGWriteError(t *testing.T) {
	if err := TurnsSVG(failingWriter{}, nil, TurnsOptions{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

func TestTurnsFile(t *testing.T) {
	s := newServer(t, nil)
	s.Observe(event(1, "https://example.com/<b>", nil))
	s.Observe(event(2, "https://other.example/", func(e *audit.Event) { e.Host = "other.example"; e.Client.Name = "team-b" }))
	w := get(s, "/live.svg?host=other.example")
	if w.Code != 200 || w.Header().Get("Content-Type") != "image/svg+xml" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	wellFormed(t, w.Body.Bytes())
	if !strings.Contains(w.Body.String(), ">team-b<") || strings.Contains(w.Body.String(), ">team-a<") {
		t.Error("the picture is not of the host asked for")
	}
	if w := get(s, "/live.svg?host="+strings.Repeat("a", 600)); w.Code != 400 {
		t.Errorf("a long host: %d", w.Code)
	}
	if w := get(s, "/live.svg"); w.Code != 200 || !strings.Contains(w.Body.String(), ">example.com<") {
		t.Errorf("the busiest: %d", w.Code)
	}
}

func TestDotOfRecord(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*audit.Event)
		mark   string
		rides  bool
	}{
		{"page", nil, DotSent, false},
		{"file of a page", func(e *audit.Event) { e.Kind, e.DelayOwedMS = "subresource", 0 }, DotSent, true},
		{"not found", func(e *audit.Event) { e.Status = 404 }, DotSent, false},
		{"throttled", func(e *audit.Event) { e.Status = 429 }, DotBad, false},
		{"no answer", func(e *audit.Event) { e.Status, e.Decision = 0, audit.Failed }, DotBad, false},
		{"refused", refusal("site-denied"), DotRefused, false},
		{"not connected", func(e *audit.Event) { e.Status, e.Decision, e.Sent = 0, audit.Failed, false }, DotRefused, false},
	} {
		r, err := recordOf(event(1, "https://example.com/", tt.change))
		if err != nil {
			t.Fatal(err)
		}
		if d := r.dot(); d.Mark != tt.mark || d.Rides != tt.rides || d.Start.IsZero() || d.End.IsZero() {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
}

// What a site asks for with Retry-After is shaded as back-off until the next request, whatever gap that one owed.
func TestTurnsAsked(t *testing.T) {
	var b bytes.Buffer
	err := TurnsSVG(&b, []Dot{
		{Client: "a", Start: at(0), End: at(1), Mark: DotBad, Owed: time.Second, Asked: 5 * time.Second},
		{Client: "a", Start: at(6), End: at(6), Mark: DotSent, Owed: time.Second},
		{Client: "a", Start: at(8), End: at(8), Mark: DotSent, Owed: time.Second},
	}, TurnsOptions{From: testTime, To: at(10)})
	if err != nil {
		t.Fatal(err)
	}
	if hold, gap := strings.Count(b.String(), `<rect class="turns-hold"`), strings.Count(b.String(), `<rect class="turns-gap"`); hold != 2 || gap != 3 {
		t.Errorf("%d shaded as back-off, %d as gap, the key's included", hold, gap)
	}
}
