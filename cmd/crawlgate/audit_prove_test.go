package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"crawlgate/audit"
	"crawlgate/policy"

	"github.com/spf13/cobra"
)

// runProve runs one of the log's commands as the program would.
func runProve(t *testing.T, make func(*app) *cobra.Command, config string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
	root := newRootCmd(a)
	audit, _, err := root.Find([]string{"audit"})
	if err != nil {
		t.Fatal(err)
	}
	one := make(a)
	if !slices.ContainsFunc(audit.Commands(), func(c *cobra.Command) bool { return c.Name() == one.Name() }) {
		audit.AddCommand(one)
	}
	root.SetArgs(append([]string{"--config", config, "audit", one.Name()}, args...))
	root.SetOut(&out)
	root.SetErr(&errs)
	switch err := root.ExecuteContext(context.Background()).(type) {
	case nil:
	case *exitError:
		code = err.code
		if err.err != nil {
			printError(&errs, err.err)
		}
	default:
		code = exitUsage
		printError(&errs, err)
	}
	return out.String(), errs.String(), code
}

// fileServer answers for robots.txt with one body.
type fileServer string

func (f fileServer) Fetch(context.Context, policy.FetchRequest) (*policy.FetchResponse, error) {
	return &policy.FetchResponse{Status: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(f)))}, nil
}

// proofCase is a state folder with an archive, and a log of pages that were judged by it.
type proofCase struct {
	t           *testing.T
	dir, config string
	verdict     policy.Verdict // of the archived file
	log         *audit.Log
	hash        string
	at          time.Time
}

func newProofCase(t *testing.T, robots, profile string) *proofCase {
	t.Helper()
	c := &proofCase{t: t, dir: t.TempDir()}
	c.config = c.write("crawlgate.yaml", profile)
	c.hash = c.hashOf(c.config)
	archive, err := policy.OpenArchive(filepath.Join(c.dir, "state", "robots"), policy.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	p := policy.New(policy.Defaults(), fileServer(robots), archive, nil)
	u := &url.URL{Scheme: "https", Host: "www.example.com", Path: "/"}
	c.verdict = p.Check(t.Context(), policy.Query{URL: u, Agent: "example", Token: "ExampleBot", Profile: policy.ProfileDefaults(), Wait: time.Minute})
	if c.verdict.SHA256 == "" {
		t.Fatalf("%+v", c.verdict)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if c.log, err = audit.Open(audit.Defaults(), filepath.Join(c.dir, "state"), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.log.Close() })
	c.at = time.Now().Add(time.Second)
	return c
}

// write writes a configuration with one profile.
func (c *proofCase) write(name, profile string) string {
	file := filepath.Join(c.dir, name)
	writeFile(c.t, file, "state_dir: "+filepath.Join(c.dir, "state")+"\nagents: "+plainAgents+"\nprofiles: ["+profile+"]\n", 0o600)
	return file
}

func (c *proofCase) hashOf(file string) string {
	c.t.Helper()
	cfg, _, err := (&app{configFile: file}).loader(identityFlags{}, nil)()
	if err != nil {
		c.t.Fatal(err)
	}
	return cfg.Hash()
}

// page records a page, a second after the end of the one before.
func (c *proofCase) page(path string, set func(*audit.Event)) {
	c.t.Helper()
	u, err := url.Parse("https://www.example.com" + path)
	if err != nil {
		c.t.Fatal(err)
	}
	e := &audit.Event{
		Time: c.at, Method: "GET", Kind: "page", Client: audit.Client{Name: "a"}, Agent: "example", Profile: "crawl", Decision: audit.Forwarded, Reason: "ok", Status: 200,
		Sent: true, SentAt: c.at, DoneAt: c.at.Add(100 * time.Millisecond), PolicySHA256: c.hash, DelayOwedMS: 1000, DelaySource: "default", UserAgent: agentUA,
		Robots: audit.Robots{SHA256: c.verdict.SHA256, FetchedAt: c.verdict.FetchedAt, Status: 200, State: "fresh"}, Sig: audit.Sig{State: "disabled"},
	}
	e.SetURL(u)
	a := netip.MustParseAddr("198.51.101.7")
	e.SetUpstream(netip.AddrPortFrom(a, 443), []netip.Addr{a})
	c.at = c.at.Add(1100 * time.Millisecond)
	if set != nil {
		set(e)
	}
	if err := c.log.Record(c.t.Context(), e); err != nil {
		c.t.Fatal(err)
	}
}

// prove closes the log and gives what the command says.
func (c *proofCase) prove(want int, args ...string) *audit.Proof {
	c.t.Helper()
	if err := c.log.Close(); err != nil {
		c.t.Fatal(err)
	}
	out, errs, code := runProve(c.t, newAuditProveCmd, c.config, append([]string{"--json"}, args...)...)
	p := &audit.Proof{}
	if err := json.Unmarshal([]byte(out), p); err != nil || p.Schema != audit.ProofSchema {
		c.t.Fatalf("exit %d: %v\n%s%s", code, err, out, errs)
	}
	if code != want {
		c.t.Errorf("exit %d, want %d\n%s", code, want, out)
	}
	return p
}

// TestProveByTheRealRules: what the archived file says is judged by the gate's own matcher, for the profile's tokens, mode
// and signals.
func TestProveByTheRealRules(t *testing.T) {
	const two = "User-agent: *\nDisallow: /closed\nContent-Signal: ai-input=no\n\nUser-agent: ExampleBot\nDisallow: /private\nCrawl-delay: 1\n"
	const stop = "User-agent: *\nContent-Signal: ai-input=no\nAllow: /\n"
	for name, c := range map[string]struct {
		robots, profile, path string
		set                   func(*audit.Event)
		want                  string // check and reason of the one violation; "": none
	}{
		"allowed":               {two, "{name: crawl}", "/closed", nil, ""},
		"forbidden":             {two, "{name: crawl}", "/private/x", nil, "rules robots-disallow"},
		"signal":                {stop, "{name: crawl}", "/", nil, "rules robots-signal"},
		"signal not stopped on": {stop, "{name: crawl, robots: {stop_on: []}}", "/", nil, ""},
		"named":                 {two, "{name: crawl, robots: {mode: named}}", "/private", nil, "rules robots-disallow"},
		"named, not our group":  {"User-agent: *\nDisallow: /\n", "{name: crawl, robots: {mode: named}}", "/private", nil, ""},
		"crawl-delay":           {"User-agent: *\nCrawl-delay: 9\n", "{name: crawl}", "/", nil, "pace below_gap"},
		"gap":                   {two, "{name: crawl, pacing: {gap: 2s}}", "/", nil, "pace below_gap"},
		"private address":       {two, "{name: crawl}", "/", func(e *audit.Event) { e.Upstream.IP, e.Upstream.Resolved = "10.0.0.1", []string{"10.0.0.1"} }, "address special_use"},
		"user agent":            {two, "{name: crawl}", "/", func(e *audit.Event) { e.UserAgent = "curl/8" }, "identity user_agent"},
		"unknown key":           {two, "{name: crawl}", "/", func(e *audit.Event) { e.Sig = audit.Sig{State: "signed", Agent: "https://x.example"} }, "identity signature_agent"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newProofCase(t, c.robots, c.profile)
			if c.want != "pace below_gap" {
				k.page("/ok", nil)
			} else {
				k.page("/ok", func(e *audit.Event) { e.DelayOwedMS = 9000 })
				c.set = func(e *audit.Event) { e.DelayOwedMS = 9000 }
			}
			if c.want == "rules robots-signal" {
				k = newProofCase(t, c.robots, c.profile) // the signal forbids every page
			}
			k.page(c.path, c.set)
			want := exitFailed
			if c.want == "" {
				want = exitOK
			}
			p := k.prove(want)
			var got []string
			for check, a := range p.Checks {
				for _, f := range a.Findings {
					got = append(got, check+" "+f.Reason)
				}
			}
			if s := strings.Join(got, ","); s != c.want {
				t.Errorf("found %q, want %q", s, c.want)
			}
		})
	}
}

