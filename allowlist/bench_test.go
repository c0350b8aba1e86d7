package allowlist

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// BenchmarkCheck decides a host and path against lists of very different length: the number of entries must not show.
func BenchmarkCheck(b *testing.B) {
	lists := []struct {
		name  string
		entry func(i int) string
		url   string
		miss  string
	}{
		{"host", func(i int) string { return fmt.Sprintf("https://host%d.example/", i) },
			"https://host7.example/some/path/page.html?q=1", "https://host7.test/some/path/page.html?q=1"},
		{"path", func(i int) string { return fmt.Sprintf("https://host%d.example/some/path/", i) },
			"https://host7.example/some/path/page.html?q=1", "https://host7.example/other/path/page.html?q=1"},
		{"one-host", func(i int) string { return fmt.Sprintf("https://a.example/some/path%d/", i) },
			"https://a.example/some/path7/page.html?q=1", "https://a.example/other/path/page.html?q=1"},
		{"wildcard", func(i int) string { return fmt.Sprintf("https://*.host%d.example/", i) },
			"https://a.b.host7.example/some/path/page.html?q=1", "https://a.b.host7.test/some/path/page.html?q=1"},
	}
	for _, list := range lists {
		for _, n := range []int{10, 10_000, 1_000_000} {
			var s []Site
			for i := range n {
				s = append(s, Site{URL: list.entry(i)})
			}
			l := newList(b, nil, ClientConfig{Name: "c", Sites: s})
			hit := Request{Client: "c", URL: mustURL(b, list.url), Method: "GET"}
			b.Run(fmt.Sprintf("%s/%d", list.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.Check(hit); err != nil {
						b.Fatal(err)
					}
				}
			})
			st := l.state.Load().clients["c"]
			miss := mustURL(b, list.miss)
			b.Run(fmt.Sprintf("%s-miss/%d", list.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if n, _ := st.match(miss); n != 0 {
						b.Fatal("matched")
					}
				}
			})
		}
	}
}

// BenchmarkPages is the same for lists of pages, whose keys are paths and queries.
func BenchmarkPages(b *testing.B) {
	for _, n := range []int{10, 10_000, 1_000_000} {
		var pages []string
		for i := range n {
			pages = append(pages, fmt.Sprintf("https://a.example/some/path/page%d.html?q=%d", i, i))
		}
		l := newList(b, nil, ClientConfig{Name: "c", Sites: []Site{{Pages: pages}}})
		r := Request{Client: "c", URL: mustURL(b, pages[7]), Method: "GET"}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Check(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompile is the cost of a load or reload, with the memory that a list of a million hosts keeps.
func BenchmarkCompile(b *testing.B) {
	var s []Site
	for i := range 1_000_000 {
		s = append(s, Site{URL: fmt.Sprintf("https://host%d.example/", i)})
	}
	c := Config{Clients: []ClientConfig{{Name: "c", Sites: s}}}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		l, err := New(c, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB/list")
		_ = l.Close()
		runtime.KeepAlive(l)
	}
}

func BenchmarkLedgerGet(b *testing.B) {
	l, err := NewLedger(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if _, err := l.Stop(Entry{Host: fmt.Sprintf("host%d.example", i), Subdomains: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := l.Get("www.shop.host7.example"); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkLocksFind(b *testing.B) {
	l, err := NewLocks(nil, 24*time.Hour, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 500 {
		if err := l.Record(mustURL(b, fmt.Sprintf("https://a.example/p/%d", i)), "x", "", 403, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	free, held := mustURL(b, "https://b.example/p/1"), mustURL(b, "https://a.example/p/1")
	b.Run("host-without", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := l.Find(free, "y", "", time.Hour); ok {
				b.Fatal("found")
			}
		}
	})
	b.Run("locked", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := l.Find(held, "y", "", time.Hour); !ok {
				b.Fatal("not found")
			}
		}
	})
}

// BenchmarkSitemap reads a file with as many URLs as one may have.
func BenchmarkSitemap(b *testing.B) {
	var locs []string
	for i := range maxSitemapURLs {
		locs = append(locs, fmt.Sprintf("https://www.a.example/section/page-%d.html?x=1&amp;y=2", i))
	}
	body := urlset(locs...)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if cut, err := readSitemap(strings.NewReader(body), func(sitemapEntry) { n++ }); cut || err != nil || n != maxSitemapURLs {
			b.Fatal(cut, err, n)
		}
	}
}

// BenchmarkSitemapCheck asks for a URL of a sitemap that was read.
func BenchmarkSitemapCheck(b *testing.B) {
	o := &fakeOrigin{}
	var files []string
	for f := range 20 {
		u := fmt.Sprintf("https://www.a.example/s%d.xml", f)
		files = append(files, u)
		var locs []string
		for i := range maxSitemapURLs {
			locs = append(locs, fmt.Sprintf("https://www.a.example/%d/%d", f, i))
		}
		o.set(u, answer{body: urlset(locs...)})
	}
	o.set(root, answer{body: index(files...)})
	l := newList(b, o, ClientConfig{Name: "c", Sites: []Site{{Sitemap: root}}})
	r := Request{Client: "c", URL: mustParse("https://www.a.example/19/777"), Method: "GET"}
	for {
		_, _ = l.Check(r)
		if d := l.state.Load().clients["c"].sitemaps["a.example"][0].set.data.Load(); d != nil && d.all != nil {
			break
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Check(r); err != nil {
			b.Fatal(err)
		}
	}
}
