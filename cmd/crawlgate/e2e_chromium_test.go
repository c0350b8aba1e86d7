package main

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"crawlgate/proxy/guard/dnstest"
)

// chromium loads a page by way of the gate and gives the document as it stands when its scripts are done.
func chromium(t *testing.T, g *gate, url string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--user-data-dir=" + dir, "--proxy-server=" + g.proxy, "--proxy-bypass-list=<-loopback>", "--ignore-certificate-errors-spki-list=" + spkiPin(t, g.ca),
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-domain-reliability", "--disable-client-side-phishing-detection",
		"--disable-default-apps", "--disable-extensions", "--metrics-recording-only", "--disable-features=OptimizationHints,OptimizationGuideModelDownloading,MediaRouter,Translate,NetworkTimeServiceQuerying",
		"--virtual-time-budget=20000", "--timeout=60000", "--dump-dom"}
	r := execute(t, bareEnv(dir), "chromium", append(append(args, more...), url)...)
	if r.code != 0 {
		t.Fatalf("chromium: exit %d: %s", r.code, r.err)
	}
	return r.out
}

// spkiPin is the hash of a certificate's key, as Chromium wants it.
func spkiPin(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("%s holds no certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// site is a page with a style, a script, a picture, a file that robots.txt forbids, one of a private host, and a
// script that fetches data and reads a refusal.
func site(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/style.css":
		w.Header().Set("Content-Type", "text/css")
		_, _ = io.WriteString(w, "p { color: rgb(1, 2, 3) }")
	case path == "/app.js":
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = io.WriteString(w, `const say = (id, s) => { document.getElementById(id).textContent = s };
addEventListener('load', async () => {
  say('style', getComputedStyle(document.getElementById('style')).color);
  say('picture', 'width ' + document.getElementById('pic').naturalWidth);
  say('agent', navigator.userAgent);
  say('data', await (await fetch('/data.json')).text());
  const no = await fetch('/private/api.json');
  const problem = await no.json();
  say('refused', [no.status, no.headers.get('crawlgate-reason'), problem.reason, problem.rule, problem.line].join(' | '));
  say('lan', await fetch('https://lan.test/secret', {mode: 'no-cors'}).then(r => 'answered ' + r.type, e => 'failed'));
  document.title = 'done';
});`)
	case path == "/pic.svg":
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="7" height="5"/>`)
	case path == "/data.json":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"answer":42}`)
	case path == "/favicon.ico":
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Accept-CH", "Sec-CH-UA-Full-Version-List, Sec-CH-UA-Model")
		fmt.Fprintf(w, `<!doctype html><title>%s</title><link rel=stylesheet href=/style.css><script src=/app.js></script>
<p id=style>-</p><p id=picture>-</p><p id=agent>-</p><p id=data>-</p><p id=refused>-</p><p id=lan>-</p>
<img id=pic src=/pic.svg><img src=/private/hidden.svg><img src=https://lan.test/pixel.png>`, path)
	}
}

