package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"crawlgate/audit"
)

// parse reads a page and returns every element and every attribute, so that a
// test can see what a browser would.
func parse(t testing.TB, page string) (elements map[string]int, attrs []html.Attribute, text string) {
	t.Helper()
	elements = map[string]int{}
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			return elements, attrs, b.String()
		case html.StartTagToken, html.SelfClosingTagToken:
			tok := z.Token()
			elements[tok.Data]++
			attrs = append(attrs, tok.Attr...)
		case html.TextToken:
			b.WriteString(z.Token().Data)
		}
	}
}

// checkPage fails when the page holds anything that could run or reach out.
func checkPage(t testing.TB, page string) {
	t.Helper()
	elements, attrs, _ := parse(t, page)
	if elements["script"] != 1 { // its own file
		t.Errorf("%d scripts", elements["script"])
	}
	for _, bad := range []string{"iframe", "object", "embed", "base", "img", "style", "meta-refresh"} {
		if elements[bad] > 0 {
			t.Errorf("a %s element", bad)
		}
	}
	for _, a := range attrs {
		if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc" {
			t.Errorf("attribute %s=%q", a.Key, a.Val)
		}
		if (a.Key == "href" || a.Key == "src" || a.Key == "action") && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "//") {
			t.Errorf("leads elsewhere: %s=%q", a.Key, a.Val)
		}
	}
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`, `</pre></details><script>x</script>`,
	"\u202e\u2066evil\u2069", "a\x00b\x1b[31m", "\xff\xfe", `{{.}}`, `<!--`, `]]></svg><script>1</script>`, `&lt;script&gt;`, "https://example.com/\r\nSet-Cookie: a=b",
}

// hostileServer shows v wherever a stranger's or an operator's text can stand.
func hostileServer(t testing.TB, v string) *Server {
	s := newServer(t, func(o *Options) {
		o.Live = func() Live {
			return Live{
				Version: v, Proxy: v, Store: v, ConfigFile: v, ConfigHash: v, ConfigError: v,
				Agents:  []LiveAgent{{Name: v, Token: v, UserAgent: v, Signing: v, KeyID: v}, {Name: "b", Signing: "ready", KeyID: v, KeyExpires: testTime}},
				Clients: []LiveClient{{Name: v, Profiles: []string{v}, Sites: v}},
				Hosts: []LiveHost{
					{Host: v, State: "held_back", Cause: v, Until: testTime, Queue: []QueueEntry{{v, 1}}, Waiting: 1, Robots: LiveRobots{State: v, Rule: v, SHA256: v}},
					{Host: v + "2", State: v, Cause: v},
				},
				Chain: LiveChain{Seq: 7, Head: v, File: v, Unwritable: v, Verified: LiveVerified{At: testTime, Broken: v},
					Sinks: []audit.SinkStatus{{Target: v, Kind: v, Failing: true, Since: testTime, Error: v, Newest: audit.Head{Seq: 3, Head: v}}, {Target: v, Kind: v, At: testTime, Skipped: 2, Waiting: 1}}}, CA: LiveCA{Expires: testTime, Fingerprint: v, SPKI: v},
			}
		}
		o.Ready = func() []Check { return []Check{{Name: v, Detail: v}} }
		o.Ledger = hostileLedger(v)
		o.Jobs = &fakeJobs{jobs: []Job{{ID: v, Client: v, Site: v, Stopped: v, Refused: map[string]int{v: 1}}}}
		o.Explain = func(context.Context, string, string, string, time.Time) (any, error) {
			return map[string]string{v: v}, nil
		}
		o.RobotsFile = func(string) ([]byte, bool) { return nil, false }
		o.Proof = func() (*audit.KeptProof, error) { return hostileProof(v), nil }
	})
	fill := func(e *audit.Event) {
		e.ID, e.Agent, e.Profile, e.Job, e.Kind, e.Method, e.Host, e.Class = v, v, v, v, v, v, v, v
		e.Client = audit.Client{Name: v, IP: v}
		e.Rule = audit.Rule{Line: 3, Text: v, Group: v}
		e.Robots = audit.Robots{SHA256: v, State: v, Status: 200}
		e.UserAgent, e.ClientUserAgent, e.ContentType, e.Note, e.RedirectOf, e.WouldDeny = v, v, v, v, v, v
		e.Upstream = audit.Upstream{IP: v, Resolved: []string{v, v}}
		e.DelaySource = v
	}
	s.Observe(event(1, v, fill))
	s.Observe(event(2, v, func(e *audit.Event) { fill(e); refusal("address-denied")(e) }))
	s.Observe(event(3, v, func(e *audit.Event) { fill(e); refusal(v)(e) }))
	s.Observe(event(4, v, func(e *audit.Event) { fill(e); e.Decision, e.Reason = audit.Failed, v }))
	s.Observe(event(5, v, func(e *audit.Event) { fill(e); e.Rule.Line = 0; refusal("kind-denied")(e) }))
	return s
}

type hostileLedger string

func (h hostileLedger) List() []LedgerEntry {
	return []LedgerEntry{{Host: string(h), Action: string(h), Reason: string(h), Subdomains: true, GapSeconds: 3, Since: testTime}}
}
func (hostileLedger) Stop(context.Context, string, bool, string) error                { return nil }
func (hostileLedger) Slow(context.Context, string, bool, time.Duration, string) error { return nil }
func (hostileLedger) Resume(context.Context, string) (bool, error)                    { return false, nil }

// URLs, user agents, rules and names are written by strangers: none of them may
// become markup, script or a link to elsewhere.
func TestEverythingIsEscaped(t *testing.T) {
	for i, v := range hostile {
		s := hostileServer(t, v)
		q := "?explain=" + urlQuery(v) + "&as=" + urlQuery(v) + "&profile=" + urlQuery(v) + "&client=" + urlQuery(v) + "&hosts=all"
		targets := []string{"/" + q}
		if i == 0 {
			targets = append(targets, "/")
		}
		for _, target := range targets {
			w := get(s, target)
			if w.Code != 200 {
				t.Fatalf("%q: %d %s", v, w.Code, w.Body)
			}
			checkPage(t, w.Body.String())
			_, _, text := parse(t, w.Body.String())
			for _, r := range text {
				if r != '\n' && hidden(r) {
					t.Errorf("%q: the character %U is shown as it is", v, r)
					break
				}
			}
		}
	}
}

func urlQuery(v string) string {
	var b strings.Builder
	for _, c := range []byte(v) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

// The first page somebody sees says how to point a client here.
func TestFirstRun(t *testing.T) {
	s := newServer(t, nil)
	body := get(s, "/").Body.String()
	checkPage(t, body)
	_, _, text := parse(t, body)
	for _, want := range []string{
		"point a client here", `crawlgate run --user-agent "ExampleBot/1.0 (+https://bot.example/about)" -- curl -sS https://example.com/`,
		"curl --proxy http://127.0.0.1:3128 --cacert crawlgate-ca.pem https://example.com/",
		"curl -sS -o crawlgate-ca.pem http://127.0.0.1:3129/ca.pem", "http://127.0.0.1:3129/proxy.pac",
		"--proxy-bypass-list=\"<-loopback>\"", "product_token: ExampleBot", "Nothing was refused so far",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the first page does not say %q", want)
		}
	}
	s.Observe(event(1, "https://example.com/", nil))
	_, _, text = parse(t, get(s, "/").Body.String())
	if strings.Contains(text, "point a client here") || !strings.Contains(text, "connect a client") {
		t.Error("with traffic the page still asks for some")
	}
}

