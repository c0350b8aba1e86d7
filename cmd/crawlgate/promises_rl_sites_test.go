package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Where the crawler of Records Labs goes, and under which name.

const (
	labsUA = "Mozilla/5.0 (compatible; RecordsLabsIngestion/1.0; +https://recordslabs.ai/ingestion)"
	// quickly is for promises that are not about the pace.
	quickly  = "profiles: [{name: crawl, pacing: {gap: 20ms}}]\n"
	everyone = "User-agent: *\nAllow: /\n"
)

func sitemapOf(urls ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
		for _, u := range urls {
			fmt.Fprintf(w, "<url><loc>%s</loc></url>", u)
		}
		fmt.Fprint(w, "</urlset>")
	}
}

// RL-1: a whole site, a sitemap's URLs, a list of pages, and nothing else.
func checkAddedSites(s *stage) error {
	docs := s.site(tlsH2, everyone, nil, "docs.acme.test")
	var www *origin
	www = s.site(tlsH1, everyone, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			sitemapOf(www.url("/listed"), www.url("/too"))(w, r)
			return
		}
		page("")(w, r)
	}, "www.acme.test")
	shop := s.site(tlsH1, everyone, nil, "shop.acme.test")
	other := s.site(tlsH1, everyone, nil, "other.test")
	s.client("org-a", "crawl", docs.url("/"), "{sitemap: \""+www.url("/sitemap.xml")+"\"}", "{pages: [\""+shop.url("/a")+"\", \""+shop.url("/b?x=1")+"\"]}")
	s.start(quickly)
	for _, u := range []string{docs.url("/"), docs.url("/deep/page?q=1"), www.url("/listed"), www.url("/too"), shop.url("/a"), shop.url("/b?x=1")} {
		s.fetched(u, s.get("org-a", u), 200)
	}
	for _, u := range []string{www.url("/unlisted"), shop.url("/c"), shop.url("/b"), shop.url("/"), other.url("/"), other.url("/robots.txt")} {
		s.refused(u, s.get("org-a", u), "site-denied")
	}
	s.untouched(www, "/unlisted")
	s.untouched(shop, "/c", "/b", "/")
	if n := other.connections(); n != 0 {
		s.badly("a site that nobody added was connected to %d times", n)
	}
	return s.done()
}

// RL-2: the pages that added pages redirect to, and the files they link to.
func checkRedirectsAndFiles(s *stage) error {
	away := s.site(tlsH1, everyone, nil, "elsewhere.test")
	files := s.site(tlsH1, everyone, nil, "files.test")
	docs := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{
		"/moved": redirectTo(302, away.url("/new")),
		"/":      page(`<a href="` + files.url("/report.pdf") + `">report</a> <a href="` + files.url("/page.html") + `">a page</a>`),
	}), "docs.acme.test")
	s.client("org-a", "crawl", docs.url("/"))
	s.start(quickly)
	s.refused("the redirect's target before the redirect", s.get("org-a", away.url("/new")), "site-denied")
	s.refused("the file before its page", s.get("org-a", files.url("/report.pdf")), "site-denied")
	s.fetched("the redirect", s.get("org-a", docs.url("/moved")), 302)
	s.fetched("the redirect's target", s.get("org-a", away.url("/new")), 200)
	s.fetched("the page", s.get("org-a", docs.url("/")), 200)
	s.fetched("the file it links to", s.get("org-a", files.url("/report.pdf")), 200)
	s.refused("another page there", s.get("org-a", away.url("/other")), "site-denied")
	s.refused("a page that was linked to", s.get("org-a", files.url("/page.html")), "site-denied")
	s.refused("a file that was not linked to", s.get("org-a", files.url("/other.pdf")), "site-denied")
	return s.done()
}

// RL-4: one user agent on every request, whatever the fetcher sent.
func checkUserAgent(s *stage) error {
	plain := s.site(plainHTTP, everyone, nil, "plain.acme.test")
	h1 := s.site(tlsH1, everyone, nil, "one.acme.test")
	h2 := s.site(tlsH2, everyone, nil, "two.acme.test")
	var maps *origin
	maps = s.site(tlsH1, everyone, func(w http.ResponseWriter, r *http.Request) { sitemapOf(maps.url("/in"))(w, r) }, "maps.acme.test")
	s.client("org-a", "crawl", plain.url("/"), h1.url("/"), h2.url("/"), "{sitemap: \""+maps.url("/sitemap.xml")+"\"}")
	s.start(quickly)
	for n, ua := range []string{"", "curl/8.14.1", "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0", labsUA + " more"} {
		for _, o := range []*origin{plain, h1, h2} {
			s.fetched(ua, s.get("org-a", o.url("/"+itoa(n)), "User-Agent", ua, "Sec-CH-UA", `"Chromium";v="156"`), 200)
		}
	}
	s.fetched("a page of a sitemap", s.get("org-a", maps.url("/in")), 200)
	s.named(labsUA)
	for _, o := range s.sites {
		for _, a := range o.arrivals() {
			if a.Header.Get("Sec-Ch-Ua") != "" {
				s.badly("%s carried the browser's hints", a.URI)
			}
		}
	}
	return s.done()
}

// publishedList are the addresses that an operator publishes, on loopback here.
var publishedList = []string{"127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14", "127.0.0.15"}

const publishedAddresses = "egress: {source_addresses: [127.0.0.11, 127.0.0.12, 127.0.0.13, 127.0.0.14, 127.0.0.15]}\n"

// from collects the addresses that a site was asked from.
func from(o *origin) []string {
	var out []string
	for _, a := range o.arrivals() {
		host, _, _ := net.SplitHostPort(a.Remote)
		if !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return out
}

// RL-6: five published addresses and no other.
func checkAddresses(s *stage) error {
	var urls []string
	for n := range 6 {
		o := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/moved": redirectTo(302, "/new")}), fmt.Sprintf("www.site%d.test", n))
		urls = append(urls, o.url("/"))
	}
	plain := s.site(plainHTTP, everyone, nil, "plain.test")
	s.client("org-a", "crawl,direct,answer,person", append(urls, plain.url("/"))...)
	s.start(quickly + publishedAddresses)
	for _, u := range append(urls, plain.url("/")) {
		s.fetched(u, s.get("org-a", u), 200)
		for _, profile := range []string{"direct", "answer", "person"} {
			s.fetched(u, s.get("org-a+"+profile, u+profile), 200)
		}
	}
	s.get("org-a", urls[0]+"moved")
	s.get("org-a", urls[0]+"new")
	used := map[string]bool{}
	for _, o := range s.sites {
		for _, a := range from(o) {
			used[a] = true
			if !slices.Contains(publishedList, a) {
				s.badly("%s was asked from %s, which is not published", o.hosts[0], a)
			}
		}
	}
	if len(used) < 2 {
		s.badly("of five addresses %d was used for seven domains", len(used))
	}
	resp, err := direct.Get(s.g.admin + "/ip-ranges.json")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Prefixes []struct{ IPv4Prefix, IPv6Prefix string }
	}
	_ = json.NewDecoder(resp.Body).Decode(&list)
	var got []string
	for _, p := range list.Prefixes {
		got = append(got, strings.TrimSuffix(p.IPv4Prefix, "/32")+p.IPv6Prefix)
	}
	if !slices.Equal(got, publishedList) {
		s.badly("/ip-ranges.json lists %v", got)
	}
	return s.done()
}
