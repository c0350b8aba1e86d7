package configs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const fullFile = `preset: recordslabs
agents:
  - {name: ingestion, contact: bot@example.org}
clients:
  - name: team-a
    secret_hash: sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    profiles: [crawl, direct]
    sites:
      - https://docs.example.org/
      - {sitemap: https://www.example.org/sitemap.xml}
      - {pages: [https://example.org/a, https://example.org/b]}
egress:
  allow_private: [127.0.0.1/32, {prefix: 10.20.30.40/32, ports: [443], comment: wiki}]
redis: {url: "redis://user:hunter2@127.0.0.1:6379/0"}
audit: {max_size: 10MB}
`

// What show prints loads again, to the same configuration but for the secrets.
func TestShowLoadsAgain(t *testing.T) {
	c, src := mustLoad(t, fullFile)
	for name, text := range map[string]string{"plain": c.Show(nil), "origin": c.Show(src)} {
		if strings.Contains(text, "hunter") || strings.Contains(text, "00112233") {
			t.Errorf("%s: a secret is shown:\n%s", name, text)
		}
		again := strings.ReplaceAll(text, masked, "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff")
		d, _ := mustLoad(t, again)
		d.Redis.URL = c.Redis.URL
		// Show writes absent lists as empty ones.
		s := configShape()
		if diff := cmp.Diff(jsonOf(c.tree(s)), jsonOf(d.tree(s))); diff != "" {
			t.Errorf("%s: differs:\n%s", name, diff)
		}
	}
	shown := c.Show(src)
	for _, want := range []string{
		"listen: 127.0.0.1:3128 # default\n", "contact: bot@example.org # crawlgate.yaml:3\n", "max_size: 10MB # crawlgate.yaml:15\n",
		"secret_hash: (masked) # crawlgate.yaml:6\n", "redis://user:xxxxx@127.0.0.1:6379/0", "- https://docs.example.org/ # crawlgate.yaml:9\n",
		"product_token: RecordsLabsIngestion # preset recordslabs:7\n",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown in\n%s", want, shown)
		}
	}
	b, err := c.ShowJSON()
	if err != nil || !json.Valid(b) || strings.Contains(string(b), "hunter") {
		t.Errorf("%v\n%s", err, b)
	}
	// Every key of the schema is shown.
	tr := c.tree(configShape())
	configShape().walkLeaves("", func(path string, _ *shape) {
		if tr.find(path) == nil {
			t.Errorf("%s is not shown", path)
		}
	})
}

