package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What robots.txt says to the crawler of Records Labs.

// RL-7: robots.txt comes first and holds for pages, redirects, sitemap files, linked files and images.
func checkRobotsFirst(s *stage) error {
	const no = "User-agent: *\nDisallow: /no\n"
	away := s.site(tlsH1, no, nil, "elsewhere.test")
	docs := s.site(tlsH1, no, paths(map[string]http.HandlerFunc{
		"/":     page(`<a href="/no.pdf">f</a><a href="` + away.url("/no.pdf") + `">f</a><img src="/no.png">`),
		"/here": redirectTo(302, "/no-target"),
		"/away": redirectTo(302, away.url("/no-target")),
	}), "docs.acme.test")
	maps := s.site(tlsH1, no, nil, "maps.acme.test")
	s.client("org-a", "crawl", docs.url("/"), "{sitemap: \""+maps.url("/no-sitemap.xml")+"\"}")
	s.start(quickly)
	s.fetched("the page", s.get("org-a", docs.url("/")), 200)
	s.refused("a page", s.get("org-a", docs.url("/no-page")), "robots-disallow")
	s.refused("a linked file", s.get("org-a", docs.url("/no.pdf")), "robots-disallow")
	s.refused("a linked file elsewhere", s.get("org-a", away.url("/no.pdf")), "robots-disallow")
	s.refused("an image", s.get("org-a", docs.url("/no.png"), "Referer", docs.url("/"), "Sec-Fetch-Dest", "image", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "same-origin"), "robots-disallow")
	s.fetched("a redirect", s.get("org-a", docs.url("/here")), 302)
	s.refused("its target", s.get("org-a", docs.url("/no-target")), "robots-disallow")
	s.fetched("a redirect elsewhere", s.get("org-a", docs.url("/away")), 302)
	s.refused("its target", s.get("org-a", away.url("/no-target")), "robots-disallow")
	s.refused("a page of a sitemap that may not be read", s.get("org-a", maps.url("/page")), "site-denied", "robots-disallow")
	for _, o := range s.sites {
		list := o.arrivals()
		if len(list) == 0 || list[0].URI != "/robots.txt" {
			s.badly("%s: robots.txt was not read first: %v", o.hosts[0], uris(list))
		}
		for _, a := range list {
			if strings.HasPrefix(a.URI, "/no") {
				s.badly("%s%s was asked for", o.hosts[0], a.URI)
			}
		}
	}
	return s.done()
}

// RL-8: the own group alone, else *; the most specific rule; * and $.
func checkGroups(s *stage) error {
	own := s.site(tlsH1, "User-agent: *\nDisallow: /\n\nUser-agent: RecordsLabsIngestion\nDisallow: /private/\nAllow: /private/open\nDisallow: /*.tmp$\nDisallow: /a*z\n", nil, "own.test")
	star := s.site(tlsH1, "User-agent: OtherBot\nDisallow: /\n\nUser-agent: *\nDisallow: /closed\n", nil, "star.test")
	empty := s.site(tlsH1, "User-agent: recordslabsingestion\nDisallow:\n\nUser-agent: *\nDisallow: /\n", nil, "empty.test")
	s.client("org-a", "crawl", own.url("/"), star.url("/"), empty.url("/"))
	s.start(quickly)
	for _, u := range []string{own.url("/x"), own.url("/private/open/1"), own.url("/a.tmp?x"), own.url("/za"), star.url("/open"), empty.url("/x")} {
		s.fetched(u, s.get("org-a", u), 200)
	}
	for _, u := range []string{own.url("/private/a"), own.url("/a.tmp"), own.url("/ab/cz"), star.url("/closed/1")} {
		s.refused(u, s.get("org-a", u), "robots-disallow")
	}
	s.untouched(own, "/private/a", "/a.tmp", "/ab/cz")
	s.untouched(star, "/closed/1")
	return s.done()
}

