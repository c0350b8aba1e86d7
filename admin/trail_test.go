package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"testing"

	"crawlgate/audit"
)

// proofOf is a kept proof, changed by change.
func proofOf(change func(*audit.KeptProof)) *audit.KeptProof {
	p := &audit.Proof{Schema: audit.ProofSchema, Requests: 1234, Sent: 1000, Proven: 1000, Hosts: 3, Clients: 2, Checks: map[string]*audit.ProofCheck{},
		Log: audit.Report{OK: true, Files: 2, First: 1, Last: 2000}}
	for _, name := range audit.ProofChecks() {
		p.Checks[name] = &audit.ProofCheck{Checked: 1000}
	}
	k := &audit.KeptProof{Schema: audit.KeptProofSchema, Made: testTime, Version: "v1", Passed: true, Proof: p}
	if change != nil {
		change(k)
	}
	return k
}

// hostileProof has v wherever a proof has text.
func hostileProof(v string) *audit.KeptProof {
	return proofOf(func(k *audit.KeptProof) {
		k.Passed, k.Version = false, v
		p := k.Proof
		p.Since, p.Until, p.Violating, p.Unprovable = v, v, 3, 4
		p.UnprovableBy, p.ExemptProfiles = map[string]int64{v: 4}, []audit.ProofExempt{{Profile: v}}
		p.Gaps = []audit.ProofGap{{Host: v}}
		for _, c := range p.Checks {
			c.Violations = 9
			c.Findings = []audit.ProofFinding{{Seq: 1, File: v, Line: 2, Host: v, URL: v, Reason: v, Text: v}, {File: v, Host: v, Text: v}}
		}
	})
}

// shown is the text of one section of the page, in one line.
func shown(t *testing.T, s *Server, id string) string {
	t.Helper()
	w := get(s, "/")
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	checkPage(t, w.Body.String())
	_, part, ok := strings.Cut(w.Body.String(), `<section id="`+id+`"`)
	if !ok {
		return ""
	}
	part, _, _ = strings.Cut(`<section id="`+id+`"`+part, "</section>")
	part = strings.NewReplacer("<td", " <td", "<th", " <th", "<div", " <div", "<dd", " <dd", "<dt", " <dt").Replace(part)
	_, _, text := parse(t, part)
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "\u202f", " ")), " ")
}

func TestProofOnPage(t *testing.T) {
	finding := audit.ProofFinding{Seq: 17, File: "/var/lib/x/audit/crawlgate.jsonl", Line: 1717, URL: "https://example.com/private", Reason: "robots-disallow", Text: "line 2 forbids it"}
	violated := func(k *audit.KeptProof) {
		k.Passed = false
		c := k.Proof.Checks[audit.CheckRules]
		c.Violations = 12
		for range 7 {
			c.Findings = append(c.Findings, finding)
		}
		k.Proof.Violating, k.Proof.Gaps = 12, []audit.ProofGap{{Host: "slow.example", SmallestMS: 950, OwedMS: 1000}}
	}
	for name, c := range map[string]struct {
		kept  *audit.KeptProof
		err   error
		holds []string
		not   []string
	}{
		"none":       {holds: []string{"No proof yet. crawlgate audit prove"}, not: []string{"download"}},
		"unreadable": {err: errors.New("/secret/path: schema"), holds: []string{"The last proof cannot be read"}, not: []string{"secret", "download"}},
		"proven":     {kept: proofOf(nil), holds: []string{"proven every request that was sent kept the rules", "the whole log, events 1 to 2 000 in 2 files; 500 events came since", "download as JSON", "rules robots.txt in effect allowed it kept 1 000 0", "one at a time", "(2026-11-30 10:00, crawlgate v1)"}, not: []string{"not proven", "violated"}},
		"allowed": {kept: proofOf(func(k *audit.KeptProof) { k.Proof.Unprovable, k.AllowUnprovable = 3, 5 }),
			holds: []string{"proven 3 that cannot be proven, 5 allowed"}},
		"a range": {kept: proofOf(func(k *audit.KeptProof) { k.Proof.Since = "2026-11-29T00:00:00.000Z" }), holds: []string{"requests from 2026-11-29T00:00:00.000Z, events"}},
		"violated": {kept: proofOf(violated), holds: []string{"not proven 12 violations, 0 that cannot be proven", "violated 1 000 12 https://example.com/private: line 2 forbids it crawlgate.jsonl, line 1 717, event 17 (robots-disallow)",
			"and 7 more", "closest gap 950 ms of 1 000 ms owed, slow.example"}, not: []string{"/var/lib"}},
	} {
		s := newServer(t, func(o *Options) {
			o.Proof = func() (*audit.KeptProof, error) { return c.kept, c.err }
			o.Live = func() Live { return Live{Chain: LiveChain{Seq: 2500}} }
		})
		text := shown(t, s, "proof")
		for _, want := range c.holds {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q is in\n%s", name, not, text)
			}
		}
	}
	if text := shown(t, newServer(t, nil), "proof"); text != "" {
		t.Errorf("a gate that keeps no proofs shows %q", text)
	}
}

