package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// day is what a gate did: a log and the archive beside it, made from events that keep every promise.
type day struct {
	t       *testing.T
	dir     string
	base    time.Time
	events  []*Event
	index   []archiveLine
	bodies  map[string]string
	opt     ProofOptions
	profile *ProofProfile
	broken  func(file string) // after the log was closed
	config  Config
}

const (
	dayPolicy = "1111111111111111111111111111111111111111111111111111111111111111"
	dayRules  = "User-agent: *\nDisallow: /private\n"
	dayKey    = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
)

// lineRules forbids the paths of Disallow lines and reads Crawl-delay: enough of robots.txt for these tests.
type lineRules struct {
	no    []string
	delay time.Duration
}

func (r *lineRules) Judge(raw string, _ time.Time) ProofVerdict {
	u, err := url.Parse(raw)
	if err != nil || u.Path == "/robots.txt" {
		return ProofVerdict{Allowed: err == nil}
	}
	for i, p := range r.no {
		if strings.HasPrefix(u.RequestURI(), p) {
			return ProofVerdict{Reason: "robots-disallow", Rule: "Disallow: " + p, Line: i + 2, Delay: r.delay}
		}
	}
	return ProofVerdict{Allowed: true, Delay: r.delay}
}

func (r *lineRules) Depends(parts []string, _ bool, _ time.Time) bool {
	u, err := url.Parse(parts[0])
	for _, p := range r.no {
		if err != nil || strings.HasPrefix(p, u.RequestURI()) {
			return true
		}
	}
	return false
}

func compileLines(body []byte) ProofRules {
	r := &lineRules{}
	for line := range strings.Lines(string(body)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Disallow":
			r.no = append(r.no, value)
		case "Crawl-delay":
			r.delay, _ = time.ParseDuration(value + "s")
		}
	}
	return r
}

func shaOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// newDay has two clients, a page each, a file of one, a redirect with its target, a refusal, and the rules read first.
func newDay(t *testing.T) *day {
	d := &day{t: t, dir: t.TempDir(), base: time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC), bodies: map[string]string{}, config: Defaults()}
	d.profile = &ProofProfile{Agent: "example", UserAgent: "ExampleBot/1.0", Sign: "sites", SignAgent: "https://bot.example", Rules: compileLines,
		StaleUse: 24 * time.Hour, Gap: time.Second, Parallel: 1}
	d.opt = ProofOptions{
		Special: func(a netip.Addr) string {
			if a.IsPrivate() {
				return "addr_private"
			}
			return ""
		},
		Key: func(id string, _ time.Time) string {
			if id != dayKey {
				return "no such key"
			}
			return ""
		},
		Policies: map[string]*ProofPolicy{dayPolicy: {
			Profiles:  map[string]*ProofProfile{"crawl": d.profile},
			Exception: func(name string, _ netip.Addr, _ int) bool { return name == "10.0.0.0/8" },
			Pacing: ProofPacing{LongestDelay: 24 * time.Hour, RetryAfterCap: 24 * time.Hour, BackoffBase: 5 * time.Second, BackoffCap: time.Hour, BackoffFactor: 2,
				ForgetAfter: 30 * time.Minute, SlowWindow: 10 * time.Minute, SlowDecay: 30 * time.Minute, SlowLevels: 6, SlowRecover: 10, Riders: 6},
		}},
	}
	d.read(0, dayRules)
	robots := d.send(0, "robots", "/robots.txt", 100)
	robots.Type, robots.Client, robots.Robots = TypeRobots, Client{}, Robots{State: "not_consulted", Status: 200}
	d.send(1100, "page", "/a", 200)
	d.send(1200, "subresource", "/a.css", 400).DelayOwedMS = 0
	d.send(2300, "page", "/b?x=1", 100).Client.Name = "second"
	moved := d.send(3400, "page", "/old", 100)
	moved.Status = 301
	hop := d.send(3550, "redirect", "/new", 100)
	hop.RedirectOf, hop.DelayOwedMS = moved.ID, 0
	d.send(4650, "page", "/c", 100)
	no := d.send(4700, "page", "/private", 0)
	no.Sent, no.SentAt, no.DoneAt, no.Status, no.Decision, no.Reason, no.Upstream, no.Sig = false, time.Time{}, time.Time{}, 0, Refused, "robots-disallow", Upstream{}, Sig{}
	return d
}

