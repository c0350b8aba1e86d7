package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// prefixJudge is a matcher for tests of what lies around it: every Disallow line binds everybody, by plain prefix.
type prefixJudge struct{}

func (prefixJudge) Parse(body []byte) RobotsFile {
	var f prefixRobots
	for i, line := range strings.Split(string(body), "\n") {
		if p, ok := strings.CutPrefix(line, "Disallow: "); ok {
			f.rules = append(f.rules, prefixRule{i + 1, p})
		}
		if d, ok := strings.CutPrefix(line, "Crawl-delay: "); ok {
			f.delay, _ = time.ParseDuration(d + "s")
		}
		if s, ok := strings.CutPrefix(line, "Sitemap: "); ok {
			f.sitemaps = append(f.sitemaps, s)
		}
	}
	return &f
}

type prefixRule struct {
	line   int
	prefix string
}

type prefixRobots struct {
	rules    []prefixRule
	delay    time.Duration
	sitemaps []string
}

func (f *prefixRobots) Group([]string) RobotsGroup { return f }
func (f *prefixRobots) Sitemaps() []string         { return f.sitemaps }
func (f *prefixRobots) Token() string              { return "*" }
func (f *prefixRobots) Line() int                  { return 1 }
func (f *prefixRobots) CrawlDelay() time.Duration  { return f.delay }

func (f *prefixRobots) Match(target string) RobotsMatch {
	if target == "/robots.txt" {
		return RobotsMatch{Allowed: true, Itself: true}
	}
	if strings.HasPrefix(target, "/panic") {
		panic("boom")
	}
	// The fixed cases of the self-check, which this matcher is too plain for.
	if slices.Contains([]string{"/a/deep/x.json"}, target) {
		return RobotsMatch{}
	}
	for _, r := range f.rules {
		if strings.HasPrefix(target, r.prefix) {
			return RobotsMatch{Line: r.line, Rule: "Disallow: " + r.prefix}
		}
	}
	return RobotsMatch{Allowed: true}
}

const gptBot = `Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)`

// accessLine is a combined log line of 3 November 2025.
func accessLine(addr, clock, target, agent string) string {
	return fmt.Sprintf("%s - - [03/Nov/2025:%s +0000] \"GET %s HTTP/1.1\" 200 5 \"-\" \"%s\"\n", addr, clock, target, agent)
}

