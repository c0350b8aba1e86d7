package audit

import "time"

// typeSet is a set of event types.
type typeSet uint16

const (
	onRequest typeSet = 1 << iota
	onRobots
	onIntent
	onTunnel
	onConfig
	onStart
	onStop
	onGap
	onCheckpoint

	onAll      = onRequest | onRobots | onIntent | onTunnel | onConfig | onStart | onStop | onGap | onCheckpoint
	onTraffic  = onRequest | onRobots | onIntent | onTunnel
	onEnds     = onRequest | onRobots | onTunnel // whatever can have an outcome
	onClients  = onRequest | onIntent | onTunnel
	onProcess  = onConfig | onStart | onStop
	onNotes    = onConfig | onStart | onStop | onGap
	onPolicies = onTraffic | onConfig | onStart
)

// typeNames gives each type its bit, in the order of the documentation.
var typeNames = []struct {
	name string
	bit  typeSet
}{
	{TypeRequest, onRequest}, {TypeRobots, onRobots}, {TypeIntent, onIntent}, {TypeTunnel, onTunnel}, {TypeConfig, onConfig},
	{TypeStart, onStart}, {TypeStop, onStop}, {TypeGap, onGap}, {TypeCheckpoint, onCheckpoint},
}

// bitOf gives a type's bit, 0 for a type that does not exist.
func bitOf(name string) typeSet {
	for _, t := range typeNames {
		if t.name == name {
			return t.bit
		}
	}
	return 0
}

// field is one key of an event. The order of the table is the order of the keys; everything that reads or writes events by
// field (encoder, JSON Schema, exports, documentation) goes through it. Exactly one accessor is set.
type field struct {
	group string // "" or the object the key stands in
	key   string
	on    typeSet

	str  func(*Event) string
	num  func(*Event) int64
	yes  func(*Event) bool
	at   func(*Event) time.Time
	list func(*Event) []string

	ecs  []string // ECS names
	ocsf []string // OCSF HTTP Activity names
	doc  string
}

// name is the key with its object: `client.ip`.
func (f *field) name() string {
	if f.group == "" {
		return f.key
	}
	return f.group + "." + f.key
}

