package policy

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jimsmart/grobotstxt"
)

// sameRules fails when the library, fed by our cleaning, and the oracle read a body differently.
func sameRules(t *testing.T, body []byte) {
	t.Helper()
	got, lint := Lint(body)
	var wantLint []Ignored
	want := oracle(body, func(line int, text, reason string) {
		wantLint = append(wantLint, Ignored{Line: line, Text: clean(text), Reason: reason})
	})
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%.2000q\n%s", body, cmp.Diff(want, got, cmp.AllowUnexported(Ruleset{}, name{}, record{})))
	}
	if !reflect.DeepEqual(lint, wantLint) {
		t.Fatalf("%.2000q\n%s", body, cmp.Diff(wantLint, lint))
	}
	if plain := Parse(body); !reflect.DeepEqual(plain, want) {
		t.Fatalf("%.2000q: Parse and Lint differ", body)
	}
}

// FuzzReaders: every body, whatever its bytes, has the same rules read by the library as by the oracle.
func FuzzReaders(f *testing.F) {
	for _, b := range corpus(f) {
		f.Add(b)
	}
	for _, s := range awkward {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) { sameRules(t, body) })
}

// FuzzReadersWords does the same with bodies made of words that matter: bytes alone seldom make two good lines.
func FuzzReadersWords(f *testing.F) {
	f.Add([]byte{0, 20, 21, 3, 9, 30, 21})
	f.Add([]byte{40, 41, 42, 43, 44, 45, 46, 47})
	f.Fuzz(func(t *testing.T, picks []byte) {
		var b strings.Builder
		for _, p := range picks {
			b.WriteString(words[int(p)%len(words)])
		}
		sameRules(t, []byte(b.String()))
	})
}

// awkward are bodies for each thing that the library reads in its own way.
var awkward = []string{
	"\xef\xbb\xbfUser-agent: *\nDisallow: /a", "\xefUser-agent: *", "\xef\xbbUser-agent: *\n\xef\xbb\xbfDisallow: /a",
	"User-agent: *\r\n\r\nDisallow: /caf%c3%a9\r\rAllow: /%C3%A9\n\rDisallow: /%zz%a%aB%%41%4",
	"User-agent: Foo\u00a0\nDisallow:\u00a0/x\u0085\nCrawl-delay:\u20282\u3000\nAllow\u00a0: /y\n\u00a0Allow: /z",
	"User-agent: *\nDisallow: /a\x00b\nDisallow\x00: /c\nDisallow: /d #\x00\n\x00Allow: /e\nAllow: /f\x00#é",
	"User-agent FooBot\nDISALLOW /Path\nDisallow /a b\nDisallow\t/c\nUser Agent: X\nALLOW /x # a: b\nDisallow\v/x y\nAllow\v: /V",
	"User-agent: *\nContent_Signal: ai-input=no, note=\"é%c3\"\nCRAWL DELAY: 5\u00a0\nsitemap: https://a.test/ü%c3.xml\nHost: É.test",
	"DIASLOW: /a\nDiasllowed: /b\ndisallaw /c\nuseragents: d\nSite-Mapping: e\nallowance: f", ":\n::\n : \n#\n#:a\nx:\nhost:h\nhos:h\n",
	"\xff\xfeU\x00s\x00e\x00r\x00-\x00a\x00g\x00e\x00n\x00t\x00:\x00*\x00\n\x00A\x00l\x00l\x00o\x00w\x00:\x00/\x00\xe9\x00", "\xfe\xff\x00a", "\xff\xfe\xff\xfeA\x00",
}

// long are more of them, too long to start a fuzzer from.
var long = []string{
	"User-agent: *\nDisallow: /" + strings.Repeat("é", 9000) + "\nAllow: /b", "User-agent: *\nDisallow" + strings.Repeat("\xe9", 9000) + ": /b%c3",
	"User-agent: *\nAllow /X" + strings.Repeat("y", 17000) + ": z", "User-agent: *\nAllow: /" + strings.Repeat("y", maxLine-9) + "%c3%a9",
	strings.Repeat("User-agent: *\nDisallow: /é\n", 20000), strings.Repeat("Allow: /a\r", 51200), strings.Repeat("Allow:/a\n", 60000), strings.Repeat("a", MaxBody+5),
}