// read enters a reading of robots.txt at a moment of the day.
func (d *day) read(ms int, body string) *archiveLine {
	at := d.base.Add(time.Duration(ms) * time.Millisecond)
	l := archiveLine{URL: "https://www.example.com/robots.txt", Agent: "example", Class: archiveFile, SHA256: shaOf(body), HTTPStatus: 200, Effective: at, Fetched: at}
	d.bodies[l.SHA256] = body
	d.index = append(d.index, l)
	return &d.index[len(d.index)-1]
}

// send adds a request that began at a moment of the day and took so long, judged by the last reading.
func (d *day) send(ms int, kind, path string, took int) *Event {
	at := d.base.Add(time.Duration(ms) * time.Millisecond)
	last := d.index[len(d.index)-1]
	e := &Event{
		ID: NewID(), Time: at.Add(-20 * time.Millisecond), QueuedMS: 20, TurnWaitMS: 10, Client: Client{Name: "first"}, Agent: "example", Profile: "crawl", Kind: kind, Method: "GET",
		Decision: Forwarded, Reason: "ok", Sent: true, SentAt: at, DoneAt: at.Add(time.Duration(took) * time.Millisecond), PolicySHA256: dayPolicy,
		Robots: Robots{SHA256: last.SHA256, FetchedAt: last.Fetched, Status: last.HTTPStatus, State: "fresh"}, DelayOwedMS: 1000, DelaySource: "default",
		Sig: Sig{State: "signed", KeyID: dayKey, Agent: "https://bot.example", Created: at.Unix(), Expires: at.Unix() + 60}, UserAgent: "ExampleBot/1.0", Status: 200,
	}
	e.SetURL(parse(d.t, "https://www.example.com"+path))
	e.SetUpstream(netip.MustParseAddrPort("198.51.100.7:443"), []netip.Addr{netip.MustParseAddr("198.51.100.7")})
	d.events = append(d.events, e)
	return e
}

// page finds an event by its path.
func (d *day) page(path string) *Event {
	for _, e := range d.events {
		if e.rawURL.RequestURI() == path {
			return e
		}
	}
	d.t.Fatalf("no %s", path)
	return nil
}

// later moves an event and all after it.
func (d *day) later(e *Event, by time.Duration) {
	found := false
	for _, o := range d.events {
		if found = found || o == e; found && o.Sent {
			o.Time, o.SentAt, o.DoneAt = o.Time.Add(by), o.SentAt.Add(by), o.DoneAt.Add(by)
			o.Sig.Created, o.Sig.Expires = o.SentAt.Unix(), o.SentAt.Unix()+60
		}
	}
}

