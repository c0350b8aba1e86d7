package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// allowingJudge is a broken matcher: it allows everything.
type allowingJudge struct{}

func (allowingJudge) Parse([]byte) RobotsFile { return &allowing{} }

type allowing struct{ prefixRobots }

func (a *allowing) Group([]string) RobotsGroup { return a }
func (*allowing) Match(string) RobotsMatch     { return RobotsMatch{Allowed: true} }

// TestAccessSelfCheckFails has a broken matcher: the report says so, loudly.
func TestAccessSelfCheckFails(t *testing.T) {
	rep := access(t, accessLine("192.0.2.1", "09:00:00", "/", gptBot), "", func(o *AccessOptions) { o.Judge = allowingJudge{} })
	if rep.SelfCheck.OK || len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0], "/a/deep/x.json") {
		t.Errorf("%+v %q", rep.SelfCheck, rep.Problems)
	}
	var table, page bytes.Buffer
	if err := rep.WriteTable(&table, TableStyle{}); err != nil || !strings.Contains(table.String(), "SELF-CHECK FAILED") {
		t.Errorf("%v %s", err, table.String())
	}
	if err := rep.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "self-check failed") {
		t.Errorf("%v", err)
	}
	// Sums that do not add up are named.
	rep = access(t, accessLine("192.0.2.1", "09:00:00", "/", gptBot), "", nil)
	rep.Crawlers["GPTBot"].Verified++
	rep.Totals.Lines++
	s := AccessSumCheck{}
	s.check(rep)
	if len(s.Failed) != 2 || !strings.HasPrefix(s.Failed[0], "GPTBot: genuine = verified + unverified") || !strings.HasPrefix(s.Failed[1], "lines = ") {
		t.Errorf("%q", s.Failed)
	}
}

// TestAccessFieldsAcrossBlocks changes the columns of a W3C log again and again, over several blocks and workers.
func TestAccessFieldsAcrossBlocks(t *testing.T) {
	var b strings.Builder
	want := int64(0)
	for i := 0; b.Len() < 5<<19; i++ {
		if i%1000 == 0 {
			b.WriteString("#Fields: date time c-ip cs-method cs-uri-stem sc-status cs(User-Agent)\r\n")
		} else if i%1000 == 500 {
			b.WriteString("#Fields: cs(User-Agent) sc-status cs-uri-stem cs-method c-ip time date\r\n")
		} else if i%2000 == 1700 {
			b.WriteString("#Fields: date\r\n")
			i += 300 - 1
			fmt.Fprintf(&b, "2025-11-03\r\n")
		} else if i%1000 < 500 {
			fmt.Fprintf(&b, "2025-11-03 09:00:00 192.0.2.1 GET /%d 200 GPTBot/1\r\n", i)
			want++
		} else {
			fmt.Fprintf(&b, "GPTBot/1 200 /%d GET 192.0.2.1 09:00:00 2025-11-03\r\n", i)
			want++
		}
	}
	for _, workers := range []int{1, 8} {
		rep := access(t, b.String(), "", func(o *AccessOptions) { o.Workers = workers })
		if rep.Crawlers["GPTBot"].Total != want || rep.Totals.Requests != want || rep.Malformed.Structure != rep.Totals.Malformed || !rep.SelfCheck.OK {
			t.Errorf("%d workers: %+v, expected %d", workers, rep.Totals, want)
		}
	}
}

// TestAccessOwnLog reads what the gate's own log writes: only what was sent counts, and nobody is an impersonator.
func TestAccessOwnLog(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Defaults(), dir)
	for i, e := range []*Event{
		{Decision: Forwarded, Sent: true, Status: 200, UserAgent: gptBot},
		{Decision: Forwarded, Sent: true, Status: 404, UserAgent: gptBot, Type: TypeRobots},
		{Decision: Refused, Reason: "robots-disallow", UserAgent: gptBot},
		{Decision: Failed, Sent: true, UserAgent: gptBot},
	} {
		e.Time = time.Date(2025, 11, 3, 9, 0, i, 0, time.UTC)
		e.SetURL(parse(t, fmt.Sprintf("https://www.example.com/x/%d?token=secret", i)))
		if e.Type == "" {
			e.SetClient(netip.MustParseAddrPort("10.0.0.9:1234"))
		}
		if err := l.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	path := l.Path()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ranges := t.TempDir()
	writeFile(t, ranges+"/gptbot.json", []byte(`{"prefixes":[{"ipv4Prefix":"192.0.2.0/28"}]}`))
	rep := access(t, "", "Disallow: /x/0\n", func(o *AccessOptions) { o.Logs, o.Ranges = []string{path}, ranges })
	c := rep.Crawlers["GPTBot"]
	if c == nil || c.Total != 3 || c.Unverified != 3 || c.Disallowed != 1 || c.Status.None != 1 || rep.Totals.Malformed != 0 || rep.Inputs[0].Format != "json" {
		t.Errorf("%+v %+v", c, rep.Totals)
	}
	if rep.Totals.Comments < 2 {
		t.Errorf("%+v", rep.Totals)
	}
}