// RL-9, and a part of UN-13: a copy of robots.txt is used for a day at most, whatever the site's cache rules say. The
// day passes by making the archived copy older while the gate is stopped.
func checkDay(s *stage, user string) {
	s.t.Helper()
	var now lockedText
	now.set("User-agent: *\nDisallow: /old\n")
	o := s.site(tlsH1, "", nil, "changing.test")
	o.rules = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=8640000")
		fmt.Fprint(w, now.get())
	}
	s.client(user, "crawl", o.url("/"))
	s.start(quickly)
	s.fetched("a page before the change", s.get(user, o.url("/page")), 200)
	s.refused("an old rule", s.get(user, o.url("/old")), "robots-disallow")
	var e struct {
		Robots struct {
			FetchedAt time.Time `json:"fetched_at"`
			Expires   time.Time
		}
	}
	r := s.command("check", "--json", o.url("/page"))
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		s.t.Fatalf("check: %v: %+v", err, r)
	}
	if left := e.Robots.Expires.Sub(e.Robots.FetchedAt); left <= 0 || left > 24*time.Hour {
		s.badly("the copy is to be used for %v", left)
	}
	now.set("User-agent: *\nDisallow: /page\n")
	s.stop()
	age := 24*time.Hour + time.Second
	if s.mutated() {
		age = time.Hour
	}
	s.older(age)
	s.serve()
	s.refused("a page after the change, a day later", s.get(user, o.url("/page")), "robots-disallow")
	s.fetched("what the change opened", s.get(user, o.url("/old")), 200)
	if n := asked(o, "/robots.txt"); n != 2 {
		s.badly("robots.txt was read %d times", n)
	}
}

// older moves the times of the archived copies back.
func (s *stage) older(by time.Duration) {
	s.t.Helper()
	file := filepath.Join(s.g.state, "robots", "index.jsonl")
	raw, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			s.t.Fatal(err)
		}
		for _, k := range []string{"effective", "fetched", "until"} {
			at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v[k]))
			if err != nil {
				s.t.Fatal(err)
			}
			v[k] = at.Add(-by).Format(time.RFC3339Nano)
		}
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			s.t.Fatal(err)
		}
	}
	writeFile(s.t, file, out.String(), 0o600)
}

func checkWithinADay(s *stage) error { checkDay(s, "org-a"); return s.done() }

// RL-12: ai-input=no in the followed group, or above the first group, is a Disallow: /.
func checkAIInput(s *stage) error {
	return checkSignals(s, map[string]bool{
		"User-agent: RecordsLabsIngestion\nContent-Signal: ai-input=no\nAllow: /\n":      false,
		"User-agent: *\nContent-Signal: search=yes, ai-input=no\nAllow: /\n":             false,
		"Content-Signal: ai-input=no\n\nUser-agent: *\nAllow: /\n":                       false,
		"User-agent: OtherBot\nContent-Signal: ai-input=no\n\nUser-agent: *\nAllow: /\n": true,
		"User-agent: *\nContent-Signal: ai-input=yes\nAllow: /\n":                        true,
	})
}

// RL-13: search=no and use=immediate likewise; use=reference and ai-train=no do not stop it.
func checkOtherSignals(s *stage) error {
	return checkSignals(s, map[string]bool{
		"User-agent: *\nContent-Signal: search=no\nAllow: /\n":                  false,
		"User-agent: *\nContent-Signal: use=immediate\nAllow: /\n":              false,
		"Content-Signal: search=no\n\nUser-agent: *\nAllow: /\n":                false,
		"User-agent: *\nContent-Signal: use=reference\nAllow: /\n":              true,
		"User-agent: *\nContent-Signal: ai-train=no\nAllow: /\n":                true,
		"Content-Signal: ai-train=no, use=reference\nUser-agent: *\nAllow: /\n": true,
	})
}

