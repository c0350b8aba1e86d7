package main

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// What the pages of Records Labs promise of a browser engine, with a real one.

const picture = `<svg xmlns="http://www.w3.org/2000/svg" width="7" height="5"/>`

func svg(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = io.WriteString(w, picture)
}

// browse has Chromium load a page and stay on it until seen tells that what matters has happened, at most limit.
func (s *stage) browse(target string, limit time.Duration, seen func() bool) {
	s.t.Helper()
	dir := s.t.TempDir()
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--user-data-dir="+dir, "--proxy-server="+s.g.proxy, "--proxy-bypass-list=<-loopback>", "--ignore-certificate-errors-spki-list="+spkiPin(s.t, s.g.ca),
		"--disable-extensions", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", target)
	cmd.Env = bareEnv(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its many processes end together
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}()
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !seen() {
		select {
		case <-tick.C:
		case <-end.C:
			return
		case err := <-ended:
			ended <- err
			s.t.Fatalf("chromium ended: %v", err)
		}
	}
}

// RL-3: a page's files may come from other hosts; those hosts' pages may not.
func checkOtherHostsFiles(s *stage) error {
	cdn := s.site(tlsH2, "", paths(map[string]http.HandlerFunc{
		"/pic.svg": svg,
		"/s.css": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/css")
			_, _ = io.WriteString(w, "p { color: rgb(1, 2, 3) }")
		},
	}), "cdn.test")
	docs := s.site(tlsH2, everyone, page(`<link rel=stylesheet href="`+cdn.url("/s.css")+`"><p id=p>-</p><img id=pic src="`+cdn.url("/pic.svg")+`"><script>
addEventListener('load', () => { p.textContent = getComputedStyle(p).color + ' width ' + pic.naturalWidth })</script>`), "docs.acme.test")
	s.browserClient("crawl", docs.url("/"))
	s.client("org-a", "crawl", docs.url("/"))
	s.start("")
	dom := chromium(s.t, s.g, docs.url("/page"))
	if !strings.Contains(dom, "rgb(1, 2, 3) width 7") {
		s.badly("the page did not load its files of another host: %s", dom)
	}
	for _, path := range []string{"/s.css", "/pic.svg"} {
		if asked(cdn, path) == 0 {
			s.badly("cdn.test%s was not asked for", path)
		}
	}
	s.refused("a page there", s.get("org-a", cdn.url("/page")), "site-denied")
	s.untouched(cdn, "/page")
	return s.done()
}

// RL-20: a browser engine under the crawler's name, several files at a time, those that robots.txt forbids left out,
// and no script's navigation followed.
func checkBrowser(s *stage) error {
	g := newGathering(3)
	var images strings.Builder
	for n := range 8 {
		fmt.Fprintf(&images, `<img src="/img/%d.svg">`, n)
	}
	o := s.site(tlsH2, "User-agent: *\nDisallow: /private/\n", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/img/"):
			g.meet(r)
			svg(w, r)
		case strings.HasPrefix(r.URL.Path, "/private/"):
			svg(w, r)
		case r.URL.Path == "/page":
			page(images.String()+`<img src="/private/x.svg"><p id=p>-</p><script>
addEventListener('load', () => { p.textContent = 'loaded'; location.href = '/other' })</script>`)(w, r)
		default:
			page("")(w, r)
		}
	}, "docs.acme.test")
	s.browserClient("crawl", o.url("/"))
	s.start("")
	left := ""
	s.browse(o.url("/page"), 30*time.Second, func() bool {
		for _, e := range s.g.requests(s.t) {
			if e.URL == o.url("/other") {
				left = e.Reason + " " + e.Class
			}
		}
		return left != ""
	})
	for n := range 8 {
		if path := fmt.Sprintf("/img/%d.svg", n); asked(o, path) != 1 {
			s.badly("%s was asked for %d times", path, asked(o, path))
		}
	}
	if !g.together() {
		s.badly("the page's files were not loaded several at a time")
	}
	s.untouched(o, "/private/x.svg", "/other")
	s.named(labsUA)
	if left != "kind-denied script_navigation" {
		s.badly("the script's navigation is recorded as %q", left)
	}
	return s.done()
}

