package allowlist

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// problems flattens a joined error into key and text.
func problems(err error) (out []string) {
	if err == nil {
		return nil
	}
	var list []error
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		list = j.Unwrap()
	} else {
		list = []error{err}
	}
	for _, e := range list {
		var k interface{ Key() string }
		if !errors.As(e, &k) {
			out = append(out, "(no key) "+e.Error())
			continue
		}
		out = append(out, k.Key()+": "+e.Error())
	}
	return out
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		c    Config
		want []string
	}{
		{"empty", Defaults(), nil},
		{"good", Config{DenyHosts: []string{"*.tracker.example", "bücher.example"}, Clients: []ClientConfig{{Name: "a", Sites: []Site{
			{URL: "https://a.example"}, {URL: "https://*.b.example/docs/"}, {Sitemap: "https://c.example/sitemap.xml"},
			{Pages: []string{"https://d.example/x?y#z"}}}, Grants: []string{"redirects-same-site", "files", "subresources"}, SubresourcesPost: true}}}, nil},
		{"sites", Config{Clients: []ClientConfig{{Name: "a", Sites: []Site{
			{URL: "a.example"}, {URL: "https://*.com/"}, {URL: "https://*/"}, {URL: "https://x*.a.example/"}, {URL: "https://a.*.example/"},
			{URL: "https://a.example/?q"}, {URL: "https://a.example/#f"}, {URL: "ftp://a.example/"}, {URL: "https://u:p@a.example/"},
			{URL: "https://a.example:99999/"}, {URL: "https://１２７.０.０.１/"}, {URL: "https://0x7f.1/"}, {URL: "https://a.example/docs/*"},
			{}, {URL: "https://a.example/", Sitemap: "https://a.example/s.xml"}, {Pages: []string{}}, {Pages: []string{"https://*.a.example/x", "/y"}},
			{Sitemap: "sitemap.xml"}, {URL: "https://*.github.io/"}, {URL: "https://a..example/"}, {URL: " https://a.example/"},
		}}}}, []string{
			`clients[0].sites[0]: "a.example" has no scheme: write https://a.example`,
			`clients[0].sites[1]: "*.com" covers a whole public suffix, the sites of many owners: name the domains`,
			`clients[0].sites[2]: "*" is every host: name the hosts`,
			`clients[0].sites[3]: "x*.a.example": a wildcard is one "*." at the front`,
			`clients[0].sites[4]: "a.*.example": a wildcard is one "*." at the front`,
			`clients[0].sites[5]: "https://a.example/?q" has a query: a site is a host and a path, list single URLs under pages`,
			`clients[0].sites[6]: "https://a.example/#f" has a fragment, which is never sent`,
			`clients[0].sites[7]: "ftp://a.example/" is not an http or https URL`,
			`clients[0].sites[8]: "https://u:xxxxx@a.example/" carries a user name`,
			`clients[0].sites[9]: port 99999 of "https://a.example:99999/" is not between 1 and 65535`,
			`clients[0].sites[10]: "１２７.０.０.１" is not a canonical IPv4 address: write it as four decimal numbers`,
			`clients[0].sites[11]: "0x7f.1" is not a canonical IPv4 address: write it as four decimal numbers`,
			`clients[0].sites[12]: "https://a.example/docs/*": a path is a plain prefix, * and $ have no meaning in it`,
			`clients[0].sites[13]: the entry is empty: write a URL, {pages: [...]} or {sitemap: URL}`,
			`clients[0].sites[14]: "sitemap https://a.example/s.xml": an entry is a URL, pages or a sitemap, not several of them`,
			`clients[0].sites[15].pages: the list of pages is empty`,
			`clients[0].sites[16].pages[0]: "https://*.a.example/x": a wildcard stands only in the host of a whole site`,
			`clients[0].sites[16].pages[1]: "/y" has no scheme: write https://y`,
			`clients[0].sites[17].sitemap: "sitemap.xml" has no scheme: write https://sitemap.xml`,
			`clients[0].sites[18]: "*.github.io" covers a whole public suffix, the sites of many owners: name the domains`,
			`clients[0].sites[19]: "a..example" is not a host name: each label has 1 to 63 octets`,
			`clients[0].sites[20]: " https://a.example/" has blanks at an end`,
		}},
		{"the rest", Config{DenyHosts: []string{"*", "https://x.example/", "ok.example"}, Clients: []ClientConfig{
			{Name: "a", Grants: []string{"redirects", "redirects-same-site", "links", "redirects"}, SubresourcesPost: true, DenyHosts: []string{"*x.example"}},
			{Name: "a"}}}, []string{
			`deny_hosts[0]: "*" is every host: name the hosts`,
			`deny_hosts[1]: "https://x.example/" is not a host: write the bare name, such as example.com`,
			`clients[0].grants[2]: "links" is not one of redirects, redirects-same-site, files, subresources`,
			`clients[0].grants[3]: "redirects" stands there twice`,
			`clients[0].grants: redirects and redirects-same-site contradict each other: keep one`,
			`clients[0].subresources_post: has no effect without subresources in grants`,
			`clients[0].deny_hosts[0]: "*x.example": a wildcard is one "*." at the front`,
			`clients[1].name: client "a" is clients[0] already`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problems(c.c.Validate())); diff != "" {
				t.Error(diff)
			}
			if _, err := New(c.c, refusing{}, nil); (err != nil) != (c.want != nil) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c := Config{DenyHosts: []string{"closed.example", "*.closed.example"}, Clients: []ClientConfig{{
		Name: "a",
		Sites: []Site{
			0:  {URL: "https://a.example/"},
			1:  {URL: "http://A.example"},
			2:  {URL: "https://a.example/docs/"},
			3:  {Pages: []string{"https://a.example/x", "https://b.example/1", "https://w.example/"}},
			4:  {URL: "https://*.w.example/"},
			5:  {URL: "https://x.y.w.example/"},
			6:  {URL: "https://*.y.w.example/p/"},
			7:  {URL: "https://closed.example/"},
			8:  {URL: "https://*.closed.example/"},
			9:  {URL: "https://mine.example/"},
			10: {URL: "http://intranet/"},
			11: {URL: "http://files.internal/"},
			12: {URL: "https://p.example/docs"},
			13: {URL: "https://p.example/docs/more/"},
			14: {URL: "https://p.example/docs2"},
			15: {Sitemap: "https://a.example/sitemap.xml"},
			16: {Sitemap: "https://s.example/sitemap.xml"},
			17: {Sitemap: "https://s.example/sitemap.xml"},
			18: {URL: "http://q.example:8080/"},
			19: {URL: "https://q.example:8080/"},
			20: {Pages: []string{"https://b.example/2"}},
		},
		DenyHosts: []string{"mine.example"},
	}, {Name: "b", Grants: []string{"files"}}}}
	want := []string{
		`client a: sites[1] "http://A.example" is covered by sites[0] "https://a.example/"`,
		`client a: sites[2] "https://a.example/docs/" is covered by sites[0] "https://a.example/"`,
		`client a: sites[3].pages[0] "https://a.example/x" is covered by sites[0] "https://a.example/"`,
		`client a: sites[5] "https://x.y.w.example/" is covered by sites[4] "https://*.w.example/"`,
		`client a: sites[6] "https://*.y.w.example/p/" is covered by sites[4] "https://*.w.example/"`,
		`client a: sites[7] "https://closed.example/" can never be visited: egress.deny_hosts (closed.example) closes the host`,
		`client a: sites[8] "https://*.closed.example/" can never be visited: egress.deny_hosts (*.closed.example) closes all hosts below it`,
		`client a: sites[9] "https://mine.example/" can never be visited: deny_hosts of client a (mine.example) closes the host`,
		`client a: sites[10] "http://intranet/" has a host of a single label, which is reached only if egress.hosts names it`,
		`client a: sites[11] "http://files.internal/" has a special-use host, which is reached only if egress.hosts names it`,
		`client a: sites[13] "https://p.example/docs/more/" is covered by sites[12] "https://p.example/docs"`,
		`client a: sites[15] "sitemap https://a.example/sitemap.xml" is covered by sites[0] "https://a.example/"`,
		`client a: sites[17] "sitemap https://s.example/sitemap.xml" is covered by sites[16] "sitemap https://s.example/sitemap.xml"`,
		`client b: grants have no effect without sites`,
	}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Error(diff)
	}
	var many []Site
	for range 150 {
		many = append(many, Site{URL: "https://a.example/"})
	}
	w := ClientConfig{Name: "a", Sites: many}.Warnings()
	if len(w) != maxWarnings+1 || w[maxWarnings] != "and 49 more like these" {
		t.Errorf("got %d warnings, the last %q", len(w), w[len(w)-1])
	}
}

