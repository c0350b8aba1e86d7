package allowlist

import (
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

// visit checks a request and, admitted, shows the answer's redirect.
func redirect(t *testing.T, l *List, from, to string) (Admission, error) {
	t.Helper()
	r := Request{Client: "c", URL: mustParse(from), Method: "GET", Document: true}
	a, err := l.Check(r)
	if err == nil {
		l.ObserveRedirect(r, a, mustParse(to))
	}
	return a, err
}

func wantCheck(t *testing.T, l *List, u, class string) Admission {
	t.Helper()
	a, err := check(l, u)
	if classOf(err) != class {
		t.Errorf("%s: got %+v, %v; want %q", u, a, err, class)
	}
	return a
}

func TestRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/")}, ClientConfig{Name: "d", Sites: sites("https://a.example/")})
		wantCheck(t, l, "https://b.example/1", SiteNotAllowed)
		if _, err := redirect(t, l, "https://a.example/", "https://B.Example.:443/1?q#frag"); err != nil {
			t.Fatal(err)
		}
		a := wantCheck(t, l, "https://b.example/1?q", "")
		if a.Listed || a.Grant != GrantRedirects || a.Entry == "" {
			t.Errorf("got %+v", a)
		}
		wantCheck(t, l, "http://b.example/1?q", "")
		wantCheck(t, l, "https://b.example/1", SiteNotAllowed)
		wantCheck(t, l, "https://b.example/", SiteNotAllowed)
		wantCheck(t, l, "https://b.example/robots.txt", "")
		if _, err := l.Check(Request{Client: "c", URL: mustParse("https://b.example/robots.txt"), Method: "POST"}); err == nil {
			t.Error("a POST to robots.txt")
		}
		if _, err := l.Check(Request{Client: "d", URL: mustParse("https://b.example/1?q")}); err == nil {
			t.Error("another client has the grant")
		}
		if _, err := l.Check(Request{Client: "c", URL: mustParse("https://b.example/1?q"), Method: "POST", Document: true}); err != nil {
			t.Error("a 307 of a POST is a POST")
		}
		time.Sleep(redirectLife - time.Second)
		wantCheck(t, l, "https://b.example/1?q", "")
		time.Sleep(time.Second)
		wantCheck(t, l, "https://b.example/1?q", SiteNotAllowed)
		wantCheck(t, l, "https://b.example/robots.txt", SiteNotAllowed)
	})
}

func TestRedirectHops(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/")})
	at := func(i int) string { return fmt.Sprintf("https://h%d.example/", i) }
	if _, err := redirect(t, l, "https://a.example/", at(1)); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < maxHops; i++ {
		if _, err := redirect(t, l, at(i), at(i+1)); err != nil {
			t.Fatalf("hop %d: %v", i, err)
		}
	}
	if _, err := redirect(t, l, at(maxHops), at(maxHops+1)); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, l, at(maxHops+1), SiteNotAllowed)
	// A loop does not lengthen the chain, and a shorter way counts.
	if _, err := redirect(t, l, "https://a.example/", at(maxHops)); err != nil {
		t.Fatal(err)
	}
	if _, err := redirect(t, l, at(maxHops), at(maxHops+1)); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, l, at(maxHops+1), "")
	// Back on the list a new chain begins.
	if a, err := redirect(t, l, at(maxHops+1), "https://a.example/x"); err != nil || a.Listed {
		t.Fatal(a, err)
	}
	if a, err := redirect(t, l, "https://a.example/x", "https://new.example/"); err != nil || !a.Listed {
		t.Fatal(a, err)
	}
	wantCheck(t, l, "https://new.example/", "")
}

