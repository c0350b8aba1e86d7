package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"crawlgate/proxy/guard/dnstest"
)

// firefoxWrapper puts a program in place of firefox-esr that drives it and prints what it shows: Firefox has no
// --dump-dom.
func firefoxWrapper(t *testing.T, dir string) {
	t.Helper()
	if err := os.Symlink(filepath.Join(nodeFolder(t), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("testdata/recipes/firefox.mjs")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "firefox.mjs"), string(raw), 0o600)
	writeFile(t, filepath.Join(dir, "firefox-esr"), "#!/bin/sh\nexec node "+filepath.Join(dir, "firefox.mjs")+" \"$@\"\n", 0o700)
}

// firefox opens a page as the recipe says, and gives what it shows; with a title, once its scripts have set that.
func firefox(t *testing.T, g *gate, url, title string) fetched {
	t.Helper()
	env := g.cli(t, "ca", "env", "--for", "firefox")
	if env.code != 0 {
		t.Fatalf("%+v", env)
	}
	dir := t.TempDir()
	firefoxWrapper(t, dir)
	script := filepath.Join(dir, "recipe.sh")
	writeFile(t, script, "set -eu\ncd "+dir+"\n"+strings.Replace(env.out, "https://example.com/", `"$1"`, 1), 0o600)
	r := execute(t, bareEnv(dir, "TMPDIR="+dir, "TITLE="+title, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH")), "sh", script, url)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	list := readFetched(t, r.out)
	if len(list) != 1 {
		t.Fatalf("%+v", r)
	}
	return list[0]
}

// TestFirefox loads a page with everything a browser asks for, and one that is refused. The browser trusts the CA by its
// profile's own store, its scripts see the crawler's name, and it asks for nothing else.
func TestFirefox(t *testing.T) {
	t.Parallel()
	h2 := newOrigin(t, tlsH2, func(o *origin) {
		o.robots = "User-agent: *\nDisallow: /private/\n"
		o.handle = site
	}, "shop.test")
	dns := dnstest.New(t, func(dnstest.Question) dnstest.Reply {
		return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	})
	g := startGate(t, gateConfig{origins: []*origin{h2}, hosts: []string{"10.1.1.1 lan.test"}, egress: []string{"dns: [" + dns.Addr + "]"}})

	f := firefox(t, g, h2.url("/page"), "done")
	if f.Status != 200 || f.Agent != agentUA || f.Headers["crawlgate-request-id"] == "" {
		t.Errorf("%+v", f)
	}
	for _, want := range []string{
		`<p id="style">rgb(1, 2, 3)</p>`, `<p id="picture">width 7</p>`, `<p id="agent">` + agentUA + `</p>`, `<p id="data">{"answer":42}</p>`,
		`<p id="refused">403 | robots-disallow | robots-disallow | Disallow: /private/ | 2</p>`,
	} {
		if !strings.Contains(f.Body, want) {
			t.Errorf("the page has no %s:\n%s", want, f.Body)
		}
	}
	f = firefox(t, g, h2.url("/private/page"), "")
	if f.Status != 403 || f.Headers["crawlgate-reason"] != "robots-disallow" || !strings.Contains(f.Body, "Disallow: /private/") {
		t.Errorf("%+v", f)
	}

	all := h2.arrivals()
	agentOnly(t, all)
	got := uris(all)
	for _, want := range []string{"GET /page", "GET /app.js", "GET /pic.svg", "GET /data.json"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s did not come: %v", want, got)
		}
	}
	for _, a := range all {
		if strings.HasPrefix(a.URI, "/private") || a.Proto != "HTTP/2.0" {
			t.Errorf("%s came by %s", a.URI, a.Proto)
		}
	}
	files := map[string]bool{}
	for _, e := range g.requests(t) {
		path := strings.TrimPrefix(e.URL, h2.url(""))
		switch {
		case e.Host == "lan.test":
			if e.Reason != "address-denied" || e.Sent {
				t.Errorf("%+v", e)
			}
		case e.Host != "shop.test":
			t.Errorf("Firefox asked for %s by itself: %s %s", e.URL, e.Reason, e.Class)
		case slices.Contains([]string{"/style.css", "/app.js", "/pic.svg", "/data.json"}, path):
			files[path] = true
			if e.Kind != "subresource" || e.Decision != "forwarded" || e.TurnWaitMS > 900 {
				t.Errorf("a page's file did not ride along: %+v", e)
			}
		}
	}
	if len(files) != 4 {
		t.Errorf("files in the log: %v", files)
	}
	for _, q := range dns.Questions() {
		if regexp.MustCompile(`(mozilla|firefox|mozgcp)`).MatchString(q.Name) {
			t.Errorf("looked up for the browser itself: %s", q.Name)
		}
	}
}

// TestFirefoxUnprepared: without the preferences Firefox asks its maker's hosts. They are refused without a look-up.
func TestFirefoxUnprepared(t *testing.T) {
	t.Parallel()
	h1 := newOrigin(t, tlsH1, nil, "shop.test")
	dns := dnstest.New(t, func(dnstest.Question) dnstest.Reply {
		return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	})
	g := startGate(t, gateConfig{origins: []*origin{h1}, egress: []string{"dns: [" + dns.Addr + "]"}})
	env := g.cli(t, "ca", "env", "--for", "firefox")
	dir := t.TempDir()
	firefoxWrapper(t, dir)
	script := filepath.Join(dir, "recipe.sh")
	own := regexp.MustCompile(`(?s)// what it would ask by itself.*?END\n.*?\n`).ReplaceAllString(env.out, "END\n")
	writeFile(t, script, "set -eu\ncd "+dir+"\n"+strings.Replace(own, "https://example.com/", `"$1"`, 1), 0o600)
	noise := 0
	for range 3 { // one may be closed before it asks
		r := execute(t, bareEnv(dir, "TMPDIR="+dir, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH")), "sh", script, h1.url("/page"))
		if r.code != 0 || !strings.Contains(r.out, "page /page") {
			t.Fatalf("%+v", r)
		}
		for _, e := range g.requests(t) {
			if e.Class == "browser_noise" {
				noise++
				if e.Reason != "kind-denied" || e.Sent {
					t.Errorf("%+v", e)
				}
			}
		}
		if noise > 0 {
			break
		}
	}
	if noise == 0 {
		t.Error("Firefox asked for nothing by itself: the list of preferences, or this test, has no reason any more")
	}
	for _, q := range dns.Questions() {
		if strings.Contains(q.Name, "services.mozilla.com") {
			t.Errorf("looked up for the browser itself: %s", q.Name)
		}
	}
}

// TestInstallNSS: the database is made where there is none, a second time changes nothing, and it trusts the CA for sites.
func TestInstallNSS(t *testing.T) {
	t.Parallel()
	g := startGate(t, gateConfig{})
	dir := filepath.Join(t.TempDir(), "home", ".pki", "nssdb")
	for range 2 {
		if r := g.cli(t, "ca", "install-nss", dir); r.code != 0 || r.err != dir+" trusts the CA now\n" {
			t.Fatalf("%+v", r)
		}
	}
	r := execute(t, bareEnv(t.TempDir()), "certutil", "-L", "-d", "sql:"+dir)
	if r.code != 0 || !regexp.MustCompile(`(?m)^crawlgate [0-9a-fA-F:]+ +C,,`).MatchString(r.out) || strings.Count(r.out, "C,,") != 1 {
		t.Errorf("%+v", r)
	}
}
