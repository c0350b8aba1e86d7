package main

import (
	"os"
	"strings"
	"testing"

	"crawlgate/admin"
	"crawlgate/configs"
)

// pageProbes are the promises whose end-to-end tests show a claim of the public page being kept.
var pageProbes = map[string][]string{
	"identity.user-agent":  {"RL-4", "RO-1", "UN-1"},
	"identity.token":       {"RO-8", "UN-2"},
	"identity.lock":        {"RL-23", "UN-17"},
	"verify.signature":     {"RL-5"},
	"verify.directory":     {"RL-5"},
	"verify.addresses":     {"RL-6", "UN-17"},
	"verify.dns":           {"UN-3"},
	"robots.obey":          {"RL-7", "RO-7", "UN-15"},
	"robots.group":         {"RL-8", "UN-13"},
	"robots.named":         {"RO-8", "RO-9"},
	"robots.delay":         {"RL-10", "RL-11"},
	"robots.age":           {"RL-9", "UN-13"},
	"signals.none":         {"UN-13", "UN-15"},
	"signals.scope":        {"RL-12", "RL-13"},
	"signals.stop":         {"RL-12", "RL-13"},
	"unreadable.4xx":       {"RL-16", "UN-19"},
	"unreadable.auth":      {"RL-16"},
	"unreadable.5xx":       {"RL-14", "RO-10", "UN-19"},
	"unreadable.challenge": {"RL-15"},
	"pace.one":             {"RL-17", "RO-3", "UN-18"},
	"pace.gap":             {"RL-17", "UN-16"},
	"pace.files":           {"RL-18"},
	"pace.redirect":        {"RL-18"},
	"status.redirect":      {"RO-5", "UN-6", "UN-7"},
	"status.kept":          {"UN-4"},
	"status.unchanged":     {"RL-19", "UN-5"},
	"status.lastmod":       {"UN-12"},
	"status.gone":          {"UN-8"},
	"status.refused":       {"RL-23", "UN-17"},
	"status.throttle":      {"RL-22", "UN-9"},
	"status.retries":       {"RL-22"},
	"status.failure":       {"UN-10"},
	"status.breaker":       {"RL-24"},
	"weaker.robots":        {"RL-25", "RL-26", "RL-29"},
	"weaker.pace":          {"RL-25", "RL-29"},
	"weaker.other":         {"RL-29"},
	"weaker.none":          {"UN-15"},
	"never.private":        {"RO-11"},
	"never.ports":          {"RO-4"},
	"never.submit":         {"RO-6"},
}

// A claim of the page without a promise that is played end to end fails here.
func TestPageClaimsHaveProbes(t *testing.T) {
	raw, err := os.ReadFile("../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for line := range strings.SplitSeq(string(raw), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) > 4 && strings.Contains(cells[4], "`TestPromises") {
			kept[strings.TrimSpace(cells[1])] = true
		}
	}
	for _, name := range configs.Presets() {
		c, err := configs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Egress.SourceAddresses, c.Page.ReverseDNS = []string{"127.0.0.1"}, "*.crawl.example.com"
		for _, claim := range admin.BuildPage(c, nil).Claims() {
			if claim.ID == "" {
				continue // an introduction, not a claim
			}
			probes, ok := pageProbes[claim.ID]
			if !ok {
				t.Errorf("%s: nothing shows that this is so: %s (%s)", name, claim.Text, claim.ID)
			}
			for _, id := range probes {
				if !kept[id] {
					t.Errorf("%s: %s leans on %s, which no test plays", name, claim.ID, id)
				}
			}
		}
	}
}

func TestPageCommand(t *testing.T) {
	dir := t.TempDir()
	run1 := func(args ...string) (string, string, int) {
		var out, errs strings.Builder
		code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
		return out.String(), errs.String(), code
	}
	out, _, code := run1("page", "--preset", "unlob", "--format", "json")
	if code != 0 || !strings.Contains(out, `"policy_sha256"`) {
		t.Fatalf("%d %s", code, out)
	}
	published := dir + "/page.json"
	if err := os.WriteFile(published, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code := run1("page", "--preset", "unlob", "--diff", published); code != 0 || out != "" {
		t.Errorf("a page differs from itself: %d %s", code, out)
	}
	if out, _, code := run1("page", "--preset", "roftrlabs", "--diff", published); code != 1 || !strings.Contains(out, "so now, not published") {
		t.Errorf("two presets are the same: %d %s", code, out)
	}
	if _, errs, code := run1("page", "--preset", "unlob", "--format", "pdf"); code != 2 || !strings.Contains(errs, "html, md, json") {
		t.Errorf("%d %s", code, errs)
	}
}