func TestRedirectKinds(t *testing.T) {
	for _, c := range []struct {
		name, to, then string
		grants         []string
		ok             bool
	}{
		{"relative", "/x/../y", "https://a.example/y", nil, true},
		{"protocol-relative", "//b.example/y", "https://b.example/y", nil, true},
		{"other scheme", "ftp://b.example/", "https://b.example/", nil, false},
		{"userinfo", "https://u@b.example/", "https://b.example/", nil, false},
		{"unicode", "https://bücher.example/é", "https://xn--bcher-kva.example/%C3%A9", nil, true},
		{"no grant", "https://b.example/", "https://b.example/", []string{"files"}, false},
		{"none", "https://b.example/", "https://b.example/", []string{}, false},
		{"same site", "https://www.a.example/", "https://www.a.example/", []string{"redirects-same-site"}, true},
		{"same site, other site", "https://b.example/", "https://b.example/", []string{"redirects-same-site"}, false},
		{"same public suffix", "https://b.co.uk/", "https://b.co.uk/", []string{"redirects-same-site"}, false},
		{"an address is its own site", "https://93.184.215.14/", "https://93.184.215.14/", []string{"redirects-same-site"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/docs/"), Grants: c.grants})
			if _, err := redirect(t, l, "https://a.example/docs/1", c.to); err != nil {
				t.Fatal(err)
			}
			if _, err := check(l, c.then); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRedirectUnderAny(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/")})
	r := Request{Client: "c", URL: mustParse("https://z.example/"), Method: "GET", Any: true}
	a, err := l.Check(r)
	if err != nil || a.Listed {
		t.Fatal(a, err)
	}
	l.ObserveRedirect(r, a, mustParse("https://y.example/"))
	if w := l.ObserveHTML(r, a, ""); w != nil {
		t.Error("a page off the list teaches links")
	}
	wantCheck(t, l, "https://y.example/", SiteNotAllowed)
	l.ObserveRedirect(Request{Client: "nobody", URL: r.URL}, Admission{Listed: true}, mustParse("https://y.example/"))
	l.ObserveRedirect(r, Admission{Listed: true}, nil)
}

func TestReloadVoidsGrants(t *testing.T) {
	cfg := Config{Clients: []ClientConfig{{Name: "c", Sites: sites("https://a.example/")}, {Name: "d", Sites: sites("https://a.example/")}}}
	l, err := New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redirect(t, l, "https://a.example/", "https://b.example/"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, l, "https://b.example/", "")
	bad := Config{Clients: []ClientConfig{{Name: "c", Sites: sites("https://*.com/")}}}
	if err := l.Reload(bad); err == nil {
		t.Fatal("a bad configuration was taken")
	}
	wantCheck(t, l, "https://b.example/", "")
	closed := cfg
	closed.DenyHosts = []string{"b.example"}
	if err := l.Reload(closed); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, l, "https://b.example/", HostDenied)
	changed := Config{Clients: []ClientConfig{{Name: "c", Sites: sites("https://a.example/docs/")}, cfg.Clients[1]}}
	if err := l.Reload(changed); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, l, "https://b.example/", SiteNotAllowed)
}

func TestGrantsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEvidence[int](3, time.Minute, time.Hour)
		now := time.Now
		put := func(k string, kind, v int) { e.put([]byte(k), kind, v, now(), nil) }
		has := func(k string) bool { _, ok := e.get([]byte(k), now()); return ok }
		put("a", 1, 1)
		time.Sleep(time.Second)
		put("b", 0, 2)
		time.Sleep(time.Second)
		put("c", 1, 3)
		put("a", 1, 1) // renewed: b is the oldest now
		put("d", 1, 4)
		if !has("a") || has("b") || !has("c") || !has("d") || len(e.byKey) != 3 {
			t.Errorf("a %v b %v c %v d %v, %d kept", has("a"), has("b"), has("c"), has("d"), len(e.byKey))
		}
		time.Sleep(30 * time.Second)
		put("s", 0, 5) // c goes, the oldest
		if has("c") || !has("s") {
			t.Error("the oldest did not go first")
		}
		time.Sleep(time.Minute)
		if has("s") || !has("a") {
			t.Error("lives are not by kind")
		}
	})
}

func TestGrantsBoundOfAList(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/")})
	if l.grants.max != 100_000 {
		t.Errorf("bound %d", l.grants.max)
	}
	const bound = 1000
	l.grants = newEvidence[grant](bound, redirectLife, fileLife)
	s := l.state.Load().clients["c"]
	now := time.Now()
	u := &url.URL{Scheme: "https", Host: "b.example", Path: "/robots.txt", RawQuery: ""}
	for i := range bound + 10 {
		u.RawQuery = fmt.Sprint(i)
		l.addGrant(s, kindRedirect, u, grant{}, now)
	}
	if n := len(l.grants.byKey); n != bound {
		t.Errorf("%d grants", n)
	}
	wantCheck(t, l, "https://b.example/robots.txt?9", SiteNotAllowed)
	wantCheck(t, l, "https://b.example/robots.txt?10", "")
}

