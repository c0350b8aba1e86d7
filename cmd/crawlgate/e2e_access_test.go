package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

// Who may go where, end to end: credentials, networks, listeners, profiles, jobs, sites, grants, the identity lock,
// report-only mode, names that change their address, and our own ports.

// accessSecret is every client's secret here.
const accessSecret = "cg_the-secret-of-a-test-that-nothing-may-print"

var accessHash = func() string {
	sum := sha256.Sum256([]byte(accessSecret))
	return "sha256:" + hex.EncodeToString(sum[:])
}()

// fast is a profile that keeps no pace, for what is not about pace.
const fast = `pacing: {mode: none}`

// as is the gate's URL for a proxy user name.
func (g *gate) as(user string) string {
	return strings.Replace(g.proxy, "://", "://"+user+":"+accessSecret+"@", 1)
}

// get asks by way of the gate as a proxy user.
func (g *gate) get(t *testing.T, user, url string, more ...string) answer {
	t.Helper()
	return curlVia(t, g.as(user), g.ca, url, more...)
}

// restart ends serve and starts it again with the same folder.
func (g *gate) restart(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.exit(t, 20*time.Second); code != 0 {
		t.Fatalf("serve ended with %d\n%s", code, g.err)
	}
	g.serve(t, gateConfig{})
}

// refusedAs fails when an answer is not the gate's own refusal with this code.
func refusedAs(t *testing.T, what string, a answer, status int, reason string, says ...string) {
	t.Helper()
	if a.status != status || a.header.Get("Crawlgate-Reason") != reason {
		t.Errorf("%s: %d %s, not %d %s: %+v", what, a.status, a.header.Get("Crawlgate-Reason"), status, reason, a)
		return
	}
	p := readProblem(t, a.body)
	for _, s := range says {
		if !strings.Contains(p.Detail, s) {
			t.Errorf("%s: the refusal does not say %q: %s", what, s, p.Detail)
		}
	}
}

// passed fails when an answer is not the site's.
func passed(t *testing.T, what string, a answer, status int) {
	t.Helper()
	if a.status != status || a.header.Get("Crawlgate-Reason") != "" {
		t.Errorf("%s: %d %s, not the site's %d: %+v", what, a.status, a.header.Get("Crawlgate-Reason"), status, a)
	}
}

