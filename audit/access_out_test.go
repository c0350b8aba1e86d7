package audit

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAccessDelaySpill gives the same delays with times on disk as in memory.
func TestAccessDelaySpill(t *testing.T) {
	var log strings.Builder
	for range 5000 {
		log.WriteString(accessLine("192.0.2.1", fmt.Sprintf("%02d:%02d:%02d", rand.IntN(24), rand.IntN(60), rand.IntN(60)), "/", []string{gptBot, "ClaudeBot", "UnlobBot"}[rand.IntN(3)]))
	}
	var want *AccessReport
	for _, spill := range []int{1 << 20, 999, 40} {
		rep := access(t, log.String(), "Crawl-delay: 7\n", func(o *AccessOptions) { o.Delay, o.Workers, o.spill = true, 2, spill })
		if want == nil {
			want = rep
			if c := rep.Crawlers["GPTBot"].CrawlDelay; c.Checked < 1000 || c.Violations == 0 {
				t.Fatalf("%+v", c)
			}
			continue
		}
		if d := cmp.Diff(want.Crawlers, rep.Crawlers); d != "" {
			t.Error(d)
		}
	}
}

func TestAccessIndexJSONL(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/bodies/ab", []byte("Disallow: /x\n"))
	index := `{"host":"H.example","effective":"2025-11-03T08:00:00Z","status":200,"file":"bodies/ab","sha256":"","agent":"x"}
{"host":"h.example","effective":"2025-11-03T10:00:00.5Z","status":0,"file":"","sha256":""}
{"host":"h.example","effective":"2025-11-03T11:00:00Z","status":200,"file":"bodies/gone","sha256":""}
{"host":"h.example","effective":"2025-11-03T11:00:00Z","status":404,"file":"","sha256":""}
`
	writeFile(t, dir+"/index.jsonl", []byte(index))
	log := ""
	for _, c := range []string{"07:59:59", "08:00:00", "10:00:00", "10:00:01", "11:00:00"} {
		log += accessLine("192.0.2.1", c, "/x", gptBot)
	}
	rep := access(t, log, "", func(o *AccessOptions) { o.Robots = []string{dir} })
	c := rep.Crawlers["GPTBot"]
	if c.Unjudged != 1 || c.Disallowed != 3 || c.Allowed != 1 || len(c.Violations) != 2 || c.Violations[1].Reason != "robots_unreachable" || !rep.SelfCheck.OK || len(rep.SelfCheck.Versions) != 2 {
		t.Errorf("%+v %+v", c, rep.SelfCheck)
	}
	for name, bad := range map[string]string{
		"altered body": strings.Replace(index, `"sha256":""`, `"sha256":"00"`, 1), "outside": strings.Replace(index, "bodies/ab", "../ab", 1),
		"missing body": strings.Replace(index, "bodies/ab", "bodies/no", 1), "no JSON": "x\n", "empty": "\n", "status": strings.Replace(index, "404", "104", 1),
	} {
		writeFile(t, dir+"/index.jsonl", []byte(bad))
		if _, err := loadRobots([]string{dir}, prefixJudge{}, 1, time.Hour, 0); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// TestAccessHTMLIsSafe puts hostile text into every field of a log and finds none of it as markup.
func TestAccessHTMLIsSafe(t *testing.T) {
	evil := `/x?"><script>alert(1)</script><img src=x onerror=y>'` + "\u202e\x00\xff"
	log := "evil\"><script>.example 192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] \"GET " + evil + " HTTP/1.1\" 200 5 \"-\" \"" + gptBot + "\"\n"
	rep := access(t, log+log[:40]+"\n", "Disallow: /x?\"><script>\n", func(o *AccessOptions) { o.Host = "<b>" })
	if rep.Totals.Disallowed != 1 {
		t.Fatalf("%+v", rep.Totals)
	}
	var page bytes.Buffer
	if err := rep.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, bad := range []string{"<script", "<img", "onerror=y>", "\u202e", "\x00", "javascript:", "http://", "https://", " style=", "<b>.ex"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q stands in the page", bad)
		}
	}
	for _, good := range []string{"default-src 'none'", "&lt;script&gt;", `\xff`, "<svg", "prefers-color-scheme:dark"} {
		if !strings.Contains(text, good) {
			t.Errorf("%q does not stand in the page", good)
		}
	}
	var table bytes.Buffer
	if err := rep.WriteTable(&table, TableStyle{Width: 60}); err != nil || strings.ContainsAny(table.String(), "\x00\x1b\u202e") {
		t.Errorf("%v: %q", err, table.String())
	}
	var list bytes.Buffer
	if err := rep.WriteCSV(&list, true); err != nil || strings.Count(list.String(), "\n") != 2 {
		t.Errorf("%v: %q", err, list.String())
	}
}

// TestAccessEachCrawler: the page has a row over time for each crawler, busiest first, to a scale of its own, and the numbers.
func TestAccessEachCrawler(t *testing.T) {
	log := ""
	for _, hour := range []string{"08", "09", "09", "11"} {
		log += accessLine("192.0.2.1", hour+":00:00", "/", "GPTBot")
	}
	log += accessLine("192.0.2.1", "10:00:00", "/x", "CCBot") + accessLine("192.0.2.1", "07:00:00", "/", "Mozilla/5.0")
	rep := access(t, log, "Disallow: /x\n", nil)
	c := rep.stripChart()
	want := stripChart{Unit: "hour", Height: 2 * stripHeight, Rows: []strip{{Name: "GPTBot", Text: "up to 2"}, {Name: "CCBot", Y: stripHeight, Text: "up to 1"}},
		Table: []stripRow{{"2025-11-03 08:00", []int64{1, 0}}, {"2025-11-03 09:00", []int64{2, 0}}, {"2025-11-03 10:00", []int64{0, 1}}, {"2025-11-03 11:00", []int64{1, 0}}}}
	var bars []string
	for i := range c.Rows {
		for _, b := range c.Rows[i].Bars {
			for _, p := range b.Parts {
				bars = append(bars, fmt.Sprintf("%s %.0f high from %.0f: %s", p.Class, p.H, p.Y, b.Title))
			}
		}
		c.Rows[i].Bars = nil
	}
	if len(c.Labels) != 4 {
		t.Errorf("labels %v", c.Labels)
	}
	c.Labels = nil
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{
		"allowed 18 high from 28: GPTBot, 2025-11-03 08:00: 1 allowed, 0 disallowed, 0 unjudged, 0 impersonated",
		"allowed 36 high from 10: GPTBot, 2025-11-03 09:00: 2 allowed, 0 disallowed, 0 unjudged, 0 impersonated",
		"allowed 18 high from 28: GPTBot, 2025-11-03 11:00: 1 allowed, 0 disallowed, 0 unjudged, 0 impersonated",
		"disallowed 36 high from 10: CCBot, 2025-11-03 10:00: 0 allowed, 1 disallowed, 0 unjudged, 0 impersonated",
	}, bars); d != "" {
		t.Error(d)
	}
	if c := access(t, accessLine("192.0.2.1", "09:00:00", "/", "GPTBot"), "", nil).stripChart(); len(c.Rows) > 0 {
		t.Error("a picture over time of one hour")
	}
}

func TestAccessCSVFormulas(t *testing.T) {
	r := &AccessReport{Settings: AccessSettings{Delay: true}, Crawlers: map[string]*AccessCrawler{"=1+1": {Operator: "@x", Category: "other", CrawlDelay: &AccessDelay{MinGapMS: -1}}}}
	var b bytes.Buffer
	if err := r.WriteCSV(&b, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if !strings.HasPrefix(lines[1], "'=1+1,'@x,other,0,") || !strings.Contains(lines[1], ",-1,0") || !strings.HasPrefix(lines[0], "crawler,operator,category,total,genuine,") {
		t.Error(b.String())
	}
}

// TestAccessCancelled ends an audit in the middle and leaves no goroutine behind.
func TestAccessCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := AccessOptions{Logs: []string{"-"}, Stdin: endless{}, Judge: prefixJudge{}, Delay: true,
		Progress: func(p AccessProgress) {
			if p.Lines > 10_000 {
				cancel()
			}
		}}
	if _, err := Access(ctx, o); err == nil {
		t.Error("no error")
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	return copy(b, accessLine("192.0.2.1", "09:00:00", "/", gptBot)), nil
}
