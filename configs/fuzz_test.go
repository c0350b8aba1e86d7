package configs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzLoad: any bytes as a file load or fail with problems on single printable lines, quickly; what loads can be shown
// and loads again to the same policy.
func FuzzLoad(f *testing.F) {
	seeds, err := filepath.Glob("testdata/load/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(seeds, "example.yaml", "recordslabs.yaml", "roftrlabs.yaml", "unlob.yaml") {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(fullFile))
	f.Add([]byte("a: &a [*a, *a]\nprofiles: [&b {name: x, <<: [*b, *b]}]\n"))
	f.Add([]byte("\xff\xfeo\x00p\x00e\x00n\x00"))
	f.Add([]byte(strings.Repeat("[", 500)))
	name := filepath.Join(f.TempDir(), FileName)
	load := func(t *testing.T, data []byte) (*Config, error) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(Options{File: name, Env: []string{"HOME=/nonexistent"}})
		return c, err
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		c, err := load(t, data)
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("took %s", d)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || len(e.Problems) == 0 || c != nil {
				t.Fatalf("%T %v", err, err)
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if strings.ContainsFunc(line, unicode.IsControl) {
					t.Fatalf("control character in %q", line)
				}
			}
			return
		}
		shown := strings.ReplaceAll(c.Show(nil), masked, "sha256:"+strings.Repeat("0", 64))
		d, err := load(t, []byte(shown))
		if err != nil {
			t.Fatalf("what show prints does not load: %v\n%s", err, shown)
		}
		d.Redis.URL = c.Redis.URL
		if c.Hash() != d.Hash() {
			t.Fatalf("another policy after show:\n%s\n%s", c.Show(nil), d.Show(nil))
		}
	})
}

func FuzzUnits(f *testing.F) {
	for _, s := range []string{"1s", "1d2h", "64MiB", "10kB", "0", "-1", "1.5GiB", "99999999999999999999d", "1e9s", ".5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := parseDuration(s); err == nil {
			if d < 0 {
				t.Fatalf("%q is %s", s, d)
			}
			if again, err := parseDuration(formatDuration(d)); err != nil || again != d {
				t.Fatalf("%q is %s, read again %s, %v", s, d, again, err)
			}
		}
		if n, err := parseSize(s); err == nil {
			if n < 0 {
				t.Fatalf("%q is %d", s, n)
			}
			if again, err := parseSize(formatSize(n)); err != nil || again != n {
				t.Fatalf("%q is %d, read again %d, %v", s, n, again, err)
			}
		}
	})
}