func checkSignals(s *stage, files map[string]bool) error {
	var sites []string
	at := map[string]*origin{}
	for robots := range files {
		o := s.site(tlsH1, robots, nil, fmt.Sprintf("www.signal%d.test", len(at)))
		at[robots] = o
		sites = append(sites, o.url("/"))
	}
	s.client("org-a", "crawl", sites...)
	s.start(quickly)
	for robots, allowed := range files {
		r := s.get("org-a", at[robots].url("/page"))
		if allowed {
			s.fetched(fmt.Sprintf("%q", robots), r, 200)
			continue
		}
		s.refused(fmt.Sprintf("%q", robots), r, "robots-signal")
		if p := r.problem(); r.reason() == "robots-signal" && p.Line == 0 {
			s.badly("the refusal does not name the line: %s", r.body)
		}
		s.untouched(at[robots], "/page")
	}
	return s.done()
}

// RL-14: unreachable, 5xx or 429: a few tries, no page, and then it is left.
func checkUnreadable(s *stage) error {
	down := s.site(tlsH1, "", nil, "down.test")
	down.rules = statusOnly(503)
	broken := s.site(tlsH1, "", nil, "broken.test")
	broken.rules = statusOnly(500)
	busy := s.site(tlsH1, "", nil, "busy.test")
	busy.rules = statusOnly(429)
	gone := s.site(tlsH1, "", nil, "unreachable.test")
	gone.rules = hangUp
	s.client("org-a", "crawl", down.url("/"), broken.url("/"), busy.url("/"), gone.url("/"))
	s.start(quickly + "pacing: {backoff: {base: 100ms, cap: 200ms}}\n")
	s.getAll("org-a", down.url("/a"), broken.url("/a"), busy.url("/a"), gone.url("/a"))
	tries := map[*origin]int{}
	for _, o := range s.sites {
		tries[o] = asked(o, "/robots.txt")
		if n := tries[o]; n < 2 || n > 8 {
			s.badly("%s: robots.txt was asked for %d times; a few more tries were promised", o.hosts[0], n)
		}
	}
	for _, o := range s.sites {
		for _, path := range []string{"/a", "/b"} {
			s.refused(o.hosts[0]+path, s.get("org-a", o.url(path)), "robots-unreadable")
			s.untouched(o, path)
		}
		if n := asked(o, "/robots.txt"); n != tries[o] {
			s.badly("%s: robots.txt was asked for again in this round", o.hosts[0])
		}
	}
	return s.done()
}

// RL-15: a firewall's or bot check's answer in place of robots.txt.
func checkChallenge(s *stage) error {
	check := func(status int, field, value, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if field != "" {
				w.Header().Set(field, value)
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	var sites []string
	for n, rules := range []http.HandlerFunc{
		check(403, "Cf-Mitigated", "challenge", "<html><title>Just a moment...</title></html>"),
		check(202, "X-Amzn-Waf-Action", "challenge", ""),
		check(200, "", "", "<!doctype html><html><script id=anubis_challenge></script></html>"),
		check(403, "", "", "<!doctype html><html><div class=g-recaptcha></div></html>"),
	} {
		o := s.site(tlsH1, "", nil, fmt.Sprintf("www.guarded%d.test", n))
		o.rules = rules
		sites = append(sites, o.url("/"))
	}
	s.client("org-a", "crawl", sites...)
	s.start(quickly)
	for n, u := range sites {
		s.refused(u, s.get("org-a", u), "robots-challenge")
		s.untouched(s.sites[n], "/")
	}
	return s.done()
}

// RL-16: a plain 4xx means there are no rules.
func checkNoRules(s *stage) error {
	var sites []string
	for _, status := range []int{404, 410, 400, 401, 403, 451} {
		o := s.site(tlsH1, "", nil, fmt.Sprintf("www.plain%d.test", status))
		o.rules = statusOnly(status)
		sites = append(sites, o.url("/page"))
	}
	s.client("org-a", "crawl", sites...)
	s.start(quickly)
	for _, u := range sites {
		s.fetched(u, s.get("org-a", u), 200)
	}
	return s.done()
}
