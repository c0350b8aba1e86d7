package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// What RoftrlabsBot may not reach: ports, rules, addresses.

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
	open := s.site(plainHTTP, everyone, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			redirectTo(302, to)(w, r)
			return
		}
		page("")(w, r)
	}, "open.test")
	secret := s.site(plainHTTP, everyone, nil, "internal.test")
	port := itoa(secret.port)
	targets := []string{"http://127.0.0.1:" + port + "/", "http://internal.test:" + port + "/", "http://localhost:" + port + "/", "http://2130706433:" + port + "/", "http://0x7f.1:" + port + "/",
		"http://[::ffff:127.0.0.1]:" + port + "/", "http://[::1]:" + port + "/", "http://10.1.2.3/", "http://192.168.0.1/", "http://172.16.0.1/", "http://169.254.169.254/latest/",
		"http://0.0.0.0:" + port + "/", "http://[fe80::1]/", "http://[fd00::1]/", "http://224.0.0.1/", "http://255.255.255.255/"}
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
