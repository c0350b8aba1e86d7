package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Three operators publish how their crawlers behave; configs/ has a preset for each. Every sentence of theirs has an
// id, and a subtest of that name that plays it: the built program with the preset, sites on loopback with TLS, a DNS
// server, and Chromium where the promise speaks of a browser. `go test ./cmd/crawlgate -run 'Promises/.*/RL-12$'` shows
// one being kept, and, in TestPromisesMutations, that the same check notices when it is not.

// promise is one row.
type promise struct {
	id    string
	text  string
	where string               // package and function that keep it
	check func(s *stage) error // nil: not kept yet
	later string               // what is missing, where check is nil
	wrong []mutation           // each makes check report a violation
}

// mutation is a change of the configuration or of a site under which a promise is broken.
type mutation struct {
	name   string
	config string                            // laid over the stage's configuration
	site   func(o *origin, firstHost string) // changes a site before it serves
	other  bool                              // the check plays its other course, where the change is neither
	says   string                            // part of the violation that has to be reported
}

// mutated tells whether the check is to play its other course.
func (s *stage) mutated() bool { return s.change != nil && s.change.other }

// onStage bounds how many gates run at once: most of them wait for a turn.
var onStage = make(chan struct{}, 6)

// play runs subtests side by side, whatever -parallel says: they wait more than they work.
func play(t *testing.T, preset string, list []promise, run func(*testing.T, promise)) {
	t.Helper()
	t.Run(preset, func(t *testing.T) {
		var wg sync.WaitGroup
		for _, p := range list {
			if p.check == nil {
				continue
			}
			wg.Go(func() { t.Run(p.id, func(t *testing.T) { run(t, p) }) })
		}
		wg.Wait()
	})
}

// staged runs a check on a stage of its own.
func staged(t *testing.T, preset string, p promise, m *mutation) error {
	t.Helper()
	onStage <- struct{}{}
	t.Cleanup(func() { <-onStage }) // runs after the stage's own
	s := newStage(t, preset, m)
	err := p.check(s)
	if m == nil && s.g.process != nil && strings.Contains(s.g.err.String(), `"level":"ERROR"`) {
		err = errors.Join(err, errors.New("the gate reports a fault of its own"))
	}
	return err
}

func keep(t *testing.T, preset string, list []promise) {
	t.Helper()
	t.Parallel()
	binary(t)
	play(t, preset, list, func(t *testing.T, p promise) {
		if err := staged(t, preset, p, nil); err != nil {
			t.Errorf("%s: %s\n%v", p.id, p.text, err)
		}
	})
}

func TestPromisesRecordsLabs(t *testing.T) { keep(t, "recordslabs", recordsLabs) }
func TestPromisesRoftrlabs(t *testing.T)   { keep(t, "roftrlabs", roftrlabs) }
func TestPromisesUnlob(t *testing.T)       { keep(t, "unlob", unlob) }

// TestPromisesMutations: each check fails where its promise is broken.
func TestPromisesMutations(t *testing.T) {
	t.Parallel()
	binary(t)
	for _, op := range operators {
		play(t, op.preset, op.list, func(t *testing.T, p promise) {
			if len(p.wrong) == 0 {
				t.Fatal("no mutation: nothing shows that the check can fail")
			}
			var wg sync.WaitGroup
			for _, m := range p.wrong {
				wg.Go(func() {
					t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
						err := staged(t, op.preset, p, &m)
						switch {
						case err == nil:
							t.Errorf("%s holds although %s", p.id, m.name)
						case !strings.Contains(err.Error(), m.says):
							t.Errorf("%s with %s: reported as\n%v\nwithout %q", p.id, m.name, err, m.says)
						}
					})
				})
			}
			wg.Wait()
		})
	}
}