// TestProxyCredentials: every client's way with a 407, over plain HTTP and CONNECT; no secret is printed, recorded or sent on.
func TestProxyCredentials(t *testing.T) {
	t.Parallel()
	secure, plain := newOrigin(t, tlsH2, nil, "secure.test"), newOrigin(t, plainHTTP, nil, "plain.test")
	g := startGate(t, gateConfig{origins: []*origin{secure, plain}, profiles: `[{name: crawl, ` + fast + `}]`,
		clients: fmt.Sprintf(`[{name: team, secret_hash: %q, profiles: [crawl], sites: [%q, %q]}]`, accessHash, secure.url("/"), plain.url("/"))})
	wrong := strings.Replace(g.as("team"), accessSecret, "cg_wrong", 1)
	nobody := g.as("nobody")

	a := curl(t, g, plain.url("/none"))
	refusedAs(t, "none", a, 407, "auth-required")
	if got := a.header.Get("Proxy-Authenticate"); got != `Basic realm="crawlgate", charset="UTF-8"` {
		t.Errorf("Proxy-Authenticate: %s", got)
	}
	refusedAs(t, "wrong", curlVia(t, wrong, g.ca, plain.url("/wrong")), 407, "auth-failed")
	refusedAs(t, "unknown", curlVia(t, nobody, g.ca, plain.url("/unknown")), 407, "auth-failed")
	for name, proxy := range map[string]string{"none": g.proxy, "wrong": wrong, "unknown": nobody} {
		if a := curlVia(t, proxy, g.ca, secure.url("/"+name)); a.connect != 407 || a.exit == 0 {
			t.Errorf("CONNECT, %s: %+v", name, a)
		}
	}
	passed(t, "plain", g.get(t, "team", plain.url("/curl")), 200)
	passed(t, "CONNECT", g.get(t, "team", secure.url("/curl")), 200)
	// A client that asks first and answers the challenge then.
	for _, url := range []string{plain.url("/asked"), secure.url("/asked")} {
		passed(t, "challenge", curl(t, g, url, "--proxy-anyauth", "--proxy-user", "team:"+accessSecret), 200)
	}
	// Credentials for the site itself are not the proxy's.
	refusedAs(t, "Authorization", curl(t, g, plain.url("/origin"), "--user", "team:"+accessSecret), 407, "auth-required")

	for name, get := range map[string]func(proxy string, urls ...string) []fetched{
		"requests":   func(p string, urls ...string) []fetched { return python(t, "requests", p, g.ca, urls...) },
		"undici":     func(p string, urls ...string) []fetched { return undici(t, "agent", p, g.ca, urls...) },
		"undici-env": func(p string, urls ...string) []fetched { return undici(t, "env", p, g.ca, urls...) },
	} {
		for _, f := range get(g.as("team"), secure.url("/"+name), plain.url("/"+name)) {
			if f.Status != 200 || !strings.Contains(f.Body, "page /"+name) {
				t.Errorf("%s: %+v", name, f)
			}
		}
		for _, f := range get(g.proxy, secure.url("/no-"+name)) {
			// undici says that the request was cancelled, requests names the 407.
			if f.Error == "" || name == "requests" && !strings.Contains(f.Error, "407") {
				t.Errorf("%s without credentials: %+v", name, f)
			}
		}
	}
	// Chromium takes no credentials with --proxy-server; Playwright answers its question.
	browser := func(proxy, path string) result {
		dir := recipeFolder(t, recipeTest{tool: "playwright"}, "")
		writeFile(t, filepath.Join(dir, "recipe"), fmt.Sprintf(`{executablePath: '/usr/bin/chromium', proxy: %s, args: ['--ignore-certificate-errors-spki-list=%s', '--proxy-bypass-list=<-loopback>']}`,
			proxy, spkiPin(t, g.ca)), 0o600)
		return execute(t, bareEnv(dir), "sh", "-c", `cd "$HOME" && node playwright.mjs "$@"`, "sh", secure.url(path), plain.url(path))
	}
	r := browser(fmt.Sprintf(`{server: %q, username: "team", password: %q}`, g.proxy, accessSecret), "/playwright")
	if r.code != 0 || len(readFetched(t, r.out)) != 2 || !strings.Contains(r.out, "page /playwright") {
		t.Errorf("playwright: %+v", r)
	}
	if r := browser(fmt.Sprintf(`{server: %q, username: "team", password: "cg_wrong"}`, g.proxy), "/no-playwright"); r.code == 0 || strings.Contains(r.out, "page /no") {
		t.Errorf("playwright with a wrong secret: %+v", r)
	}

	for _, o := range []*origin{secure, plain} {
		agentOnly(t, o.arrivals())
		got := strings.Join(uris(o.pages()), " ")
		for _, want := range []string{"curl", "asked", "requests", "undici", "undici-env", "playwright"} {
			if n := strings.Count(got+" ", "GET /"+want+" "); n != 1 {
				t.Errorf("%s came %d times: %s", want, n, got)
			}
		}
		for _, no := range []string{"none", "wrong", "unknown", "no-", "origin"} {
			if strings.Contains(got, "/"+no) {
				t.Errorf("%s arrived: %s", no, got)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(g.state, "audit", "crawlgate.jsonl"))
	if err != nil || strings.Contains(string(raw), accessSecret) || strings.Contains(g.process.err.String(), accessSecret) || !strings.Contains(string(raw), `"auth-failed"`) {
		t.Errorf("a secret stands in the log, or a failure does not (%v)", err)
	}
}

// TestClientsByPlace: a client named by the network it comes from, by a listener of its own, and by both a secret and
// a network.
func TestClientsByPlace(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, nil, "site.test")
	own := freePort(t)
	sites := fmt.Sprintf("profiles: [crawl], sites: [%q]", o.url("/"))
	g := startGate(t, gateConfig{origins: []*origin{o}, profiles: `[{name: crawl, ` + fast + `}]`,
		clients: fmt.Sprintf(`[{name: net, sources: [127.0.0.2], %s}, {name: both, secret_hash: %q, sources: [127.0.0.3/32], %s}, {name: own, listen: "127.0.0.1:%d", %s}]`, sites, accessHash, sites, own, sites)})
	ownURL := "http://127.0.0.1:" + itoa(own)
	for _, c := range []struct {
		path, from, proxy, client, auth string
		connect                         int
	}{
		{"/net", "127.0.0.2", g.proxy, "net", "network", 200},
		{"/else", "127.0.0.4", g.proxy, "", "", 407},
		{"/both", "127.0.0.3", g.as("both"), "both", "basic", 200},
		{"/both-elsewhere", "127.0.0.4", g.as("both"), "", "", 407},
		{"/both-bare", "127.0.0.3", g.proxy, "", "", 407},
		{"/net-as-both", "127.0.0.2", g.as("both"), "", "", 407}, // credentials that are given count, or nothing does
		{"/own", "127.0.0.4", ownURL, "own", "listener", 200},
	} {
		a := curlVia(t, c.proxy, g.ca, o.url(c.path), "--interface", c.from, "-H", "X-Forwarded-For: 127.0.0.2")
		if a.connect != c.connect || (c.connect == 200) != (a.status == 200) {
			t.Errorf("%s: %+v", c.path, a)
		}
		if c.connect != 200 {
			continue
		}
		i := slices.IndexFunc(g.requests(t), func(e event) bool { return e.URL == o.url(c.path) })
		within(t, 5*time.Second, c.path+" in the log", func() bool {
			i = slices.IndexFunc(g.requests(t), func(e event) bool { return e.URL == o.url(c.path) })
			return i >= 0
		})
		if e := g.requests(t)[i]; e.Client.Name != c.client || e.Client.Auth != c.auth {
			t.Errorf("%s: %+v", c.path, e)
		}
	}
	if got := strings.Join(uris(o.pages()), " "); got != "GET /net GET /both GET /own" {
		t.Errorf("arrived: %s", got)
	}
	refusedAs(t, "our listener", curlVia(t, ownURL, g.ca, ownURL+"/"), 508, "loop")
}

// TestProfilesAndJobs: unknown profiles are refused inside the tunnel; jobs have a budget and a site, are listed, and
// survive a restart.
func TestProfilesAndJobs(t *testing.T) {
	t.Parallel()
	rules := func(o *origin) { o.robots = "User-agent: *\nDisallow: /no\n" }
	o := newOrigin(t, tlsH2, rules, "site.test", "www.site.test", "other.test")
	var sites []string
	for _, h := range o.hosts {
		sites = append(sites, o.at(h, "/"))
	}
	g := startGate(t, gateConfig{origins: []*origin{o},
		profiles: `[{name: crawl, ` + fast + `}, {name: errand, ` + fast + `, job: {required: true, max_pages: 2, same_site: true}}, {name: foreign, ` + fast + `}]`,
		clients: fmt.Sprintf(`[{name: team, secret_hash: %q, profiles: [crawl, errand], sites: [%s]}, {name: else, secret_hash: %q, profiles: [foreign], sites: [%s]}]`,
			accessHash, quoted(sites), accessHash, quoted(sites))})
	for user, words := range map[string]string{"team+nope": "profile", "team+foreign": "profile", "else+crawl": "profile"} {
		a := g.get(t, user, o.url("/profile"))
		refusedAs(t, user, a, 403, "profile-denied", words)
		if a.connect != 200 {
			t.Errorf("%s: refused at the CONNECT", user)
		}
	}
	for _, bad := range []string{"team+crawl+job+more", "team+"} {
		if a := g.get(t, bad, o.url("/profile")); a.connect != 407 {
			t.Errorf("%s: %+v", bad, a)
		}
	}
	// A page's script could set the fields, so they do not count for this client.
	passed(t, "fields", g.get(t, "team", o.url("/fields"), "-H", "Crawlgate-Profile: nope"), 200)

	refusedAs(t, "no job", g.get(t, "team+errand", o.url("/")), 403, "job-required", "CLIENT+PROFILE+JOB")
	passed(t, "first", g.get(t, "team+errand+job-1", o.url("/1")), 200)
	refusedAs(t, "off site", g.get(t, "team+errand+job-1", o.at("other.test", "/")), 403, "job-off-site", "site.test")
	refusedAs(t, "robots", g.get(t, "team+errand+job-1", o.url("/no")), 403, "robots-disallow") // costs no page
	passed(t, "second, www", g.get(t, "team+errand+job-1", o.at("www.site.test", "/2")), 200)
	refusedAs(t, "third", g.get(t, "team+errand+job-1", o.url("/3")), 403, "job-exhausted", "2 pages")
	passed(t, "another job", g.get(t, "team+errand+job-2", o.at("other.test", "/1")), 200)

	type job struct {
		Client, ID, Profile, Site, Stopped, First string
		Pages                                     int
		MaxPages                                  int `json:"max_pages"`
		Refused                                   map[string]int
	}
	look := func(when string) {
		t.Helper()
		r := g.cli(t, "jobs", "list", "--json")
		var list []job
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || r.code != 0 || len(list) != 2 {
			t.Fatalf("%s: %+v", when, r)
		}
		i := slices.IndexFunc(list, func(j job) bool { return j.ID == "job-1" })
		if i < 0 {
			t.Fatalf("%s: %+v", when, list)
		}
		j := list[i]
		if j.Client != "team" || j.Profile != "errand" || j.Site != "site.test" || j.Stopped != "job-exhausted" || j.Pages != 2 || j.MaxPages != 2 || j.First != o.url("/1") ||
			j.Refused["job-off-site"] != 1 || j.Refused["robots-disallow"] != 1 || j.Refused["job-exhausted"] < 1 {
			t.Errorf("%s: %+v", when, j)
		}
		show := g.cli(t, "jobs", "show", "job-1")
		for _, want := range []string{"job-1 of team, profile errand", "2 of 2", "1 robots-disallow", "stopped  job-exhausted"} {
			if !strings.Contains(show.out, want) || show.code != 0 {
				t.Errorf("%s: jobs show does not say %q: %+v", when, want, show)
			}
		}
		if r := g.cli(t, "jobs", "show", "job-9"); r.code != 2 || !strings.Contains(r.err, "job-9") {
			t.Errorf("%s: %+v", when, r)
		}
	}
	look("running")
	g.restart(t)
	look("after a restart")
	refusedAs(t, "after a restart", g.get(t, "team+errand+job-1", o.url("/4")), 403, "job-exhausted")
	refusedAs(t, "off site after a restart", g.get(t, "team+errand+job-2", o.url("/5")), 403, "job-off-site", "other.test")
	if got := strings.Join(uris(o.pages()), " "); got != "GET /fields GET /1 GET /2 GET /1" {
		t.Errorf("arrived: %s", got)
	}
}

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
			{o.url("/unlisted"), false, "sitemap", "the sitemap does not list this URL"}, {o.at("other.test", "/listed"), false, "", ""},
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

// twoAgents are two identities of one operator.
const twoAgents = `[{name: example, product_token: ExampleBot, user_agent: "` + agentUA + `", purposes: [search]}, {name: second, product_token: SecondBot, user_agent: "SecondBot/1.0", purposes: [search]}]`

// TestIdentityLock: what a site refused to one agent goes out under no other, also after a restart; the same agent may
// ask again, and a person's profile is exempt.
func TestIdentityLock(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/401":
				w.Header().Set("WWW-Authenticate", `Basic realm="site"`)
				w.WriteHeader(http.StatusUnauthorized)
			case "/403":
				w.WriteHeader(http.StatusForbidden)
			case "/451":
				w.WriteHeader(http.StatusUnavailableForLegalReasons)
			case "/404":
				w.WriteHeader(http.StatusNotFound)
			}
		}
	}, "site.test")
	g := startGate(t, gateConfig{origins: []*origin{o}, agents: twoAgents,
		profiles: `[{name: crawl, agent: example, ` + fast + `}, {name: second, agent: second, ` + fast + `}, {name: person, agent: second, identity_lock: 0s, ` + fast + `}]`,
		clients:  fmt.Sprintf(`[{name: team, secret_hash: %q, profiles: [crawl, second, person], sites: [%q]}, {name: else, secret_hash: %q, profiles: [second], sites: [%q]}]`, accessHash, o.url("/"), accessHash, o.url("/"))})
	locked := func(when string) {
		t.Helper()
		for _, code := range []string{"401", "403", "451"} {
			for _, user := range []string{"team+second", "else"} { // for all clients together
				refusedAs(t, when+": "+user+" "+code, g.get(t, user, o.url("/"+code)), 403, "identity-switch", "answered "+code+" to the agent example at 20")
			}
			if a := g.get(t, "team+second", o.url("/"+code), "--head"); a.status != 403 || a.header.Get("Crawlgate-Reason") != "identity-switch" {
				t.Errorf("%s: HEAD: %+v", when, a)
			}
		}
	}
	for _, code := range []int{401, 403, 451, 404} {
		passed(t, "first", g.get(t, "team", o.url("/"+itoa(code))), code)
	}
	locked("running")
	passed(t, "404 is no refusal", g.get(t, "team+second", o.url("/404")), 404)
	passed(t, "another page", g.get(t, "team+second", o.url("/open")), 200)
	passed(t, "the same agent again", g.get(t, "team", o.url("/401")), 401)
	passed(t, "a person", g.get(t, "team+person", o.url("/403")), 403)
	r := g.cli(t, "check", "--client", "team", "--profile", "second", o.url("/451"))
	if r.code != 3 || !strings.Contains(r.out, "refused   identity-switch") || !strings.Contains(r.out, "answered 451 to the agent example") {
		t.Errorf("check: %+v", r)
	}
	g.restart(t)
	locked("after a restart")
	passed(t, "the same agent after a restart", g.get(t, "team", o.url("/403")), 403)
	for _, a := range o.pages() {
		if a.Header.Get("User-Agent") == "SecondBot/1.0" && a.URI != "/404" && a.URI != "/open" && a.URI != "/403" {
			t.Errorf("%s arrived under the second name", a.URI)
		}
	}
}

