package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"crawlgate/pacing"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// fetches builds a request of a fetcher that has these pages open (they answered 200) and was just sent to these targets.
func fetches(t testing.TB, method, target string, fields, pagesOpen, redirectedTo []string) *exchange {
	t.Helper()
	u, host, port, err := guard.ParseURL(target)
	must(t, err)
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, ": ")
		req.Header.Add(k, v)
	}
	rules := testRules(nil).compile()
	g := &Gate{pages: newPages()}
	x := &exchange{g: g, rules: rules, in: req, from: &inbound{ctx: req.Context(), r: req}, id: &identity{client: rules.open, session: "s"}, profile: rules.Default, url: u, target: u.String(), host: host, port: port}
	s := g.pages.session("s")
	for _, p := range pagesOpen {
		pu, ph, _, err := guard.ParseURL(p)
		must(t, err)
		s.opened = append(s.opened, &openPage{id: p, url: pu.String(), origin: pu.Scheme + "://" + pu.Host, host: ph.Name, status: 200})
	}
	for _, r := range redirectedTo {
		ru, rh, _, err := guard.ParseURL(r)
		must(t, err)
		g.pages.redirected("s", ru.String(), hop{count: 1, host: rh.Name, at: time.Now()})
	}
	return x
}

// What a request is: the rows of what a browser sends (proxy core, section 7), of what the specifications add, of what
// other tools send, and of what is forged.
func TestHTTPKinds(t *testing.T) {
	const page, other, cdn = "https://site.test/a?q=1", "https://site.test/b", "https://cdn.test/x.js"
	nav := func(site string, more ...string) []string {
		return append([]string{"Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: " + site, "Accept: text/html"}, more...)
	}
	file := func(dest, mode, site string, more ...string) []string {
		return append([]string{"Sec-Fetch-Dest: " + dest, "Sec-Fetch-Mode: " + mode, "Sec-Fetch-Site: " + site}, more...)
	}
	type want struct {
		kind       pacing.Kind
		denied     string
		document   bool
		thirdParty bool
		owned      bool
	}
	aPage, aFile := want{kind: pacing.Page, document: true}, want{kind: pacing.Subresource, owned: true}
	onlyPage := want{kind: pacing.Page} // no owner: waits as a page does, and asks for no document
	theirs := want{kind: pacing.Subresource, owned: true, thirdParty: true}
	frame := want{kind: pacing.Subresource, owned: true, document: true}
	for _, c := range []struct {
		name   string
		method string
		target string
		fields []string
		open   []string
		hops   []string
		want   want
	}{
		// the measured table
		{name: "navigation", target: page, fields: nav("none", "Sec-Fetch-User: ?1", "Upgrade-Insecure-Requests: 1"), want: aPage},
		{name: "style", target: other, fields: file("style", "no-cors", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "script", target: other, fields: file("script", "no-cors", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "image", target: other, fields: file("image", "no-cors", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "favicon", target: "https://site.test/favicon.ico", fields: file("image", "no-cors", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "third-party script, origin only", target: cdn, fields: file("script", "no-cors", "cross-site", "Referer: https://site.test/", "Sec-Fetch-Storage-Access: active"), open: []string{page}, want: theirs},
		{name: "third-party image", target: cdn, fields: file("image", "no-cors", "cross-site", "Referer: https://site.test/"), open: []string{page}, want: theirs},
		{name: "fetch", target: other, fields: file("empty", "cors", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "fetch with Origin", method: "POST", target: other, fields: file("empty", "cors", "same-origin", "Referer: "+page, "Origin: https://site.test"), open: []string{page}, want: aFile},
		{name: "EventSource", target: other, fields: file("empty", "cors", "same-origin", "Referer: "+page, "Accept: text/event-stream"), open: []string{page}, want: aFile},
		{name: "preflight", method: "OPTIONS", target: cdn, fields: file("empty", "cors", "cross-site", "Referer: https://site.test/", "Origin: https://site.test", "Access-Control-Request-Method: POST"), open: []string{page}, want: theirs},
		{name: "preflight on the same host", method: "OPTIONS", target: other, fields: file("empty", "cors", "same-site", "Origin: https://site.test", "Access-Control-Request-Method: GET"), open: []string{page}, want: aFile},
		{name: "sendBeacon", method: "POST", target: other, fields: file("empty", "no-cors", "same-origin", "Referer: "+page, "Origin: https://site.test"), open: []string{page}, want: aFile},
		{name: "WebSocket", target: other, fields: []string{"Connection: Upgrade", "Upgrade: websocket", "Origin: https://site.test"}, open: []string{page}, want: aFile},
		{name: "WebSocket to another host", target: cdn, fields: []string{"Connection: Upgrade", "Upgrade: websocket", "Origin: https://site.test"}, open: []string{page}, want: theirs},
		{name: "WebSocket of no page", target: other, fields: []string{"Connection: Upgrade", "Upgrade: websocket", "Origin: https://site.test"}, want: onlyPage},
		// from the specifications
		{name: "script navigation", target: other, fields: nav("same-origin", "Referer: "+page), open: []string{page}, want: want{kind: pacing.Page, document: true, denied: kindScript}},
		{name: "script navigation to another site", target: cdn, fields: nav("cross-site", "Referer: https://site.test/"), open: []string{page}, want: want{kind: pacing.Page, document: true, denied: kindScript}},
		{name: "click", target: other, fields: nav("same-origin", "Sec-Fetch-User: ?1", "Referer: "+page), open: []string{page}, want: aPage},
		{name: "driver with Referer of a page that is not open", target: other, fields: nav("cross-site", "Referer: https://elsewhere.test/"), open: []string{page}, want: aPage},
		{name: "navigation without Referer", target: other, fields: nav("cross-site"), open: []string{page}, want: aPage},
		{name: "redirect just answered", target: other, fields: nav("same-origin", "Referer: "+page), open: []string{page}, hops: []string{other}, want: want{kind: pacing.Redirect, document: true}},
		{name: "the same page again", target: page, fields: nav("none"), open: []string{page}, want: want{kind: pacing.Render, document: true, owned: true}},
		{name: "iframe", target: other, fields: file("iframe", "navigate", "same-origin", "Referer: "+page), open: []string{page}, want: frame},
		{name: "frame", target: other, fields: file("frame", "navigate", "same-origin", "Referer: "+page), open: []string{page}, want: frame},
		{name: "frame of another host", target: cdn, fields: file("iframe", "navigate", "cross-site", "Referer: https://site.test/"), open: []string{page}, want: want{kind: pacing.Subresource, owned: true, document: true, thirdParty: true}},
		{name: "worker", target: other, fields: file("worker", "same-origin", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "shared worker", target: other, fields: file("sharedworker", "same-origin", "same-origin", "Referer: "+page), open: []string{page}, want: aFile},
		{name: "service worker", target: other, fields: file("serviceworker", "same-origin", "same-origin", "Referer: "+page, "Service-Worker: script"), open: []string{page}, want: aFile},
		{name: "font", target: cdn, fields: file("font", "cors", "cross-site", "Origin: https://site.test"), open: []string{page}, want: theirs},
		{name: "prefetch", target: other, fields: nav("same-origin", "Sec-Purpose: prefetch", "Referer: "+page), open: []string{page}, want: want{kind: pacing.Page, document: true, denied: kindPrefetch}},
		{name: "old prefetch", target: other, fields: []string{"Purpose: prefetch"}, want: want{kind: pacing.Page, document: true, denied: kindPrefetch}},
		{name: "prerender", target: other, fields: nav("none", "Sec-Purpose: prefetch;prerender"), want: want{kind: pacing.Page, document: true, denied: kindPrefetch}},
		{name: "file of no open page", target: other, fields: file("script", "no-cors", "same-origin", "Referer: "+page), want: onlyPage},
		{name: "file without Referer", target: other, fields: file("image", "no-cors", "same-origin"), open: []string{page}, want: onlyPage},
		{name: "browser's own", target: "https://update.googleapis.com/service/update2/json", fields: nav("none"), want: want{kind: pacing.Page, document: true, denied: kindNoise}},
		{name: "DoH", target: "https://dns.google/dns-query", want: want{kind: pacing.Page, document: true, denied: kindNoise}},
		// other tools
		{name: "tool", target: page, want: aPage},
		{name: "tool again", target: page, open: []string{page}, want: want{kind: pacing.Repeat, document: true, owned: true}},
		{name: "tool asks for HTML again", target: page, fields: []string{"Accept: text/html,*/*"}, open: []string{page}, want: want{kind: pacing.Render, document: true, owned: true}},
		{name: "tool follows a redirect", target: other, open: []string{page}, hops: []string{other}, want: want{kind: pacing.Redirect, document: true}},
		{name: "declared page", target: other, fields: []string{"Crawlgate-Kind: page"}, open: []string{page}, want: aPage},
		{name: "declared file", target: other, fields: []string{"Crawlgate-Kind: subresource", "Crawlgate-Page: " + page}, open: []string{page}, want: aFile},
		{name: "declared file of another host's page", target: cdn, fields: []string{"Crawlgate-Kind: subresource", "Crawlgate-Page: " + page}, open: []string{page}, want: theirs},
		{name: "declared file of a page that is not open", target: other, fields: []string{"Crawlgate-Kind: subresource", "Crawlgate-Page: " + page}, want: aPage},
		{name: "declared file of no page", target: other, fields: []string{"Crawlgate-Kind: subresource"}, open: []string{page}, want: aPage},
		{name: "declared sitemap", target: "https://site.test/sitemap.xml", fields: []string{"Crawlgate-Kind: sitemap"}, want: want{kind: pacing.Sitemap}},
		{name: "declared nonsense", target: other, fields: []string{"Crawlgate-Kind: robots"}, want: aPage},
		{name: "browser on plain http, file", target: "http://site.test/x.css", fields: []string{"Accept: text/css,*/*", "Referer: http://site.test/p"}, open: []string{"http://site.test/p"}, want: aFile},
		{name: "browser on plain http, page", target: "http://site.test/q", fields: []string{"Accept: text/html", "Referer: http://site.test/p"}, open: []string{"http://site.test/p"}, want: aPage},
		{name: "tool with Referer on https", target: other, fields: []string{"Referer: " + page}, open: []string{page}, want: aPage},
		// forged, or not known
		{name: "declared by a script of the page", target: cdn, fields: file("empty", "cors", "cross-site", "Crawlgate-Kind: sitemap"), want: onlyPage},
		{name: "declared beside half of Sec-Fetch", target: other, fields: []string{"Sec-Fetch-Mode: cors", "Crawlgate-Kind: subresource", "Crawlgate-Page: " + page}, open: []string{page}, want: aPage},
		{name: "unknown destination", target: other, fields: file("gadget", "no-cors", "same-origin", "Referer: "+page), open: []string{page}, want: aPage},
		{name: "document that is no navigation", target: other, fields: file("document", "cors", "same-origin", "Referer: "+page), open: []string{page}, want: aPage},
	} {
		t.Run(c.name, func(t *testing.T) {
			method := c.method
			if method == "" {
				method = "GET"
			}
			k := fetches(t, method, c.target, c.fields, c.open, c.hops).classify()
			got := want{kind: k.kind, denied: k.denied, document: k.document, thirdParty: k.thirdParty, owned: k.owner != nil}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// The kinds a profile does not deny are what they are without it: a script's navigation is a page.
func TestHTTPKindsNotDenied(t *testing.T) {
	const page = "https://site.test/a"
	x := fetches(t, "GET", page, []string{"Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: same-origin", "Referer: " + page}, []string{page}, nil)
	x.profile.Limits.DenyKinds = nil
	if k := x.classify(); k.denied != "" || k.kind != pacing.Render {
		t.Errorf("%+v", k)
	}
}

// A page's time is over: what asks for its files waits as a page. Another fetcher's page is no reason either.
func TestHTTPKindsPageIsOver(t *testing.T) {
	const page = "https://site.test/a"
	fields := []string{"Sec-Fetch-Dest: image", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Site: same-origin", "Referer: " + page}
	x := fetches(t, "GET", "https://site.test/b", fields, []string{page}, nil)
	x.g.pages.session("s").opened[0].end = time.Now().Add(-time.Hour)
	if k := x.classify(); k.kind != pacing.Page {
		t.Errorf("long ended: %+v", k)
	}
	x = fetches(t, "GET", "https://site.test/b", fields, []string{page}, nil)
	x.id.session = "another"
	if k := x.classify(); k.kind != pacing.Page {
		t.Errorf("another fetcher's: %+v", k)
	}
}

// Files ride along while their page's host owes its gap; pages wait; the same page again rides once.
func TestHTTPFilesRide(t *testing.T) {
	r := newRig(t)
	o := r.origin("ride.test", true, "", hello)
	third := r.origin("third.test", true, "User-agent: *\nDisallow: /no\n", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Pacing.Gap, ru.Default.Pacing.Parallel = 400*time.Millisecond, 1 }})
	c := r.client(true)
	page := o.url("https", "/p")
	kind := func(u string, want string, waits bool, fields ...string) {
		t.Helper()
		resp, b := r.get(c, u, fields...)
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", u, resp.StatusCode, b)
		}
		ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
		if ev.Kind != want || (ev.TurnWaitMS > 100) != waits {
			t.Errorf("%s: a %s that waited %d ms", u, ev.Kind, ev.TurnWaitMS)
		}
		if waits != (resp.Header.Get("Crawlgate-Waited") != "") {
			t.Errorf("%s: Crawlgate-Waited %q", u, resp.Header.Get("Crawlgate-Waited"))
		}
	}
	kind(page, "page", true, "Accept", "text/html") // after robots.txt
	for i := range 5 {
		kind(o.url("https", fmt.Sprintf("/f%d", i)), "subresource", false, "Sec-Fetch-Dest", "image", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "same-origin", "Referer", page)
	}
	kind(page, "render", false, "Accept", "text/html")
	kind(page, "page", true, "Accept", "text/html")
	// Another host's file: no turn there, and its robots.txt is not read for it, but binds once it is known.
	origin := fmt.Sprintf("https://ride.test:%d/", o.port)
	file := []string{"Sec-Fetch-Dest", "script", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "cross-site", "Referer", origin}
	kind(third.url("https", "/no/x.js"), "subresource", false, file...)
	if third.robot != 0 {
		t.Error("robots.txt of a third party was read")
	}
	kind(third.url("https", "/page"), "page", true)
	resp, _ := r.get(c, third.url("https", "/no/x.js"), file...)
	if resp.StatusCode != 403 || resp.Header.Get("Crawlgate-Reason") != "robots-disallow" {
		t.Errorf("once it is known: %d", resp.StatusCode)
	}
	if n := r.gate.GapShortfalls(); n != 0 {
		t.Errorf("%d gaps below the promise", n)
	}
}

// robots.third_party: own reads the other host's robots.txt first; a frame is a document and asks in any case.
func TestHTTPThirdPartyOwn(t *testing.T) {
	for _, own := range []bool{true, false} {
		r := newRig(t)
		o := r.origin("own.test", true, "", hello)
		third := r.origin("thirdown.test", true, "User-agent: *\nDisallow: /no\n", hello)
		r.start(rigOptions{rules: func(ru *Rules) {
			if own {
				ru.Default.Robots.ThirdParty = "own"
			}
		}})
		c := r.client(true)
		r.get(c, o.url("https", "/p"), "Accept", "text/html")
		dest := "iframe"
		if own {
			dest = "image"
		}
		resp, _ := r.get(c, third.url("https", "/no/x"), "Sec-Fetch-Dest", dest, "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "cross-site", "Referer", fmt.Sprintf("https://own.test:%d/", o.port))
		if resp.StatusCode != 403 || resp.Header.Get("Crawlgate-Reason") != "robots-disallow" {
			t.Errorf("own=%v: %d %s", own, resp.StatusCode, resp.Header.Get("Crawlgate-Reason"))
		}
	}
}

// A signature goes to the page's own host and to none that its files are on; a preflight is signed as the request it
// announces would be, and needs no OPTIONS in methods.
func TestHTTPSignedKinds(t *testing.T) {
	r := newRig(t)
	o := r.origin("signed.test", true, "", hello)
	third := r.origin("cdn.test", true, "", hello)
	agents := []sign.Agent{{Name: "example", SignatureAgent: "https://bot.example", Token: "ExampleBot", UserAgent: "ExampleBot/1.0"}}
	ring := sign.Keyring{StateDir: r.dir, Config: sign.Defaults(), Publish: sign.PublishDefaults(), Agents: agents}
	if _, err := ring.New("example"); err != nil {
		t.Fatal(err)
	}
	r.start(rigOptions{agents: agents})
	c := r.client(true)
	page := o.url("https", "/p")
	r.get(c, page, "Accept", "text/html")
	r.get(c, o.url("https", "/x.png"), "Sec-Fetch-Dest", "image", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "same-origin", "Referer", page)
	options := func(site *origin) {
		req, err := http.NewRequest(http.MethodOptions, site.url("https", "/api"), nil)
		must(t, err)
		req.Header = http.Header{"Origin": {fmt.Sprintf("https://signed.test:%d", o.port)}, "Access-Control-Request-Method": {"POST"}, "Sec-Fetch-Dest": {"empty"}, "Sec-Fetch-Mode": {"cors"}}
		resp, err := c.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("preflight: %d", resp.StatusCode)
		}
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Kind != "subresource" {
			t.Errorf("preflight is a %s", ev.Kind)
		}
	}
	options(o)
	options(third)
	r.get(c, third.url("https", "/lib.js"), "Sec-Fetch-Dest", "script", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "cross-site", "Referer", fmt.Sprintf("https://signed.test:%d/", o.port))
	for _, req := range o.requests() {
		if req.Header.Get("Signature") == "" {
			t.Errorf("%s %s is not signed", req.Method, req.URL)
		}
	}
	for _, req := range third.requests() {
		if req.Header.Get("Signature") != "" {
			t.Errorf("%s %s to a third party is signed", req.Method, req.URL)
		}
	}
	if len(o.requests()) != 3 || len(third.requests()) != 2 {
		t.Errorf("%d and %d requests", len(o.requests()), len(third.requests()))
	}
	// An OPTIONS that is no preflight, and a preflight for a method that is not allowed.
	for _, h := range []http.Header{{}, {"Origin": {"https://signed.test"}}, {"Origin": {"https://signed.test"}, "Access-Control-Request-Method": {"DELETE"}}} {
		req, err := http.NewRequest(http.MethodOptions, o.url("https", "/api"), nil)
		must(t, err)
		req.Header = h
		resp, err := c.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 405 {
			t.Errorf("%v: %d", h, resp.StatusCode)
		}
	}
}
