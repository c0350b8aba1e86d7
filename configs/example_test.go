package configs

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const allKeys = "# === all keys ===\n"

// exampleFile is an absolute name, since tests change the folder they stand in.
var exampleFile, _ = filepath.Abs("example.yaml")

var commentedKey = regexp.MustCompile(`^#(  +|[a-z])`)

func example(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// exampleReference is the commented part of example.yaml with its # taken away.
func exampleReference(t *testing.T) string {
	t.Helper()
	_, ref, ok := strings.Cut(example(t), allKeys)
	if !ok {
		t.Fatal("example.yaml has no reference part")
	}
	var out []string
	for line := range strings.Lines(ref) {
		if line = strings.TrimSuffix(line, "\n"); commentedKey.MatchString(line) {
			line = line[1:]
		} else if line != "" && !strings.HasPrefix(line, "# ") {
			t.Errorf("neither a key nor a comment: %s", line)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n") + "\n"
}

func TestExampleLoads(t *testing.T) {
	for name, text := range map[string]string{"as it is": example(t), "all keys": exampleReference(t)} {
		t.Run(name, func(t *testing.T) {
			_, src, err := load(t, text)
			if err != nil {
				t.Fatal(err)
			}
			src.Warnings = slices.DeleteFunc(src.Warnings, func(p Problem) bool { return p.Key == "open" }) // with clients
			if w := FormatWarnings(src.Warnings); w != "" {
				t.Error(w)
			}
		})
	}
	first, _, _ := strings.Cut(example(t), "\n\n")
	if n := strings.Count(first, "\n"); n > 11 {
		t.Errorf("the first screen has %d lines", n)
	}
}

// Every key of the schema stands in the reference part with its default.
func TestExampleIsComplete(t *testing.T) {
	s := configShape()
	p := &parser{at: place{from: fromFile, name: "example.yaml"}}
	ref := exampleReference(t)
	got := p.parse(s, []byte(ref))
	if len(p.problems) > 0 {
		t.Fatal(&Error{p.problems})
	}
	want := treeOf(s, reflect.ValueOf(*Defaults()), place{})
	fillLists(s, want)
	items := []string{"agents", "profiles", "clients"}
	s.walkLeaves("", func(path string, leaf *shape) {
		if slices.Contains(items, path) || path == "robots.challenge_markers" {
			return
		}
		g, w := got.find(path), want.find(path)
		switch {
		case g == nil:
			t.Errorf("%s is missing", path)
		case !reflect.DeepEqual(g.plain(), w.plain()):
			t.Errorf("%s is %v, the default is %v", path, g.plain(), w.plain())
		}
	})
	samples := []string{"name", "agent", "product_token", "user_agent", "info_url", "contact", "purposes", "secret_hash", "profiles", "sites", "robots.stop_on"}
	for _, list := range items {
		item := s.field(list).shape.elem
		def := treeOf(item, reflect.ValueOf(itemDefaults(item.typ)), place{})
		fillLists(item, def)
		item.walkLeaves("", func(path string, _ *shape) {
			g := got.find(list + "[0]." + path)
			switch {
			case path == "robots.stop_on":
				if !strings.Contains(ref, "      stop_on:  ") {
					t.Errorf("%s[0].%s is missing", list, path)
				}
			case g == nil:
				t.Errorf("%s[0].%s is missing", list, path)
			case list != "profiles" && slices.Contains(samples, path) || path == "name" || path == "agent":
			case !reflect.DeepEqual(g.plain(), def.find(path).plain()):
				t.Errorf("%s[0].%s is %v, the default is %v", list, path, g.plain(), def.find(path).plain())
			}
		})
	}
	// Keys of items that have no default stand in the words beside their list.
	keyPaths(s, "", func(path string) {
		if key := path[strings.LastIndexByte(path, '.')+1:]; !regexp.MustCompile(`\b` + key + `\b`).MatchString(ref) {
			t.Errorf("%s is nowhere", path)
		}
	})
}
