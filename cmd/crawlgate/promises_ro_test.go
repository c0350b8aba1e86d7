package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
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
	var o *origin
	o = s.site(tlsH1, "", page(`<link rel=stylesheet href=/s.css><a href=/next>next</a><img src=/i.png><a href=/f.pdf>f</a>`), "asked.test")
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

// RO-4: http and https, ports 80 and 443.
func checkPorts(s *stage) error {
	o := s.site(plainHTTP, everyone, nil, "ports.test")
	t := s.site(tlsH1, everyone, nil, "tls.test")
	s.client("people", "page,site")
	s.start(bothQuickly + "egress: {allow_private: [127.0.0.0/8]}\n")
	for _, profile := range []string{"page", "site"} {
		user := "people+" + profile + "+j" + profile
		s.refused("a port", s.get(user, o.url("/")), "port-denied")
		c := s.as(user)
		if r := send(c, t.url("/")); r.reason() != "port-denied" && (r.err == nil || !strings.Contains(r.err.Error(), "Forbidden")) {
			s.badly("a tunnel to a port: not refused with port-denied but got %s", r)
		}
		for _, u := range []string{"http://ports.test/", "https://tls.test/"} {
			if r := s.get(user, u); r.reason() == "port-denied" {
				s.badly("%s is refused: %s", u, r)
			}
		}
	}
	for _, target := range []string{"ftp://ports.test/x", "gopher://ports.test/", "file:///etc/passwd"} {
		line, code := s.raw("people+page+j", "GET "+target+" HTTP/1.1\r\nHost: ports.test\r\n")
		if code != "scheme-denied" && code != "bad-request" {
			s.badly("%s: %s %s", target, line, code)
		}
	}
	for _, site := range []*origin{o, t} {
		if n := site.connections(); n != 0 {
			s.badly("port %d was connected to", site.port)
		}
	}
	return s.done()
}

// raw sends a request as it is written to the proxy port and gives the status line and the reason.
func (s *stage) raw(user, head string) (line, reason string) {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.g.proxy, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	auth := &http.Request{Header: http.Header{}}
	auth.SetBasicAuth(user, promiseSecret)
	fmt.Fprintf(c, "%sProxy-Authorization: %s\r\nConnection: close\r\n\r\n", head, auth.Header.Get("Authorization"))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error(), ""
	}
	defer resp.Body.Close()
	return resp.Status, resp.Header.Get("Crawlgate-Reason")
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

// RO-7: robots.txt before anything, and a refusal that names rule and line.
func checkNamedRule(s *stage) error {
	o := s.site(tlsH1, "# a comment\nUser-agent: RoftrlabsBot\nAllow: /\nDisallow: /private/\n", nil, "named.test")
	s.client("people", "page,site")
	s.start(bothQuickly)
	for _, profile := range []string{"page", "site"} {
		user := "people+" + profile + "+j" + profile
		s.fetched("an open page", s.get(user, o.url("/open")), 200)
		r := s.get(user, o.url("/private/x"))
		s.refused("a closed page", r, "robots-disallow")
		if p := r.problem(); p.Rule != "Disallow: /private/" || p.Line != 4 || p.RobotsURL != o.url("/robots.txt") || p.Agent != "RoftrlabsBot" {
			s.badly("%s: the refusal says %s", profile, r.body)
		}
	}
	if list := uris(o.arrivals()); len(list) == 0 || list[0] != "GET /robots.txt" {
		s.badly("the site got %v", list)
	}
	s.untouched(o, "/private/x")
	return s.done()
}

// RO-8: a group that names the bot binds every profile.
func checkNamedGroup(s *stage) error {
	all := s.site(tlsH1, "User-agent: RoftrlabsBot\nDisallow: /\n", nil, "all.test")
	part := s.site(tlsH1, "User-agent: roftrlabsbot\nDisallow: /shop/\nDisallow: /*.cgi$\n\nUser-agent: *\nDisallow:\n", nil, "part.test")
	s.client("people", "page,site")
	s.start(bothQuickly)
	for _, profile := range []string{"page", "site"} {
		s.refused(profile, s.get("people+"+profile+"+1"+profile, all.url("/")), "robots-disallow")
		s.refused(profile, s.get("people+"+profile+"+1"+profile, all.url("/any?x")), "robots-disallow")
		user := "people+" + profile + "+2" + profile
		s.fetched(profile, s.get(user, part.url("/")), 200)
		s.fetched(profile, s.get(user, part.url("/shopping")), 200)
		for _, path := range []string{"/shop/1", "/shop/", "/x.cgi"} {
			s.refused(profile, s.get(user, part.url(path)), "robots-disallow")
			s.untouched(part, path)
		}
	}
	if n := len(all.pages()); n != 0 {
		s.badly("a site that stops us completely got %d requests", n)
	}
	return s.done()
}

