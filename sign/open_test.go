package sign

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestOpenRefuses is the first row of section 12: what stops a start, and the setting that the text names.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	good := writeKey(t, dir, "good.pem", testKey(1), 0o600)
	type setup struct {
		c      Config
		agents []Agent
	}
	for _, c := range []struct {
		name    string
		change  func(*setup)
		setting string
		text    string
	}{
		{"no such file", func(s *setup) { s.agents[0].KeyFile = filepath.Join(dir, "none") }, "agents[0].key_file", "no such file"},
		{"mode 0644", func(s *setup) { s.agents[0].KeyFile = writeKey(t, dir, "open.pem", testKey(1), 0o644) }, "agents[0].key_file", "mode 0644"},
		{"group without the setting", func(s *setup) { s.agents[0].KeyFile = writeKey(t, dir, "group.pem", testKey(1), 0o640) }, "agents[0].key_file", "mode 0640"},
		{"test key", func(s *setup) { s.agents[0].KeyFile = writeKey(t, dir, "k1.pem", readVectors(t).key(t, "k1"), 0o600) }, "agents[0].key_file", "test key of RFC 9421"},
		{"second test key", func(s *setup) { s.agents[0].KeyFile = writeKey(t, dir, "k2.pem", readVectors(t).key(t, "k2"), 0o600) }, "agents[0].key_file", "test key of RFC 8037"},
		{"published test key", func(s *setup) { s.agents[0].PublishKeyFiles = []string{good, filepath.Join(dir, "k1.pem")} }, "agents[0].publish_key_files[1]", "test key"},
		{"published file missing", func(s *setup) { s.agents[0].PublishKeyFiles = []string{filepath.Join(dir, "none")} }, "agents[0].publish_key_files[0]", "no such file"},
		{"published without key_file", func(s *setup) { s.agents[0].KeyFile, s.agents[0].PublishKeyFiles = "", []string{good} }, "agents[0].publish_key_files", "needs key_file"},
		{"http agent", func(s *setup) { s.agents[0].SignatureAgent = "http://bot.example.com" }, "agents[0].signature_agent", "not an absolute https URL"},
		{"agent with fragment", func(s *setup) { s.agents[0].SignatureAgent += "/#keys" }, "agents[0].signature_agent", "fragment"},
		{"agent with empty fragment", func(s *setup) { s.agents[0].SignatureAgent += "/#" }, "agents[0].signature_agent", "fragment"},
		{"agent with user info", func(s *setup) { s.agents[0].SignatureAgent = "https://u:p@bot.example.com" }, "agents[0].signature_agent", "user info"},
		{"agent of a bare host", func(s *setup) { s.agents[0].SignatureAgent = "bot.example.com" }, "agents[0].signature_agent", "not an absolute https URL"},
		{"agent in letters outside ASCII", func(s *setup) { s.agents[0].SignatureAgent = "https://b\u00fccher.example" }, "agents[0].signature_agent", "ASCII"},
		{"agent with a quote", func(s *setup) { s.agents[0].SignatureAgent += `/"` }, "agents[0].signature_agent", "quotes"},
		{"agent with a line break", func(s *setup) { s.agents[0].SignatureAgent += "\n" }, "agents[0].signature_agent", "ASCII"},
		{"agent of 256 bytes", func(s *setup) { s.agents[0].SignatureAgent += "/" + strings.Repeat("a", 232) }, "agents[0].signature_agent", "255"},
		{"name no folder", func(s *setup) { s.agents[0].KeyFile, s.agents[0].Name = "", "../x" }, "agents[0].name", "folder"},
		{"second agent of that name", func(s *setup) { s.agents = append(s.agents, s.agents[0]) }, "agents[1].name", "twice"},
		{"second agent with that key", func(s *setup) {
			s.agents = append(s.agents, Agent{Name: "other", SignatureAgent: "https://other.example.com", KeyFile: good})
		}, "agents[1].key_file", "also belongs to agent example"},
		{"bad label", func(s *setup) { s.c.Label = "Bad Label" }, "sign.label", "not a label"},
		{"empty label", func(s *setup) { s.c.Label = "" }, "sign.label", "not a label"},
		{"label begins with a digit", func(s *setup) { s.c.Label = "1a" }, "sign.label", "not a label"},
		{"long label", func(s *setup) { s.c.Label = strings.Repeat("a", 65) }, "sign.label", "64 bytes"},
		{"short lifetime", func(s *setup) { s.c.Lifetime = 9 * time.Second }, "sign.lifetime", "10s to 5m0s"},
		{"long lifetime", func(s *setup) { s.c.Lifetime = 301 * time.Second }, "sign.lifetime", "10s to 5m0s"},
		{"broken lifetime", func(s *setup) { s.c.Lifetime = 10500 * time.Millisecond }, "sign.lifetime", "whole number"},
		{"form", func(s *setup) { s.c.Form = "both" }, "sign.form", "dictionary, string"},
		{"components", func(s *setup) { s.c.Components = "all" }, "sign.components", "minimal, bound"},
		{"site form", func(s *setup) { s.c.Sites = []Site{{Host: "a.example", Form: ""}} }, "sign.sites[0].form", "dictionary, string"},
		{"site host", func(s *setup) { s.c.Sites = []Site{{Host: "https://a.example", Form: FormString}} }, "sign.sites[0].host", "a.example"},
		{"site port", func(s *setup) { s.c.Sites = []Site{{Host: "a.example:443", Form: FormString}} }, "sign.sites[0].host", "port"},
		{"site twice", func(s *setup) {
			s.c.Sites = []Site{{Host: "a.example", Form: FormString}, {Host: "A.example.", Form: FormString}}
		}, "sign.sites[1].host", "sites[0]"},
		{"required, no key", func(s *setup) { s.c.Required, s.agents[0].KeyFile = true, "" }, "sign.required", "crawlgate keys new --agent example"},
		{"required, no agent URL", func(s *setup) { s.c.Required, s.agents[0].SignatureAgent = true, "" }, "sign.required", "no agent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setup{Defaults(), []Agent{{Name: "example", SignatureAgent: goodAgent, KeyFile: good}}}
			c.change(&s)
			_, err := Open(s.c, t.TempDir(), s.agents, nil)
			var se *SettingError
			if !errors.As(err, &se) || se.Key() != c.setting || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), c.setting) {
				t.Errorf("%v, want %s: %s", err, c.setting, c.text)
			}
		})
	}
	t.Run("every kind of file", func(t *testing.T) {
		for name, f := range keyFiles(t) {
			path := writeMode(t, filepath.Join(t.TempDir(), "k"), []byte(f[0]), 0o600)
			_, err := Open(Defaults(), dir, []Agent{{Name: "a", SignatureAgent: goodAgent, KeyFile: path}}, nil)
			var se *SettingError
			if !errors.As(err, &se) || se.Key() != "agents[0].key_file" || !strings.Contains(err.Error(), f[1]) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestOpenNamesEveryProblem(t *testing.T) {
	_, err := Open(Defaults(), t.TempDir(), []Agent{{Name: "a", SignatureAgent: "http://x.example"}, {Name: "b", SignatureAgent: goodAgent, KeyFile: "/nonexistent/key"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "agents[0].signature_agent") || !strings.Contains(err.Error(), "agents[1].key_file") {
		t.Error(err)
	}
	c := Defaults()
	c.Label, c.Form, c.Lifetime = "A", "x", 0
	if err := c.Validate(); err == nil || len(unjoin(err)) != 3 {
		t.Error(err)
	}
}

// TestOpenDisabled is the row of agents that run unsigned.
func TestOpenDisabled(t *testing.T) {
	s, err := Open(Defaults(), t.TempDir(), []Agent{{Name: "none"}, {Name: "nokey", SignatureAgent: goodAgent}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for agent, why := range map[string]string{"none": "no signature_agent", "nokey": "crawlgate keys new --agent nokey"} {
		if state, text := s.State(agent); state != Disabled || !strings.Contains(text, why) {
			t.Errorf("%s: %s %s", agent, state, text)
		}
	}
	if state, text := s.State("who"); state != Unknown || text != "no such agent" {
		t.Errorf("%s %s", state, text)
	}
	h := http.Header{"Signature-Agent": {"forged"}, "signature": {"forged"}, "Signature-Input": {"forged"}, "Accept": {"*/*"}}
	info, err := s.Sign(Request{Agent: "nokey", Authority: "example.com"}, h)
	if err != nil || info.State != Disabled || len(h) != 1 {
		t.Errorf("%+v, %v, %v", info, err, h)
	}
}

func TestOpenGroupReadAndTestKey(t *testing.T) {
	dir := t.TempDir()
	c := Defaults()
	c.AllowGroupRead, c.AllowTestKey = true, true
	path := writeKey(t, dir, "k.pem", readVectors(t).key(t, "k1"), 0o440)
	if _, err := Open(c, dir, []Agent{{Name: "a", SignatureAgent: goodAgent, KeyFile: path}}, nil); err != nil {
		t.Error(err)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "allow_test_key") {
		t.Error(w)
	}
	if w := Defaults().Warnings(); w != nil {
		t.Error(w)
	}
}

// TestOpenSharedIdentity: two agents may be one identity to others, then they may share the key.
func TestOpenSharedIdentity(t *testing.T) {
	dir := t.TempDir()
	path := writeKey(t, dir, "k.pem", testKey(1), 0o600)
	s, err := Open(Defaults(), dir, []Agent{{Name: "a", SignatureAgent: goodAgent, KeyFile: path}, {Name: "b", SignatureAgent: goodAgent, KeyFile: path}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := s.directory("bot.example.com"); err != nil || strings.Count(string(d.body), `"kid"`) != 1 {
		t.Errorf("%v %v", d, err)
	}
}

func TestReloadIsAllOrNothing(t *testing.T) {
	k := testKeyring(t)
	old, err := k.New("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(k.Config, k.StateDir, k.Agents, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	next, _, err := k.Rotate("", "", true)
	if err != nil {
		t.Fatal(err)
	}
	bad := append(append([]Agent{}, k.Agents...), Agent{Name: "bad", SignatureAgent: goodAgent, KeyFile: filepath.Join(k.StateDir, "none")})
	if err := s.Reload(k.Config, bad); err == nil {
		t.Fatal("a bad key was taken")
	}
	if got := s.ActiveKey("example"); got != old.ID || s.ReloadFailures() != 1 {
		t.Errorf("active %s after a failed reload, want %s; %d failures", got, old.ID, s.ReloadFailures())
	}
	if state, _ := s.State("bad"); state != Unknown {
		t.Error("half of a bad reload was taken")
	}
	if err := s.Reload(k.Config, k.Agents); err != nil {
		t.Fatal(err)
	}
	if got := s.ActiveKey("example"); got != next.ID || s.ReloadFailures() != 1 {
		t.Errorf("active %s, want %s", got, next.ID)
	}
	if got := s.ActiveKey("nobody"); got != "" {
		t.Error(got)
	}
	p := PublishDefaults()
	p.Authority = "other.example.com"
	commit, err := s.Prepare(k.Config, nil, p)
	if err != nil || s.ActiveKey("example") != next.ID || s.DirectoryHosts()[0] != "bot.example.com" {
		t.Errorf("prepared and in force before the commit: %v", err)
	}
	commit()
	if s.ActiveKey("example") != "" || len(s.DirectoryHosts()) != 0 {
		t.Error("committed and not in force")
	}
	// Requests in flight are by an agent that the settings no longer name; the next reload forgets it.
	for _, want := range []string{Ready, Unknown} {
		if state, _ := s.State("example"); state != want {
			t.Errorf("a removed agent is %s, not %s", state, want)
		}
		info, err := s.Sign(Request{Agent: "example", Method: "GET", Authority: "example.com"}, http.Header{})
		if ready := want == Ready; ready != (err == nil) || ready && info.KeyID != next.ID {
			t.Errorf("%s: %+v, %v", want, info, err)
		}
		if err := s.Reload(k.Config, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Prepare(k.Config, k.Agents, PublishConfig{}); err == nil || !strings.Contains(err.Error(), "publish.max_age") || s.ReloadFailures() != 2 {
		t.Error(err)
	}
}

// TestRotationUnderLoad signs while keys rotate and the signer reloads: every signature verifies with the key it names.
func TestRotationUnderLoad(t *testing.T) {
	k := testKeyring(t)
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	s, err := Open(k.Config, k.StateDir, k.Agents, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	made := map[string]Capture{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h := http.Header{}
				info, err := s.Sign(Request{Agent: "example", Method: "GET", Authority: "example.com", Path: "/"}, h)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				made[info.KeyID] = captureOf("https://example.com/", h)
				mu.Unlock()
			}
		})
	}
	var ring []key
	for range 6 {
		if _, err := k.New(""); err != nil {
			t.Error(err)
		}
		active, _, err := k.Rotate("", "", true)
		if err != nil {
			t.Error(err)
		}
		if err := s.Reload(k.Config, k.Agents); err != nil {
			t.Error(err)
		}
		for { // until the new key has signed
			mu.Lock()
			_, seen := made[active.ID]
			mu.Unlock()
			if seen || t.Failed() {
				break
			}
		}
	}
	close(stop)
	wg.Wait()
	keys, err := loadFolder(k.Config, keyFolder(k.StateDir, "example"))
	if err != nil {
		t.Fatal(err)
	}
	ring = keys.published
	v := Verifier{Keys: setOf(t, ring...), Skew: DefaultSkew, MaxLifetime: DefaultMaxLifetime}
	for id, c := range made {
		if r := v.Verify(c); r.Outcome != Verified || r.KeyID != id {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if len(made) < 6 {
		t.Errorf("%d keys signed", len(made))
	}
}

// captureOf is a GET request as its receiver would see it.
func captureOf(url string, h http.Header) Capture {
	c := Capture{Method: "GET", Target: url}
	u, _ := parseAgentURL(url)
	c.Fields = append(c.Fields, [2]string{"Host", u.Host})
	for name, values := range h {
		for _, v := range values {
			c.Fields = append(c.Fields, [2]string{name, v})
		}
	}
	return c
}

func TestPublishConfigValidate(t *testing.T) {
	for key, change := range map[string]func(*PublishConfig){
		"":               func(*PublishConfig) {},
		"authority":      func(p *PublishConfig) { p.Authority = "https://bot.example.com" },
		"max_age":        func(p *PublishConfig) { p.MaxAge = 0 },
		"proof_lifetime": func(p *PublishConfig) { p.ProofLifetime = 300 * time.Second },
	} {
		p := PublishDefaults()
		change(&p)
		err := p.Validate()
		var k interface{ Key() string }
		if (key == "") != (err == nil) || err != nil && (!errors.As(err, &k) || k.Key() != key) {
			t.Errorf("%q: %v", key, err)
		}
	}
	s, err := Open(Defaults(), t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetPublish(PublishConfig{}); err == nil || !strings.Contains(err.Error(), "publish.max_age") {
		t.Error(err)
	}
}
