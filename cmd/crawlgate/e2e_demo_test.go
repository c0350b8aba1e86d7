package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDemo: the demonstration runs by itself and shows what is promised.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := time.Now()
	r := execute(t, bareEnv(dir, "TMPDIR="+dir), binary(t), "demo", "--for", "8s")
	if r.code != 0 || r.err != "" {
		t.Fatalf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if d := time.Since(began); d > 60*time.Second {
		t.Errorf("it took %v", d)
	}
	for _, want := range []string{
		`(?m)^sites     shop\.test  Crawl-delay: 2, Disallow: /cart$`,
		`(?m)^ time +browser +scraper +shell +the site saw$`,
		`(?m)^ +\d+\.\ds +.*GET shop/\S+ .*200  gap \d+\.\ds`,
		`(?m)^ +\d+\.\ds +.*GET shop/cart\d.*nothing: robots-disallow, line 2$`,
		`(?m)^ +\d+\.\ds +.*GET news/drafts/\d.*nothing: robots-disallow, line 2$`,
		`(?m)^ +\d+\.\ds +.*GET docs/guide\d.*nothing: robots-signal, line 2$`,
		`(?m)^without the gate: 3 fetchers, \d+ requests in 2s, \d+ a second, up to [2-9] at once at one site, [1-9]\d* for what robots\.txt forbids$`,
		`(?m)^with the gate:    3 fetchers, \d+ requests in \d+s, never two at once, 0 for what robots\.txt forbids, [1-9]\d* refused before sending$`,
		`(?m)^log:              \d+ events, chain whole$`,
	} {
		if !regexp.MustCompile(want).MatchString(r.out) {
			t.Errorf("no line %s in\n%s", want, r.out)
		}
	}
	// Every gap that shop.test saw is its Crawl-delay or longer.
	for _, m := range regexp.MustCompile(`GET shop/[bsl]\d+ .*gap (\d+\.\d)s`).FindAllStringSubmatch(r.out, -1) {
		if strings.HasPrefix(m[1], "0.") || strings.HasPrefix(m[1], "1.") {
			t.Errorf("a gap of %ss at a site that asks for 2s:\n%s", m[1], r.out)
		}
	}
}