// What the parts of the page promise is on it, without any script.
func TestLivePage(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Live = func() Live {
			return Live{
				Waiting: 3, Agents: []LiveAgent{{Name: "example", UserAgent: "ExampleBot/1.0", Signing: "ready", KeyID: "poqk"}},
				Hosts: []LiveHost{{Host: "example.com", State: "held_back", Until: time.Now().Add(90 * time.Second), Waiting: 2, Queue: []QueueEntry{{"team-b", 2}}}},
				Chain: LiveChain{Seq: 12, Lost: 3}, ConfigError: "line 9: no unit",
			}
		}
		o.Ledger = new(fakeLedger)
		o.Ready = func() []Check { return []Check{{Name: "redis", Detail: "no answer"}} }
	})
	s.Observe(event(1, "https://example.com/page", func(e *audit.Event) { e.Status, e.RetryAfterS = 503, 90 }))
	s.Observe(event(2, "https://example.com/private", func(e *audit.Event) {
		refusal("robots-disallow")(e)
		e.Rule = audit.Rule{Line: 4, Text: "Disallow: /private"}
	}))
	s.Observe(event(3, "http://cdn.example/x", func(e *audit.Event) {
		refusal("address-denied")(e)
		e.Host, e.Class, e.Upstream.IP, e.RedirectOf = "cdn.example", "addr_private", "10.0.0.12", "01JDX"
	}))
	body := get(s, "/").Body.String()
	checkPage(t, body)
	_, _, text := parse(t, body)
	for _, want := range []string{
		"not ready: redis", "redis is not ready: no answer", "line 9: no unit", "3 events lost",
		"503, Retry-After: 1m30s", "team-b", "Disallow: /private", "line 4", "10.0.0.12", "addr_private", "redirected there by request 01JDX",
		"team-a", "stopped.example", "asked by mail <b>", "ExampleBot/1.0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	w := get(s, "/?reason=robots-disallow")
	if b := w.Body.String(); strings.Contains(b, "GET <bdi>https://example.com/page") || !strings.Contains(b, "GET <bdi>https://example.com/private") {
		t.Error("the filter does not select")
	}
	if w := get(s, "/?decision=x"); w.Code != 400 {
		t.Errorf("a bad filter: %d", w.Code)
	}
}

