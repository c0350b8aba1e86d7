package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The pace of the crawler of Records Labs, what it does after refusals, and its other profiles.

// asFile are the fields of a browser's request for an image of a page.
func asFile(pageURL string) []string {
	return []string{"Referer", pageURL, "Sec-Fetch-Dest", "image", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "same-origin"}
}

// asNavigation are the fields of a browser's navigation.
func asNavigation() []string {
	return []string{"Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "none", "Sec-Fetch-User", "?1", "Accept", "text/html"}
}

// RL-10: with a Crawl-delay every request waits its own turn, or is skipped when that is too far away.
func checkCrawlDelay(s *stage) error {
	o := s.site(tlsH1, "User-agent: *\nCrawl-delay: 2\n", nil, "slow.test")
	far := s.site(tlsH1, "User-agent: *\nCrawl-delay: 30\n", nil, "far.test")
	s.client("org-a", "crawl", o.url("/"), far.url("/"))
	s.start("")
	s.fetched("a page", s.get("org-a", o.url("/one")), 200)
	s.fetched("the next page", s.get("org-a", o.url("/page")), 200)
	s.fetched("its image", s.get("org-a", o.url("/image.png"), asFile(o.url("/page"))...), 200)
	s.fetched("its render", s.get("org-a", o.url("/page"), asNavigation()...), 200)
	s.fetched("a second request for it", s.get("org-a", o.url("/page")), 200)
	s.spaced("Crawl-delay: 2", 2*time.Second, o.pages())
	s.fetched("a page of a site with a long delay", s.get("org-a", far.url("/page")), 200)
	s.refused("its image", s.get("org-a", far.url("/image.png"), asFile(far.url("/page"))...), "turn-too-far")
	s.untouched(far, "/image.png")
	return s.done()
}

// RL-11: Request-rate works; the slower of two; a day at most.
func checkRequestRate(s *stage) error {
	var sites []string
	wants := []int{20, 30, 40, 86400, 86400}
	for n, robots := range []string{
		"User-agent: *\nRequest-rate: 1/20\n",
		"User-agent: *\nCrawl-delay: 30\nRequest-rate: 1/20\n",
		"User-agent: *\nCrawl-delay: 5\nRequest-rate: 1/40\n",
		"User-agent: *\nCrawl-delay: 999999\n",
		"User-agent: *\nRequest-rate: 1/30d\nCrawl-delay: 100000000000000000000\n",
	} {
		sites = append(sites, s.site(tlsH1, robots, nil, fmt.Sprintf("www.rate%d.test", n)).url("/"))
	}
	timed := s.site(tlsH1, "User-agent: *\nRequest-rate: 1/2\n", nil, "timed.test")
	s.client("org-a", "crawl", append(sites, timed.url("/"))...)
	s.start(quickly)
	for n, u := range sites {
		s.fetched(u, s.get("org-a", u), 200)
		began := time.Now()
		r := s.get("org-a", u+"next", "Crawlgate-Max-Wait", "0")
		s.refused(s.sites[n].robots, r, "turn-too-far")
		after, _ := strconv.Atoi(r.header.Get("Retry-After"))
		if passed := int(time.Since(began)/time.Second) + 2; after > wants[n] || after < wants[n]-passed {
			s.badly("%q: Retry-After %d, not %d", s.sites[n].robots, after, wants[n])
		}
		s.untouched(s.sites[n], "/next")
	}
	for n := range 3 {
		s.fetched("timed", s.get("org-a", timed.url("/"+itoa(n))), 200)
	}
	s.spaced("Request-rate: 1/2", 2*time.Second, timed.pages())
	return s.done()
}

// RL-17: one at a time for each host, a second after the end, for pages, files and sitemap files of all organisations.
func checkOneAtATime(s *stage) error {
	var o *origin
	slow := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			<-time.After(150 * time.Millisecond) // a page takes a while: the second runs from its end
			h(w, r)
		}
	}
	o = s.site(tlsH1, everyone, slow(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/index.xml":
			w.Header().Set("Content-Type", "application/xml")
			fmt.Fprintf(w, `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>%s</loc></sitemap><sitemap><loc>%s</loc></sitemap></sitemapindex>`, o.url("/a.xml"), o.url("/b.xml"))
		case "/a.xml":
			sitemapOf(o.url("/a1"))(w, r)
		case "/b.xml":
			sitemapOf(o.url("/b1"))(w, r)
		default:
			page(`<a href="https://files.test/x.pdf">f</a>`)(w, r)
		}
	}), "shared.test")
	s.client("org-a", "crawl", "{sitemap: \""+o.url("/index.xml")+"\"}")
	s.client("org-b", "crawl", o.url("/"))
	s.start("")
	a, b := s.as("org-a"), s.as("org-b")
	done := make(chan received)
	urls := []string{o.url("/b1"), o.url("/p1"), o.url("/f1.pdf"), o.url("/p2")}
	for n, u := range urls {
		c := b
		if n == 0 {
			c = a
		}
		go func() { done <- send(c, u) }()
	}
	for range urls {
		r := <-done
		s.fetched("one of several fetchers", r, 200)
	}
	list := o.arrivals()
	slices.SortFunc(list, func(x, y arrival) int { return x.At.Compare(y.At) })
	if len(list) != 8 { // robots.txt, three sitemap files, four of the clients
		s.badly("the site got %v", uris(list))
	}
	s.spaced("one at a time", time.Second, list)
	if n := len(list); n > 1 {
		if mean := list[n-1].At.Sub(list[0].At) / time.Duration(n-1); mean > 6*time.Second {
			s.badly("one page in %v is not about one in a second", mean)
		}
	}
	return s.done()
}

