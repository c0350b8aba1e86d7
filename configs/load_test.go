package configs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// load reads text as crawlgate.yaml in a folder of its own; HOME is that folder.
func load(t *testing.T, text string, opts ...func(*Options)) (*Config, *Sources, error) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(FileName, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Env: []string{"HOME=" + dir}}
	for _, f := range opts {
		f(&o)
	}
	return Load(o)
}

func env(kv ...string) func(*Options) { return func(o *Options) { o.Env = append(o.Env, kv...) } }

func flags(m map[string]string) func(*Options) { return func(o *Options) { o.Overrides = m } }

func mustLoad(t *testing.T, text string, opts ...func(*Options)) (*Config, *Sources) {
	t.Helper()
	c, src, err := load(t, text, opts...)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c, src
}

// wantProblems asserts the whole error text of a load.
func wantProblems(t *testing.T, err error, want string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T (%v), want *Error", err, err)
	}
	if got := err.Error(); got != strings.TrimSpace(want) {
		t.Errorf("error is\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c, src, err := Load(Options{Env: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	if src.File != "" || len(src.Warnings) != 0 {
		t.Errorf("file %q, warnings %v", src.File, src.Warnings)
	}
	if c.Listen != "127.0.0.1:3128" || c.Admin.Listen != "127.0.0.1:3129" || !c.Open || !c.Enforce {
		t.Errorf("listen %q, admin %q, open %v, enforce %v", c.Listen, c.Admin.Listen, c.Open, c.Enforce)
	}
	if len(c.Profiles) != 1 || c.Profiles[0].Name != "crawl" || len(c.Agents) != 0 {
		t.Errorf("profiles %v, agents %v", c.Profiles, c.Agents)
	}
	if want := filepath.Join(dir, ".local/state/crawlgate"); c.StateDir != want {
		t.Errorf("state_dir %q, want %q", c.StateDir, want)
	}
}

// What a user sees, letter by letter.
func TestThreeProblems(t *testing.T) {
	_, _, err := load(t, `# line 1
listen: 127.0.0.1:3128
agents:
  - name: example
    # line 5
    product_token: ExampleBot
    info_url: https://bot.example/about
    contact: bot@bot.example
    user_agent: "Example/1.0"
profiles:
  - name: crawl
    # line 12
    agent: example
    pacing:
      gap: 1
clients:
  - name: team-a
    secret_hash: sha256:0000000000000000000000000000000000000000000000000000000000000000
    sites:
      - https://docs.example.org/
    # line 21
    # line 22
    # line 23
    profile: crawl
`)
	wantProblems(t, err, `
crawlgate.yaml: 3 problems
  line 9   agents[0].user_agent does not contain product_token "ExampleBot": sites match on the token
  line 15  profiles[0].pacing.gap: "1" has no unit; write 1s
  line 24  clients[0].profile is not a key; did you mean profiles?`)
}