// prove writes it all down and proves it.
func (d *day) prove() *Proof {
	d.t.Helper()
	d.opt.Archive = filepath.Join(d.dir, "robots")
	var index bytes.Buffer
	for i := range d.index {
		line, err := json.Marshal(&d.index[i])
		if err != nil {
			d.t.Fatal(err)
		}
		index.Write(append(line, '\n'))
	}
	if err := os.MkdirAll(d.opt.Archive, 0o700); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.opt.Archive, "index.jsonl"), index.Bytes(), 0o600); err != nil {
		d.t.Fatal(err)
	}
	for sha, body := range d.bodies {
		file := filepath.Join(d.opt.Archive, "bodies", sha[:2], sha+".txt")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	l := openTest(d.t, d.config, d.dir)
	if err := l.Record(context.Background(), &Event{Type: TypeConfig, Time: d.base.Add(-time.Second), PolicySHA256: dayPolicy}); err != nil {
		d.t.Fatal(err)
	}
	for _, e := range d.events {
		record := l.Record
		if e.Type == TypeIntent {
			record = l.Intent
		}
		if err := record(context.Background(), e); err != nil {
			d.t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		d.t.Fatal(err)
	}
	if d.broken != nil {
		d.broken(l.Path())
	}
	files, err := Files(l.Path())
	if err != nil {
		d.t.Fatal(err)
	}
	p, err := Prove(context.Background(), files, d.opt)
	if err != nil {
		d.t.Fatal(err)
	}
	if p.Sent != p.Proven+p.Exempt+p.Unprovable+p.Violating {
		d.t.Errorf("%d sent = %d + %d + %d + %d", p.Sent, p.Proven, p.Exempt, p.Unprovable, p.Violating)
	}
	return p
}

// found lists the violations as `check reason count`.
func found(p *Proof) []string {
	var out []string
	for _, name := range proofChecks {
		n := map[string]int64{}
		for _, f := range p.Checks[name].Findings {
			n[f.Reason]++
		}
		for _, reason := range sortedKeys(n) {
			out = append(out, fmt.Sprintf("%s %s %d", name, reason, n[reason]))
		}
	}
	return out
}

func TestProveHonestDay(t *testing.T) {
	p := newDay(t).prove()
	if !p.OK || !p.Passed(0) || p.Sent != 7 || p.Proven != 7 {
		t.Errorf("%v: %+v", found(p), p)
	}
	if p.Requests != 7 || p.RobotsFetches != 1 || p.Hosts != 1 || p.Clients != 2 || p.Refused["robots-disallow"] != 1 || p.Signatures["signed"] != 7 {
		t.Errorf("counts: %+v", p)
	}
	if diff := cmp.Diff([]ProofGap{{Host: "www.example.com", Requests: 3, SmallestMS: 1000, OwedMS: 1000, Seq: 6}}, p.Gaps); diff != "" {
		t.Error(diff)
	}
	var text bytes.Buffer
	if err := p.WriteText(&text, 10, time.Now()); err != nil || !strings.HasSuffix(text.String(), "proven   every request that was sent kept the rules\n") {
		t.Errorf("%v\n%s", err, text.String())
	}
	for _, c := range []string{CheckRules, CheckPace, CheckOne, CheckAddress, CheckIdentity} {
		if p.Checks[c].Checked != 7 {
			t.Errorf("%s: %d checked", c, p.Checks[c].Checked)
		}
	}
}

// TestProveFindsEachBreach: every kind of breach is found, and nothing else with it (audit trail, D8).
func TestProveFindsEachBreach(t *testing.T) {
	second := func(e *Event) { e.DelayOwedMS = 2000 }
	for name, c := range map[string]struct {
		seed func(d *day)
		want string
	}{
		"chain: altered": {func(d *day) {
			d.broken = func(file string) { edit(t, file, `"path":"`, ``, `second`, `sebond`) }
		}, "chain altered 1"},
		"rules: body missing":   {func(d *day) { clear(d.bodies) }, "rules body_missing 6"},
		"rules: body differs":   {func(d *day) { d.bodies[shaOf(dayRules)] += "#" }, "rules body_differs 6"},
		"rules: another file":   {func(d *day) { d.page("/c").Robots.SHA256 = shaOf("x"); d.bodies[shaOf("x")] = "x" }, "rules not_in_archive 1"},
		"rules: never read":     {func(d *day) { d.index[0].URL = "https://other.example.com/robots.txt" }, "rules not_in_archive 6"},
		"rules: another's copy": {func(d *day) { d.index[0].Agent = "other" }, "rules not_in_archive 6"},
		"rules: wrong moment":   {func(d *day) { d.page("/c").Robots.FetchedAt = d.base.Add(time.Second) }, "rules not_in_archive 1"},
		"rules: superseded":     {func(d *day) { d.read(4000, "Disallow: /q\n") }, "rules superseded 1"},
		"rules: unreadable": {func(d *day) {
			l := d.read(4000, "")
			l.SHA256, l.Class, l.HTTPStatus, d.profile.StaleUse = "", archiveUnreachable, 503, 0
		}, "rules unreadable 1"},
		"rules: a bot check": {func(d *day) {
			l := d.read(4000, "")
			l.SHA256, l.Class, l.HTTPStatus = "", "robots_challenge", 200
		}, "rules unreadable 1"},
		"rules: too old":    {func(d *day) { d.later(d.page("/c"), 25*time.Hour) }, "rules too_old 1"},
		"rules: forbidden":  {func(d *day) { d.page("/c").SetURL(parse(t, "https://www.example.com/private/c")) }, "rules robots-disallow 1"},
		"rules: none known": {func(d *day) { d.page("/c").Robots = Robots{State: "none"} }, "rules no_rules 1"},
		"rules: not asked":  {func(d *day) { d.page("/c").Robots = Robots{State: "not_consulted"} }, "rules not_consulted 1"},
		"rules: a file, though rules were known": {func(d *day) {
			e := d.page("/a.css")
			e.Robots = Robots{State: "not_consulted"}
			e.SetURL(parse(t, "https://www.example.com/private.css"))
		}, "rules robots-disallow 1"},
		"pace: below the gap":                  {func(d *day) { d.later(d.page("/c"), -100*time.Millisecond) }, "pace below_gap 1"},
		"pace: after robots.txt":               {func(d *day) { d.later(d.page("/a"), -100*time.Millisecond) }, "pace below_gap 1"},
		"pace: below what is owed":             {func(d *day) { second(d.page("/c")) }, "pace below_owed 1"},
		"pace: owed understated":               {func(d *day) { d.page("/c").DelayOwedMS = 900 }, "pace owed_understated 1"},
		"pace: crawl-delay":                    {func(d *day) { d.slow(2); d.later(d.page("/c"), -500*time.Millisecond) }, "pace below_gap 1"},
		"pace: a file without the crawl-delay": {func(d *day) { d.slow(2); d.send(1150, "subresource", "/b.css", 10).DelayOwedMS = 0 }, "pace rides 1"},
		"pace: Retry-After":                    {func(d *day) { throttle(d.page("/b?x=1"), 429, 30) }, "pace held 3"},
		"pace: own back-off":                   {func(d *day) { throttle(d.page("/b?x=1"), 503, 0) }, "pace held 3"},
		"pace: slowed":                         {slowed, "pace below_gap 1"},
		"pace: a redirect of none":             {func(d *day) { d.page("/new").RedirectOf = "" }, "pace below_gap 1"},
		"pace: hop of another host": {func(d *day) {
			d.page("/old").SetURL(parse(t, "https://example.com/old"))
			d.index = append(d.index, d.index[0])
			d.index[1].URL = "https://example.com/robots.txt"
		}, "pace owed_understated 1"},
		"alone: overlap": {func(d *day) { d.page("/b?x=1").DoneAt = d.base.Add(3450 * time.Millisecond) }, "one_at_a_time overlap 1"},
		"alone: riders": {func(d *day) {
			d.opt.Policies[dayPolicy].Pacing.Riders = 1
			d.send(1250, "subresource", "/b.css", 10).DelayOwedMS = 0
		}, "one_at_a_time riders 1"},
		"address: special use": {func(d *day) {
			d.page("/c").SetUpstream(netip.MustParseAddrPort("10.0.0.1:443"), []netip.Addr{netip.MustParseAddr("10.0.0.1")})
		}, "address special_use 1"},
		"address: an exception that is none": {func(d *day) {
			d.page("/c").SetUpstream(netip.MustParseAddrPort("10.0.0.1:443"), []netip.Addr{netip.MustParseAddr("10.0.0.1")})
			d.page("/c").Exception = "10.1.0.0/16"
		}, "address special_use 1"},
		"address: not resolved":                  {func(d *day) { d.page("/c").Upstream.Resolved = []string{"198.51.100.8"} }, "address not_resolved 1"},
		"address: not recorded":                  {func(d *day) { d.page("/c").Upstream = Upstream{} }, "address not_recorded 1"},
		"identity: user agent":                   {func(d *day) { d.page("/c").UserAgent = "Mozilla/5.0" }, "identity user_agent 1"},
		"identity: agent":                        {func(d *day) { d.profile.Agent = "other" }, "identity agent 7"},
		"identity: unsigned":                     {func(d *day) { d.page("/c").Sig = Sig{State: "never"} }, "identity unsigned 1"},
		"identity: a page called another's file": {func(d *day) { d.page("/c").Sig = Sig{State: "cross-site"} }, "identity unsigned 1"},
		"identity: no key, though required":      {func(d *day) { d.profile.SignRequired = true; d.page("/c").Sig = Sig{State: "disabled"} }, "identity unsigned 1"},
		"identity: key":                          {func(d *day) { d.page("/c").Sig.KeyID = "x" }, "identity key 1"},
		"identity: expired":                      {func(d *day) { d.page("/c").Sig.Expires -= 120; d.page("/c").Sig.Created -= 120 }, "identity signature_time 1"},
		"identity: not yet":                      {func(d *day) { d.page("/c").Sig.Created += 30 }, "identity signature_time 1"},
		"identity: another's key":                {func(d *day) { d.page("/c").Sig.Agent = "https://other.example" }, "identity signature_agent 1"},
		"complete: gap": {func(d *day) {
			d.events = append(d.events, &Event{Type: TypeGap, Time: d.base, FromSeq: 12, Lost: 3, Class: "queue_full"})
		}, "complete gap 1"},
		"complete: unfinished": {func(d *day) {
			d.config.Sync = "intent"
			e := *d.page("/c")
			e.Type, e.ID = TypeIntent, NewID()
			d.events = append(d.events, &e)
		}, "complete unfinished 1"},
		"complete: removed": {func(d *day) {
			d.broken = func(file string) { cutLine(t, file, 5) }
		}, "chain removed 1,complete removed 1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDay(t)
			c.seed(d)
			p := d.prove()
			if got := strings.Join(found(p), ","); got != c.want {
				var text bytes.Buffer
				_ = p.WriteText(&text, 100, time.Now())
				t.Errorf("found %q, want %q\n%s", got, c.want, text.String())
			}
			if p.OK || p.Passed(1000) {
				t.Error("passed")
			}
		})
	}
}

