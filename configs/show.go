package configs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const masked = "(masked)"

// Show is the effective configuration as YAML, secrets masked. With src it ends each line with where the value came
// from; nil leaves that out.
func (c *Config) Show(src *Sources) string {
	s := configShape()
	var comment func(path string) string
	if src != nil {
		comment = src.Origin
	}
	n := nodeOf(s, c.tree(s), comment)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return "# " + err.Error() + "\n"
	}
	return b.String()
}

// ShowJSON is the same as JSON: durations as text, sizes as bytes.
func (c *Config) ShowJSON() ([]byte, error) {
	return json.MarshalIndent(jsonOf(c.tree(configShape())), "", "  ")
}

// notPolicy are the keys that say where crawlgate itself stands, not what it does to sites: two instances that differ
// only in these have one policy, and a `run` on a free port the same as the `serve` it belongs to.
var notPolicy = []string{"listen", "admin", "state_dir", "server", "redis.url", "publish.listen", "audit.file", "audit.checkpoint_to", "audit.checkpoint_ca_file", "audit.verify_every", "audit.access", "preset"}

// Hash is the SHA-256 of the effective policy in hex: canonical JSON with sorted keys, without secrets and without the
// keys that only say where crawlgate listens and keeps its state. Audit events and the page carry it.
func (c *Config) Hash() string {
	t := c.tree(configShape())
	for _, path := range notPolicy {
		t.remove(path)
	}
	if clients := t.block["clients"]; clients != nil {
		for _, item := range clients.items {
			item.remove("listen")
		}
	}
	b, err := json.Marshal(jsonOf(t))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (t *tree) remove(path string) {
	first, rest, more := strings.Cut(path, ".")
	if t.block[first] == nil {
		return
	}
	if more {
		t.block[first].remove(rest)
		return
	}
	delete(t.block, first)
	for i, k := range t.keys {
		if k == first {
			t.keys = append(t.keys[:i:i], t.keys[i+1:]...)
			return
		}
	}
}

// unsetMeans are the lists for which leaving out says something else than an empty list.
var unsetMeans = []string{"stop_on", "challenge_markers"}

// tree is the configuration as a tree with its secrets masked and its absent lists empty.
func (c *Config) tree(s *shape) *tree {
	t := treeOf(s, reflect.ValueOf(*c), place{})
	fillLists(s, t)
	if clients := t.block["clients"]; clients != nil {
		for _, item := range clients.items {
			mask(item, "secret_hash", func(string) string { return masked })
		}
	}
	if r := t.block["redis"]; r != nil {
		mask(r, "url", maskURL)
	}
	if to := t.find("audit.checkpoint_to"); to != nil {
		for _, item := range to.items {
			if text, ok := item.val.(string); ok {
				item.val = maskTarget(text)
			}
		}
	}
	return t
}

func fillLists(s *shape, t *tree) {
	switch t.kind {
	case kindStruct:
		for _, f := range s.fields {
			switch v := t.block[f.name]; {
			case v != nil:
				fillLists(f.shape, v)
			case f.shape.kind == kindList && !s.text && slices.Contains(unsetMeans, f.name):
				t.set(f.name, &tree{kind: kindText})
			case f.shape.kind == kindList && !s.text:
				t.set(f.name, &tree{kind: kindList, items: []*tree{}})
			}
		}
	case kindList:
		for _, item := range t.items {
			fillLists(s.elem, item)
		}
	}
}

func mask(t *tree, key string, with func(string) string) {
	if v := t.block[key]; v != nil {
		if text, ok := v.val.(string); ok && text != "" {
			v.val = with(text)
		}
	}
}

// maskURL hides the password of a URL, and the whole of what is no URL.
func maskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return masked
	}
	if _, ok := u.User.Password(); ok {
		u.User = url.UserPassword(u.User.Username(), "xxxxx")
	}
	q := u.Query()
	if q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// maskTarget hides what may be a credential in an item of checkpoint_to: the user, who may be a token, the password and
// every value of the query. A file stays as it is.
func maskTarget(raw string) string {
	if !strings.Contains(raw, "://") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return masked
	}
	if u.User != nil {
		u.User = url.UserPassword("xxxxx", "xxxxx")
	}
	q := u.Query()
	for k := range q {
		q.Set(k, "xxxxx")
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// nodeOf is a tree as a YAML node in the order of the schema, with comment(path) at the end of each value's line.
func nodeOf(s *shape, t *tree, comment func(path string) string) *yaml.Node {
	n := nodeAt(s, t, "", comment)
	return n
}

func nodeAt(s *shape, t *tree, path string, comment func(string) string) *yaml.Node {
	switch t.kind {
	case kindStruct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range s.fields {
			v := t.block[f.name]
			if v == nil {
				continue
			}
			k := &yaml.Node{Kind: yaml.ScalarNode, Value: f.name}
			c := nodeAt(f.shape, v, join(path, f.name), comment)
			if comment != nil && c.Kind == yaml.SequenceNode && c.Style == 0 {
				k.LineComment = comment(join(path, f.name))
			}
			n.Content = append(n.Content, k, c)
		}
		return n
	case kindList:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if len(t.items) == 0 || s.elem.kind != kindStruct && len(t.items) <= 8 {
			n.Style = yaml.FlowStyle
			if comment != nil {
				n.LineComment = comment(path)
			}
			comment = nil
		}
		for i, item := range t.items {
			n.Content = append(n.Content, nodeAt(s.elem, item, indexed(path, i), comment))
		}
		return n
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: fmt.Sprint(t.val)}
	switch v := t.val.(type) {
	case nil:
		n.Value, n.Tag = "null", ""
	case time.Duration:
		n.Value, n.Tag = formatDuration(v), ""
	case int64:
		n.Value, n.Tag = formatSize(v), ""
	case int:
		n.Value, n.Tag = strconv.Itoa(v), ""
	case float64:
		n.Value, n.Tag = strconv.FormatFloat(v, 'g', -1, 64), ""
	case bool:
		n.Value, n.Tag = strconv.FormatBool(v), ""
	}
	if comment != nil {
		n.LineComment = comment(path)
	}
	return n
}

// jsonOf is a tree as values for encoding/json, which sorts the keys.
func jsonOf(t *tree) any {
	switch t.kind {
	case kindStruct:
		m := make(map[string]any, len(t.block))
		for k, v := range t.block {
			m[k] = jsonOf(v)
		}
		return m
	case kindList:
		l := make([]any, 0, len(t.items))
		for _, v := range t.items {
			l = append(l, jsonOf(v))
		}
		return l
	}
	if d, ok := t.val.(time.Duration); ok {
		return formatDuration(d)
	}
	return t.val
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
