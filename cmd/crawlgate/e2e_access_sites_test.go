package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// gzipped writes a body as a site that compresses does.
func gzipped(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
}

// siteCase is a URL, whether it may be visited, and words of the entry that says so.
type siteCase struct {
	url   string
	ok    bool
	entry string
	says  string
}

// TestSites: each kind of entry opens what it names and nothing beside; `check` says the same before and after.
func TestSites(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, plainHTTP, nil, "site.test", "sub.site.test", "deep.sub.site.test", "other.test", "closed.test", "shut.site.test", "broken.test")
	o.handle = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sitemap.xml.gz":
			w.Header().Set("Content-Type", "application/gzip")
			z := gzip.NewWriter(w)
			fmt.Fprintf(z, `<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>%s</loc></url><url><loc>%s</loc></url></urlset>`, o.url("/listed"), o.url("/listed?a=1&amp;b=2"))
			_ = z.Close()
		case "/broken.xml":
			http.Error(w, "no", http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, "page "+r.RequestURI)
		}
	}
	client := func(name, sites, more string) string {
		return fmt.Sprintf(`{name: %s, secret_hash: %q, profiles: [crawl], grants: [], sites: [%s]%s}`, name, accessHash, sites, more)
	}
	g := startGate(t, gateConfig{origins: []*origin{o}, profiles: `[{name: crawl, ` + fast + `}]`, egress: []string{`deny_hosts: [closed.test]`},
		clients: "[" + strings.Join([]string{
			client("whole", quoted([]string{o.url("/"), o.at("closed.test", "/"), strings.Replace(o.at("sub.site.test", "/"), "://sub", "://*", 1)}), `, deny_hosts: [shut.site.test]`),
			client("path", quoted([]string{o.url("/docs/")}), ""),
			client("pages", fmt.Sprintf("{pages: [%q, %q]}", o.url("/a?x=1"), o.url("/b")), ""),
			client("map", fmt.Sprintf("{sitemap: %q}", o.url("/sitemap.xml.gz")), ""),
			client("badmap", fmt.Sprintf("{sitemap: %q}", o.at("broken.test", "/broken.xml")), ""),
			client("nothing", "", ""),
		}, ", ") + "]"})
	for name, cases := range map[string][]siteCase{
		"whole": {
			{o.url("/"), true, o.url("/"), ""}, {o.url("/deep/er?q=1"), true, o.url("/"), ""}, {o.at("sub.site.test", "/x"), true, "*.site.test", ""},
			{o.at("deep.sub.site.test", "/x"), true, "*.site.test", ""}, {o.at("other.test", "/"), false, "", "other.test is not among the sites of client whole"},
			{o.at("closed.test", "/"), false, "", "closed"}, {o.at("shut.site.test", "/"), false, "", "shut.site.test"},
		},
		"path": {
			{o.url("/docs/"), true, "/docs/", ""}, {o.url("/docs/a/b?c=d"), true, "/docs/", ""}, {o.url("/docs2"), false, "/docs/", ""}, {o.url("/"), false, "/docs/", "parts of site.test"},
			{o.url("/docs/../x"), false, "", ""}, {o.url("/docs/%2e%2e/x"), false, "", ""}, {o.url("/docs/..%2fx"), false, "", ""}, {o.url("/docs/a%2fb"), true, "/docs/", ""},
		},
		"pages": {
			{o.url("/a?x=1"), true, "2 pages", ""}, {o.url("/b"), true, "2 pages", ""}, {o.url("/a"), false, "2 pages", ""}, {o.url("/a?x=2"), false, "2 pages", ""}, {o.url("/b/c"), false, "2 pages", ""},
			{o.at("other.test", "/b"), false, "", "other.test"},
		},
		"map": {
			{o.url("/listed"), true, "sitemap", ""}, {o.url("/listed?a=1&b=2"), true, "sitemap", ""}, {o.url("/sitemap.xml.gz"), true, "sitemap", ""},
			{o.url("/unlisted"), false, "sitemap", "The sitemap does not list this URL"}, {o.at("other.test", "/listed"), false, "", ""},
		},
		"badmap":  {{o.at("broken.test", "/x"), false, "sitemap", "could not be read"}, {o.at("other.test", "/x"), false, "", ""}},
		"nothing": {{o.url("/"), false, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"check", "--json", "--client", name}
			for _, c := range cases {
				a := g.get(t, name, c.url, "--path-as-is")
				if c.ok {
					passed(t, c.url, a, 200)
				} else {
					refusedAs(t, c.url, a, 403, "site-denied", c.says)
				}
				args = append(args, c.url)
			}
			r := g.cli(t, args...)
			dec := json.NewDecoder(strings.NewReader(r.out))
			for _, c := range cases {
				var e struct {
					Allowed               bool
					Reason, Entry, Detail string
				}
				if err := dec.Decode(&e); err != nil {
					t.Fatalf("check: %v: %+v", err, r)
				}
				if e.Allowed != c.ok || !c.ok && (e.Reason != "site-denied" || !strings.Contains(e.Detail, c.says)) || !strings.Contains(e.Entry, c.entry) {
					t.Errorf("check %s: %+v", c.url, e)
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, a := range o.arrivals() {
			if strings.HasPrefix(a.Host, "closed.") || strings.HasPrefix(a.Host, "shut.") || strings.HasPrefix(a.Host, "other.") {
				t.Errorf("%s heard of %s", a.Host, a.URI)
			}
		}
	})
}

// TestGrants: what a redirect, a link and an open page admit beside the sites, and that without them nothing is.
func TestGrants(t *testing.T) {
	t.Parallel()
	var o, off *origin
	off = newOrigin(t, tlsH2, func(o *origin) { o.robots = "User-agent: *\nDisallow: /private/\n" }, "off.test", "cdn.test")
	o = newOrigin(t, tlsH2, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/moved":
				http.Redirect(w, r, off.url("/target"), http.StatusFound)
			case "/moved-lan":
				http.Redirect(w, r, "https://lan.test/", http.StatusFound)
			case "/moved-private":
				http.Redirect(w, r, off.url("/private/x"), http.StatusFound)
			case "/links":
				gzipped(w, "text/html; charset=utf-8", `<!doctype html><a href="`+off.url("/report.pdf")+`">report</a> <a href="`+off.url("/page.html")+`">page</a> <a href=//lan.test/x.pdf>x</a>`)
			default:
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = io.WriteString(w, "<!doctype html><title>page</title>")
			}
		}
	}, "site.test")
	client := func(name, grants, more string) string {
		return fmt.Sprintf(`{name: %s, secret_hash: %q, profiles: [crawl], grants: [%s], sites: [%q]%s}`, name, accessHash, grants, o.url("/"), more)
	}
	g := startGate(t, gateConfig{origins: []*origin{o, off}, hosts: []string{"10.1.2.3 lan.test"}, profiles: `[{name: crawl, ` + fast + `, limits: {methods: [GET, HEAD, POST], request_body: 1KiB}}]`,
		clients: "[" + strings.Join([]string{client("plain", "redirects, files", ""), client("none", "", ""), client("browser", "redirects, files, subresources", ""),
			client("poster", "subresources", ", subresources_post: true"), client("kept", "redirects, files, subresources", ", deny_hosts: [off.test, cdn.test]")}, ", ") + "]"})

	// Redirects.
	refusedAs(t, "before", g.get(t, "plain", off.url("/target")), 403, "site-denied", "off.test")
	for _, user := range []string{"plain", "none", "kept"} {
		passed(t, user, g.get(t, user, o.url("/moved")), 302)
	}
	passed(t, "target", g.get(t, "plain", off.url("/target")), 200)
	refusedAs(t, "another URL of it", g.get(t, "plain", off.url("/other")), 403, "site-denied")
	refusedAs(t, "without the grant", g.get(t, "none", off.url("/target")), 403, "site-denied")
	refusedAs(t, "a closed host", g.get(t, "kept", off.url("/target")), 403, "site-denied")
	passed(t, "to a private address", g.get(t, "plain", o.url("/moved-lan")), 302)
	refusedAs(t, "a private address", g.get(t, "plain", "https://lan.test/"), 403, "address-denied")
	passed(t, "to a forbidden page", g.get(t, "plain", o.url("/moved-private")), 302)
	refusedAs(t, "a forbidden page", g.get(t, "plain", off.url("/private/x")), 403, "robots-disallow")

	// Files, learned from a page that passed compressed.
	refusedAs(t, "before", g.get(t, "plain", off.url("/report.pdf")), 403, "site-denied")
	for _, user := range []string{"plain", "none"} {
		passed(t, user, g.get(t, user, o.url("/links"), "--compressed"), 200)
	}
	passed(t, "file", g.get(t, "plain", off.url("/report.pdf")), 200)
	refusedAs(t, "a page is no file", g.get(t, "plain", off.url("/page.html")), 403, "site-denied")
	refusedAs(t, "POST", g.get(t, "plain", off.url("/report.pdf"), "-d", "x"), 403, "site-denied")
	refusedAs(t, "without the grant", g.get(t, "none", off.url("/report.pdf")), 403, "site-denied")
	refusedAs(t, "a private address", g.get(t, "plain", "https://lan.test/x.pdf"), 403, "address-denied")

	// A page's files on other hosts, only while the page is open.
	image := []string{"-H", "Sec-Fetch-Dest: image", "-H", "Sec-Fetch-Mode: no-cors", "-H", "Sec-Fetch-Site: cross-site", "-H", "Referer: " + o.url("/")}
	document := []string{"-H", "Sec-Fetch-Dest: document", "-H", "Sec-Fetch-Mode: navigate", "-H", "Sec-Fetch-Site: cross-site", "-H", "Sec-Fetch-User: ?1", "-H", "Referer: " + o.url("/")}
	script := append(slices.Clone(image), "-d", "x")
	refusedAs(t, "no page is open", g.get(t, "browser", off.at("cdn.test", "/pic.png"), image...), 403, "site-denied", "a page that was opened")
	for _, user := range []string{"browser", "plain", "poster", "kept"} {
		passed(t, user, g.get(t, user, o.url("/page")), 200)
	}
	passed(t, "picture", g.get(t, "browser", off.at("cdn.test", "/pic.png"), image...), 200)
	refusedAs(t, "document", g.get(t, "browser", off.at("cdn.test", "/doc"), document...), 403, "site-denied", "documents")
	refusedAs(t, "another page's", g.get(t, "browser", off.at("cdn.test", "/pic2.png"), append(slices.Clone(image[:6]), "-H", "Referer: https://else.test/")...), 403, "site-denied")
	refusedAs(t, "POST", g.get(t, "browser", off.at("cdn.test", "/post"), script...), 403, "site-denied", "subresources_post")
	passed(t, "POST", g.get(t, "poster", off.at("cdn.test", "/posted"), script...), 200)
	refusedAs(t, "without the grant", g.get(t, "plain", off.at("cdn.test", "/pic3.png"), image...), 403, "site-denied", "subresources")
	refusedAs(t, "a closed host", g.get(t, "kept", off.at("cdn.test", "/pic4.png"), image...), 403, "site-denied")
	refusedAs(t, "a private address", g.get(t, "browser", "https://lan.test/pic.png", image...), 403, "address-denied")

	if got := strings.Join(uris(off.pages()), " "); got != "GET /target GET /report.pdf GET /pic.png POST /posted" {
		t.Errorf("arrived: %s", got)
	}
	grants := map[string]string{}
	for _, e := range g.requests(t) {
		if e.Decision == "forwarded" && (e.Host == "off.test" || e.Host == "cdn.test") {
			grants[strings.TrimPrefix(strings.TrimPrefix(e.URL, off.url("")), off.at("cdn.test", ""))] = e.Grant
		}
	}
	if fmt.Sprint(grants) != "map[/pic.png:subresources /posted:subresources /report.pdf:files /target:redirects]" {
		t.Errorf("recorded grants: %v", grants)
	}
	// check tells of the grants that hold now.
	for url, want := range map[string]string{off.url("/target"): "grant redirects", off.url("/report.pdf"): "grant files", off.url("/never"): "refused   site-denied"} {
		if r := g.cli(t, "check", "--client", "plain", url); !strings.Contains(r.out, want) {
			t.Errorf("check %s does not say %q: %+v", url, want, r)
		}
	}
}

