package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What a check wants, and how it tells that it did not get it.

// badly notes a violation of the promise.
func (s *stage) badly(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Errorf(format, args...))
}

// done gives the violations.
func (s *stage) done() error { return errors.Join(s.wrong...) }

// fetched wants the site's own answer.
func (s *stage) fetched(what string, r received, status int) {
	if r.err != nil || r.status != status || r.reason() != "" {
		s.badly("%s: got %s, not the site's %d", what, r, status)
	}
}

// refused wants a refusal.
func (s *stage) refused(what string, r received, reasons ...string) {
	for _, reason := range reasons {
		if r.err == nil && r.reason() == reason {
			return
		}
	}
	s.badly("%s: not refused with %s but got %s", what, strings.Join(reasons, " or "), r)
}

// asked counts the requests for a path.
func asked(o *origin, path string) (n int) {
	for _, a := range o.arrivals() {
		if a.URI == path {
			n++
		}
	}
	return n
}

// find gives the first request for a path.
func find(o *origin, path string) (arrival, bool) {
	for _, a := range o.arrivals() {
		if a.URI == path {
			return a, true
		}
	}
	return arrival{}, false
}

// untouched wants that a path was never asked for.
func (s *stage) untouched(o *origin, paths ...string) {
	for _, path := range paths {
		if n := asked(o, path); n != 0 {
			s.badly("%s%s was asked for %d times", o.hosts[0], path, n)
		}
	}
}

// spaced wants that each request begins no sooner than gap after the end of the one before, at any of the sites. An
// end as the origin saw it comes before the end the gate saw, so this asks for what was promised to the site.
func (s *stage) spaced(what string, gap time.Duration, list []arrival) {
	for n := 1; n < len(list); n++ {
		if d := list[n].At.Sub(list[n-1].Done); d < gap {
			s.badly("%s: %s came %v after the end of %s, sooner than %v", what, list[n].URI, d.Round(time.Millisecond), list[n-1].URI, gap)
		}
	}
}

// within wants that a request begins sooner than limit after the end of another.
func (s *stage) within(what string, limit time.Duration, o *origin, before, path string) {
	first, ok1 := find(o, before)
	next, ok2 := find(o, path)
	if !ok1 || !ok2 {
		s.badly("%s: %s asked for: %v, %s asked for: %v", what, before, ok1, path, ok2)
		return
	}
	if d := next.At.Sub(first.Done); d >= limit {
		s.badly("%s: %s came %v after %s: it waited for a turn of its own", what, path, d.Round(time.Millisecond), before)
	}
}

// named wants one user agent on every request of sites, or of all.
func (s *stage) named(ua string, sites ...*origin) {
	if sites == nil {
		sites = s.sites
	}
	n := 0
	for _, o := range sites {
		for _, a := range o.arrivals() {
			n++
			if got := a.Header["User-Agent"]; len(got) != 1 || got[0] != ua {
				s.badly("%s%s was asked for by the user agent %q", o.hosts[0], a.URI, got)
			}
		}
	}
	if n == 0 {
		s.badly("no request arrived")
	}
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