// operators are the three, in the order of the document.
var operators = []struct {
	title, preset, prefix string
	rows                  int
	list                  []promise
}{
	{"Records Labs crawler", "recordslabs", "RL", 30, recordsLabs},
	{"RoftrlabsBot", "roftrlabs", "RO", 11, roftrlabs},
	{"UnlobBot", "unlob", "UN", 20, unlob},
}

const promisesFile = "../../docs/promises.md"

// TestPromisesDocument: docs/promises.md is made from the tables, and the tables have every row.
func TestPromisesDocument(t *testing.T) {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Promises\n\nMade from the code by a test. Three operators publish how their crawlers behave. With crawlgate each is a preset\n" +
		"(`preset: NAME`, in `configs/`), and every sentence is a test that drives the built program against sites on loopback.\n\n" +
		"    go test ./cmd/crawlgate -run 'Promises/.*/RL-12$' -v\n\nshows one promise being kept, and the same check failing when it is broken on purpose.\n")
	names := map[string]string{"recordslabs": "TestPromisesRecordsLabs", "roftrlabs": "TestPromisesRoftrlabs", "unlob": "TestPromisesUnlob"}
	for _, op := range operators {
		var have, want []string
		p("\n## %s (`%s`)\n\n| id | promise | kept by | test |\n| --- | --- | --- | --- |\n", op.title, op.preset)
		for _, row := range op.list {
			have = append(have, row.id)
			test := "`" + names[op.preset] + "/" + op.preset + "/" + row.id + "`"
			if row.check == nil {
				test = "not kept yet: " + row.later
			}
			p("| %s | %s | %s | %s |\n", row.id, row.text, row.where, test)
			if row.text == "" || row.where == "" || row.check == nil && row.later == "" {
				t.Errorf("%s: the row is not complete", row.id)
			}
			for _, place := range regexp.MustCompile("`([a-z]+(?:/[a-z]+)*)\\.([A-Z]\\w*)(?:\\.\\w+)?`").FindAllStringSubmatch(row.where, -1) {
				if !declared(t, place[1], place[0]) {
					t.Errorf("%s: there is no %s", row.id, place[0])
				}
			}
		}
		for n := range op.rows {
			want = append(want, op.prefix+"-"+strconv.Itoa(n+1))
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: the table has %v", op.title, have)
		}
	}
	if *update {
		if err := os.WriteFile(promisesFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(promisesFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the tables say; run go test ./cmd/crawlgate -run TestPromisesDocument -update", promisesFile)
	}
}

// declared looks for an exported function, method or type of a package: `proxy/guard.Dialer.DialContext`.
func declared(t *testing.T, pkg, place string) bool {
	t.Helper()
	name := strings.Trim(place[strings.LastIndexByte(place, '.')+1:], "`")
	files, err := os.ReadDir("../../" + pkg)
	if err != nil {
		return false
	}
	form := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type )` + name + `\b`)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile("../../" + pkg + "/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if form.Match(text) {
			return true
		}
	}
	return false
}

// gathering answers when so many requests are there at the same time, so that it tells whether they are let through
// together. When one has waited alone for too long, all go on.
type gathering struct {
	mu   sync.Mutex
	n    int
	want int
	met  bool
	open bool
	let  chan struct{}
}

func newGathering(n int) *gathering { return &gathering{let: make(chan struct{}), want: n} }

func (g *gathering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.meet(r)
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintln(w, "met")
}

// meet waits for the others.
func (g *gathering) meet(r *http.Request) {
	g.count(1)
	alone := time.NewTimer(5 * time.Second)
	defer alone.Stop()
	select {
	case <-g.let:
	case <-alone.C:
		g.mu.Lock()
		g.goOn()
		g.mu.Unlock()
	case <-r.Context().Done():
	}
	g.count(-1)
}

func (g *gathering) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n += n; g.n == g.want {
		g.met = true
		g.goOn()
	}
}

// goOn lets everybody go. The caller holds the lock.
func (g *gathering) goOn() {
	if !g.open {
		g.open = true
		close(g.let)
	}
}

func (g *gathering) together() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.met
}