// RL-21: files on other hosts go at the page's pace, under the crawler's name, unsigned, and robots.txt of their host
// counts only where it was read before.
func checkThirdParty(s *stage) error {
	const closed = "User-agent: *\nDisallow: /no/\n"
	cdn := s.site(tlsH2, closed, svg, "cdn.test")
	read := s.site(tlsH2, closed, svg, "read.test")
	var images strings.Builder
	for n := range 3 {
		fmt.Fprintf(&images, `<img src="%s">`, cdn.url(fmt.Sprintf("/%d.svg", n)))
	}
	fmt.Fprintf(&images, `<img src="%s"><img src="%s"><img src="%s">`, cdn.url("/no/a.svg"), read.url("/no/b.svg"), read.url("/yes/c.svg"))
	docs := s.site(tlsH2, everyone, page(images.String()), "docs.acme.test")
	s.browserClient("crawl", docs.url("/"))
	s.client("org-a", "crawl", read.url("/"))
	s.configure("profiles: [{name: crawl, pacing: {gap: 3s, robots: free}}]\n")
	if r := s.command("keys", "new", "--agent", "ingestion"); r.code != 0 {
		s.t.Fatalf("keys new: %+v", r)
	}
	s.serve()
	s.fetched("a page of a host that is read for itself", s.get("org-a", read.url("/page")), 200)
	chromium(s.t, s.g, docs.url("/page"))
	s.named(labsUA)
	s.untouched(cdn, "/robots.txt")
	s.untouched(read, "/no/b.svg")
	for path, o := range map[string]*origin{"/0.svg": cdn, "/1.svg": cdn, "/2.svg": cdn, "/no/a.svg": cdn, "/yes/c.svg": read} {
		a, ok := find(o, path)
		if !ok {
			s.badly("%s%s was not asked for", o.hosts[0], path)
		}
		if a.Header.Get("Signature") != "" {
			s.badly("%s%s is signed", o.hosts[0], path)
		}
	}
	if a, ok := find(docs, "/page"); !ok || a.Header.Get("Signature") == "" {
		s.badly("the page itself is not signed")
	}
	list := cdn.pages()
	slices.SortFunc(list, func(x, y arrival) int { return x.At.Compare(y.At) })
	for n := 1; n < len(list); n++ {
		if d := list[n].At.Sub(list[n-1].At); d >= 3*time.Second {
			s.badly("%s came %v after %s: it waited for a turn", list[n].URI, d, list[n-1].URI)
		}
	}
	return s.done()
}

// RL-25: a person in the secure browser: their browser's name, the same addresses, no rules, no pace.
func checkPerson(s *stage) error {
	g := newGathering(3)
	o := s.site(tlsH2, "User-agent: *\nDisallow: /\nCrawl-delay: 60\n", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/start":
			page(`<script>addEventListener('load', async () => {
await fetch('/form', {method: 'POST', body: 'name=value', headers: {Authorization: 'Bearer person'}}); location.href = '/next' })</script>`)(w, r)
		case "/one", "/two", "/three":
			g.ServeHTTP(w, r)
		default:
			page("<p>arrived at "+r.URL.Path)(w, r)
		}
	}, "anything.test")
	strict := s.site(tlsH1, everyone, statusOnly(403), "strict.test")
	s.browserClient("person")
	s.client("org-a", "crawl,person", strict.url("/"))
	s.configure(quickly + publishedAddresses)
	if r := s.command("keys", "new", "--agent", "ingestion"); r.code != 0 {
		s.t.Fatalf("keys new: %+v", r)
	}
	s.serve()
	limit := 30 * time.Second
	if s.change != nil {
		limit = 6 * time.Second
	}
	s.browse(o.url("/start"), limit, func() bool { return asked(o, "/next") > 0 })
	if asked(o, "/next") == 0 {
		s.badly("the script's navigation was not followed")
	}
	form, ok := find(o, "/form")
	if !ok || form.Method != http.MethodPost || form.Body != len("name=value") || form.Header.Get("Authorization") != "Bearer person" {
		s.badly("the form arrived as %s with %d bytes and Authorization %q", form.Method, form.Body, form.Header.Get("Authorization"))
	}
	for _, a := range o.arrivals() {
		if ua := a.Header.Get("User-Agent"); !strings.Contains(ua, "Chrome/") || strings.Contains(ua, "RecordsLabs") {
			s.badly("%s came as %q, not as the browser", a.URI, ua)
		}
		if a.Header.Get("Signature") != "" {
			s.badly("%s is signed", a.URI)
		}
	}
	s.fetched("a refusal to the crawl", s.get("org-a", strict.url("/page")), 403)
	s.fetched("the same address for a person", s.get("org-a+person", strict.url("/page"), "User-Agent", "Firefox/140.0"), 403)
	s.free("org-a+person", o, g, "")
	for _, site := range s.sites {
		for _, a := range from(site) {
			if !slices.Contains(publishedList, a) {
				s.badly("%s was asked from %s, which is not published", site.hosts[0], a)
			}
		}
	}
	return s.done()
}