// fields holds every key between `seq` and `prev`. (`schema`, `type` and `seq` come first, `prev` and `hash` last, always.)
var fields = []field{
	{key: "id", on: onTraffic, str: func(e *Event) string { return e.ID }, ecs: []string{"event.id", "http.request.id"}, ocsf: []string{"metadata.uid"}, doc: "request id, also in Crawlgate-Request-Id"},
	{key: "time", on: onAll, at: func(e *Event) time.Time { return e.Time }, ecs: []string{"@timestamp"}, ocsf: []string{"time"}, doc: "request received"},
	{key: "queued_ms", on: onTraffic, num: func(e *Event) int64 { return e.QueuedMS }, ecs: []string{"labels.queued_ms"}, ocsf: []string{"unmapped.queued_ms"}, doc: "from arrival until it was sent, refused or given up"},
	{key: "turn_wait_ms", on: onTraffic, num: func(e *Event) int64 { return e.TurnWaitMS }, ecs: []string{"labels.turn_wait_ms"}, ocsf: []string{"unmapped.turn_wait_ms"}, doc: "wait for the turn"},
	{key: "upstream_ms", on: onEnds, num: func(e *Event) int64 { return e.UpstreamMS }, ecs: []string{"labels.upstream_ms"}, ocsf: []string{"unmapped.upstream_ms"}, doc: "from the first byte sent to the answer's end"},
	{key: "total_ms", on: onEnds, num: func(e *Event) int64 { return e.TotalMS }, ecs: []string{"labels.total_ms"}, ocsf: []string{"duration"}, doc: "from arrival to the end"},

	{group: "client", key: "ip", on: onClients, str: func(e *Event) string { return e.Client.IP }, ecs: []string{"client.ip", "source.ip"}, ocsf: []string{"src_endpoint.ip"}, doc: "fetcher's address, or its hash"},
	{group: "client", key: "port", on: onClients, num: func(e *Event) int64 { return int64(e.Client.Port) }, ecs: []string{"client.port", "source.port"}, ocsf: []string{"src_endpoint.port"}, doc: "fetcher's port"},
	{group: "client", key: "name", on: onClients, str: func(e *Event) string { return e.Client.Name }, ecs: []string{"user.name", "client.user.name"}, ocsf: []string{"actor.user.name"}, doc: "client's name"},
	{group: "client", key: "auth", on: onClients, str: func(e *Event) string { return e.Client.Auth }, ecs: []string{"labels.client_auth"}, ocsf: []string{"unmapped.client_auth"}, doc: "how it was recognised: basic, mtls, network, none"},

	{key: "agent", on: onTraffic, str: func(e *Event) string { return e.Agent }, ecs: []string{"labels.agent"}, ocsf: []string{"unmapped.agent"}, doc: "identity the request went out under"},
	{key: "profile", on: onTraffic, str: func(e *Event) string { return e.Profile }, ecs: []string{"labels.profile"}, ocsf: []string{"unmapped.profile"}, doc: "profile"},
	{key: "job", on: onTraffic, str: func(e *Event) string { return e.Job }, ecs: []string{"labels.job"}, ocsf: []string{"unmapped.job"}, doc: "job"},
	{key: "kind", on: onTraffic, str: func(e *Event) string { return e.Kind }, ecs: []string{"labels.kind"}, ocsf: []string{"unmapped.kind"}, doc: "kind as the gate decided it"},

	{key: "method", on: onTraffic, str: func(e *Event) string { return e.Method }, ecs: []string{"http.request.method"}, ocsf: []string{"http_request.http_method"}, doc: "method"},
	{key: "url", on: onTraffic, str: func(e *Event) string { return e.URL.s }, ecs: []string{"url.full"}, ocsf: []string{"http_request.url.url_string"}, doc: "URL as sent, secrets masked"},
	{key: "host", on: onTraffic, str: func(e *Event) string { return e.Host }, ecs: []string{"url.domain"}, ocsf: []string{"http_request.url.hostname"}, doc: "host without port"},
	{key: "scheme", on: onTraffic, str: func(e *Event) string { return e.Scheme }, ecs: []string{"url.scheme"}, ocsf: []string{"http_request.url.scheme"}, doc: "http or https"},
	{key: "port", on: onTraffic, num: func(e *Event) int64 { return int64(e.Port) }, ecs: []string{"url.port"}, ocsf: []string{"http_request.url.port"}, doc: "port of the target"},
	{key: "url_hash", on: onTraffic, str: func(e *Event) string { return e.URLHash }, ecs: []string{"labels.url_hash"}, ocsf: []string{"unmapped.url_hash"}, doc: "HMAC-SHA-256 of the full URL under a local key"},
	{key: "query_masked", on: onTraffic, yes: func(e *Event) bool { return e.QueryMasked }, ecs: []string{"labels.query_masked"}, ocsf: []string{"unmapped.query_masked"}, doc: "a value of the query was masked"},
	{key: "intercepted", on: onTraffic, yes: func(e *Event) bool { return e.Intercepted }, ecs: []string{"tls.established"}, ocsf: []string{"unmapped.intercepted"}, doc: "the client's TLS was opened"},

	{key: "decision", on: onEnds, str: func(e *Event) string { return e.Decision }, ecs: []string{"labels.decision"}, ocsf: []string{"unmapped.decision"}, doc: "forwarded, refused, cancelled, failed"},
	{key: "reason", on: onEnds, str: func(e *Event) string { return e.Reason }, ecs: []string{"event.reason"}, ocsf: []string{"status_code"}, doc: "reason code, ok if forwarded"},
	{key: "class", on: onEnds | onGap, str: func(e *Event) string { return e.Class }, ecs: []string{"event.code"}, ocsf: []string{"status_detail"}, doc: "finer word beside the reason"},
	{key: "would_deny", on: onEnds, str: func(e *Event) string { return e.WouldDeny }, ecs: []string{"labels.would_deny"}, ocsf: []string{"unmapped.would_deny"}, doc: "report only: the code that would have refused it"},
	{key: "entry", on: onEnds, str: func(e *Event) string { return e.Entry }, ecs: []string{"labels.entry"}, ocsf: []string{"unmapped.entry"}, doc: "allowlist entry"},
	{key: "grant", on: onEnds, str: func(e *Event) string { return e.Grant }, ecs: []string{"labels.grant"}, ocsf: []string{"unmapped.grant"}, doc: "grant used: redirects, files, subresources"},

	{key: "sent", on: onEnds, yes: func(e *Event) bool { return e.Sent }, ecs: []string{"labels.sent"}, ocsf: []string{"unmapped.sent"}, doc: "a byte of the request went to the site"},
	{key: "sent_at", on: onEnds, at: func(e *Event) time.Time { return e.SentAt }, ecs: []string{"event.start"}, ocsf: []string{"start_time_dt"}, doc: "when the first byte went out"},
	{key: "done_at", on: onEnds, at: func(e *Event) time.Time { return e.DoneAt }, ecs: []string{"event.end"}, ocsf: []string{"end_time_dt"}, doc: "when the answer ended"},

	{group: "rule", key: "line", on: onTraffic, num: func(e *Event) int64 { return int64(e.Rule.Line) }, ecs: []string{"rule.id"}, ocsf: []string{"firewall_rule.uid"}, doc: "line of the robots.txt rule"},
	{group: "rule", key: "text", on: onTraffic, str: func(e *Event) string { return e.Rule.Text }, ecs: []string{"rule.name"}, ocsf: []string{"firewall_rule.name"}, doc: "the rule"},
	{group: "rule", key: "group", on: onTraffic, str: func(e *Event) string { return e.Rule.Group }, ecs: []string{"rule.ruleset"}, ocsf: []string{"firewall_rule.desc"}, doc: "its group"},
	{group: "robots", key: "sha256", on: onTraffic, str: func(e *Event) string { return e.Robots.SHA256 }, ecs: []string{"rule.version"}, ocsf: []string{"firewall_rule.version"}, doc: "version of robots.txt consulted"},
	{group: "robots", key: "fetched_at", on: onTraffic, at: func(e *Event) time.Time { return e.Robots.FetchedAt }, ecs: []string{"labels.robots_fetched_at"}, ocsf: []string{"unmapped.robots_fetched_at"}, doc: "when it was fetched"},
	{group: "robots", key: "status", on: onTraffic, num: func(e *Event) int64 { return int64(e.Robots.Status) }, ecs: []string{"labels.robots_status"}, ocsf: []string{"unmapped.robots_status"}, doc: "its status"},
	{group: "robots", key: "state", on: onTraffic, str: func(e *Event) string { return e.Robots.State }, ecs: []string{"labels.robots_state"}, ocsf: []string{"unmapped.robots_state"}, doc: "fresh, stale, none, not_consulted"},

	{key: "policy_sha256", on: onPolicies, str: func(e *Event) string { return e.PolicySHA256 }, ecs: []string{"rule.reference"}, ocsf: []string{"policy.uid", "policy.version"}, doc: "configuration in force"},
	{key: "delay_owed_ms", on: onTraffic, num: func(e *Event) int64 { return e.DelayOwedMS }, ecs: []string{"labels.delay_owed_ms"}, ocsf: []string{"unmapped.delay_owed_ms"}, doc: "gap owed to the host"},
	{key: "delay_source", on: onTraffic, str: func(e *Event) string { return e.DelaySource }, ecs: []string{"labels.delay_source"}, ocsf: []string{"unmapped.delay_source"}, doc: "default, crawl-delay, request-rate, backoff"},

	{group: "upstream", key: "ip", on: onEnds, str: func(e *Event) string { return e.Upstream.IP }, ecs: []string{"destination.ip"}, ocsf: []string{"dst_endpoint.ip"}, doc: "address connected to"},
	{group: "upstream", key: "port", on: onEnds, num: func(e *Event) int64 { return int64(e.Upstream.Port) }, ecs: []string{"destination.port"}, ocsf: []string{"dst_endpoint.port"}, doc: "its port"},
	{group: "upstream", key: "resolved", on: onEnds, list: func(e *Event) []string { return e.Upstream.Resolved }, ecs: []string{"related.ip"}, ocsf: []string{"observables"}, doc: "all addresses the name gave"},
	{key: "exception", on: onEnds, str: func(e *Event) string { return e.Exception }, ecs: []string{"labels.exception"}, ocsf: []string{"unmapped.exception"}, doc: "allow_private entry that let the address pass"},
	{key: "reused", on: onEnds, yes: func(e *Event) bool { return e.Reused }, ecs: []string{"labels.reused"}, ocsf: []string{"unmapped.reused"}, doc: "connection reused"},

	{group: "sig", key: "state", on: onEnds, str: func(e *Event) string { return e.Sig.State }, ecs: []string{"labels.sig_state"}, ocsf: []string{"unmapped.sig_state"}, doc: "signed, or why not"},
	{group: "sig", key: "keyid", on: onEnds, str: func(e *Event) string { return e.Sig.KeyID }, ecs: []string{"labels.sig_keyid"}, ocsf: []string{"unmapped.sig_keyid"}, doc: "key"},
	{group: "sig", key: "label", on: onEnds, str: func(e *Event) string { return e.Sig.Label }, ecs: []string{"labels.sig_label"}, ocsf: []string{"unmapped.sig_label"}, doc: "label"},
	{group: "sig", key: "created", on: onEnds, num: func(e *Event) int64 { return e.Sig.Created }, ecs: []string{"labels.sig_created"}, ocsf: []string{"unmapped.sig_created"}, doc: "created, seconds since 1970"},
	{group: "sig", key: "expires", on: onEnds, num: func(e *Event) int64 { return e.Sig.Expires }, ecs: []string{"labels.sig_expires"}, ocsf: []string{"unmapped.sig_expires"}, doc: "expires, seconds since 1970"},
	{group: "sig", key: "components", on: onEnds, str: func(e *Event) string { return e.Sig.Components }, ecs: []string{"labels.sig_components"}, ocsf: []string{"unmapped.sig_components"}, doc: "what was signed"},
	{group: "sig", key: "agent", on: onEnds, str: func(e *Event) string { return e.Sig.Agent }, ecs: []string{"labels.sig_agent"}, ocsf: []string{"unmapped.sig_agent"}, doc: "Signature-Agent"},
	{group: "sig", key: "stripped", on: onEnds, num: func(e *Event) int64 { return int64(e.Sig.Stripped) }, ecs: []string{"labels.sig_stripped"}, ocsf: []string{"unmapped.sig_stripped"}, doc: "signature fields of the client removed"},

	{key: "user_agent", on: onTraffic, str: func(e *Event) string { return e.UserAgent }, ecs: []string{"user_agent.original"}, ocsf: []string{"http_request.user_agent"}, doc: "user agent as sent"},
	{key: "client_user_agent", on: onClients, str: func(e *Event) string { return e.ClientUserAgent }, ecs: []string{"labels.client_user_agent"}, ocsf: []string{"proxy_http_request.user_agent"}, doc: "what the fetcher sent, if replaced"},

	{key: "status", on: onEnds, num: func(e *Event) int64 { return int64(e.Status) }, ecs: []string{"http.response.status_code"}, ocsf: []string{"http_response.code"}, doc: "status of the site, 0 if none"},
	{key: "answered", on: onEnds, num: func(e *Event) int64 { return int64(e.Answered) }, ecs: []string{"labels.answered"}, ocsf: []string{"proxy_http_response.code"}, doc: "status given to the client"},
	{key: "bytes_in", on: onEnds, num: func(e *Event) int64 { return e.BytesIn }, ecs: []string{"http.response.body.bytes"}, ocsf: []string{"traffic.bytes_in"}, doc: "body bytes from the site"},
	{key: "bytes_out", on: onEnds, num: func(e *Event) int64 { return e.BytesOut }, ecs: []string{"http.request.body.bytes"}, ocsf: []string{"traffic.bytes_out"}, doc: "body bytes to the site"},

	{key: "revalidation", on: onEnds, str: func(e *Event) string { return e.Revalidation }, ecs: []string{"labels.revalidation"}, ocsf: []string{"unmapped.revalidation"}, doc: "an answer was kept: asked (whether it holds; it did not), unchanged (it did, and was the answer), lastmod (by the sitemap it does, and was the answer), full (asked in full all the same)"},
	{key: "kept", on: onEnds, yes: func(e *Event) bool { return e.Kept }, ecs: []string{"labels.kept"}, ocsf: []string{"unmapped.kept"}, doc: "the site's answer was kept"},
	{key: "bytes_stored", on: onEnds, num: func(e *Event) int64 { return e.BytesStored }, ecs: []string{"labels.bytes_stored"}, ocsf: []string{"unmapped.bytes_stored"}, doc: "body bytes from the kept answer"},

	{key: "content_type", on: onEnds, str: func(e *Event) string { return e.ContentType }, ecs: []string{"http.response.mime_type"}, ocsf: []string{"http_response.content_type"}, doc: "Content-Type of the answer"},
	{key: "robots_tag", on: onEnds, str: func(e *Event) string { return e.RobotsTag }, ecs: []string{"labels.robots_tag"}, ocsf: []string{"unmapped.robots_tag"}, doc: "X-Robots-Tag as sent"},
	{key: "indexing", on: onEnds, str: func(e *Event) string { return e.Indexing }, ecs: []string{"labels.indexing"}, ocsf: []string{"unmapped.indexing"}, doc: "as in Crawlgate-Indexing"},
	{key: "signals", on: onEnds, str: func(e *Event) string { return e.Signals }, ecs: []string{"labels.signals"}, ocsf: []string{"unmapped.signals"}, doc: "signals from response headers"},
	{key: "retry_after_s", on: onEnds, num: func(e *Event) int64 { return e.RetryAfterS }, ecs: []string{"labels.retry_after_s"}, ocsf: []string{"unmapped.retry_after_s"}, doc: "Retry-After in seconds"},
	{key: "ratelimit", on: onEnds, str: func(e *Event) string { return e.RateLimit }, ecs: []string{"labels.ratelimit"}, ocsf: []string{"unmapped.ratelimit"}, doc: "RateLimit fields as sent"},
	{key: "accept_signature", on: onEnds, yes: func(e *Event) bool { return e.AcceptSignature }, ecs: []string{"labels.accept_signature"}, ocsf: []string{"unmapped.accept_signature"}, doc: "the answer asked for a signature"},
	{key: "location", on: onEnds, str: func(e *Event) string { return e.Location.s }, ecs: []string{"labels.location"}, ocsf: []string{"unmapped.location"}, doc: "Location, secrets masked"},
	{key: "permanent", on: onEnds, yes: func(e *Event) bool { return e.Permanent }, ecs: []string{"labels.permanent"}, ocsf: []string{"unmapped.permanent"}, doc: "301 or 308"},
	{key: "hops", on: onEnds, num: func(e *Event) int64 { return int64(e.Hops) }, ecs: []string{"labels.hops"}, ocsf: []string{"unmapped.hops"}, doc: "redirects followed by a robots.txt fetch"},
	{key: "redirect_of", on: onTraffic, str: func(e *Event) string { return e.RedirectOf }, ecs: []string{"trace.id"}, ocsf: []string{"metadata.correlation_uid"}, doc: "id of the request whose answer pointed here"},
	{key: "parent", on: onTraffic, str: func(e *Event) string { return e.Parent }, ecs: []string{"labels.parent"}, ocsf: []string{"unmapped.parent"}, doc: "id of the request this one belongs to or repeats"},

	{key: "version", on: onProcess, str: func(e *Event) string { return e.Version }, ecs: []string{"observer.version"}, ocsf: []string{"metadata.product.version"}, doc: "version of the gate"},
	{key: "pid", on: onStart | onStop, num: func(e *Event) int64 { return int64(e.PID) }, ecs: []string{"process.pid"}, ocsf: []string{"unmapped.pid"}, doc: "process"},
	{key: "note", on: onNotes, str: func(e *Event) string { return e.Note }, ecs: []string{"message"}, ocsf: []string{"message"}, doc: "words"},
	{key: "torn", on: onStart, str: func(e *Event) string { return e.Torn }, ecs: []string{"labels.torn"}, ocsf: []string{"unmapped.torn"}, doc: "file that an unfinished last line was moved to"},
	{key: "torn_bytes", on: onStart, num: func(e *Event) int64 { return e.TornBytes }, ecs: []string{"labels.torn_bytes"}, ocsf: []string{"unmapped.torn_bytes"}, doc: "its length"},
	{key: "unfinished", on: onStart, list: func(e *Event) []string { return e.Unfinished }, ecs: []string{"labels.unfinished"}, ocsf: []string{"unmapped.unfinished"}, doc: "ids of intents that never ended"},
	{key: "from_seq", on: onGap, num: func(e *Event) int64 { return int64(e.FromSeq) }, ecs: []string{"labels.from_seq"}, ocsf: []string{"unmapped.from_seq"}, doc: "number the first lost event would have had"},
	{key: "lost", on: onGap, num: func(e *Event) int64 { return e.Lost }, ecs: []string{"labels.lost"}, ocsf: []string{"unmapped.lost"}, doc: "events lost"},

	{group: "checkpoint", key: "seq", on: onCheckpoint, num: func(e *Event) int64 { return int64(e.Checkpoint.Seq) }, ecs: []string{"labels.checkpoint_seq"}, ocsf: []string{"unmapped.checkpoint_seq"}, doc: "last event covered"},
	{group: "checkpoint", key: "head", on: onCheckpoint, str: func(e *Event) string { return e.Checkpoint.Head }, ecs: []string{"labels.checkpoint_head"}, ocsf: []string{"unmapped.checkpoint_head"}, doc: "its hash"},
	{group: "checkpoint", key: "signed_by", on: onCheckpoint, str: func(e *Event) string { return e.Checkpoint.SignedBy }, ecs: []string{"labels.checkpoint_signed_by"}, ocsf: []string{"unmapped.checkpoint_signed_by"}, doc: "RFC 7638 thumbprint of the key"},
	{group: "checkpoint", key: "signature", on: onCheckpoint, str: func(e *Event) string { return e.Checkpoint.Signature }, ecs: []string{"labels.checkpoint_signature"}, ocsf: []string{"unmapped.checkpoint_signature"}, doc: "Ed25519, base64url"},
	{group: "checkpoint", key: "removed_from", on: onCheckpoint, num: func(e *Event) int64 { return int64(e.Checkpoint.RemovedFrom) }, ecs: []string{"labels.checkpoint_removed_from"}, ocsf: []string{"unmapped.checkpoint_removed_from"}, doc: "first event deleted by retention"},
	{group: "checkpoint", key: "removed_to", on: onCheckpoint, num: func(e *Event) int64 { return int64(e.Checkpoint.RemovedTo) }, ecs: []string{"labels.checkpoint_removed_to"}, ocsf: []string{"unmapped.checkpoint_removed_to"}, doc: "last event deleted"},
	{group: "checkpoint", key: "removed_head", on: onCheckpoint, str: func(e *Event) string { return e.Checkpoint.RemovedHead }, ecs: []string{"labels.checkpoint_removed_head"}, ocsf: []string{"unmapped.checkpoint_removed_head"}, doc: "its hash"},

	{key: "cut", on: onAll, list: func(e *Event) []string { return e.Cut }, ecs: []string{"labels.cut"}, ocsf: []string{"unmapped.cut"}, doc: "fields whose value was shortened"},
}

// keyed is a field as a line of one type has it: lead is all that stands between the value before and this one (the end of
// an object, the comma, the beginning of another, the key).
type keyed struct {
	*field
	lead string
}

// byType holds the fields of each type, so that the encoder decides nothing per event. The last one, `cut`, stands in no
// object, so every object is closed.
var byType = func() map[string][]keyed {
	m := map[string][]keyed{}
	for _, t := range typeNames {
		group := ""
		for i := range fields {
			f := &fields[i]
			if f.on&t.bit == 0 {
				continue
			}
			lead := ""
			if group != "" && f.group != group {
				lead = "}"
			}
			lead += ","
			if f.group != "" && f.group != group {
				lead += `"` + f.group + `":{`
			}
			group = f.group
			m[t.name] = append(m[t.name], keyed{f, lead + `"` + f.key + `":`})
		}
	}
	return m
}()
