package policy

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLifetime(t *testing.T) {
	for _, c := range []struct {
		control []string
		age     string
		want    time.Duration
	}{
		{nil, "", 24 * time.Hour},
		{[]string{"max-age=3600"}, "", time.Hour},
		{[]string{"public, Max-Age=3600, s-maxage=10"}, "", time.Hour},
		{[]string{`max-age="600"`}, "", 10 * time.Minute},
		{[]string{"max-age=3600"}, "600", 50 * time.Minute},
		{[]string{"max-age=3600"}, "7200", time.Minute},
		{[]string{"max-age=0"}, "", time.Minute},
		{[]string{"max-age=5"}, "", time.Minute},
		{[]string{"no-store"}, "", time.Minute},
		{[]string{"no-cache, max-age=9999"}, "", time.Minute},
		{[]string{"max-age=3600", "max-age=60"}, "", time.Minute},
		{[]string{"max-age=31536000"}, "", 24 * time.Hour},
		{[]string{"max-age=99999999999999999999"}, "", 24 * time.Hour},
		{[]string{"max-age=-1"}, "", 24 * time.Hour},
		{[]string{"max-age=soon"}, "", 24 * time.Hour},
		{nil, "86400", 24 * time.Hour},
	} {
		h := http.Header{"Cache-Control": c.control}
		if c.age != "" {
			h.Set("Age", c.age)
		}
		if got := lifetime(h); got != c.want {
			t.Errorf("%q age %q: %v, want %v", c.control, c.age, got, c.want)
		}
	}
}

// TestChangeWithinADay: RL-9 and UN-13.
func TestChangeWithinADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: func(n int, _ FetchRequest) (*FetchResponse, error) {
			if n == 0 {
				return reply(200, "User-agent: *\nDisallow:\n", "Cache-Control", "max-age=31536000"), nil
			}
			return reply(200, "User-agent: *\nDisallow: /\n"), nil
		}}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/x")
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		pass(24*time.Hour - time.Second)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		pass(time.Second)
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
	})
}

func TestRevalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: func(n int, r FetchRequest) (*FetchResponse, error) {
			if r.URL.Path == "/robots.txt" {
				return reply(302, "", "Location", "/rules"), nil
			}
			if r.Header.Get("If-None-Match") == `"1"` && r.Header.Get("If-Modified-Since") == "yesterday" {
				return reply(304, "", "Cache-Control", "max-age=7200"), nil
			}
			return reply(200, "User-agent: *\nDisallow: /no\n", "ETag", `"1"`, "Last-Modified", "yesterday", "Cache-Control", "max-age=3600"), nil
		}}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/no")
		first := p.Check(t.Context(), q)
		wants(t, first, false, ReasonDisallow, ClassRuleDisallow)
		pass(time.Hour)
		v := p.Check(t.Context(), q)
		wants(t, v, false, ReasonDisallow, ClassRuleDisallow)
		if v.SHA256 != first.SHA256 || !v.FetchedAt.After(first.FetchedAt) || v.Expires.Sub(v.FetchedAt) != 2*time.Hour || v.Status != 200 {
			t.Errorf("confirmed as %+v", v)
		}
		if h := s.asked[2].Header; len(h) != 0 {
			t.Errorf("validators went to a URL they did not come from: %v", h)
		}
		if n := s.count(); n != 4 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestFailuresAreKeptShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: inTurn(503)}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/x")
		q.Profile.Retries = 0
		for i, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			v := p.Check(t.Context(), q)
			wants(t, v, false, ReasonUnreadable, ClassUnreachable)
			if v.RetryAfter != time.Duration(want)*time.Minute {
				t.Errorf("failure %d: RetryAfter %v, want %dm", i+1, v.RetryAfter, want)
			}
			pass(v.RetryAfter - time.Second)
			if v = p.Check(t.Context(), q); s.count() != i+1 || v.RetryAfter != time.Second || v.Allowed {
				t.Errorf("failure %d: asked again early, or %+v", i+1, v)
			}
			pass(time.Second)
		}
		s.answer = inTurn(200)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		pass(24 * time.Hour)
		s.answer = inTurn(503)
		q.Profile.StaleOnError = Deny
		if v := p.Check(t.Context(), q); v.RetryAfter != time.Minute {
			t.Errorf("after a success failures count anew: %v", v.RetryAfter)
		}
	})
}

