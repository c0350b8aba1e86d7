package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

// promiseSecret is the secret of every client on a stage.
const promiseSecret = "cg_the-secret-of-a-client-on-a-stage"

// stage is where one promise is played: sites on loopback, a DNS server that knows their names, and the built program
// with an operator's preset and what the test lays over it.
type stage struct {
	t       *testing.T
	preset  string
	change  *mutation // laid over last; nil where the promise is to hold
	dir     string
	sites   []*origin
	names   map[string][]netip.Addr // further names of the DNS server
	base    map[string]any          // the configuration so far
	dns     *dnstest.Server
	g       *gate
	clients map[string]*http.Client
	wrong   []error
}

func newStage(t *testing.T, preset string, change *mutation) *stage {
	t.Helper()
	s := &stage{t: t, preset: preset, change: change, dir: t.TempDir(), names: map[string][]netip.Addr{}, clients: map[string]*http.Client{}}
	s.base = map[string]any{
		"preset": preset, "listen": "127.0.0.1:0", "admin": map[string]any{"listen": "127.0.0.1:0"}, "state_dir": filepath.Join(s.dir, "state"), "clients": []any{},
	}
	return s
}

// site starts a web site.
func (s *stage) site(kind, robots string, handle http.HandlerFunc, hosts ...string) *origin {
	s.t.Helper()
	o := newOrigin(s.t, kind, func(o *origin) {
		o.robots, o.handle = robots, handle
	}, hosts...)
	s.sites = append(s.sites, o)
	return o
}

// client adds a client. profiles are separated by commas; a site is a URL or a block in YAML.
func (s *stage) client(name, profiles string, sites ...string) {
	s.t.Helper()
	sum := sha256.Sum256([]byte(promiseSecret))
	c := map[string]any{"name": name, "secret_hash": "sha256:" + hex.EncodeToString(sum[:]), "profiles": strings.Split(profiles, ","),
		"grants": []any{"redirects", "files", "subresources"}}
	s.base["clients"] = append(s.base["clients"].([]any), withSites(s.t, c, sites))
}

// browserClient adds the client of whoever comes from this machine without credentials: Chromium takes none.
func (s *stage) browserClient(profile string, sites ...string) {
	s.t.Helper()
	c := map[string]any{"name": "browser", "sources": []any{"127.0.0.1/32"}, "profiles": []any{profile}, "grants": []any{"redirects", "files", "subresources"}}
	s.base["clients"] = append(s.base["clients"].([]any), withSites(s.t, c, sites))
}

func withSites(t *testing.T, c map[string]any, sites []string) map[string]any {
	t.Helper()
	if len(sites) == 0 {
		return c
	}
	var list []any
	for _, text := range sites {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list = append(list, v)
	}
	c["sites"] = list
	return c
}

// configure writes the file: the preset's name, where things are on this machine, overlay, the mutation.
func (s *stage) configure(overlay string) {
	s.t.Helper()
	if s.dns == nil {
		s.dns = dnstest.New(s.t, s.answer)
	}
	ports := []any{}
	for _, o := range s.sites {
		if s.change != nil && s.change.site != nil {
			s.change.site(o, o.hosts[0])
		}
		ports = append(ports, o.port)
	}
	s.base["egress"] = map[string]any{"root_ca_file": rootFile(s.t, s.dir), "dns": []any{s.dns.Addr},
		"allow_private": []any{map[string]any{"prefix": "127.0.0.0/8", "ports": ports}}}
	tree := s.base
	s.lay(tree, overlay)
	if s.change != nil {
		s.lay(tree, s.change.config)
	}
	text, err := json.MarshalIndent(tree, "", " ") // JSON is YAML
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.dir, "crawlgate.yaml")
	writeFile(s.t, file, string(text)+"\n", 0o600)
	s.g = &gate{bin: binary(s.t), dir: s.dir, file: file, state: filepath.Join(s.dir, "state")}
}

// lay merges a YAML text: blocks by key, list items by their name; $PORT1 is the first site's port, and so on.
func (s *stage) lay(tree map[string]any, text string) {
	s.t.Helper()
	for n, o := range s.sites {
		text = strings.ReplaceAll(text, fmt.Sprintf("$PORT%d", n+1), itoa(o.port))
	}
	var over map[string]any
	if err := yaml.Unmarshal([]byte(text), &over); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	for k, v := range over {
		tree[k] = overlaid(tree[k], v)
	}
}

func overlaid(old, over any) any {
	switch v := over.(type) {
	case map[string]any:
		m, ok := old.(map[string]any)
		if !ok {
			return v
		}
		out := map[string]any{}
		for k := range m {
			out[k] = m[k]
		}
		for k := range v {
			out[k] = overlaid(m[k], v[k])
		}
		return out
	case []any:
		list, ok := old.([]any)
		if !ok || len(v) == 0 {
			return v
		}
		out := append([]any{}, list...)
		for _, item := range v {
			m, named := item.(map[string]any)
			if !named || m["name"] == nil {
				return v // not a list of named things: replaced
			}
			found := false
			for n, have := range out {
				if h, ok := have.(map[string]any); ok && h["name"] == m["name"] {
					out[n], found = overlaid(h, m), true
				}
			}
			if !found {
				out = append(out, m)
			}
		}
		return out
	}
	return over
}

// start configures and starts the gate.
func (s *stage) start(overlay string) {
	s.t.Helper()
	s.configure(overlay)
	s.serve()
}

func (s *stage) serve() {
	s.t.Helper()
	s.clients = map[string]*http.Client{}
	s.g.serve(s.t, gateConfig{})
}

// stop ends the gate and keeps its state folder.
func (s *stage) stop() {
	s.t.Helper()
	if err := s.g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if code := s.g.exit(s.t, 30*time.Second); code != 0 {
		s.t.Fatalf("serve ended with %d\n%s", code, s.g.err)
	}
}

func (s *stage) answer(q dnstest.Question) dnstest.Reply {
	for _, o := range s.sites {
		for _, h := range o.hosts {
			if h == q.Name {
				return dnstest.Reply{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
			}
		}
	}
	if a, ok := s.names[q.Name]; ok {
		return dnstest.Reply{Addrs: a}
	}
	return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
}

// command runs a crawlgate command with the stage's configuration.
func (s *stage) command(args ...string) result { s.t.Helper(); return s.g.cli(s.t, args...) }

// allPorts lists the sites' ports and that of one more URL.
func (s *stage) allPorts(more string) string {
	u, err := url.Parse(more)
	if err != nil {
		s.t.Fatal(err)
	}
	list := []string{u.Port()}
	for _, o := range s.sites {
		list = append(list, itoa(o.port))
	}
	return strings.Join(list, ", ")
}

func dnsQuestion(name string) dnstest.Question {
	return dnstest.Question{Name: name, Type: dnsmessage.TypeA}
}