// RL-18: without a delay some requests have no second of their own. A gap of three seconds makes a wait plain.
func checkRiders(s *stage) error {
	const gap = 3 * time.Second
	o := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/moved": redirectTo(301, "/page")}), "quick.test")
	s.client("org-a", "crawl", o.url("/"))
	s.start("profiles: [{name: crawl, pacing: {gap: 3s, robots: free}}]\n")
	s.fetched("the redirect", s.get("org-a", o.url("/moved")), 301)
	s.fetched("its target", s.get("org-a", o.url("/page")), 200)
	s.fetched("an image", s.get("org-a", o.url("/image.png"), asFile(o.url("/page"))...), 200)
	s.fetched("a render", s.get("org-a", o.url("/page"), asNavigation()...), 200)
	s.fetched("a second request", s.get("org-a", o.url("/page")), 200)
	s.fetched("another page", s.get("org-a", o.url("/other")), 200)
	s.within("a redirect on the same site", gap, o, "/moved", "/page")
	s.within("an image", gap, o, "/page", "/image.png")
	var same []arrival
	for _, a := range o.pages() {
		if a.URI == "/page" {
			same = append(same, a)
		}
	}
	if len(same) != 3 {
		s.badly("the page was asked for %d times", len(same))
	}
	for n := 1; n < len(same); n++ {
		if d := same[n].At.Sub(same[n-1].Done); d >= gap {
			s.badly("a render or a second request came %v later: it waited for a turn of its own", d)
		}
	}
	if first, ok := find(o, "/page"); ok {
		if other, ok := find(o, "/other"); !ok || other.At.Sub(first.Done) < gap {
			s.badly("another page had no turn of its own")
		}
	}
	return s.done()
}

// RL-22: a page that answers 429 or 503 is tried a few times at the pace, then left for the round.
func checkLeft(s *stage) error {
	busy := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/page": statusOnly(429)}), "busy.test")
	down := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/page": statusOnly(503)}), "down.test")
	s.client("org-a", "crawl", busy.url("/"), down.url("/"))
	const gap = 200 * time.Millisecond
	s.start("profiles: [{name: crawl, pacing: {gap: 200ms}}]\npacing: {backoff: {base: 100ms, cap: 200ms}, slow: {max_level: 1}}\n")
	for _, o := range []*origin{busy, down} {
		var r received
		for range 8 {
			r = s.get("org-a", o.url("/page"))
		}
		s.refused("the page after its tries", r, "url-left")
		if n := asked(o, "/page"); n < 2 || n > 5 {
			s.badly("%s/page was asked for %d times; a few tries were promised", o.hosts[0], n)
		}
		s.spaced("tries", gap, o.pages())
		s.fetched("another page", s.get("org-a", o.url("/other")), 200)
	}
	return s.done()
}

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

// RL-24: a site that refuses almost everything is left alone until its organisation asks again.
func checkLeftAlone(s *stage) error {
	refuses := lockedText{s: "yes"}
	o := s.site(tlsH1, everyone, func(w http.ResponseWriter, r *http.Request) {
		if refuses.get() == "yes" {
			w.WriteHeader(403)
			return
		}
		page("")(w, r)
	}, "hostile.test")
	s.client("org-a", "crawl", o.url("/"))
	s.start(quickly)
	var r received
	for n := range 14 {
		r = s.get("org-a", o.url("/"+itoa(n)))
	}
	s.refused("the next page", r, "host-stopped")
	if after, _ := strconv.Atoi(r.header.Get("Retry-After")); after < 3000 || after > 3600 {
		s.badly("it is to be left alone for an hour, not %d s", after)
	}
	if n := len(o.pages()); n > 10 {
		s.badly("the site was asked for %d pages that it refused", n)
	}
	refuses.set("no")
	s.refused("a page, before anybody asked", s.get("org-a", o.url("/again")), "host-stopped")
	if r := s.command("sites", "resume", "hostile.test"); r.code != 0 {
		s.badly("sites resume: %+v", r)
	}
	s.fetched("a page, after the organisation asked", s.get("org-a", o.url("/again")), 200)
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