func TestWholeFile(t *testing.T) {
	c, _ := mustLoad(t, `
listen: 127.0.0.1:3128
admin: {listen: 127.0.0.1:3129}
agents:
  - name: example
    product_token: ExampleBot
    user_agent: "ExampleBot/1.0 (+https://bot.example/about)"
    info_url: https://bot.example/about
    contact: bot@bot.example
    signature_agent: https://bot.example
    purposes: [search, ai-input]
profiles:
  - name: crawl
    agent: example
    robots: {stop_on: []}
    pacing: {gap: 2s}
    limits: {methods: [GET], response_body: 10kB}
  - name: other
clients:
  - name: team-a
    secret_hash: sha256:0000000000000000000000000000000000000000000000000000000000000000
    profiles: [other, crawl]
    sites:
      - https://docs.example.org/
      - {sitemap: https://www.example.org/sitemap.xml}
      - {pages: [https://example.org/a, https://example.org/b]}
    grants: []
  - name: team-b
    sources: [127.0.0.0/8]
    sites: [https://docs.example.org/]
egress:
  allow_private: [127.0.0.1/32, {prefix: 10.20.30.40/32, ports: [443], comment: wiki}]
  hosts: ["127.0.0.1 shop.test cdn.test"]
`)
	p := c.Profiles[0]
	if p.Robots.StopOn == nil || len(p.Robots.StopOn) != 0 {
		t.Errorf("stop_on [] is %#v", p.Robots.StopOn)
	}
	if p.Pacing.Gap != 2*time.Second || p.Pacing.Parallel != 1 || p.Limits.ResponseBody != 10_000 || p.Limits.Redirects != 5 || len(p.Limits.Methods) != 1 {
		t.Errorf("profile %+v", p)
	}
	if c.Profiles[1].Agent != "example" || c.Profiles[1].Robots.StopOn != nil || c.Profiles[1].IdentityLock != 24*time.Hour {
		t.Errorf("second profile %+v", c.Profiles[1])
	}
	cl := c.Clients[0]
	if len(cl.Sites) != 3 || cl.Sites[0].URL != "https://docs.example.org/" || cl.Sites[1].Sitemap == "" || len(cl.Sites[2].Pages) != 2 {
		t.Errorf("sites %+v", cl.Sites)
	}
	if cl.Grants == nil || len(cl.Grants) != 0 || !cl.Enforce {
		t.Errorf("grants %#v, enforce %v", cl.Grants, cl.Enforce)
	}
	if b := c.Clients[1]; len(b.Profiles) != 1 || b.Profiles[0] != "crawl" || len(b.Grants) != 2 {
		t.Errorf("second client %+v", b)
	}
	if x := c.Egress.AllowPrivate; len(x) != 2 || x[0].Prefix != "127.0.0.1/32" || x[1].Comment != "wiki" || x[1].Ports[0] != 443 {
		t.Errorf("allow_private %+v", x)
	}
}

func TestPrecedence(t *testing.T) {
	text := "server: {read_head: 2s, idle: 2s, upstream_idle: 2s}\n"
	c, src := mustLoad(t, text,
		env("CRAWLGATE_SERVER_IDLE=3s", "CRAWLGATE_SERVER_UPSTREAM_IDLE=3s", "CRAWLGATE_EGRESS_PORTS=[80, 8080]", "CRAWLGATE_ADMIN_LISTEN="),
		flags(map[string]string{"server.upstream_idle": "4s"}))
	if s := c.Server; s.ReadHead != 2*time.Second || s.Idle != 3*time.Second || s.UpstreamIdle != 4*time.Second || s.Grace != 30*time.Second {
		t.Errorf("server %+v", s)
	}
	if len(c.Egress.Ports) != 2 || c.Egress.Ports[1] != 8080 || c.Admin.Listen != "" {
		t.Errorf("ports %v, admin %q", c.Egress.Ports, c.Admin.Listen)
	}
	for key, want := range map[string]string{
		"server.read_head": "crawlgate.yaml:1", "server.idle": "CRAWLGATE_SERVER_IDLE", "server.upstream_idle": "--server-upstream-idle",
		"server.grace": "default", "listen": "default", "egress.ports": "CRAWLGATE_EGRESS_PORTS",
	} {
		if got := src.Origin(key); got != want {
			t.Errorf("origin of %s is %q, want %q", key, got, want)
		}
	}
}

func TestFiles(t *testing.T) {
	_, src := mustLoad(t, "")
	if got := src.Files(); len(got) != 2 || got[0] != FileName || got[1] != src.Clients {
		t.Errorf("files %v", got)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	_, src, err := Load(Options{Env: []string{"HOME=" + dir}})
	if err != nil || len(src.Files()) != 1 || src.Origin("listen") != "default" || src.Origin("no.such[3].key") != "default" {
		t.Errorf("%v, files %v", err, src.Files())
	}
	// The sources are there when the load fails, too: their warnings are worth telling.
	_, src, err = load(t, "opne: true\n", env("CRAWLGATE_OPNE=1"))
	if err == nil || src == nil || len(src.Warnings) != 1 {
		t.Errorf("%v, %+v", err, src)
	}
}

// A problem in a value of a preset, brought about by the user's file, is told at the preset's line.
func TestProblemInPreset(t *testing.T) {
	_, _, err := load(t, "preset: recordslabs\nsign: {lifetime: 20s}\nagents: [{name: answer, user_agent: Other/1}]\n")
	wantProblems(t, err, `
crawlgate.yaml: 2 problems
  line 2  sign.lifetime: 20s is shorter than dialling, handshake and 30s together (50s) for profile crawl
  line 3  agents[0].user_agent does not contain product_token "RecordsLabs-AnswerFetch": sites match on the token`)
}