// TestReportOnly: enforce: false, for all or for one client, forwards what would be refused and records it; identity, ports,
// addresses and stops hold.
func TestReportOnly(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"all", "client"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, tlsH1, func(o *origin) {
				o.robots = "User-agent: *\nDisallow: /no\n"
				o.handle = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/refuses" {
						w.WriteHeader(http.StatusForbidden)
					}
				}
			}, "site.test", "off.test", "stopped.test")
			c := gateConfig{origins: []*origin{o}, agents: twoAgents, hosts: []string{"10.1.2.3 lan.test"},
				profiles: `[{name: crawl, agent: example, ` + fast + `}, {name: second, agent: second, ` + fast + `}, {name: errand, agent: example, ` + fast + `, job: {max_pages: 1}}]`}
			mild := ""
			if how == "all" {
				c.more = "enforce: false\n"
			} else {
				mild = ", enforce: false"
			}
			profiles := fmt.Sprintf("profiles: [crawl, second, errand], sites: [%q, %q]", o.url("/"), o.at("stopped.test", "/"))
			c.clients = fmt.Sprintf(`[{name: mild, secret_hash: %q, %s%s}, {name: strict, secret_hash: %q, %s}]`, accessHash, profiles, mild, accessHash, profiles)
			g := startGate(t, c)
			if r := g.cli(t, "sites", "stop", "stopped.test", "--reason", "asked by mail"); r.code != 0 {
				t.Fatalf("%+v", r)
			}
			passed(t, "robots.txt forbids", g.get(t, "mild", o.url("/no")), 200)
			passed(t, "not on the list", g.get(t, "mild", o.at("off.test", "/")), 200)
			passed(t, "job's page", g.get(t, "mild+errand+j", o.url("/one")), 200)
			passed(t, "past the job's budget", g.get(t, "mild+errand+j", o.url("/two")), 200)
			passed(t, "the site refuses", g.get(t, "mild", o.url("/refuses")), 403)
			refusedAs(t, "identity", g.get(t, "mild+second", o.url("/refuses")), 403, "identity-switch")
			refusedAs(t, "port", g.get(t, "mild", "http://site.test:1/"), 403, "port-denied")
			refusedAs(t, "address", g.get(t, "mild", "https://10.1.2.3/"), 403, "address-denied")
			refusedAs(t, "name of an address", g.get(t, "mild", "https://lan.test/"), 403, "address-denied")
			refusedAs(t, "stop", g.get(t, "mild", o.at("stopped.test", "/")), 403, "site-stopped", "asked by mail")
			refusedAs(t, "method", g.get(t, "mild", o.url("/"), "-X", "DELETE"), 405, "method-denied")
			if a := curl(t, g, o.url("/")); a.connect != 407 {
				t.Errorf("without credentials: %+v", a)
			}
			if how == "client" {
				refusedAs(t, "another client", g.get(t, "strict", o.url("/no")), 403, "robots-disallow")
				refusedAs(t, "another client", g.get(t, "strict", o.at("off.test", "/")), 403, "site-denied")
			}
			would := map[string]string{o.url("/no"): "robots-disallow", o.at("off.test", "/"): "site-denied", o.url("/two"): "job-exhausted", o.url("/one"): ""}
			for _, e := range g.requests(t) {
				if want, ok := would[e.URL]; ok && e.Client.Name == "mild" && e.Method == "GET" {
					delete(would, e.URL)
					if e.WouldDeny != want || e.Decision != "forwarded" && e.Decision != "would_deny" || !e.Sent {
						t.Errorf("recorded as %+v, would be %q", e, want)
					}
				}
			}
			if len(would) > 0 {
				t.Errorf("not recorded: %v", would)
			}
		})
	}
}

