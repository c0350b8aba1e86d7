package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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

// idle is a gate's folder and configuration with nothing running.
func idle(t *testing.T, c gateConfig) *gate {
	t.Helper()
	dir := t.TempDir()
	return &gate{bin: binary(t), dir: dir, file: c.write(t, dir), state: filepath.Join(dir, "state")}
}

// barrier is a place where children of `run` wait, reached past the gate: it counts who came and lets them go when told.
type barrier struct {
	url string
	mu  sync.Mutex
	n   int
	let chan struct{}
}

func newBarrier(t *testing.T) *barrier {
	t.Helper()
	b := &barrier{let: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.n++
		b.mu.Unlock()
		select {
		case <-b.let:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func (b *barrier) wait(t *testing.T, n int) {
	t.Helper()
	within(t, 30*time.Second, fmt.Sprintf("%d at the barrier", n), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.n >= n
	})
}

// line is the shell command that waits there.
func (b *barrier) line() string { return "curl -sS --noproxy '*' " + b.url + "/" }

// TestRunExitCodes: the child's own code passes; 126 and 127 as shells do; 125 when the gate failed.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	g := idle(t, gateConfig{})
	plainFile := filepath.Join(g.dir, "no-program")
	writeFile(t, plainFile, "x", 0o644)
	for _, c := range []struct {
		args []string
		code int
		err  string // regular expression
	}{
		{[]string{"run", "-q", "--", "true"}, 0, `^$`},
		{[]string{"run", "-q", "--", "sh", "-c", "exit 7"}, 7, `^$`},
		{[]string{"run", "-q", "--", "sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM), `^$`},
		{[]string{"run", "-q", "--", "sh", "-c", "kill -KILL $$"}, 128 + int(syscall.SIGKILL), `^$`},
		{[]string{"run", "--", "no-such-program-anywhere"}, 127, `^crawlgate: no-such-program-anywhere: command not found\n$`},
		{[]string{"run", "--", plainFile}, 126, `^crawlgate: \S+no-program: .*permission denied\n$`},
		{[]string{"run", "--proxy", "http://127.0.0.1:1", "--ca-file", g.dir + "/origins.pem", "--", "true"}, 125, `^crawlgate: no gate answers at http://127.0.0.1:1`},
		{[]string{"run", "--proxy", "http://127.0.0.1:1", "--", "true"}, 2, `^crawlgate: --proxy needs --ca-file`},
		{[]string{"run"}, 2, `^crawlgate: run: CMD is missing; usage: crawlgate run `},
		{[]string{"run", "--user-agent", "Other/1.0", "--", "true"}, 2, `^crawlgate: --user-agent: agent example is configured already with user_agent`},
	} {
		r := g.cli(t, c.args...)
		if r.code != c.code || !regexp.MustCompile(c.err).MatchString(r.err) || r.out != "" {
			t.Errorf("%v: %+v, want exit %d and %s", c.args, r, c.code, c.err)
		}
	}
	if _, err := os.Stat(filepath.Join(g.state, "control.sock")); err == nil {
		t.Error("a control socket was left")
	}
	// A state folder that cannot be made is the gate's failure or the configuration's, never the child's.
	if r := g.cli(t, "run", "--state-dir", plainFile, "--", "true"); r.code != 2 && r.code != 125 || !strings.Contains(r.err, plainFile) {
		t.Errorf("%+v", r)
	}
}

// TestRunSignals: signals go to the child, whose end is passed on.
func TestRunSignals(t *testing.T) {
	t.Parallel()
	g := idle(t, gateConfig{})
	b := newBarrier(t)
	p := startProcess(t, bareEnv(g.dir), g.bin, "--config", g.file, "run", "--", "sh", "-c", "trap 'echo caught; exit 9' TERM; "+b.line()+" & wait")
	b.wait(t, 1)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t, 15*time.Second); code != 9 || p.out.String() != "caught\n" {
		t.Errorf("exit %d, %q %q", code, p.out, p.err)
	}
	close(b.let)
}

// TestRunVariables: every variable that common clients read is set, and nothing slips past through NO_PROXY.
func TestRunVariables(t *testing.T) {
	t.Parallel()
	g := idle(t, gateConfig{})
	env := bareEnv(g.dir, "NO_PROXY=example.org", "http_proxy=http://127.0.0.1:9", "SSL_CERT_FILE=/nowhere", "MARK=kept")
	r := execute(t, env, g.bin, "--config", g.file, "run", "--", "env", "-0")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	vars := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimSuffix(r.out, "\x00"), "\x00") {
		name, v, _ := strings.Cut(kv, "=")
		if _, twice := vars[name]; twice {
			t.Errorf("%s is set twice", name)
		}
		vars[name] = v
	}
	proxy := vars["CRAWLGATE_PROXY"]
	if !regexp.MustCompile(`^http://127\.0\.0\.1:\d+$`).MatchString(proxy) {
		t.Errorf("CRAWLGATE_PROXY=%s", proxy)
	}
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		if vars[name] != proxy {
			t.Errorf("%s=%s, not %s", name, vars[name], proxy)
		}
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if v, ok := vars[name]; !ok || v != "" {
			t.Errorf("%s=%q %v", name, v, ok)
		}
	}
	ca := filepath.Join(g.state, "ca", "ca.pem")
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT"} {
		bundle, err := os.ReadFile(vars[name])
		if err != nil || !strings.Contains(string(bundle), string(pem)) || strings.Count(string(bundle), "BEGIN CERTIFICATE") < 2 {
			t.Errorf("%s=%s is not system roots and the CA: %v", name, vars[name], err)
		}
	}
	for name, want := range map[string]string{"NODE_EXTRA_CA_CERTS": ca, "CRAWLGATE_CA": ca, "NODE_USE_ENV_PROXY": "1", "CRAWLGATE_SPKI": spkiPin(t, ca), "MARK": "kept"} {
		if vars[name] != want {
			t.Errorf("%s=%s, not %s", name, vars[name], want)
		}
	}
	if _, err := exec.LookPath("keytool"); err == nil && !strings.Contains(vars["JAVA_TOOL_OPTIONS"], "-Dhttps.proxyPort=") {
		t.Errorf("JAVA_TOOL_OPTIONS=%s", vars["JAVA_TOOL_OPTIONS"])
	}
	want := "crawlgate: private gate on " + proxy + ", agent example, audit " + g.state + "/audit/crawlgate.jsonl\n" +
		"crawlgate: NO_PROXY=\"example.org\" is emptied for env, so that nothing slips past (--no-proxy keeps some)\n" +
		"crawlgate: 0 requests seen: env sent nothing through the gate\n" +
		"  the program does not read http_proxy and https_proxy, or asked nothing; crawlgate ca env --for TOOL prints a client's set-up\n"
	if r.err != want {
		t.Errorf("said %q, not %q", r.err, want)
	}
	if r := g.cli(t, "run", "-q", "--no-proxy", "intra.test", "--", "sh", "-c", "echo $NO_PROXY $no_proxy"); r.out != "intra.test intra.test\n" || r.code != 0 || r.err != "" {
		t.Errorf("%+v", r)
	}
	if r := g.cli(t, "run", "--", "node", "--version"); !strings.Contains(r.err, "node reads the proxy variables from version 24 on") {
		t.Errorf("%+v", r)
	}
}

