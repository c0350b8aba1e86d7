package configs

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a file, so that no file can hold up a start or a reload.
const (
	maxFile   = 16 << 20 // bytes
	maxRepeat = 100_000  // values that aliases and merged blocks repeat
	maxDepth  = 40
	maxTold   = 200 // problems of one source that are told
	maxInText = 60  // runes of a value that a message repeats
)

// parser turns one source into a checked tree and collects every problem on the way.
type parser struct {
	at       place // from and name of the source
	root     *shape
	repeats  int // depth of aliases and merged blocks around the value at hand
	repeated int // values below them so far
	problems []Problem
	unread   bool // not YAML: nothing of it is known
}

// parse reads YAML with the schema s. The tree holds only what is right; the rest is in p.problems. An empty source is
// an empty block.
func (p *parser) parse(s *shape, data []byte) *tree {
	p.root = s
	if len(data) > maxFile {
		p.add(place{from: p.at.from, name: p.at.name}, "is larger than 16 MiB", true)
		return newBlock(p.at)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decodeNode(dec, &doc); err != nil {
		if !errors.Is(err, io.EOF) {
			p.syntax(err, data)
		}
		return newBlock(p.at)
	}
	var second yaml.Node
	switch err := decodeNode(dec, &second); {
	case err == nil:
		p.add(p.line(second.Line, ""), "a second document begins here; one file holds one configuration", false)
	case !errors.Is(err, io.EOF):
		p.syntax(err, data)
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return newBlock(p.at)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		p.add(p.line(root.Line, ""), "the file must be a block of keys, such as listen: 127.0.0.1:3128", false)
		return newBlock(p.at)
	}
	if t := p.value(s, root, p.line(root.Line, ""), 0); t != nil {
		return t
	}
	return newBlock(p.at)
}

// decodeNode keeps a panic of the YAML library, should there be one, from ending the process.
func decodeNode(dec *yaml.Decoder, n *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	return dec.Decode(n)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// tabbed finds a line that is indented by a tab, which YAML does not take.
var tabbed = regexp.MustCompile(`(?m)^ *\t`)

func (p *parser) syntax(err error, data []byte) {
	text := err.Error()
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		text = text[len(m[0]):]
	}
	if line == 0 && strings.Contains(text, "cannot start any token") {
		line = 1 // left out where it is the first
	}
	if at := tabbed.FindIndex(data); at != nil && strings.Contains(text, "cannot start any token") {
		line, text = 1+bytes.Count(data[:at[0]], []byte("\n")), "tabs cannot indent; use spaces"
	}
	p.unread = true
	p.add(p.line(line, ""), "not YAML: "+text, false)
}

func (p *parser) line(line int, key string) place {
	return place{from: p.at.from, name: p.at.name, line: line, key: key}
}

func (p *parser) add(at place, text string, sentence bool) {
	switch {
	case len(p.problems) > maxTold:
		return
	case len(p.problems) == maxTold:
		at, text, sentence = p.line(0, ""), "there are more; these are the first", false
	}
	pr := at.problem(text)
	pr.sentence = sentence
	p.problems = append(p.problems, pr)
}

// value checks one node against its schema; nil when it is absent or wrong.
func (p *parser) value(s *shape, n *yaml.Node, at place, depth int) *tree {
	if p.repeats > 0 {
		p.repeated++
	}
	if p.repeated > maxRepeat || depth > maxDepth {
		if p.repeated < math.MaxInt/2 {
			p.repeated = math.MaxInt / 2 // say it once
			p.add(at, "nests too deep or repeats too much", true)
		}
		return nil
	}
	if n.Kind == yaml.AliasNode {
		p.repeats++
		defer func() { p.repeats-- }()
		return p.value(s, n.Alias, at, depth+1)
	}
	if isNull(n) {
		return nil
	}
	if tag := n.ShortTag(); !strings.HasPrefix(tag, "!!") {
		p.add(at, fmt.Sprintf("the tag %s means nothing here", quote(tag)), false)
		return nil
	}
	switch {
	case s.kind == kindStruct && n.Kind == yaml.MappingNode:
		return p.fields(s, n, at, depth)
	case s.kind == kindStruct && s.text && n.Kind == yaml.ScalarNode:
		return p.text(s, n, at)
	case s.kind == kindStruct && s.text:
		p.add(at, "must be text or a block of keys", true)
	case s.kind == kindStruct:
		p.add(at, "must be a block of keys: "+keyList(s), true)
	case s.kind == kindList && n.Kind == yaml.SequenceNode:
		return p.list(s, n, at, depth)
	case s.kind == kindList && s.text && n.Kind == yaml.ScalarNode:
		return p.only(s, n, at)
	case s.kind == kindList && n.Kind == yaml.ScalarNode:
		p.add(at, fmt.Sprintf("must be a list; write [%s]", short(n.Value)), true)
	case s.kind == kindList:
		p.add(at, "must be a list; begin each item with a dash", true)
	case n.Kind != yaml.ScalarNode:
		p.add(at, "must be one value, "+s.noun(), true)
	case s.kind == kindText:
		return p.text(s, n, at)
	default:
		v, err := scalar(s.kind, n)
		if err != nil {
			p.add(at, err.Error(), false)
			return nil
		}
		return &tree{kind: s.kind, val: v, at: at}
	}
	return nil
}

// text is a string whose own type judges it.
func (p *parser) text(s *shape, n *yaml.Node, at place) *tree {
	v, err := scalar(kindString, n)
	if err == nil {
		err = reflect.New(s.typ).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(v.(string)))
	}
	if err != nil {
		p.add(at, err.Error(), false)
		return nil
	}
	return &tree{kind: kindText, val: v, at: at}
}

