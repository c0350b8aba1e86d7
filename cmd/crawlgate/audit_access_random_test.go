package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"crawlgate/policy"
	"github.com/google/go-cmp/cmp"
)

// TestAuditAccessOracle compares reports of random logs with the oracle's.
func TestAuditAccessOracle(t *testing.T) {
	common, err := filepath.Abs(filepath.Join(accessVectors, "common"))
	if err != nil {
		t.Fatal(err)
	}
	var base oracle
	var list struct{ Crawlers []oracleCrawler }
	var dns struct {
		PTR     map[string]struct{ Names []string }
		Forward map[string]struct{ Addresses []string }
	}
	read := func(name string, v any) {
		body, err := os.ReadFile(filepath.Join(common, name))
		if err == nil {
			err = json.Unmarshal(body, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read("crawlers.json", &list)
	read("dns.json", &dns)
	base.crawlers, base.ptr, base.forward = list.Crawlers, dns.PTR, dns.Forward
	for addr, e := range base.ptr {
		if e.Names == nil && addr != "203.0.113.46" { // servfail is no data
			delete(base.ptr, addr)
		}
	}
	for i := range base.crawlers {
		for _, f := range base.crawlers[i].Files {
			var r struct{ Prefixes []map[string]string }
			read("ranges/"+f, &r)
			for _, p := range r.Prefixes {
				for _, text := range p {
					base.crawlers[i].nets = append(base.crawlers[i].nets, netip.MustParsePrefix(text).Masked())
				}
			}
		}
	}
	base.trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 20251103))
		o := base
		runOracle(t, rnd, &o, common)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func runOracle(t *testing.T, rnd *rand.Rand, o *oracle, common string) {
	dir := t.TempDir()
	o.totals, o.malformed = map[string]int{}, map[string]int{}
	o.perCrawler, o.broken, o.times = map[string]map[string]int{}, map[string]map[string]int{}, map[string]map[string][]time.Time{}
	o.host, o.limit = "www.example.com", oneOf(rnd, 720*time.Hour, time.Hour)
	o.grace, o.tolerance = oneOf(rnd, 0, 0, 20*time.Minute, 5*time.Hour), oneOf(rnd, 0, time.Second)
	o.noVersion, o.strict = rnd.IntN(3) == 0, rnd.IntN(3) == 0
	start := time.Date(2025, 11, 3, 9, 0, 0, 0, time.UTC)
	args := []string{"--robots", dir + "/robots", "--crawlers", common + "/crawlers.json", "--ranges", common + "/ranges", "--dns-cache", common + "/dns.json",
		"--trusted-proxy", "10.0.0.0/29", "--host", o.host, "--grace", o.grace.String(), "--unreachable-limit", o.limit.String(), "--delay", "--delay-tolerance", o.tolerance.String(),
		"--workers", fmt.Sprint(1 + rnd.IntN(4))}
	if o.noVersion {
		args = append(args, "--no-version", "allowed")
	}
	if o.strict {
		args = append(args, "--unverified", "impersonated")
	}
	if rnd.IntN(4) == 0 {
		o.since, o.until = start.Add(20*time.Minute), start.Add(3*time.Hour)
		args = append(args, "--since", o.since.Format(time.RFC3339), "--until", o.until.Format(time.RFC3339))
	}
	for _, host := range []string{"www.example.com", "shop.example.org"} {
		at := start.Add(time.Duration(rnd.IntN(20)-10) * time.Minute)
		for range 1 + rnd.IntN(5) {
			v := oracleVersion{host: host, at: at, status: oneOf(rnd, 200, 200, 200, 404, 503, 500, 301)}
			name := at.Format("20060102T150405Z")
			var body string
			if v.status == 200 {
				for range 1 + rnd.IntN(4) {
					body += "User-agent: " + oneOf(rnd, "*", "GPTBot", "googlebot", "ClaudeBot", "UnlobBot/1") + "\n"
					for range rnd.IntN(5) {
						body += oneOf(rnd, "Disallow: /", "Disallow: /a", "Allow: /a/b", "Disallow: /*?", "Disallow: /*.pdf$", "Disallow:", "Crawl-delay: 3", "Crawl-delay: 1.5", "Allow: /$") + "\n"
					}
				}
				v.rules = policy.Parse([]byte(body))
			} else {
				name += fmt.Sprintf(".%d", v.status)
			}
			if err := os.MkdirAll(filepath.Join(dir, "robots", host), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "robots", host, name+".txt"), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
			o.versions = append(o.versions, v)
			at = at.Add(time.Duration(1+rnd.IntN(200)) * time.Minute)
		}
	}
	var files []string
	for f := range 1 + rnd.IntN(3) {
		var log strings.Builder
		for range rnd.IntN(400) {
			line := randomLine(rnd, start)
			o.line(strings.TrimSuffix(line, "\r"))
			log.WriteString(line + "\n")
		}
		// A first line that is in the format for sure, and different in each file.
		first := fmt.Sprintf(`192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] "GET /file%d HTTP/1.1" 200 1 "-" "x"`, f)
		var text string
		for range 20 {
			o.line(first)
			text += first + "\n"
		}
		path := filepath.Join(dir, fmt.Sprintf("log%d", f))
		if err := os.WriteFile(path, []byte(text+log.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	out, errs, code := runAccess(t, "", append(args, files...)...)
	if code != exitOK || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	rnd.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	if again, _, _ := runAccess(t, "", append(append(args, files...), "--workers", "8")...); again != out {
		t.Error("other bytes for shuffled arguments and 8 workers")
	}
	compareOracle(t, o, out)
}

func randomLine(rnd *rand.Rand, start time.Time) string {
	at := start.Add(time.Duration(rnd.IntN(6*3600)) * time.Second)
	if rnd.IntN(3) == 0 {
		at = at.In(time.FixedZone("", oneOf(rnd, 3600, -5*3600, 5*3600+1800)))
	}
	addr := oneOf(rnd, "192.0.2.1", "192.0.2.17", "198.51.100.70", "203.0.113.42", "203.0.113.43", "203.0.113.45", "203.0.113.46", "203.0.113.47", "203.0.113.10", "203.0.113.99", "203.0.113.200", "10.0.0.5", "10.0.0.9",
		"::ffff:192.0.2.2", "2001:db8:a::1", "2001:db8:6::7", "::ffff:10.0.0.5")
	agent := oneOf(rnd, "GPTBot/1.3", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "x (ClaudeBot) GPTBot", "UnlobBot/1.0", "Amazonbot", "Bytespider;", "Google-Extended/1.0", "NotGPTBot", "Firefox", "-", `a \"GPTBot\" b`, "Googlebot-Image/1.0", "[OAI-SearchBot]")
	target := oneOf(rnd, "/", "/a", "/a/b", "/a/b?x", "/x.pdf", "/x.pdf?y=1", "/robots.txt", "/%72obots.txt", "//a", "/a/../b", "/index.html", "/q?utm_source=1", "/q?PHPSESSID=1", "/q?", "/A", "/a b", "/a#b", "*", "http://shop.example.org:80/a", "http://shop.example.org", "http://other.example/a?b", "relative", "/index.htm/x")
	method := oneOf(rnd, "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "9GET")
	line := fmt.Sprintf(`%s %s %s [%s] "%s %s HTTP/1.1" %s %s`, addr, oneOf(rnd, "-", "id"), oneOf(rnd, "-", "frank", "frank s"), at.Format("02/Jan/2006:15:04:05 -0700"), method, target,
		oneOf(rnd, "200", "200", "304", "301", "404", "503", "000", "2000"), oneOf(rnd, "-", "123"))
	if rnd.IntN(8) > 0 {
		line += ` "` + oneOf(rnd, "-", "http://x/", `a\\`) + `" "` + agent + `"`
		if rnd.IntN(3) == 0 {
			line += ` "` + oneOf(rnd, "192.0.2.3", "203.0.113.9, 192.0.2.4", "192.0.2.4, 10.0.0.6", "192.0.2.4, 10.0.0.99", "unknown", "192.0.2.4, unknown", "_x, 10.0.0.3", "[2001:db8:a::7]:4711", "192.0.2.7:5555", "-", "gzip", "10.0.0.6, 10.0.0.7", "::ffff:192.0.2.6") + `"`
		}
	}
	if rnd.IntN(4) == 0 {
		line = oneOf(rnd, "www.example.com", "SHOP.example.org:443", "shop.example.org.", "other.example") + " " + line
	}
	if rnd.IntN(10) == 0 { // damage
		b := []byte(line)
		switch i := rnd.IntN(len(b)); rnd.IntN(3) {
		case 0:
			b[i] = oneOf[byte](rnd, ' ', '"', '[', ']', '0', 'x', '\\')
		case 1:
			b = b[:i]
		default:
			b = slices.Delete(b, i, i+1)
		}
		line = string(b)
	}
	if rnd.IntN(20) == 0 {
		line = oneOf(rnd, "", "  ", "\t")
	}
	if rnd.IntN(5) == 0 {
		line += "\r"
	}
	return line
}

func compareOracle(t *testing.T, o *oracle, out string) {
	t.Helper()
	var rep struct {
		Totals, Malformed map[string]int
		Crawlers          map[string]struct {
			Total, Genuine, Verified, Unverified, Impersonated, Allowed, Disallowed, Unjudged, Grace int
			NonProductive                                                                            map[string]int `json:"non_productive"`
			CrawlDelay                                                                               map[string]int `json:"crawl_delay"`
			Violations                                                                               []struct {
				Host, Version, Rule string
				Line, Requests      int
			}
		}
		SelfCheck struct{ OK bool }
	}
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatal(err)
	}
	if !rep.SelfCheck.OK {
		t.Error("self-check failed")
	}
	for _, k := range []string{"lines", "blank", "malformed", "filtered", "requests", "not_crawler"} {
		if rep.Totals[k] != o.totals[k] {
			t.Errorf("%s: %d, oracle %d", k, rep.Totals[k], o.totals[k])
		}
	}
	for k, n := range rep.Malformed {
		if n != o.malformed[k] {
			t.Errorf("malformed %s: %d, oracle %d", k, n, o.malformed[k])
		}
	}
	if len(rep.Crawlers) != len(o.perCrawler) {
		t.Errorf("%d crawlers, oracle %d", len(rep.Crawlers), len(o.perCrawler))
	}
	for i := range o.crawlers {
		name := o.crawlers[i].Name
		n, c := o.perCrawler[name], rep.Crawlers[name]
		checked, short := o.delays(&o.crawlers[i])
		want := []int{n["total"], n["genuine"], n["verified"], n["unverified"], n["impersonated"], n["allowed"], n["disallowed"], n["unjudged"], n["grace"], n["np_total"], n["np_disallowed"],
			n["parameter"], n["duplicate"], n["redirect"], n["client_error"], n["server_error"], checked, short}
		p := c.NonProductive
		got := []int{c.Total, c.Genuine, c.Verified, c.Unverified, c.Impersonated, c.Allowed, c.Disallowed, c.Unjudged, c.Grace, p["total"], p["disallowed"],
			p["parameter"], p["duplicate"], p["redirect"], p["client_error"], p["server_error"], c.CrawlDelay["checked"], c.CrawlDelay["violations"]}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (oracle -, report +): %s", name, d)
		}
		broken := map[string]int{}
		for _, v := range c.Violations {
			broken[fmt.Sprintf("%s %s %d %s", v.Host, v.Version, v.Line, v.Rule)] += v.Requests
		}
		if d := cmp.Diff(o.broken[name], broken); d != "" && len(broken)+len(o.broken[name]) > 0 {
			t.Errorf("%s: violations (oracle -, report +): %s", name, d)
		}
	}
}
