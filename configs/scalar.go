package configs

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

var plainInt = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// scalar reads one value without any guessing between types.
func scalar(k kind, n *yaml.Node) (any, error) {
	tag, v := n.ShortTag(), n.Value
	switch k {
	case kindString:
		switch tag {
		case "!!str":
			return v, nil
		case "!!bool", "!!int", "!!float", "!!timestamp":
			return nil, fmt.Errorf("%s is %s; write it in quotes for text", short(v), tagNoun[tag])
		}
		return nil, fmt.Errorf("%s is not text", short(v))
	case kindBool:
		if tag != "!!bool" {
			return nil, fmt.Errorf("%s is not true or false", quote(v))
		}
		return strings.EqualFold(v, "true"), nil
	case kindInt:
		if tag == "!!str" && plainInt.MatchString(v) {
			return nil, fmt.Errorf("%s is text; write it without quotes", quote(v))
		}
		if tag != "!!int" || !plainInt.MatchString(v) {
			return nil, fmt.Errorf("%s is not a whole number", quote(v))
		}
		i, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s is too large", short(v))
		}
		return int(i), nil
	case kindFloat:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || (tag != "!!int" && tag != "!!float") || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(v, "_xX") {
			return nil, fmt.Errorf("%s is not a number", quote(v))
		}
		return f, nil
	case kindSize:
		if tag == "!!int" && !plainInt.MatchString(v) {
			return nil, fmt.Errorf("%s is not a plain count of bytes", quote(v))
		}
		return parseSize(short(v))
	case kindDuration:
		return parseDuration(short(v))
	}
	return nil, fmt.Errorf("%s cannot be read", quote(v))
}

var tagNoun = map[string]string{"!!bool": "true or false", "!!int": "a number", "!!float": "a number", "!!timestamp": "a date"}

func (s *shape) noun() string {
	switch s.kind {
	case kindBool:
		return "true or false"
	case kindInt, kindFloat:
		return "a number"
	case kindSize:
		return "a size such as 64MiB"
	case kindDuration:
		return "a duration such as 1s"
	}
	return "text"
}

// short is a value cut to what a message can carry; quote is the same in quotes.
func short(v string) string {
	if r := []rune(v); len(r) > maxInText {
		return string(r[:maxInText]) + "..."
	}
	return v
}

func quote(v string) string { return strconv.Quote(short(v)) }

// fromText reads a value that came as text (a variable, a flag). Lists are YAML in one line: [80, 443].
func fromText(s *shape, value string, at place) (*tree, []Problem) {
	p := &parser{at: at, root: s}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	switch s.kind {
	case kindString, kindText:
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	case kindList:
		var doc yaml.Node
		err := decodeNode(yaml.NewDecoder(strings.NewReader(value)), &doc)
		if s.text && !strings.HasPrefix(strings.TrimSpace(value), "[") {
			n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
			break
		}
		if err != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.SequenceNode {
			p.add(at, "is a list; write it as [a, b]", true)
			return nil, p.problems
		}
		n = doc.Content[0]
	default:
		if strings.TrimSpace(value) == "" || isNull(n) {
			p.add(at, "must be "+s.noun(), true)
			return nil, p.problems
		}
	}
	return p.value(s, n, at, 0), p.problems
}
