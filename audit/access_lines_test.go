package audit

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
		"broken clf":       {strings.ReplaceAll(clf, "\"\n", "\"0\n"), "unknown"}, // not Squid, for all its words and slashes
		"squid":            {"1762160400.123    145 10.1.1.1 TCP_MISS/200 5120 GET http://h.example/a - HIER_DIRECT/192.0.2.1 text/html\n", "squid"},
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