type textual struct{}

func (textual) Text() string {
	return "refused   robots-disallow\n  rule\tDisallow: /\u202e\n"
}

func TestExplainOnThePage(t *testing.T) {
	var err error
	calls := 0
	s := newServer(t, func(o *Options) {
		o.Explain = func(context.Context, string, string, string, time.Time) (any, error) { calls++; return textual{}, err }
	})
	_, _, text := parse(t, get(s, "/?explain=https%3A%2F%2Fa.example%2F").Body.String())
	if !strings.Contains(text, "refused   robots-disallow\n  rule    Disallow: /\\u202e") {
		t.Errorf("the explanation is not shown")
	}
	for _, e := range []struct {
		err  error
		want string
	}{{&BadInput{"the host is empty"}, "the host is empty"}, {errors.New("/secret/path"), "this could not be explained"}} {
		err = e.err
		w := get(s, "/?explain=x")
		if w.Code != 200 || !strings.Contains(w.Body.String(), e.want) || strings.Contains(w.Body.String(), "/secret") {
			t.Errorf("%v: %d", e.err, w.Code)
		}
	}
	if calls != 3 {
		t.Errorf("explained %d times", calls)
	}
	if get(s, "/"); calls != 3 {
		t.Error("the page explains without being asked")
	}
}

// 500 hosts: the page shows the worst, says how many there are, and stays small.
func TestManyHosts(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Live = func() Live {
			var l Live
			for i := range 600 {
				st := "owing"
				if i == 599 {
					st = "stopped"
				}
				l.Hosts = append(l.Hosts, LiveHost{Host: fmt.Sprintf("h%d.example", i), State: st})
			}
			return l
		}
	})
	s.Observe(event(1, "https://example.com/", nil))
	body := get(s, "/").Body.String()
	if n := strings.Count(body, ".example</bdi>"); n < pageRows || n > 3*pageRows || !strings.Contains(body, "25 of 601") || !strings.Contains(body, "h599.example") {
		t.Errorf("%d hosts on the page", n)
	}
	if len(body) > 60<<10 {
		t.Errorf("the page has %d bytes", len(body))
	}
	all := get(s, "/?hosts=all").Body.String()
	if n := strings.Count(all, ".example</bdi>"); n < pageHostsAll-1 || n > pageHostsAll+pageRows {
		t.Errorf("%d hosts with ?hosts=all", n)
	}
}

func TestAssets(t *testing.T) {
	s := newServer(t, nil)
	for path, want := range map[string]string{"/live.css": "text/css; charset=utf-8", "/live.js": "text/javascript; charset=utf-8", "/favicon.svg": "image/svg+xml"} {
		if w := get(s, path); w.Code != 200 || w.Header().Get("Content-Type") != want || w.Body.Len() == 0 {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if w := get(s, "/live.html.tmpl"); w.Code != 404 {
		t.Errorf("the template is served: %d", w.Code)
	}
}

func TestPretty(t *testing.T) {
	r, err := recordOf(event(7, "https://example.com/", func(e *audit.Event) { e.Rule.Text = "Disallow: /\u202ex" }))
	if err != nil {
		t.Fatal(err)
	}
	got := r.pretty()
	for _, want := range []string{"seq: 7\n", "client\n  name: team-a\n", "url: https://example.com/\n", "rule\n  text: Disallow: /\\u202ex\n", "status: 200\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "upstream") || strings.Contains(got, "redirect_of") {
		t.Errorf("empty fields are shown:\n%s", got)
	}
	if got := written("no json\u202e").pretty(); got != `no json\u202e` {
		t.Errorf("broken JSON: %q", got)
	}
}

func BenchmarkLivePage(b *testing.B) {
	s := newServer(b, nil)
	for i := range maxRecords {
		s.Observe(event(uint64(i+1), "https://example.com/", func(e *audit.Event) { e.Host = fmt.Sprintf("h%d.example", i%500) }))
	}
	b.ReportAllocs()
	for b.Loop() {
		get(s, "/")
	}
}

// written is a record whose line is there.
func written(line string) *record {
	r := &record{line: []byte(line)}
	r.written.Do(func() {})
	return r
}
