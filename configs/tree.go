package configs

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// origin is where a value came from, lowest precedence first.
type origin int

const (
	fromDefault origin = iota
	fromPreset
	fromFile
	fromClients // state_dir/clients.yaml
	fromEnv
	fromFlag
)

// place is one value's origin; line and key are as written there.
type place struct {
	from origin
	name string // file, preset, variable or flag
	line int
	key  string
}

// String is the word of `config show --origin`.
func (p place) String() string {
	switch p.from {
	case fromPreset:
		return fmt.Sprintf("preset %s:%d", p.name, p.line)
	case fromFile, fromClients:
		return fmt.Sprintf("%s:%d", p.name, p.line)
	case fromEnv, fromFlag:
		return p.name
	}
	return "default"
}

// problem is a Problem at this place.
func (p place) problem(text string) Problem {
	pr := Problem{Key: p.key, Text: text, from: p.from}
	switch p.from {
	case fromPreset:
		pr.File, pr.Line = "preset "+p.name, p.line
	case fromFile, fromClients:
		pr.File, pr.Line = p.name, p.line
	case fromEnv, fromFlag:
		pr.Key = p.name
	}
	return pr
}

// tree is a checked value with its place: a scalar, a block of keys, or a list.
type tree struct {
	kind  kind // kindStruct, kindList, or a scalar's
	val   any  // scalar: string, bool, int, int64, float64, time.Duration
	keys  []string
	block map[string]*tree
	items []*tree
	at    place
}

func newBlock(at place) *tree {
	return &tree{kind: kindStruct, block: map[string]*tree{}, at: at}
}

func (t *tree) set(key string, v *tree) {
	if _, ok := t.block[key]; !ok {
		t.keys = append(t.keys, key)
	}
	t.block[key] = v
}

// plain is the value as viper and mapstructure take it.
func (t *tree) plain() any {
	switch t.kind {
	case kindStruct:
		m := make(map[string]any, len(t.block))
		for k, v := range t.block {
			m[k] = v.plain()
		}
		return m
	case kindList:
		l := make([]any, 0, len(t.items))
		for _, v := range t.items {
			l = append(l, v.plain())
		}
		return l
	}
	return t.val
}

// find is the value at a path such as profiles[0].pacing.gap, nil when there is none.
func (t *tree) find(path string) *tree {
	for _, s := range steps(path) {
		if t = t.child(s); t == nil {
			return nil
		}
	}
	return t
}

func (t *tree) child(s step) *tree {
	switch {
	case s.index >= 0 && t.kind == kindList && s.index < len(t.items):
		return t.items[s.index]
	case s.index < 0 && t.kind == kindStruct:
		return t.block[s.key]
	}
	return nil
}

// written is the place of the value at a path, or of the nearest block around it that somebody wrote, with the rest of
// the path added to its key. It is false when nothing on the way was written.
func (t *tree) written(path string) (place, bool) {
	best, rest := place{}, ""
	for _, s := range steps(path) {
		name := "." + s.key
		if s.index >= 0 {
			name = fmt.Sprintf("[%d]", s.index)
		}
		rest += name
		if t != nil {
			t = t.child(s)
		}
		if t != nil && t.at.from != fromDefault {
			best, rest = t.at, ""
		}
	}
	best.key += rest
	return best, best.from != fromDefault
}

type step struct {
	key   string
	index int // -1: a key
}

func steps(path string) []step {
	var out []step
	for part := range strings.SplitSeq(path, ".") {
		key, rest, _ := strings.Cut(part, "[")
		if key != "" {
			out = append(out, step{key, -1})
		}
		for rest != "" {
			num, more, _ := strings.Cut(rest, "]")
			n := 0
			if !digits(num) {
				break
			}
			if _, err := fmt.Sscan(num, &n); err != nil {
				break
			}
			out = append(out, step{"", n})
			rest = strings.TrimPrefix(more, "[")
		}
	}
	return out
}

