package proxy

import (
	"net/http"
	"testing"

	"crawlgate/audit"
	"crawlgate/policy"
	"crawlgate/sign"
)

// TestSignFailed: what can't be signed is not sent unsigned, neither a page nor its robots.txt. The signer here knows
// another agent than the rules do.
func TestSignFailed(t *testing.T) {
	for mode, kind := range map[string]string{policy.ModeObey: "robots", policy.ModeIgnore: "page"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t)
			o := r.origin("site.test", true, "", func(http.ResponseWriter, *http.Request) {})
			plain := r.origin("plain.test", false, "", func(http.ResponseWriter, *http.Request) {})
			r.start(rigOptions{agents: []sign.Agent{{Name: "other"}}, rules: func(rules *Rules) { rules.Default.Robots.Mode = mode }})
			resp, body := r.get(r.client(true), o.url("https", "/a"))
			if resp.StatusCode != 503 || resp.Header.Get("Crawlgate-Reason") != "sign-failed" {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
			}
			if e := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); e.Reason != "sign-failed" || e.Sent || e.Sig.KeyID != "" {
				t.Errorf("%+v", e)
			}
			r.waitEvent("the "+kind+" that could not be signed", func(e *audit.Event) bool { return e.Kind == kind && e.Sig.State == "failed" && !e.Sent })
			if got := o.requests(); len(got) != 0 || o.robot != 0 {
				t.Errorf("%d requests arrived, and %d for robots.txt", len(got), o.robot)
			}
			// What is not to be signed goes out as ever.
			if resp, _ := r.get(r.client(false), plain.url("http", "/a")); resp.StatusCode != 200 || len(plain.requests()) != 1 {
				t.Errorf("plain http: %d", resp.StatusCode)
			}
		})
	}
}
