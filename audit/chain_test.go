package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChainVectors runs the shared cases whole.
func TestChainVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/chain/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Cases []struct {
			Files  []string
			Head   string
			Result struct {
				OK   bool
				File string
				Line int
				Kind string
			}
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range all.Cases {
		t.Run(strings.Join(c.Files, "+")+"/"+c.Head, func(t *testing.T) {
			var files []string
			for _, f := range c.Files {
				files = append(files, filepath.Join("testdata", "chain", f))
			}
			rep, err := Verify(files, VerifyOptions{Head: c.Head})
			if err != nil {
				t.Fatal(err)
			}
			if rep.OK != c.Result.OK {
				t.Fatalf("ok %v, want %v: %+v", rep.OK, c.Result.OK, rep)
			}
			var got Finding
			if rep.Broken != nil {
				got = *rep.Broken
			} else if len(rep.Warnings) > 0 {
				got = rep.Warnings[0]
			}
			file := ""
			if got.File != "" {
				file = filepath.Base(got.File)
			}
			if file != c.Result.File || got.Line != c.Result.Line || got.Kind != c.Result.Kind {
				t.Errorf("got %s:%d %s, want %+v", file, got.Line, got.Kind, c.Result)
			}
		})
	}
}
