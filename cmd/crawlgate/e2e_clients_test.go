package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fetched is what a library got, as fetch.py and fetch.mjs print it.
type fetched struct {
	URL     string
	Status  int
	Headers map[string]string
	Body    string
	Error   string
	Agent   string // as scripts of a page see it
}

func readFetched(t *testing.T, out string) []fetched {
	t.Helper()
	var list []fetched
	for line := range strings.Lines(out) {
		var f fetched
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		list = append(list, f)
	}
	return list
}

// proxyEnv points a program at a gate, as the variables of `run` do.
func proxyEnv(proxy, ca string) []string {
	return []string{"http_proxy=" + proxy, "https_proxy=" + proxy, "HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "no_proxy=", "NO_PROXY=",
		"SSL_CERT_FILE=" + ca, "REQUESTS_CA_BUNDLE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca, "CRAWLGATE_PROXY=" + proxy, "CRAWLGATE_CA=" + ca}
}

// debianPython is the interpreter that has Debian's python3-requests and python3-httpx.
const debianPython = "/usr/bin/python3"

func python(t *testing.T, lib, proxy, ca string, urls ...string) []fetched {
	t.Helper()
	script, err := filepath.Abs("testdata/python/fetch.py")
	if err != nil {
		t.Fatal(err)
	}
	r := execute(t, bareEnv(t.TempDir(), append(proxyEnv(proxy, ca), "PYTHONDONTWRITEBYTECODE=1")...), debianPython, append([]string{script, lib}, urls...)...)
	if r.code != 0 {
		t.Fatalf("%s: %+v", lib, r)
	}
	return readFetched(t, r.out)
}

func undici(t *testing.T, how, proxy, ca string, urls ...string) []fetched {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"fetch.mjs", how}, urls...)...)
	cmd.Dir, cmd.Env = nodeFolder(t), bareEnv(t.TempDir(), proxyEnv(proxy, ca)...)
	var errs logBuffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node fetch.mjs: %v: %s", err, errs.String())
	}
	return readFetched(t, string(out))
}

// TestLibraries has Python's and Node's clients fetch an allowed, a forbidden and a private target, signed.
func TestLibraries(t *testing.T) {
	t.Parallel()
	rules := func(o *origin) { o.robots = "User-agent: ExampleBot\nDisallow: /no\n" }
	h1 := newOrigin(t, tlsH1, rules, "one.test")
	h2 := newOrigin(t, tlsH2, rules, "two.test")
	plain := newOrigin(t, plainHTTP, rules, "plain.test")
	g, key := startSigned(t, gateConfig{origins: []*origin{h1, h2, plain}, hosts: []string{"192.168.1.1 router.test"}})
	n := 0
	for _, c := range []struct {
		name string
		get  func(urls ...string) []fetched
	}{
		{"urllib", func(urls ...string) []fetched { return python(t, "urllib", g.proxy, g.ca, urls...) }},
		{"requests", func(urls ...string) []fetched { return python(t, "requests", g.proxy, g.ca, urls...) }},
		{"httpx", func(urls ...string) []fetched { return python(t, "httpx", g.proxy, g.ca, urls...) }},
		{"undici EnvHttpProxyAgent", func(urls ...string) []fetched { return undici(t, "env", g.proxy, g.ca, urls...) }},
		{"undici ProxyAgent", func(urls ...string) []fetched { return undici(t, "agent", g.proxy, g.ca, urls...) }},
	} {
		path := "/" + strings.ReplaceAll(c.name, " ", "-")
		urls := []string{h1.url(path), h2.url(path), plain.url(path), h1.url("/no"), h2.url("/no/" + path), plain.url("/no"), "https://router.test/", "http://router.test/"}
		list := c.get(urls...)
		if len(list) != len(urls) {
			t.Fatalf("%s: %+v", c.name, list)
		}
		events := g.waitEvents(t, n+len(urls))[n:]
		n += len(urls)
		for i, f := range list {
			ev := events[i]
			if f.Error != "" || f.Headers["crawlgate-request-id"] == "" || f.Headers["crawlgate-request-id"] != ev.ID || f.Status != ev.Answered {
				t.Errorf("%s: %+v, recorded as %+v", c.name, f, ev)
				continue
			}
			if i < 3 {
				want := "signed"
				if i == 2 {
					want = "http"
				}
				if f.Status != 200 || f.Headers["crawlgate-reason"] != "" || !strings.Contains(f.Body, path) || ev.Sig.State != want || ev.Decision != "forwarded" {
					t.Errorf("%s: %+v, recorded as %+v", c.name, f, ev)
				}
				continue
			}
			reason, status, proxyError := "robots-disallow", 403, "error=http_request_denied"
			if i > 5 {
				reason, proxyError = "address-denied", "error=destination_ip_prohibited"
			}
			p := readProblem(t, f.Body)
			if f.Status != status || f.Headers["crawlgate-reason"] != reason || !strings.Contains(f.Headers["proxy-status"], proxyError) || f.Headers["content-type"] != "application/problem+json" ||
				p.Reason != reason || p.URL != f.URL || ev.Reason != reason || ev.Sent {
				t.Errorf("%s: %+v, recorded as %+v", c.name, f, ev)
			}
			if reason == "robots-disallow" && (p.Line != 2 || p.Rule != "Disallow: /no") {
				t.Errorf("%s: %+v", c.name, p)
			}
		}
	}
	for _, o := range []*origin{h1, h2, plain} {
		pages := o.pages()
		if len(pages) != 5 {
			t.Errorf("%s got %v", o.hosts[0], uris(pages))
		}
		agentOnly(t, o.arrivals())
		apart(t, pages, time.Second)
		if o == plain {
			for _, a := range o.arrivals() {
				if a.Header.Get("Signature") != "" {
					t.Errorf("signed over plain http: %v", a)
				}
			}
			continue
		}
		signatures(t, o.arrivals())
		verified(t, key, o, o.arrivals()) // robots.txt too
	}
}
