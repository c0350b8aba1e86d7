package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeStart: what runs, where and under which names is said once; the files are the owner's alone.
func TestServeStart(t *testing.T) {
	t.Parallel()
	g, key := startSigned(t, gateConfig{})
	want := regexp.MustCompile(`^(\{.*\}\n)*crawlgate: proxy  http://127\.0\.0\.1:\d+
crawlgate: admin  http://127\.0\.0\.1:\d+/
crawlgate: CA     ` + regexp.QuoteMeta(g.state) + `/ca/ca\.pem \(sha256 [0-9a-f]{16}\)
crawlgate: config ` + regexp.QuoteMeta(g.file) + `, state ` + regexp.QuoteMeta(g.state) + `
crawlgate: agent  example, ` + regexp.QuoteMeta(agentUA) + `, signs requests
(\{.*\}\n)*$`)
	within(t, 5*time.Second, "the start is told", func() bool { return want.MatchString(g.err.String()) })
	if g.out.String() != "" || key.ID == "" {
		t.Errorf("stdout: %q", g.out)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, "ca": 0o700, "ca/ca.key": 0o600, "control.sock": 0o600, "state.db": 0o600, "admin.token": 0o600, "audit/crawlgate.jsonl": 0o600} {
		st, err := os.Stat(filepath.Join(g.state, name))
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want %o", name, st.Mode(), err, mode)
		}
	}
	if r := g.cli(t, "serve", "--probe"); r.code != 0 || r.out+r.err != "" {
		t.Errorf("probe: %+v", r)
	}
	// A second one on the same folder says who holds it, and the first goes on.
	r := g.cli(t, "serve")
	if r.code != 2 || !strings.Contains(r.err, fmt.Sprintf("crawlgate: state_dir %s is held by a running crawlgate (process %d, proxy %s)", g.state, g.cmd.Process.Pid, g.proxy)) {
		t.Errorf("%+v", r)
	}
	if r := g.cli(t, "serve", "--probe"); r.code != 0 {
		t.Errorf("probe after a second start: %+v", r)
	}
	if err := g.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := g.exit(t, 15*time.Second); code != 0 {
		t.Errorf("SIGINT: exit %d: %s", code, g.err)
	}
	if r := g.cli(t, "serve", "--probe"); r.code != 1 || !strings.Contains(r.err, "crawlgate: no gate runs on "+g.state) {
		t.Errorf("probe of nothing: %+v", r)
	}
	var types []string
	for _, e := range g.allEvents(t) {
		types = append(types, e.Type)
	}
	if s := strings.Join(types, " "); !strings.HasPrefix(s, "start") || !strings.HasSuffix(s, "stop checkpoint") {
		t.Errorf("the log holds %s", s)
	}
}

