package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// RoftrlabsBot: one page, or one site, that a person asked for.

const roftrUA = "RoftrlabsBot/1.0 (+https://roftrlabs.com/crawler)"

// bothQuickly is for promises that are not about the pace.
const bothQuickly = "profiles: [{name: page, pacing: {gap: 20ms}}, {name: site, pacing: {gap: 20ms}}]\n"

// RO-1: the user agent.
func checkRoftrUA(s *stage) error {
	h1 := s.site(tlsH1, everyone, nil, "one.test")
	h2 := s.site(tlsH2, everyone, nil, "two.test")
	plain := s.site(plainHTTP, everyone, nil, "plain.test")
	s.client("people", "page,site")
	s.start(bothQuickly)
	for n, ua := range []string{"", "curl/8", "Mozilla/5.0 Chrome/156"} {
		for _, o := range []*origin{h1, h2, plain} {
			s.fetched(ua, s.get(fmt.Sprintf("people+page+a%d", n), o.url("/a"), "User-Agent", ua), 200)
			s.fetched(ua, s.get(fmt.Sprintf("people+site+%s%d", o.hosts[0], n), o.url("/b"), "User-Agent", ua), 200)
		}
	}
	s.named(roftrUA)
	return s.done()
}

// RO-2: only what a person asked for; nothing without a job, nothing beside it.
func checkOnlyJobs(s *stage) error {
	o := s.site(tlsH1, "", page(`<link rel=stylesheet href=/s.css><a href=/next>next</a><img src=/i.png><a href=/f.pdf>f</a>`), "asked.test")
	o.rules = func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "User-agent: *\nAllow: /\nSitemap: %s\n", o.url("/sitemap.xml"))
	}
	s.client("people", "page,site")
	s.start(bothQuickly)
	for _, user := range []string{"people", "people+page", "people+site"} {
		s.refused("without a job as "+user, s.get(user, o.url("/page")), "job-required")
	}
	if n := len(o.arrivals()); n != 0 {
		s.badly("%d requests without a job", n)
	}
	s.fetched("the page", s.get("people+page+j1", o.url("/page")), 200)
	s.stop() // whatever would be under way in the background has ended
	if got := uris(o.arrivals()); !slices.Equal(got, []string{"GET /robots.txt", "GET /page"}) {
		s.badly("for one page the site got %v", got)
	}
	return s.done()
}

// RO-3: a site job: so many pages of one site, one at a time with a gap, and a report.
func checkSiteJob(s *stage) error {
	o := s.site(tlsH1, everyone, nil, "shop.test", "www.shop.test")
	other := s.site(tlsH1, everyone, nil, "other.test")
	s.client("people", "page,site")
	s.start("clients: [{name: people, fields: true}]\n")
	const user = "people+site+errand"
	lower := []string{"Crawlgate-Job", "errand;max-pages=3"}
	s.fetched("the first page", s.get(user, o.url("/1"), lower...), 200)
	s.refused("another domain", s.get(user, other.url("/")), "job-off-site")
	for n, r := range s.getAll(user, o.at("www.shop.test", "/2"), o.url("/3")) {
		s.fetched(fmt.Sprintf("page %d", n+2), r, 200)
	}
	s.refused("a fourth page", s.get(user, o.url("/4")), "job-exhausted")
	s.refused("a fifth, with a higher wish", s.get(user, o.url("/5"), "Crawlgate-Job", "errand;max-pages=500"), "job-exhausted")
	s.fetched("a page of another job", s.get("people+site+big", o.url("/6")), 200)
	if n := other.connections(); n != 0 {
		s.badly("another domain was connected to")
	}
	s.untouched(o, "/4", "/5")
	var shop []arrival
	for _, a := range o.arrivals() {
		if strings.HasPrefix(a.Host, "shop.test") {
			shop = append(shop, a)
		}
	}
	s.spaced("one at a time with a gap", time.Second, shop)
	for job, want := range map[string]struct {
		pages, limit int
		stopped      string
	}{"errand": {3, 3, "job-exhausted"}, "big": {1, 300, ""}} {
		var j struct {
			Pages    int
			MaxPages int `json:"max_pages"`
			Stopped  string
			Site     string
			Refused  map[string]int
		}
		r := s.command("jobs", "show", job, "--json")
		if err := json.Unmarshal([]byte(r.out), &j); err != nil {
			s.t.Fatalf("jobs show: %v: %+v", err, r)
		}
		if j.Pages != want.pages || j.MaxPages != want.limit || j.Stopped != want.stopped || j.Site != "shop.test" {
			s.badly("the report of %s: %s", job, r.out)
		}
		if job == "errand" && (j.Refused["job-off-site"] != 1 || j.Refused["job-exhausted"] != 2) {
			s.badly("the report of %s counts %v", job, j.Refused)
		}
	}
	return s.done()
}