func TestMaskURL(t *testing.T) {
	for in, want := range map[string]string{
		"redis://127.0.0.1:6379": "redis://127.0.0.1:6379", "redis://:pw@h/0": "redis://:xxxxx@h/0", "redis://u@h/0": "redis://u@h/0",
		"pw@host:6379": masked, "redis:pw": masked, "unix:///run/redis.sock?password=pw&db=1": "unix:///run/redis.sock?db=1&password=xxxxx", "%zz": masked,
		"host:6379": masked,
	} {
		if got := maskURL(in); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}

func TestHash(t *testing.T) {
	hash := func(text string, opts ...func(*Options)) string {
		t.Helper()
		c, _ := mustLoad(t, text, opts...)
		return c.Hash()
	}
	base := hash(fullFile)
	if len(base) != 64 || base != hash(fullFile) {
		t.Fatalf("hash %s is not stable", base)
	}
	same := map[string]string{
		"an explicit default":     fullFile + "server: {grace: 30s}\nenforce: true\n",
		"an explicit empty list":  fullFile + "intercept: {tunnel_hosts: []}\npage: {addresses: []}\n",
		"another spelling":        strings.ReplaceAll(fullFile, "10MB", "10000kB"),
		"another secret":          strings.ReplaceAll(fullFile, "00112233", "ffffffff"),
		"another Redis password":  strings.ReplaceAll(fullFile, "hunter2", "hunter4"),
		"another listener":        fullFile + "listen: 127.0.0.1:0\nadmin: {listen: ''}\n",
		"another state folder":    fullFile + "state_dir: /var/lib/crawlgate\n",
		"another comment":         "# words\n" + fullFile,
		"deny written as nothing": strings.Replace(fullFile, "egress:\n", "egress:\n  deny: []\n  hosts:\n", 1),
	}
	for name, text := range same {
		if got := hash(text); got != base {
			t.Errorf("%s changes the hash", name)
		}
	}
	other := map[string]string{
		"a site":       strings.Replace(fullFile, "/a,", "/c,", 1),
		"a gap":        fullFile + "profiles: [{name: crawl, pacing: {gap: 2s}}]\n",
		"no stop_on":   fullFile + "profiles: [{name: direct, robots: {stop_on: []}}]\n",
		"enforce":      fullFile + "enforce: false\n",
		"a deny entry": strings.Replace(fullFile, "egress:\n", "egress:\n  deny: [192.0.2.0/24]\n", 1),
	}
	seen := map[string]string{base: "the base"}
	for name, text := range other {
		got := hash(text)
		if first, ok := seen[got]; ok {
			t.Errorf("%s has the hash of %s", name, first)
		}
		seen[got] = name
	}
	if hash(fullFile, env("CRAWLGATE_ENFORCE=false")) == base {
		t.Error("a variable leaves the hash alone")
	}
}

func TestClientsFile(t *testing.T) {
	dir := t.TempDir()
	name := ClientsFile(dir)
	if got, err := ReadClients(name); err != nil || got != nil {
		t.Errorf("a missing file: %v, %v", got, err)
	}
	in := []Client{
		{Name: "team-a", SecretHash: "sha256:" + strings.Repeat("ab", 32), Profiles: []string{"crawl"}, Grants: []string{"redirects"}, Enforce: true},
		{Name: "team-b", Sources: []string{"10.0.0.0/8"}, Fields: true},
	}
	if err := WriteClients(name, in); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	out, err := ReadClients(name)
	if err != nil {
		t.Fatal(err)
	}
	want := []Client{in[0], in[1]}
	want[0].Sources, want[0].DenyHosts = []string{}, []string{}
	want[1].Profiles, want[1].Grants, want[1].DenyHosts = []string{}, []string{"redirects", "files"}, []string{}
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}

	// Beside a file: appended, in force, found as the origin.
	with := env("CRAWLGATE_STATE_DIR=" + dir)
	c, src := mustLoad(t, "clients: [{name: own, sources: [127.0.0.1], sites: [https://example.org/]}]\n", with)
	if len(c.Clients) != 3 || c.Clients[1].Name != "team-a" || src.Clients != name {
		t.Errorf("clients %+v, file %q", c.Clients, src.Clients)
	}
	if got := src.Origin("clients[1].secret_hash"); got != name+":4" {
		t.Errorf("origin %q", got)
	}
	// Without any file.
	none := t.TempDir()
	t.Chdir(none)
	if c, _, err = Load(Options{Env: []string{"HOME=" + none, "CRAWLGATE_STATE_DIR=" + dir}}); err != nil || len(c.Clients) != 2 {
		t.Errorf("without a file: %v, %v", c, err)
	}

	_, _, err = load(t, "clients: [{name: team-a, sources: [127.0.0.1], sites: [https://example.org/]}]\n", with)
	wantProblems(t, err, name+`: 1 problem
  line 3  clients[0].name: "team-a" is also in crawlgate.yaml, line 1; a client has one place`)

	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	_, _, err = load(t, "", with)
	wantProblems(t, err, name+": 1 problem\n  has mode 0640; it must be 0600")
	if err := os.WriteFile(name, []byte("open: true\nclients: [{name: x, profiles: [nope]}]\n"), 0o600); err != nil || os.Chmod(name, 0o600) != nil {
		t.Fatal(err)
	}
	_, _, err = load(t, "", with)
	wantProblems(t, err, name+`: 3 problems
  line 1  open is not a key; the keys here are clients
  line 2  clients[0] has none of secret_hash, listen and sources: nobody could be this client
  line 2  clients[0].profiles[0]: "nope" is not a profile; there are crawl`)
	if _, err := ReadClients(name); err == nil {
		t.Error("ReadClients takes an unknown key")
	}
	if err := WriteClients(filepath.Join(dir, "no", "clients.yaml"), in); err == nil {
		t.Error("written into a folder that does not exist")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".clients-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWithUserAgent(t *testing.T) {
	for _, tt := range []struct{ name, ua, token, want, err string }{
		{name: "first product", ua: "ExampleBot/1.0 (+https://example.org/bot)", want: "ExampleBot"},
		{name: "no version", ua: "ExampleBot", want: "ExampleBot"},
		{name: "token given", ua: "Mozilla/5.0 (compatible; ExampleBot/1.0)", token: "ExampleBot", want: "ExampleBot"},
		{name: "mozilla", ua: "Mozilla/5.0 (compatible; ExampleBot/1.0)", err: "--user-agent begins with Mozilla, which names no crawler: add --product-token, the name that robots.txt uses"},
		{name: "other token", ua: "ExampleBot/1.0", token: "Other", err: `--user-agent: does not contain product_token "Other": sites match on the token`},
		{name: "bad token", ua: "Example.Bot/1.0", err: `--product-token: "Example.Bot" is not a token: letters, - and _ (RFC 9309 section 2.2.1)`},
		{name: "empty", err: `--user-agent needs the name that sites see, such as "ExampleBot/1.0 (+https://bot.example/about)"`},
		{name: "pass", ua: "pass", err: `--user-agent needs the name that sites see, such as "ExampleBot/1.0 (+https://bot.example/about)"`},
		{name: "line break", ua: "Bot/1\nX: y", err: "--user-agent: only printable ASCII can be sent, up to 512 characters"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Defaults()
			err := WithUserAgent(c, tt.ua, tt.token)
			if got := errText(err); got != tt.err {
				t.Fatalf("error %q, want %q", got, tt.err)
			}
			if err != nil {
				if len(c.Agents) != 0 {
					t.Error("an agent in spite of the error")
				}
				return
			}
			a, ok := c.Agent(c.Profiles[0].Agent)
			if !ok || a.ProductToken != tt.want || a.UserAgent != tt.ua {
				t.Errorf("agent %+v", a)
			}
		})
	}
	c := Defaults()
	if err := WithUserAgent(c, "ExampleBot/1.0 (+https://example.org/bot; x)", ""); err != nil || c.Agents[0].InfoURL != "https://example.org/bot" {
		t.Errorf("%v, %+v", err, c.Agents)
	}
	if err := WithUserAgent(c, "ExampleBot/1.0 (+https://example.org/bot; x)", ""); err != nil || len(c.Agents) != 1 {
		t.Errorf("the same again: %v", err)
	}
	if err := WithUserAgent(c, "Other/1.0", ""); err == nil || !strings.Contains(err.Error(), "configured already") {
		t.Errorf("another one: %v", err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRestartOnly(t *testing.T) {
	a, b := Defaults(), Defaults()
	b.Server.Grace, b.Open = time.Second, false
	if got := RestartOnly(a, b); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	b.Listen, b.Admin.Listen, b.StateDir, b.Redis.URL = "x", "x", "x", "x"
	b.Admin.Pprof = true
	b.Publish.Listen, b.Publish.ServeRoot, b.Publish.IgnoreHost = "x", false, true
	if got, want := RestartOnly(a, b), []string{"listen", "admin.listen", "admin.pprof", "state_dir", "redis.url", "publish.listen", "publish.serve_root", "publish.ignore_host"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConverters(t *testing.T) {
	c := Defaults()
	if l := c.Allowlist(); len(l.Clients) != 1 || !l.Clients[0].Open || l.Clients[0].Name != openClient {
		t.Errorf("open mode: %+v", l)
	}
	c.Open = false
	if l := c.Allowlist(); l.Clients[0].Open {
		t.Errorf("open: false: %+v", l)
	}
	c = mustPreset(t, "recordslabs")
	crawl, _ := c.Profile("crawl")
	if got := c.StopOn(crawl); len(got) != 3 {
		t.Errorf("stop_on %v", got)
	}
	crawl.Robots.StopOn = nil
	if got := c.StopOn(crawl); !reflect.DeepEqual(got, []string{"search=no", "ai-input=no", "use=immediate"}) && len(got) != 3 {
		t.Errorf("from purposes: %v", got)
	}
	crawl.Robots.StopOn = []string{}
	if got := c.StopOn(crawl); got == nil || len(got) != 0 {
		t.Errorf("[]: %v", got)
	}
	if a := c.SignAgents(); len(a) != 3 || a[0].Token != "RecordsLabsIngestion" || a[0].SignatureAgent == "" {
		t.Errorf("agents %+v", a)
	}
}