// badStart runs `serve` with a configuration that has a fault: exit 2, nothing started, and one message.
func badStart(t *testing.T, g *gate, want string) {
	t.Helper()
	r := g.cli(t, "serve")
	if r.code != 2 || r.out != "" || strings.Contains(r.err, "crawlgate: proxy ") {
		t.Errorf("%+v", r)
		return
	}
	var said []string
	for line := range strings.Lines(r.err) {
		if !strings.HasPrefix(line, "{") { // the log
			said = append(said, line)
		}
	}
	text := strings.Join(said, "")
	if !regexp.MustCompile(`(?s)^` + want + `\n$`).MatchString(text) {
		t.Errorf("said\n%s not\n%s", text, want)
	}
	if strings.Count(text, "crawlgate: ") != 1 {
		t.Errorf("more than one message:\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(g.state, "control.sock")); err == nil {
		t.Error("a control socket was left")
	}
}

// TestServeBadConfig: each fault is named with file, line and key, all of them at once, and nothing starts.
func TestServeBadConfig(t *testing.T) {
	t.Parallel()
	binary(t)
	for name, c := range map[string]struct{ yaml, want string }{
		"unknown key":        {"lisen: 127.0.0.1:0\n", `FILE: 1 problem\n  line 1  lisen is not a key; did you mean listen\?`},
		"unknown inner key":  {"profiles:\n  - name: crawl\n    pacing: {gapp: 1s}\n", `FILE: 1 problem\n  line 3  profiles\[0\]\.pacing\.gapp is not a key; did you mean .*gap\?`},
		"wrong type":         {"open: maybe\n", `FILE: 1 problem\n  line 1  open: .*`},
		"list for a block":   {"agents: example\n", `FILE: 1 problem\n  line 1  agents must be a list.*`},
		"number for a list":  {"egress:\n  ports: 443\n", `FILE: 1 problem\n  line 2  egress\.ports must be a list.*`},
		"duration":           {"agents: AGENT\nprofiles:\n  - name: crawl\n    pacing: {gap: 1}\n", `FILE: 1 problem\n  line 4  profiles\[0\]\.pacing\.gap: "1" has no unit; write 1s`},
		"size":               {"agents: AGENT\nprofiles:\n  - {name: crawl, limits: {response_body: 5 parsecs}}\n", `FILE: 1 problem\n  line 3  profiles\[0\]\.limits\.response_body: .*`},
		"duplicate agent":    {"agents:\n  - {name: a, product_token: ABot, user_agent: ABot/1.0}\n  - {name: a, product_token: BBot, user_agent: BBot/1.0}\nprofiles:\n  - {name: crawl, agent: a}\n", `FILE: 1 problem\n  line 3  agents\[1\]\.name: .*`},
		"duplicate client":   {"agents: AGENT\nclients:\n  - {name: c, secret_hash: HASH}\n  - {name: c, secret_hash: HASH}\n", `FILE: 1 problem\n  line 4  clients\[1\]\.name: .*`},
		"duplicate key":      {"open: true\nopen: false\n", `FILE: 1 problem\n  line 2  open .*`},
		"token not in agent": {"agents:\n  - {name: a, product_token: ABot, user_agent: Mozilla/5.0}\n", `FILE: 1 problem\n  line 2  agents\[0\]\.user_agent .*"ABot".*`},
		"open to the world":  {"listen: 0.0.0.0:0\nagents: AGENT\n", `FILE: 1 problem\n  line 1  listen: .*clients.*`},
		"admin to the world": {"admin:\n  listen: 0.0.0.0:0\n", `FILE: 1 problem\n  line 2  admin\.listen: .*token_file.*`},
		"no store":           {"revalidate: {enabled: true, max_size: 0}\n", `FILE: 1 problem\n  line 1  revalidate\.max_size: .*`},
		"no profile":         {"agents: AGENT\nclients:\n  - {name: c, secret_hash: HASH, profiles: [nope]}\n", `FILE: 1 problem\n  line 3  clients\[0\]\.profiles\[0\]: .*nope.*`},
		"not YAML":           {"listen: [\n", `FILE: 1 problem\n  line \d+  .*`},
		"three at once":      {"open: maybe\nlisen: x\nagents: AGENT\nprofiles:\n  - {name: crawl, pacing: {gap: 1, max_wait: fast}}\n", `FILE: 4 problems\n  line 1  open: .*\n  line 2  lisen .*\n  line 5  profiles\[0\]\.pacing\.gap: .*\n  line 5  profiles\[0\]\.pacing\.max_wait: .*`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			g := &gate{bin: binary(t), dir: dir, file: filepath.Join(dir, "crawlgate.yaml"), state: filepath.Join(dir, "state")}
			yaml := strings.NewReplacer("AGENT", plainAgents, "HASH", "sha256:"+strings.Repeat("0", 64)).Replace(c.yaml)
			writeFile(t, g.file, yaml, 0o600)
			badStart(t, g, "crawlgate: "+strings.ReplaceAll(c.want, "FILE", regexp.QuoteMeta(g.file)))
			if _, err := os.Stat(g.state); err == nil {
				t.Error("a state folder was made")
			}
			// The other commands say the same.
			if r := g.cli(t, "config", "check"); r.code != 2 || !strings.Contains(r.out+r.err, "problem") {
				t.Errorf("config check: %+v", r)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		t.Parallel()
		g := &gate{bin: binary(t), dir: t.TempDir(), file: "/no/such/crawlgate.yaml"}
		badStart(t, g, `crawlgate: /no/such/crawlgate.yaml: .*`)
	})
}

// keyPEM gives a private key in PKCS#8.
func keyPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// TestServeBadFiles: a key or certificate file that is broken in any way stops the start, and is named.
func TestServeBadFiles(t *testing.T) {
	t.Parallel()
	// A CA of the program's own making, to break in different ways.
	whole := idle(t, gateConfig{})
	if r := whole.cli(t, "ca", "path"); r.code != 0 || r.out != filepath.Join(whole.state, "ca", "ca.pem")+"\n" {
		t.Fatalf("%+v", r)
	}
	read := func(file string) string {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	cert, key := read(filepath.Join(whole.state, "ca", "ca.pem")), read(filepath.Join(whole.state, "ca", "ca.key"))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := rootCA().leaf(t, "leaf.test")
	leafPEM := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	for name, c := range map[string]struct {
		cert, key string
		mode      os.FileMode
		want      string
	}{
		"mode":            {cert, key, 0o644, `intercept\.ca_key_file: KEY has mode 0644.*`},
		"type of the key": {cert, keyPEM(t, rsaKey), 0o600, `intercept\.ca_key_file: KEY: .*`},
		"another key":     {cert, keyPEM(t, other), 0o600, `intercept\.ca_cert_file: CERT: the certificate does not belong to the key`},
		"truncated key":   {cert, key[:len(key)/2], 0o600, `intercept\.ca_key_file: KEY holds no PEM key \(truncated\?\)`},
		"empty key":       {cert, "", 0o600, `intercept\.ca_key_file: KEY holds no PEM key \(truncated\?\)`},
		"truncated cert":  {cert[:len(cert)/2], key, 0o600, `intercept\.ca_cert_file: CERT.*`},
		"garbage cert":    {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", key, 0o600, `intercept\.ca_cert_file: CERT.*`},
		"not a CA":        {leafPEM, keyPEM(t, leaf.PrivateKey), 0o600, `intercept\.ca_cert_file: CERT.*`},
		"no key":          {cert, "none", 0, `interception CA: .*KEY.* \(but CERT exists; .*|intercept\.ca_key_file: .*KEY.*`},
	} {
		for _, configured := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, configured %v", name, configured), func(t *testing.T) {
				t.Parallel()
				g := idle(t, gateConfig{})
				dir := filepath.Join(g.state, "ca")
				if configured {
					dir = filepath.Join(g.dir, "own")
					writeFile(t, g.file, read(g.file)+fmt.Sprintf("intercept: {ca_cert_file: \"%s/ca.pem\", ca_key_file: \"%s/ca.key\"}\n", dir, dir), 0o600)
				}
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				writeFile(t, filepath.Join(dir, "ca.pem"), c.cert, 0o644)
				if c.mode != 0 {
					writeFile(t, filepath.Join(dir, "ca.key"), c.key, c.mode)
				}
				badStart(t, g, "crawlgate: (?:"+strings.NewReplacer("KEY", regexp.QuoteMeta(dir+"/ca.key"), "CERT", regexp.QuoteMeta(dir+"/ca.pem")).Replace(c.want)+")")
			})
		}
	}
	for name, c := range map[string]struct {
		more, file, text string
		mode             os.FileMode
		want             string
	}{
		"roots missing":    {"", "", "", 0, `egress\.root_ca_file: .*ROOTS.*`},
		"roots garbage":    {"", "ROOTS", "no pem", 0o600, `.*egress\.root_ca_file: .*`},
		"signature mode":   {"KEYED", "signer.pem", key, 0o644, `.*signer\.pem.*0644.*`},
		"signature type":   {"KEYED", "signer.pem", key, 0o600, `.*signer\.pem.*`},
		"signature cut":    {"KEYED", "signer.pem", "-----BEGIN PRIVATE KEY-----\nMC4", 0o600, `.*signer\.pem.*`},
		"signature absent": {"KEYED", "", "", 0, `.*signer\.pem.*`},
		"token mode":       {"admin", "state/admin.token", strings.Repeat("x", 40) + "\n", 0o644, `admin\.token_file: \S+admin\.token has mode 0644.*`},
		"token short":      {"admin", "state/admin.token", "x\n", 0o600, `admin\.token_file: \S+admin\.token holds fewer than 16 characters`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := gateConfig{}
			if c.more == "KEYED" {
				conf.agents = "[{name: example, product_token: ExampleBot, user_agent: ExampleBot/1.0, signature_agent: \"https://bot.example\", key_file: DIR/signer.pem}]"
			}
			dir := t.TempDir()
			conf.agents = strings.ReplaceAll(conf.agents, "DIR", dir)
			g := &gate{bin: binary(t), dir: dir, file: conf.write(t, dir), state: filepath.Join(dir, "state")}
			roots := filepath.Join(dir, "origins.pem")
			if c.more == "" {
				if err := os.Remove(roots); err != nil {
					t.Fatal(err)
				}
			}
			if c.file != "" {
				file := filepath.Join(dir, strings.ReplaceAll(c.file, "ROOTS", "origins.pem"))
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				writeFile(t, file, c.text, c.mode)
			}
			badStart(t, g, "crawlgate: (?:"+strings.ReplaceAll(c.want, "ROOTS", regexp.QuoteMeta(roots))+")")
		})
	}
	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addr := l.Addr().String()
		badStart(t, idle(t, gateConfig{listen: addr}), `crawlgate: listen: `+addr+` is in use by another program`)
		badStart(t, idle(t, gateConfig{admin: addr}), `crawlgate: admin\.listen: `+addr+` is in use by another program`)
	})
}

