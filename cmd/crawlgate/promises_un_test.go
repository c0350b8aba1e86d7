package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// UnlobBot: one agent, one profile, every fetch under the same rules.

const unlobUA = "UnlobBot/1.0 (+https://www.unlob.com/crawler)"

// UN-1: the user agent, on robots.txt too.
func checkUnlobUA(s *stage) error {
	h1 := s.site(tlsH1, everyone, nil, "one.test")
	h2 := s.site(tlsH2, everyone, nil, "two.test")
	plain := s.site(plainHTTP, "", nil, "plain.test")
	s.client("x", "crawl")
	s.start(quickly)
	for n, ua := range []string{"", "UnlobBot", "curl/8", "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0"} {
		for _, o := range s.sites {
			s.fetched(ua, s.get("x", o.url("/"+itoa(n)), "User-Agent", ua), 200)
		}
	}
	for _, o := range []*origin{h1, h2, plain} {
		if asked(o, "/robots.txt") != 1 {
			s.badly("%s: robots.txt was read %d times", o.hosts[0], asked(o, "/robots.txt"))
		}
	}
	s.named(unlobUA)
	return s.done()
}

// UN-2: the token is the configuration's, whatever version the user agent says.
func checkToken(s *stage) error {
	o := s.site(tlsH1, "User-agent: UnlobBot\nDisallow: /named\n\nUser-agent: *\nDisallow: /star\n", nil, "token.test")
	other := s.site(tlsH1, "User-agent: UnlobBotX\nUser-agent: Unlob\nUser-agent: crawler\nDisallow: /\n", nil, "near.test")
	s.client("x", "crawl")
	s.start(quickly + "agents: [{name: unlob, user_agent: \"UnlobBot/2.7-next (+https://www.unlob.com/crawler)\"}]\n")
	r := s.get("x", o.url("/named"))
	s.refused("what the group says", r, "robots-disallow")
	if p := r.problem(); p.Agent != "UnlobBot" {
		s.badly("the refusal is for %q", p.Agent)
	}
	s.fetched("what the other group says", s.get("x", o.url("/star")), 200)
	s.fetched("groups of other names", s.get("x", other.url("/page")), 200)
	return s.done()
}

// UN-3: the addresses resolve back and forth, and doctor says so.
func checkReverseDNS(s *stage) error {
	info := s.site(tlsH1, everyone, nil, "www.unlob.test")
	server := reverseServer(s.t, map[string][]string{
		"11.0.0.127.in-addr.arpa": {"a.crawl.unlob.test"}, "a.crawl.unlob.test": {"127.0.0.11"},
		"12.0.0.127.in-addr.arpa": {"b.crawl.unlob.test"}, "b.crawl.unlob.test": {"127.0.0.12"}, "www.unlob.test": {"127.0.0.1"},
		"13.0.0.127.in-addr.arpa": {"c.crawl.unlob.test"}, "c.crawl.unlob.test": {"127.0.0.99"},
	})
	s.client("x", "crawl")
	s.configure("agents: [{name: unlob, info_url: \"" + info.url("/crawler") + "\"}]\n" +
		"egress: {source_addresses: [127.0.0.11, 127.0.0.12], dns: [\"" + server + "\"]}\npage: {reverse_dns: \"*.crawl.unlob.test\"}\n")
	r := s.command("doctor", "--json")
	confirmed := map[string]bool{}
	for line := range strings.Lines(r.out) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			s.t.Fatalf("doctor: %v: %+v", err, r)
		}
		if f.What != "addresses" {
			continue
		}
		if f.Level != "ok" {
			s.badly("doctor: %s: %s", f.Level, f.Text)
			continue
		}
		addr, _, _ := strings.Cut(f.Text, " ")
		confirmed[addr] = true
	}
	if !confirmed["127.0.0.11"] || !confirmed["127.0.0.12"] || len(confirmed) != 2 {
		s.badly("doctor confirms %v: %+v", confirmed, r)
	}
	return s.done()
}

