package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"crawlgate/allowlist"
)

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestPathPlainAndIntercepted(t *testing.T) {
	r := newRig(t)
	plain := r.origin("plain.test", false, "User-agent: *\nDisallow: /private/\n", hello)
	secure := r.origin("secure.test", true, "User-agent: ExampleBot\nDisallow: /private/\n", hello)
	r.start(rigOptions{})
	for _, c := range []struct {
		name string
		h2   bool
		url  string
	}{
		{"plain", false, plain.url("http", "/a?q=1")},
		{"h1", false, secure.url("https", "/a?q=1")},
		{"h2", true, secure.url("https", "/b?q=1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := r.get(r.client(c.h2), c.url, "User-Agent", "curl/8", "X-Forwarded-For", "10.0.0.1", "Via", "1.1 other")
			if resp.StatusCode != 200 || body != "hello" {
				t.Fatalf("got %d %q", resp.StatusCode, body)
			}
			if resp.Header.Get("Crawlgate-Reason") != "" {
				t.Errorf("an answer of the site carries Crawlgate-Reason")
			}
			ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
			if ev.Decision != "forwarded" || ev.Status != 200 || !ev.Sent || ev.Upstream.IP != "127.0.0.1" || ev.BytesIn != 5 || ev.Intercepted != (c.name != "plain") {
				t.Errorf("event %+v", ev)
			}
		})
	}
	for _, o := range []*origin{plain, secure} {
		for _, req := range o.requests() {
			if ua := req.Header.Get("User-Agent"); ua != "ExampleBot/1.0 (+https://bot.example/about)" {
				t.Errorf("%s saw user agent %q", o.name, ua)
			}
			for _, f := range []string{"X-Forwarded-For", "Via", "Proxy-Connection", "Accept-Encoding"} {
				if v := req.Header.Get(f); v != "" {
					t.Errorf("%s saw %s: %s", o.name, f, v)
				}
			}
		}
	}
}

func TestRefusalInside(t *testing.T) {
	r := newRig(t)
	secure := r.origin("secure.test", true, "User-agent: ExampleBot\nDisallow: /private/\n", hello)
	r.start(rigOptions{})
	resp, body := r.get(r.client(true), secure.url("https", "/private/x"))
	if resp.StatusCode != 403 || resp.Header.Get("Crawlgate-Reason") != "robots-disallow" {
		t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
	}
	var p problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatal(err)
	}
	if p.Rule != "Disallow: /private/" || p.Line != 2 || p.Group != "ExampleBot" || p.Status != 403 || p.URL != secure.url("https", "/private/x") {
		t.Errorf("problem %+v", p)
	}
	if ps := resp.Header.Get("Proxy-Status"); !strings.HasPrefix(ps, `crawlgate;error=http_request_denied;details="robots-disallow: line 2"`) {
		t.Errorf("Proxy-Status %q", ps)
	}
	if n := len(secure.requests()); n != 0 {
		t.Errorf("the site saw %d requests", n)
	}
	ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
	if ev.Decision != "refused" || ev.Sent || ev.Rule.Line != 2 || ev.Robots.SHA256 == "" {
		t.Errorf("event %+v", ev)
	}
}

// The operator's stop answers before anything else: before the address, the list and robots.txt.
func TestStopComesFirst(t *testing.T) {
	r := newRig(t)
	o := r.origin("stopped.test", false, "User-agent: *\nDisallow: /\n", hello)
	r.start(rigOptions{})
	for _, host := range []string{"stopped.test", "10.0.0.9"} {
		if _, err := r.ledger.Stop(allowlist.Entry{Host: host, Reason: "owner's mail"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range []string{o.url("http", "/"), "http://10.0.0.9/", "http://10.0.0.9:25/"} {
		resp, body := r.get(r.client(false), u)
		if resp.Header.Get("Crawlgate-Reason") != "site-stopped" || !strings.Contains(body, "owner's mail") {
			t.Errorf("%s: %d %s", u, resp.StatusCode, body)
		}
	}
	if o.robot+len(o.requests()) != 0 {
		t.Error("the site was asked")
	}
}

// In report-only mode what the rules refuse goes out and is noted; addresses, ports and stops are enforced all the same.
func TestReportOnly(t *testing.T) {
	r := newRig(t)
	o := r.origin("report.test", false, "User-agent: *\nDisallow: /private/\n", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Enforce = false }})
	resp, _ := r.get(r.client(false), o.url("http", "/private/x"))
	if resp.StatusCode != 200 {
		t.Fatalf("got %d", resp.StatusCode)
	}
	if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.WouldDeny != "robots-disallow" || ev.Decision != "forwarded" {
		t.Errorf("event %+v", ev)
	}
	resp, _ = r.get(r.client(false), o.url("http", "/a"), "Sec-Purpose", "prefetch")
	if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); resp.StatusCode != 200 || ev.WouldDeny != "kind-denied" {
		t.Errorf("prefetch: %d %+v", resp.StatusCode, ev)
	}
	for u, code := range map[string]string{"http://10.0.0.1/": "address-denied", "http://report.test:25/": "port-denied"} {
		if resp, _ := r.get(r.client(false), u); resp.Header.Get("Crawlgate-Reason") != code {
			t.Errorf("%s: %q", u, resp.Header.Get("Crawlgate-Reason"))
		}
	}
}