// RO-5: five redirects, quick time-outs, a ceiling for sizes.
func checkLimits(s *stage) error {
	var wrote atomic.Int64
	release := make(chan struct{})
	defer close(release)
	o := s.site(tlsH1, everyone, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/hop/"):
			redirectTo(302, "/hop/"+string(path[5]+1))(w, r)
		case path == "/silent":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case path == "/huge":
			w.Header().Set("Content-Length", "99999999")
			w.WriteHeader(200)
		case path == "/endless":
			piece := make([]byte, 64<<10)
			for wrote.Load() < 64<<20 {
				n, err := w.Write(piece)
				wrote.Add(int64(n))
				if err != nil {
					return
				}
			}
		default:
			page("")(w, r)
		}
	}, "limits.test")
	s.client("people", "page,site")
	s.start("profiles: [{name: page, pacing: {gap: 20ms}, limits: {timeout: 1s}}]\n")
	const user = "people+page+j"
	for n := range 6 { // the first page and five redirects
		s.fetched(fmt.Sprintf("redirect %d", n), s.get(user, o.url(fmt.Sprintf("/hop/%d", n))), 302)
	}
	s.refused("a sixth redirect", s.get(user, o.url("/hop/6")), "too-many-redirects")
	began := time.Now()
	s.refused("a site that does not answer", s.get(user, o.url("/silent")), "upstream-timeout")
	if d := time.Since(began); d > 20*time.Second {
		s.badly("the time-out took %v", d)
	}
	s.refused("an answer that says it is too large", s.get(user, o.url("/huge")), "response-too-large")
	r := s.get(user, o.url("/endless"))
	if r.err == nil && r.reason() == "" {
		s.badly("an endless answer ended well after %d bytes", len(r.body))
	}
	if n := wrote.Load(); n > 40<<20 {
		s.badly("%d bytes of an endless answer were read", n)
	}
	shown := s.command("config", "show")
	if n := strings.Count(shown.out, "timeout: 20s"); n != 1 { // page has the second of this test
		s.badly("the profile site has no time-out of 20 s: %s", shown.out)
	}
	return s.done()
}

// RO-6: reads only.
func checkReadsOnly(s *stage) error {
	o := s.site(tlsH1, everyone, nil, "reads.test")
	s.client("people", "page,site")
	s.start(bothQuickly)
	for _, profile := range []string{"page", "site"} {
		user := "people+" + profile + "+j" + profile
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			s.refused(method, s.get(user, o.url("/form"), "method", method), "method-denied")
		}
		s.refused("a form", s.get(user, o.url("/form"), "method", "POST", "body", "name=value"), "method-denied")
		s.refused("a body", s.get(user, o.url("/form"), "body", "name=value"), "body-denied")
		s.fetched("GET", s.get(user, o.url("/page"), "Authorization", "Basic c2VjcmV0OnNlY3JldA=="), 200)
		s.fetched("HEAD", s.get(user, o.url("/page"), "method", "HEAD", "Authorization", "Bearer secret"), 200)
	}
	s.untouched(o, "/form")
	for _, a := range o.arrivals() {
		if a.Header.Get("Authorization") != "" || a.Body != 0 || a.Method != "GET" && a.Method != "HEAD" {
			s.badly("%s %s arrived with Authorization %q and %d bytes", a.Method, a.URI, a.Header.Get("Authorization"), a.Body)
		}
	}
	return s.done()
}