// TestRunSummary: what went out, what did not and why, in words; curl needs nothing but the variables.
func TestRunSummary(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH2, func(o *origin) { o.robots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 4\n" }, "site.test")
	g := idle(t, gateConfig{origins: []*origin{o}, hosts: []string{"10.0.0.7 lan.test"}})
	script := fmt.Sprintf("curl -sS %s; curl -sS %s; curl -sS -o /dev/null %s; curl -sS -o /dev/null https://lan.test/; curl -sS -o /dev/null %s",
		o.url("/a"), o.url("/b"), o.url("/private/x"), o.url("/private/y"))
	r := g.cli(t, "run", "--job", "job42", "--", "sh", "-c", script)
	want := regexp.MustCompile(`^crawlgate: private gate on http://127\.0\.0\.1:\d+, agent example, audit \S+
crawlgate: 5 requests to 2 hosts: 2 sent, 3 refused
  robots-disallow +2 +site\.test \(line 2: Disallow: /private/\)
  address-denied +1 +lan\.test -> 10\.0\.0\.7 \(addr_private\)
  waited for turns  [1-9][0-9.]*m?s +site\.test is asked once per 4s \(crawl-delay\)
  each one: crawlgate why URL
$`)
	if r.code != 0 || r.out != "<title>page /a</title>\n<title>page /b</title>\n" || !want.MatchString(r.err) {
		t.Errorf("%+v", r)
	}
	for _, e := range g.waitEvents(t, 5) {
		if e.Job != "job42" || e.Profile != "crawl" {
			t.Errorf("%+v", e)
		}
	}
	apart(t, o.pages(), 4*time.Second)
	agentOnly(t, o.arrivals())
	// What was run can be asked about afterwards.
	if r := g.cli(t, "why", o.url("/private/x")); r.code != 0 || !strings.Contains(r.out, "robots-disallow") || !strings.Contains(r.out, "Disallow: /private/") {
		t.Errorf("%+v", r)
	}
	if r := g.cli(t, "jobs", "list"); r.code != 0 || !strings.Contains(r.out, "job42") {
		t.Errorf("%+v", r)
	}
	if r := g.cli(t, "check", o.url("/private/x")); r.code != 3 || !strings.Contains(r.out, "Disallow: /private/") {
		t.Errorf("%+v", r)
	}
}

// TestRunProfile: --profile and --job are said in the proxy's user name, which every client sends.
func TestRunProfile(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, plainHTTP, nil, "site.test")
	g := idle(t, gateConfig{origins: []*origin{o}, profiles: "[{name: crawl}, {name: quick, job: {required: true, max_pages: 1}}]"})
	line := "curl -sS -o /dev/null -w '%{http_code} ' " + o.url("/a") + " " + o.url("/b")
	for _, c := range []struct {
		args []string
		out  string
		jobs []string
	}{
		{[]string{"--profile", "quick", "--job", "j1"}, "200 403 ", []string{"ok", "job-exhausted"}},
		{[]string{"--profile", "quick"}, "403 403 ", []string{"job-required", "job-required"}},
	} {
		before := len(g.requests(t))
		r := g.cli(t, append(append([]string{"run"}, c.args...), "--", "sh", "-c", strings.ReplaceAll(line, " -o /dev/null", " -o /dev/null -o /dev/null"))...)
		if r.out != c.out || r.code != 0 {
			t.Errorf("%v: %+v", c.args, r)
		}
		for n, e := range g.waitEvents(t, before+2)[before:] {
			if e.Reason != c.jobs[n] {
				t.Errorf("%v: %+v", c.args, e)
			}
		}
	}
	// A profile or client that the gate does not have is said at once: it would refuse every request.
	for _, c := range []struct{ flag, err string }{
		{"--profile", "crawlgate: client default has no profile nobody\n"}, {"--client", "crawlgate: no client is named nobody\n"},
	} {
		if r := g.cli(t, "run", c.flag, "nobody", "--", "curl", "-sS", o.url("/c")); r.code != 2 || r.err != c.err || r.out != "" {
			t.Errorf("%s nobody: %+v", c.flag, r)
		}
	}
	if n := len(o.pages()); n != 1 {
		t.Errorf("%d pages arrived", n)
	}
}