func TestSiteText(t *testing.T) {
	var s Site
	if err := s.UnmarshalText([]byte("https://a.example/")); err != nil || s.String() != "https://a.example/" {
		t.Fatal(s, err)
	}
	for want, s := range map[string]Site{
		"sitemap https://a.example/s.xml": {Sitemap: "https://a.example/s.xml"},
		"page https://a.example/1":        {Pages: []string{"https://a.example/1"}},
		"list of 2 pages":                 {Pages: []string{"https://a.example/1", "https://a.example/2"}},
	} {
		if s.String() != want {
			t.Errorf("got %q, want %q", s, want)
		}
	}
}

// hostCase is one case of testdata/hosts.json; the kinds url and connect are the address guard's, and show here only
// that a host which is refused there is not found here.
type hostCase struct{ ID, Kind, Input, Want, Code, Host string }

func TestHostVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/hosts.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []hostCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, c := range file.Cases {
		if c.Kind != "config" {
			continue
		}
		seen++
		got, err := hostPattern(c.Input)
		if (err == nil) != (c.Want == "ok") || err == nil && got != c.Host {
			t.Errorf("%s %q: got %q, %v; want %s %q", c.ID, c.Input, got, err, c.Want, c.Host)
		}
	}
	if seen == 0 {
		t.Fatal("no case of kind config")
	}
	// A whole-site entry for each good host of a URL is found by that URL, in every spelling that the cases have.
	for _, c := range file.Cases {
		if c.Kind != "url" || c.Want != "ok" || strings.Contains(c.Input, "\\") {
			continue
		}
		u := mustURL(t, c.Input)
		u.Scheme = strings.ToLower(u.Scheme)
		n, err := normalise(u)
		if err != nil {
			t.Errorf("%s %q: %v", c.ID, c.Input, err)
			continue
		}
		if host := strings.Trim(hostOf(n), "[]"); host != c.Host {
			t.Errorf("%s %q: host %q, want %q", c.ID, c.Input, host, c.Host)
		}
		l := newList(t, nil, ClientConfig{Name: "c", Sites: sites(n.Scheme + "://" + n.Host + "/")})
		if _, err := l.Check(Request{Client: "c", URL: u}); err != nil {
			t.Errorf("%s %q: %v", c.ID, c.Input, err)
		}
	}
}

func TestDefaultGrants(t *testing.T) {
	if !slices.Equal(DefaultGrants(), []string{"redirects", "files"}) {
		t.Fatal(DefaultGrants())
	}
	l := newList(t, nil, ClientConfig{Name: "c"}, ClientConfig{Name: "none", Grants: []string{}})
	st := l.state.Load()
	if s := st.clients["c"]; !s.redirects || !s.files || s.subresources {
		t.Error("absent grants are not redirects and files")
	}
	if s := st.clients["none"]; s.redirects || s.files || s.subresources {
		t.Error("an empty list of grants is not none")
	}
}
