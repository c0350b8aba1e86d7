package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// The pace of UnlobBot, and what makes it slower.

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
	mends := s.site(tlsH1, "", nil, "www.mends.test")
	robots := lockedText{}
	mends.rules = func(w http.ResponseWriter, _ *http.Request) {
		if robots.get() == "" {
			w.WriteHeader(500)
		}
		fmt.Fprint(w, robots.get())
	}
	nobody := fmt.Sprintf("http://www.nobody.test:%d/", closedPort(s.t))
	s.names["www.nobody.test"] = s.answer(dnsQuestion("www.none0.test")).Addrs
	s.client("x", "crawl")
	s.start("profiles: [{name: crawl, limits: {timeout: 1s}}]\npacing: {backoff: {base: 100ms, cap: 100ms}}\negress: {allow_private: [{prefix: 127.0.0.0/8, ports: [" + s.allPorts(nobody) + "]}]}\n")
	var urls []string
	for _, o := range down {
		urls = append(urls, o.url("/page"))
	}
	urls = append(urls, nobody, mends.url("/page"))
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
	// It can be read again: nothing held it back but the failure.
	robots.set("User-agent: *\nDisallow: /no\n")
	s.stop()
	s.older(10 * time.Minute)
	s.serve()
	s.fetched("a page once robots.txt can be read", s.get("x", mends.url("/page")), 200)
	s.refused("a page that it forbids", s.get("x", mends.url("/no")), "robots-disallow")
	return s.done()
}