// only is a list that is written as its one item; an empty text is the empty list.
func (p *parser) only(s *shape, n *yaml.Node, at place) *tree {
	v, err := scalar(s.elem.kind, n)
	if err != nil {
		p.add(at, err.Error(), false)
		return nil
	}
	t := &tree{kind: kindList, at: at, items: []*tree{}}
	if v != "" {
		t.items = append(t.items, &tree{kind: s.elem.kind, val: v, at: at})
	}
	return t
}

func (p *parser) list(s *shape, n *yaml.Node, at place, depth int) *tree {
	t := &tree{kind: kindList, at: at, items: []*tree{}}
	names := map[string]int{}
	for i, item := range n.Content {
		here := p.line(item.Line, fmt.Sprintf("%s[%d]", at.key, i))
		if at.from == fromEnv || at.from == fromFlag {
			here = at
		}
		if isNull(item) {
			p.add(here, "is empty", true)
			continue
		}
		v := p.value(s.elem, item, here, depth+1)
		if v == nil && s.elem.kind != kindStruct {
			continue
		}
		if v == nil {
			v = newBlock(here) // wrong and reported; it keeps its place, so that later items keep their number
		} else if s.elem.named() {
			switch name := v.name(); {
			case name == "" && !keyed(item, "name"):
				at := here
				if at.from == fromFile || at.from == fromClients || at.from == fromPreset {
					at.key = join(at.key, "name")
				}
				p.add(at, "is missing", true)
			case name != "" && names[name] != 0:
				p.add(v.block["name"].at, fmt.Sprintf("%q is used twice; first on line %d", name, names[name]), false)
			case name != "":
				names[name] = v.block["name"].at.line
			}
		}
		t.items = append(t.items, v)
	}
	return t
}

// keyed tells whether a block has the key, right or wrong.
func keyed(n *yaml.Node, key string) bool {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			v := n.Content[i+1]
			return !isNull(v) && v.Value != ""
		}
	}
	return false
}

func (p *parser) fields(s *shape, n *yaml.Node, at place, depth int) *tree {
	t := newBlock(at)
	seen := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		here := p.line(k.Line, join(at.key, cmp.Or(short(k.Value), `""`)))
		if k.Kind != yaml.ScalarNode {
			p.add(p.line(k.Line, at.key), "a key must be a word", false)
			continue
		}
		if k.Value == "<<" && k.ShortTag() == "!!merge" {
			merged = append(merged, v)
			continue
		}
		if first, ok := seen[k.Value]; ok {
			p.add(here, fmt.Sprintf("is given twice; first on line %d", first), true)
			continue
		}
		seen[k.Value] = k.Line
		f := s.field(k.Value)
		if f == nil {
			hint, meant := p.suggest(s, k.Value)
			p.add(here, "is not a key"+hint, true)
			if meant != "" {
				p.problems[len(p.problems)-1].meant = join(at.key, meant)
			}
			continue
		}
		if c := p.value(f.shape, v, here, depth+1); c != nil {
			t.set(f.name, c)
		}
	}
	for _, m := range merged {
		p.merge(s, t, m, at, depth)
	}
	return t
}

// merge gives a block the keys of `<<: *anchor` that it does not set itself.
func (p *parser) merge(s *shape, t *tree, n *yaml.Node, at place, depth int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			if c.Kind != yaml.SequenceNode {
				p.merge(s, t, c, at, depth)
			}
		}
		return
	}
	if n.Kind != yaml.MappingNode {
		p.add(p.line(n.Line, join(at.key, "<<")), "must name a block of keys", true)
		return
	}
	p.repeats++
	defer func() { p.repeats-- }()
	if m := p.value(s, n, at, depth+1); m != nil && m.kind == kindStruct {
		for _, k := range m.keys {
			if t.block[k] == nil {
				t.set(k, m.block[k])
			}
		}
	}
}