// TestRunJoinsServe: beside a running gate the child is sent through that one: one keeper of turns, one log.
func TestRunJoinsServe(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, nil, "site.test")
	g := startGate(t, gateConfig{origins: []*origin{o}})
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() {
			if a := curl(t, g, o.url(fmt.Sprintf("/direct-%d", n))); a.status != 200 {
				t.Errorf("%+v", a)
			}
		})
		wg.Go(func() {
			r := g.cli(t, "run", "--", "curl", "-sS", o.url(fmt.Sprintf("/run-%d", n)))
			if r.code != 0 || r.out != fmt.Sprintf("<title>page /run-%d</title>\n", n) || !strings.HasPrefix(r.err, "crawlgate: gate on http://127.0.0.1:") ||
				!strings.Contains(r.err, "crawlgate: 1 request to 1 host: 1 sent, 0 refused\n") {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	apart(t, o.pages(), time.Second)
	if n := len(o.pages()); n != 4 {
		t.Errorf("%d pages arrived", n)
	}
	g.waitEvents(t, 4)
	if r := g.cli(t, "run", "--user-agent", "Other/1.0", "--", "true"); r.code != 125 && r.code != 2 {
		t.Errorf("a user agent that the running gate does not know: %+v", r)
	}
	if r := g.cli(t, "run", "--", "sh", "-c", "exit 5"); r.code != 5 || !strings.Contains(r.err, "0 requests seen: sh sent nothing") {
		t.Errorf("%+v", r)
	}
}

// TestRunUserAgent: without a configured agent, --user-agent names one; beside a gate that goes by another name it is 125.
func TestRunUserAgent(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, plainHTTP, nil, "site.test")
	g := idle(t, gateConfig{origins: []*origin{o}, agents: "[]"})
	r := g.cli(t, "run", "--user-agent", "MyBot/2.0 (+https://bot.example/)", "--", "curl", "-sS", o.url("/a"))
	if r.code != 0 || !strings.Contains(r.err, "1 sent") {
		t.Errorf("%+v", r)
	}
	if list := o.arrivals(); len(list) != 2 || list[1].Header.Get("User-Agent") != "MyBot/2.0 (+https://bot.example/)" {
		t.Errorf("%+v", list)
	}
	b := newBarrier(t)
	first := startProcess(t, bareEnv(g.dir), g.bin, "--config", g.file, "run", "--user-agent", "MyBot/2.0 (+https://bot.example/)", "--", "sh", "-c", b.line())
	b.wait(t, 1)
	if r := g.cli(t, "run", "--user-agent", "Other/1.0", "--", "true"); r.code != 125 || !strings.Contains(r.err, `knows no agent with the user agent "Other/1.0"`) {
		t.Errorf("%+v", r)
	}
	close(b.let)
	if code := first.exit(t, 15*time.Second); code != 0 {
		t.Errorf("exit %d: %s", code, first.err)
	}
}

// TestTwoRuns: two `run`s at once share one gate, which stays until both have ended.
func TestTwoRuns(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH2, nil, "site.test")
	g := idle(t, gateConfig{origins: []*origin{o}})
	start, end := newBarrier(t), newBarrier(t)
	script := func(name string) string {
		return start.line() + "; curl -sS " + o.url("/"+name+"-1") + " " + o.url("/"+name+"-2")
	}
	first := startProcess(t, bareEnv(g.dir), g.bin, "--config", g.file, "run", "--", "sh", "-c", script("first"))
	start.wait(t, 1)
	second := startProcess(t, bareEnv(g.dir), g.bin, "--config", g.file, "run", "--", "sh", "-c", script("second")+"; "+end.line()+"; curl -sS "+o.url("/second-3"))
	start.wait(t, 2)
	close(start.let)
	end.wait(t, 1)
	// The first child is done, but its gate is still in use.
	within(t, 20*time.Second, "the first child's output", func() bool { return strings.Contains(first.out.String(), "/first-2") })
	close(end.let)
	for _, p := range []*process{first, second} {
		if code := p.exit(t, 20*time.Second); code != 0 {
			t.Errorf("exit %d: %s", code, p.err)
		}
	}
	if !strings.Contains(first.err.String(), "private gate on") || !strings.Contains(second.err.String(), "crawlgate: gate on") {
		t.Errorf("first said %s\nsecond said %s", first.err, second.err)
	}
	if !strings.Contains(first.err.String(), "2 requests to 1 host: 2 sent") || !strings.Contains(second.err.String(), "3 requests to 1 host: 3 sent") {
		t.Errorf("first said %s\nsecond said %s", first.err, second.err)
	}
	apart(t, o.pages(), time.Second)
	if got := uris(o.arrivals()); len(got) != 6 || !slices.Contains(got, "GET /second-3") {
		t.Errorf("the site got %v", got)
	}
	g.waitEvents(t, 5)
	if r := g.cli(t, "audit", "verify"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}
