package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Promises about answers that are kept: conditional requests, and what the fetcher gets after a 304.

var longUnchanged = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Format(http.TimeFormat)

// unchanging answers with a page that never changes, and 304 to whoever has it. tag and modified may be "".
func unchanging(tag, modified, text string, whole *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		if modified != "" {
			w.Header().Set("Last-Modified", modified)
		}
		if tag != "" && r.Header.Get("If-None-Match") == tag || tag == "" && r.Header.Get("If-Modified-Since") == modified {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		whole.Add(1)
		page(text)(w, r)
	}
}

// withField sets a field on every answer.
func withField(h http.HandlerFunc, name, value string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		h(w, r)
	}
}

// UN-4: what a 200 said of its version is what the site is asked by the next time, also after a restart.
func checkValidatorsKept(s *stage) error {
	var whole atomic.Int64
	const tag, weak = `"v1-gzip"`, `W/"7"`
	o := s.site(tlsH2, everyone, paths(map[string]http.HandlerFunc{
		"/both": unchanging(tag, longUnchanged, "both", &whole), "/weak": unchanging(weak, "", "weak", &whole),
		"/date": unchanging("", longUnchanged, "date", &whole), "/none": page("none"),
	}), "kept.test")
	s.client("x", "crawl")
	s.start(quickly)
	want := map[string][2]string{"/both": {tag, longUnchanged}, "/weak": {weak, ""}, "/date": {"", longUnchanged}, "/none": {"", ""}}
	for range 2 {
		for path := range want {
			s.fetched(path, s.get("x", o.url(path)), 200)
		}
		s.stop()
		s.serve()
	}
	for path, by := range want {
		var list []arrival
		for _, a := range o.arrivals() {
			if a.URI == path {
				list = append(list, a)
			}
		}
		if len(list) != 2 {
			s.badly("%s was asked for %d times", path, len(list))
			continue
		}
		if h := list[0].Header; h.Get("If-None-Match") != "" || h.Get("If-Modified-Since") != "" {
			s.badly("%s: first asked by %v", path, h)
		}
		if h := list[1].Header; h.Get("If-None-Match") != by[0] || h.Get("If-Modified-Since") != by[1] {
			s.badly("%s: asked again by If-None-Match %q and If-Modified-Since %q", path, h.Get("If-None-Match"), h.Get("If-Modified-Since"))
		}
	}
	return s.done()
}

// UN-5: a page that has not changed crosses the network once, and the fetcher gets it whole each time.
func checkFromStore(s *stage) error {
	var whole atomic.Int64
	text := strings.Repeat("a line of the page\n", 20_000)
	o := s.site(tlsH2, everyone, unchanging(`"1"`, longUnchanged, text, &whole), "page.test")
	s.client("x", "crawl")
	s.start(quickly + "revalidate: {full_every: 0}\n") // else one page in 50 is asked for in full after a 304, and it may be this one
	var first string
	for n := range 3 {
		r := s.get("x", o.url("/page"))
		s.fetched("the page", r, 200)
		if n == 0 {
			first = r.body
		}
		if r.body != first || !strings.HasSuffix(r.body, text) {
			s.badly("the fetcher got %d bytes, not the %d of the page", len(r.body), len(first))
		}
		if got := r.header.Get("Crawlgate-Stored"); (got == "unchanged") != (n > 0) {
			s.badly("the fetcher was told Crawlgate-Stored: %q at visit %d", got, n+1)
		}
	}
	if n := whole.Load(); n != 1 {
		s.badly("the site sent the page %d times", n)
	}
	// A fetcher that asks by itself gets its own 304, and one that did not never sees one.
	if r := s.get("x", o.url("/page"), "If-None-Match", `"1"`); r.status != 304 || r.body != "" || r.header.Get("Crawlgate-Stored") != "" {
		s.badly("the fetcher's own conditional request: %s", r)
	}
	var events []event
	within(s.t, 10*time.Second, "the events", func() bool {
		events = slices.DeleteFunc(s.g.requests(s.t), func(e event) bool { return e.URL != o.url("/page") })
		return len(events) == 4
	})
	for n, e := range events[1:3] {
		if e.Status != 304 || e.Answered != 200 || e.BytesIn != 0 || e.BytesStored != int64(len(first)) || e.Revalidation != "unchanged" || !e.Sent {
			s.badly("event %d of the page: %+v", n+2, e)
		}
	}
	if r := s.command("audit", "prove"); r.code != 0 {
		s.badly("audit prove: %+v", r)
	}
	// A site whose owner wants to be left alone is not kept either.
	kept := func() int {
		files, err := filepath.Glob(filepath.Join(s.g.state, "answers", "??", "*"))
		if err != nil {
			s.t.Fatal(err)
		}
		return len(files)
	}
	if n := kept(); n != 2 {
		s.badly("%d files are kept", n)
	}
	if r := s.command("sites", "stop", "page.test"); r.code != 0 || kept() != 0 {
		s.badly("sites stop: %+v, %d files are kept", r, kept())
	}
	return s.done()
}

