package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notKeys look like keys and are none: files, and fields of audit events.
var notKeys = map[string]bool{"robots.txt": true, "robots.fetched_at": true, "robots.status": true, "robots.state": true, "tls.established": true, "clients.md": true, "robots.go": true}

// TestKeysNamed: a key of the configuration that a refusal, a document or the changelog names is one that can be set. A
// limit that has no key must not be answered for with the name of one.
func TestKeysNamed(t *testing.T) {
	t.Parallel()
	keys, sections := exampleKeys(exampleFile(t))
	if !keys["server.head_bytes"] || !keys["limits.methods"] || !keys["pacing.backoff.base"] {
		t.Fatalf("the example was not read: %v", keys)
	}
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/decisions/*.md", "../../proxy/*.go"} {
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %v, %v", pattern, list, err)
		}
		files = append(files, list...)
	}
	named := regexp.MustCompile("[(`]([a-z_]+(?:\\.[a-z_]+)+)(?:: [^`]*)?[)`]")
	found := 0
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(string(raw), -1) {
			section, _, _ := strings.Cut(m[1], ".")
			// Files and fields of audit events have dots too.
			if !sections[section] || notKeys[m[1]] {
				continue
			}
			found++
			if !keys[m[1]] {
				t.Errorf("%s names %s, which is no key", f, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d names of keys were found", found)
	}
}

// exampleKeys are the keys of the commented example, each by every path that ends in it (server.head_bytes,
// profiles.limits.methods, limits.methods), and the keys that hold others.
func exampleKeys(example string) (keys, sections map[string]bool) {
	keys, sections = map[string]bool{}, map[string]bool{}
	line := regexp.MustCompile(`^#?( *)(- (?:\{)?)?([a-z_0-9]+):`)
	type level struct {
		indent int
		name   string
	}
	var open []level
	for l := range strings.Lines(example) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		indent := len(m[1]) + len(m[2])
		for len(open) > 0 && open[len(open)-1].indent >= indent {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			sections[open[len(open)-1].name] = true
		}
		path := m[3]
		keys[path] = true
		for i := len(open) - 1; i >= 0; i-- {
			path = open[i].name + "." + path
			keys[path] = true
		}
		open = append(open, level{indent, m[3]})
	}
	return keys, sections
}