// TestProveConfigurations: events of another configuration can be proven only with that one.
func TestProveConfigurations(t *testing.T) {
	c := newProofCase(t, "User-agent: *\nDisallow: /q?token=a\n", "{name: crawl}")
	c.page("/a", nil)
	old := c.write("old.yaml", "{name: crawl, pacing: {gap: 500ms}}")
	c.page("/b", func(e *audit.Event) { e.PolicySHA256 = c.hashOf(old) })
	c.page("/q?token=secret", nil)
	c.page("/r?token=secret", nil)
	p := c.prove(exitFailed)
	if p.Sent != 4 || p.Proven != 2 || p.UnprovableBy[audit.UnprovenConfig] != 1 || p.UnprovableBy[audit.UnprovenQuery] != 1 || p.Violating != 0 {
		t.Errorf("%+v", p)
	}
	p = c.prove(exitOK, "--earlier", old, "--allow-unprovable", "1")
	if p.Proven != 3 || p.Unprovable != 1 {
		t.Errorf("%+v", p)
	}
	if p = c.prove(exitOK, "--until", "1h"); p.Sent != 0 || !p.OK {
		t.Errorf("%+v", p)
	}
}

func TestProveText(t *testing.T) {
	c := newProofCase(t, "User-agent: *\nDisallow: /no\n", "{name: crawl}")
	c.page("/a", nil)
	c.page("/no", nil)
	c.prove(exitFailed)
	out, errs, code := runProve(t, newAuditProveCmd, c.config)
	if code != exitFailed || errs != "" {
		t.Errorf("exit %d %q", code, errs)
	}
	for _, want := range []string{
		"requests 2   hosts 1   clients 1   refused 0 (0.0%)\n",
		"sent     2 = 1 proven + 0 exempt + 0 unprovable + 1 violating\n",
		"rules    1 broken in 2 requests\n  crawlgate.jsonl line 3  https://www.example.com/no  robots.txt forbids it in line 2 (Disallow: /no)  (robots-disallow, seq 3, request ",
		"closest 1s of 1s owed (www.example.com)\n",
		"configs  1 in force: ", "log      1 file, 5 events, chain whole, last event ", "NOT proven   1 violations, 0 requests that cannot be proven\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestProveUsage(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	writeFile(t, config, "state_dir: "+dir+"\n", 0o600)
	for _, args := range [][]string{{}, {"--since", "x"}, {"--until", "x"}, {"--head", "abc"}, {"--allow-unprovable", "-1"}, {"--findings", "-1"}, {"--archive", filepath.Join(dir, "none")}, {filepath.Join(dir, "none.jsonl")}, {"--earlier", filepath.Join(dir, "none.yaml")}} {
		if _, errs, code := runProve(t, newAuditProveCmd, config, args...); code != exitUsage || errs == "" {
			t.Errorf("%v: exit %d %q", args, code, errs)
		}
	}
	for _, args := range [][]string{{}, {"--host", ".x"}, {"--host", "a.test"}, {"--host", "a.test", "--width", "1"}, {"--host", "a.test", "--since", "x"}} {
		if _, errs, code := runProve(t, newAuditPlotCmd, config, args...); code != exitUsage || errs == "" {
			t.Errorf("plot %v: exit %d %q", args, code, errs)
		}
	}
}

func TestPlot(t *testing.T) {
	c := newProofCase(t, "User-agent: *\n", "{name: crawl}")
	c.page("/a", nil)
	c.page("/b<script>", func(e *audit.Event) { e.Status = 503 })
	c.page("/no", func(e *audit.Event) {
		e.Sent, e.SentAt, e.DoneAt, e.Status, e.Decision, e.Reason = false, time.Time{}, time.Time{}, 0, audit.Refused, "robots-disallow"
	})
	c.prove(exitOK)
	file := filepath.Join(c.dir, "turns.svg")
	out, errs, code := runProve(t, newAuditPlotCmd, c.config, "--host", "WWW.example.com.", "-o", file)
	svg, err := os.ReadFile(file)
	if code != exitOK || out+errs != "" || err != nil {
		t.Fatalf("exit %d %q %q %v", code, out, errs, err)
	}
	for _, want := range []string{"<svg ", "2 sent, 1 refused, smallest gap 1", "turns of www.example.com", "refused: robots-disallow"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
	if strings.Contains(string(svg), "<script") {
		t.Error("a URL is not escaped")
	}
	if out, _, code = runProve(t, newAuditPlotCmd, c.config, "--host", "www.example.com", filepath.Join(c.dir, "state", "audit")); code != exitOK || out != string(svg) {
		t.Errorf("exit %d, %d bytes", code, len(out))
	}
	if _, errs, code := runProve(t, newAuditPlotCmd, c.config, "--host", "other.example.com"); code != exitFailed || !strings.Contains(errs, "no request to other.example.com") {
		t.Errorf("exit %d %q", code, errs)
	}
}

// TestKeptPolicy: what is kept of a configuration has its hash, holds no secret, and is read back wherever it lies.
func TestKeptPolicy(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	secret := "sha256:" + strings.Repeat("ab", 32)
	for _, text := range []string{
		"", "agents: " + plainAgents + "\nclients: [{name: a, secret_hash: \"" + secret + "\", sites: [https://example.org/]}]\nredis: {url: \"redis://user:secret@127.0.0.1:6379/0\"}\n",
		"preset: unlob\n", "agents: " + plainAgents + "\nprofiles: [{name: crawl, robots: {stop_on: []}, pacing: {gap: 1500ms}}]\nlisten: 127.0.0.1:0\nopen: false\n",
	} {
		writeFile(t, file, "state_dir: "+dir+"\n"+text, 0o600)
		cfg, _, err := (&app{configFile: file}).loader(identityFlags{}, nil)()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := keepPolicy(cfg); err != nil {
				t.Fatal(err)
			}
		}
		kept := filepath.Join(policiesDir(dir), cfg.Hash()+".yaml")
		b, err := os.ReadFile(kept)
		if err != nil || bytes.Contains(b, []byte("secret@")) || bytes.Contains(b, []byte(secret)) {
			t.Errorf("%v\n%s", err, b)
		}
		back, err := readPolicy(kept)
		if err != nil || back.Hash() != cfg.Hash() {
			t.Errorf("%q: %v", text, err)
		}
		other := filepath.Join(filepath.Dir(kept), strings.Repeat("0", 64)+".yaml")
		writeFile(t, other, string(b), 0o600)
		if _, err := readPolicy(other); err == nil || !strings.Contains(err.Error(), "not that of its name") {
			t.Errorf("another name: %v", err)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
	}
}