// RO-9: the group * binds a site job and not a page job.
func checkStarGroup(s *stage) error {
	o := s.site(tlsH1, "User-agent: *\nDisallow: /\n", nil, "star.test")
	s.client("people", "page,site")
	s.start(bothQuickly)
	r := s.get("people+site+s1", o.url("/start"))
	s.refused("a site job", r, "robots-disallow")
	if p := r.problem(); p.Line != 2 {
		s.badly("the refusal names line %d", p.Line)
	}
	if n := len(o.pages()); n != 0 {
		s.badly("the site job began: %v", uris(o.pages()))
	}
	s.fetched("a page job", s.get("people+page+p1", o.url("/page")), 200)
	return s.done()
}

// RO-10: robots.txt that cannot be read.
func checkRoftrUnreadable(s *stage) error {
	for n, rules := range []http.HandlerFunc{statusOnly(500), statusOnly(429), hangUp, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cf-Mitigated", "challenge")
		w.WriteHeader(403)
	}} {
		s.site(tlsH1, "", nil, fmt.Sprintf("www.broken%d.test", n)).rules = rules
	}
	s.client("people", "page,site")
	s.start(bothQuickly + "pacing: {backoff: {base: 50ms, cap: 100ms}}\n")
	for n, o := range s.sites {
		s.refused(fmt.Sprintf("a site job, %d", n), s.get(fmt.Sprintf("people+site+s%d", n), o.url("/site")), "robots-unreadable", "robots-challenge")
		s.untouched(o, "/site")
		s.fetched(fmt.Sprintf("a page job, %d", n), s.get(fmt.Sprintf("people+page+p%d", n), o.url("/page")), 200)
	}
	return s.done()
}

// RO-11: no address that is not public, by whatever spelling, name or redirect.
func checkPrivate(s *stage) error {
	var targets []string
	open := s.site(plainHTTP, everyone, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			redirectTo(302, to)(w, r)
			return
		}
		page("")(w, r)
	}, "open.test")
	secret := s.site(plainHTTP, everyone, nil, "internal.test")
	for name, addrs := range map[string][]string{
		"lan.test": {"10.0.0.7"}, "meta.test": {"169.254.169.254"}, "six.test": {"fd00::1"}, "mapped.test": {"::ffff:192.168.1.1"}, "mixed.test": {"192.0.2.1", "10.0.0.7"},
		"loop6.test": {"::1"}, "nat.test": {"100.64.0.1"}, "link6.test": {"fe80::1"},
	} {
		for _, a := range addrs {
			s.names[name] = append(s.names[name], netip.MustParseAddr(a))
		}
		targets = append(targets, "http://"+name+"/")
	}
	s.client("people", "page,site")
	s.start(bothQuickly + "egress: {ports: [80, 443, $PORT2], allow_private: [{prefix: 127.0.0.1/32, ports: [$PORT1]}]}\n")
	port := itoa(secret.port)
	targets = append(targets, "http://127.0.0.1:"+port+"/", "http://internal.test:"+port+"/", "http://localhost:"+port+"/", "http://2130706433:"+port+"/", "http://0x7f.1:"+port+"/",
		"http://[::ffff:127.0.0.1]:"+port+"/", "http://[::1]:"+port+"/", "http://10.1.2.3/", "http://192.168.0.1/", "http://172.16.0.1/", "http://169.254.169.254/latest/",
		"http://0.0.0.0:"+port+"/", "http://[fe80::1]/", "http://[fd00::1]/", "http://224.0.0.1/", "http://255.255.255.255/")
	for n, target := range targets {
		user := fmt.Sprintf("people+page+j%d", n)
		s.refused(target, s.get(user, target), "address-denied")
		s.fetched("a redirect to "+target, s.get(user, open.url("/?to="+url.QueryEscape(target))), 302)
		s.refused("the target of a redirect, "+target, s.get(user, target), "address-denied")
	}
	s.fetched("an address that is open", s.get("people+page+last", open.url("/")), 200)
	if n := secret.connections(); n != 0 {
		s.badly("a private address was connected to %d times", n)
	}
	return s.done()
}
