package policy

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jimsmart/grobotstxt"
)

// corpus adds every file of testdata/corpus: shapes of real files, written anew.
func corpus(f *testing.F) (bodies [][]byte) {
	f.Helper()
	files, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no corpus", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		bodies = append(bodies, b)
	}
	return bodies
}

// slow is the longest that any question may take, with room for a busy machine; the benchmarks hold the real bound.
const slow = time.Second

func FuzzParse(f *testing.F) {
	for _, b := range corpus(f) {
		f.Add(b, "/private/x?y=1", "ExampleBot")
	}
	f.Add([]byte("\xff\xfeU\x00s\x00"), "//", "")
	f.Fuzz(func(t *testing.T, body []byte, path, token string) {
		start := time.Now()
		rs, lint := Lint(body)
		g := rs.Group(token, "Other")
		o := Options{StopOn: []string{"ai-input=no", "use=immediate"}, EnforceVisitTime: true, At: time.Unix(1e9, 0)}
		v := g.DecideString(path, o)
		if d := time.Since(start); d > slow {
			t.Fatalf("took %v", d)
		}
		again := Parse(bytes.Clone(body)).Group(token, "Other").DecideString(path, o)
		if v.Allowed != again.Allowed || v.Rule != again.Rule || v.Line != again.Line || v.Class != again.Class || v.Delay != again.Delay {
			t.Fatalf("%+v, then %+v", v, again)
		}
		if v.Allowed != (v.Reason == ReasonOK) {
			t.Fatalf("%+v", v)
		}
		if v.Delay < 0 || v.Delay > maxDelay || v.RetryAfter < 0 || v.RetryAfter > 24*time.Hour {
			t.Fatalf("%+v", v)
		}
		lines := bytes.Count(body, []byte("\n")) + bytes.Count(body, []byte("\r")) + 1
		if v.Line < 0 || v.Line > 2*lines || g.Line() > 2*lines {
			t.Fatalf("line %d of %d", v.Line, lines)
		}
		for _, l := range lint {
			if l.Reason == "" {
				t.Fatalf("%+v", l)
			}
		}
		if named := rs.NamedGroup(token, "Other"); g.Token() != star && named.Token() != g.Token() {
			t.Fatalf("groups %q and %q", named.Token(), g.Token())
		}
	})
}

// FuzzMatch compares with the reference matcher.
func FuzzMatch(f *testing.F) {
	f.Add("Allow /a*b$\nDisallow /a", "/axb?c")
	f.Add("Disallow /%7ea\nAllow /~a", "/%7Ea/../b")
	f.Add("Disallow /*a*b*c*d\nAllow *", "/xaxbxcxd")
	f.Fuzz(func(t *testing.T, text, path string) {
		if len(text) > 400 || len(path) > 150 || strings.ContainsAny(text, "#\x00\r\v\f\u0085\u00a0\u200b\u2028\u2029\u3000\ufeff") || strings.ContainsAny(path, "#") {
			return
		}
		var rules []refRule
		for _, line := range strings.Split(text, "\n") {
			kind, pattern, _ := strings.Cut(line, " ")
			if pattern = strings.Trim(pattern, " \t"); pattern != "" {
				rules = append(rules, refRule{allow: kind == "Allow", pattern: pattern})
			}
		}
		if len(rules) > 20 {
			return
		}
		compare(t, rules, "/"+strings.TrimLeft(path, "/"))
	})
}

// fragments are what FuzzDifferential builds files of: the subset on which Google's matcher and ours must agree. Left out
// are escapes, non-ASCII, NUL, dot segments, digits in names and index.htm, where the RFC and it part.
var fragments = []string{
	"\n", "\n", "\n", "\r\n", "\r", "User-agent: ", "User-agent: ", "user-agent:", "Useragent: ", "User agent : ", "Allow: ", "Disallow: ",
	"Disallow: ", "allow:", "dissallow: ", "Disallow ", "Allow\t", "Disallows: ", "Sitemap: ", "Crawl-delay: 5", "Noindex: ", "Content-Signal: ai-input=no",
	"FooBot", "FooBot", "Foo", "foobot", "BarBot", "Foo-Bot", "FooBot/", "*", "*", "* ", " ", "\t", ":", "#", "/", "/", "/a", "/b", "a", "b", "/ab", "/a/b", "$", "*$", "?", "x=y", "&", "-", "~", "_", ",", ";", "html",
}

