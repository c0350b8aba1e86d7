package allowlist

import (
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func FuzzHost(f *testing.F) {
	for _, h := range []string{"a.example", "*.a.example", "Bücher.example.", "faß.example", "１２７.0.0.1", "[::FFFF:1.2.3.4]", "[2001:DB8::1]", "0x7f.1", "a_b.example", "-", "*", "*.com",
		"xn--a.example", "a..b", strings.Repeat("a", 64) + ".example", "例え.テスト", "a\u200db.example", "[::1%25lo]"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		h, err := hostPattern(raw)
		if err != nil {
			return
		}
		again, err := hostPattern(h)
		if err != nil || again != h {
			t.Fatalf("%q became %q, and that %q, %v", raw, h, again, err)
		}
		name := strings.TrimPrefix(h, "*.")
		if !isASCII(h) || strings.ToLower(h) != h || strings.HasSuffix(h, ".") || strings.ContainsAny(name, "*/@%? \\") {
			t.Fatalf("%q became %q", raw, h)
		}
		if !strings.HasPrefix(h, "*.") {
			u, err := url.Parse("http://" + h + "/")
			if err != nil || u.Host != h {
				t.Fatalf("%q cannot be the host of a URL: %v", h, err)
			}
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, e := range []string{"https://a.example/", "http://A.example:80/x/../y", "https://*.a.example:8443/docs", "https://[::1]:8080/", "https://bücher.example/é%2f/", "https://a.example/?",
		"//a", "https://*a/", "https://a.example/%zz", "https://u@a.example/", "https://*.a.example", "http://a.example\\b/"} {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := parsePrefix(raw)
		if err != nil {
			return
		}
		if p.path == "" || p.path[0] != '/' || p.host == "" {
			t.Fatalf("%q: %+v", raw, p)
		}
		if p.wild {
			return
		}
		// The entry admits its own URL.
		c := ClientConfig{Name: "c", Sites: []Site{{URL: raw}}}
		s, err := compile(&c, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(escapeStray(raw))
		if err != nil {
			t.Fatal(err)
		}
		n, err := normalise(u)
		if err != nil {
			t.Fatal(err)
		}
		// (Not where its path can be read in several ways: then it is the canonical path alone that it admits.)
		if _, hard := canonicalPath(nil, n.EscapedPath()); hard {
			return
		}
		if got, _ := s.match(n); got != 1 {
			t.Fatalf("%q does not admit itself", raw)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, u := range []string{"https://a.example/docs/x", "http://a.example/docs/../x", "https://w.b.example/", "https://a.example/page?q=1", "https://A.EXAMPLE./robots.txt", "http://[::1]/", "x:y", "//", "https://a.example:0/", "https://%41.example/"} {
		f.Add(u, "image", "https://a.example/")
	}
	l, err := New(Config{DenyHosts: []string{"closed.example", "*.closed.example"}, Clients: []ClientConfig{{Name: "c", Grants: []string{"redirects", "files", "subresources"}, Sites: []Site{
		{URL: "https://a.example/docs/"}, {URL: "https://*.b.example/"}, {Pages: []string{"https://a.example/page?q=1"}}}}}}, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw, dest, referer string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		r := Request{Client: "c", URL: u, Method: "GET", Dest: dest}
		if ref, err := url.Parse(referer); err == nil {
			r.Referer = ref
		}
		a, err := l.Check(r)
		d, denied := AsDenied(err)
		switch {
		case err != nil && (!denied || d.Class == "" || d.Hint == ""):
			t.Fatalf("%q: %v", raw, err)
		case err == nil && a.Entry == "":
			t.Fatalf("%q: admitted by nothing", raw)
		case err == nil:
			h, herr := normalise(u)
			if herr != nil || strings.HasSuffix("."+hostOf(h), ".closed.example") {
				t.Fatalf("%q was admitted by %s", raw, a.Entry)
			}
			l.ObserveRedirect(r, a, u)
		}
		l.ObserveRedirect(r, Admission{Listed: true}, r.Referer)
	})
}

// wellFormed tells whether encoding/xml takes a document as it is, without the parts of XML that a sitemap has no use for.
func wellFormed(doc string) bool {
	if strings.Contains(doc, "<!") && !strings.Contains(doc, "<!--") && !strings.Contains(doc, "<![CDATA[") || strings.Contains(doc, "<!D") {
		return false
	}
	d := xml.NewDecoder(strings.NewReader(doc))
	d.CharsetReader = charset
	for {
		_, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

func FuzzSitemap(f *testing.F) {
	for _, s := range []string{urlset("https://a.example/1", "https://a.example/?a=1&amp;b=&#x32;"), index("https://a.example/s.xml"), "https://a.example/1\nhttps://a.example/2", gz(urlset("https://a.example/1")),
		`<rss><channel><item><link>https://a.example/1</link><pubDate>x</pubDate></item></channel></rss>`, `<feed><entry><link rel='alternate' href='https://a.example/1'/></entry></feed>`,
		"<urlset><!-- <url> --><url><loc><![CDATA[https://a.example/1]]></loc><image:loc>x</image:loc></url></urlset>", `<!DOCTYPE x [<!ENTITY e "y">]><urlset><url><loc>&e;</loc></url></urlset>`,
		"<?xml version='1.0' encoding='ISO-8859-1'?><urlset><url><loc>\xe9</loc></url></urlset>", "<urlset", "<", "<urlset><url><loc>a</loc><loc>b</loc></url></urlset>", "\xef\xbb\xbf<urlset/>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var got []sitemapEntry
		_, err := readSitemap(strings.NewReader(body), func(e sitemapEntry) { got = append(got, e) })
		for _, e := range got {
			if len(e.loc) > 3*maxLocBytes || e.loc == "" {
				t.Fatalf("entry of %d octets", len(e.loc))
			}
			parseLastmod(e.lastmod)
		}
		if len(body) == 0 || body[0] != '<' || !wellFormed(body) {
			return
		}
		var want []sitemapEntry
		_, slowErr := slowXML(newReader(body), func(e sitemapEntry) bool { want = append(want, e); return true })
		for _, list := range [][]sitemapEntry{got, want} {
			for i := range list { // encoding/xml makes one line end of two
				list[i].loc = strings.TrimSpace(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(list[i].loc))
				list[i].lastmod = strings.TrimSpace(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(list[i].lastmod))
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sitemapEntry{})); diff != "" || (err != nil) != (slowErr != nil) {
			t.Fatalf("errors %v, %v; %s", err, slowErr, diff)
		}
	})
}

func FuzzLinks(f *testing.F) {
	f.Add([]byte(`<base href="/x/"><a href="y.pdf">`), "", 3)
	f.Add([]byte(gz(`<a href=x.pdf>`)), "gzip", 5)
	f.Add([]byte(br(`<a href=x.pdf>`)), "br", 1)
	f.Add([]byte(zs(`<a href=x.pdf>`)), "zstd", 100)
	f.Add([]byte(`<script><a href=x.pdf></script><!--<a href=y.pdf>`), "identity", 2)
	l, err := New(Config{Clients: []ClientConfig{{Name: "c", Sites: sites("https://a.example/")}}}, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, page []byte, coding string, piece int) {
		w := l.ObserveHTML(Request{Client: "c", URL: mustParse("https://a.example/"), Method: "GET"}, Admission{Listed: true}, coding)
		piece = max(piece, 1)
		for len(page) > 0 {
			n := min(piece, len(page))
			if m, err := w.Write(page[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			page = page[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzMayBeFile(f *testing.F) {
	for _, s := range []string{"x.pdf", "x.%70df", "/a.b/c.html", "x.pdf?y#z", " x.CSV\n", "http://a.example/x.gz", "a:b.pdf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, href string) {
		ref, err := url.Parse(escapeStray(strings.Trim(href, "\t\n\f\r ")))
		if err != nil || ref.Opaque != "" {
			return
		}
		u := mustParse("https://a.example/").ResolveReference(ref)
		if isFile(u) && !mayBeFile([]byte(href)) {
			t.Fatalf("%q is a file", href)
		}
	})
}