// RL-19: of 304s, one in fifty is followed by a request for the whole page.
func checkFullNowAndThen(s *stage) error {
	var whole atomic.Int64
	o := s.site(tlsH1, everyone, unchanging(`"1"`, "", "page", &whole), "many.test")
	s.client("org-a", "crawl", o.url("/"))
	s.start(quickly)
	const pages = 50
	round := func() (full int) {
		before := whole.Load()
		for n := range pages {
			r := s.get("org-a", o.url(fmt.Sprintf("/%d", n)))
			s.fetched("a page", r, 200)
		}
		return int(whole.Load() - before)
	}
	round() // everything is new
	if n := round(); n != 0 {
		s.badly("a page that was new was not asked whether it has changed: %d were sent", n)
	}
	// The fifty 304s of that round have chosen one page, the 49 of the next choose one or none.
	full := round() + round()
	if full < 1 || full > 2 {
		s.badly("%d of %d were asked for in full", full, 2*pages)
	}
	said := 0
	within(s.t, 10*time.Second, "the events", func() bool {
		list := s.g.requests(s.t)
		said = 0
		for _, e := range list {
			if e.Revalidation == "full" {
				said++
			}
		}
		return len(list) >= 4*pages
	})
	if said != full {
		s.badly("%d events say that the page was asked for in full", said)
	}
	return s.done()
}

// UN-8: a page that answered 404 or 410 is gone; after a 410 the site is not asked again, also after a restart, until the
// operator lifts it.
func checkGone(s *stage) error {
	o := s.site(tlsH2, everyone, paths(map[string]http.HandlerFunc{"/gone": statusOnly(410), "/lost": statusOnly(404)}), "gone.test")
	s.client("x", "crawl")
	s.start(quickly)
	s.fetched("/gone", s.get("x", o.url("/gone")), 410)
	s.fetched("/lost", s.get("x", o.url("/lost")), 404)
	for _, path := range []string{"/gone", "/lost"} {
		if w := s.whyAfter(o.url(path)); w.State != whyGone {
			s.badly("why says %s of %s: %s", w.State, path, w.Text)
		}
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			s.stop()
			s.serve()
		}
		again := s.get("x", o.url("/gone"))
		s.refused("/gone, again", again, "url-left")
		if p := again.problem(); again.status != 410 || p.Class != "gone" || again.header.Get("Retry-After") != "" {
			s.badly("/gone, again: %d, class %q, Retry-After %q", again.status, p.Class, again.header.Get("Retry-After"))
		}
		s.fetched("/lost, again", s.get("x", o.url("/lost")), 404)
		s.fetched("another page", s.get("x", o.url("/gone/other")), 200)
	}
	if n := asked(o, "/gone"); n != 1 {
		s.badly("/gone was asked for %d times", n)
	}
	var last whyAnswer
	within(s.t, 10*time.Second, "the refusal in the log", func() bool {
		last = s.whyOf(o.url("/gone"))
		return len(last.Outcomes) == 3
	})
	if o := last.Outcomes[0]; last.State != whyGone || o.Reason != "url-left" || o.Class != "gone" {
		s.badly("why says %s: %+v", last.State, last.Outcomes[0])
	}
	if r := s.command("check", o.url("/gone")); r.code != 3 || !strings.Contains(r.out+r.err, "410") {
		s.badly("check: %+v", r)
	}
	if r := s.command("sites", "resume", "gone.test"); r.code != 0 {
		s.badly("sites resume: %+v", r)
	}
	s.fetched("/gone, lifted", s.get("x", o.url("/gone")), 410)
	return s.done()
}