// TestReload: a good change is in force without a break, a bad one leaves everything as it was and says why, whether a
// signal or the file brought it.
func TestReload(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	o := newOrigin(t, tlsH2, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/stream" {
				fmt.Fprint(w, "ok")
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
			fmt.Fprint(w, "data: 2\n\n")
		}
	}, "site.test")
	conf := gateConfig{origins: []*origin{o}, profiles: "[{name: crawl, pacing: {gap: 100ms}}]"}
	g := startGate(t, conf)
	first, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) string {
		return strings.ReplaceAll(string(first), "ExampleBot/1.0 (", name+"/ExampleBot (")
	}
	ok := func() bool { return g.metric(t, "crawlgate_config_last_reload_success") == 1 }
	fetches := 0
	sentAs := func(name string) {
		t.Helper()
		fetches++
		if a := curl(t, g, o.url(fmt.Sprintf("/%d", fetches))); a.status != 200 {
			t.Errorf("%+v", a)
		}
		list := o.pages()
		if ua := list[len(list)-1].Header.Get("User-Agent"); !strings.HasPrefix(ua, name+"/") {
			t.Errorf("sent as %s, not %s", ua, name)
		}
	}
	configs := func() (n int) {
		for _, e := range g.allEvents(t) {
			if e.Type == "config" {
				n++
			}
		}
		return n
	}
	sentAs("ExampleBot")

	// A stream that is under way goes on over every reload.
	stream, err := goClient(t, g.proxy, g.ca, true).Get(o.url("/stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewReader(stream.Body)
	if s, err := lines.ReadString('\n'); s != "data: 1\n" {
		t.Fatalf("%q %v", s, err)
	}

	// The file changes in one step, as editors and Kubernetes do it.
	replace := func(text string) {
		t.Helper()
		writeFile(t, g.file+".new", text, 0o600)
		if err := os.Rename(g.file+".new", g.file); err != nil {
			t.Fatal(err)
		}
	}
	began := configs()
	replace(named("Second"))
	within(t, 10*time.Second, "the changed file is in force", func() bool { return configs() > began })
	// (the stream holds the host's turn)
	close(release)
	rest, err := io.ReadAll(lines)
	if err != nil || string(rest) != "\ndata: 2\n\n" {
		t.Errorf("the stream ended with %q %v", rest, err)
	}
	sentAs("Second")
	if !ok() {
		t.Error("the metric says the reload failed")
	}

	// A fault keeps the old configuration, and says file, line and key.
	replace(strings.ReplaceAll(named("Third"), "gap: 100ms", "gap: 100"))
	within(t, 10*time.Second, "the bad file is told", func() bool { return !ok() })
	fault := regexp.MustCompile(`configuration not reloaded, the old one stays.*line \d+ +profiles\[0\]\.pacing\.gap: \\"100\\" has no unit`)
	within(t, 5*time.Second, "file, line and key are told", func() bool { return fault.MatchString(g.err.String()) })
	sentAs("Second")
	resp, err := direct.Get(g.admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(body), "the last reload was refused") {
		t.Errorf("readyz: %d %s", resp.StatusCode, body)
	}

	// What needs a restart is refused and named.
	before := strings.Count(g.err.String(), "configuration not reloaded")
	replace(strings.Replace(named("Fourth"), "listen: 127.0.0.1:0", "listen: 127.0.0.1:1", 1))
	within(t, 10*time.Second, "the refusal is told", func() bool { return strings.Count(g.err.String(), "configuration not reloaded") > before })
	if !strings.Contains(g.err.String(), "listen changed, which needs a restart") {
		t.Errorf("said %s", g.err)
	}
	sentAs("Second")

	// SIGHUP brings a good one.
	replace(named("Fifth"))
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the good file is in force", ok)
	sentAs("Fifth")
	if g.ended() {
		t.Error("the gate ended")
	}
}

// streamOrigin sends events until it is told to stop: as an event stream, which holds no turn once it has begun, or, at
// /held, as a long file that does.
func streamOrigin(t *testing.T, kind, host string, stop <-chan struct{}) *origin {
	t.Helper()
	return newOrigin(t, kind, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if r.URL.Path == "/held" {
				w.Header().Set("Content-Type", "text/plain")
			}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				fmt.Fprintf(w, "data: %d\n\n", n)
				w.(http.Flusher).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				case <-stop:
					fmt.Fprint(w, "data: last\n\n")
					return
				}
			}
		}
	}, host)
}

