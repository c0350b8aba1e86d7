package policy

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStopOnFor(t *testing.T) {
	for _, c := range []struct{ purposes, want []string }{
		{nil, []string{}},
		{[]string{"search", "ai-input"}, []string{"search=no", "use=immediate", "ai-input=no"}},
		{[]string{"ai-train"}, []string{"ai-train=no"}},
		{[]string{"archive", "use"}, []string{}},
	} {
		if diff := cmp.Diff(c.want, StopOnFor(c.purposes)); diff != "" {
			t.Errorf("%v: %s", c.purposes, diff)
		}
		for _, s := range StopOnFor(c.purposes) {
			if !ValidStop(s) {
				t.Errorf("%q is not valid", s)
			}
		}
	}
}

// TestSignalPaths: what the vectors leave open. Of each kind the longest path counts, key by key.
func TestSignalPaths(t *testing.T) {
	const file = "Content-Signal: search=no\nUser-agent: *\n" +
		"Content-Signal: /open/ search=yes\n" +
		"Content-Signal: /img/*.png$ ai-train=no\n" +
		"Content-Usage: /open/ train-ai=y\nContent-Usage: /open/but/ train-ai=n\n" +
		"Content-Signal: /both/ ai-input=yes\nContent-Signal: /bot*/ ai-input=no\n"
	g := Parse([]byte(file)).Group("X")
	for path, want := range map[string]map[string]string{
		"/":             {"search": "no"},
		"/open/x":       {"search": "yes", "ai-train": "yes"},
		"/open/but/x":   {"search": "yes", "ai-train": "no"},
		"/a/../open/x":  {"search": "yes", "ai-train": "yes"},
		"/img/a.png":    {"search": "no", "ai-train": "no"},
		"/img/a.png?x":  {"search": "no"},
		"/both/x":       {"search": "no", "ai-input": "no"},
		"/%6Fpen/x":     {"search": "yes", "ai-train": "yes"},
		"/robots.txt?x": {"search": "no"},
	} {
		if diff := cmp.Diff(want, g.Signals(path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	v := g.DecideString("/x", Options{StopOn: []string{"search=no"}})
	if v.Line != 1 || v.Signal != "search=no" || v.Allowed {
		t.Errorf("%+v", v)
	}
	// The first of several stops in the file is named.
	v = g.DecideString("/both/x", Options{StopOn: []string{"ai-input=no", "search=no"}})
	if v.Line != 1 {
		t.Errorf("line %d", v.Line)
	}
}

// TestSignalsOfDotSegments: a signal for a folder stops what is written as a path through it, as a rule would.
func TestSignalsOfDotSegments(t *testing.T) {
	const file = "User-agent: *\nContent-Usage: /members/ search=n\nContent-Signal: /free/ search=yes\n"
	g := Parse([]byte(file)).Group("X")
	o := Options{StopOn: []string{"search=no"}}
	for _, target := range []string{"/free/../members/x", "/members/../x", "/members/%2e%2E/free/x", "/x/.././members/"} {
		v := g.DecideString(target, o)
		if v.Allowed || v.Class != ClassContentSignal || v.Line != 2 || v.Signal != "search=no" || v.Signals["search"] != "no" {
			t.Errorf("%s: %+v", target, v)
		}
	}
	for _, target := range []string{"/x/../y", "/free/../x", "/x?/members/../y"} {
		wants(t, g.DecideString(target, o), true, ReasonOK, ClassNoMatch)
	}
}

// TestUsageOfDeniedPaths: Content-Usage says nothing about a path that may not be crawled, Content-Signal does.
func TestUsageOfDeniedPaths(t *testing.T) {
	for _, c := range []struct {
		lines, path string
		want        map[string]string
	}{
		{"Content-Usage: search=n\n", "/a/x", nil},
		{"Content-Usage: search=n\n", "/x", map[string]string{"search": "no"}},
		{"Content-Usage: /a/ train-ai=n, search=n\nContent-Signal: search=yes\n", "/a/x", map[string]string{"search": "yes"}},
		{"Content-Usage: /a/ train-ai=n, search=n\nContent-Signal: /a search=yes\n", "/b/../a/x", map[string]string{"search": "yes"}},
		{"Content-Usage: /a/ train-ai=n\nContent-Signal: search=yes\n", "/a/ok", map[string]string{"search": "yes", "ai-train": "no"}},
	} {
		g := Parse([]byte("User-agent: *\nDisallow: /a/\nAllow: /a/ok\n" + c.lines)).Group("X")
		if diff := cmp.Diff(c.want, g.DecideString(c.path, Options{}).Signals); diff != "" {
			t.Errorf("%q, %s: %s", c.lines, c.path, diff)
		}
	}
}

func TestSignalsWithoutAGroup(t *testing.T) {
	g := Parse([]byte("Content-Signal: ai-input=no\nUser-agent: Other\nAllow: /\n")).Group("X")
	wants(t, g.DecideString("/x", Options{StopOn: []string{"ai-input=no"}}), false, ReasonSignal, ClassContentSignal)
	wants(t, g.DecideString("/x", Options{}), true, ReasonOK, ClassNoGroup)
}

func TestResponseSignals(t *testing.T) {
	for _, c := range []struct {
		header http.Header
		want   string
	}{
		{http.Header{}, ""},
		{http.Header{"Content-Signal": {"search=yes, ai-input=no"}}, "search=yes, ai-input=no"},
		{http.Header{"Content-Signal": {"search=yes", "search=no; use=reference"}}, "search=no, use=reference"},
		{http.Header{"Content-Usage": {"train-ai=n", "search=y"}}, "search=yes, ai-train=no"},
		{http.Header{"Content-Usage": {"train-ai=n", "Search=y"}}, ""},
		{http.Header{"Content-Usage": {"search=n"}, "Content-Signal": {"search=yes"}}, "search=no"},
		{http.Header{"Content-Signal": {"/x search=no"}}, ""},
		{http.Header{"Content-Signal": {"nothing"}, "Content-Usage": {"("}}, ""},
	} {
		if got := responseLevels(c.header).String(); got != c.want {
			t.Errorf("%v: %q, want %q", c.header, got, c.want)
		}
	}
	if got := ResponseSignals(http.Header{"Content-Signal": {"use=full"}}); got["use"] != "full" {
		t.Errorf("%v", got)
	}
}

func TestBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := openArchive(t, dir, Defaults())
		s := &site{answer: always(404, "")}
		p := New(Defaults(), s, a, nil)
		q := query(t, "https://a.test/x?secret=1")
		q.StopOn = []string{"ai-input=no"}
		stop := http.Header{"Content-Signal": {"ai-input=no, search=yes"}}
		if got := p.ObserveResponse(q, 200, stop); got != "search=yes, ai-input=no" {
			t.Errorf("recorded as %q", got)
		}
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoRobots) // record does not bind

		q.Profile.ResponseSignals = Bind
		p.ObserveResponse(q, 200, stop)
		refused := func(p *Policy) {
			t.Helper()
			v := p.Check(t.Context(), q)
			wants(t, v, false, ReasonSignal, ClassResponseSignal)
			if v.Signal != "ai-input=no" || v.Line != 0 || v.Rule != "" || v.RetryAfter <= 0 || v.RetryAfter > 24*time.Hour {
				t.Errorf("%+v", v)
			}
		}
		refused(p)
		other := q
		for _, same := range []string{"https://a.test/%78?secret=1", "https://a.test/y/../x?secret=%31", "https://a.test/%2e/x?secret=1", "wss://a.test/x?secret=1"} {
			other.URL = target(t, same)
			if v := p.Check(t.Context(), other); v.Class != ClassResponseSignal {
				t.Errorf("%s: %s", same, v.Class)
			}
		}
		for _, another := range []string{"https://a.test/x", "https://a.test/X?secret=1", "http://a.test/x?secret=1", "https://a.test/%2Fx?secret=1"} {
			other.URL = target(t, another)
			if v := p.Check(t.Context(), other); v.Class != ClassNoRobots {
				t.Errorf("%s: %s", another, v.Class)
			}
		}
		other.URL = target(t, "https://a.test/y")
		wants(t, p.Check(t.Context(), other), true, ReasonOK, ClassNoRobots)
		other = q
		other.Agent = "b"
		wants(t, p.Check(t.Context(), other), true, ReasonOK, ClassNoRobots)
		other = q
		other.URL = target(t, "https://a.test/robots.txt")
		p.ObserveResponse(other, 200, stop)
		wants(t, p.Check(t.Context(), other), true, ReasonOK, ClassRobotsItself)

		if raw, err := readAll(dir + "/" + signalsName); err != nil || strings.Contains(raw, "secret") || !strings.Contains(raw, "ai-input=no") {
			t.Errorf("on disk: %q, %v", raw, err)
		}
		restart := func() {
			t.Helper()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a = openArchive(t, dir, Defaults())
			p = New(Defaults(), s, a, nil)
		}
		restart()
		refused(p)
		p.ObserveResponse(q, 503, http.Header{}) // an error page lifts nothing
		p.ObserveResponse(q, 304, http.Header{})
		refused(p)
		p.ObserveResponse(q, 200, http.Header{})
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoRobots)
		restart()
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoRobots)

		p.ObserveResponse(q, 200, stop)
		pass(24*time.Hour - time.Second)
		refused(p)
		pass(time.Second)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoRobots)
		restart()
		if len(p.binds.all) != 0 {
			t.Error("what has ended is still kept")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBindFile: the file is written anew before it grows without end, and a cut line is passed over.
func TestBindFile(t *testing.T) {
	dir := t.TempDir()
	b := &bindings{log: nil, dir: dir, all: map[string]binding{}}
	until := time.Now().Add(time.Hour).UTC()
	for range 600 {
		for _, stop := range []string{"search=no", ""} {
			if err := b.put(binding{Key: "k", Stop: stop, Until: until}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.put(binding{Key: "last", Stop: "search=no", Until: until}); err != nil {
		t.Fatal(err)
	}
	raw, err := readAll(dir + "/" + signalsName)
	if err != nil || strings.Count(raw, "\n") > 1100 {
		t.Fatalf("%d lines, %v", strings.Count(raw, "\n"), err)
	}
	if err := b.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(dir+"/"+signalsName, raw+`{"key":"cut`); err != nil {
		t.Fatal(err)
	}
	c := &bindings{dir: dir, all: map[string]binding{}}
	if err := c.load(); err != nil || len(c.all) != 1 {
		t.Errorf("%v, %v", c.all, err)
	}
}

func TestIndexingDirectives(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{nil, ""},
		{[]string{"noindex"}, "noindex"},
		{[]string{"NoFollow"}, "nofollow"},
		{[]string{"none"}, "noindex, nofollow"},
		{[]string{"nofollow", "noindex"}, "noindex, nofollow"},
		{[]string{"noindex,nofollow"}, "noindex, nofollow"},
		{[]string{"all", "index, follow, noarchive"}, ""},
		{[]string{"examplebot: noindex"}, "noindex"},
		{[]string{"otherbot: noindex"}, ""},
		{[]string{"otherbot: noindex, nofollow"}, ""},
		{[]string{"otherbot: noindex, ExampleBot: nofollow"}, "nofollow"},
		{[]string{"ExampleBot: noarchive, nofollow, otherbot: noindex"}, "nofollow"},
		{[]string{"*: noindex"}, "noindex"},
		{[]string{"unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"}, "noindex"},
		{[]string{"otherbot: none", "nofollow"}, "nofollow"},
		{[]string{"max-snippet:20, none"}, "noindex, nofollow"},
		{[]string{""}, ""},
	} {
		if got := IndexingDirectives(http.Header{"X-Robots-Tag": c.lines}, "ExampleBot"); got != c.want {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
	}
}
