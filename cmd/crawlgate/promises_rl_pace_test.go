package main

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The pace of the crawler of Records Labs.

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
