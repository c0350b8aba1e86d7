package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// enums are the words of the keys that take one of a few, for editors. TestSchemaEnums holds them against the code.
var enums = map[string][]string{
	"preset":                               {"", "recordslabs", "roftrlabs", "unlob"},
	"agents[].purposes[]":                  {"search", "ai-input", "ai-train"},
	"profiles[].sign":                      {"sites", "all", "never"},
	"profiles[].sites":                     {"listed", "any"},
	"profiles[].robots.mode":               {"obey", "named", "ignore"},
	"profiles[].robots.when_unreadable":    {"refuse", "allow"},
	"profiles[].robots.third_party":        {"if_read", "own"},
	"profiles[].robots.on_401_403":         {"allow", "deny"},
	"profiles[].robots.too_many_redirects": {"allow", "deny"},
	"profiles[].robots.stale_on_error":     {"keep", "deny"},
	"profiles[].robots.response_signals":   {"record", "bind"},
	"profiles[].robots.visit_time":         {"ignore", "enforce"},
	"profiles[].pacing.mode":               {"turns", "none"},
	"profiles[].pacing.key":                {"host", "registrable_domain"},
	"profiles[].pacing.redirect":           {"follow", "own_turn"},
	"profiles[].pacing.companions":         {"ride", "own_turn"},
	"profiles[].pacing.robots":             {"paced", "free"},
	"profiles[].limits.authorization":      {"strip", "pass"},
	"profiles[].limits.websocket":          {"allow", "deny"},
	"profiles[].limits.deny_kinds[]":       {"script-navigation", "prefetch", "browser-noise"},
	"clients[].grants[]":                   {"redirects", "redirects-same-site", "files", "subresources"},
	"egress.ip_literals":                   {"allow", "deny"},
	"egress.family":                        {"both", "ipv4", "ipv6"},
	"redis.when_down":                      {"refuse", "local"},
	"sign.form":                            {"dictionary", "string"},
	"sign.components":                      {"minimal", "bound"},
	"audit.query":                          {"secrets", "full", "names", "drop"},
	"audit.client_ip":                      {"keep", "hash"},
	"audit.sync":                           {"", "intent"},
	"audit.on_error":                       {"refuse", "drop"},
	"audit.access.dns":                     {"", "off", "cache", "live"},
	"audit.access.dedupe":                  {"none", "overlap", "lines"},
	"audit.access.no_version":              {"unjudged", "allowed"},
	"audit.access.unverified":              {"genuine", "impersonated"},
	"audit.access.format":                  {"", "table", "json", "csv", "html"},
	"audit.access.list":                    {"", "violations"},
	"sign.sites[].form":                    {"dictionary", "string"},
}

const (
	durationPattern = `^([0-9]+d)?([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))*$`
	sizePattern     = `^[0-9]+(\.[0-9]+)? ?([kMGT]B|[KMGT]iB|B)?$`
)

// schemaOf is the JSON Schema of a value. The loader takes null as absent, so every type does.
func schemaOf(s *shape, path string, words map[string]string) map[string]any {
	out := map[string]any{}
	if w := words[path]; w != "" {
		out["description"] = w
	}
	switch s.kind {
	case kindString, kindText:
		out["type"] = []string{"string", "null"}
	case kindBool:
		out["type"] = []string{"boolean", "null"}
	case kindInt:
		out["type"] = []string{"integer", "null"}
	case kindFloat:
		out["type"] = []string{"number", "null"}
	case kindDuration:
		out["type"], out["pattern"] = []string{"string", "null"}, durationPattern
	case kindSize:
		out["type"], out["pattern"], out["minimum"] = []string{"integer", "string", "null"}, sizePattern, 0
	case kindList:
		items := schemaOf(s.elem, path+"[]", words)
		if types, ok := items["type"].([]string); ok && types[len(types)-1] == "null" {
			items["type"] = types[:len(types)-1] // an empty item is a mistake
		}
		out["type"], out["items"] = []string{"array", "null"}, items
		if s.text {
			out["type"] = []string{"array", "string", "null"}
		}
	case kindStruct:
		props := map[string]any{}
		for _, f := range s.fields {
			props[f.name] = schemaOf(f.shape, join(path, f.name), words)
		}
		out["type"], out["properties"], out["additionalProperties"] = []string{"object", "null"}, props, false
		if s.text {
			out["type"] = []string{"object", "string"}
		}
		if s.named() {
			out["type"], out["required"] = "object", []string{"name"}
		}
	}
	if e := enums[path]; e != nil {
		out["enum"] = append([]any{nil}, anys(e)...)
		delete(out, "type")
	}
	return out
}