// TestPageWindow: a real browser's page loads a file of another host while it is open, where the client may.
func TestPageWindow(t *testing.T) {
	t.Parallel()
	cdn := newOrigin(t, tlsH2, func(o *origin) { o.handle = site }, "cdn.test")
	o := newOrigin(t, tlsH2, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, `<!doctype html><title>-</title><p id=a>-</p><p id=b>-</p><img src="%s" onload="a.textContent='loaded'" onerror="a.textContent='failed'">
<iframe src="%s" onload="b.textContent='frame is there'"></iframe>`, cdn.url(r.URL.Path+"/pic.svg"), cdn.url("/frame"))
		}
	}, "site.test")
	cdn.handle = func(w http.ResponseWriter, r *http.Request) { r.URL.Path = "/pic.svg"; site(w, r) }
	with, without := freePort(t), freePort(t)
	g := startGate(t, gateConfig{origins: []*origin{o, cdn}, profiles: `[{name: crawl, ` + fast + `}]`,
		clients: fmt.Sprintf(`[{name: with, listen: "127.0.0.1:%d", profiles: [crawl], grants: [subresources], sites: [%q]}, {name: without, listen: "127.0.0.1:%d", profiles: [crawl], sites: [%q]}]`, with, o.url("/"), without, o.url("/"))})
	for _, c := range []struct {
		port       int
		path, want string
	}{{with, "/with", "loaded"}, {without, "/without", "failed"}} {
		by := *g
		by.proxy = "http://127.0.0.1:" + itoa(c.port)
		if dom := chromium(t, &by, o.url(c.path)); !strings.Contains(dom, `<p id="a">`+c.want+`</p>`) {
			t.Errorf("%s: the picture is not %s:\n%s", c.path, c.want, dom)
		}
	}
	if got := strings.Join(uris(cdn.pages()), " "); got != "GET /with/pic.svg" {
		t.Errorf("the other host was asked for %s", got)
	}
	said := map[string]string{}
	for _, e := range g.requests(t) {
		if e.Host == "cdn.test" {
			said[e.Client.Name+strings.TrimPrefix(e.URL, cdn.url(""))] = strings.TrimSpace(e.Reason + " " + e.Class + " " + e.Grant)
		}
	}
	for what, want := range map[string]string{"with/with/pic.svg": "ok not_consulted subresources", "with/frame": "site-denied page_not_open", "without/without/pic.svg": "site-denied site_not_allowed"} {
		if said[what] != want {
			t.Errorf("%s: %q, not %q", what, said[what], want)
		}
	}
}