// TestNames: a name that changes its address between two questions, aliases of private addresses, and answers of which one
// is not to be reached. The exception for 127.0.0.1 stands for the public address; 127.0.0.2 has a listener that must
// hear nothing.
func TestNames(t *testing.T) {
	t.Parallel()
	var asked sync.Map
	addr := netip.MustParseAddr
	dns := dnstest.New(t, func(q dnstest.Question) dnstest.Reply {
		if q.Type != dnsmessage.TypeA && !strings.HasPrefix(q.Name, "six") {
			return dnstest.Reply{}
		}
		n, _ := asked.LoadOrStore(q.Name, new(atomic.Int64))
		times := n.(*atomic.Int64).Add(1)
		switch q.Name {
		case "rebind.test":
			if times > 1 {
				return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.2")}}
			}
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1")}}
		case "steady.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1")}}
		case "alias.test":
			return dnstest.Reply{CNAME: []string{"www.alias.test"}, Addrs: []netip.Addr{addr("127.0.0.1")}}
		case "alias-lan.test":
			return dnstest.Reply{CNAME: []string{"a.test", "b.test"}, Addrs: []netip.Addr{addr("10.1.2.3")}}
		case "alias-canary.test":
			return dnstest.Reply{CNAME: []string{"steady.test"}, Addrs: []netip.Addr{addr("127.0.0.2")}}
		case "mixed.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1"), addr("10.1.2.3")}}
		case "mixed-canary.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1"), addr("127.0.0.2")}}
		case "six.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("::ffff:127.0.0.2")}}
		case "six-local.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1"), addr("::1")}}
		case "none.test":
			return dnstest.Reply{}
		}
		return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
	})
	o := newOrigin(t, plainHTTP, func(o *origin) {
		o.rules = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close") // the page needs a connection of its own, and so another look-up
			_, _ = io.WriteString(w, "User-agent: *\nAllow: /\n")
		}
	}, "static.test")
	canary, err := net.Listen("tcp", "127.0.0.2:"+itoa(o.port))
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	go func() {
		for {
			c, err := canary.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { canary.Close() })
	g := startGate(t, gateConfig{origins: []*origin{o}, profiles: `[{name: crawl, ` + fast + `}]`, egress: []string{"dns: [" + dns.Addr + "]", "ports: [" + itoa(o.port) + "]"}})
	var refused []string
	for _, c := range []struct {
		host   string
		status int
		reason string
		class  string
	}{
		{"static.test", 200, "", ""}, {"steady.test", 200, "", ""}, {"alias.test", 200, "", ""},
		{"rebind.test", 403, "address-denied", "addr_loopback"}, {"alias-lan.test", 403, "address-denied", "addr_private"}, {"alias-canary.test", 403, "address-denied", "addr_loopback"},
		{"mixed.test", 403, "address-denied", "addr_private"}, {"mixed-canary.test", 403, "address-denied", "addr_loopback"}, {"six.test", 403, "address-denied", ""}, {"six-local.test", 403, "address-denied", "addr_loopback"},
		{"none.test", 502, "dns-failed", ""}, {"nowhere.test", 502, "dns-failed", ""},
	} {
		url := o.at(c.host, "/x")
		a := curl(t, g, url)
		if c.reason == "" {
			passed(t, c.host, a, c.status)
			continue
		}
		refusedAs(t, c.host, a, c.status, c.reason)
		if c.reason == "address-denied" {
			refused = append(refused, url)
			if strings.Contains(a.body, "127.0.0.2") || strings.Contains(a.body, "10.1.2.3") {
				t.Errorf("%s: the refusal names an address that the request did not: %s", c.host, a.body)
			}
			if p := readProblem(t, a.body); c.class != "" && p.Class != c.class {
				t.Errorf("%s: class %s, not %s", c.host, p.Class, c.class)
			}
		}
	}
	r := g.cli(t, append([]string{"check"}, refused...)...)
	if r.code != 3 || strings.Count(r.out, "refused   address-denied") != len(refused) || !strings.Contains(r.out, "10.1.2.3 addr_private") {
		t.Errorf("check: %+v", r)
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("%d connections to an address that must not be reached", n)
	}
	for _, a := range o.arrivals() {
		if !strings.HasPrefix(a.Host, "st") && !strings.HasPrefix(a.Host, "alias.test") && !(strings.HasPrefix(a.Host, "rebind.") && a.URI == "/robots.txt") {
			t.Errorf("%s %s arrived", a.Host, a.URI)
		}
	}
}

