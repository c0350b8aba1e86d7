package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"crawlgate/audit"
)

// headsBox is another machine that keeps signed heads: over HTTPS with a password, and over syslog.
type headsBox struct {
	*httptest.Server
	syslog net.Listener
	ca     string // file

	mu     sync.Mutex
	down   bool
	posted []string // bodies
	lines  []string // of syslog, as a server writes them into its file
}

func newHeadsBox(t *testing.T) *headsBox {
	t.Helper()
	b := &headsBox{}
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method != http.MethodPost || r.URL.Path != "/heads" || user != "gate" || password != "hunter2" || r.URL.Query().Get("key") != "hunter3":
			w.WriteHeader(http.StatusForbidden)
		default:
			b.posted = append(b.posted, string(body))
		}
	}))
	t.Cleanup(b.Close)
	b.ca = filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, b.ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})), 0o600)
	var err error
	if b.syslog, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.syslog.Close() })
	go func() {
		for {
			conn, err := b.syslog.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			size, _ := r.ReadString(' ')
			n, _ := strconv.Atoi(strings.TrimSpace(size))
			msg := make([]byte, n)
			if _, err := io.ReadFull(r, msg); err == nil {
				_, text, _ := strings.Cut(string(msg), " checkpoint - ")
				b.mu.Lock()
				b.lines = append(b.lines, "Nov 30 10:00:00 gate crawlgate["+fmt.Sprint(len(b.lines))+"]: "+text)
				b.mu.Unlock()
			}
			conn.Close()
		}
	}()
	return b
}

// have counts what came by each way.
func (b *headsBox) have() (posted, lines int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.posted), len(b.lines)
}

