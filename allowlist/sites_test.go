package allowlist

import (
	"net/url"
	"testing"
)

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// mustParse is for URLs that the test itself wrote.
func mustParse(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func newList(t testing.TB, f SitemapFetcher, clients ...ClientConfig) *List {
	t.Helper()
	l, err := New(Config{Clients: clients}, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func sites(urls ...string) []Site {
	var s []Site
	for _, u := range urls {
		s = append(s, Site{URL: u})
	}
	return s
}

func TestSites(t *testing.T) {
	for _, c := range []struct {
		name   string
		sites  []Site
		url    string
		listed bool
		class  string
	}{
		{"whole site", sites("https://a.example/"), "https://a.example/x?y=1", true, ""},
		{"no trailing slash", sites("https://a.example"), "https://a.example/x", true, ""},
		{"http for https", sites("https://a.example/"), "http://a.example/", true, ""},
		{"https for http", sites("http://a.example/"), "https://a.example/", true, ""},
		{"other host", sites("https://a.example/"), "https://b.example/", false, SiteNotAllowed},
		{"subdomain", sites("https://a.example/"), "https://www.a.example/", false, SiteNotAllowed},
		{"suffix trick", sites("https://a.example/"), "https://nota.example/", false, SiteNotAllowed},
		{"port is another site", sites("https://a.example/"), "https://a.example:8443/", false, SiteNotAllowed},
		{"port named", sites("https://a.example:8443/"), "https://a.example:8443/x", true, ""},
		{"port named, other scheme", sites("https://a.example:8443/"), "http://a.example:8443/x", false, SiteNotAllowed},
		{"default port in the entry", sites("https://a.example:443/"), "https://a.example/x", true, ""},
		{"http on 443 is no default", sites("https://a.example/"), "http://a.example:443/", false, SiteNotAllowed},
		{"upper case entry", sites("HTTPS://A.Example/"), "https://a.example/", true, ""},
		{"dotted entry", sites("https://a.example./"), "https://a.example/", true, ""},
		{"unicode entry", sites("https://bücher.example/"), "https://xn--bcher-kva.example/", true, ""},
		{"sharp s is kept", sites("https://faß.example/"), "https://xn--fa-hia.example/", true, ""},
		{"upper case request", sites("https://a.example/"), "https://A.EXAMPLE/", true, ""},
		{"dotted request", sites("https://a.example/"), "https://a.example./", true, ""},
		{"dotted request with port", sites("https://a.example/"), "https://a.example.:443/", true, ""},
		{"unicode request", sites("https://xn--bcher-kva.example/"), "https://bücher.example/", true, ""},
		{"IPv6", sites("http://[2606:4700:0:0::6810:84E5]/"), "http://[2606:4700::6810:84e5]/", true, ""},
		{"mapped IPv4", sites("http://[::ffff:93.184.215.14]/"), "http://93.184.215.14/", true, ""},

		{"wildcard", sites("https://*.a.example/"), "https://x.a.example/p", true, ""},
		{"wildcard, deeper", sites("https://*.a.example/"), "http://x.y.a.example/p", true, ""},
		{"wildcard, not the name", sites("https://*.a.example/"), "https://a.example/", false, SiteNotAllowed},
		{"wildcard, not a suffix", sites("https://*.a.example/"), "https://xa.example/", false, SiteNotAllowed},
		{"wildcard with a path", sites("https://*.a.example/docs"), "https://x.a.example/docs/1", true, ""},
		{"wildcard with a path, outside", sites("https://*.a.example/docs"), "https://x.a.example/", false, PathNotAllowed},
		{"wildcard with a port", sites("https://*.a.example:8443/"), "https://x.a.example:8443/", true, ""},
		{"wildcard with a port, default", sites("https://*.a.example:8443/"), "https://x.a.example/", false, SiteNotAllowed},
		{"wildcard upper case", sites("https://*.A.Example./"), "https://x.a.example/", true, ""},

		{"prefix", sites("https://a.example/docs/"), "https://a.example/docs/x", true, ""},
		{"prefix itself", sites("https://a.example/docs/"), "https://a.example/docs/", true, ""},
		{"prefix without its slash", sites("https://a.example/docs/"), "https://a.example/docs", false, PathNotAllowed},
		{"prefix by segments", sites("https://a.example/docs"), "https://a.example/docs2", false, PathNotAllowed},
		{"prefix, exact", sites("https://a.example/docs"), "https://a.example/docs", true, ""},
		{"prefix, exact with query", sites("https://a.example/docs"), "https://a.example/docs?x", true, ""},
		{"prefix, below", sites("https://a.example/docs"), "https://a.example/docs/2", true, ""},
		{"case matters in paths", sites("https://a.example/docs/"), "https://a.example/Docs/", false, PathNotAllowed},
		{"dots out", sites("https://a.example/docs/"), "https://a.example/docs/../private", false, PathNotAllowed},
		{"dots in", sites("https://a.example/docs/"), "https://a.example/x/../docs/a", true, ""},
		{"escaped dots out", sites("https://a.example/docs/"), "https://a.example/docs/%2e%2e/private", false, PathNotAllowed},
		{"half-escaped dots out", sites("https://a.example/docs/"), "https://a.example/docs/.%2E/private", false, PathNotAllowed},
		{"dots and escaped slash", sites("https://a.example/docs/"), "https://a.example/docs/..%2fprivate", false, PathNotAllowed},
		{"dots and escaped backslash", sites("https://a.example/docs/"), "https://a.example/docs/..%5cprivate", false, PathNotAllowed},
		{"dots with a parameter", sites("https://a.example/docs/"), "https://a.example/docs/..;/private", false, PathNotAllowed},
		{"dots after two slashes", sites("https://a.example/docs/"), "https://a.example/docs//../private", false, PathNotAllowed},
		{"escaped slash is no separator", sites("https://a.example/docs/"), "https://a.example/docs%2fx", false, PathNotAllowed},
		{"escaped slash inside", sites("https://a.example/docs/"), "https://a.example/docs/a%2fb", true, ""},
		{"escaped slash in the entry", sites("https://a.example/a%2fb/"), "https://a.example/a%2Fb/c", true, ""},
		{"escaped slash in the entry is no slash", sites("https://a.example/a%2fb/"), "https://a.example/a/b/c", false, PathNotAllowed},
		{"unreserved escapes", sites("https://a.example/d%6fcs/"), "https://a.example/%64ocs/x", true, ""},
		{"lower-case escapes", sites("https://a.example/caf%c3%a9/"), "https://a.example/caf%C3%A9/x", true, ""},
		{"raw and escaped", sites("https://a.example/café/"), "https://a.example/caf%c3%a9/x", true, ""},
		{"well-known", sites("https://a.example/.well-known/"), "https://a.example/.well-known/x", true, ""},
		{"encoded twice", sites("https://a.example/docs/"), "https://a.example/docs/%252e%252e/x", true, ""},
		{"robots of a prefix", sites("https://a.example/docs/"), "https://a.example/robots.txt", true, ""},
		{"robots of another", sites("https://a.example/docs/"), "https://b.example/robots.txt", false, SiteNotAllowed},

		{"page", []Site{{Pages: []string{"https://a.example/p?x=1#frag"}}}, "https://a.example/p?x=1", true, ""},
		{"page, other query", []Site{{Pages: []string{"https://a.example/p?x=1"}}}, "https://a.example/p?x=2", false, PathNotAllowed},
		{"page, no query", []Site{{Pages: []string{"https://a.example/p?x=1"}}}, "https://a.example/p", false, PathNotAllowed},
		{"page, over http", []Site{{Pages: []string{"https://a.example/p"}}}, "http://a.example/p", true, ""},
		{"page, escapes", []Site{{Pages: []string{"https://a.example/%7Ep?q=%c3"}}}, "https://a.example/~p?q=%C3", true, ""},
		{"page, dots", []Site{{Pages: []string{"https://a.example/p"}}}, "https://a.example/x/../p", true, ""},
		{"page, robots", []Site{{Pages: []string{"https://a.example/p"}}}, "https://a.example/robots.txt", true, ""},
		{"page, below", []Site{{Pages: []string{"https://a.example/p"}}}, "https://a.example/p/q", false, PathNotAllowed},
		{"nothing", nil, "https://a.example/", false, SiteNotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newList(t, nil, ClientConfig{Name: "c", Sites: c.sites})
			a, err := l.Check(Request{Client: "c", URL: mustURL(t, c.url), Method: "GET"})
			if c.class == "" {
				if err != nil || a.Listed != c.listed || a.Entry == "" {
					t.Fatalf("got %+v, %v; want listed", a, err)
				}
				return
			}
			d, ok := AsDenied(err)
			if !ok || d.Class != c.class || d.Hint == "" {
				t.Fatalf("got %+v, %v; want %s", a, err, c.class)
			}
		})
	}
}