// TestOwnPorts: no spelling of an address and no exception leads to crawlgate's own listeners; and variables that name a
// proxy mean nothing to serve itself.
func TestOwnPorts(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, nil, "site.test")
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	go func() {
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { trap.Close() })
	proxy, admin := freePort(t), freePort(t)
	to := "http://" + trap.Addr().String()
	g := startGate(t, gateConfig{origins: []*origin{o}, ports: []int{proxy, admin}, listen: "127.0.0.1:" + itoa(proxy), admin: "127.0.0.1:" + itoa(admin),
		hosts: []string{"127.0.0.1 me.test"}, profiles: `[{name: crawl, ` + fast + `}]`,
		env: []string{"http_proxy=" + to, "https_proxy=" + to, "HTTP_PROXY=" + to, "HTTPS_PROXY=" + to, "all_proxy=" + to, "ALL_PROXY=" + to}})
	passed(t, "past the environment's proxy", curl(t, g, o.url("/")), 200)
	if heard.Load() != 0 {
		t.Error("serve used a proxy of its environment")
	}
	for _, port := range []int{proxy, admin} {
		for _, host := range []string{"127.0.0.1", "me.test"} {
			for _, scheme := range []string{"http", "https"} {
				url := fmt.Sprintf("%s://%s:%d/metrics", scheme, host, port)
				refusedAs(t, url, curl(t, g, url), 508, "loop")
			}
		}
		for _, host := range []string{"localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f000001"} {
			// curl itself turns some of these into 127.0.0.1; whatever it sends, nothing is answered from our ports.
			a := curl(t, g, fmt.Sprintf("http://%s:%d/metrics", host, port))
			if a.header.Get("Crawlgate-Reason") == "" || a.status < 400 {
				t.Errorf("%s: %+v", host, a)
			}
		}
		if r := g.cli(t, "check", fmt.Sprintf("http://me.test:%d/", port)); r.code != 3 || !strings.Contains(r.out, "refused   loop") {
			t.Errorf("check: %+v", r)
		}
	}
}