func anys(list []string) []any {
	var out []any
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

// exampleWords are the comments of example.yaml by key path; items of lists are [].
func exampleWords(t *testing.T) map[string]string {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(exampleReference(t)), &doc); err != nil {
		t.Fatal(err)
	}
	words := map[string]string{}
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		switch n.Kind {
		case yaml.SequenceNode:
			for _, c := range n.Content {
				walk(c, path+"[]")
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				k, v := n.Content[i], n.Content[i+1]
				p := join(path, k.Value)
				for _, c := range []string{k.LineComment, v.LineComment} {
					if c = strings.TrimSpace(strings.TrimPrefix(c, "#")); c != "" && words[p] == "" {
						words[p] = c
					}
				}
				walk(v, p)
			}
		}
	}
	walk(doc.Content[0], "")
	return words
}

func schemaJSON(t *testing.T) []byte {
	t.Helper()
	s := schemaOf(configShape(), "", exampleWords(t))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "crawlgate.yaml"
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSchemaFile(t *testing.T) {
	golden(t, "schema.json", string(schemaJSON(t)))
}

func TestSchemaAcceptsAndRefuses(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return err
		}
		return sch.Validate(inst)
	}
	good := map[string]string{"example": example(t), "all keys": exampleReference(t), "shown": Defaults().Show(nil)}
	for _, name := range Presets() {
		text, err := presetText(name)
		if err != nil {
			t.Fatal(err)
		}
		good[name] = string(text)
	}
	for name, text := range good {
		if err := check(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{
		"listne: x", "listen: 3128", "server: {grace: 10}", "server: {grace: '10'}", "open: 'true'", "agents: {name: x}", "agents: [{}]",
		"profiles: [{name: x, limits: {response_body: 64mb}}]", "profiles: [{name: x, sign: always}]", "egress: {ports: ['80']}", "preset: x",
	} {
		if check(bad) == nil {
			t.Errorf("the schema accepts %s", bad)
		}
		if _, _, err := load(t, bad+"\n"); err == nil {
			t.Errorf("the loader accepts %s", bad)
		}
	}
}

// Each word of the schema loads where it stands, and another does not.
func TestSchemaEnums(t *testing.T) {
	keys := map[string]bool{}
	keyPaths(configShape(), "", func(p string) { keys[p] = true })
	for path, words := range enums {
		key, list := strings.CutSuffix(path, "[]")
		if !keys[key] {
			t.Errorf("%s is no key", path)
			continue
		}
		for _, w := range append([]string{"no-such-word"}, words...) {
			value := fmt.Sprintf("%q", w)
			if list {
				value = "[" + value + "]"
			}
			// Build the block from the inside out.
			parts := strings.Split(key, ".")
			for i := len(parts) - 1; i >= 0; i-- {
				name, item := strings.CutSuffix(parts[i], "[]")
				if item {
					if value = strings.Replace(value, "{", "{name: x, ", 1); name == "sites" {
						value = strings.Replace(value, "name: x", "host: x.example", 1)
					}
					value = "[" + value + "]"
				}
				value = fmt.Sprintf("{%s: %s}", name, value)
			}
			_, _, err := load(t, value+"\n")
			found := err != nil && strings.Contains(err.Error(), fmt.Sprintf("%q", w)+" is no")
			if found != (w == "no-such-word") {
				t.Errorf("%s: %v", value, err)
			}
		}
	}
}
