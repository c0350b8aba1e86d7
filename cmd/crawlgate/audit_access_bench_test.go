package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"crawlgate/audit"
)

// benchLog is n lines of mixed traffic: six of ten by crawlers, nearly all of them genuine, three of four URLs new.
func benchLog(n int, asJSON bool) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	agents := []string{
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.3; +https://openai.com/gptbot)",
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)",
	}
	for range 300 {
		agents = append(agents, fmt.Sprintf("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.0 Safari/537.36", 90+r.IntN(50), r.IntN(9999)))
	}
	paths := []string{"/members/", "/news/%d", "/private/%d", "/item?id=%d", "/a/%d/deep.json", "/search?q=%d", "/caf%%c3%%a9/%d", "/"}
	nets := []string{"192.0.2.%d", "198.51.100.%d", "203.0.113.%d"}
	homes := []struct{ net, first, n int }{{0, 0, 16}, {1, 64, 32}, {2, 128, 128}} // where the three crawlers live
	var b bytes.Buffer
	for i := range n {
		agent := agents[r.IntN(len(agents))]
		addr := fmt.Sprintf(nets[r.IntN(3)], r.IntN(256))
		if r.IntN(10) < 6 {
			k := r.IntN(3)
			agent = agents[k]
			if r.IntN(20) > 0 {
				addr = fmt.Sprintf(nets[homes[k].net], homes[k].first+r.IntN(homes[k].n))
			}
		}
		path := paths[r.IntN(len(paths))]
		if bytes.ContainsRune([]byte(path), 'd') && path != "/members/" {
			path = fmt.Sprintf(path, r.IntN(100_000))
		}
		h, m, s := 9+i*10/n, i/60%60, i%60
		if asJSON {
			fmt.Fprintf(&b, `{"time_iso8601":"2025-11-03T%02d:%02d:%02d+00:00","remote_addr":"%s","request":"GET %s HTTP/1.1","status":200,"body_bytes_sent":%d,"http_referer":"https://www.example.com/","http_user_agent":"%s","host":"www.example.com","request_time":0.012}`+"\n", h, m, s, addr, path, i, agent)
		} else {
			fmt.Fprintf(&b, "%s - - [03/Nov/2025:%02d:%02d:%02d +0000] \"GET %s HTTP/1.1\" 200 %d \"https://www.example.com/\" \"%s\"\n", addr, h, m, s, path, i, agent)
		}
	}
	return b.Bytes()
}

// BenchmarkAuditAccess reads, checks and judges a log; lines/s is the figure that counts.
func BenchmarkAuditAccess(b *testing.B) {
	const lines = 200_000
	combined := benchLog(lines, false)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(combined)
	z.Close()
	for _, c := range []struct {
		name    string
		body    []byte
		workers int
		change  func(*audit.AccessOptions)
	}{
		{"combined", combined, 1, nil},
		{"combined/2 workers", combined, 2, nil},
		{"combined/delay", combined, 1, func(o *audit.AccessOptions) { o.Delay = true }},
		{"combined/dedupe lines", combined, 1, func(o *audit.AccessOptions) { o.Dedupe = "lines" }},
		{"json", benchLog(lines, true), 1, nil},
		{"gzip", packed.Bytes(), 1, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "log")
			if err := os.WriteFile(path, c.body, 0o600); err != nil {
				b.Fatal(err)
			}
			o := audit.AccessOptions{Logs: []string{path}, Judge: accessJudge{}, Robots: []string{accessVectors + "/core/robots"}, Crawlers: []string{accessVectors + "/common/crawlers.json"},
				Ranges: accessVectors + "/common/ranges", DNSCache: accessVectors + "/common/dns.json", Host: "www.example.com", Workers: c.workers}
			if c.change != nil {
				c.change(&o)
			}
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				rep, err := audit.Access(b.Context(), o)
				if err != nil || rep.Totals.Requests != lines || rep.Totals.Disallowed == 0 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