// treeOf turns a Go value into a tree by its schema; nil slices and pointers are absent.
func treeOf(s *shape, v reflect.Value, at place) *tree {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch s.kind {
	case kindStruct:
		if text := textForm(s, v); text != "" {
			return &tree{kind: kindText, val: text, at: at}
		}
		t := newBlock(at)
		for _, f := range s.fields {
			sub := at
			sub.key = join(at.key, f.name)
			fv := v.FieldByIndex(f.index)
			if s.text && fv.IsZero() {
				continue // an item with a short form names only what it sets
			}
			if c := treeOf(f.shape, fv, sub); c != nil {
				t.set(f.name, c)
			}
		}
		return t
	case kindList:
		if v.IsNil() {
			return nil
		}
		t := &tree{kind: kindList, at: at, items: []*tree{}}
		for i := range v.Len() {
			sub := at
			sub.key = fmt.Sprintf("%s[%d]", at.key, i)
			if c := treeOf(s.elem, v.Index(i), sub); c != nil {
				t.items = append(t.items, c)
			}
		}
		return t
	case kindText:
		if m, ok := v.Interface().(fmt.Stringer); ok {
			return &tree{kind: kindText, val: m.String(), at: at}
		}
	}
	t := &tree{kind: s.kind, at: at}
	switch s.kind {
	case kindDuration:
		t.val = time.Duration(v.Int())
	case kindSize:
		t.val = v.Int()
	case kindInt:
		if v.CanUint() {
			t.val = int(v.Uint())
		} else {
			t.val = int(v.Int())
		}
	case kindFloat:
		t.val = v.Float()
	case kindBool:
		t.val = v.Bool()
	default:
		t.val = v.String()
	}
	return t
}

// textForm is the short form of an item that may be a string: the value of a field that alone makes the whole item.
func textForm(s *shape, v reflect.Value) string {
	if !s.text {
		return ""
	}
	for _, f := range s.fields {
		text := ""
		if f.shape.kind == kindString {
			text = v.FieldByIndex(f.index).String()
		}
		again := reflect.New(s.typ)
		if text == "" || again.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)) != nil {
			continue
		}
		if reflect.DeepEqual(again.Elem().Interface(), v.Interface()) {
			return text
		}
	}
	return ""
}

// overlay lays top over base: blocks key by key, lists of named items item by item, everything else whole. Neither
// argument is changed.
func overlay(s *shape, base, top *tree) *tree {
	switch {
	case base == nil:
		return top
	case top == nil:
		return base
	case s.kind == kindStruct && base.kind == kindStruct && top.kind == kindStruct:
		out := newBlock(top.at)
		for _, f := range s.fields {
			if v := overlay(f.shape, base.block[f.name], top.block[f.name]); v != nil {
				out.set(f.name, v)
			}
		}
		return out
	case s.kind == kindList && s.elem.named() && base.kind == kindList && top.kind == kindList:
		out := &tree{kind: kindList, at: top.at, items: append([]*tree{}, base.items...)}
	next:
		for _, item := range top.items {
			for i, b := range out.items {
				if b.name() != "" && b.name() == item.name() {
					out.items[i] = overlay(s.elem, b, item)
					continue next
				}
			}
			out.items = append(out.items, item)
		}
		return out
	}
	return top
}

// named tells whether items of this shape are known by their name.
func (s *shape) named() bool { return s.kind == kindStruct && s.field("name") != nil }

func (t *tree) name() string {
	if t.kind != kindStruct || t.block["name"] == nil {
		return ""
	}
	n, _ := t.block["name"].val.(string)
	return n
}

// complete fills what list items leave out with the defaults of their type.
func complete(s *shape, t *tree) *tree {
	if t == nil {
		return nil
	}
	switch {
	case s.kind == kindStruct && t.kind == kindStruct:
		for _, f := range s.fields {
			if v := t.block[f.name]; v != nil {
				t.block[f.name] = complete(f.shape, v)
			}
		}
	case s.kind == kindList && s.elem.kind == kindStruct:
		def := itemDefaults(s.elem.typ)
		if def == nil {
			break
		}
		for i, item := range t.items {
			at := place{from: fromDefault}
			full := overlay(s.elem, treeOf(s.elem, reflect.ValueOf(def), at), item)
			full.at = item.at
			t.items[i] = complete(s.elem, full)
		}
	}
	return t
}
