package allowlist

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// links feeds a page in pieces and gives the links that were seen.
func links(t *testing.T, page, coding string, piece int) (found []string) {
	t.Helper()
	s := newScanner(coding, mustParse("https://a.example/dir/page"), func(base *url.URL, href []byte) bool {
		ref, err := url.Parse(string(href))
		if err != nil {
			return false
		}
		found = append(found, base.ResolveReference(ref).String())
		return true
	})
	for len(page) > 0 {
		n := min(piece, len(page))
		if w, err := s.Write([]byte(page[:n])); w != n || err != nil {
			t.Fatalf("wrote %d of %d, %v", w, n, err)
		}
		page = page[n:]
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLinks(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       []string
	}{
		{"a", `<p><a href="x.pdf">`, []string{"https://a.example/dir/x.pdf"}},
		{"case, quotes, blanks", `<A CLASS=x HREF = 'X.PDF' ><a href=/y.pdf>`, []string{"https://a.example/dir/X.PDF", "https://a.example/y.pdf"}},
		{"entities", `<a href="/x.pdf?a=1&amp;b=2">`, []string{"https://a.example/x.pdf?a=1&b=2"}},
		{"others", `<area href=1><link href=2><iframe src=3></iframe><embed src=4><object data=5></object><img src=6><script src=7></script>`,
			[]string{"https://a.example/dir/1", "https://a.example/dir/2", "https://a.example/dir/3", "https://a.example/dir/4", "https://a.example/dir/5"}},
		{"first attribute counts", `<a href=1 href=2>`, []string{"https://a.example/dir/1"}},
		{"base", `<a href=1><base href="https://b.example/q/"><a href=2><base href="https://c.example/"><a href=3>`,
			[]string{"https://a.example/dir/1", "https://b.example/q/2", "https://b.example/q/3"}},
		{"not in scripts, comments and text areas", `<script>"<a href=1>"</script><!-- <a href=2> --><textarea><a href=3></textarea><title><a href=4></title><a href=5>`,
			[]string{"https://a.example/dir/5"}},
		{"unfinished", `<a href="x`, nil},
		{"no href", `<a name=x><a>`, nil},
		{"empty", ``, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, piece := range []int{1, 7, 4096} {
				for coding, page := range map[string]string{"": c.page, "gzip": gz(c.page), "br": br(c.page), "zstd": zs(c.page), "identity, gzip": gz(c.page)} {
					if diff := cmp.Diff(c.want, links(t, page, coding, piece)); diff != "" {
						t.Errorf("coding %q, pieces of %d: %s", coding, piece, diff)
					}
				}
			}
		})
	}
}

