package allowlist

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

const root = "https://www.a.example/sitemap.xml"

func sitemapList(t *testing.T, o SitemapFetcher) *List {
	return newList(t, o, ClientConfig{Name: "c", Sites: []Site{{Sitemap: root}}})
}

func check(l *List, u string) (Admission, error) {
	return l.Check(Request{Client: "c", URL: mustParse(u), Method: "GET"})
}

func classOf(err error) string {
	if err == nil {
		return ""
	}
	d, ok := AsDenied(err)
	if !ok {
		return "not a *Denied: " + err.Error()
	}
	return d.Class
}

func gz(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

func br(s string) string {
	var b bytes.Buffer
	w := brotli.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

func zs(s string) string {
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

func TestSitemapAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{delay: time.Second}
		o.set(root, answer{body: index("https://www.a.example/s1.xml.gz", "/s2.txt", "https://b.example/foreign.xml", root)})
		o.set("https://www.a.example/s1.xml.gz", answer{body: gz(urlset("https://www.a.example/1", "https://blog.a.example/2?x=1&amp;y=2",
			"https://other.example/3", "http://www.a.example/caf%c3%a9", "ftp://www.a.example/4", "::"))})
		o.set("https://www.a.example/s2.txt", answer{body: "\xef\xbb\xbfhttps://www.a.example/t1\r\n\r\nhttps://www.a.example/t2\n",
			header: map[string]string{"Content-Type": "text/plain"}})
		l := sitemapList(t, o)
		// The sitemap's own file needs no reading.
		if _, err := check(l, root); err != nil {
			t.Fatal(err)
		}
		if got := o.urls(); len(got) != 0 {
			t.Fatalf("asked %q before anything depends on it", got)
		}
		start := time.Now()
		a, err := check(l, "https://www.a.example/1")
		if err != nil || !a.Listed || a.Entry != "rule 1 (sitemap "+root+")" {
			t.Fatalf("got %+v, %v", a, err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("waited %s, want until the file that lists it was read", d)
		}
		for url, want := range map[string]string{
			"http://www.a.example/1":                        "",
			"https://blog.a.example/2?x=1&y=2":              "",
			"https://blog.a.example/2?x=1":                  PathNotAllowed,
			"https://www.a.example/caf%C3%A9":               "",
			"https://www.a.example/t1":                      "",
			"https://www.a.example/t2":                      "",
			"https://www.a.example/s1.xml.gz":               "",
			"https://www.a.example/s2.txt":                  "",
			"https://www.a.example/robots.txt":              "",
			"https://blog.a.example/robots.txt":             "",
			"https://shop.a.example/robots.txt":             SiteNotAllowed,
			"https://www.a.example/none":                    PathNotAllowed,
			"https://other.example/3":                       SiteNotAllowed,
			"https://b.example/foreign.xml":                 SiteNotAllowed,
			"https://www.a.example/x/../1":                  "",
			"https://www.a.example/1/":                      PathNotAllowed,
			"https://www.a.example:8443/1":                  SiteNotAllowed,
			"https://b.example/" + strings.Repeat("x", 600): SiteNotAllowed,
		} {
			if _, err := check(l, url); classOf(err) != want {
				t.Errorf("%s: got %v, want %q", url, err, want)
			}
		}
		want := []string{root, "https://www.a.example/s1.xml.gz", "https://www.a.example/s2.txt"}
		if diff := cmp.Diff(want, o.urls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSitemapUnread(t *testing.T) {
	for _, c := range []struct {
		name string
		a    answer
	}{
		{"error", answer{err: errRefused}},
		{"404", answer{status: 404}},
		{"503", answer{status: 503}},
		{"a web page", answer{body: "<!doctype html><html><body>hello"}},
		{"html", answer{body: "<html xmlns='http://www.w3.org/1999/xhtml'><loc>https://www.a.example/1</loc></html>"}},
		{"text without URLs", answer{body: "hello\nworld\n"}},
		{"unknown coding", answer{body: urlset("https://www.a.example/1"), header: map[string]string{"Content-Encoding": "rot13"}}},
		{"cut gzip", answer{body: gz(urlset("https://www.a.example/1"))[:12]}},
		{"redirect to another site", answer{status: 302, header: map[string]string{"Location": "https://b.example/s.xml"}}},
		{"redirect to itself", answer{status: 302, header: map[string]string{"Location": root}}},
		{"redirect to nowhere", answer{status: 302}},
		{"redirect to a mail address", answer{status: 302, header: map[string]string{"Location": "mailto:a@a.example"}}},
		{"304 unasked", answer{status: 304}},
		{"an empty body of nothing", answer{body: "<"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &fakeOrigin{}
				o.set(root, c.a)
				l := sitemapList(t, o)
				_, err := check(l, "https://www.a.example/1")
				d, ok := AsDenied(err)
				if !ok || d.Class != SitemapUnread || d.Err == nil || !strings.Contains(d.Hint, root) || !strings.Contains(d.Entry, "rule 1") {
					t.Fatalf("got %+v", err)
				}
				if c.a.err != nil && !errors.Is(err, c.a.err) {
					t.Errorf("the cause %v is not in %v", c.a.err, d.Err)
				}
				// It is left alone for a while, and then read.
				n := len(o.urls())
				o.set(root, answer{body: urlset("https://www.a.example/1")})
				if _, err := check(l, "https://www.a.example/1"); classOf(err) != SitemapUnread || len(o.urls()) != n {
					t.Errorf("asked again at once: %v", err)
				}
				time.Sleep(sitemapRetry)
				if _, err := check(l, "https://www.a.example/1"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSitemapWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{delay: time.Hour}
		o.set(root, answer{body: urlset("https://www.a.example/1")})
		l := sitemapList(t, o)
		start := time.Now()
		_, err := check(l, "https://www.a.example/1")
		if classOf(err) != SitemapUnread || time.Since(start) != SitemapWait {
			t.Fatalf("got %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err = l.CheckContext(ctx, Request{Client: "c", URL: mustParse("https://www.a.example/1"), Method: "GET"})
		if classOf(err) != SitemapUnread || time.Since(start) != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v after %s", err, time.Since(start))
		}
		start = time.Now()
		_, err = l.Check(Request{Client: "c", URL: mustParse("https://www.a.example/1"), Method: "GET", Peek: true})
		if classOf(err) != SitemapUnread || time.Since(start) != 0 {
			t.Fatalf("a peek waited: %v after %s", err, time.Since(start))
		}
		// sites: any does not wait for it, and is not listed by it.
		a, err := l.Check(Request{Client: "c", URL: mustParse("https://www.a.example/1"), Method: "GET", Any: true})
		if err != nil || a.Listed || time.Since(start) != 0 {
			t.Fatalf("got %+v, %v", a, err)
		}
		time.Sleep(time.Hour)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Fatal(err)
		}
		if n := len(o.urls()); n != 1 {
			t.Errorf("%d requests for one sitemap", n)
		}
	})
}

func TestSitemapPeekAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		l := sitemapList(t, o)
		_, err := l.Check(Request{Client: "c", URL: mustParse("https://www.a.example/1"), Peek: true})
		if classOf(err) != SitemapUnread || len(o.urls()) != 0 {
			t.Fatalf("got %v, asked %q", err, o.urls())
		}
	})
}

func TestSitemapRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{delay: time.Second}
		o.set(root, answer{body: index("/s1.xml", "/s2.xml"), header: map[string]string{"ETag": `"i1"`}})
		o.set("https://www.a.example/s1.xml", answer{body: urlset("https://www.a.example/1"), header: map[string]string{"ETag": `"a"`}})
		o.set("https://www.a.example/s2.xml", answer{body: urlset("https://www.a.example/2"), header: map[string]string{"ETag": `"b"`}})
		l := sitemapList(t, o)
		if _, err := check(l, "https://www.a.example/2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(23 * time.Hour)
		o.set("https://www.a.example/s2.xml", answer{body: urlset("https://www.a.example/2b"), header: map[string]string{"ETag": `"c"`}})
		if _, err := check(l, "https://www.a.example/2"); err != nil || len(o.urls()) != 3 {
			t.Fatalf("got %v, asked %d", err, len(o.urls()))
		}
		time.Sleep(time.Hour)
		start := time.Now()
		if _, err := check(l, "https://www.a.example/2"); err != nil || time.Since(start) != 0 {
			t.Fatalf("a refresh held a request: %v, %s", err, time.Since(start))
		}
		time.Sleep(4 * time.Second)
		if _, err := check(l, "https://www.a.example/2"); classOf(err) != PathNotAllowed {
			t.Errorf("an URL that left the sitemap: %v", err)
		}
		for _, u := range []string{"https://www.a.example/1", "https://www.a.example/2b"} {
			if _, err := check(l, u); err != nil {
				t.Error(err)
			}
		}
		if n := len(o.urls()); n != 6 {
			t.Errorf("%d requests, want 6", n)
		}
		for _, r := range o.asked[3:] {
			if r.Header.Get("If-None-Match") == "" {
				t.Errorf("%s asked for again without a condition", r.URL)
			}
		}
		// The site is away: what was read holds for three days, and no longer.
		o.set(root, answer{err: errRefused})
		time.Sleep(2 * 24 * time.Hour)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * 24 * time.Hour)
		if _, err := check(l, "https://www.a.example/1"); classOf(err) != SitemapUnread {
			t.Errorf("four days old: %v", err)
		}
	})
}

func TestSitemapPartlyUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		o.set(root, answer{body: index("/s1.xml", "/s2.xml")})
		o.set("https://www.a.example/s1.xml", answer{body: urlset("https://www.a.example/1")})
		o.set("https://www.a.example/s2.xml", answer{status: 503})
		l := sitemapList(t, o)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Fatal(err)
		}
		if _, err := check(l, "https://www.a.example/2"); classOf(err) != SitemapUnread {
			t.Fatalf("it may stand in the file that could not be read: %v", err)
		}
		o.set("https://www.a.example/s2.xml", answer{body: urlset("https://www.a.example/2")})
		time.Sleep(sitemapRetry)
		if _, err := check(l, "https://www.a.example/2"); classOf(err) != "" && classOf(err) != SitemapUnread {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := check(l, "https://www.a.example/2"); err != nil {
			t.Fatal(err)
		}
		want := []string{root, "https://www.a.example/s1.xml", "https://www.a.example/s2.xml", "https://www.a.example/s2.xml"}
		if diff := cmp.Diff(want, o.urls()); diff != "" {
			t.Errorf("files that were read are asked for again: %s", diff)
		}
	})
}

func TestSitemapDepthLoopsAndRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		at := func(p string) string { return "https://www.a.example" + p }
		o.set(root, answer{status: 301, header: map[string]string{"Location": "/real.xml"}})
		o.set(at("/real.xml"), answer{body: index("/i2.xml", "/real.xml", root)})
		o.set(at("/i2.xml"), answer{body: index("/i3.xml", root, "/i2.xml")})
		o.set(at("/i3.xml"), answer{body: index("/i4.xml") /* a fourth level */})
		o.set(at("/i4.xml"), answer{body: urlset(at("/deep"))})
		l := sitemapList(t, o)
		if _, err := check(l, at("/deep")); classOf(err) != PathNotAllowed {
			t.Fatalf("got %v", err)
		}
		// root by its redirect, i2, real.xml as a file of the index (its own loop ends), i3.
		want := []string{root, at("/real.xml"), at("/i2.xml"), at("/real.xml"), at("/i3.xml")}
		if diff := cmp.Diff(want, o.urls()); diff != "" {
			t.Error(diff)
		}
	})
}

// viaList asks the list before it fetches, as the gate does for requests of its own.
type viaList struct {
	*fakeOrigin
	list    *List
	refused []string
}

func (v *viaList) FetchSitemap(ctx context.Context, r SitemapRequest) (*SitemapResponse, error) {
	if _, err := v.list.CheckContext(ctx, Request{Client: r.Client, URL: r.URL, Method: "GET", Document: true}); err != nil {
		v.refused = append(v.refused, r.URL.String())
		return nil, err
	}
	return v.fakeOrigin.FetchSitemap(ctx, r)
}

func TestSitemapFilesAreAdmittedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &viaList{fakeOrigin: &fakeOrigin{delay: time.Second}}
		o.set(root, answer{status: 301, header: map[string]string{"Location": "https://maps.a.example/index"}})
		o.set("https://maps.a.example/index", answer{body: index("https://maps.a.example/1")})
		o.set("https://maps.a.example/1", answer{body: urlset("https://www.a.example/1")})
		l := sitemapList(t, o)
		o.list = l
		start := time.Now()
		if _, err := check(l, "https://www.a.example/1"); err != nil || time.Since(start) != 3*time.Second {
			t.Fatalf("%v after %s, refused %q", err, time.Since(start), o.refused)
		}
		// A day later there is a new file.
		o.set("https://maps.a.example/index", answer{body: index("https://maps.a.example/1", "https://maps.a.example/2")})
		o.set("https://maps.a.example/2", answer{body: urlset("https://www.a.example/2")})
		time.Sleep(25 * time.Hour)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := check(l, "https://www.a.example/2"); err != nil || len(o.refused) > 0 {
			t.Fatalf("%v, refused %q", err, o.refused)
		}
	})
}

func TestSitemapLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		o.set(root, answer{err: &SitemapLater{After: 5 * time.Second, Err: errRefused}})
		l := sitemapList(t, o)
		time.AfterFunc(12*time.Second, func() { o.set(root, answer{body: urlset("https://www.a.example/1")}) })
		start := time.Now()
		if _, err := check(l, "https://www.a.example/1"); err != nil || time.Since(start) != 15*time.Second || len(o.urls()) != 4 {
			t.Fatalf("%v after %s and %d requests", err, time.Since(start), len(o.urls()))
		}
		o.set(root, answer{err: &SitemapLater{Err: errRefused}})
		time.Sleep(25 * time.Hour)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(o.urls()); n != 4+sitemapTries {
			t.Errorf("%d requests", n)
		}
	})
}

func TestSitemapTooManyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		var files []string
		for i := range maxSitemapFiles + 50 {
			u := fmt.Sprintf("https://www.a.example/s%d.xml", i)
			files = append(files, u)
			o.set(u, answer{body: urlset(fmt.Sprintf("https://www.a.example/p%d", i))})
		}
		o.set(root, answer{body: index(files...)})
		l := sitemapList(t, o)
		if _, err := check(l, "https://www.a.example/p7"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(o.urls()); n != maxSitemapFiles {
			t.Errorf("%d files read", n)
		}
		if _, err := check(l, fmt.Sprintf("https://www.a.example/p%d", maxSitemapFiles+10)); classOf(err) != PathNotAllowed {
			t.Error(err)
		}
	})
}

func TestSitemapSharedAndReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		o.set(root, answer{body: urlset("https://www.a.example/1")})
		cfg := Config{Clients: []ClientConfig{{Name: "c", Sites: []Site{{Sitemap: root}}}, {Name: "d", Sites: []Site{{Sitemap: root}}}}}
		l, err := New(cfg, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, client := range []string{"c", "d"} {
			if _, err := l.Check(Request{Client: client, URL: mustParse("https://www.a.example/1")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Fatal(err)
		}
		if len(o.asked) != 1 || o.asked[0].Client != "c" {
			t.Errorf("asked %+v", o.asked)
		}
	})
}

func TestSitemapClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{delay: time.Hour}
		l := sitemapList(t, o)
		done := make(chan error)
		go func() {
			_, err := check(l, "https://www.a.example/1")
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := l.Close(); err != nil || time.Since(start) != 0 {
			t.Fatalf("closed after %s, %v", time.Since(start), err)
		}
		if err := <-done; classOf(err) != SitemapUnread {
			t.Error(err)
		}
		if _, err := check(l, "https://www.a.example/1"); classOf(err) != SitemapUnread {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestChangedBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{}
		o.set(root, answer{body: `<urlset><url><loc>https://www.a.example/1</loc><lastmod> 2026-03-01T10:00:00+01:00 </lastmod></url>` +
			`<url><loc>https://www.a.example/2</loc><lastmod>2026-03</lastmod></url><url><loc>https://www.a.example/5</loc><lastmod>2026-03-04</lastmod></url>` +
			`<url><loc>https://www.a.example/6</loc><lastmod>2026</lastmod></url><url><loc>https://www.a.example/1</loc><lastmod>2025-03-01T10:00:00Z</lastmod></url><url><loc>https://www.a.example/3</loc><lastmod>soon</lastmod></url></urlset>`})
		l := sitemapList(t, o)
		if _, err := check(l, "https://www.a.example/1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the page may go as soon as its file is read; dates are told when all are
		for u, want := range map[string]string{"1": "2026-03-01T09:00:00Z", "2": "2026-04-01T14:00:00Z", "3": "", "4": "", "5": "2026-03-05T14:00:00Z", "6": "2027-01-01T14:00:00Z"} {
			at, ok := l.ChangedBy("c", mustParse("https://www.a.example/"+u), nil)
			if got := at.Format(time.RFC3339); ok != (want != "") || ok && got != want {
				t.Errorf("%s: %s, %v", u, got, ok)
			}
		}
		if _, ok := l.ChangedBy("nobody", mustParse("https://www.a.example/1"), nil); ok {
			t.Error("an unknown client has a list")
		}
		time.Sleep(sitemapFresh)
		o.delay = time.Second // the next reading begins with the question, and must not end before it
		if _, ok := l.ChangedBy("c", mustParse("https://www.a.example/1"), nil); ok {
			t.Error("a reading of yesterday counts")
		}
	})
}