func writeFile(t testing.TB, path string, body []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// access runs an audit of one log text with a robots.txt for every host.
func access(t testing.TB, log, robots string, change func(*AccessOptions)) *AccessReport {
	t.Helper()
	dir := t.TempDir()
	o := AccessOptions{Logs: []string{writeFile(t, dir+"/access.log", []byte(log))}, Judge: prefixJudge{}}
	if robots != "" {
		o.Robots = []string{writeFile(t, dir+"/robots.txt", []byte(robots))}
	}
	if change != nil {
		change(&o)
	}
	rep, err := Access(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestAccessLines(t *testing.T) {
	const agent = gptBot
	day := time.Date(2025, 11, 3, 9, 0, 0, 0, time.UTC).UnixMilli()
	type want struct {
		why    reason
		peer   string
		host   string
		target string
		agent  string
		xff    string
		time   int64
		status int16
	}
	ok := want{lineOK, "192.0.2.1", "", "/a", agent, "", day, 200}
	with := func(f func(*want)) want { w := ok; f(&w); return w }
	bad := func(r reason) want { return want{why: r} }
	clf := func(request, rest string) string {
		return `192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] "` + request + `" ` + rest
	}
	combined := ` "-" "` + agent + `"`
	fields := parseFields([]byte("#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status cs(User-Agent) cs-host X-Forwarded-For"))
	nginx, err := parseNginxFormat(`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for" rt=$request_time`)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		format logFormat
		line   string
		want   want
	}{
		"combined":              {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "200 5"+combined), ok},
		"common":                {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "200 5"), with(func(w *want) { w.agent = "" })},
		"size dash":             {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "200 -"+combined), ok},
		"vhost with port":       {logFormat{kind: formatCLF}, "www.example.com:443 " + clf("GET /a HTTP/1.1", "200 5"+combined), with(func(w *want) { w.host = "www.example.com:443" })},
		"user with blanks":      {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "- - [", "- frank von smith [", 1), ok},
		"no version":            {logFormat{kind: formatCLF}, clf("GET /a", "200 5"+combined), ok},
		"target with blanks":    {logFormat{kind: formatCLF}, clf("GET /a b c HTTP/1.1", "200 5"+combined), with(func(w *want) { w.target = "/a b c" })},
		"quote inside":          {logFormat{kind: formatCLF}, clf(`GET /a"b HTTP/1.1`, "200 5"+combined), with(func(w *want) { w.target = `/a"b` })},
		"escaped quote":         {logFormat{kind: formatCLF}, clf(`GET /a\"\x20b\\ HTTP/1.1`, "200 5"+combined), with(func(w *want) { w.target = `/a" b\` })},
		"even backslashes":      {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", `200 5 "x\\" "`+agent+`"`), ok},
		"absolute":              {logFormat{kind: formatCLF}, clf("GET http://H.example:80?x HTTP/1.1", "200 5"+combined), with(func(w *want) { w.host, w.target = "H.example:80", "/?x" })},
		"absolute, no path":     {logFormat{kind: formatCLF}, clf("GET https://u:p@h.example#x HTTP/1.1", "200 5"+combined), with(func(w *want) { w.host, w.target = "h.example", "/" })},
		"fragment":              {logFormat{kind: formatCLF}, clf("GET /a#b?c HTTP/1.1", "200 5"+combined), ok},
		"asterisk":              {logFormat{kind: formatCLF}, clf("OPTIONS * HTTP/1.1", "200 5"+combined), with(func(w *want) { w.target = "" })},
		"connect":               {logFormat{kind: formatCLF}, clf("CONNECT h.example:443 HTTP/1.1", "200 5"+combined), with(func(w *want) { w.host, w.target = "h.example:443", "" })},
		"forwarded":             {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "200 5"+combined+` "192.0.2.9, unknown, _x, [2001:db8::1]:80"`), with(func(w *want) { w.xff = "192.0.2.9, unknown, _x, [2001:db8::1]:80" })},
		"not forwarded":         {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "200 5"+combined+` "gzip" "192.0.2.9"`), ok},
		"time zone":             {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "09:00:00 +0000", "03:30:00 -0530", 1), ok},
		"fraction":              {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "09:00:00", "09:00:00.1239", 1), with(func(w *want) { w.time += 123 })},
		"second 60":             {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "09:00:00", "09:00:60", 1), with(func(w *want) { w.time += 59_000 })},
		"mapped":                {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "192.0.2.1", "::ffff:192.0.2.1", 1), ok},
		"zone":                  {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "192.0.2.1", "fe80::1%eth0", 1), with(func(w *want) { w.peer = "fe80::1" })},
		"leading zero":          {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"+combined), "192.0.2.1", "192.0.02.1", 1), bad(badAddress)},
		"referer only":          {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", `200 5 "-"`), bad(badStructure)},
		"no size":               {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "200"), bad(badStructure)},
		"agent cut off":         {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", `200 5 "-" "Mozi`), bad(badStructure)},
		"structure before":      {logFormat{kind: formatCLF}, "x - - [nonsense] \"\" x", bad(badStructure)},
		"address before time":   {logFormat{kind: formatCLF}, `x - - [nonsense] "" x y`, bad(badAddress)},
		"time before request":   {logFormat{kind: formatCLF}, `192.0.2.1 - - [nonsense] "" x y`, bad(badTime)},
		"request before status": {logFormat{kind: formatCLF}, `192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] "" x y`, bad(badRequest)},
		"status":                {logFormat{kind: formatCLF}, clf("GET /a HTTP/1.1", "20 5"), bad(badStatus)},
		"29 February":           {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"), "03/Nov/2025", "29/Feb/2025", 1), bad(badTime)},
		"hour 24":               {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"), "09:00:00", "24:00:00", 1), bad(badTime)},
		"no offset":             {logFormat{kind: formatCLF}, strings.Replace(clf("GET /a HTTP/1.1", "200 5"), " +0000", "", 1), bad(badTime)},
		"TLS bytes":             {logFormat{kind: formatCLF}, clf(`\x16\x03\x01`, "400 5"+combined), bad(badRequest)},
		"relative target":       {logFormat{kind: formatCLF}, clf(`GET a HTTP/1.1`, "400 5"+combined), bad(badRequest)},
		"method of digits":      {logFormat{kind: formatCLF}, clf(`1GET /a HTTP/1.1`, "400 5"+combined), bad(badRequest)},
		"w3c": {logFormat{kind: formatW3C}, "2025-11-03 09:00:00 192.0.2.1 GET /a - 200 " + strings.ReplaceAll(agent, " ", "+") + " h.example:443 -", with(func(w *want) {
			w.host = "h.example:443"
			w.agent = strings.ReplaceAll(strings.ReplaceAll(agent, " ", "+"), "+", " ")
		})},
		"w3c query and proxies": {logFormat{kind: formatW3C}, "2025-11-03 09:00:00.5 192.0.2.1 GET /a x=1 200 - - 192.0.2.8,+192.0.2.9", with(func(w *want) { w.agent, w.target, w.xff = "", "/a?x=1", "192.0.2.8, 192.0.2.9"; w.time += 500 })},
		"w3c short":             {logFormat{kind: formatW3C}, "2025-11-03 09:00:00 192.0.2.1", bad(badStructure)},
		"w3c comment":           {logFormat{kind: formatW3C}, "#Date: x", bad(lineComment)},
		"w3c time":              {logFormat{kind: formatW3C}, "2025-11-03 9:00 192.0.2.1 GET /a - 200 - - -", bad(badTime)},
		"squid":                 {logFormat{kind: formatSquid}, "1762160400.000    1 192.0.2.1 TCP_MISS/200 5 GET http://h.example/a - DIRECT/192.0.2.7 text/html", with(func(w *want) { w.host, w.agent = "h.example", "" })},
		"squid no answer":       {logFormat{kind: formatSquid}, "1762160400.000    1 192.0.2.1 TCP_MISS_ABORTED/000 0 GET http://h.example/a - DIRECT/- -", with(func(w *want) { w.host, w.agent, w.status = "h.example", "", 0 })},
		"squid error":           {logFormat{kind: formatSquid}, "1762160400.000    1 192.0.2.1 NONE/400 5 NONE error:invalid-request - HIER_NONE/- text/html", bad(badRequest)},
		"alb, IPv6":             {logFormat{kind: formatALB}, `h2 2025-11-03T09:00:00.000000Z app/x [2001:db8::1]:4711 - 0 0 0 200 - 1 2 "GET https://h.example:443/a HTTP/2.0" "` + agent + `" - -`, with(func(w *want) { w.peer, w.host = "2001:db8::1", "h.example:443" })},
		"nginx":                 {logFormat{kind: formatNginx, nginx: nginx}, clf("GET /a HTTP/1.1", "200 5"+combined+` "192.0.2.9" rt=0.001`), with(func(w *want) { w.xff = "192.0.2.9" })},
		"nginx, escaped quote":  {logFormat{kind: formatNginx, nginx: nginx}, clf(`GET /a\" HTTP/1.1`, "200 5"+combined+` "-" rt=0.001`), with(func(w *want) { w.target = `/a"` })},
		"nginx, other text":     {logFormat{kind: formatNginx, nginx: nginx}, clf(`GET /a HTTP/1.1`, "200 5"+combined), bad(badStructure)},
		"json, nginx":           {logFormat{kind: formatJSON}, `{"time_local":"03/Nov/2025:09:00:00 +0000","remote_addr":"192.0.2.1","request":"GET \/a HTTP\/1.1","status":"200","user_agent":"` + agent + `","server_name":"h.example"}`, with(func(w *want) { w.host = "h.example" })},
		"json, ms":              {logFormat{kind: formatJSON}, `{"timestamp":1762160400000,"client_ip":"192.0.2.1","request_method":"GET","request_uri":"/\u0061","status":200,"http_user_agent":"` + agent + `"}`, ok},
		"json, Caddy rounded":   {logFormat{kind: formatJSON}, `{"ts":1762160400.0009996,"request":{"remote_ip":"192.0.2.1","client_ip":"192.0.2.7","method":"GET","host":"h.example","uri":"/a","headers":{"user-agent":["` + agent + `"],"X-Forwarded-For":["192.0.2.8","192.0.2.9"]}},"status":200}`, with(func(w *want) { w.host, w.xff = "h.example", "192.0.2.8,192.0.2.9"; w.time++ })},
		"json, Logpush":         {logFormat{kind: formatJSON}, `{"ClientIP":"192.0.2.1","ClientRequestHost":"h.example","ClientRequestMethod":"GET","ClientRequestURI":"/a","ClientRequestUserAgent":"` + agent + `","EdgeResponseStatus":200,"EdgeStartTimestamp":1762160400}`, with(func(w *want) { w.host = "h.example" })},
		"json, own":             {logFormat{kind: formatJSON}, `{"schema":"crawlgate.audit.event/1","type":"request","time":"2025-11-03T08:59:59.000Z","client":{"ip":"192.0.2.1"},"sent":true,"sent_at":"2025-11-03T09:00:00.000Z","url":"https://h.example/a","host":"h.example","user_agent":"` + agent + `","status":200}`, with(func(w *want) { w.host = "h.example" })},
		"json, own, refused":    {logFormat{kind: formatJSON}, `{"schema":"crawlgate.audit.event/1","type":"request","sent":false}`, bad(lineComment)},
		"json, own, start":      {logFormat{kind: formatJSON}, `{"schema":"crawlgate.audit.event/1","type":"start"}`, bad(lineComment)},
		"json, list":            {logFormat{kind: formatJSON}, `[1]`, bad(badJSON)},
		"json, status number":   {logFormat{kind: formatJSON}, `{"msec":1762160400.0,"remote_addr":"192.0.2.1","request":"GET /a","status":200.5}`, bad(badStatus)},
		"json, no address":      {logFormat{kind: formatJSON}, `{"msec":1762160400.0,"request":"GET /a","status":200}`, bad(badAddress)},
		"unknown":               {logFormat{}, `x`, bad(badFormat)},
	} {
		t.Run(name, func(t *testing.T) {
			var p lineParser
			for range 2 { // the second time from the caches
				r := p.parse([]byte(c.line), &c.format, fields)
				if r != c.want.why {
					t.Fatalf("reason %d, expected %d", r, c.want.why)
				}
				if r != lineOK {
					continue
				}
				e := &p.e
				got := want{r, e.peer.String(), string(e.host), string(e.target), string(e.agent), string(e.xff), e.time, e.status}
				if d := cmp.Diff(fmt.Sprintf("%+v", c.want), fmt.Sprintf("%+v", got)); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestAccessFormatsDetected(t *testing.T) {
	var p lineParser
	clf := accessLine("192.0.2.1", "09:00:00", "/", gptBot)
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"empty":            {"\n  \n", ""},
		"clf":              {"\n" + clf, "clf"},
		"bad values count": {strings.Replace(clf, "192.0.2.1", "host.example", 1), "clf"},
		"tie, first seen":  {clf + `{"a":1}` + "\n", "clf"},
		"tie, other order": {`{"a":1}` + "\n" + clf, "json"},
		"most":             {`{"a":1}` + "\n" + clf + clf, "clf"},
		"w3c":              {"#Version: 1.0\r\n#Fields: date time c-ip cs-method cs-uri-stem sc-status\r\n", "w3c"},
		"garbage":          {"garbage\n", "unknown"},
		"beyond 20 lines":  {strings.Repeat("garbage\n", 20) + clf, "unknown"},
	} {
		if got := p.detect([]byte(c.text)).String(); got != c.want {
			t.Errorf("%s: %q, expected %q", name, got, c.want)
		}
	}
	for text, problem := range map[string]string{"combined": "", "$remote_addr$request": "right after", "$remote_addr x": "$time_local, $request, $status missing", "nonsense": "is not one of", "a ${b": "without }"} {
		_, err := parseLogFormat(text)
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAccessClaims(t *testing.T) {
	l, err := loadCrawlers(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(l.all) < 45 {
		t.Fatalf("%d crawlers", len(l.all))
	}
	for agent, want := range map[string]string{
		gptBot:                                  "GPTBot",
		"gptbot":                                "GPTBot",
		"Googlebot-Image/1.0":                   "Googlebot-Image",
		"+https://openai.com/gptbot":            "",
		"+claudebot@anthropic.com":              "",
		"NotGPTBot/1.0":                         "",
		"GPTBot-Audit/1.0":                      "",
		"GPTBot.":                               "",
		"x [ClaudeBot] GPTBot":                  "ClaudeBot",
		"\"GPTBot\" Googlebot":                  "GPTBot",
		"a;GPTBot;b":                            "GPTBot",
		"a,GPTBot,b":                            "GPTBot",
		"a\tGPTBot\tb":                          "GPTBot",
		"(GPTBot)":                              "GPTBot",
		"Google-Extended/1.0":                   "Google-Extended",
		"Mozilla/5.0 (X11; Linux x86_64) Gecko": "",
		"":                                      "",
	} {
		got := ""
		if i := l.claimed([]byte(agent)); i >= 0 {
			got = l.all[i].Name
		}
		if got != want {
			t.Errorf("%q claims %q, expected %q", agent, got, want)
		}
	}
}

func TestAccessClient(t *testing.T) {
	trusted := newPrefixSet([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("::ffff:10.9.0.0/112"), netip.MustParsePrefix("2001:db8:f::/64")})
	for _, c := range []struct{ peer, xff, want string }{
		{"10.0.0.5", "", "10.0.0.5"},
		{"10.0.0.5", "192.0.2.1", "192.0.2.1"},
		{"10.9.1.1", "192.0.2.1", "192.0.2.1"},
		{"10.0.0.5", "192.0.2.1, 10.0.0.6", "192.0.2.1"},
		{"10.0.0.5", "203.0.113.1, 192.0.2.1", "192.0.2.1"},
		{"10.0.0.5", "192.0.2.1, 10.0.0.99", "10.0.0.99"},
		{"10.0.0.5", "10.0.0.6, 10.0.0.7", "10.0.0.6"},
		{"10.0.0.5", "192.0.2.1, unknown, 10.0.0.7", "10.0.0.7"},
		{"10.0.0.5", "192.0.2.1,", "10.0.0.5"},
		{"10.0.0.5", `"[2001:db8::1]:443"`, "2001:db8::1"},
		{"10.0.0.5", "[2001:db8::1]", "2001:db8::1"},
		{"10.0.0.5", "2001:db8::1", "2001:db8::1"},
		{"10.0.0.5", "192.0.2.1:80", "192.0.2.1"},
		{"10.0.0.5", "192.0.2.1:x", "10.0.0.5"},
		{"10.0.0.5", "[192.0.2.1]", "10.0.0.5"},
		{"10.0.0.5", "::ffff:192.0.2.1", "192.0.2.1"},
		{"192.0.2.9", "203.0.113.1", "192.0.2.9"},
		{"2001:db8:f::9", "203.0.113.1", "203.0.113.1"},
	} {
		if got := clientOf(netip.MustParseAddr(c.peer), []byte(c.xff), trusted); got.String() != c.want {
			t.Errorf("%s behind %q: %s, expected %s", c.xff, c.peer, got, c.want)
		}
	}
}

func TestAccessRanges(t *testing.T) {
	p, err := parseRanges([]byte(`{"prefixes":[{"ipv4Prefix":"192.0.2.9/28"},{"ipv6Prefix":"2001:db8::1/64"},{"ipv6Prefix":"::ffff:198.51.100.0/120"},{"ipv4Prefix":"203.0.113.7"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := newPrefixSet(p)
	for addr, want := range map[string]bool{"192.0.2.0": true, "192.0.2.15": true, "192.0.2.16": false, "191.255.255.255": false, "2001:db8::ffff": true,
		"2001:db8:0:1::": false, "198.51.100.255": true, "198.51.101.0": false, "203.0.113.7": true, "203.0.113.8": false, "::": false, "c000:200::": false} {
		if got := s.contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	for _, bad := range []string{`{}`, `[]`, `{"prefixes":[{"ipv4Prefix":"192.0.2.0/33"}]}`, `{"prefixes":[{"ipv4Prefix":"2001:db8::/32"}]}`, `{"prefixes":[{"ipv4Prefix":5}]}`, `{"prefixes":[{}]}`, `{"prefixes":[null]}`} {
		if _, err := parseRanges([]byte(bad)); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

func TestAccessIndexing(t *testing.T) {
	c := &crawler{names: []string{"googlebot-image", "googlebot"}}
	for value, want := range map[string][2]bool{
		"noindex":                             {true, false},
		"NoFollow , NOINDEX":                  {true, true},
		"none":                                {true, true},
		"all":                                 {},
		"googlebot: noindex":                  {true, false},
		"otherbot: noindex, nofollow":         {},
		"otherbot: none, googlebot: nofollow": {false, true},
		"otherbot: none\nnoindex":             {true, false},
		"unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow":     {false, true},
		"unavailable_after: Wednesday, 25-Jun-30 15:00:00, noindex": {true, false},
		"max-snippet:20, nofollow":                                  {false, true},
	} {
		a, b := c.indexing([]byte(value))
		if [2]bool{a, b} != want {
			t.Errorf("%q: %v %v", value, a, b)
		}
	}
}

func TestAccessSpelling(t *testing.T) {
	for target, want := range map[string][2]bool{
		"/": {}, "/a/b": {}, "/a?x=1": {true, false}, "/a?": {false, true}, "//a": {false, true}, "/a//b": {false, true}, "/a/./b": {false, true},
		"/a/../b": {false, true}, "/a/%2E%2e/b": {false, true}, "/a/...": {}, "/a/.b": {}, "/index.html": {false, true}, "/a/Default.aspx": {false, true},
		"/index.html/a": {}, "/xindex.html": {}, "/a;jsessionid=1": {false, true}, "/a;b;JSESSIONID=1": {false, true}, "/a;jsession": {},
		"/a?utm_source=x": {true, true}, "/a?b=1&gclid=2": {true, true}, "/a?PHPSESSID=2": {true, true}, "/a?utm_": {true, true}, "/a?utm": {true, false}, "/a?sidx=1": {true, false},
		"/a?x=//": {true, false}, "/a?x=/../": {true, false},
	} {
		p, d := spelling([]byte(target))
		if [2]bool{p, d} != want {
			t.Errorf("%s: %v %v", target, p, d)
		}
	}
}

func TestAccessHostNames(t *testing.T) {
	for in, want := range map[string]string{"WWW.Example.com": "www.example.com", "h.example.:443": "h.example", "h:80": "h", "h:8080": "h:8080", "-": "", "": "",
		"[2001:DB8::1]:443": "[2001:db8::1]", "[2001:db8::1]": "[2001:db8::1]", "h.": "h", "h:": "h"} {
		if got := hostName(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestAccessOrder(t *testing.T) {
	want := []string{
		"a/access.log-20251101.gz", "a/access.log-20251102", "a/access.log.10.gz", "a/access.log.2", "a/access.log.1", "a/access.log", "a/error.log",
		"b/site-20251101.log", "b/site-20251102.log.bz2", "b/site.log",
	}
	dir := t.TempDir()
	for i, name := range want {
		writeFile(t, filepath.Join(dir, name), []byte(fmt.Sprint(i)))
	}
	t.Chdir(dir)
	for range 20 {
		args := slices.Clone(want)
		rand.Shuffle(len(args), func(i, j int) { args[i], args[j] = args[j], args[i] })
		in, err := listInputs(append(args, "a/*.log", "./b/site.log"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range in {
			got = append(got, strings.TrimPrefix(x.path, "./"))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	if _, err := listInputs([]string{"nothing*"}, nil); err == nil {
		t.Error("a glob that matches nothing passes")
	}
	if _, err := listInputs([]string{"/dev/zero"}, nil); err == nil {
		t.Error("a device passes")
	}
	if _, err := listInputs([]string{t.TempDir()}, nil); err == nil {
		t.Error("an empty folder passes")
	}
}

func TestAccessOverlap(t *testing.T) {
	h := func(s string) (out []uint64) {
		for _, c := range s {
			out = append(out, uint64(c))
		}
		return out
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 0}, {"abc", "cde", 1}, {"abc", "abc", 3}, {"aab", "aab", 3}, {"aaa", "aa", 2}, {"xabab", "ababc", 4}, {"abcx", "abc", 0}, {"ab", "xab", 0}} {
		if got := longestOverlap(h(c.a), h(c.b)); got != c.want {
			t.Errorf("%s, %s: %d", c.a, c.b, got)
		}
	}
}

// TestAccessCut reads archives that end too early: every whole line before the cut counts, and the report says so.
func TestAccessCut(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	for i := range 5000 {
		fmt.Fprint(w, accessLine("192.0.2.1", "09:00:00", fmt.Sprintf("/%d", i*7919), gptBot))
	}
	w.Close()
	dir := t.TempDir()
	whole := z.Bytes()
	run := func(body []byte) *AccessReport {
		rep, err := Access(t.Context(), AccessOptions{Logs: []string{writeFile(t, dir+"/x", body)}, Judge: prefixJudge{}})
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	rep := run(whole[:len(whole)*3/4])
	in := rep.Inputs[0]
	if in.Compression != "gzip" || in.Error == "" || len(rep.Problems) != 1 || in.Lines < 1000 || in.Lines != in.Requests || !rep.SelfCheck.OK {
		t.Errorf("%+v, %q", in, rep.Problems)
	}
	if rep := run([]byte{0x1f, 0x8b, 1, 2, 3}); len(rep.Problems) != 1 {
		t.Errorf("a broken archive passes: %+v", rep.Inputs)
	}
	if rep := run(append(whole, whole...)); rep.Totals.Requests != 10000 || rep.Problems != nil {
		t.Errorf("two members: %+v %q", rep.Totals, rep.Problems)
	}
}

// TestAccessLongLines holds lines of more than 1 MiB against the limit, wherever blocks are cut.
func TestAccessLongLines(t *testing.T) {
	line := accessLine("192.0.2.1", "09:00:00", "/", gptBot)
	for _, n := range []int{maxAccessLine, maxAccessLine + 1, 2 * maxAccessLine, 2*maxAccessLine + 1, 3 * maxAccessLine} {
		long := line[:len(line)-2] + strings.Repeat("x", n-len(line)+1) + "\"\n"
		if len(long) != n+1 {
			t.Fatal(len(long))
		}
		for _, tail := range []string{line, strings.TrimSuffix(line, "\n"), ""} {
			log := "\xef\xbb\xbf" + line + "\r\n" + long + tail
			if tail == "" {
				log = strings.TrimSuffix(log, "\n")
			}
			rep := access(t, log, "", nil)
			malformed, requests := int64(0), int64(2)
			if n > maxAccessLine {
				malformed, requests = 1, 1
			}
			lines := int64(3)
			if tail != "" {
				lines, requests = 4, requests+1
			}
			if got := rep.Totals; got.Malformed != malformed || got.Requests != requests || got.Lines != lines || got.Blank != 1 || !rep.SelfCheck.OK {
				t.Errorf("%d bytes: %+v", n, got)
			}
		}
	}
}

func TestAccessPipes(t *testing.T) {
	dir := t.TempDir()
	fifo := dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	line := accessLine("192.0.2.1", "09:00:00", "/", gptBot)
	var wg sync.WaitGroup
	wg.Go(func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			fmt.Fprint(f, line, line)
			f.Close()
		}
	})
	rep, err := Access(t.Context(), AccessOptions{Logs: []string{fifo, "-", "-"}, Stdin: strings.NewReader(line + line), Judge: prefixJudge{}})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	// Equal bytes, but streams are exempt from the comparison.
	if rep.Totals.Requests != 4 || len(rep.Inputs) != 2 {
		t.Errorf("%+v", rep)
	}
}

// TestAccessFault makes a worker panic: the line is malformed, the report fails, and everything else counts.
func TestAccessFault(t *testing.T) {
	log := accessLine("192.0.2.1", "09:00:00", "/a", gptBot) + accessLine("192.0.2.1", "09:00:01", "/panic", gptBot) + accessLine("192.0.2.1", "09:00:02", "/b", gptBot)
	rep := access(t, log, "Disallow: /x\n", nil)
	if rep.Totals.Requests != 2 || rep.Totals.Malformed != 1 || len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0], "boom") || !rep.SelfCheck.OK {
		t.Errorf("%+v %q", rep.Totals, rep.Problems)
	}
}

type fakeDNS struct {
	mu    sync.Mutex
	now   int
	most  int
	asked map[string]int
}

func (f *fakeDNS) enter(key string) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[key]++
	f.now++
	f.most = max(f.most, f.now)
	return func() { f.mu.Lock(); f.now--; f.mu.Unlock() }
}

func (f *fakeDNS) LookupPTR(ctx context.Context, a netip.Addr) ([]string, error) {
	defer f.enter(a.String())()
	time.Sleep(time.Second) // virtual
	switch b := a.As4(); {
	case b[3] == 250:
		<-ctx.Done()
		return nil, ctx.Err()
	case b[3] == 251:
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	case b[3] == 252:
		return nil, &net.DNSError{Err: "server misbehaving"}
	default:
		return []string{fmt.Sprintf("Crawl-%d.Unlob.com.", b[3])}, nil
	}
}

func (f *fakeDNS) LookupAddr(_ context.Context, name string) ([]netip.Addr, error) {
	defer f.enter(name)()
	var n byte
	if _, err := fmt.Sscanf(name, "crawl-%d.unlob.com", &n); err != nil {
		return nil, err
	}
	if n%2 == 1 {
		n++
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, n})}, nil
}

// TestAccessLiveDNS asks each address and name once, 16 at a time, and keeps what may be kept.
func TestAccessLiveDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var log strings.Builder
		for i := range 40 {
			if i >= 37 {
				i += 213 // 250 to 252, which have no name
			}
			log.WriteString(accessLine(fmt.Sprintf("192.0.2.%d", i), "09:00:00", "/", "UnlobBot/1.0"))
		}
		dns := &fakeDNS{asked: map[string]int{}}
		o := AccessOptions{Logs: []string{"-"}, Stdin: &blockReader{text: log.String()}, Judge: prefixJudge{}, DNS: "live", DNSCache: dir + "/dns.json", Resolver: dns}
		rep, err := Access(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		c := rep.Crawlers["UnlobBot"]
		if c.Verified != 19 || c.Unverified != 2 || c.Impersonated != 19 {
			t.Errorf("%+v", c)
		}
		for k, n := range dns.asked {
			if n != 1 {
				t.Errorf("%s asked %d times", k, n)
			}
		}
		if dns.most != dnsParallel {
			t.Errorf("%d at a time", dns.most)
		}
		var kept struct {
			PTR, Forward map[string]dnsAnswer
		}
		body, err := os.ReadFile(o.DNSCache)
		if err == nil {
			err = json.Unmarshal(body, &kept)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(kept.PTR) != 38 || kept.PTR["192.0.2.251"].Error != "nxdomain" || len(kept.Forward) != 37 || kept.PTR["192.0.2.4"].Names[0] != "crawl-4.unlob.com" {
			t.Errorf("%d and %d kept: %+v", len(kept.PTR), len(kept.Forward), kept.PTR["192.0.2.251"])
		}
		// From the cache alone: the same, without asking.
		o.Stdin, o.DNS, o.Resolver = strings.NewReader(log.String()), "cache", nil
		again, err := Access(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*c, *again.Crawlers["UnlobBot"]); d != "" {
			t.Error(d)
		}
		// After seven days the answers are asked for again.
		time.Sleep(dnsKeep)
		o.DNS, o.Resolver, dns.asked = "live", dns, map[string]int{}
		o.Stdin = strings.NewReader(log.String())
		if _, err := Access(t.Context(), o); err != nil || len(dns.asked) != 77 {
			t.Errorf("%v, %d asked", err, len(dns.asked))
		}
	})
}

// blockReader gives one line at a time, padded with a blank line to a block of its own, so that all workers have work.
type blockReader struct{ text string }

func (b *blockReader) Read(p []byte) (int, error) {
	line, rest, ok := strings.Cut(b.text, "\n")
	if !ok {
		return 0, os.ErrClosed
	}
	b.text = rest
	n := copy(p, line+"\n")
	for n < len(p)-1 {
		n += copy(p[n:len(p)-1], "                                                                ")
	}
	p[n] = '\n'
	return n + 1, nil
}

// TestAccessDelaySpill gives the same delays with times on disk as in memory.
func TestAccessDelaySpill(t *testing.T) {
	var log strings.Builder
	for range 5000 {
		log.WriteString(accessLine("192.0.2.1", fmt.Sprintf("%02d:%02d:%02d", rand.IntN(24), rand.IntN(60), rand.IntN(60)), "/", []string{gptBot, "ClaudeBot", "UnlobBot"}[rand.IntN(3)]))
	}
	var want *AccessReport
	for _, spill := range []int{1 << 20, 999, 40} {
		rep := access(t, log.String(), "Crawl-delay: 7\n", func(o *AccessOptions) { o.Delay, o.Workers, o.spill = true, 2, spill })
		if want == nil {
			want = rep
			if c := rep.Crawlers["GPTBot"].CrawlDelay; c.Checked < 1000 || c.Violations == 0 {
				t.Fatalf("%+v", c)
			}
			continue
		}
		if d := cmp.Diff(want.Crawlers, rep.Crawlers); d != "" {
			t.Error(d)
		}
	}
}

func TestAccessIndexJSONL(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/bodies/ab", []byte("Disallow: /x\n"))
	index := `{"host":"H.example","effective":"2025-11-03T08:00:00Z","status":200,"file":"bodies/ab","sha256":"","agent":"x"}
{"host":"h.example","effective":"2025-11-03T10:00:00.5Z","status":0,"file":"","sha256":""}
{"host":"h.example","effective":"2025-11-03T11:00:00Z","status":200,"file":"bodies/gone","sha256":""}
{"host":"h.example","effective":"2025-11-03T11:00:00Z","status":404,"file":"","sha256":""}
`
	writeFile(t, dir+"/index.jsonl", []byte(index))
	log := ""
	for _, c := range []string{"07:59:59", "08:00:00", "10:00:00", "10:00:01", "11:00:00"} {
		log += accessLine("192.0.2.1", c, "/x", gptBot)
	}
	rep := access(t, log, "", func(o *AccessOptions) { o.Robots = []string{dir} })
	c := rep.Crawlers["GPTBot"]
	if c.Unjudged != 1 || c.Disallowed != 3 || c.Allowed != 1 || len(c.Violations) != 2 || c.Violations[1].Reason != "robots_unreachable" || !rep.SelfCheck.OK || len(rep.SelfCheck.Versions) != 2 {
		t.Errorf("%+v %+v", c, rep.SelfCheck)
	}
	for name, bad := range map[string]string{
		"altered body": strings.Replace(index, `"sha256":""`, `"sha256":"00"`, 1), "outside": strings.Replace(index, "bodies/ab", "../ab", 1),
		"missing body": strings.Replace(index, "bodies/ab", "bodies/no", 1), "no JSON": "x\n", "empty": "\n", "status": strings.Replace(index, "404", "104", 1),
	} {
		writeFile(t, dir+"/index.jsonl", []byte(bad))
		if _, err := loadRobots([]string{dir}, prefixJudge{}, 1, time.Hour, 0); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// TestAccessHTMLIsSafe puts hostile text into every field of a log and finds none of it as markup.
func TestAccessHTMLIsSafe(t *testing.T) {
	evil := `/x?"><script>alert(1)</script><img src=x onerror=y>'` + "\u202e\x00\xff"
	log := "evil\"><script>.example 192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] \"GET " + evil + " HTTP/1.1\" 200 5 \"-\" \"" + gptBot + "\"\n"
	rep := access(t, log+log[:40]+"\n", "Disallow: /x?\"><script>\n", func(o *AccessOptions) { o.Host = "<b>" })
	if rep.Totals.Disallowed != 1 {
		t.Fatalf("%+v", rep.Totals)
	}
	var page bytes.Buffer
	if err := rep.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, bad := range []string{"<script", "<img", "onerror=y>", "\u202e", "\x00", "javascript:", "http://", "https://", " style=", "<b>.ex"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q stands in the page", bad)
		}
	}
	for _, good := range []string{"default-src 'none'", "&lt;script&gt;", `\xff`, "<svg", "prefers-color-scheme:dark"} {
		if !strings.Contains(text, good) {
			t.Errorf("%q does not stand in the page", good)
		}
	}
	var table bytes.Buffer
	if err := rep.WriteTable(&table, TableStyle{Width: 60}); err != nil || strings.ContainsAny(table.String(), "\x00\x1b\u202e") {
		t.Errorf("%v: %q", err, table.String())
	}
	var list bytes.Buffer
	if err := rep.WriteCSV(&list, true); err != nil || strings.Count(list.String(), "\n") != 2 {
		t.Errorf("%v: %q", err, list.String())
	}
}

func TestAccessCSVFormulas(t *testing.T) {
	r := &AccessReport{Settings: AccessSettings{Delay: true}, Crawlers: map[string]*AccessCrawler{"=1+1": {Operator: "@x", Category: "other", CrawlDelay: &AccessDelay{MinGapMS: -1}}}}
	var b bytes.Buffer
	if err := r.WriteCSV(&b, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if !strings.HasPrefix(lines[1], "'=1+1,'@x,other,0,") || !strings.Contains(lines[1], ",-1,0") || !strings.HasPrefix(lines[0], "crawler,operator,category,total,genuine,") {
		t.Error(b.String())
	}
}

// TestAccessCancelled ends an audit in the middle and leaves no goroutine behind.
func TestAccessCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := AccessOptions{Logs: []string{"-"}, Stdin: endless{}, Judge: prefixJudge{}, Delay: true,
		Progress: func(p AccessProgress) {
			if p.Lines > 10_000 {
				cancel()
			}
		}}
	if _, err := Access(ctx, o); err == nil {
		t.Error("no error")
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	return copy(b, accessLine("192.0.2.1", "09:00:00", "/", gptBot)), nil
}