func TestLinksOfHostileBodies(t *testing.T) {
	page := `<a href=1>` + strings.Repeat("x", 3000)
	for name, c := range map[string][2]string{
		"unknown coding":     {"rot13", page},
		"not gzip":           {"gzip", page},
		"not br":             {"br", page},
		"not zstd":           {"zstd", page},
		"cut gzip":           {"gzip", gz(page)[:20]},
		"cut zstd":           {"zstd", zs(page)[:12]},
		"trailing rubbish":   {"gzip", gz("") + "rubbish"},
		"many codings":       {"gzip, gzip, gzip, gzip", page},
		"a huge zstd window": {"zstd", "\x28\xb5\x2f\xfd\x00\xf8" + strings.Repeat("\x00", 100)},
	} {
		if got := links(t, c[1], c[0], 100); name != "trailing rubbish" && len(got) > 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestLinksBound(t *testing.T) {
	page := `<a href=1>` + strings.Repeat(" ", maxPageBytes) + `<a href=2>`
	want := []string{"https://a.example/dir/1"}
	for coding, body := range map[string]string{"": page, "gzip": gz(page)} {
		if diff := cmp.Diff(want, links(t, body, coding, 64<<10)); diff != "" {
			t.Errorf("%q: %s", coding, diff)
		}
	}
	many := strings.Repeat(`<a href=1>`, maxPageFiles+100)
	if got := links(t, many, "", 64<<10); len(got) != maxPageFiles {
		t.Errorf("%d links of one page", len(got))
	}
}

func TestFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/docs/")})
		show := func(u, coding, body string) {
			t.Helper()
			r := Request{Client: "c", URL: mustParse(u), Method: "GET", Document: true}
			a, err := l.Check(r)
			if err != nil {
				t.Fatal(err)
			}
			w := l.ObserveHTML(r, a, coding)
			if w == nil {
				return
			}
			_, _ = io.WriteString(w, body)
			_ = w.Close()
		}
		show("https://a.example/docs/1", "gzip", gz(`<a href="https://cdn.example/a%2fb/Report.PDF?v=1#page=2">x</a><a href="https://b.example/page.html">
			<a href="/files/t.csv"><a href="in.pdf"><a href="https://u:p@c.example/x.pdf"><a href="ftp://c.example/x.pdf"><a href="https://c.example/pdf">`))
		for u, want := range map[string]string{
			"https://cdn.example/a%2Fb/Report.PDF?v=1": "",
			"https://cdn.example/a%2Fb/Report.PDF":     SiteNotAllowed,
			"https://cdn.example/a%2Fb/Report.PDF?v=2": SiteNotAllowed,
			"https://cdn.example/robots.txt":           "",
			"https://b.example/page.html":              SiteNotAllowed,
			"https://a.example/files/t.csv":            "",
			"https://a.example/files/":                 PathNotAllowed,
			"https://c.example/x.pdf":                  SiteNotAllowed,
			"https://c.example/pdf":                    SiteNotAllowed,
		} {
			a := wantCheck(t, l, u, want)
			if want == "" && (a.Grant != GrantFiles || a.Listed) {
				t.Errorf("%s: %+v", u, a)
			}
		}
		if _, err := l.Check(Request{Client: "c", URL: mustParse("https://cdn.example/a%2fb/Report.PDF?v=1"), Method: "POST"}); err == nil {
			t.Error("a POST to a file")
		}
		// A file may redirect, under the same terms; HTML in its place teaches nothing.
		r := Request{Client: "c", URL: mustParse("https://cdn.example/a%2Fb/Report.PDF?v=1"), Method: "GET"}
		a, err := l.Check(r)
		if err != nil {
			t.Fatal(err)
		}
		l.ObserveRedirect(r, a, mustParse("https://store.example/r"))
		if a := wantCheck(t, l, "https://store.example/r", ""); l.ObserveHTML(Request{Client: "c", URL: mustParse("https://store.example/r")}, a, "") != nil {
			t.Error("what a file redirects to teaches links")
		}
		if _, err := l.Check(Request{Client: "c", URL: mustParse("https://store.example/r"), Method: "POST"}); err == nil {
			t.Error("a POST where a file redirects")
		}
		if w := l.ObserveHTML(r, a, ""); w != nil {
			t.Error("a file teaches links")
		}
		if w := l.ObserveHTML(Request{Client: "c", URL: mustParse("https://a.example/docs/1"), Method: "HEAD"}, Admission{Listed: true}, ""); w != nil {
			t.Error("HEAD has no links")
		}
		time.Sleep(fileLife - time.Second)
		wantCheck(t, l, "https://a.example/files/t.csv", "")
		time.Sleep(time.Second)
		wantCheck(t, l, "https://a.example/files/t.csv", PathNotAllowed)
	})
}

// A page that a redirect led to is a page: its files count too.
func TestFilesOfRedirectedPage(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/")})
	if _, err := redirect(t, l, "https://a.example/", "https://b.example/page"); err != nil {
		t.Fatal(err)
	}
	r := Request{Client: "c", URL: mustParse("https://b.example/page"), Method: "GET", Document: true}
	a, err := l.Check(r)
	if err != nil {
		t.Fatal(err)
	}
	w := l.ObserveHTML(r, a, "br")
	if w == nil {
		t.Fatal("nothing to learn")
	}
	_, _ = io.WriteString(w, br(`<a href="x.pdf">`))
	_ = w.Close()
	wantCheck(t, l, "https://b.example/x.pdf", "")
	if n, err := w.Write([]byte("more")); n != 4 || err != nil {
		t.Error("a write after the end", n, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestFilesNeedTheGrant(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/"), Grants: []string{"redirects"}}, ClientConfig{Name: "open", Open: true})
	r := Request{Client: "c", URL: mustParse("https://a.example/"), Method: "GET"}
	for _, client := range []string{"c", "open", "nobody"} {
		r.Client = client
		if w := l.ObserveHTML(r, Admission{Listed: true}, ""); w != nil {
			t.Error(client)
		}
	}
}

func BenchmarkLinks(b *testing.B) {
	var page strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&page, `<li class="item"><a href="/news/%d.html">Some words about %d</a> and a <b>bit</b> more text, which is what pages are made of</li>`, i, i)
	}
	l := newList(b, nil, ClientConfig{Name: "c", Sites: sites("https://a.example/")})
	r := Request{Client: "c", URL: mustParse("https://a.example/"), Method: "GET"}
	for name, body := range map[string]string{"": page.String(), "gzip": gz(page.String()), "br": br(page.String()), "zstd": zs(page.String())} {
		b.Run("coding="+name, func(b *testing.B) {
			b.SetBytes(int64(page.Len()))
			b.ReportAllocs()
			for b.Loop() {
				w := l.ObserveHTML(r, Admission{Listed: true}, name)
				_, _ = io.WriteString(w, body)
				_ = w.Close()
			}
		})
	}
}
