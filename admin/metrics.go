package admin

import (
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"crawlgate/audit"
)

// metrics are the counters that events feed. Every label has a closed set of
// values, all of them there from the start; a host is never a label, there are
// millions.
type metrics struct {
	registry *prometheus.Registry
	serve    http.Handler

	// Those of every event are looked up once, and not by hashes of labels each time.
	events    map[string]prometheus.Counter    // type
	requests  map[[2]string]prometheus.Counter // decision, kind
	turns     map[[2]string]prometheus.Counter // kind, outcome
	turnWait  map[string]prometheus.Observer   // kind
	turnHold  map[string]prometheus.Observer   // kind
	responses [5]prometheus.Counter            // class
	in        prometheus.Counter               // bytes
	out       prometheus.Counter
	stored    prometheus.Counter
	signed    map[string]prometheus.Counter  // state
	duration  map[string]prometheus.Observer // decision

	refusals  *prometheus.CounterVec // reason
	wouldDeny *prometheus.CounterVec // reason
	noTurn    *prometheus.CounterVec // reason
	asked     *prometheus.CounterVec // outcome
	kept      prometheus.Counter
	lost      prometheus.Counter
	denied    *prometheus.CounterVec // why
}

// Closed sets of the labels that no other file has.
var (
	eventTypes      = []string{"request", "robots", "intent", "tunnel", "config", "start", "stop", "gap", "checkpoint"}
	statusClasses   = []string{"1xx", "2xx", "3xx", "4xx", "5xx"}
	signatureStates = []string{"signed", "not-listed", "cross-site", "http", "tunnel", "never", "disabled", "failed"}
	revalidations   = []string{audit.AskedWhether, audit.Unchanged, audit.Spared, audit.AskedInFull}
	deniedWhys      = []string{"host", "cross_site", "token", "method"}
)

// Waits reach from a free turn to a Crawl-delay of minutes; answers take up to
// the limits of a profile.
var (
	waitBuckets = []float64{0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300}
	holdBuckets = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600}
)

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	events := counter("crawlgate_events_total", "Audit events recorded, by type.", "type")
	requests := counter("crawlgate_requests_total", "Requests of clients and robots.txt fetches of the gate, by decision and kind.", "decision", "kind")
	m.refusals = counter("crawlgate_refusals_total", "Requests that the gate refused, by reason code.", "reason")
	m.wouldDeny = counter("crawlgate_would_deny_total", "Requests that report-only mode let pass, by the reason that would have refused them.", "reason")
	turns := counter("crawlgate_turns_total", "Requests sent, by kind and by what the site made of them.", "kind", "outcome")
	turnWait := histogram("crawlgate_turn_wait_seconds", "Time a request that was sent waited for its turn.", waitBuckets, "kind")
	turnHold := histogram("crawlgate_turn_hold_seconds", "Time from the first byte sent to the end of the answer.", holdBuckets, "kind")
	m.noTurn = counter("crawlgate_turns_refused_total", "Requests that got no turn, by reason code.", "reason")
	responses := counter("crawlgate_upstream_responses_total", "Answers of sites, by class of status.", "class")
	bytes := counter("crawlgate_body_bytes_total", "Body bytes from sites (in), to sites (out) and from kept answers in place of a site's (stored).", "direction")
	m.asked = counter("crawlgate_revalidations_total", "Requests for which an answer was kept, by what the site was asked and said.", "outcome")
	signed := counter("crawlgate_signatures_total", "Requests sent, by state of their Web Bot Auth signature.", "state")
	duration := histogram("crawlgate_request_seconds", "Time from a request's arrival to its end, the wait included, by decision.", holdBuckets, "decision")
	m.denied = counter("crawlgate_admin_denied_total", "Requests that the admin or publish listener refused.", "why")
	m.lost = prometheus.NewCounter(prometheus.CounterOpts{Name: "crawlgate_audit_gap_events_total", Help: "Events that the audit log says were lost."})
	m.kept = prometheus.NewCounter(prometheus.CounterOpts{Name: "crawlgate_answers_kept_total", Help: "Answers of sites that were put into the store."})
	m.registry.MustRegister(m.kept, m.lost, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	withOther := func(values []string) []string { return append(slices.Clone(values), reasonOther) }
	m.events = preset(events, withOther(eventTypes))
	m.requests = presets(requests, decisions, withOther(kinds))
	m.turns = presets(turns, withOther(kinds), outcomes)
	m.turnWait, m.turnHold = observers(turnWait, withOther(kinds)), observers(turnHold, withOther(kinds))
	m.duration = observers(duration, decisions)
	m.signed = preset(signed, withOther(signatureStates))
	for i, class := range statusClasses {
		m.responses[i] = responses.WithLabelValues(class)
	}
	m.in, m.out, m.stored = bytes.WithLabelValues("in"), bytes.WithLabelValues("out"), bytes.WithLabelValues("stored")
	preset(m.refusals, withOther(reasons))
	preset(m.wouldDeny, withOther(reasons))
	preset(m.noTurn, turnReasons)
	preset(m.asked, revalidations)
	preset(m.denied, deniedWhys)

	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "crawlgate_build_info", Help: "Always 1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": s.o.Version, "go": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info, gauges{s})
	m.serve = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
	return m
}

