package proxy

import (
	"net/http"
	"testing"
	"time"

	"crawlgate/audit"
	"crawlgate/pacing"
)

// Of several Retry-After lines the longest counts, for the host and in the event; what is none counts for neither.
func TestHTTPRetryAfterTwice(t *testing.T) {
	r := newRig(t)
	var lines []string
	o := r.origin("later.test", false, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Retry-After"] = lines
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	r.start(rigOptions{rules: ignoring})
	for _, c := range []struct {
		lines []string
		asked int64
	}{{[]string{"+600"}, 0}, {[]string{"5", "300", "soon"}, 300}} {
		r.pacer.Resume("later.test")
		lines = c.lines
		resp, _ := r.get(r.client(false), o.url("http", "/"))
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.RetryAfterS != c.asked || ev.Decision != audit.Forwarded {
			t.Errorf("%q: the event says %d, %s", c.lines, ev.RetryAfterS, ev.Reason)
		}
		r.noTurnsLeft()
		if held := time.Until(r.pacer.Peek(pacing.Request{Key: "later.test"}).HoldUntil); c.asked > 0 && held < 250*time.Second || c.asked == 0 && held > 250*time.Second {
			t.Errorf("%q: left alone for %v", c.lines, held)
		}
	}
}
