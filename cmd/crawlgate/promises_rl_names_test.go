package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// What is refused to the crawler of Records Labs, and its other profiles.

// RL-23: a refusal is never worked round.
func checkNoWayRound(s *stage) error {
	no := paths(map[string]http.HandlerFunc{
		"/secret": statusOnly(403), "/law": statusOnly(451),
		"/check": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cf-Mitigated", "challenge")
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(403)
			_, _ = io.WriteString(w, "<title>Just a moment...</title><form action=/solve></form>")
		},
	})
	o := s.site(tlsH1, everyone, no, "www.strict.test")
	sub := s.site(tlsH1, everyone, no, "other.strict.test")
	s.client("org-a", "crawl,direct,answer", o.url("/"), sub.url("/"))
	s.client("org-b", "answer,crawl", o.url("/"))
	s.start(quickly + publishedAddresses)
	before := []string{"/secret", "/law", "/check"}
	for _, path := range before {
		r := s.get("org-a", o.url(path))
		if r.reason() != "" || r.status != 403 && r.status != 451 {
			s.badly("%s: %s", path, r)
		}
	}
	refusedToOthers := func(when string) {
		for _, path := range before {
			s.refused(path+" as another agent "+when, s.get("org-a+answer", o.url(path)), "identity-switch")
			s.refused(path+" as another client's agent "+when, s.get("org-b", o.url(path)), "identity-switch")
		}
	}
	refusedToOthers("at once")
	s.fetched("another page as that agent", s.get("org-b", o.url("/open")), 200)
	s.get("org-a", o.url("/secret"))
	s.get("org-a+direct", o.url("/secret"))
	s.get("org-a", sub.url("/secret"))
	s.stop()
	s.serve()
	refusedToOthers("after a restart")
	if list := append(from(o), from(sub)...); len(list) < 2 || list[0] != list[1] || len(from(o)) != 1 {
		s.badly("the site was asked from %v, not from one address", list)
	}
	for _, a := range o.arrivals() {
		if slices.Contains(before, a.URI) && a.Header.Get("User-Agent") != labsUA {
			s.badly("%s was asked for as %q", a.URI, a.Header.Get("User-Agent"))
		}
	}
	if n := asked(o, "/check"); n != 1 {
		s.badly("the bot check was asked for %d times", n)
	}
	s.untouched(o, "/solve")
	return s.done()
}

// forbidding is a site whose robots.txt forbids everything and asks for a long delay; its pages are there together.
func (s *stage) forbidding(g *gathering, host string) *origin {
	s.t.Helper()
	return s.site(tlsH1, "User-agent: *\nDisallow: /\nCrawl-delay: 60\n", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			redirectTo(301, "/where")(w, r)
		case "/one", "/two", "/three":
			g.ServeHTTP(w, r)
		default:
			page("")(w, r)
		}
	}, host)
}

// free wants that a profile reads no robots.txt and keeps no pace on a site that nobody added, under one name ("" leaves that
// to the caller).
func (s *stage) free(user string, o *origin, g *gathering, ua string) {
	s.t.Helper()
	for n, r := range s.getAll(user, o.url("/one"), o.url("/two"), o.url("/three")) {
		s.fetched(fmt.Sprintf("%s, page %d", user, n), r, 200)
	}
	if !g.together() {
		s.badly("%s: three requests were not let through together", user)
	}
	s.untouched(o, "/robots.txt")
	if ua != "" {
		s.named(ua, o)
	}
}

// RL-26: a quick look where an address leads.
func checkQuickLook(s *stage) error {
	g := newGathering(3)
	o := s.forbidding(g, "address.test")
	s.client("org-a", "crawl,direct", "https://added.test/")
	s.start("")
	s.refused("the crawl there", s.get("org-a", o.url("/")), "site-denied")
	r := s.get("org-a+direct", o.url("/moved"))
	s.fetched("the look", r, 301)
	if loc := r.header.Get("Location"); loc != "/where" {
		s.badly("it leads to %q", loc)
	}
	s.fetched("a look with HEAD", s.get("org-a+direct", o.url("/where"), "method", "HEAD"), 200)
	s.free("org-a+direct", o, g, labsUA)
	return s.done()
}

// RL-27: files added by address, course files, access tests, re-downloads.
func checkDirect(s *stage) error {
	g := newGathering(3)
	o := s.forbidding(g, "files.test")
	s.client("org-a", "crawl,direct", "https://added.test/")
	s.start("")
	for range 3 {
		s.fetched("a file and its re-downloads", s.get("org-a+direct", o.url("/handout.pdf"), "User-Agent", "downloader/1"), 200)
	}
	s.free("org-a+direct", o, g, labsUA)
	return s.done()
}

// RL-28: course pages.
func checkCourse(s *stage) error {
	g := newGathering(3)
	o := s.forbidding(g, "course.test")
	s.client("person-a", "person")
	s.start("")
	const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	s.fetched("a course page", s.get("person-a", o.url("/lesson"), "User-Agent", browser), 200)
	for _, a := range o.arrivals() {
		if a.Header.Get("User-Agent") != browser {
			s.badly("%s came as %q", a.URI, a.Header.Get("User-Agent"))
		}
	}
	s.free("person-a", o, g, "")
	return s.done()
}

// RL-29: assistants' reads.
func checkAnswer(s *stage) error {
	g := newGathering(3)
	o := s.forbidding(g, "source.test")
	strict := s.site(tlsH1, everyone, statusOnly(403), "strict.test")
	s.client("org-a", "crawl,answer", strict.url("/"))
	s.start(quickly)
	s.fetched("a refusal to the crawl", s.get("org-a", strict.url("/page")), 403)
	n := len(strict.arrivals())
	s.refused("the same page for an assistant", s.get("org-a+answer", strict.url("/page")), "identity-switch")
	if len(strict.arrivals()) != n {
		s.badly("the refused page was asked for again under another name")
	}
	s.free("org-a+answer", o, g, "RecordsLabs-AnswerFetch/1")
	return s.done()
}

// RL-30: the crawl uses saved cookies, under its own name, rules and pace.
func checkCookies(s *stage) error {
	o := s.site(tlsH1, "User-agent: *\nDisallow: /no\nCrawl-delay: 1\n", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Set-Cookie", "seen=1; Path=/; HttpOnly")
		w.Header().Add("Set-Cookie", "more=2")
		page("")(w, nil)
	}, "members.test")
	s.client("org-a", "crawl", o.url("/"))
	s.start(quickly)
	const cookie = `session=abc; theme="dark, wide"`
	for n := range 3 {
		r := s.get("org-a", o.url("/"+itoa(n)), "Cookie", cookie)
		s.fetched("a page", r, 200)
		if got := r.header["Set-Cookie"]; !slices.Equal(got, []string{"seen=1; Path=/; HttpOnly", "more=2"}) {
			s.badly("the fetcher got the cookies %q", got)
		}
	}
	s.refused("a forbidden page", s.get("org-a", o.url("/no"), "Cookie", cookie), "robots-disallow")
	for _, a := range o.arrivals() {
		want := cookie
		if a.URI == "/robots.txt" {
			want = ""
		}
		if got := a.Header.Get("Cookie"); got != want {
			s.badly("%s came with the cookies %q", a.URI, got)
		}
	}
	s.named(labsUA)
	s.spaced("Crawl-delay: 1", time.Second, o.pages())
	s.untouched(o, "/no")
	return s.done()
}