// preset makes every series of a vector with one label, at 0.
func preset(c *prometheus.CounterVec, values []string) map[string]prometheus.Counter {
	out := make(map[string]prometheus.Counter, len(values))
	for _, v := range values {
		out[v] = c.WithLabelValues(v)
	}
	return out
}

// presets does it for two labels.
func presets(c *prometheus.CounterVec, first, second []string) map[[2]string]prometheus.Counter {
	out := make(map[[2]string]prometheus.Counter, len(first)*len(second))
	for _, a := range first {
		for _, b := range second {
			out[[2]string{a, b}] = c.WithLabelValues(a, b)
		}
	}
	return out
}

// observers makes every histogram of a vector with one label.
func observers(h *prometheus.HistogramVec, values []string) map[string]prometheus.Observer {
	out := make(map[string]prometheus.Observer, len(values))
	for _, v := range values {
		out[v] = h.WithLabelValues(v)
	}
	return out
}

func (m *metrics) observe(r *record) {
	m.events[known(eventTypes, r.Type)].Inc()
	m.lost.Add(float64(r.Lost))
	if !r.judged() {
		return
	}
	kind := known(kinds, r.Kind)
	if slices.Contains(decisions, r.Decision) {
		m.requests[[2]string{r.Decision, kind}].Inc()
		m.duration[r.Decision].Observe(r.Total.Seconds())
	}
	if r.WouldDeny != "" {
		m.wouldDeny.WithLabelValues(known(reasons, r.WouldDeny)).Inc()
	}
	if r.Refused() {
		m.refusals.WithLabelValues(known(reasons, r.Reason)).Inc()
		if slices.Contains(turnReasons, r.Reason) {
			m.noTurn.WithLabelValues(r.Reason).Inc()
		}
	}
	m.in.Add(float64(max(0, r.BytesIn)))
	m.out.Add(float64(max(0, r.BytesOut)))
	m.stored.Add(float64(max(0, r.BytesStored)))
	if slices.Contains(revalidations, r.Revalidation) {
		m.asked.WithLabelValues(r.Revalidation).Inc()
	}
	if r.Kept {
		m.kept.Inc()
	}
	if c := r.Status / 100; c >= 1 && c <= 5 {
		m.responses[c-1].Inc()
	}
	if !r.Sent {
		return
	}
	m.turns[[2]string{kind, r.outcome()}].Inc()
	m.turnWait[kind].Observe(r.TurnWait.Seconds())
	if !r.SentAt.IsZero() {
		m.turnHold[kind].Observe(max(0, r.end().Sub(r.SentAt)).Seconds())
	}
	if r.Signature != "" {
		m.signed[known(signatureStates, r.Signature)].Inc()
	}
}

// seconds is a time as Prometheus wants it; the zero time is no value.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