func TestOpenAnyAndClosedHosts(t *testing.T) {
	l, err := New(Config{DenyHosts: []string{"closed.example", "*.below.example", "bücher.example"}, Clients: []ClientConfig{
		{Name: "open", Open: true, DenyHosts: []string{"mine.example"}},
		{Name: "c", Sites: sites("https://a.example/", "https://closed.example/", "https://x.below.example/", "https://mine.example/"), DenyHosts: []string{"mine.example"}},
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client, url string
		anySite     bool
		class       string
		listed      bool
	}{
		{"open", "https://anything.example/x", false, "", true},
		{"open", "https://closed.example/x", false, HostDenied, false},
		{"open", "https://mine.example/x", false, HostDenied, false},
		{"c", "https://a.example/x", false, "", true},
		{"c", "https://a.example/x", true, "", true},
		{"c", "https://z.example/x", true, "", false},
		{"c", "https://z.example/x", false, SiteNotAllowed, false},
		{"c", "https://closed.example/", false, HostDenied, false},
		{"c", "https://closed.example/", true, HostDenied, false},
		{"c", "http://closed.example:8080/", true, HostDenied, false},
		{"c", "https://sub.closed.example/", true, "", false},
		{"c", "https://x.below.example/", false, HostDenied, false},
		{"c", "https://below.example/", true, "", false},
		{"c", "https://xn--bcher-kva.example/", true, HostDenied, false},
		{"c", "https://CLOSED.example./", true, HostDenied, false},
		{"c", "https://mine.example/robots.txt", false, HostDenied, false},
		{"nobody", "https://a.example/", false, SiteNotAllowed, false},
		{"nobody", "https://a.example/", true, "", false},
		{"nobody", "https://closed.example/", true, HostDenied, false},
		{"c", "ftp://a.example/", true, SiteNotAllowed, false},
		{"c", "https://a_b%zz.example/", true, "", false},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			continue
		}
		a, err := l.Check(Request{Client: c.client, URL: u, Method: "GET", Any: c.anySite})
		if classOf(err) != c.class || a.Listed != c.listed || err == nil && a.Entry == "" {
			t.Errorf("%s %s any=%v: got %+v, %v", c.client, c.url, c.anySite, a, err)
		}
		if d, ok := AsDenied(err); ok && d.Class == HostDenied && d.Entry == "" {
			t.Errorf("%s: no entry named", c.url)
		}
	}
	if _, err := l.Check(Request{Client: "c"}); classOf(err) != SiteNotAllowed {
		t.Error(err)
	}
}

func TestHints(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/", "https://www.b.example/", "https://*.w.example/", "https://p.example/docs/", "https://q.example/1/")})
	for u, want := range map[string][3]string{
		"https://sub.a.example/": {SiteNotAllowed, "rule 1 (https://a.example/)",
			"An entry holds for its host alone, not for sub.a.example below it; add https://sub.a.example/ or https://*.a.example/"},
		"https://b.example/": {SiteNotAllowed, "rule 2 (https://www.b.example/)", "www.b.example is on the list, b.example is not; add https://b.example/ as well"},
		"https://w.example/": {SiteNotAllowed, "rule 3 (https://*.w.example/)",
			"A wildcard covers the hosts below w.example, not the name itself; add https://w.example/ as well"},
		"https://a.example:8443/": {SiteNotAllowed, "rule 1 (https://a.example/)", "a.example is on the list for its default port, not for port 8443"},
		"https://p.example/x": {PathNotAllowed, "rule 4 (https://p.example/docs/)",
			"Client c may visit parts of p.example, not this URL; its operator can add the path or the page to its sites"},
		"https://z.example/": {SiteNotAllowed, "", "z.example is not among the sites of client c; its operator can add https://z.example/ to them"},
	} {
		_, err := check(l, u)
		d, ok := AsDenied(err)
		if !ok || [3]string{d.Class, d.Entry, d.Hint} != want {
			t.Errorf("%s: got %+v\nwant %q", u, d, want)
		}
		if ok && d.Error() != d.Class+": "+d.Hint {
			t.Error(d.Error())
		}
	}
}

func TestMayBeFile(t *testing.T) {
	for href, want := range map[string]bool{
		"x.pdf": true, "/a/b.PDF?x": true, "x.pdf#p": true, " x.Csv\n": true, "x.7z": true, "x.%70df": true, "x.p\ndf": true,
		"x.html": false, "pdf": false, "": false, "x.pdf/": false, "/": false, "x?y.pdf": false, "#x.pdf": false, ".": false,
		"x.verylongextension": false, "a.pdf/b": false,
	} {
		if got := mayBeFile([]byte(href)); got != want {
			t.Errorf("%q: %v", href, got)
		}
	}
}
