package allowlist

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func dated(date string, urls ...string) string {
	s := "<urlset>"
	for _, u := range urls {
		s += "<url><loc>" + u + "</loc><lastmod>" + date + "</lastmod></url>"
	}
	return s + "</urlset>"
}

// elsewhereList is the list of a client that lists another site.
func elsewhereList(t *testing.T, f SitemapFetcher) *List {
	t.Helper()
	l, err := New(Config{Clients: []ClientConfig{{Name: "c", Sites: []Site{{URL: "https://elsewhere.example/"}}}}}, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestFoundSitemaps: what robots.txt names is read once a day, behind the requests, and says nothing of other sites.
func TestFoundSitemaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{delay: time.Second}
		const map1, map2 = "https://www.a.example/map1.xml", "https://maps.a.example/map2.xml"
		o.set(map1, answer{body: dated("2026-03-01T10:00:00Z", "https://www.a.example/1", "https://www.a.example/2", "https://b.example/1")})
		o.set(map2, answer{body: dated("2026-03-02T10:00:00Z", "https://www.a.example/2")})
		o.set("https://b.example/map.xml", answer{body: dated("2026-03-01T10:00:00Z", "https://b.example/1")})
		l := elsewhereList(t, o)
		lines := []string{map1, " " + map2 + " ", "https://b.example/map.xml", "::", "", "map3.xml", "?x", "#"}
		ask := func(u string) string {
			at, ok := l.ChangedBy("c", mustParse(u), lines)
			if !ok {
				return ""
			}
			return at.Format(time.RFC3339)
		}
		start := time.Now()
		if got := ask("https://www.a.example/1"); got != "" || time.Since(start) != 0 {
			t.Errorf("%q before anything was read, after %v", got, time.Since(start))
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		for u, want := range map[string]string{"https://www.a.example/1": "2026-03-01T10:00:00Z", "https://www.a.example/2": "2026-03-02T10:00:00Z", "https://www.a.example/3": "", "https://b.example/1": ""} {
			if got := ask(u); got != want {
				t.Errorf("%s: %q", u, got)
			}
		}
		time.Sleep(5 * time.Second) // the last question had b.example's own read
		if got := ask("https://b.example/1"); got != "2026-03-01T10:00:00Z" {
			t.Errorf("b.example: %q", got)
		}
		got := o.urls()
		slices.Sort(got)
		if want := []string{"https://b.example/map.xml", map2, map1}; !slices.Equal(got, want) {
			t.Errorf("asked for %q", got)
		}
		// They admit nothing.
		if _, err := check(l, "https://www.a.example/1"); err == nil {
			t.Error("a sitemap that robots.txt names admits a page")
		}
		time.Sleep(sitemapFresh)
		if got := ask("https://www.a.example/1"); got != "" {
			t.Errorf("a reading of yesterday says %q", got)
		}
		time.Sleep(5 * time.Second)
		if got := ask("https://www.a.example/1"); got == "" {
			t.Error("it was not read again")
		}
	})
}

// TestFoundSitemapsAreBounded: what was used longest ago is forgotten.
func TestFoundSitemapsAreBounded(t *testing.T) {
	f := newFound()
	first := f.get(mustParse("https://a.example/0"))
	for n := range maxFound + 10 {
		f.get(mustParse(fmt.Sprintf("https://a.example/%d", n)))
		if f.get(mustParse("https://a.example/0")) != first {
			t.Fatal("the one in use was forgotten")
		}
	}
	if len(f.byURL) != maxFound || f.recent.Len() != maxFound {
		t.Errorf("%d, %d are kept", len(f.byURL), f.recent.Len())
	}
	big := f.get(mustParse("https://a.example/big"))
	big.data.Store(&sitemapData{all: make([]listed, maxFoundTotal)})
	f.get(mustParse("https://a.example/last")).data.Store(&sitemapData{all: make([]listed, 1)})
	f.get(mustParse("https://a.example/big"))
	f.get(mustParse("https://a.example/more"))
	if n := f.recent.Len(); n != 2 {
		t.Errorf("%d are kept beside one that takes all the room", n)
	}
}

// TestFoundReadingsAreBounded: a crawl of many sites reads so many sitemaps at once and no more, and those that a client
// lists are read meanwhile.
func TestFoundReadingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{delay: time.Minute}
		o.set(root, answer{body: urlset("https://www.a.example/1")})
		l := sitemapList(t, o)
		for n := range 3 * foundLoads {
			l.ChangedBy("c", mustParse(fmt.Sprintf("https://h%d.example/", n)), []string{"/map.xml"})
		}
		synctest.Wait()
		if n := len(l.maps.spare); n != foundLoads {
			t.Errorf("%d are being read", n)
		}
		l.maps.want(l.maps.sets["https"+string(appendURL(nil, mustParse(root)))], "c", time.Now())
		time.Sleep(2 * time.Minute)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Error(err)
		}
		if n := len(l.maps.spare); n != 0 {
			t.Errorf("%d are still being read", n)
		}
	})
}
