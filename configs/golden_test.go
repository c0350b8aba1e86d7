package configs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// Each testdata/load/NAME.yaml is loaded as crawlgate.yaml; NAME.out is what a person sees.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/load/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			_, src, err := load(t, string(text))
			var out []string
			if w := FormatWarnings(src.Warnings); w != "" {
				out = append(out, w)
			}
			if err != nil {
				out = append(out, err.Error())
			} else {
				out = append(out, "ok")
			}
			got := strings.Join(out, "\n")
			golden(t, filepath.Join(wd, strings.TrimSuffix(f, ".yaml")+".out"), got+"\n")
		})
	}
}
