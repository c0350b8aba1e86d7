package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// orderedObject is a JSON object whose keys keep their order: events have a
// fixed one, and a map would lose it.
type orderedObject []member

type member struct {
	key   string
	value json.RawMessage
	child orderedObject // for an object
}

var errNoObject = errors.New("not a JSON object")

// UnmarshalJSON reads an object, one level at a time.
func (o *orderedObject) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(errNoObject, err)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return errNoObject
		}
		m := member{key: key}
		if err := d.Decode(&m.value); err != nil {
			return err
		}
		if len(m.value) > 0 && m.value[0] == '{' {
			if err := json.Unmarshal(m.value, &m.child); err != nil {
				return err
			}
		}
		*o = append(*o, m)
	}
	return nil
}

// empty values say nothing to a reader: a field of every event that this one
// has no use for.
func (m member) empty() bool {
	switch s := string(m.value); s {
	case `""`, "0", "null", "[]", "{}", "false", `"0001-01-01T00:00:00Z"`:
		return true
	}
	for _, c := range m.child {
		if !c.empty() {
			return false
		}
	}
	return m.child != nil
}

// write lays the object out, one field a line.
func (o orderedObject) write(b *strings.Builder, indent string) {
	for _, m := range o {
		if m.empty() {
			continue
		}
		b.WriteString(indent + clean(m.key))
		if m.child != nil {
			b.WriteString("\n")
			m.child.write(b, indent+"  ")
			continue
		}
		b.WriteString(": " + m.text() + "\n")
	}
}

// text is a string without its quotes, anything else as it stands.
func (m member) text() string {
	var s string
	if json.Unmarshal(m.value, &s) == nil {
		return clean(s)
	}
	var list []string
	if json.Unmarshal(m.value, &list) == nil {
		return clean(strings.Join(list, ", "))
	}
	return clean(string(m.value))
}
