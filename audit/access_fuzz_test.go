package audit

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// checkEntry holds what every parser promises of a good line.
func checkEntry(t *testing.T, line []byte, r reason, e *entry) {
	t.Helper()
	if r >= reasons {
		t.Fatalf("reason %d", r)
	}
	if r != lineOK {
		return
	}
	if !e.peer.IsValid() && !e.own || e.peer.Is4In6() || e.peer.Zone() != "" {
		t.Errorf("address %v of %q", e.peer, line)
	}
	if len(e.target) > 0 && e.target[0] != '/' || bytes.IndexByte(e.target, '#') >= 0 {
		t.Errorf("target %q of %q", e.target, line)
	}
	if e.status < 0 || e.status > 999 {
		t.Errorf("status %d of %q", e.status, line)
	}
	_ = hostName(e.host)
	spelling(e.target)
	if n := appendNormal(nil, e.target); !bytes.Equal(n, appendNormal(nil, n)) {
		t.Errorf("the normal form of %q is not its own: %q", e.target, n)
	}
}

// fuzzLines runs a parser over single lines, twice, so that what one line leaves behind can not change the next.
func fuzzLines(f *testing.F, parse func(p *lineParser, line []byte) reason) {
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		var p lineParser
		before := bytes.Clone(line)
		r := parse(&p, line)
		checkEntry(t, line, r, &p.e)
		first := p.e
		first.host, first.target, first.agent, first.xff, first.tag = bytes.Clone(first.host), bytes.Clone(first.target), bytes.Clone(first.agent), bytes.Clone(first.xff), bytes.Clone(first.tag)
		if again := parse(&p, line); again != r {
			t.Fatalf("reason %d, then %d", r, again)
		}
		if e := &p.e; r == lineOK && (e.time != first.time || e.peer != first.peer || e.status != first.status || !bytes.Equal(e.host, first.host) ||
			!bytes.Equal(e.target, first.target) || !bytes.Equal(e.agent, first.agent) || !bytes.Equal(e.xff, first.xff) || !bytes.Equal(e.tag, first.tag)) {
			t.Errorf("parsed twice, %+v is not %+v", p.e, first)
		}
		if !bytes.Equal(line, before) {
			t.Error("the line was changed")
		}
	})
}

func FuzzAccessCLF(f *testing.F) {
	line := strings.TrimSuffix(accessLine("192.0.2.1", "09:00:00", "/a?b", gptBot), "\n")
	for _, s := range []string{line, "h.example:80 " + line, line + ` "192.0.2.1, [::1]:80"`, strings.Replace(line, "/a", `http://h/a\"\x2f`, 1), "x - - [] \"\" 1 2"} {
		f.Add([]byte(s))
	}
	fuzzLines(f, (*lineParser).clf)
}

func FuzzAccessW3C(f *testing.F) {
	fields := parseFields([]byte("#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status cs(User-Agent) x-host-header x-forwarded-for"))
	f.Add([]byte("2025-11-03 09:00:00 192.0.2.1 GET /a b 200 x+y h.example 192.0.2.1,+::1"))
	f.Add([]byte("2025-11-03\t09:00:00.5\t192.0.2.1\tGET\t/a\t-\t200\tx%20y%2520\th.example\t-"))
	fuzzLines(f, func(p *lineParser, line []byte) reason { return p.w3c(line, fields) })
}

func FuzzAccessFields(f *testing.F) {
	f.Add([]byte(" date time c-ip cs-method cs-uri-stem sc-status"), []byte("a b c d e f"))
	f.Fuzz(func(t *testing.T, names, line []byte) {
		var p lineParser
		checkEntry(t, line, p.w3c(line, parseFields(append([]byte(fieldsDirective), names...))), &p.e)
	})
}

func FuzzAccessSquid(f *testing.F) {
	f.Add([]byte("1762160400.123    145 10.1.1.1 TCP_MISS/200 5120 GET http://www.example.com/a - HIER_DIRECT/198.51.100.10 text/html"))
	fuzzLines(f, (*lineParser).squid)
}

func FuzzAccessALB(f *testing.F) {
	f.Add([]byte(`https 2025-11-03T09:20:00.186641Z app/web/50 192.0.2.1:4711 10.0.0.66:80 0.000 0.001 0.000 200 200 34 366 "GET https://www.example.com:443/ HTTP/1.1" "x" - -`))
	fuzzLines(f, (*lineParser).alb)
}

func FuzzAccessNginx(f *testing.F) {
	f.Add(`$remote_addr [$time_local] "$request" $status "$http_user_agent" ${host}`, []byte(`192.0.2.1 [03/Nov/2025:09:00:00 +0000] "GET / HTTP/1.1" 200 "x" h`))
	f.Fuzz(func(t *testing.T, format string, line []byte) {
		n, err := parseNginxFormat(format)
		if err != nil {
			return
		}
		var p lineParser
		checkEntry(t, line, p.nginx(line, n), &p.e)
	})
}