func FuzzDifferential(f *testing.F) {
	f.Add([]byte{5, 22, 0, 11, 36, 0, 10, 41, 0}, "/a/b")
	f.Add([]byte{5, 28, 0, 11, 36, 28, 42, 44, 0, 5, 22, 3, 12, 35, 0}, "/ab")
	f.Add([]byte{6, 22, 1, 19, 1, 6, 24, 0, 11, 35, 0}, "/x?y")
	f.Fuzz(func(t *testing.T, picks []byte, path string) {
		for _, c := range []byte(path) {
			if !unreserved(c) && strings.IndexByte("/?&=;,:@+!", c) < 0 {
				return
			}
		}
		path = "/" + strings.TrimLeft(path, "/")
		if strings.Contains(path, "/.") || strings.HasPrefix(path, "/robots.txt") || len(picks) > 300 || len(path) > 100 || strings.Contains(path, ":/") {
			return
		}
		var b strings.Builder
		for _, p := range picks {
			b.WriteString(fragments[int(p)%len(fragments)])
		}
		body := b.String()
		rs := Parse([]byte(body))
		for _, r := range rs.records {
			v := r.value
			if r.kind != kindAllow && r.kind != kindDisallow {
				continue
			}
			// A blank and a $ inside a pattern have three octets in our form and one in its.
			if strings.ContainsAny(v, " \t") || strings.Contains(strings.TrimSuffix(v, "$"), "$") {
				return
			}
		}
		if starInName(body) {
			return
		}
		m := rs.Group("FooBot").MatchString(path)
		gm := grobotstxt.NewRobotsMatcher()
		want := gm.AgentAllowed(body, "FooBot", "https://a.test"+path)
		if m.Allowed != want {
			t.Fatalf("%q\npath %q: %+v, Google's matcher says %v (line %d)", body, path, m, want, gm.MatchingLine())
		}
	})
}

// starInName finds names like `FooBot*` or `*x`, which the port of Google's parser reads in its own way.
func starInName(body string) bool {
	for _, line := range strings.FieldsFunc(body, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line, _, _ = strings.Cut(line, "#")
		if k, v, ok := oracleKeyValue(trimASCII(line)); ok && oracleKind(k) == kindUserAgent {
			if v = trimASCII(v); v != star && strings.ContainsAny(v, "*~&?$=;:,") {
				return true
			}
		}
	}
	return false
}

func FuzzSignals(f *testing.F) {
	for _, s := range []string{
		"search=yes, ai-input=no", "/a b=c; use=immediate", `ai-train = "no"`, "train-ai=n;x=1, search=y", "=,=;= x", "/p", "use=full use=reference", `search='yes`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, k := range []kind{kindContentSignal, kindContentUsage} {
			s, pattern, ok := parseSignal(k, value)
			if ok != (s.levels != levels{}) || ok && pattern == "" && strings.HasPrefix(value, "/") {
				t.Fatalf("%q: %+v %q %v", value, s, pattern, ok)
			}
			for key, l := range s.levels {
				if int(l) > len(signalValues[key]) {
					t.Fatalf("%q: level %d", value, l)
				}
			}
			if k == kindContentUsage && (s.levels[sigUse] != 0 || s.levels[sigAIInput] != 0) {
				t.Fatalf("%q: Content-Usage has no such key", value)
			}
			// What is shown says the same when read again.
			again, _, _ := parseSignal(kindContentSignal, s.levels.String())
			if again.levels != s.levels {
				t.Fatalf("%q shown as %q", value, s.levels.String())
			}
		}
		body := "Content-Signal: " + value + "\nContent-Usage: " + value + "\n"
		if g := Parse([]byte(body)).Group("X"); g.signalsFor([]byte("/")) == nil && strings.TrimSpace(value) == "ai-input=no" {
			t.Fatal("lost")
		}
		responseLevels(http.Header{"Content-Signal": {value, value}, "Content-Usage": {value}})
	})
}

