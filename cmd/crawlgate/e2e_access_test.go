package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
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