// delay makes the day's file ask for a gap.
func (d *day) delay(seconds int) {
	body := dayRules + fmt.Sprintf("Crawl-delay: %d\n", seconds)
	d.bodies[shaOf(body)] = body
	d.index[0].SHA256 = shaOf(body)
	for _, e := range d.events {
		if e.Robots.SHA256 != "" {
			e.Robots.SHA256 = shaOf(body)
		}
	}
}

// throttle makes an answer ask for a pause.
func throttle(e *Event, status int, after int64) { e.Status, e.RetryAfterS = status, after }

// slowed has two incidents in a row, each waited for, and then a gap that is the usual one.
func slowed(d *day) {
	throttle(d.page("/a"), 503, 0)
	d.page("/a.css").DoneAt = d.page("/a.css").SentAt.Add(50 * time.Millisecond)
	throttle(d.page("/b?x=1"), 503, 0)
	d.later(d.page("/b?x=1"), 5*time.Second)
	d.later(d.page("/old"), 10*time.Second)
	d.page("/old").DelayOwedMS = 2000 // doubled; the page after it keeps one second again
	e := d.page("/c")
	e.DelayOwedMS = 1999
	d.later(e, 900*time.Millisecond)
}

// edit changes a text in the log.
func edit(t *testing.T, file string, pairs ...string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(b))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cutLine removes a line of the log.
func cutLine(t *testing.T, file string, n int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	if err := os.WriteFile(file, []byte(strings.Join(append(lines[:n:n], lines[n+1:]...), "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestProveAllows: what looks like a breach and is none.
func TestProveAllows(t *testing.T) {
	for name, c := range map[string]struct {
		seed   func(d *day)
		exempt int64
	}{
		"the next second of a crawl-delay": {func(d *day) { d.slow(2) }, 0},
		"stale rules while the file fails": {func(d *day) {
			l := d.read(4000, "")
			l.SHA256, l.Class, l.HTTPStatus = "", archiveUnreachable, 503
			d.page("/c").Robots.State = "stale"
		}, 0},
		"read again, unchanged": {func(d *day) {
			d.index[0].Fetched = d.base.Add(4 * time.Second)
			d.page("/c").Robots.FetchedAt = d.base.Add(4 * time.Second)
		}, 0},
		"read while the connection was made": {func(d *day) {
			d.read(4600, "Disallow: /q\n")
			d.page("/c").QueuedMS = 110
		}, 0},
		"no robots.txt": {func(d *day) {
			d.index[0].SHA256, d.index[0].Class, d.index[0].HTTPStatus = "", archiveNone, 404
			for _, e := range d.events {
				e.Robots.SHA256 = ""
				e.Robots.Status = 404
			}
		}, 0},
		"files of other hosts": {func(d *day) {
			e := d.page("/a.css")
			e.Robots, e.Sig = Robots{State: "not_consulted"}, Sig{State: "cross-site"}
			e.SetURL(parse(t, "https://cdn.example.net/private.css"))
		}, 0},
		"robots.txt by a fetcher": {func(d *day) {
			e := d.page("/c")
			e.SetURL(parse(t, "https://www.example.com/robots.txt"))
			e.Robots = Robots{State: "not_consulted"}
		}, 0},
		"an exception": {func(d *day) {
			e := d.page("/c")
			e.SetUpstream(netip.MustParseAddrPort("10.0.0.1:443"), []netip.Addr{netip.MustParseAddr("10.0.0.1")})
			e.Exception = "10.0.0.0/8"
		}, 0},
		"rules ignored": {func(d *day) {
			d.profile.Ignore = true
			d.page("/c").SetURL(parse(t, "https://www.example.com/private"))
		}, 7},
		"no turns": {func(d *day) { d.profile.Unpaced = true; d.later(d.page("/c"), -500*time.Millisecond) }, 7},
		"parallel": {func(d *day) {
			d.profile.Parallel, d.profile.Gap = 2, 0
			d.free()
			d.page("/b?x=1").DoneAt = d.base.Add(3450 * time.Millisecond)
		}, 0},
		"a restart forgets nothing": {func(d *day) { d.events = append(d.events, &Event{Type: TypeStop, Time: d.base}) }, 0},
		"a throttle that was kept":  {func(d *day) { throttle(d.page("/b?x=1"), 429, 30); d.later(d.page("/old"), 30*time.Second) }, 0},
		"a host that the operator let in again": {func(d *day) {
			throttle(d.page("/b?x=1"), 429, 30)
			d.events = append(d.events, &Event{Type: TypeConfig, Time: d.base.Add(2500 * time.Millisecond), PolicySHA256: dayPolicy, Note: "sites resume www.example.com"})
		}, 0},
		"an answer to what was on its way when another failed": {func(d *day) {
			d.profile.Parallel, d.profile.Gap = 2, 0
			d.free()
			throttle(d.page("/a.css"), 503, 0)
			d.page("/a").Decision, d.page("/a").Status = Failed, 0
			d.later(d.page("/b?x=1"), 2*time.Second)
			d.opt.Policies[dayPolicy].Pacing.BackoffBase = time.Second
		}, 0},
		"a pause that only a profile without turns met": {func(d *day) {
			free := *d.profile
			free.Unpaced = true
			d.opt.Policies[dayPolicy].Profiles["free"] = &free
			e := d.page("/b?x=1")
			e.Profile, e.DelayOwedMS = "free", 0
			throttle(e, 503, 0)
		}, 1},
		"a connection that failed": {func(d *day) {
			e := d.send(4660, "page", "/dead", 0)
			e.Sent, e.SentAt, e.DoneAt, e.Decision, e.Reason = false, time.Time{}, time.Time{}, Failed, "upstream-failed"
			e = d.send(4670, "page", "/x", 0)
			e.rawURL, e.Host = nil, ""
			e.Sent, e.SentAt, e.DoneAt, e.Decision, e.Reason = false, time.Time{}, time.Time{}, Failed, "internal"
		}, 0},
		"a masked query that no rule looks at": {func(d *day) {
			d.page("/c").SetURL(parse(t, "https://www.example.com/c?token=abc"))
		}, 0},
		"unsigned without a key": {func(d *day) { d.page("/c").Sig = Sig{State: "disabled"} }, 0},
		"not on the list":        {func(d *day) { d.page("/c").Sig = Sig{State: "not-listed"} }, 0},
		"intent with its end": {func(d *day) {
			d.config.Sync = "intent"
			e := *d.page("/c")
			e.Type = TypeIntent
			d.events = append([]*Event{&e}, d.events...)
		}, 0},
		"event stream": {func(d *day) {
			e := d.page("/b?x=1")
			e.ContentType, e.DoneAt = "text/event-stream; charset=utf-8", d.base.Add(time.Hour)
		}, 0},
		"websocket": {func(d *day) { e := d.page("/b?x=1"); e.Status, e.DoneAt = 101, d.base.Add(time.Hour) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDay(t)
			c.seed(d)
			p := d.prove()
			if !p.OK || p.Exempt != c.exempt {
				t.Errorf("%v unprovable %v exempt %v", found(p), p.UnprovableBy, p.ExemptProfiles)
			}
		})
	}
}

// slow makes the day's file ask for a gap that is kept.
func (d *day) slow(seconds int) {
	d.delay(seconds)
	for _, path := range []string{"/b?x=1", "/old", "/c"} {
		e := d.page(path)
		e.DelayOwedMS = int64(seconds) * 1000
		d.later(e, time.Duration(seconds-1)*time.Second)
	}
	css := d.page("/a.css")
	css.SetURL(parse(d.t, "https://cdn.example.net/a.css"))
	css.Robots = Robots{State: "not_consulted"}
	css.Sig = Sig{State: "cross-site"}
}

// free records that nothing was owed.
func (d *day) free() {
	for _, e := range d.events {
		e.DelayOwedMS = 0
	}
}

func TestProveUnprovable(t *testing.T) {
	for name, c := range map[string]struct {
		seed func(d *day)
		want map[string]int64
	}{
		"tunnel":        {func(d *day) { e := d.page("/c"); e.Type = TypeTunnel }, map[string]int64{UnprovenTunnel: 1}},
		"configuration": {func(d *day) { d.page("/c").PolicySHA256 = strings.Repeat("2", 64) }, map[string]int64{UnprovenConfig: 1}},
		"query": {func(d *day) {
			d.index[0].SHA256 = shaOf("Disallow: /c?token=a\n")
			d.bodies[d.index[0].SHA256] = "Disallow: /c?token=a\n"
			for _, e := range d.events {
				if e.Robots.SHA256 != "" {
					e.Robots.SHA256 = d.index[0].SHA256
				}
			}
			d.page("/c").SetURL(parse(t, "https://www.example.com/c?token=abc"))
		}, map[string]int64{UnprovenQuery: 1}},
		"key": {func(d *day) { d.opt.Key = func(string, time.Time) string { return KeyNotKnown } }, map[string]int64{UnprovenKey: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDay(t)
			c.seed(d)
			p := d.prove()
			if diff := cmp.Diff(c.want, p.UnprovableBy); diff != "" || len(found(p)) > 0 || p.OK || !p.Passed(p.Unprovable) || p.Passed(p.Unprovable-1) {
				t.Errorf("%v %s", found(p), diff)
			}
		})
	}
}

// TestProveWindow: what lies outside the time asked for is not judged, but its ends still count for the gaps.
func TestProveWindow(t *testing.T) {
	d := newDay(t)
	d.page("/a").UserAgent = "x"
	d.later(d.page("/b?x=1"), -200*time.Millisecond)
	d.opt.Since = d.base.Add(1500 * time.Millisecond)
	if p := d.prove(); strings.Join(found(p), ",") != "pace below_gap 1" || p.Sent != 4 {
		t.Errorf("%v of %d", found(p), p.Sent)
	}
}

func TestPartsOf(t *testing.T) {
	c := Defaults()
	red := newRedactor(c, []byte("k"))
	for in, want := range map[string][]string{
		"https://a.test/p?a=1&token=x&b=2":      {"https://a.test/p?a=1&token=", "&b=2"},
		"https://a.test/p?token=x?y&b=*":        {"https://a.test/p?token=", "?", "&b=", ""},
		"https://a.test/p?aa=1;key=x=y":         {"https://a.test/p?aa=1;key=", ""},
		"https://a.test/p?sid=a&token=b&*c=d*e": {"https://a.test/p?sid=", "&token=", "&*c=d*e"},
		"https://a.test/p?a=1*&b":               {"https://a.test/p?a=1*&b"},
	} {
		e := &Event{}
		e.SetURL(parse(t, in))
		red.apply(e)
		got, open := partsOf(e)
		if diff := cmp.Diff(want, got); diff != "" || open {
			t.Errorf("%s: %s", e.URL, diff)
		}
	}
	for _, e := range []*Event{{URL: RedactedURL{"https://a.test/p"}, QueryMasked: true}, {URL: RedactedURL{"https://a.test/p?"}, Cut: []string{"url"}}} {
		if got, open := partsOf(e); !open || len(got) != 1 || got[0] != "https://a.test/p?" {
			t.Errorf("%s %q", e.URL, got)
		}
	}
}
