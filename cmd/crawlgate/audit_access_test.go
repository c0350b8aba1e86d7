package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runAccess runs `audit access ARGS...` and gives what it printed and its exit code.
func runAccess(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	cmd := newAuditAccessCmd(a)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := cmd.ExecuteContext(t.Context())
	var e *exitError
	switch {
	case err == nil:
		return out.String(), errs.String(), exitOK
	case errors.As(err, &e):
		if e.err != nil {
			errs.WriteString(e.err.Error())
		}
		return out.String(), errs.String(), e.code
	}
	return out.String(), errs.String() + err.Error(), exitUsage
}

// accessVectors is the copy of the test vectors.
const accessVectors = "../../audit/testdata/access"

// accessCases are the folders of vectors that hold a command line.
func accessCases(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(accessVectors + "/*/args.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d cases, %v", len(files), err)
	}
	for i, f := range files {
		if files[i], err = filepath.Abs(filepath.Dir(f)); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func caseArgs(t *testing.T, dir string) []string {
	t.Helper()
	var args []string
	body, err := os.ReadFile(filepath.Join(dir, "args.json"))
	if err == nil {
		err = json.Unmarshal(body, &args)
	}
	if err != nil {
		t.Fatal(err)
	}
	return args
}

// TestAuditAccessVectors runs every case whole, with 1, 2 and 8 workers: every key of expected.json, and the same bytes.
func TestAuditAccessVectors(t *testing.T) {
	for _, dir := range accessCases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Chdir(dir)
			args := caseArgs(t, dir)
			first := ""
			for _, workers := range []string{"1", "2", "8"} {
				out, errs, code := runAccess(t, "", append([]string{"--workers", workers}, args...)...)
				if code != exitOK || errs != "" {
					t.Fatalf("exit %d: %s", code, errs)
				}
				if first == "" {
					first = out
				} else if out != first {
					t.Errorf("%s workers: other bytes than 1 worker", workers)
				}
			}
			var want, got any
			body, err := os.ReadFile("expected.json")
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(body, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(first), &got); err != nil {
				t.Fatal(err)
			}
			for _, d := range missing("", want, got) {
				t.Error(d)
			}
		})
	}
}

// missing lists what of want is not in got: objects may have more keys.
func missing(path string, want, got any) (out []string) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{path + ": no object"}
		}
		for k, v := range w {
			x, ok := g[k]
			if !ok {
				out = append(out, path+"."+k+": missing")
				continue
			}
			out = append(out, missing(path+"."+k, v, x)...)
		}
		if path == ".crawlers" || path == ".categories" {
			for k := range g {
				if _, ok := w[k]; !ok {
					out = append(out, path+"."+k+": not expected")
				}
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return []string{path + ": list of another length: " + asJSON(got) + ", expected " + asJSON(want)}
		}
		for i := range w {
			out = append(out, missing(path+"[]", w[i], g[i])...)
		}
		return out
	}
	if asJSON(want) != asJSON(got) {
		return []string{path + ": " + asJSON(got) + ", expected " + asJSON(want)}
	}
	return nil
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
