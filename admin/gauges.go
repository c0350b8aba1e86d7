package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"crawlgate/audit"
)

// gauges asks Options.Gauges once a scrape: values that no event carries.
type gauges struct{ s *Server }

var (
	descWaiting     = desc("crawlgate_turns_waiting", "Requests that wait for a turn now.")
	descInFlight    = desc("crawlgate_turns_in_flight", "Turns held now.")
	descHosts       = desc("crawlgate_hosts", "Hosts that the pacing keeper remembers, by state.", "state")
	descIncidents   = desc("crawlgate_incidents_total", "Answers and errors that slowed a host down, by class.", "class")
	descOverrun     = desc("crawlgate_turn_overrun_total", "Turns ended by a limit.", "limit")
	descShortfall   = desc("crawlgate_turn_gap_shortfall_total", "Gaps below the promise, measured at the transport; must stay 0.")
	descLease       = desc("crawlgate_lease_lost_total", "Turns lost because the shared store gave the lease to another instance.")
	descStoreErrs   = desc("crawlgate_store_errors_total", "Failed calls to the store of turns.")
	descStoreTrips  = desc("crawlgate_store_round_trips_total", "Calls to the store of turns.")
	descLocal       = desc("crawlgate_turns_local_total", "Turns given from memory while the shared store was away.")
	descAway        = desc("crawlgate_store_away", "1 while the shared store of turns does not answer.")
	descReloadOK    = desc("crawlgate_config_last_reload_success", "1 if the last reload of the configuration was taken, 0 if the one before is still in force.")
	descReloadAt    = desc("crawlgate_config_last_reload_timestamp_seconds", "When the configuration in force was loaded.")
	descSignReload  = desc("crawlgate_sign_reload_failures_total", "Reloads that kept the old signature keys.")
	descCA          = desc("crawlgate_ca_expiry_timestamp_seconds", "When the interception CA expires.")
	descKey         = desc("crawlgate_key_expiry_timestamp_seconds", "When the signature key of a configured agent is due for rotation.", "agent")
	descMinted      = desc("crawlgate_certs_minted_total", "Leaf certificates made.")
	descKept        = desc("crawlgate_answers_kept", "Answers in the store.")
	descKeptBytes   = desc("crawlgate_answers_kept_bytes", "Bytes that the answers in the store take on disk.")
	descConns       = desc("crawlgate_client_connections", "Open connections of clients.")
	descQueue       = desc("crawlgate_audit_queue_events", "Events that wait to be written.")
	descQueueMax    = desc("crawlgate_audit_queue_limit_events", "Events that may wait before requests are refused.")
	descLost        = desc("crawlgate_audit_lost_events_total", "Events that could not be written.")
	descSeq         = desc("crawlgate_audit_sequence", "Number of the last event of the chain.")
	descDisk        = desc("crawlgate_audit_disk_free_bytes", "Bytes left on the disk of the audit log.")
	descHeads       = desc("crawlgate_audit_heads_delivered_total", "Signed heads that audit.checkpoint_to has taken, by kind of place.", "kind")
	descHeadErrs    = desc("crawlgate_audit_head_failures_total", "Attempts to deliver a signed head that failed; each is tried again.", "kind")
	descHeadSkips   = desc("crawlgate_audit_heads_skipped_total", "Signed heads left out because newer ones cover them and too many waited.", "kind")
	descHeadWait    = desc("crawlgate_audit_heads_waiting", "Signed heads that wait to be delivered.", "kind")
	descSinkFail    = desc("crawlgate_audit_sinks_failing", "Places of audit.checkpoint_to whose last delivery failed.", "kind")
	descChain       = desc("crawlgate_audit_chain_whole", "1 if the gate found its own chain whole when it last read it, else 0.")
	descChainAt     = desc("crawlgate_audit_chain_verified_timestamp_seconds", "When the gate last read its own chain.")
	descProof       = desc("crawlgate_audit_proof_passed", "1 if the last crawlgate audit prove on this state folder passed, else 0.")
	descProofAt     = desc("crawlgate_audit_proof_timestamp_seconds", "When that was.")
	descClock       = desc("crawlgate_clock_offset_seconds", "Own clock minus the clocks of sites (median of their Date fields).")
	descSubscribers = desc("crawlgate_admin_stream_readers", "Readers of the decisions stream now.")
	descReady       = desc("crawlgate_ready", "1 if every readiness check holds.")
)