func FuzzRates(f *testing.F) {
	for _, s := range []string{
		"5", ".5", "3.", "10s", "2 minutes", "1/20", "30/1m 0600-0845", "999999999999999999999", "1/2d", "0/0", "18446744073709551616/3h", "1 / 10 m", "2200-0400", "1h1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if d, ok := parseCrawlDelay(value); ok {
			if d < 0 || d > maxDelay {
				t.Fatalf("%q: %v", value, d)
			}
			n := strings.IndexFunc(value, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
			if n < 0 {
				n = len(value)
			}
			if x, err := strconv.ParseFloat(value[:n], 64); err == nil {
				unit := time.Second
				if u, known := unitOf(letters(trimASCII(value[n:])), false); known {
					unit = u
				}
				want := min(x*float64(unit), float64(maxDelay))
				if math.Abs(want-float64(d)) > 1000 && math.Abs(want-float64(d)) > want*1e-9 {
					t.Fatalf("%q: %v, want %v", value, d, time.Duration(want))
				}
			}
		}
		d, ok := parseRequestRate(value)
		if ok && (d.gap < 0 || d.gap > maxDelay) {
			t.Fatalf("%q: %v", value, d.gap)
		}
		if pages, period, cut := strings.Cut(value, "/"); ok && cut && !d.window.set {
			p, errP := strconv.ParseFloat(trimASCII(pages), 64)
			s, errS := strconv.ParseFloat(trimASCII(period), 64)
			if errP == nil && errS == nil && p < 1e9 {
				want := min(s/p*1e9, float64(maxDelay))
				if math.Abs(want-float64(d.gap)) > 10 && math.Abs(want-float64(d.gap)) > want*1e-6 {
					t.Fatalf("%q: %v, want %v", value, d.gap, time.Duration(want))
				}
			}
		}
		if w, ok := parseWindow(value); ok {
			now := time.Unix(1e9, 0)
			if until := w.until(now); until < 0 || until > 24*time.Hour {
				t.Fatalf("%q: opens in %v", value, until)
			} else if !w.contains(now.Add(until).Truncate(time.Minute)) && w.from < 24*60 {
				t.Fatalf("%q: not open after %v", value, until)
			}
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("max-age=60, no-cache", "30", "noindex, otherbot: none", "/x?y#z", "gzip")
	f.Add(`max-age="1`, "-1", "ExampleBot: nofollow", "//u@h:443", "br")
	f.Fuzz(func(t *testing.T, control, age, robots, loc, coding string) {
		h := http.Header{"Cache-Control": {control}, "Age": {age}, "X-Robots-Tag": {robots}}
		if d := lifetime(h); d < minAge || d > maxAge {
			t.Fatalf("%v", d)
		}
		switch got := IndexingDirectives(h, "ExampleBot"); got {
		case "", "noindex", "nofollow", "noindex, nofollow":
		default:
			t.Fatal(got)
		}
		k := key{"https", "a.test", "a"}
		if u, err := location(keyURL(k), loc); err == nil && (u.User != nil || u.Fragment != "" || u.Scheme == "") {
			t.Fatalf("%q: %v", loc, u)
		}
		if b, err := readBody(strings.NewReader(robots), coding, 100); len(b) > 100 {
			t.Fatalf("%d octets, %v", len(b), err)
		}
		challengeBy(ChallengeMarkers(), 403, h, []byte(robots+control))
	})
}

// FuzzIndex reads any bytes as an archive's index: nothing that names a file outside may come through.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"host":"a","effective":"2026-01-01T00:00:00Z","status":200,"file":"bodies/aa/x.txt","sha256":"aa","url":"https://a/robots.txt","class":"no_match"}` + "\n"))
	f.Add([]byte("{}\n\x00\n[1]\n{\"url\":\"x\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := eachLine(bytes.NewReader(data), func(line []byte, _ int64) {
			var v Version
			if json.Unmarshal(line, &v) != nil || !v.valid() {
				return
			}
			written, err := json.Marshal(&v)
			if err != nil {
				t.Fatal(err)
			}
			if b, ok := glance(written); !ok || b != (brief{v.URL, v.Agent, v.SHA256, v.Bytes}) && v.Bytes >= 0 && v.Bytes < 1<<40 {
				t.Fatalf("%s: %+v", written, b)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		end, err := scanIndex(bytes.NewReader(data), func(v *Version, off int64, n int) {
			if off+int64(n) > int64(len(data)) || data[off+int64(n)-1] != '\n' {
				t.Fatalf("line at %d, %d long", off, n)
			}
			for ; v != nil; v = v.Good {
				if v.File != "" && (v.File != bodyFile(v.SHA256) || strings.Contains(v.File, "..") || len(v.SHA256) != 64) {
					t.Fatalf("%+v", v)
				}
			}
		})
		if err != nil || end > int64(len(data)) || end > 0 && data[end-1] != '\n' {
			t.Fatalf("ends at %d, %v", end, err)
		}
	})
}
