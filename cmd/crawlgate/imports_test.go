package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport is which of our packages a package may import: the layout as a rule. Leaves import none.
var mayImport = map[string][]string{
	"crawlgate/policy":              {},
	"crawlgate/pacing":              {},
	"crawlgate/pacing/redistest":    {},
	"crawlgate/sign":                {},
	"crawlgate/allowlist":           {},
	"crawlgate/audit":               {},
	"crawlgate/proxy/guard":         {},
	"crawlgate/proxy/guard/dnstest": {},
	"crawlgate/configs":             {"crawlgate/policy", "crawlgate/pacing", "crawlgate/sign", "crawlgate/allowlist", "crawlgate/audit", "crawlgate/proxy/guard"},
	"crawlgate/proxy":               {"crawlgate/policy", "crawlgate/pacing", "crawlgate/sign", "crawlgate/allowlist", "crawlgate/audit", "crawlgate/proxy/guard"},
	"crawlgate/admin":               {"crawlgate/configs", "crawlgate/policy", "crawlgate/pacing", "crawlgate/sign", "crawlgate/allowlist", "crawlgate/audit", "crawlgate/proxy/guard"},
	"crawlgate/cmd/crawlgate":       {"crawlgate/configs", "crawlgate/proxy", "crawlgate/admin", "crawlgate/policy", "crawlgate/pacing", "crawlgate/sign", "crawlgate/allowlist", "crawlgate/audit", "crawlgate/proxy/guard"},
}

// fences say where a library may be imported: a package, or files of a name in any package.
var fences = map[string][]string{
	"github.com/elazarl/goproxy":                     {"proxy/goproxy.go"},
	"github.com/jimsmart/grobotstxt":                 {"policy/"},
	"github.com/yaronf/httpsign":                     {"sign/"},
	"github.com/spf13/viper":                         {"configs/"},
	"github.com/spf13/cobra":                         {"cmd/"},
	"github.com/prometheus/client_golang/prometheus": {"admin/"},
	"github.com/dgraph-io/ristretto/v2":              {"/cache.go", "/certs.go"},
	"github.com/redis/go-redis/v9":                   {"/redis.go"},
	"go.etcd.io/bbolt":                               {"/bolt.go"},
}

type listedPackage struct {
	Dir, ImportPath string
	Imports         []string
	GoFiles         []string
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Imports,GoFiles", "crawlgate/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listedPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range listPackages(t) {
		allowed, known := mayImport[p.ImportPath]
		if !known {
			t.Errorf("%s is not in the layout: say what it may import", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, "crawlgate") && !slices.Contains(allowed, imp) {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestFences(t *testing.T) {
	for _, p := range listPackages(t) {
		for lib, places := range fences {
			if !slices.ContainsFunc(p.Imports, func(imp string) bool { return imp == lib || strings.HasPrefix(imp, lib+"/") }) {
				continue
			}
			out, err := exec.Command("grep", append([]string{"-lE", `"` + lib + `(/[^"]*)?"`}, files(p)...)...).Output()
			if err != nil {
				t.Fatalf("grep in %s: %v", p.Dir, err)
			}
			for _, f := range strings.Fields(string(out)) {
				ok := slices.ContainsFunc(places, func(place string) bool {
					return strings.HasSuffix(f, place) || strings.HasSuffix(place, "/") && strings.Contains(f, "/"+place)
				})
				if !ok {
					t.Errorf("%s imports %s; it belongs to %v", f, lib, places)
				}
			}
		}
	}
}

// One dialer for everything that leaves: no other way to the network may stand in the code that runs on behalf of a
// fetcher.
func TestOneDialer(t *testing.T) {
	ways := []string{"net.Dial(", "net.DialTimeout(", "net.Dialer{", "http.Get(", "http.Post(", "http.Head(", "http.DefaultClient", "http.DefaultTransport", "tls.Dial(", "http.ProxyFromEnvironment"}
	for _, p := range listPackages(t) {
		switch p.ImportPath {
		case "crawlgate/proxy/guard", "crawlgate/proxy/guard/dnstest", "crawlgate/pacing/redistest", "crawlgate/cmd/crawlgate":
			continue // the dialer itself, the servers of tests, and commands that talk to the gate
		}
		for _, f := range files(p) {
			out, err := exec.Command("grep", "-nF", strings.Join(ways, "\n"), f).Output()
			if err == nil {
				t.Errorf("%s reaches the network by itself:\n%s", f, out)
			}
		}
	}
}

func files(p listedPackage) []string {
	var out []string
	for _, f := range p.GoFiles {
		out = append(out, filepath.Join(p.Dir, f))
	}
	return out
}
