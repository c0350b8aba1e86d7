package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const envPrefix = "CRAWLGATE_"

// envOwn are the variables that `crawlgate run` sets for its child, which may be a crawlgate again.
var envOwn = []string{"CRAWLGATE_PROXY", "CRAWLGATE_CA", "CRAWLGATE_SPKI"}

// envName is the variable that sets a key outside lists: CRAWLGATE_ and the path in capitals.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// settable calls fn for every key that a variable or a flag can set: all but lists of blocks.
func settable(s *shape, fn func(path string, s *shape)) {
	s.walkLeaves("", func(path string, leaf *shape) {
		if leaf.kind != kindList || leaf.elem.kind != kindStruct || leaf.elem.text {
			fn(path, leaf)
		}
	})
}

// readEnv reads the CRAWLGATE_ variables; an unknown one is a warning, since a newer or older crawlgate may own it.
func readEnv(s *shape, environ []string) (t *tree, problems, warnings []Problem) {
	byName := map[string]string{}
	shapes := map[string]*shape{}
	settable(s, func(path string, leaf *shape) {
		byName[envName(path)], shapes[path] = path, leaf
	})
	t = newBlock(place{from: fromEnv})
	done := map[string]bool{}
	for _, kv := range slices.Backward(environ) { // the last one of a name counts, as for os.Getenv in most shells
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || done[name] || slices.Contains(envOwn, name) {
			continue
		}
		done[name] = true
		at := place{from: fromEnv, name: name}
		path, ok := byName[name]
		if !ok {
			w := at.problem("is not a variable of crawlgate")
			w.sentence = true
			if n := nearest(strings.ToLower(name), lower(sortedKeys(byName))); n != "" {
				w.Text += "; did you mean " + strings.ToUpper(n) + "?"
			}
			warnings = append(warnings, w)
			continue
		}
		v, ps := fromText(shapes[path], value, at)
		problems = append(problems, ps...)
		t.put(path, v)
	}
	slices.SortFunc(warnings, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	return t, problems, warnings
}

// readOverrides reads values that flags gave, by key path.
func readOverrides(s *shape, values map[string]string) (t *tree, problems []Problem) {
	shapes := map[string]*shape{}
	settable(s, func(path string, leaf *shape) { shapes[path] = leaf })
	t = newBlock(place{from: fromFlag})
	for _, path := range sortedKeys(values) {
		at := place{from: fromFlag, name: flagName(path)}
		leaf := shapes[path]
		if leaf == nil {
			problems = append(problems, at.problem(fmt.Sprintf("%s is not a key outside lists", path)))
			continue
		}
		v, ps := fromText(leaf, values[path], at)
		problems = append(problems, ps...)
		t.put(path, v)
	}
	return t, problems
}

// flagName is how a flag is called that sets a key.
func flagName(path string) string {
	return "--" + strings.NewReplacer(".", "-", "_", "-").Replace(path)
}

// put sets a value by its path of keys.
func (t *tree) put(path string, v *tree) {
	if v == nil {
		return
	}
	parts := strings.Split(path, ".")
	for _, k := range parts[:len(parts)-1] {
		if t.block[k] == nil {
			t.set(k, newBlock(t.at))
		}
		t = t.block[k]
	}
	t.set(parts[len(parts)-1], v)
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// defaultTree is Defaults as a tree.
func defaultTree(s *shape) *tree {
	return treeOf(s, reflect.ValueOf(*Defaults()), place{from: fromDefault})
}