func TestReadSitemap(t *testing.T) {
	loc := func(s ...string) (e []sitemapEntry) {
		for _, l := range s {
			e = append(e, sitemapEntry{loc: l})
		}
		return e
	}
	for _, c := range []struct {
		name, body string
		want       []sitemapEntry
		cut, fails bool
	}{
		{"urlset", urlset("https://a.example/1", "https://a.example/2"), loc("https://a.example/1", "https://a.example/2"), false, false},
		{"prefix", `<s:urlset xmlns:s="x"><s:url><s:loc>https://a.example/1</s:loc></s:url></s:urlset>`, loc("https://a.example/1"), false, false},
		{"images and languages are no pages", `<urlset><url><loc>https://a.example/1</loc><image:image><image:loc>https://a.example/i.png</image:loc></image:image>` +
			`<image:loc>https://a.example/j.png</image:loc><xhtml:link rel="alternate" href="https://a.example/de"/></url></urlset>`, loc("https://a.example/1"), false, false},
		{"CDATA and blanks", "<urlset><url><loc>\n <![CDATA[https://a.example/1?a=1&b=2]]>\n</loc></url></urlset>", loc("https://a.example/1?a=1&b=2"), false, false},
		{"entities", "<urlset><url><loc>https://a.example/?a=1&amp;b=2</loc></url></urlset>", loc("https://a.example/?a=1&b=2"), false, false},
		{"own entities are not expanded", `<!DOCTYPE x [<!ENTITY e "https://a.example/1">]><urlset><url><loc>&e;</loc></url></urlset>`, loc("&e;"), false, false},
		{"RSS", `<rss version="2.0"><channel><link>https://a.example/</link><item><link>https://a.example/1</link></item></channel></rss>`, loc("https://a.example/1"), false, false},
		{"Atom", `<feed><link href="https://a.example/"/><entry><link rel="self" href="https://a.example/x"/><link rel="alternate" href="https://a.example/1"/></entry></feed>`,
			loc("https://a.example/1"), false, false},
		{"index", index("https://a.example/s.xml"), []sitemapEntry{{loc: "https://a.example/s.xml", index: true}}, false, false},
		{"empty urlset", "<urlset/>", nil, false, false},
		{"empty file", "", nil, false, false},
		{"text", "# comment\nhttps://a.example/1\nnonsense\nHTTPS://a.example/2", loc("https://a.example/1", "HTTPS://a.example/2"), false, false},
		{"broken in the middle", "<urlset><url><loc>https://a.example/1</loc></url><url><loc>https://a.example/2</lo", loc("https://a.example/1"), true, false},
		{"ends early", "<urlset><url><loc>https://a.example/1</loc></url>", loc("https://a.example/1"), true, false},
		{"latin1", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><urlset><url><loc>https://a.example/caf\xe9</loc></url></urlset>", loc("https://a.example/café"), false, false},
		{"other encoding", "<?xml version=\"1.0\" encoding=\"EBCDIC\"?><urlset><url><loc>https://a.example/1</loc></url></urlset>", nil, false, true},
		{"html", "<html></html>", nil, false, true},
		{"end first", "</urlset>", nil, false, true},
		{"deep", "<urlset>" + strings.Repeat("<a>", 1000) + "<url><loc>https://a.example/1</loc></url>" + strings.Repeat("</a>", 1000) + "<url><loc>https://a.example/2</loc></url></urlset>",
			loc("https://a.example/2"), false, false},
		{"gzip", gz(urlset("https://a.example/1")), loc("https://a.example/1"), false, false},
		{"a long loc is cut out", "<urlset><url><loc>https://a.example/" + strings.Repeat("x", maxLocBytes) + "</loc></url></urlset>", nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []sitemapEntry
			cut, err := readSitemap(strings.NewReader(c.body), func(e sitemapEntry) { got = append(got, e) })
			if cut != c.cut || (err != nil) != c.fails {
				t.Errorf("cut %v, error %v", cut, err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(sitemapEntry{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var blanks = bytes.Repeat([]byte(" "), 64<<10)

// endless is a body that goes on in blanks.
type endless struct{ lead *strings.Reader }

func (z endless) Read(p []byte) (int, error) {
	if n, err := z.lead.Read(p); err == nil {
		return n, nil
	}
	return copy(p, blanks), nil
}

func TestSitemapBombs(t *testing.T) {
	n := 0
	cut, err := readSitemap(endless{strings.NewReader("<urlset><url><loc>https://a.example/1</loc></url>")}, func(sitemapEntry) { n++ })
	if !cut || err != nil || n != 1 {
		t.Errorf("endless XML: cut %v, %v, %d entries", cut, err, n)
	}
	const small = 2 << 20 // the other forms, with a limit that takes less time
	cut, err = readSitemapTo(endless{strings.NewReader("https://a.example/1\n")}, small, func(sitemapEntry) { n++ })
	if !cut || err != nil || n != 2 {
		t.Errorf("endless text: cut %v, %v, %d entries", cut, err, n)
	}
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = w.Write([]byte("<urlset><url><loc>https://a.example/1</loc></url>"))
	for range 3 << 20 / len(blanks) {
		_, _ = w.Write(blanks)
	}
	_ = w.Close()
	for name, body := range map[string]string{"gzip": b.String(), "gzip in gzip": gz(b.String())} {
		n = 0
		r, done, err := decoded(strings.NewReader(body), map[string]string{"gzip in gzip": "gzip"}[name])
		if err != nil {
			t.Fatal(err)
		}
		cut, err = readSitemapTo(r, small, func(sitemapEntry) { n++ })
		done()
		if !cut || err != nil || n != 1 {
			t.Errorf("%s: cut %v, %v, %d entries", name, cut, err, n)
		}
	}
	var many []string
	for i := range maxSitemapURLs + 10 {
		many = append(many, fmt.Sprintf("https://a.example/%d", i))
	}
	n = 0
	cut, err = readSitemap(strings.NewReader(urlset(many...)), func(sitemapEntry) { n++ })
	if !cut || err != nil || n != maxSitemapURLs {
		t.Errorf("too many URLs: cut %v, %v, %d entries", cut, err, n)
	}
}

func TestSitemapCodings(t *testing.T) {
	body := urlset("https://www.a.example/1")
	// A decoder that a bubble made must not be used outside it.
	t.Cleanup(func() { zstdReaders = sync.Pool{New: newZstdReader} })
	for coding, enc := range map[string]string{"gzip": gz(body), "br": br(body), "zstd": zs(body), "identity": body, "gzip, br": br(gz(body))} {
		synctest.Test(t, func(t *testing.T) {
			o := &fakeOrigin{}
			o.set(root, answer{body: enc, header: map[string]string{"Content-Encoding": coding}})
			l := sitemapList(t, o)
			if _, err := check(l, "https://www.a.example/1"); err != nil {
				t.Errorf("%s: %v", coding, err)
			}
		})
	}
}

func TestSitemapNeedsFetcher(t *testing.T) {
	if _, err := New(Config{Clients: []ClientConfig{{Name: "c", Sites: []Site{{Sitemap: root}}}}}, nil, nil); err == nil {
		t.Error("a sitemap that nothing can fetch was accepted")
	}
}
