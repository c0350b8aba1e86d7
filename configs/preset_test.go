package configs

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPresetsLoad(t *testing.T) {
	for _, name := range Presets() {
		t.Run(name, func(t *testing.T) {
			c, err := Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			// The same by a file that names it, and by a copy of it.
			named, src := mustLoad(t, "preset: "+name+"\n")
			if w := FormatWarnings(src.Warnings); w != "" {
				t.Errorf("a preset warns of itself: %s", w)
			}
			text, err := presetText(name)
			if err != nil {
				t.Fatal(err)
			}
			copied, _ := mustLoad(t, string(text))
			copied.Preset = name
			named.StateDir, copied.StateDir = c.StateDir, c.StateDir
			if d := cmp.Diff(c, named); d != "" {
				t.Errorf("preset: %s differs (-Preset +file):\n%s", name, d)
			}
			if d := cmp.Diff(c, copied); d != "" {
				t.Errorf("copied file differs (-Preset +copy):\n%s", d)
			}
		})
	}
	if _, err := Preset("nobody"); err == nil {
		t.Error("an unknown preset loads")
	}
}

// The promises that configuration decides.
func TestPresetPromises(t *testing.T) {
	rl, ro, un := mustPreset(t, "recordslabs"), mustPreset(t, "roftrlabs"), mustPreset(t, "unlob")
	profile := func(c *Config, name string) Profile {
		p, ok := c.Profile(name)
		if !ok {
			t.Fatalf("no profile %s", name)
		}
		return p
	}
	agent := func(c *Config, p Profile) Agent { a, _ := c.Agent(p.Agent); return a }
	is := func(id string, got, want any) {
		t.Helper()
		t.Run(id, func(t *testing.T) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}

	is("RL", rl.profileNames(), []string{"crawl", "direct", "answer", "person"})
	is("RL-agents", len(rl.Agents), 3)
	crawl, direct, answer, person := profile(rl, "crawl"), profile(rl, "direct"), profile(rl, "answer"), profile(rl, "person")
	is("RL-1", crawl.Sites, SitesListed)
	is("RL-4", agent(rl, crawl).UserAgent, "Mozilla/5.0 (compatible; RecordsLabsIngestion/1.0; +https://recordslabs.ai/ingestion)")
	is("RL-5", crawl.Sign, SignSites)
	is("RL-5-agent", agent(rl, crawl).SignatureAgent != "", true)
	is("RL-8", []string{crawl.Robots.Mode, agent(rl, crawl).ProductToken}, []string{"obey", "RecordsLabsIngestion"})
	is("RL-12", crawl.Robots.StopOn, []string{"ai-input=no", "search=no", "use=immediate"})
	is("RL-14", []string{crawl.Robots.WhenUnreadable, crawl.Robots.StaleOnError}, []string{"refuse", "deny"})
	is("RL-17", []any{crawl.Pacing.Mode, crawl.Pacing.Gap, crawl.Pacing.Parallel, crawl.Pacing.Key}, []any{"turns", time.Second, 1, "host"})
	is("RL-18", []string{crawl.Pacing.Redirect, crawl.Pacing.Companions}, []string{"follow", "ride"})
	is("RL-19", rl.Revalidate.FullEvery, 50)
	is("RL-19", rl.Revalidate.Enabled, true)
	is("RL-20", len(crawl.Limits.DenyKinds), 3)
	is("RL-21", crawl.Robots.ThirdParty, "if_read")
	for _, p := range []Profile{crawl, direct, answer} {
		is("RL-23-"+p.Name, p.IdentityLock, 24*time.Hour)
	}
	is("RL-25", []any{agent(rl, person).UserAgent, person.Robots.Mode, person.Pacing.Mode, person.Sign, person.Sites, person.IdentityLock,
		person.Limits.Authorization, len(person.Limits.DenyKinds), person.Limits.RequestBody > 0},
		[]any{"pass", "ignore", "none", "never", "any", time.Duration(0), "pass", 0, true})
	is("RL-26", []any{direct.Agent, direct.Robots.Mode, direct.Pacing.Mode, direct.Sites}, []any{crawl.Agent, "ignore", "none", "any"})
	is("RL-29", []any{agent(rl, answer).UserAgent, answer.Robots.Mode, answer.Pacing.Mode, answer.Sites},
		[]any{"RecordsLabs-AnswerFetch/1", "ignore", "none", "any"})

	is("RO", ro.profileNames(), []string{"page", "site"})
	page, site := profile(ro, "page"), profile(ro, "site")
	is("RO-1", agent(ro, page).UserAgent, "RoftrlabsBot/1.0 (+https://roftrlabs.com/crawler)")
	is("RO-2", []bool{page.Job.Required, site.Job.Required}, []bool{true, true})
	is("RO-3", []any{site.Job.MaxPages, site.Job.SameSite, site.Pacing.Parallel}, []any{300, true, 1})
	is("RO-4", ro.Egress.Ports, []int{80, 443})
	for _, p := range []Profile{page, site} {
		l := p.Limits
		is("RO-5-"+p.Name, []any{l.Redirects, l.Timeout < 30*time.Second, l.ResponseBody > 0}, []any{5, true, true})
		is("RO-6-"+p.Name, []any{l.Methods, l.RequestBody, l.Authorization}, []any{[]string{"GET", "HEAD"}, int64(0), "strip"})
		is("RO-signals-"+p.Name, p.Robots.StopOn, []string{})
	}
	is("RO-9", []string{page.Robots.Mode, site.Robots.Mode}, []string{"named", "obey"})
	is("RO-10", []string{page.Robots.WhenUnreadable, site.Robots.WhenUnreadable}, []string{"allow", "refuse"})
	is("RO-11", len(ro.Egress.AllowPrivate), 0)

	is("UN", un.profileNames(), []string{"crawl"})
	u := profile(un, "crawl")
	is("UN-1", agent(un, u).UserAgent, "UnlobBot/1.0 (+https://www.unlob.com/crawler)")
	is("UN-2", agent(un, u).ProductToken, "UnlobBot")
	is("UN-4, UN-5, UN-12", []bool{un.Revalidate.Enabled, un.Revalidate.Lastmod}, []bool{true, true})
	is("UN-6", u.Limits.Redirects, 5)
	is("UN-8", u.On410, On410Final)
	is("UN-15", []string{u.Robots.Mode, u.Robots.ThirdParty}, []string{"obey", "own"})
	is("UN-16", []any{u.Pacing.Mode, u.Pacing.Gap}, []any{"turns", time.Second})
	is("UN-17", []any{len(un.Agents), u.IdentityLock}, []any{1, 24 * time.Hour})
	is("UN-18", u.Pacing.Key, "registrable_domain")
	is("UN-19", []string{u.Robots.WhenUnreadable, u.Robots.StaleOnError, u.Pacing.Robots}, []string{"refuse", "deny", "paced"})
	is("UN-signals", u.Robots.StopOn, []string{})
}

func mustPreset(t *testing.T, name string) *Config {
	t.Helper()
	c, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A file over a preset changes only what it names: items by their name, in the preset's order, new ones at the end.
func TestPresetOverrides(t *testing.T) {
	c, src := mustLoad(t, `preset: roftrlabs
profiles:
  - name: site
    pacing: {gap: 5s}
    job: {max_pages: 50}
  - name: own
    agent: roftrlabs
    robots: {mode: ignore}
egress:
  ports: [80, 443, 8443]
`)
	if got := c.profileNames(); !reflect.DeepEqual(got, []string{"page", "site", "own"}) {
		t.Fatalf("profiles %v", got)
	}
	site := c.Profiles[1]
	if site.Pacing.Gap != 5*time.Second || site.Job.MaxPages != 50 || !site.Job.SameSite || site.Robots.Mode != "obey" || site.Limits.Timeout != 20*time.Second {
		t.Errorf("site %+v", site)
	}
	if c.Profiles[2].Limits.Timeout != 30*time.Second {
		t.Errorf("own %+v", c.Profiles[2])
	}
	for key, want := range map[string]string{
		"profiles[1].pacing.gap": "crawlgate.yaml:4", "profiles[1].job.max_pages": "crawlgate.yaml:5", "profiles[1].limits.redirects": "preset roftrlabs:25",
		"profiles[0].name": "preset roftrlabs:13", "egress.ports": "crawlgate.yaml:10", "profiles[2].pacing.gap": "default",
	} {
		if got := src.Origin(key); got != want {
			t.Errorf("origin of %s is %q, want %q", key, got, want)
		}
	}

	// A problem in an overridden item is told with the number that the item has in the user's own file.
	_, _, err := load(t, "preset: roftrlabs\nprofiles:\n  - name: site\n    agent: nobody\n    pacing: {parallel: 0}\n")
	wantProblems(t, err, `
crawlgate.yaml: 2 problems
  line 4  profiles[0].agent: "nobody" is not an agent; there are roftrlabs
  line 5  profiles[0].pacing.parallel: must be at least 1, is 0`)

	_, _, err = load(t, "preset: roftrlab\n")
	wantProblems(t, err, `
crawlgate.yaml: 1 problem
  line 1  preset: "roftrlab" is not a preset; there are recordslabs, roftrlabs, unlob`)
	if c, _ := mustLoad(t, "", env("CRAWLGATE_PRESET=unlob")); c.Agents[0].Name != "unlob" {
		t.Errorf("CRAWLGATE_PRESET: agents %v", c.Agents)
	}
}