func (b *headsBox) set(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// keep writes what came as that machine keeps it.
func (b *headsBox) keep(t *testing.T, dir string) (posted, lines string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	posted, lines = filepath.Join(dir, "posted.jsonl"), filepath.Join(dir, "syslog")
	writeFile(t, posted, strings.Join(b.posted, ""), 0o600)
	writeFile(t, lines, "Nov 30 09:59:59 gate kernel: something else\n"+strings.Join(b.lines, "\n")+"\n", 0o600)
	return posted, lines
}

// TestHeadsKeptElsewhere: signed heads reach a file, a URL and a syslog server, are owed over a restart, and show on
// another day that the log was cut or written anew. The credentials show nowhere.
func TestHeadsKeptElsewhere(t *testing.T) {
	t.Parallel()
	box := newHeadsBox(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "heads.jsonl")
	o := newOrigin(t, plainHTTP, nil, "site.test")
	c := gateConfig{origins: []*origin{o}, profiles: "[{name: crawl, pacing: {gap: 10ms}}]"}
	c.more = fmt.Sprintf("audit:\n  checkpoint_every: 5\n  checkpoint_ca_file: %s\n  checkpoint_to: [%q, %q, %q]\n", box.ca,
		strings.Replace(box.URL, "https://", "https://gate:hunter2@", 1)+"/heads?key=hunter3", "syslog+tcp://"+box.syslog.Addr().String(), file)
	g := startGateIn(t, dir, c)
	for i := range 8 {
		if a := curl(t, g, o.url(fmt.Sprintf("/%d", i))); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	within(t, 20*time.Second, "two heads are kept everywhere", func() bool {
		posted, lines := box.have()
		b, _ := os.ReadFile(file)
		return posted >= 2 && lines >= 2 && bytes.Count(b, []byte("\n")) >= 2
	})
	label := "https://" + box.Listener.Addr().String()
	within(t, 10*time.Second, "the page tells", func() bool {
		_, _, page := ask(t, "GET", g.admin+"/", "")
		return strings.Contains(page, `<bdi>`+label+`</bdi>`) && strings.Count(page, `<span class="pill good">delivered</span>`) == 3 && strings.Contains(page, `<span class="pill good">whole</span>`)
	})
	said := g.err.String()
	for _, path := range []string{"/", "/api/status", "/metrics", "/readyz"} {
		_, _, body := ask(t, "GET", g.admin+path, "")
		said += body
	}
	for _, want := range []string{`crawlgate_audit_heads_delivered_total{kind="url"} `, `crawlgate_audit_sinks_failing{kind="syslog"} 0`, `"target": "` + label + `"`, "crawlgate_audit_chain_whole 1"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s is nowhere", want)
		}
	}

	// The machine goes down: requests go on, and it is told.
	box.set(true)
	for i := range 8 {
		if a := curl(t, g, o.url(fmt.Sprintf("/more/%d", i))); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	within(t, 20*time.Second, "the failure is told", func() bool {
		_, _, page := ask(t, "GET", g.admin+"/", "")
		_, _, ready := ask(t, "GET", g.admin+"/readyz", "")
		_, _, m := ask(t, "GET", g.admin+"/metrics", "")
		said += page
		return strings.Contains(page, "signed heads do not reach 1 of 3 places") && strings.Contains(page, "answered 503 Service Unavailable") &&
			strings.Contains(ready, "signed heads do not reach 1 of 3 places of audit.checkpoint_to") && strings.Contains(ready, `"ready": true`) &&
			strings.Contains(m, `crawlgate_audit_sinks_failing{kind="url"} 1`)
	})
	stop := func() {
		t.Helper()
		began := time.Now()
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := g.exit(t, 20*time.Second); code != 0 || time.Since(began) > 15*time.Second {
			t.Errorf("exit %d after %s", code, time.Since(began))
		}
		said += g.err.String()
	}
	stop()
	if !strings.Contains(said, "the newest is sent after the next start") {
		t.Errorf("nothing is said of the head that is owed:\n%s", g.err)
	}
	newest, err := audit.ReadHead(filepath.Join(g.state, "audit", "crawlgate.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	owed := newest.Seq - 1 // the last event is the checkpoint of the one before
	before, _ := box.have()
	box.set(false)
	g.serve(t, c)
	within(t, 20*time.Second, "the head that was owed comes", func() bool {
		box.mu.Lock()
		defer box.mu.Unlock()
		if len(box.posted) == before {
			return false
		}
		e, err := audit.Decode([]byte(strings.TrimSpace(box.posted[before])))
		return err == nil && e.Checkpoint.Seq == owed
	})
	stop()

	// On another machine, with the keys that were copied there once.
	keys := filepath.Join(dir, "keys.json")
	b, err := os.ReadFile(filepath.Join(g.state, "audit", "checkpoint-keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, keys, string(b), 0o600)
	posted, lines := box.keep(t, dir)
	log := filepath.Join(g.state, "audit", "crawlgate.jsonl")
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.jsonl")
	all := strings.SplitAfter(string(whole), "\n")
	writeFile(t, cut, strings.Join(all[:12], ""), 0o600)
	for _, saved := range []string{posted, lines, file} {
		r := g.cli(t, "audit", "verify", "--keys", keys, "--checkpoints", saved, log)
		if r.code != 0 || !strings.Contains(r.out, "kept elsewhere found, up to seq ") || !strings.Contains(r.out, "whole    1 file") {
			t.Errorf("%s: %+v", saved, r)
		}
		r = g.cli(t, "audit", "verify", "--keys", keys, "--checkpoints", saved, cut)
		if r.code != 1 || !strings.Contains(r.out, "but the log ends at seq 12 (tail_missing)") {
			t.Errorf("%s, a cut log: %+v", saved, r)
		}
	}
	// Without FILE it is this machine's own log; JSON counts; prove takes the same; standard input works.
	r := g.cli(t, "audit", "verify", "--checkpoints", posted, "--checkpoints", lines, "--json")
	var rep audit.Report
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil || r.code != 0 || rep.Saved == nil || rep.Saved.Heads != rep.Saved.Matched || rep.Saved.Newest < owed {
		t.Errorf("%v %+v", err, r)
	}
	if r := g.cli(t, "audit", "prove", "--checkpoints", posted); r.code != 0 {
		t.Errorf("prove: %+v", r)
	}
	if r := g.cli(t, "audit", "prove", "--checkpoints", posted, "--save=false", cut); r.code != 1 || !strings.Contains(r.out, "chain BROKEN") {
		t.Errorf("prove of a cut log: %+v", r)
	}
	var out, errs bytes.Buffer
	in, err := os.Open(lines)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if code := run(t.Context(), []string{"--config", g.file, "audit", "verify", "--checkpoints", "-", cut}, in, &out, &errs); code != 1 || !strings.Contains(out.String(), "standard input line ") {
		t.Errorf("standard input: %d %s%s", code, &out, &errs)
	}
	for name, want := range map[string]string{cut + ".none": "no such file", keys: "no signed head is in"} {
		if r := g.cli(t, "audit", "verify", "--checkpoints", name, log); r.code != 2 || !strings.Contains(r.err, "--checkpoints: ") || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	shown := g.cli(t, "config", "show")
	kept, err := filepath.Glob(filepath.Join(g.state, "audit", "*", "*"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("%v %v", err, kept)
	}
	for _, name := range append(kept, filepath.Join(g.state, "audit", "exported.json"), log) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said += string(b)
	}
	if said += shown.out + shown.err + r.out; strings.Contains(said, "hunter") {
		i := strings.Index(said, "hunter")
		t.Errorf("a credential is shown: %s", said[max(0, i-200):min(len(said), i+100)])
	}
}

// A sink that is no sink is told before anything starts.
func TestHeadsBadTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := &gate{bin: binary(t), dir: dir, file: gateConfig{more: "audit:\n  checkpoint_to:\n    - ftp://u:hunter2@logs.example/\n"}.write(t, dir)}
	r := g.cli(t, "serve")
	if r.code != 2 || !strings.Contains(r.err, `audit.checkpoint_to[0]: the scheme "ftp" is none of https, http, `) || strings.Contains(r.err, "hunter") {
		t.Errorf("%+v", r)
	}
}
