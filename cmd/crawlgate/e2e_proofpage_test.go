package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crawlgate/audit"
)

// TestProofOnAdminPage: the result of `audit prove` on the gate's own log shows on its page and can be fetched there; one
// about another log does not take its place.
func TestProofOnAdminPage(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, plainHTTP, nil, "site.test")
	g := startGate(t, gateConfig{origins: []*origin{o}, profiles: "[{name: crawl, pacing: {gap: 10ms}}]"})
	if status, _, body := ask(t, "GET", g.admin+"/api/proof", ""); status != 404 || !strings.Contains(body, "crawlgate audit prove") {
		t.Errorf("before: %d %s", status, body)
	}
	if _, _, page := ask(t, "GET", g.admin+"/", ""); !strings.Contains(page, "No proof yet") {
		t.Error("the page says nothing of it")
	}
	for _, path := range []string{"/a", "/b"} {
		if a := curl(t, g, o.url(path)); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	g.waitEvents(t, 2)
	kept := func() audit.KeptProof {
		t.Helper()
		status, h, body := ask(t, "GET", g.admin+"/api/proof", "")
		var k audit.KeptProof
		if err := json.Unmarshal([]byte(body), &k); err != nil || status != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename=") {
			t.Fatalf("%d %v %v %s", status, err, h, body)
		}
		return k
	}
	if r := g.cli(t, "audit", "prove"); r.code != 0 || r.err != "" {
		t.Fatalf("%+v", r)
	}
	first := kept()
	if !first.Passed || first.Proof.Proven < 2 || first.Proof.Proven != first.Proof.Sent || first.Version == "" || time.Since(first.Made) > time.Minute {
		t.Errorf("%+v", first)
	}
	_, _, page := ask(t, "GET", g.admin+"/", "")
	if !strings.Contains(page, `<span class="pill good">proven</span>`) || !strings.Contains(page, `href="/api/proof"`) {
		t.Error("the page does not show the proof")
	}
	if _, _, m := ask(t, "GET", g.admin+"/metrics", ""); !strings.Contains(m, "crawlgate_audit_proof_passed 1\n") {
		t.Error("no metric")
	}

	// A copy with a line cut out, as from elsewhere.
	b, err := os.ReadFile(filepath.Join(g.state, "audit", "crawlgate.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	copied := filepath.Join(t.TempDir(), "copy.jsonl")
	writeFile(t, copied, strings.Join(append(lines[:2:2], lines[3:]...), ""), 0o600)
	for _, args := range [][]string{{copied}, {"--file", copied}, {"--save=false"}} {
		_ = g.cli(t, append([]string{"audit", "prove"}, args...)...)
		if again := kept(); !again.Made.Equal(first.Made) {
			t.Errorf("%v took the place of the gate's own proof", args)
		}
	}
	if r := g.cli(t, "audit", "prove", "--save", copied); r.code != 1 {
		t.Errorf("%+v", r)
	}
	if k := kept(); k.Passed || k.Proof.Violations() == 0 {
		t.Errorf("%+v", k)
	}
	_, _, page = ask(t, "GET", g.admin+"/", "")
	if !strings.Contains(page, `<span class="pill bad">not proven</span>`) || !strings.Contains(page, "copy.jsonl") {
		t.Error("the page does not show the violations")
	}
	writeFile(t, audit.ProofFile(g.state), "{", 0o600)
	if status, _, body := ask(t, "GET", g.admin+"/api/proof", ""); status != 500 || strings.Contains(body, g.state) {
		t.Errorf("%d %s", status, body)
	}
	// A folder that cannot be written to takes nothing from the answer.
	if err := os.Remove(audit.ProofFile(g.state)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(audit.ProofFile(g.state), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := g.cli(t, "audit", "prove"); r.code != 0 || !strings.Contains(r.err, "the admin page will not show this proof") {
		t.Errorf("%+v", r)
	}
}
