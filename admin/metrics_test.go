package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"crawlgate/audit"
)

// designReasons is the list of codes, written down once more on purpose.
const designReasons = `auth-required auth-failed identity-missing profile-denied job-required job-exhausted job-off-site
bad-request host-mismatch kind-denied scheme-denied port-denied method-denied body-denied site-denied site-stopped
address-denied dns-failed robots-disallow robots-signal robots-unreadable robots-challenge turn-too-far host-backoff
host-stopped url-left identity-switch too-many-redirects response-too-large upstream-failed upstream-timeout upstream-tls
loop overloaded draining sign-failed audit-unavailable internal`

func scrape(t *testing.T, s *Server) string {
	t.Helper()
	w := get(s, "/metrics")
	if w.Code != 200 {
		t.Fatalf("metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func has(t *testing.T, text, line string) {
	t.Helper()
	if !strings.Contains("\n"+text, "\n"+line+"\n") {
		t.Errorf("no line %q", line)
	}
}

// An alert on a reason needs its series before the first time it happens.
func TestReasonsArePreset(t *testing.T) {
	s := newServer(t, nil)
	text := scrape(t, s)
	codes := strings.Fields(designReasons)
	for _, code := range codes {
		has(t, text, fmt.Sprintf("crawlgate_refusals_total{reason=%q} 0", code))
	}
	if n := strings.Count(text, "\ncrawlgate_refusals_total{"); n != len(codes)+1 { // and "other"
		t.Errorf("%d series, want %d", n, len(codes)+1)
	}
	if got := strings.Join(Reasons(), " "); got != strings.Join(codes, " ") {
		t.Errorf("Reasons() is %s", got)
	}
}

func TestCounters(t *testing.T) {
	s := newServer(t, nil)
	s.Observe(event(1, "https://example.com/a", func(e *audit.Event) {
		e.BytesIn, e.BytesOut = 1000, 20
		e.Sig.State = "signed"
	}))
	s.Observe(event(2, "https://example.com/b", func(e *audit.Event) { e.Status = 429; e.TurnWaitMS = 3000 }))
	s.Observe(event(3, "https://example.com/c", refusal("robots-disallow")))
	s.Observe(event(4, "https://example.com/c", refusal("host-backoff")))
	s.Observe(event(5, "https://example.com/c", refusal("a-code-of-tomorrow")))
	s.Observe(event(6, "https://example.com/d", func(e *audit.Event) { e.Decision, e.Status, e.Reason = audit.Failed, 0, "upstream-timeout" }))
	s.Observe(event(7, "https://example.com/robots.txt", func(e *audit.Event) {
		e.Type, e.Kind, e.Client = audit.TypeRobots, "robots", audit.Client{}
	}))
	s.Observe(event(8, "", func(e *audit.Event) { *e = audit.Event{Type: audit.TypeGap, Seq: 8, Lost: 4} }))
	s.Observe(event(9, "https://example.com/e", func(e *audit.Event) { e.WouldDeny = "site-denied"; e.Kind = "a-kind-of-tomorrow" }))
	s.Observe(event(10, "", func(e *audit.Event) { e.Type = audit.TypeIntent }))
	s.Observe(event(11, "", func(e *audit.Event) { e.Type, e.Kind, e.Status, e.BytesIn = audit.TypeTunnel, "", 0, 500 }))
	text := scrape(t, s)
	for _, line := range []string{
		`crawlgate_requests_total{decision="forwarded",kind="page"} 2`,
		`crawlgate_requests_total{decision="forwarded",kind="robots"} 1`,
		`crawlgate_requests_total{decision="forwarded",kind="other"} 2`,
		`crawlgate_requests_total{decision="refused",kind="page"} 3`,
		`crawlgate_requests_total{decision="failed",kind="page"} 1`,
		`crawlgate_refusals_total{reason="robots-disallow"} 1`,
		`crawlgate_refusals_total{reason="host-backoff"} 1`,
		`crawlgate_refusals_total{reason="other"} 1`,
		`crawlgate_would_deny_total{reason="site-denied"} 1`,
		`crawlgate_turns_refused_total{reason="host-backoff"} 1`,
		`crawlgate_turns_total{kind="page",outcome="good"} 1`,
		`crawlgate_turns_total{kind="page",outcome="throttle"} 1`,
		`crawlgate_turns_total{kind="page",outcome="failure"} 1`,
		`crawlgate_turns_total{kind="robots",outcome="good"} 1`,
		`crawlgate_turn_wait_seconds_bucket{kind="page",le="0.5"} 2`,
		`crawlgate_turn_wait_seconds_count{kind="page"} 3`,
		`crawlgate_turn_hold_seconds_bucket{kind="page",le="0.25"} 3`,
		`crawlgate_upstream_responses_total{class="2xx"} 3`,
		`crawlgate_upstream_responses_total{class="4xx"} 1`,
		`crawlgate_turns_total{kind="other",outcome="good"} 2`, // the tunnel is one
		`crawlgate_events_total{type="tunnel"} 1`,
		`crawlgate_body_bytes_total{direction="in"} 1500`,
		`crawlgate_body_bytes_total{direction="out"} 20`,
		`crawlgate_signatures_total{state="signed"} 1`,
		`crawlgate_events_total{type="gap"} 1`,
		`crawlgate_events_total{type="intent"} 1`,
		`crawlgate_audit_gap_events_total 4`,
	} {
		has(t, text, line)
	}
	if strings.Contains(text, "example.com") {
		t.Error("a host is a label")
	}
}

func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		decision string
		status   int
		want     string
	}{
		{"forwarded", 200, "good"}, {"forwarded", 304, "good"}, {"forwarded", 404, "good"}, {"forwarded", 410, "good"},
		{"forwarded", 301, "redirected"}, {"forwarded", 401, "refusal"}, {"forwarded", 403, "refusal"}, {"forwarded", 451, "refusal"},
		{"forwarded", 429, "throttle"}, {"forwarded", 503, "throttle"}, {"forwarded", 500, "failure"}, {"failed", 0, "failure"}, {"cancelled", 200, "aborted"},
	} {
		r := record{Decision: tt.decision, Status: tt.status, Sent: true}
		if got := r.outcome(); got != tt.want {
			t.Errorf("%s %d: %s, want %s", tt.decision, tt.status, got, tt.want)
		}
	}
}