// withoutDates makes a sitemap without dates of one that has some.
func withoutDates(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h(rec, r)
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = io.WriteString(w, regexp.MustCompile(`<lastmod>[^<]*</lastmod>`).ReplaceAllString(rec.Body.String(), ""))
	}
}

// UN-12: the sitemap that robots.txt names is read, once, and what it says has not changed is not asked for again.
func checkSitemapDates(s *stage) error {
	var whole atomic.Int64
	var o *origin
	two := time.Now().Add(-48 * time.Hour).UTC().Format(time.RFC3339)
	dates := map[string]string{"/probe": two, "/old": two, "/changed": time.Now().UTC().Format(time.RFC3339), "/today": time.Now().UTC().Format(time.DateOnly)}
	o = s.site(tlsH2, "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sitemap.xml" {
			unchanging(`"1"`, longUnchanged, r.URL.Path, &whole)(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/xml")
		_, _ = io.WriteString(w, "<urlset>")
		for path, date := range dates {
			fmt.Fprintf(w, "<url><loc>%s</loc><lastmod>%s</lastmod></url>", o.url(path), date)
		}
		_, _ = io.WriteString(w, "</urlset>")
	}, "dated.test")
	o.robots = "User-agent: *\nAllow: /\nSitemap: " + o.url("/sitemap.xml") + "\n"
	s.client("x", "crawl")
	s.start(quickly)
	list := []string{"/probe", "/old", "/changed", "/today", "/unlisted"}
	for _, path := range list {
		s.fetched(path, s.get("x", o.url(path)), 200)
	}
	read := false
	for end := time.Now().Add(8 * time.Second); !read && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		read = s.get("x", o.url("/probe")).header.Get("Crawlgate-Stored") == "lastmod"
	}
	if n := asked(o, "/sitemap.xml"); n != 1 {
		s.badly("/sitemap.xml was asked for %d times", n)
	}
	if !read {
		s.badly("the copy of /probe was never given")
		return s.done()
	}
	for _, path := range list[1:] {
		before := asked(o, path)
		r := s.get("x", o.url(path))
		s.fetched(path, r, 200)
		want, times := "unchanged", 1
		if path == "/old" {
			want, times = "lastmod", 0
		}
		if got := r.header.Get("Crawlgate-Stored"); got != want || asked(o, path)-before != times || !strings.Contains(r.body, path) {
			s.badly("%s, again: %s with %q, asked for %d times more", path, r, got, asked(o, path)-before)
		}
	}
	// A fetcher that wants the page itself gets it.
	before := asked(o, "/old")
	if r := s.get("x", o.url("/old"), "Cache-Control", "no-cache"); r.header.Get("Crawlgate-Stored") != "unchanged" || asked(o, "/old") != before+1 {
		s.badly("/old with no-cache: %s", r)
	}
	var last whyAnswer
	within(s.t, 10*time.Second, "the events of /old", func() bool {
		last = s.whyOf(o.url("/old"))
		return len(last.Outcomes) == 3
	})
	if w := last.Outcomes[1]; w.State != whyAnswered || w.Revalidation != "lastmod" || w.Status != 0 {
		s.badly("why says %+v", w)
	}
	s.named("UnlobBot/1.0 (+https://www.unlob.com/crawler)", o)
	if r := s.command("audit", "prove"); r.code != 0 {
		s.badly("audit prove: %+v", r)
	}
	return s.done()
}
