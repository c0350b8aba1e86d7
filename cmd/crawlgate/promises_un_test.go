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
