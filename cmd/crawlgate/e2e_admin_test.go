package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask sends one request to the admin listener past any proxy.
func ask(t *testing.T, method, url, body string, fields ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n+1 < len(fields); n += 2 {
		if fields[n] == "Host" {
			req.Host = fields[n+1]
			continue
		}
		req.Header.Set(fields[n], fields[n+1])
	}
	resp, err := direct.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

// TestAdminListener: what it serves to whom, and to whom not.
func TestAdminListener(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, func(o *origin) { o.robots = "User-agent: *\nDisallow: /private/\n" }, "site.test")
	g, key := startSigned(t, gateConfig{origins: []*origin{o}})
	if a := curl(t, g, o.url("/a")); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if a := curl(t, g, o.url("/private/a")); a.status != 403 {
		t.Fatalf("%+v", a)
	}
	g.waitEvents(t, 2)
	ca, err := os.ReadFile(g.ca)
	if err != nil {
		t.Fatal(err)
	}
	proxyAddr, adminAddr := strings.TrimPrefix(g.proxy, "http://"), strings.TrimPrefix(g.admin, "http://")
	_, adminPort, _ := strings.Cut(adminAddr, ":")

	for _, c := range []struct{ path, kind, holds string }{
		{"/", "text/html; charset=utf-8", "site.test"},
		{"/healthz", "text/plain; charset=utf-8", "ok"},
		{"/readyz", "", "keys example"},
		{"/metrics", "text/plain", `crawlgate_refusals_total{reason="robots-disallow"} 1`},
		{"/ca.pem", "", string(ca)},
		{"/proxy.pac", "application/x-ns-proxy-autoconfig", "PROXY " + proxyAddr},
		{"/api/hosts", "application/json", "site.test"},
		{"/api/status", "application/json", `"version"`},
		{"/.well-known/http-message-signatures-directory", "application/http-message-signatures-directory+json", key.ID},
	} {
		var fields []string
		if strings.HasPrefix(c.path, "/.well-known") {
			fields = []string{"Host", "bot.example"} // a published path answers to its own name
		}
		status, h, body := ask(t, "GET", g.admin+c.path, "", fields...)
		if status != 200 || !strings.HasPrefix(h.Get("Content-Type"), c.kind) || !strings.Contains(body, c.holds) {
			t.Errorf("%s: %d %s %.600s", c.path, status, h.Get("Content-Type"), body)
		}
		for name := range h {
			if strings.HasPrefix(name, "Access-Control-") && !strings.HasPrefix(c.path, "/.well-known") { // the directory is for everybody
				t.Errorf("%s: %s", c.path, name)
			}
		}
		if c.path == "/.well-known/http-message-signatures-directory" {
			if h.Get("Signature") == "" || h.Get("Signature-Input") == "" {
				t.Errorf("the directory is not signed: %v", h)
			}
			var set struct{ Keys []map[string]any }
			if err := json.Unmarshal([]byte(body), &set); err != nil || len(set.Keys) != 1 || set.Keys[0]["d"] != nil {
				t.Errorf("directory: %v %s", err, body)
			}
		}
	}

	// A page that the browser crawls may reach this port: foreign names and other sites' requests are refused.
	for _, path := range []string{"/", "/metrics", "/api/hosts", "/ca.pem", "/proxy.pac", "/api/explain?url=" + o.url("/a")} {
		for _, fields := range [][]string{
			{"Host", "evil.example"}, {"Host", "evil.example:" + adminPort}, {"Host", "site.test:" + adminPort}, {"Host", "127.0.0.1.nip.example:" + adminPort},
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
		} {
			if status, h, body := ask(t, "GET", g.admin+path, "", fields...); status != 403 || strings.Contains(body, "site.test") || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s with %v: %d %.200s", path, fields, status, body)
			}
		}
	}
	if status, h, _ := ask(t, "OPTIONS", g.admin+"/api/ledger", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST"); status < 400 || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight: %d %v", status, h)
	}
	// Even the published name opens nothing but what is published.
	if status, _, _ := ask(t, "GET", g.admin+"/metrics", "", "Host", "bot.example"); status != 403 && status != 404 {
		t.Errorf("metrics under the published name: %d", status)
	}

	// Changes need the token, on loopback too.
	token, err := os.ReadFile(filepath.Join(g.state, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	change := `{"host":"site.test","action":"stop","reason":"owner_asked"}`
	for name, fields := range map[string][]string{
		"no token":    {"Content-Type", "application/json"},
		"wrong token": {"Content-Type", "application/json", "Authorization", "Bearer " + strings.Repeat("x", 32)},
		"cross site":  {"Content-Type", "application/json", "Authorization", "Bearer " + strings.TrimSpace(string(token)), "Sec-Fetch-Site", "cross-site"},
		"other host":  {"Content-Type", "application/json", "Authorization", "Bearer " + strings.TrimSpace(string(token)), "Host", "evil.example"},
	} {
		if status, _, body := ask(t, "POST", g.admin+"/api/ledger", change, fields...); status != 401 && status != 403 {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if r := g.cli(t, "sites", "list"); !strings.Contains(r.err, "the ledger is empty") {
		t.Errorf("the ledger was changed: %+v", r)
	}
	if status, _, body := ask(t, "POST", g.admin+"/api/ledger", change, "Content-Type", "application/json", "Authorization", "Bearer "+strings.TrimSpace(string(token))); status >= 300 {
		t.Errorf("with the token: %d %s", status, body)
	}
	if r := g.cli(t, "sites", "list"); !strings.Contains(r.out, "site.test  stop") {
		t.Errorf("%+v", r)
	}

	// It cannot be reached through the proxy, by any of its names.
	n := len(g.requests(t))
	for _, target := range []string{g.admin + "/metrics", "http://localhost:" + adminPort + "/metrics", "http://[::ffff:127.0.0.1]:" + adminPort + "/metrics", "http://" + proxyAddr + "/"} {
		a := curl(t, g, target)
		if a.status != 508 && a.status != 403 || a.header.Get("Crawlgate-Reason") == "" || strings.Contains(a.body, "crawlgate_") {
			t.Errorf("%s through the proxy: %+v", target, a)
		}
		if (strings.HasPrefix(target, g.admin) || strings.HasPrefix(target, g.proxy)) && (a.status != 508 || a.header.Get("Crawlgate-Reason") != "loop") {
			t.Errorf("%s through the proxy: %+v", target, a)
		}
	}
	for _, e := range g.waitEvents(t, n+4)[n:] {
		if e.Sent {
			t.Errorf("%+v", e)
		}
	}
	// The proxy port itself serves nothing but what a lost person needs.
	if status, h, body := ask(t, "GET", g.proxy+"/metrics", ""); status != 400 || h.Get("Crawlgate-Reason") != "bad-request" || !strings.Contains(body, "proxy port") {
		t.Errorf("the proxy port: %d %s", status, body)
	}
}
