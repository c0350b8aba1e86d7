package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
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