// TestChromium loads a page with everything a browser asks for, while curl asks the same site for pages.
func TestChromium(t *testing.T) {
	t.Parallel()
	h2 := newOrigin(t, tlsH2, func(o *origin) {
		o.robots = "User-agent: *\nDisallow: /private/\n"
		o.handle = site
	}, "shop.test")
	dns := dnstest.New(t, func(dnstest.Question) dnstest.Reply {
		return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	})
	g, key := startSigned(t, gateConfig{origins: []*origin{h2}, hosts: []string{"10.1.1.1 lan.test"}, egress: []string{"dns: [" + dns.Addr + "]"}})

	fetched := make(chan answer, 2)
	go func() {
		defer close(fetched)
		for _, path := range []string{"/curl-1", "/curl-2"} {
			fetched <- curl(t, g, h2.url(path))
		}
	}()
	dom := chromium(t, g, h2.url("/page"), "--user-agent="+agentUA)
	for a := range fetched {
		if a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
	for _, want := range []string{
		"<title>done</title>", `<p id="style">rgb(1, 2, 3)</p>`, `<p id="picture">width 7</p>`, `<p id="agent">` + agentUA + `</p>`, `<p id="data">{"answer":42}</p>`,
		`<p id="refused">403 | robots-disallow | robots-disallow | Disallow: /private/ | 2</p>`,
	} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %s:\n%s", want, dom)
		}
	}

	all := h2.arrivals()
	agentOnly(t, all)
	got := uris(all)
	if got[0] != "GET /robots.txt" {
		t.Errorf("first came %s", got[0])
	}
	for _, want := range []string{"GET /page", "GET /style.css", "GET /app.js", "GET /pic.svg", "GET /data.json", "GET /curl-1", "GET /curl-2"} {
		if n := strings.Count(strings.Join(got, "\n")+"\n", want+"\n"); n != 1 {
			t.Errorf("%s came %d times: %v", want, n, got)
		}
	}
	var pages []arrival
	for _, a := range all {
		if strings.HasPrefix(a.URI, "/private") {
			t.Errorf("%s arrived", a.URI)
		}
		if a.Proto != "HTTP/2.0" {
			t.Errorf("%s came by %s", a.URI, a.Proto)
		}
		if a.URI == "/page" || strings.HasPrefix(a.URI, "/curl-") {
			pages = append(pages, a)
		}
	}
	apart(t, pages, time.Second)
	verified(t, key, h2, all)

	files := 0
	for _, e := range g.requests(t) {
		path := strings.TrimPrefix(e.URL, h2.url(""))
		switch {
		case e.Class == "browser_noise":
			if e.Reason != "kind-denied" || e.Sent {
				t.Errorf("the browser's own traffic: %+v", e)
			}
		case e.Host == "lan.test":
			if e.Reason != "address-denied" || e.Class != "addr_private" || e.Sent {
				t.Errorf("%+v", e)
			}
		case strings.HasPrefix(path, "/private/"):
			if e.Reason != "robots-disallow" || e.Sent || e.Rule.Line != 2 {
				t.Errorf("%+v", e)
			}
		case slices.Contains([]string{"/style.css", "/app.js", "/pic.svg", "/data.json"}, path):
			files++
			if e.Kind != "subresource" || e.Decision != "forwarded" || e.TurnWaitMS > 900 {
				t.Errorf("a page's file did not ride along: %+v", e)
			}
		case path == "/page", strings.HasPrefix(path, "/curl-"):
			if e.Kind != "page" || e.Sig.State != "signed" {
				t.Errorf("%+v", e)
			}
		}
	}
	if files != 4 {
		t.Errorf("%d files in the log", files)
	}
	for _, q := range dns.Questions() {
		if strings.HasSuffix(q.Name, "google.com") || strings.HasSuffix(q.Name, "googleapis.com") || strings.HasSuffix(q.Name, "gvt1.com") {
			t.Errorf("looked up for the browser itself: %s", q.Name)
		}
	}
}

// TestChromiumRefused: a navigation that is refused shows a page that says why; without --user-agent the browser's own
// name and hints do not reach the site either.
func TestChromiumRefused(t *testing.T) {
	t.Parallel()
	h1 := newOrigin(t, tlsH1, func(o *origin) {
		o.robots = "User-agent: ExampleBot\nDisallow: /closed\n"
	}, "closed.test")
	g := startGate(t, gateConfig{origins: []*origin{h1}})
	dom := chromium(t, g, h1.url("/closed/<b>x</b>"))
	for _, want := range []string{"robots-disallow", "Disallow: /closed", "line 2"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page does not say %q:\n%s", want, dom)
		}
	}
	if strings.Contains(dom, "<b>x") || strings.Contains(dom, "<script") || strings.Contains(dom, "<a ") {
		t.Errorf("the page holds markup of the URL, a script or a link:\n%s", dom)
	}
	if dom := chromium(t, g, h1.url("/open")); !strings.Contains(dom, "page /open") {
		t.Errorf("%s", dom)
	}
	for _, a := range h1.arrivals() {
		if strings.HasPrefix(a.URI, "/closed") {
			t.Errorf("%s arrived", a.URI)
		}
	}
	agentOnly(t, h1.arrivals())
}