func TestStale(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(*ProfileConfig)
		then  int // status of the refresh
		after time.Duration
		class string
		stale bool
	}{
		{"kept", func(*ProfileConfig) {}, 503, 2 * time.Hour, ClassRuleDisallow, true},
		{"kept on network errors", func(*ProfileConfig) {}, 0, 2 * time.Hour, ClassRuleDisallow, true},
		{"kept on 429", func(*ProfileConfig) {}, 429, 2 * time.Hour, ClassRuleDisallow, true},
		{"until it is a day old", func(*ProfileConfig) {}, 503, 24 * time.Hour, ClassUnreachable, false},
		{"deny", func(c *ProfileConfig) { c.StaleOnError = Deny }, 503, 2 * time.Hour, ClassUnreachable, false},
		{"allow does not open what rules close", func(c *ProfileConfig) { c.WhenUnreadable = Allow }, 503, 2 * time.Hour, ClassRuleDisallow, true},
		{"stale_use", func(c *ProfileConfig) { c.StaleUse = 30 * 24 * time.Hour }, 503, 29 * 24 * time.Hour, ClassRuleDisallow, true},
		{"past stale_use", func(c *ProfileConfig) { c.StaleUse = 48 * time.Hour }, 503, 48 * time.Hour, ClassUnreachable, false},
		{"a 404 is news", func(*ProfileConfig) {}, 404, 2 * time.Hour, ClassNoRobots, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n", "Cache-Control", "max-age=3600")}
				p := New(Defaults(), s, nil, nil)
				q := query(t, "https://a.test/no")
				c.set(&q.Profile)
				wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
				pass(c.after)
				s.answer = inTurn(c.then)
				v := p.Check(t.Context(), q)
				if v.Class != c.class || v.Stale != c.stale {
					t.Errorf("%s stale %v, want %s %v", v.Class, v.Stale, c.class, c.stale)
				}
			})
		})
	}
}

// TestChallengeOnRefreshIsNoNetworkError: only 5xx, 429 and the network let the old copy live on.
func TestChallengeOnRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n", "Cache-Control", "max-age=60")}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/yes")
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		pass(time.Hour)
		s.answer = always(403, "", "cf-mitigated", "challenge")
		v := p.Check(t.Context(), q)
		wants(t, v, false, ReasonChallenge, ClassChallenge)
		if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "Cloudflare") {
			t.Errorf("notes %q", v.Notes)
		}
	})
}

func TestModes(t *testing.T) {
	const file = "Content-Signal: ai-input=no\nUser-agent: *\nDisallow: /\n"
	s := &site{answer: always(200, file)}
	p := New(Defaults(), s, nil, nil)
	q := query(t, "https://a.test/x")
	q.Profile.Mode = ModeIgnore
	wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNotConsulted)
	if s.count() != 0 {
		t.Error("mode ignore read robots.txt")
	}
	q.Profile.Mode, q.StopOn = ModeNamed, []string{"ai-input=no"}
	wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoGroup)
	q.Profile.Mode = ModeObey
	wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
	if s.count() != 1 {
		t.Error("each mode read robots.txt for itself")
	}
}

func TestStopOnPrecedence(t *testing.T) {
	s := &site{answer: always(200, "Content-Signal: search=no\nUser-agent: Other\nDisallow: /\n")}
	p := New(Defaults(), s, nil, nil)
	q := query(t, "https://a.test/x")
	q.StopOn = StopOnFor([]string{"search"})
	v := p.Check(t.Context(), q)
	wants(t, v, false, ReasonSignal, ClassContentSignal)
	if v.Signal != "search=no" || v.SignalLine != 1 || v.Rule != "Content-Signal: search=no" {
		t.Errorf("%+v", v)
	}
	q.Profile.StopOn = []string{}
	wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoGroup)
}

func TestNamedGroupStopsAll(t *testing.T) {
	s := &site{answer: always(200, "User-agent: ExampleBot\nAllow: /a\nDisallow: /private/\nUser-agent: *\nDisallow: /all\n")}
	p := New(Defaults(), s, nil, nil)
	q := query(t, "https://a.test/a")
	q.Profile.NamedGroupStopsAll = true
	v := p.Check(t.Context(), q)
	wants(t, v, false, ReasonDisallow, ClassRuleDisallow)
	if v.Line != 3 {
		t.Errorf("line %d", v.Line)
	}
	q.Token = "Other"
	wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
}

func TestVisitTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock starts at midnight UTC
		s := &site{answer: always(200, "User-agent: *\nVisit-time: 0200-0300\nVisit-time: 2200-2330\n")}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://a.test/a")
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		q.Profile.VisitTime = Enforce
		v := p.Check(t.Context(), q)
		wants(t, v, false, ReasonDisallow, ClassVisitTime)
		if v.Rule != "Visit-time: 0200-0300" || v.Line != 2 || v.RetryAfter != 2*time.Hour {
			t.Errorf("%q line %d, RetryAfter %v", v.Rule, v.Line, v.RetryAfter)
		}
		pass(2*time.Hour + time.Second)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		pass(2 * time.Hour)
		if v := p.Check(t.Context(), q); v.Line != 3 {
			t.Errorf("the next window is in line 3: %+v", v)
		}
	})
}

func TestCacheOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n", "Cache-Control", "max-age=60")}
		p := New(Defaults(), s, nil, nil)
		q := query(t, "https://cdn.test/no")
		q.CacheOnly = true
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNotConsulted)
		if s.count() != 0 {
			t.Error("fetched")
		}
		q.CacheOnly = false
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		q.CacheOnly = true
		pass(time.Hour)
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		pass(24 * time.Hour)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNotConsulted)
		if s.count() != 1 {
			t.Error("fetched")
		}
	})
}

// TestEviction: memory is bounded by bytes, and what was evicted is fetched again, never forgotten into "allowed".
func TestEviction(t *testing.T) {
	body := "User-agent: *\n" + strings.Repeat("Disallow: /a-rather-long-path/with-segments\nDisallow: /b*c\n", 50)
	s := &site{answer: always(200, body)}
	c := Defaults()
	c.CacheBytes = 1 << 20
	p := New(c, s, nil, nil)
	for i := range 1000 {
		v := p.Check(t.Context(), query(t, fmt.Sprintf("https://h%d.test/bc", i)))
		wants(t, v, false, ReasonDisallow, ClassRuleDisallow)
	}
	st := p.Stats()
	if st.Bytes > c.CacheBytes || st.Entries == 0 || st.Entries == 1000 {
		t.Errorf("%d entries, %d bytes", st.Entries, st.Bytes)
	}
	n := s.count()
	wants(t, p.Check(t.Context(), query(t, "https://h999.test/bc")), false, ReasonDisallow, ClassRuleDisallow)
	if s.count() != n {
		t.Error("the newest was evicted")
	}
	wants(t, p.Check(t.Context(), query(t, "https://h0.test/bc")), false, ReasonDisallow, ClassRuleDisallow)
	if s.count() != n+1 {
		t.Error("the oldest was kept")
	}
}

// TestOneLargeFile: a file larger than the bound is still kept while it is the newest.
func TestOneLargeFile(t *testing.T) {
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range 30000 {
		fmt.Fprintf(&b, "Disallow: /%d\n", i)
	}
	s := &site{answer: always(200, b.String())}
	c := Defaults()
	c.CacheBytes = 1 << 20
	p := New(c, s, nil, nil)
	for range 3 {
		wants(t, p.Check(t.Context(), query(t, "https://h.test/77")), false, ReasonDisallow, ClassRuleDisallow)
	}
	if s.count() != 1 {
		t.Errorf("fetched %d times", s.count())
	}
}

// typical is a robots.txt as many sites have it: 1.4 KB, thirty rules, most for other crawlers too.
const typical = `# robots.txt for a.test
User-agent: *
Disallow: /wp-admin/
Allow: /wp-admin/admin-ajax.php
Disallow: /search
Disallow: /cart
Disallow: /checkout
Disallow: /account/
Disallow: /login
Disallow: /*?sort=
Disallow: /*?*utm_source=
Disallow: /*.json$
Disallow: /tmp/
Disallow: /private/
Disallow: /cgi-bin/
Disallow: /api/
Disallow: /internal/*/draft
Disallow: /print/
Disallow: /email/
Disallow: /feed/$
Disallow: /tag/*/feed
Disallow: /author/
Crawl-delay: 5
Content-Signal: search=yes, ai-train=no

User-agent: GPTBot
Disallow: /

User-agent: CCBot
Disallow: /

User-agent: AhrefsBot
Crawl-delay: 30
Disallow: /blog/

Sitemap: https://a.test/sitemap_index.xml
Sitemap: https://a.test/news-sitemap.xml
`

// TestStatePerHost: a known host with a typical file costs less than 4 KB, one without a file less than 1 KB, and all
// of it is given back.
func TestStatePerHost(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		most   int
	}{{"typical", 200, typical, 4096}, {"none", 404, "", 1024}} {
		const hosts = 5000
		p := New(Defaults(), &site{answer: always(c.status, c.body)}, nil, nil)
		queries := make([]Query, hosts)
		for i := range queries {
			queries[i] = query(t, fmt.Sprintf("https://host-%d.test/page", i))
		}
		p.fetcher = plainSite{c.status, c.body}
		before := heap()
		for _, q := range queries {
			p.Check(t.Context(), q)
		}
		per := (heap() - before) / hosts
		st := p.Stats()
		t.Logf("%s: %d bytes a host, %d by our count", c.name, per, st.Bytes/hosts)
		if per > c.most {
			t.Errorf("%s: %d bytes a host", c.name, per)
		}
		if own := int(st.Bytes / hosts); own < per*2/3 || own > per*2 {
			t.Errorf("%s: counted as %d bytes, really %d", c.name, own, per)
		}
		runtime.KeepAlive(queries)
		runtime.KeepAlive(p)
	}
}

// plainSite answers without keeping anything.
type plainSite struct {
	status int
	body   string
}

func (s plainSite) Fetch(_ context.Context, _ FetchRequest) (*FetchResponse, error) {
	return reply(s.status, s.body), nil
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