func TestAccessSitemaps(t *testing.T) {
	dir := t.TempDir()
	xml := []byte(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:i="http://www.google.com/schemas/sitemap-image/1.1">` +
		`<url><loc> https://H.example/a?x=1&amp;y=%7e </loc><i:image><i:loc>https://h.example/image.png</i:loc></i:image></url><url><loc>http://h.example</loc></url></urlset>`)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := z.EncodeAll(xml, nil)
	z.Close()
	text := []byte("\ufeffhttps://h.example/a?x=1&y=~\n\n# a comment\nhttps://h.example/\n")
	for name, body := range map[string][]byte{"xml": xml, "zstd": packed, "text": text} {
		s, err := loadSitemaps([]string{writeFile(t, filepath.Join(dir, name), body)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for target, want := range map[string]bool{"/a?x=1&y=%7E": true, "/": true, "/image.png": false, "/a": false} {
			if got := s.has("h.example", appendNormal(nil, []byte(target))); got != want {
				t.Errorf("%s: %s %v", name, target, got)
			}
		}
		if !s.has("", []byte("/")) || s.has("other.example", []byte("/")) {
			t.Errorf("%s: hosts", name)
		}
	}
	for name, body := range map[string]string{"index": `<sitemapindex/>`, "page": `<html></html>`, "cut": string(xml[:len(xml)-9]), "relative": "/a\n"} {
		if _, err := loadSitemaps([]string{writeFile(t, filepath.Join(dir, name), []byte(body))}); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if _, err := loadSitemaps([]string{dir + "/none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// Sitemap lines of robots.txt and robots.txt itself are exempt.
	log := ""
	for i, target := range []string{"/", "/map.xml", "/robots.txt", "/b"} {
		log += accessLine("192.0.2.1", fmt.Sprintf("09:00:%02d", i), target, gptBot)
	}
	rep := access(t, log, "Sitemap: https://h.example/map.xml\n", func(o *AccessOptions) { o.Host, o.Sitemaps = "h.example", []string{dir + "/text"} })
	if np := rep.Crawlers["GPTBot"].NonProductive; np.NotInSitemap != 1 || rep.Crawlers["GPTBot"].RobotsFetches != 1 {
		t.Errorf("%+v", np)
	}
}

func TestAccessRangeFiles(t *testing.T) {
	dir := t.TempDir()
	defs := writeFile(t, dir+"/crawlers.json", []byte(`{"schema":"crawlgate.crawlers/1","crawlers":[
		{"name":"A","category":"seo","ua_tokens":["A"],"robots_tokens":["A"],"ranges_files":["a.json"]},
		{"name":"B","category":"seo","ua_tokens":["B"],"robots_tokens":["B"],"ranges_files":["b.json"]},
		{"name":"AB","category":"seo","ua_tokens":["AB"],"robots_tokens":["AB"],"ranges_files":["a.json","b.json"]}]}`))
	later := writeFile(t, dir+"/later.json", []byte(`{"schema":"crawlgate.crawlers/1","crawlers":[{"name":"B","category":"ads","ua_tokens":["B"],"robots_tokens":["B"],"ranges_files":["b.json"]}]}`))
	writeFile(t, dir+"/ranges/a.json", []byte(`{"prefixes":[{"ipv4Prefix":"192.0.2.0/28"}]}`))
	log := ""
	for _, agent := range []string{"A", "B", "AB"} {
		log += accessLine("192.0.2.1", "09:00:00", "/", agent) + accessLine("192.0.2.99", "09:00:00", "/", agent)
	}
	var said []string
	rep := access(t, log, "", func(o *AccessOptions) {
		o.Crawlers, o.Ranges, o.Warn = []string{defs, later}, dir+"/ranges", func(s string) { said = append(said, s) }
	})
	got := map[string][3]int64{}
	for n, c := range rep.Crawlers {
		got[n] = [3]int64{c.Verified, c.Unverified, c.Impersonated}
	}
	// Of AB one file is missing: what is in the other is verified, the rest can not be told.
	if d := cmp.Diff(map[string][3]int64{"A": {1, 0, 1}, "B": {0, 2, 0}, "AB": {1, 1, 0}}, got); d != "" {
		t.Error(d)
	}
	if len(said) != 2 || rep.Crawlers["B"].Category != "ads" {
		t.Errorf("%q, %s", said, rep.Crawlers["B"].Category)
	}
}

// TestAccessRangeFileNames: Google's file is taken under its newer name too.
func TestAccessRangeFileNames(t *testing.T) {
	for _, name := range []string{"googlebot.json", "common-crawlers.json"} {
		dir := t.TempDir()
		writeFile(t, dir+"/"+name, []byte(`{"prefixes":[{"ipv4Prefix":"192.0.2.0/28"}]}`))
		rep := access(t, accessLine("192.0.2.1", "09:00:00", "/", "Googlebot")+accessLine("192.0.2.99", "09:00:00", "/", "Googlebot"), "", func(o *AccessOptions) {
			o.Ranges = dir
		})
		if c := rep.Crawlers["Googlebot"]; c.Verified != 1 || c.Impersonated != 1 {
			t.Errorf("%s: %d verified, %d impersonated", name, c.Verified, c.Impersonated)
		}
	}
}

func TestAccessRobotsFolders(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/h.example_8080/20251103T000000Z.txt", []byte("Disallow: /x\n"))
	writeFile(t, dir+"/my_host.example/20251103T000000Z.0.txt", nil)
	writeFile(t, dir+"/20251103T000000Z.404.txt", nil)
	writeFile(t, dir+"/.hidden.txt", nil)
	writeFile(t, dir+"/README.md", nil)
	h, err := loadRobots([]string{dir}, prefixJudge{}, 1, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range h.all {
		got = append(got, fmt.Sprintf("%s %d", v.host, v.status))
	}
	if d := cmp.Diff([]string{" 404", "h.example:8080 200", "my_host.example 0"}, got); d != "" {
		t.Error(d)
	}
	if vs := h.of("other.example"); len(vs) != 1 || vs[0].status != 404 {
		t.Error("versions for every host")
	}
	for _, bad := range []string{"robots.txt", "20251103T000000Z.99.txt", "20251103T006100Z.txt", "20251133T000000Z.txt"} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "h.example", bad), nil)
		if _, err := loadRobots([]string{dir}, prefixJudge{}, 1, time.Hour, 0); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

// TestAccessOverlapOfFiles drops from each rotated file what the one before ends with, and nothing else.
func TestAccessOverlapOfFiles(t *testing.T) {
	dir := t.TempDir()
	lines := func(from, to int) (s string) {
		for i := from; i < to; i++ {
			s += accessLine("192.0.2.1", fmt.Sprintf("09:%02d:%02d", i/60, i%60), fmt.Sprintf("/%d", i), gptBot)
		}
		return s
	}
	writeFile(t, dir+"/a.log.2", []byte(lines(0, 100)))
	writeFile(t, dir+"/a.log.1", []byte(strings.ReplaceAll(lines(90, 200), "\n", "\r\n")))
	writeFile(t, dir+"/a.log", []byte(lines(150, 300)))
	writeFile(t, dir+"/b.log", []byte(lines(250, 310)))
	for mode, want := range map[string]int64{"none": 420, "overlap": 360, "lines": 310} {
		rep, err := Access(t.Context(), AccessOptions{Logs: []string{dir}, Judge: prefixJudge{}, Dedupe: mode, Workers: 4})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Totals.Requests != want || rep.Totals.Requests+rep.Totals.Duplicates != 420 || !rep.SelfCheck.OK {
			t.Errorf("%s: %+v, expected %d", mode, rep.Totals, want)
		}
	}
}

// TestAccessSameBytes takes equal files once, however they are packed, and tells apart those that differ late.
func TestAccessSameBytes(t *testing.T) {
	dir := t.TempDir()
	body := []byte(strings.Repeat(accessLine("192.0.2.1", "09:00:00", "/", gptBot), 2000))
	other := bytes.Clone(body)
	other[len(other)-20] = 'x'
	writeFile(t, dir+"/a.log", body)
	writeFile(t, dir+"/b.log", body)
	writeFile(t, dir+"/c.log", other)
	writeFile(t, dir+"/d.log", body[:len(body)/2])
	writeFile(t, dir+"/e.log", nil)
	writeFile(t, dir+"/f.log", nil)
	if err := os.Symlink(dir+"/a.log", dir+"/link.log"); err != nil {
		t.Fatal(err)
	}
	rep, err := Access(t.Context(), AccessOptions{Logs: []string{dir}, Judge: prefixJudge{}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, in := range rep.Inputs {
		got = append(got, fmt.Sprintf("%s %d %s", filepath.Base(in.Path), in.Requests, strings.ReplaceAll(in.Skipped, dir+"/", "")))
	}
	if d := cmp.Diff([]string{"a.log 2000 ", "b.log 0 duplicate of a.log", "c.log 2000 ", "d.log 1000 ", "e.log 0 ", "f.log 0 "}, got); d != "" {
		t.Error(d)
	}
}
