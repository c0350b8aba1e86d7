package policy

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCorpus asks the shapes of real files in testdata/corpus what they say: `class line` for each token and path.
func TestCorpus(t *testing.T) {
	for _, c := range []struct{ file, token, path, want string }{
		{"managed-cdn", "ExampleBot", "/docs", "rule_allow 9"},
		{"managed-cdn", "ExampleBot", "/lp/x", "rule_disallow 19"},
		{"managed-cdn", "GPTBot", "/docs", "rule_disallow 15"},
		{"blog-crlf-bom", "ExampleBot", "/wp-admin/x", "rule_disallow 2"},
		{"blog-crlf-bom", "ExampleBot", "/wp-admin/admin-ajax.php", "rule_allow 3"},
		{"blog-crlf-bom", "ExampleBot", "/page/2/?s=x", "rule_disallow 5"},
		{"blog-crlf-bom", "ExampleBot", "/a/feed/", "rule_disallow 6"},
		{"classic-mac", "ExampleBot", "/b", "rule_disallow 3"},
		{"classic-mac", "OldMacBot", "/c", "rule_disallow 6"},
		{"shop", "ExampleBot", "/collections/a+b", "rule_disallow 5"},
		{"shop", "ExampleBot", "/collections/a%2bb", "rule_disallow 6"},
		{"shop", "ExampleBot", "/p?a=1&variant=2", "rule_disallow 3"},
		{"shop", "MJ12bot", "/checkout", "no_match 0"},
		{"government", "SlowBot", "/x", "rule_disallow 7"}, // Crawl-delay does not end the names
		{"government", "ExampleBot", "/a/print", "rule_disallow 10"},
		{"wiki-escapes", "ExampleBot", "/wiki/Special%3AX", "rule_disallow 3"},
		{"wiki-escapes", "ExampleBot", "/wiki/Wikip%C3%A9dia:X", "rule_disallow 4"},
		{"wiki-escapes", "ExampleBot", "/w/load.php?x", "rule_allow 8"},
		{"wiki-escapes", "ExampleBot", "/wiki/Talk:x", "no_match 0"},
		{"single-page-app", "ExampleBot", "/x", "no_group 0"},
		{"typos", "UnlobBot", "/typo1/x", "rule_disallow 4"},
		{"typos", "RoftrlabsBot", "/typo2", "rule_disallow 5"},
		{"typos", "RecordsLabsIngestion", "/nocolon", "rule_disallow 6"},
		{"typos", "UnlobBot", "/two", "rule_disallow 13"}, // only `/*$` is left for it
		{"typos", "UnlobBot", "/", "rule_disallow 13"},
		{"broken-bytes", "ExampleBot", "/caf%E9/x", "rule_disallow 2"},
		{"broken-bytes", "ExampleBot", "/na%EFvex", "rule_disallow 3"},
		{"broken-bytes", "ExampleBot", "/tab%09here", "rule_disallow 4"},
		{"broken-bytes", "ExampleBot", "/bom", "no_match 0"},
		{"broken-bytes", "ExampleBot", "/nbsp", "rule_disallow 7"},
		{"broken-bytes", "ExampleBot", "/sep", "no_match 0"},
		{"signals", "ExampleBot", "/x", "rule_allow 10"},
		{"stars", "ExampleBot", "/" + strings.Repeat("a", 300) + "b", "rule_allow 61"},
		{"utf16", "ExampleBot", "/p", "rule_disallow 2"},
		{"many-bots", "Botcz", "/", "rule_disallow 25"},
		{"many-bots", "ExampleBot", "/", "rule_allow 28"},
		{"many-bots", "ExampleBot", "/x", "rule_disallow 29"},
		{"longline", "ExampleBot", "/q/x", "rule_disallow 3"},
		{"longline", "ExampleBot", "/q/ok", "rule_allow 5"},
	} {
		body, err := os.ReadFile("testdata/corpus/" + c.file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		m := Parse(body).Group(c.token).MatchString(c.path)
		if got := m.Class + " " + strconv.Itoa(m.Line); got != c.want {
			t.Errorf("%s, %s, %.40s: %s (%s), want %s", c.file, c.token, c.path, got, m.Rule, c.want)
		}
	}
}

func TestCorpusDelaysAndSignals(t *testing.T) {
	group := func(file, token string) *Group {
		t.Helper()
		body, err := os.ReadFile("testdata/corpus/" + file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		return Parse(body).Group(token)
	}
	at := func(clock string) time.Time {
		t.Helper()
		m, err := time.Parse("15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		file, token, clock string
		want               time.Duration
		source             string
		line               int
	}{
		{"blog-crlf-bom", "X", "12:00", 10 * time.Second, "crawl-delay", 7},
		{"shop", "MJ12bot", "12:00", 10 * time.Second, "crawl-delay", 20},
		{"shop", "Pinterest", "12:00", time.Second, "crawl-delay", 22},
		{"shop", "X", "12:00", 0, "", 0},
		{"government", "SlowBot", "12:00", 10 * time.Second, "crawl-delay", 2},
		{"government", "X", "03:00", 2 * time.Second, "request-rate", 11},
		{"government", "X", "12:00", 20 * time.Second, "request-rate", 12},
	} {
		d, source, line := group(c.file, c.token).Delay(at(c.clock))
		if d != c.want || source != c.source || line != c.line {
			t.Errorf("%s, %s at %s: %v %s line %d", c.file, c.token, c.clock, d, source, line)
		}
	}
	if d, line, ok := group("government", "SlowBot").CrawlDelay(); d != 10*time.Second || line != 2 || !ok {
		t.Errorf("Crawl-delay %v line %d %v", d, line, ok)
	}
	if _, _, ok := group("government", "X").CrawlDelay(); ok {
		t.Error("Crawl-delay out of a Request-rate")
	}
	both := Parse([]byte("User-agent: *\nRequest-rate: 1/60\nCrawl-delay: 5\nCrawl-delay: 7\nRequest-rate: 1/90\n")).Group("X")
	if d, line, _ := both.CrawlDelay(); d != 7*time.Second || line != 4 {
		t.Errorf("%v line %d", d, line)
	}
	if d, source, line := both.Delay(time.Time{}); d != 90*time.Second || source != "request-rate" || line != 5 {
		t.Errorf("%v %s line %d", d, source, line)
	}
	g := group("signals", "X")
	for path, want := range map[string]map[string]string{
		"/":          {"ai-input": "no", "ai-train": "no", "search": "yes", "use": "immediate"},
		"/open/x":    {"ai-input": "no", "ai-train": "yes", "search": "yes", "use": "immediate"},
		"/members/x": {"ai-input": "no", "ai-train": "no", "search": "no", "use": "immediate"},
	} {
		if diff := cmp.Diff(want, g.Signals(path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	if s := group("utf16", "X").Sitemaps(); len(s) != 1 || s[0] != "https://a.test/ü.xml" {
		t.Errorf("%q", s)
	}
}

func TestLint(t *testing.T) {
	_, lint := Lint([]byte("Disallow: /early\nCrawl-delay: 1\nUser-agent:\nUser-agent: *\nDisallow: x\nClean-param: a\nnonsense\nContent-Usage: Search=n\n" +
		"Content-Signal: on\nContent-Signal: search=yes mood=1 train\nRequest-rate: 1\nVisit-time: now\nDisallow: /\x00x\n" +
		"Request-rate: 1/5 0600-2500\nRequest-rate: 1/5 0600-0700 x\nRequest-rate: 1 / 5 m\nRequest-rate: 1/5m nightly\n"))
	var got []string
	for _, l := range lint {
		got = append(got, strconv.Itoa(l.Line)+" "+l.Reason)
	}
	want := []string{
		"1 stands before any User-agent line", "2 stands before any User-agent line", "3 names no crawler",
		"5 the pattern starts with neither / nor *, so it matches nothing", "6 unknown directive", "7 is no `name: value`",
		"8 is no dictionary with search or train-ai and the values y or n, so it says nothing",
		"9 holds no known `key=value`, so it says nothing", "10 `mood=1` is unknown and says nothing", "10 `train=` is unknown and says nothing",
		"11 the value is not pages/period, so there is no rate", "12 the value is not HHMM-HHMM", "13 contains NUL; what follows it is not read",
		"14 what follows the period is no window HHMM-HHMM, so the rate holds at any time",
		"17 what follows the period is no window HHMM-HHMM, so the rate holds at any time",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSpentBudgetDenies(t *testing.T) {
	g := Parse([]byte(hostileFiles()["short"] + "Allow: /ok/\n")).Group("X")
	path := "/" + strings.Repeat("aabab", 1600) + "/"
	v := g.DecideString(path, Options{})
	if v.Allowed || v.Class != ClassRuleDisallow || len(v.Notes) != 1 {
		t.Errorf("%v %s %q", v.Allowed, v.Class, v.Notes)
	}
	if v := g.DecideString("/ok/page", Options{}); !v.Allowed || len(v.Notes) != 0 {
		t.Errorf("a normal page: %+v", v)
	}
}