func TestProofDownload(t *testing.T) {
	for name, c := range map[string]struct {
		proof  func() (*audit.KeptProof, error)
		status int
	}{
		"not here": {nil, 404}, "none": {func() (*audit.KeptProof, error) { return nil, nil }, 404},
		"unreadable": {func() (*audit.KeptProof, error) { return nil, errors.New("/secret") }, 500},
		"hostile":    {func() (*audit.KeptProof, error) { return hostileProof(hostile[0]), nil }, 200},
	} {
		w := get(newServer(t, func(o *Options) { o.Proof = c.proof }), "/api/proof")
		if w.Code != c.status || w.Header().Get("Content-Type") != "application/json" || strings.Contains(w.Body.String(), "/secret") || strings.Contains(w.Body.String(), "<script") {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
		if c.status != 200 {
			continue
		}
		how, params, err := mime.ParseMediaType(w.Header().Get("Content-Disposition"))
		if err != nil || how != "attachment" || params["filename"] != "crawlgate-proof-20261130T100000Z.json" {
			t.Errorf("%v %s %v", err, how, params)
		}
		var k audit.KeptProof
		if err := json.Unmarshal(w.Body.Bytes(), &k); err != nil || k.Proof == nil || k.Proof.Sent != 1000 {
			t.Errorf("%v %+v", err, k)
		}
	}
}

func TestIntegrityOnPage(t *testing.T) {
	whole := LiveVerified{At: testTime, Files: 3, Events: 5000, First: 1, Last: 5000, Signed: 4999}
	head := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		chain LiveChain
		holds []string
		top   string // of the summary
	}{
		"just started": {LiveChain{Seq: 1, Head: head}, []string{"chain not verified yet", "head " + head + " event 1", "none since the start", "No signed head is kept elsewhere", "room not known"}, ""},
		"whole": {LiveChain{Seq: 5000, Verified: whole, Checkpoint: testTime, Signed: 4999, DiskFree: 3 << 30, Size: 2048, File: "/x/crawlgate.jsonl", Queued: 2, QueueLimit: 8192},
			[]string{"whole 5 000 events in 3 files", "seq 1 to 5 000, signed to 4 999", "last signed head at event 4 999", "none in the files at hand", "3.0 GiB left /x/crawlgate.jsonl, 2.0 KiB; 2 of 8 192 events wait"}, ""},
		"broken":       {LiveChain{Verified: LiveVerified{At: testTime, Broken: "crawlgate.jsonl line 7: changed (altered)"}}, []string{"not whole crawlgate.jsonl line 7: changed (altered)"}, "the audit chain is not whole: crawlgate.jsonl line 7"},
		"losses":       {LiveChain{Lost: 12, Verified: LiveVerified{At: testTime, Lost: 30}, Unwritable: "disk_low"}, []string{"losses 12 events lost since the start", "30 in the files at hand, declared there", "disk_low"}, ""},
		"kept nowhere": {LiveChain{Sinks: []audit.SinkStatus{{Target: "https://heads.example", Kind: "url"}}}, []string{"https://heads.example nothing yet - 0 0 0"}, ""},
		"kept": {LiveChain{Sinks: []audit.SinkStatus{
			{Target: "https://heads.example", Kind: "url", Newest: audit.Head{Seq: 4000}, At: testTime, Delivered: 4},
			{Target: "syslog://logs.example:514", Kind: "syslog", Newest: audit.Head{Seq: 3000}, Failing: true, Since: testTime, Error: "connection refused", Waiting: 2, Failures: 1234, Skipped: 5},
			{Target: "/mnt/heads", Kind: "file", Newest: audit.Head{Seq: 2000}}}},
			[]string{"https://heads.example delivered 4 000", "syslog://logs.example:514 failing since", "connection refused 3 000", "2 1 234 5", "/mnt/heads delivered 2 000 before the start"}, "signed heads do not reach 1 of 3 places"},
	} {
		s := newServer(t, func(o *Options) { o.Live = func() Live { return Live{Chain: c.chain} } })
		text := shown(t, s, "integrity")
		for _, want := range c.holds {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, text)
			}
		}
		if top := shown(t, s, "summary"); c.top != "" && !strings.Contains(top, c.top) || c.top == "" && (strings.Contains(top, "whole") || strings.Contains(top, "heads do not")) {
			t.Errorf("%s: summary %s", name, top)
		}
	}
}

func TestTrailMetrics(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Gauges = func() Gauges {
			return Gauges{AuditDiskFree: 7, ChainVerifiedAt: testTime, ProofAt: testTime, ProofPassed: true, AuditSinks: []audit.SinkStatus{
				{Kind: "url", Delivered: 1, Failures: 2, Skipped: 3, Waiting: 4, Failing: true}, {Kind: "url", Delivered: 10, Failures: 20, Skipped: 30, Waiting: 40}, {Kind: "syslog", Delivered: 5}}}
		}
	})
	text := get(s, "/metrics").Body.String()
	for _, want := range []string{
		"audit_disk_free_bytes 7", `audit_heads_delivered_total{kind="url"} 11`, `audit_head_failures_total{kind="url"} 22`, `audit_heads_skipped_total{kind="url"} 33`,
		`audit_heads_waiting{kind="url"} 44`, `audit_sinks_failing{kind="url"} 1`, `audit_heads_delivered_total{kind="syslog"} 5`, `audit_heads_delivered_total{kind="file"} 0`,
		"audit_chain_whole 0", "audit_proof_passed 1", fmt.Sprintf("audit_chain_verified_timestamp_seconds %g", seconds(testTime)),
	} {
		if !strings.Contains(text, "\ncrawlgate_"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	s = newServer(t, func(o *Options) { o.Gauges = func() Gauges { return Gauges{AuditDiskFree: -1} } })
	text = get(s, "/metrics").Body.String()
	for _, not := range []string{"chain_whole ", "chain_verified", "proof_", "disk_free"} {
		if strings.Contains(text, not) {
			t.Errorf("%s is there before it is known", not)
		}
	}
}
