package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// What happened to a page that UnlobBot does not have.

// UN-6: 301 and 308, up to five hops; the target replaces the source.
func checkMovedForGood(s *stage) error {
	var o *origin
	o = s.site(tlsH1, everyone, func(w http.ResponseWriter, r *http.Request) {
		if hop, ok := strings.CutPrefix(r.URL.Path, "/hop/"); ok {
			redirectTo(map[string]int{"0": 301, "1": 308, "2": 301, "3": 308, "4": 301, "5": 301, "6": 301}[hop], o.url("/hop/"+string(hop[0]+1)))(w, r)
			return
		}
		page("")(w, r)
	}, "moved.test")
	s.client("x", "crawl")
	s.start(quickly)
	for n := range 6 {
		status := 301
		if n == 1 || n == 3 {
			status = 308
		}
		u := o.url(fmt.Sprintf("/hop/%d", n))
		s.fetched(fmt.Sprintf("hop %d", n), s.get("x", u), status)
		w := s.whyAfter(u)
		if want := fmt.Sprintf("moved for good (%d) to %s", status, o.url(fmt.Sprintf("/hop/%d", n+1))); w.State != whyMoved || w.Text != want {
			s.badly("why says %s: %s", w.State, w.Text)
		}
	}
	s.refused("a sixth hop", s.get("x", o.url("/hop/6")), "too-many-redirects")
	s.untouched(o, "/hop/6")
	return s.done()
}

// UN-7: 302 and 307 are followed and the original stays.
func checkMovedForNow(s *stage) error {
	var o *origin
	o = s.site(tlsH1, everyone, func(w http.ResponseWriter, r *http.Request) {
		paths(map[string]http.HandlerFunc{"/a": redirectTo(302, o.url("/b")), "/b": redirectTo(307, o.url("/c"))})(w, r)
	}, "now.test")
	s.client("x", "crawl")
	s.start(quickly)
	s.fetched("302", s.get("x", o.url("/a")), 302)
	s.fetched("307", s.get("x", o.url("/b")), 307)
	s.fetched("the target", s.get("x", o.url("/c")), 200)
	for path, want := range map[string]string{"/a": "redirected (302) to " + o.url("/b"), "/b": "redirected (307) to " + o.url("/c")} {
		if w := s.whyAfter(o.url(path)); w.State != whyMoved || w.Text != want+"; this address stays the one to ask for" {
			s.badly("why says %s: %s", w.State, w.Text)
		}
	}
	return s.done()
}

// UN-11: noindex and nofollow, from the page and from its header, reach the fetcher and the audit.
func checkIndexing(s *stage) error {
	tagged := func(line, markup string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if line != "" {
				w.Header().Set("X-Robots-Tag", line)
			}
			page("")(w, r)
			_ = http.NewResponseController(w).Flush() // the head may go on before the page says more: then it comes at the end
			_, _ = io.WriteString(w, markup)
		}
	}
	o := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{
		"/header": tagged("noindex", ""),
		"/ours":   tagged("otherbot: noindex, unlobbot: nofollow", ""),
		"/meta":   tagged("", `<meta name="robots" content="noindex, nofollow">`),
		"/both":   tagged("nofollow", `<meta name=unlobbot content=noindex>`),
		"/none":   tagged("", `<meta name="otherbot" content="noindex">`),
	}), "tags.test")
	s.client("x", "crawl")
	s.start(quickly)
	for path, want := range map[string]string{"/header": "noindex", "/ours": "nofollow", "/meta": "noindex, nofollow", "/both": "noindex, nofollow", "/none": ""} {
		r := s.get("x", o.url(path), "TE", "trailers")
		s.fetched(path, r, 200)
		got := r.header.Get("Crawlgate-Indexing")
		if late := r.trailer.Get("Crawlgate-Indexing"); late != "" {
			got = late
		}
		if got != want {
			s.badly("%s: the fetcher was told %q, not %q", path, got, want)
		}
		if w := s.whyAfter(o.url(path)); len(w.Outcomes) != 1 || w.Outcomes[0].Indexing != want {
			s.badly("%s: why says %+v, not %q", path, w.Outcomes, want)
		}
	}
	return s.done()
}

