package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script/*.txtar: commands with their exact output and exit code. Beside the standard commands
// a script has
//
//	site HOST [FILE]       a web site on loopback with FILE as robots.txt; sets SITE to its URL
//	config [FILE]          writes crawlgate.yaml for the sites, with FILE at its end
//	serve                  starts `crawlgate serve` with it; sets PROXY, ADMIN and CA
//	exits CODE CMD ARG...  runs a program, which has to end with this code; its output is there for stdout, stderr and cmp
//	arrived N PATH         PATH was asked for N times at the sites
//	password               sets PASSWORD to the first line of the last output, and PROXYAS to the proxy's URL for client team-a
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			runScript(t, file)
		})
	}
}

func runScript(t *testing.T, file string) {
	bin := binary(t)
	var sites []*origin
	testscript.Run(t, testscript.Params{
		Files:               []string{file},
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			dir := filepath.Join(e.WorkDir, ".bin")
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			if err := os.Symlink(bin, filepath.Join(dir, "crawlgate")); err != nil {
				return err
			}
			e.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TZ", "UTC")
			e.Setenv("NO_COLOR", "1")
			e.Setenv("PYTHON", debianPython)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"site": func(ts *testscript.TestScript, _ bool, args []string) {
				o := newOrigin(t, plainHTTP, func(o *origin) {
					if len(args) > 1 {
						o.robots = ts.ReadFile(args[1])
					}
				}, args[0])
				sites = append(sites, o)
				ts.Setenv("SITE", strings.TrimSuffix(o.url("/"), "/"))
				ts.Setenv("PORT", itoa(o.port))
			},
			"config": func(ts *testscript.TestScript, _ bool, args []string) {
				c := gateConfig{origins: sites, hosts: []string{"10.0.0.7 lan.test"}}
				if len(args) > 0 {
					c.more = ts.ReadFile(args[0])
				}
				c.write(t, ts.Getenv("WORK"))
			},
			"serve": func(ts *testscript.TestScript, _ bool, _ []string) {
				work := ts.Getenv("WORK")
				g := &gate{bin: bin, dir: work, file: filepath.Join(work, "crawlgate.yaml"), state: filepath.Join(work, "state")}
				g.serve(t, gateConfig{})
				p := g.process
				ts.Defer(func() { _ = p.cmd.Process.Signal(os.Interrupt); <-p.done })
				ts.Setenv("PROXY", g.proxy)
				ts.Setenv("ADMIN", g.admin)
				ts.Setenv("CA", g.ca)
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				want, err := strconv.Atoi(args[0])
				if err != nil || neg {
					ts.Fatalf("usage: exits CODE CMD ARG...")
				}
				code := 0
				if err := ts.Exec(args[1], args[2:]...); err != nil {
					var exit *exec.ExitError
					if !errors.As(err, &exit) {
						ts.Fatalf("%v", err)
					}
					code = exit.ExitCode()
				}
				if code != want {
					ts.Fatalf("%v ended with %d, not %d", args[1:], code, want)
				}
			},
			"arrived": func(ts *testscript.TestScript, _ bool, args []string) {
				n := 0
				for _, o := range sites {
					for _, a := range o.arrivals() {
						if a.URI == args[1] {
							n++
						}
					}
				}
				if itoa(n) != args[0] {
					ts.Fatalf("%s was asked for %d times, not %s", args[1], n, args[0])
				}
			},
			"password": func(ts *testscript.TestScript, _ bool, _ []string) {
				secret, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
				ts.Setenv("PASSWORD", secret)
				ts.Setenv("PROXYAS", strings.Replace(ts.Getenv("PROXY"), "://", "://team-a:"+secret+"@", 1))
			},
		},
	})
}