// TestDrain: after SIGTERM streams end whole, nothing new is taken, what waits for a turn is told, and the exit is 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	a, b := streamOrigin(t, tlsH1, "a.test", stop), streamOrigin(t, tlsH2, "b.test", stop)
	g := startGate(t, gateConfig{origins: []*origin{a, b}})
	type ended struct {
		text string
		err  error
	}
	streams := make(chan ended, 2)
	for _, c := range []struct {
		o    *origin
		path string
		h2   bool
	}{{a, "/held", false}, {b, "/events", true}} {
		resp, err := goClient(t, g.proxy, g.ca, c.h2).Get(c.o.url(c.path))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		if s, err := r.ReadString('\n'); s != "data: 0\n" {
			t.Fatalf("%q %v", s, err)
		}
		go func() {
			rest, err := io.ReadAll(r)
			streams <- ended{string(rest), err}
		}()
	}
	waiting := make(chan answer, 1)
	go func() { waiting <- curl(t, g, a.url("/waits")) }()
	within(t, 20*time.Second, "one waits for its turn", func() bool { return g.metric(t, "crawlgate_turns_waiting") == 1 })
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "it drains", func() bool { return strings.Contains(g.err.String(), `"draining"`) })
	// Nothing new: the port is closed, or says draining.
	within(t, 10*time.Second, "a new CONNECT is refused", func() bool {
		c, err := openTunnel(g.proxy, fmt.Sprintf("a.test:%d", a.port))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case w := <-waiting:
		if w.status != 503 || w.header.Get("Crawlgate-Reason") != "draining" || w.header.Get("Retry-After") == "" {
			t.Errorf("the one that waited got %+v", w)
		}
	case <-time.After(10 * time.Second):
		t.Error("the one that waits for a turn is not told")
	}
	if g.ended() {
		t.Fatal("it ended before its streams")
	}
	close(stop)
	for range 2 {
		e := <-streams
		if e.err != nil || !strings.HasSuffix(e.text, "data: last\n\n") {
			t.Errorf("a stream was cut: %v %q", e.err, e.text)
		}
	}
	if code := g.exit(t, 15*time.Second); code != 0 {
		t.Errorf("exit %d: %s", code, g.err)
	}
	for _, e := range g.waitEvents(t, 3) {
		switch {
		case !strings.Contains(e.URL, "/waits"):
			if e.Decision != "forwarded" || e.Reason != "ok" {
				t.Errorf("%+v", e)
			}
		case e.Reason != "draining" || e.Sent:
			t.Errorf("%+v", e)
		}
	}
	list := g.allEvents(t)
	if last := list[len(list)-2:]; last[0].Type != "stop" || last[1].Type != "checkpoint" {
		t.Errorf("the log ends with %+v", last)
	}
	if r := g.cli(t, "audit", "verify"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if len(a.pages()) != 1 {
		t.Errorf("the site got %v", uris(a.pages()))
	}
}

// TestSecondSignal: it ends at once, whatever is under way.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	o := streamOrigin(t, tlsH1, "a.test", nil)
	g := startGate(t, gateConfig{origins: []*origin{o}})
	resp, err := goClient(t, g.proxy, g.ca, false).Get(o.url("/events"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "it drains", func() bool { return strings.Contains(g.err.String(), `"draining"`) })
	if g.ended() {
		t.Fatal("it did not wait for the stream")
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.exit(t, 5*time.Second); code != 1 || !strings.Contains(g.err.String(), "second signal, ending now") {
		t.Errorf("exit %d: %s", code, g.err)
	}
	// The state is whole: the next one starts and the log verifies.
	if r := g.cli(t, "audit", "verify"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// TestServeEarlySignals: whoever reads that it runs may signal at once: a reload does not kill it, and an end is a drain.
func TestServeEarlySignals(t *testing.T) {
	t.Parallel()
	for range 5 {
		dir := t.TempDir()
		cmd := exec.Command(binary(t), "serve", "--config", gateConfig{}.write(t, dir))
		cmd.Env = bareEnv(dir)
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewScanner(out)
		for said.Scan() {
			if strings.HasPrefix(said.Text(), "crawlgate: proxy ") {
				_ = cmd.Process.Signal(syscall.SIGHUP)
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended: %v", err)
		}
	}
}