func TestGauges(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Version = "v1.2.3"
		o.Ready = func() []Check { return []Check{{Name: "redis"}} }
		o.Gauges = func() Gauges {
			return Gauges{
				TurnsWaiting: 3, TurnsInFlight: 2, Hosts: map[string]int{"known": 9, "owing": 1, "example.com": 7}, Incidents: map[string]uint64{"throttle": 5},
				ConfigReloadOK: true, ConfigReloadAt: time.Unix(1700000000, 0), CAExpires: time.Unix(1800000000, 0),
				KeyExpires: map[string]time.Time{"example": time.Unix(1900000000, 0), "none": {}}, AuditQueue: 4, AuditQueueMax: 8192, AuditSeq: 77, ClockOffset: -1500 * time.Millisecond,
			}
		}
	})
	text := scrape(t, s)
	for _, line := range []string{
		`crawlgate_turns_waiting 3`, `crawlgate_turns_in_flight 2`, `crawlgate_hosts{state="known"} 9`, `crawlgate_hosts{state="stopped"} 0`,
		`crawlgate_incidents_total{class="throttle"} 5`, `crawlgate_incidents_total{class="failure"} 0`, `crawlgate_turn_gap_shortfall_total 0`,
		`crawlgate_turn_overrun_total{limit="stall_timeout"} 0`, `crawlgate_lease_lost_total 0`, `crawlgate_store_errors_total 0`, `crawlgate_store_round_trips_total 0`,
		`crawlgate_config_last_reload_success 1`, `crawlgate_config_last_reload_timestamp_seconds 1.7e+09`, `crawlgate_ca_expiry_timestamp_seconds 1.8e+09`,
		`crawlgate_key_expiry_timestamp_seconds{agent="example"} 1.9e+09`, `crawlgate_audit_queue_events 4`, `crawlgate_audit_queue_limit_events 8192`,
		`crawlgate_audit_sequence 77`, `crawlgate_clock_offset_seconds -1.5`, `crawlgate_ready 0`, `crawlgate_admin_stream_readers 0`,
	} {
		has(t, text, line)
	}
	if strings.Contains(text, "example.com") || strings.Contains(text, `agent="none"`) {
		t.Error("a label outside its closed set")
	}
	if !strings.Contains(text, `crawlgate_build_info{go="go`) || !strings.Contains(text, `version="v1.2.3"`) {
		t.Error("no build info")
	}
}

func TestDeniedAreCounted(t *testing.T) {
	s := newServer(t, nil)
	ask(s.Handler(), "GET", "/", "evil.example", "")
	get(s, "/", "Sec-Fetch-Site: cross-site")
	ask(s.Handler(), "DELETE", "/api/ledger", ownHost, "")
	ask(s.Handler(), "PUT", "/", ownHost, "")
	text := scrape(t, s)
	for _, why := range deniedWhys {
		has(t, text, fmt.Sprintf("crawlgate_admin_denied_total{why=%q} 1", why))
	}
}

func TestMetricNames(t *testing.T) {
	s := newServer(t, func(o *Options) { o.Gauges = func() Gauges { return Gauges{} } })
	problems, err := testutil.GatherAndLint(s.metrics.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "crawlgate_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Two servers in one process do not share anything, the default registry least.
func TestOwnRegistry(t *testing.T) {
	a, b := newServer(t, nil), newServer(t, nil)
	a.Observe(event(1, "https://example.com/", refusal("loop")))
	has(t, scrape(t, a), `crawlgate_refusals_total{reason="loop"} 1`)
	has(t, scrape(t, b), `crawlgate_refusals_total{reason="loop"} 0`)
	mfs, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, mf := range mfs {
		if strings.HasPrefix(mf.GetName(), "crawlgate_") {
			t.Errorf("%s is in the default registry", mf.GetName())
		}
	}
}