// FuzzAccessJSON also holds the scanner against encoding/json.
func FuzzAccessJSON(f *testing.F) {
	for _, s := range []string{
		`{"time_iso8601":"2025-11-03T11:20:00+02:00","remote_addr":"192.0.2.1","request":"GET / HTTP/1.1","status":200,"http_user_agent":"x"}`,
		`{"ts":1762160402.75,"request":{"remote_ip":"192.0.2.1","method":"GET","host":"h","uri":"/","headers":{"User-Agent":["x"],"X-Forwarded-For":["192.0.2.1"]}},"status":200,"resp_headers":{"X-Robots-Tag":["none"]}}`,
		`{"ClientIP":"::1","ClientRequestURI":"/","ClientRequestMethod":"GET","EdgeResponseStatus":200,"EdgeStartTimestamp":1762160431000000000,"ResponseHeaders":{"x-robots-tag":"none"}}`,
		`{"schema":"crawlgate.audit.event/1","type":"request","sent":true,"client":{"ip":"192.0.2.1"},"sent_at":"2025-11-03T11:20:00.000Z","url":"https://h/a","status":0}`,
		`{"a":[1,-0.5e+3,{"b":null}],"\u0073tatus":"\ud83d\ude00\n"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p lineParser
		r := p.jsonLog(line)
		checkEntry(t, line, r, &p.e)
		var object map[string]json.RawMessage
		valid := json.Unmarshal(line, &object) == nil && object != nil
		if valid == (r == badJSON) && bytes.Count(line, []byte{'['})+bytes.Count(line, []byte{'{'}) < 400 {
			t.Errorf("encoding/json reads it: %v, reason %d: %q", valid, r, line)
		}
		if !valid {
			return
		}
		var status any
		if json.Unmarshal(object["status"], &status) == nil {
			if s, ok := status.(string); ok && len(p.json.v[jStatus]) > 0 && string([]rune(string(p.json.text(jStatus)))) != s && r != lineComment {
				t.Errorf("status %q, encoding/json %q", p.json.text(jStatus), s)
			}
		}
	})
}

func FuzzAccessRanges(f *testing.F) {
	f.Add([]byte(`{"prefixes":[{"ipv4Prefix":"192.0.2.9/28"},{"ipv6Prefix":"2001:db8::/32"},{"ipv6Prefix":"::ffff:192.0.2.0/120"}]}`), "192.0.2.1")
	f.Fuzz(func(t *testing.T, body []byte, addr string) {
		prefixes, err := parseRanges(body)
		if err != nil {
			return
		}
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return
		}
		a = a.WithZone("").Unmap()
		set := newPrefixSet(prefixes)
		want := false
		for _, p := range prefixes {
			if q, ok := foldPrefix(p); ok {
				want = want || q.Contains(a)
			}
		}
		if got := set.contains(a); got != want {
			t.Errorf("%s in %v: %v", a, prefixes, got)
		}
	})
}

// FuzzAccessForwarded walks X-Forwarded-For: the client is the peer or an element, and nothing left of the first
// element that is not trusted has any say.
func FuzzAccessForwarded(f *testing.F) {
	for _, s := range []string{"192.0.2.1, 10.0.0.2", "[2001:db8::1]:80, 10.0.0.1:4711", `"192.0.2.1"`, "unknown, 10.0.0.1", ",", "10.0.0.1,10.0.0.2"} {
		f.Add("10.0.0.5", s)
	}
	f.Fuzz(func(t *testing.T, peer, xff string) {
		p, err := netip.ParseAddr(peer)
		if err != nil {
			return
		}
		p = p.WithZone("").Unmap()
		trusted := newPrefixSet([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")})
		got := clientOf(p, []byte(xff), trusted)
		if !trusted.contains(p) && got != p {
			t.Fatalf("%s of %s, which nobody trusts", got, p)
		}
		want := p
		parts := strings.Split(xff, ",")
		for i := len(parts) - 1; i >= 0 && trusted.contains(want); i-- {
			a, ok := forwardedAddr([]byte(parts[i]))
			if !ok {
				break
			}
			want = a
		}
		if got != want {
			t.Fatalf("%s, expected %s", got, want)
		}
		if !trusted.contains(got) && got != p {
			if again := clientOf(p, []byte("203.0.113.1, "+xff), trusted); again != got {
				t.Errorf("an element added on the left changes %s to %s", got, again)
			}
		}
		isForwarded([]byte(xff))
	})
}

// FuzzAccessTimes holds the readers of times against the standard library.
func FuzzAccessTimes(f *testing.F) {
	f.Add("03/Nov/2025:09:00:00 +0530", "2025-11-03T09:00:00.123Z")
	f.Add("29/Feb/2024:23:59:59 -0000", "2024-02-29T00:00:00-12:30")
	f.Fuzz(func(t *testing.T, clf, iso string) {
		var p lineParser
		if ms, ok := p.logTime([]byte(clf)); ok && !strings.Contains(clf, ":60") {
			at, err := time.Parse("02/Jan/2006:15:04:05 -0700", clf)
			if err != nil || at.UnixMilli() != ms {
				t.Errorf("%q: %d, %v %v", clf, ms, at, err)
			}
		}
		if ms, ok := isoTime([]byte(iso)); ok && !strings.Contains(iso, ":60") {
			text := strings.ToUpper(strings.Replace(strings.Replace(iso, " ", "T", 1), ",", ".", 1))
			if n := len(text); n > 5 && (text[n-5] == '+' || text[n-5] == '-') {
				text = text[:n-2] + ":" + text[n-2:]
			}
			at, err := time.Parse(time.RFC3339, text)
			if err != nil || at.UnixMilli() != ms {
				t.Errorf("%q: %d, %v %v", iso, ms, at, err)
			}
		}
		epochTime([]byte(iso))
	})
}

func FuzzAccessCrawlers(f *testing.F) {
	f.Add([]byte(`{"schema":"crawlgate.crawlers/1","crawlers":[{"name":"x","category":"seo","ua_tokens":["x"],"robots_tokens":["x"],"ranges_files":["x.json"],"rdns_suffixes":["x.example."]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := parseCrawlers(body)
		for _, c := range list {
			if err == nil && (c.Name == "" || c.Category == "") {
				t.Errorf("%+v", c)
			}
		}
	})
}