// Closed sets of the labels; key agents are those configured.
var (
	hostStates      = []string{"known", "owing", "held_back", "slowed", "stopped"}
	incidentClasses = []string{"throttle", "failure"}
	overrunLimits   = []string{"stall_timeout", "turn_limit"}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe sends nothing: the collector is unchecked, because which series
// there are depends on what the gate was given.
func (g gauges) Describe(chan<- *prometheus.Desc) {}

// Collect reads the values of the moment.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(descSubscribers, float64(g.s.state.subscribers()))
	if g.s.o.Ready != nil {
		_, ok := g.s.ready()
		gauge(descReady, bit(ok))
	}
	if g.s.o.Gauges == nil {
		return
	}
	v := g.s.o.Gauges()
	gauge(descWaiting, float64(v.TurnsWaiting))
	gauge(descInFlight, float64(v.TurnsInFlight))
	for _, st := range hostStates {
		gauge(descHosts, float64(v.Hosts[st]), st)
	}
	for _, c := range incidentClasses {
		count(descIncidents, v.Incidents[c], c)
	}
	for _, l := range overrunLimits {
		count(descOverrun, v.TurnOverrun[l], l)
	}
	count(descShortfall, v.GapShortfall)
	count(descLease, v.LeaseLost)
	count(descStoreErrs, v.StoreErrors)
	count(descStoreTrips, v.StoreRoundTrips)
	count(descLocal, v.LocalTurns)
	gauge(descAway, bit(v.StoreAway))
	gauge(descReloadOK, bit(v.ConfigReloadOK))
	if !v.ConfigReloadAt.IsZero() {
		gauge(descReloadAt, seconds(v.ConfigReloadAt))
	}
	count(descSignReload, v.SignReloadFailures)
	if !v.CAExpires.IsZero() {
		gauge(descCA, seconds(v.CAExpires))
	}
	for agent, t := range v.KeyExpires {
		if !t.IsZero() {
			gauge(descKey, seconds(t), agent)
		}
	}
	count(descMinted, v.CertsMinted)
	gauge(descKept, float64(v.AnswersKept))
	gauge(descKeptBytes, float64(v.AnswersKeptBytes))
	gauge(descConns, float64(v.Connections))
	gauge(descQueue, float64(v.AuditQueue))
	gauge(descQueueMax, float64(v.AuditQueueMax))
	count(descLost, v.AuditLost)
	gauge(descSeq, float64(v.AuditSeq))
	gauge(descClock, v.ClockOffset.Seconds())
	g.trail(v, gauge, count)
}

// trail are the values about the audit log that are there only once they are known.
func (gauges) trail(v Gauges, gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	if v.AuditDiskFree >= 0 {
		gauge(descDisk, float64(v.AuditDiskFree))
	}
	for _, kind := range audit.SinkKinds() {
		var delivered, failures, skipped uint64
		waiting, failing := 0, 0
		for _, s := range v.AuditSinks {
			if s.Kind != kind {
				continue
			}
			delivered, failures, skipped, waiting = delivered+s.Delivered, failures+s.Failures, skipped+s.Skipped, waiting+s.Waiting
			if s.Failing {
				failing++
			}
		}
		count(descHeads, delivered, kind)
		count(descHeadErrs, failures, kind)
		count(descHeadSkips, skipped, kind)
		gauge(descHeadWait, float64(waiting), kind)
		gauge(descSinkFail, float64(failing), kind)
	}
	if !v.ChainVerifiedAt.IsZero() {
		gauge(descChain, bit(v.ChainWhole))
		gauge(descChainAt, seconds(v.ChainVerifiedAt))
	}
	if !v.ProofAt.IsZero() {
		gauge(descProof, bit(v.ProofPassed))
		gauge(descProofAt, seconds(v.ProofAt))
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