// reverseServer is a DNS server that knows addresses of names and names of addresses.
func reverseServer(t *testing.T, records map[string][]string) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			known := false
			for _, v := range records[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))] {
				known = true
				h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, Type: q.Type}
				switch {
				case q.Type == dnsmessage.TypePTR:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(v + ".")}})
				case q.Type == dnsmessage.TypeA && net.ParseIP(v) != nil:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(v).To4())}})
				}
			}
			if !known {
				m.RCode = dnsmessage.RCodeNameError
			}
			if raw, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(raw, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// whyAfter asks what happened to a URL that was asked for; its event is written a moment after the answer.
func (s *stage) whyAfter(target string) whyAnswer {
	s.t.Helper()
	within(s.t, 10*time.Second, "the event of "+target, func() bool {
		return slices.ContainsFunc(s.g.requests(s.t), func(e event) bool { return e.URL == target })
	})
	return s.whyOf(target)
}

// whyOf asks what happened to a URL.
func (s *stage) whyOf(target string) (w whyAnswer) {
	s.t.Helper()
	r := s.command("why", "--json", target)
	if err := json.Unmarshal([]byte(r.out), &w); err != nil {
		s.t.Fatalf("why: %v: %+v", err, r)
	}
	return w
}

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

// gaps wants that each wait between requests is at least as long as named.
func (s *stage) gaps(what string, list []arrival, least ...time.Duration) {
	if len(list) != len(least)+1 {
		s.badly("%s: the site got %v", what, uris(list))
		return
	}
	for n, want := range least {
		if d := list[n+1].At.Sub(list[n].Done); d < want {
			s.badly("%s: %s came %v later, sooner than %v", what, list[n+1].URI, d.Round(time.Millisecond), want)
		}
	}
}

const shortBackoff = "profiles: [{name: crawl, pacing: {gap: 150ms}}]\npacing: {backoff: {base: 400ms, jitter: 0}}\n"

// UN-9: 429: exponential back-off that honours Retry-After, and a lower rate after it.
func checkTooMany(s *stage) error {
	answers := func(status int, bad int, fields ...string) http.HandlerFunc {
		n := make(chan int, 1)
		n <- 0
		return func(w http.ResponseWriter, r *http.Request) {
			k := <-n
			n <- k + 1
			if k < bad {
				statusOnly(status, fields...)(w, r)
				return
			}
			page("")(w, r)
		}
	}
	o := s.site(tlsH1, everyone, answers(429, 3), "www.busy-one.test")
	after := s.site(tlsH1, everyone, answers(429, 1, "Retry-After", "2"), "www.busy-two.test")
	s.client("x", "crawl")
	s.start(shortBackoff)
	done := make(chan struct{})
	x := s.as("x")
	go func() {
		defer close(done)
		for n := range 2 {
			send(x, after.url("/"+itoa(n)))
		}
	}()
	for n := range 6 {
		s.get("x", o.url("/"+itoa(n)))
	}
	<-done
	const ms = time.Millisecond
	// Three 429: 400, 800, 1600 ms. The second and third make the pace slower: 150 ms twice doubled.
	s.gaps("back-off", o.pages(), 400*ms, 800*ms, 1600*ms, 600*ms, 600*ms)
	s.gaps("Retry-After", after.pages(), 2*time.Second)
	return s.done()
}

// UN-10: 5xx is backed off, and repeated failures make the crawl rarer.
func checkServerErrors(s *stage) error {
	const ms = time.Millisecond
	var list []*origin
	for n, bad := range []http.HandlerFunc{statusOnly(500), statusOnly(502), hangUp} {
		list = append(list, s.site(tlsH1, everyone, bad, fmt.Sprintf("www.ill%d.test", n)))
	}
	s.client("x", "crawl")
	s.start(shortBackoff)
	done := make(chan struct{})
	x := s.as("x")
	for _, o := range list {
		go func() {
			defer func() { done <- struct{}{} }()
			for n := range 4 {
				send(x, o.url("/"+itoa(n)))
			}
		}()
	}
	for range list {
		<-done
	}
	for _, o := range list {
		s.gaps(o.hosts[0], o.pages(), 400*ms, 800*ms, 1600*ms)
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
			page(markup)(w, r)
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
		r := s.get("x", o.url(path))
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

// UN-13: longest match, * and $, Crawl-delay, and a change within a day.
func checkUnlobRules(s *stage) error {
	o := s.site(tlsH1, "User-agent: *\nDisallow: /\nAllow: /open/\nDisallow: /open/*.pdf$\nAllow: /open/free*.pdf$\nCrawl-delay: 1\n", nil, "rules.test")
	checkDay(s, "x")
	for _, path := range []string{"/open/a", "/open/free1.pdf", "/open/x.pdf?y"} {
		s.fetched(path, s.get("x", o.url(path)), 200)
	}
	for _, path := range []string{"/", "/closed", "/open/x.pdf"} {
		s.refused(path, s.get("x", o.url(path)), "robots-disallow")
		s.untouched(o, path)
	}
	s.spaced("Crawl-delay: 1", time.Second, o.pages())
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

// UN-15: robots.txt on every fetch, and no second way out.
func checkEveryFetch(s *stage) error {
	const no = "User-agent: *\nDisallow: /no\n"
	o := s.site(tlsH1, no, paths(map[string]http.HandlerFunc{"/moved": redirectTo(302, "/no-target")}), "every.test")
	cdn := s.site(tlsH1, no, nil, "cdn.test")
	s.client("x", "crawl")
	s.start(quickly + "clients: [{name: x, fields: true}]\n")
	s.fetched("a page", s.get("x", o.url("/page")), 200)
	for range 2 { // first and again
		s.refused("a page", s.get("x", o.url("/no-page")), "robots-disallow")
		s.refused("a file", s.get("x", o.url("/no.pdf")), "robots-disallow")
	}
	s.refused("a file of a page", s.get("x", o.url("/no.png"), asFile(o.url("/page"))...), "robots-disallow")
	s.refused("a file of a page on another host", s.get("x", cdn.url("/no.png"), append(asFile(o.url("/page")), "Sec-Fetch-Site", "cross-site")...), "robots-disallow")
	s.fetched("a redirect", s.get("x", o.url("/moved")), 302)
	s.refused("its target", s.get("x", o.url("/no-target")), "robots-disallow")
	s.refused("a render", s.get("x", o.url("/no-page"), asNavigation()...), "robots-disallow")
	s.refused("HEAD", s.get("x", o.url("/no-page"), "method", "HEAD"), "robots-disallow")
	for _, kind := range []string{"page", "subresource", "sitemap", "robots"} {
		s.refused("a declared "+kind, s.get("x", o.url("/no-"+kind), "Crawlgate-Kind", kind, "Crawlgate-Page", o.url("/page")), "robots-disallow")
	}
	for _, profile := range []string{"direct", "person", "answer", "page", "site"} {
		s.refused("the profile "+profile, s.get("x", o.url("/no-page"), "Crawlgate-Profile", profile), "profile-denied")
	}
	for _, site := range s.sites {
		list := site.arrivals()
		if len(list) == 0 || list[0].URI != "/robots.txt" {
			s.badly("%s: robots.txt was not read first: %v", site.hosts[0], uris(list))
		}
		for _, a := range list {
			if strings.HasPrefix(a.URI, "/no") {
				s.badly("%s%s was asked for", site.hosts[0], a.URI)
			}
		}
	}
	return s.done()
}

// UN-16: about one request per second.
func checkOnePerSecond(s *stage) error {
	o := s.site(tlsH1, everyone, nil, "paced.test")
	s.client("x", "crawl")
	s.client("y", "crawl")
	s.start("")
	done := make(chan received)
	for _, user := range []string{"x", "y"} {
		c := s.as(user)
		for n := range 2 {
			go func() { done <- send(c, o.url("/"+user+itoa(n))) }()
		}
	}
	for range 4 {
		s.fetched("a page", <-done, 200)
	}
	list := o.arrivals()
	slices.SortFunc(list, func(a, b arrival) int { return a.At.Compare(b.At) })
	s.spaced("about one request per second", time.Second, list)
	if len(list) == 5 {
		if mean := list[4].At.Sub(list[0].At) / 4; mean > 6*time.Second {
			s.badly("one request in %v is not about one in a second", mean)
		}
	}
	return s.done()
}

// UN-17: one identity, one address for each domain.
func checkOneIdentity(s *stage) error {
	var sites []*origin
	for n := range 4 {
		domain := fmt.Sprintf("domain%d.test", n)
		sites = append(sites, s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/secret": statusOnly(403), "/busy": statusOnly(429)}), domain, "www."+domain, "shop."+domain))
	}
	s.client("x", "crawl")
	s.client("y", "crawl")
	s.start(quickly + publishedAddresses + "pacing: {backoff: {base: 50ms, cap: 50ms}}\n")
	used := map[string]bool{}
	for _, o := range sites {
		for n, host := range o.hosts {
			for _, path := range []string{"/page", "/secret", "/secret", "/busy", "/busy"} {
				user := []string{"x", "y"}[n%2]
				s.get(user, o.at(host, path), "User-Agent", "agent-"+user+itoa(n))
			}
		}
		list := from(o)
		if len(list) != 1 || !slices.Contains(publishedList, list[0]) {
			s.badly("%s was asked from %v, not from one published address", o.hosts[0], list)
		}
		used[list[0]] = true
		if asked(o, "/secret") == 0 {
			s.badly("nothing arrived")
		}
	}
	if len(used) < 2 {
		s.badly("all domains were asked from one address: nothing shows that it belongs to the domain")
	}
	s.named(unlobUA)
	for _, second := range []string{"x+second", "y+second", "x+direct"} {
		s.refused("another identity, "+second, s.get(second, sites[0].url("/secret")), "profile-denied")
	}
	for _, a := range sites[0].arrivals() {
		if a.Header.Get("User-Agent") != unlobUA {
			s.badly("a second crawler came as %q", a.Header.Get("User-Agent"))
		}
	}
	return s.done()
}

// UN-18: subdomains share their domain's budget.
func checkDomainBudget(s *stage) error {
	o := s.site(tlsH1, everyone, nil, "shop.test", "a.shop.test", "b.shop.test")
	s.client("x", "crawl")
	s.start("")
	for _, r := range s.getAll("x", o.at("a.shop.test", "/1"), o.at("b.shop.test", "/2"), o.at("shop.test", "/3")) {
		s.fetched("a page", r, 200)
	}
	list := o.arrivals()
	slices.SortFunc(list, func(a, b arrival) int { return a.At.Compare(b.At) })
	if len(list) != 6 {
		s.badly("the domain got %v", uris(list))
	}
	s.spaced("one budget for the domain", time.Second, list)
	return s.done()
}

// UN-19: no rules at 404 and 410, full disallow while robots.txt cannot be read, and the pace for robots.txt too.
func checkUnlobUnreadable(s *stage) error {
	release := make(chan struct{})
	defer close(release)
	silent := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	var none, down []*origin
	for n, rules := range []http.HandlerFunc{statusOnly(404), statusOnly(410)} {
		o := s.site(tlsH1, "", nil, fmt.Sprintf("www.none%d.test", n))
		o.rules = rules
		none = append(none, o)
	}
	for n, rules := range []http.HandlerFunc{statusOnly(500), statusOnly(503), silent, hangUp} {
		o := s.site(tlsH1, "", nil, fmt.Sprintf("www.down%d.test", n))
		o.rules = rules
		down = append(down, o)
	}
	paced := s.site(tlsH1, everyone, nil, "a.paced.test", "b.paced.test")
	nobody := fmt.Sprintf("http://www.nobody.test:%d/", closedPort(s.t))
	s.names["www.nobody.test"] = s.answer(dnsQuestion("www.none0.test")).Addrs
	s.client("x", "crawl")
	s.start("profiles: [{name: crawl, limits: {timeout: 1s}}]\npacing: {backoff: {base: 100ms, cap: 100ms}}\negress: {allow_private: [{prefix: 127.0.0.0/8, ports: [" + s.allPorts(nobody) + "]}]}\n")
	var urls []string
	for _, o := range down {
		urls = append(urls, o.url("/page"))
	}
	urls = append(urls, nobody)
	replies := make(chan []received)
	x := s.as("x")
	go func() {
		out := make([]received, len(urls))
		all := make(chan struct{})
		for n, u := range urls {
			go func() { out[n] = send(x, u); all <- struct{}{} }()
		}
		for range urls {
			<-all
		}
		replies <- out
	}()
	for _, o := range none {
		s.fetched(o.hosts[0], s.get("x", o.url("/page")), 200)
	}
	s.fetched("a page", s.get("x", paced.at("a.paced.test", "/1")), 200)
	s.fetched("a page of another subdomain", s.get("x", paced.at("b.paced.test", "/2")), 200)
	s.spaced("the pace of robots.txt and pages", time.Second, paced.arrivals())
	for n, r := range <-replies {
		s.refused(urls[n], r, "robots-unreadable")
	}
	for _, o := range down {
		s.untouched(o, "/page")
		var robots []arrival
		for _, a := range o.arrivals() {
			if a.URI == "/robots.txt" {
				robots = append(robots, a)
			}
		}
		if len(robots) < 2 {
			s.badly("%s: robots.txt was not tried again", o.hosts[0])
		}
		for n := 1; n < len(robots); n++ {
			// A read that timed out ended before its site noticed.
			if d := robots[n].At.Sub(robots[n-1].At); d < time.Second {
				s.badly("%s: robots.txt was tried again %v later, which is not the pace", o.hosts[0], d)
			}
		}
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