// UN-14: a removal request is in force at once, and `why` tells it from a page that was never seen.
func checkRemoval(s *stage) error {
	o := s.site(tlsH1, everyone, nil, "removed.test", "sub.removed.test")
	other := s.site(tlsH1, everyone, nil, "other.test")
	s.client("x", "crawl")
	s.start(quickly)
	s.fetched("a page", s.get("x", o.url("/seen")), 200)
	host := "removed.test"
	if s.mutated() {
		host = "other.test"
	}
	if r := s.command("sites", "stop", host, "--subdomains", "--reason", "removal request of the owner"); r.code != 0 {
		s.t.Fatalf("sites stop: %+v", r)
	}
	n := len(o.arrivals())
	for _, u := range []string{o.url("/seen"), o.url("/new"), o.at("sub.removed.test", "/new"), o.url("/robots.txt")} {
		s.refused(u, s.get("x", u), "site-stopped")
	}
	if len(o.arrivals()) != n {
		s.badly("the site was asked after the request: %v", uris(o.arrivals()[n:]))
	}
	for _, path := range []string{"/seen", "/never"} {
		w := s.whyOf(o.url(path))
		if w.State != whyRemoved || w.Ledger == nil || w.Ledger.Reason != "removal request of the owner" {
			s.badly("why says %s of %s: %s", w.State, path, w.Text)
		}
	}
	if w := s.whyOf(other.url("/never")); w.State != whyNever {
		s.badly("why says %s of a page nobody asked for", w.State)
	}
	return s.done()
}

// UN-20: every gap in the coverage has a typed reason.
func checkCoverage(s *stage) error {
	o := s.site(tlsH1, "User-agent: *\nDisallow: /no\n", paths(map[string]http.HandlerFunc{
		"/blocked": statusOnly(403), "/login": statusOnly(401), "/law": statusOnly(451), "/paid": statusOnly(402), "/gone": statusOnly(410), "/lost": statusOnly(404), "/broken": statusOnly(500),
	}), "gaps.test")
	busy := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/busy": statusOnly(429, "Retry-After", "1")}), "busy.test")
	dead := s.site(tlsH1, "", nil, "dead.test")
	dead.rules = statusOnly(500)
	s.client("x", "crawl")
	s.start(quickly + "pacing: {backoff: {base: 50ms, cap: 50ms}}\n")
	wants := []struct{ url, state, reason string }{
		{o.url("/no/x"), whyRefused, "robots-disallow"}, {o.url("/blocked"), whyBlocked, "ok"}, {o.url("/login"), whyBlocked, "ok"}, {o.url("/law"), whyBlocked, "ok"},
		{o.url("/paid"), whyPaywall, "ok"}, {o.url("/gone"), whyGone, "ok"}, {o.url("/lost"), whyGone, "ok"}, {o.url("/broken"), whyFailed, "ok"}, {busy.url("/busy"), whyBacked, "ok"},
		{dead.url("/"), whyRefused, "robots-unreadable"}, {"https://no-such-name.test/", whyFailed, "dns-failed"}, {"http://10.0.0.7/", whyRefused, "address-denied"},
	}
	for _, w := range wants {
		s.get("x", w.url)
	}
	for _, want := range wants {
		w := s.whyAfter(want.url)
		if w.State != want.state || len(w.Outcomes) != 1 || w.Outcomes[0].Reason != want.reason {
			s.badly("%s: why says %s (%s): %+v, not %s", want.url, w.State, w.Text, w.Outcomes, want.state)
		}
	}
	if w := s.whyOf(o.url("/never")); w.State != whyNever {
		s.badly("a page nobody asked for: why says %s", w.State)
	}
	if w := s.whyOf(o.url("/no/x")); len(w.Outcomes) == 1 && (w.Outcomes[0].Line != 2 || w.Outcomes[0].Rule != "Disallow: /no") {
		s.badly("the rule is told as %+v", w.Outcomes[0])
	}
	return s.done()
}
