package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The identity that every test's gate has unless it says otherwise.
const (
	agentUA     = "ExampleBot/1.0 (+https://bot.example/about)"
	plainAgents = `[{name: example, product_token: ExampleBot, user_agent: "` + agentUA + `", purposes: [search, ai-input]}]`
)

// gateConfig is what a test's configuration file says. Empty fields are left to the defaults.
type gateConfig struct {
	agents   string
	profiles string
	clients  string
	egress   []string // further lines of the block
	hosts    []string // further lines as in /etc/hosts
	origins  []*origin
	ports    []int // further ports of loopback that may be reached
	more     string
	listen   string
	admin    string
	args     []string // of serve
	env      []string
	noWait   bool // the start is to fail
}

func (c gateConfig) write(t *testing.T, dir string) (file string) {
	t.Helper()
	var b strings.Builder
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	fmt.Fprintf(&b, "listen: %s\n", or(c.listen, "127.0.0.1:0"))
	fmt.Fprintf(&b, "admin: {listen: %q}\n", or(c.admin, "127.0.0.1:0"))
	fmt.Fprintf(&b, "state_dir: %s\n", filepath.Join(dir, "state"))
	fmt.Fprintf(&b, "agents: %s\n", or(c.agents, plainAgents))
	fmt.Fprintf(&b, "profiles: %s\n", or(c.profiles, "[{name: crawl, pacing: {gap: 1s}}]"))
	if c.clients != "" {
		fmt.Fprintf(&b, "clients: %s\n", c.clients)
	}
	hosts, ports := slices.Clone(c.hosts), slices.Clone(c.ports)
	for _, o := range c.origins {
		hosts = append(hosts, "127.0.0.1 "+strings.Join(o.hosts, " "))
		ports = append(ports, o.port)
	}
	fmt.Fprintf(&b, "egress:\n  root_ca_file: %s\n", rootFile(t, dir))
	fmt.Fprintf(&b, "  hosts: [%s]\n", quoted(hosts))
	if len(ports) > 0 {
		fmt.Fprintf(&b, "  allow_private: [{prefix: 127.0.0.1/32, ports: %s}]\n", strings.ReplaceAll(fmt.Sprint(ports), " ", ", "))
	}
	for _, line := range c.egress {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString(c.more)
	file = filepath.Join(dir, "crawlgate.yaml")
	writeFile(t, file, b.String(), 0o600)
	return file
}

func quoted(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}

// logBuffer keeps what a process prints.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process is a started program.
type process struct {
	cmd      *exec.Cmd
	out, err *logBuffer
	done     chan struct{}
}

func startProcess(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &logBuffer{}, err: &logBuffer{}, done: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		if !p.ended() {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if s := p.err.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic") {
			t.Errorf("%s: a fault of the program\n%s", filepath.Base(name), s)
		}
	})
	return p
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exit waits for the end and gives the exit code.
func (p *process) exit(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("still running after %v\n%s", limit, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// gate is a running `crawlgate serve`.
type gate struct {
	*process
	bin, dir, file, state string
	proxy, admin          string // URLs
	ca                    string // file
}

var announced = regexp.MustCompile(`(?m)^crawlgate: (proxy|admin|CA) +(\S+)`)

// startGate writes the configuration into a folder of its own and starts `serve`.
func startGate(t *testing.T, c gateConfig) *gate {
	t.Helper()
	return startGateIn(t, t.TempDir(), c)
}

func startGateIn(t *testing.T, dir string, c gateConfig) *gate {
	t.Helper()
	g := &gate{bin: binary(t), dir: dir, file: c.write(t, dir), state: filepath.Join(dir, "state")}
	g.serve(t, c)
	return g
}

func (g *gate) serve(t *testing.T, c gateConfig) {
	t.Helper()
	g.process = startProcess(t, bareEnv(g.dir, c.env...), g.bin, append([]string{"serve", "--config", g.file}, c.args...)...)
	p := g.process
	if c.noWait {
		return
	}
	t.Cleanup(func() {
		if p.ended() {
			return
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.exit(t, 20*time.Second); code != 0 {
			t.Errorf("serve ended with %d\n%s", code, p.err)
		}
		if t.Failed() {
			t.Logf("serve said:\n%s", p.err)
		}
	})
	within(t, 30*time.Second, "serve is up", func() bool {
		said := p.err.String()
		for _, m := range announced.FindAllStringSubmatch(said, -1) {
			switch m[1] {
			case "proxy":
				g.proxy = m[2]
			case "admin":
				g.admin = strings.TrimSuffix(m[2], "/")
			case "CA":
				g.ca = m[2]
			}
		}
		if p.ended() {
			t.Fatalf("serve ended\n%s", p.err)
		}
		return strings.Contains(said, "crawlgate: config ") && g.proxy != ""
	})
}

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

// cli runs a crawlgate command with the gate's configuration.
func (g *gate) cli(t *testing.T, args ...string) result {
	t.Helper()
	return execute(t, bareEnv(g.dir), g.bin, append([]string{"--config", g.file}, args...)...)
}

// execute runs a program to its end.
func execute(t *testing.T, env []string, name string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	if strings.Contains(errs.String(), "DATA RACE") {
		t.Errorf("%s %v: %s", name, args, errs.String())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// event is a line of the audit log as another program would read it.
type event struct {
	Type, ID, Agent, Profile, Job, Kind, Method, URL, Host, Scheme, Decision, Reason, Class string
	Port, Status, Answered                                                                  int
	Client                                                                                  struct{ IP, Name, Auth string }
	Intercepted, Sent                                                                       bool
	SentAt                                                                                  string `json:"sent_at"`
	TurnWaitMS                                                                              int64  `json:"turn_wait_ms"`
	UserAgent                                                                               string `json:"user_agent"`
	ClientUserAgent                                                                         string `json:"client_user_agent"`
	Rule                                                                                    struct {
		Line        int
		Text, Group string
	}
	Sig struct {
		State, KeyID string
		Stripped     int
	}
	Upstream struct{ IP string }
	BytesIn  int64 `json:"bytes_in"`
	// BytesStored came from the store, in place of the site.
	BytesStored  int64 `json:"bytes_stored"`
	Revalidation string
	Grant        string
	Entry        string
	Note         string
	// WouldDeny is the code that report-only mode would have refused with.
	WouldDeny string `json:"would_deny"`
}

// allEvents reads the log as it is now.
func (g *gate) allEvents(t *testing.T) []event {
	t.Helper()
	f, err := os.Open(filepath.Join(g.state, "audit", "crawlgate.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []event
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return out // a line that is being written does not count yet
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("audit line: %v: %s", err, line)
		}
		out = append(out, e)
	}
}

// requests are the events of requests and tunnels, but for the gate's own robots.txt fetches.
func (g *gate) requests(t *testing.T) []event {
	t.Helper()
	var out []event
	for _, e := range g.allEvents(t) {
		if (e.Type == "request" || e.Type == "tunnel") && e.Kind != "robots" {
			out = append(out, e)
		}
	}
	return out
}

// waitEvents waits until n requests are in the log and gives them; more than n is a failure.
func (g *gate) waitEvents(t *testing.T, n int) []event {
	t.Helper()
	var list []event
	within(t, 10*time.Second, fmt.Sprintf("%d events in the audit log", n), func() bool {
		list = g.requests(t)
		return len(list) >= n
	})
	if len(list) != n {
		t.Errorf("%d events in the audit log, want %d: %+v", len(list), n, list)
	}
	return list
}

// problem is the body of a refusal.
type problem struct {
	Type, Title, Detail, Reason, Class, URL, Rule, Agent string
	Status, Line                                         int
	RobotsURL                                            string `json:"robots_url"`
	RequestID                                            string `json:"request_id"`
	RetryAfter                                           int    `json:"retry_after_s"`
}

func readProblem(t *testing.T, body string) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("problem body: %v: %q", err, body)
	}
	return p
}