var words = []string{
	"\n", "\n", "\r\n", "\r", "\n\r", "User-agent: ", "user-agent:", "USERAGENT: ", "User Agent : ", "Allow: ", "ALLOW ", "Disallow: ", "Disallow\t", "dissalow:", "Diaslow: ", "DISALLAW:",
	"Sitemap: ", "site-map ", "Host: ", "Crawl-delay: ", "crawl_delay:", "Crawl Delay : ", "Request-rate: ", "Visit-time: ", "Content-Signal: ", "content signals:", "Content-Usage: ",
	"Noindex: ", "Clean-param: a", "*", "FooBot", "Foo2", "é", "\u00a0", "\u0085", "\u200b", "\u2028", "\u3000", "\ufeff", "\xe9", "\x85", "\xa0", "\xc2", "\x00", "#", ":", "%c3%a9", "%C3", "%aB",
	"%", "%4", "/", "/a", "/B", "$", "=", "5", "1/20", "0600-0845", "ai-input=no", "search=n", ", ", "\"", " ", "  ", "\t", "\v", "\f", "?", "K", "ſ",
}

func TestReadersAgree(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no corpus", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sameRules(t, b)
	}
	for _, s := range slices.Concat(awkward, long) {
		sameRules(t, []byte(s))
	}
	for _, shapes := range []map[string]string{hostileFiles(), hostileShapes()} {
		for _, s := range shapes {
			sameRules(t, []byte(s[:40000]))
		}
	}
	r := rand.New(rand.NewPCG(9, 309))
	for range 3000 {
		var b bytes.Buffer
		for range r.IntN(60) {
			b.WriteString(words[r.IntN(len(words))])
		}
		sameRules(t, b.Bytes())
	}
}

// TestLibraryPanics: a panic inside the library is a file that cannot be read, whoever asks.
func TestLibraryPanics(t *testing.T) {
	rs := read([]byte("User-agent: *\nAllow: /\n"), false, func(body string, h grobotstxt.ParseHandler) {
		h.HandleUserAgent(1, "*")
		h.HandleAllow(2, "/")
		panic("out of range")
	}, nil)
	if rs.Err() == nil || !strings.Contains(rs.Err().Error(), "out of range") || rs.HasRules() {
		t.Fatalf("%+v", rs)
	}
	for _, g := range []*Group{rs.Group("FooBot"), rs.NamedGroup("FooBot", "BarBot"), rs.Group("")} {
		if m := g.MatchString("/x"); m.Allowed || m.Class != ClassUnreachable {
			t.Errorf("%+v", m)
		}
		v := g.DecideString("/x", Options{At: time.Unix(1e9, 0)})
		if v.Allowed || v.Reason != ReasonUnreadable || v.Class != ClassUnreachable || v.Cause == nil {
			t.Errorf("%+v", v)
		}
		if v := g.DecideString("/robots.txt", Options{}); !v.Allowed {
			t.Errorf("robots.txt itself: %+v", v)
		}
	}
	if group, named, err := rs.both("FooBot", nil); group != nil || named != nil || err == nil {
		t.Errorf("%v %v %v", group, named, err)
	}
	k := key{"https", "a.test", "a"}
	o := &outcome{class: ClassNoMatch, status: 200, body: []byte("User-agent: *\nAllow: /\n"), received: time.Now()}
	o.compile(rs, &Query{Token: "FooBot"})
	if o.good() || o.body != nil {
		t.Fatalf("%+v", o)
	}
	p := New(Defaults(), nil, nil, nil)
	st := &state{fail: p.version(k, o, nil, 1).failure(o.err)}
	var v Verdict
	profile := ProfileDefaults()
	p.decide(&v, k, st, &Query{Profile: profile}, []byte("/x"), time.Now())
	if v.Allowed || v.Reason != ReasonUnreadable || v.Class != ClassUnreachable || v.Cause == nil || v.RetryAfter <= 0 {
		t.Errorf("%+v", v)
	}
	if Parse([]byte("User-agent: *\n")).Err() != nil {
		t.Error("an error for a good file")
	}
}
