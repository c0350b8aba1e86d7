package configs

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
)

//go:generate go test -run TestSchemaFile -update .

// kind is what a value of the file may be.
type kind int

const (
	kindString kind = iota
	kindBool
	kindInt
	kindFloat
	kindSize     // int64: bytes, with or without a unit
	kindDuration // a unit is demanded
	kindText     // a string that its type parses (encoding.TextUnmarshaler)
	kindList
	kindStruct
)

// shape is the schema of one value, read from the Go type by its mapstructure tags.
type shape struct {
	kind   kind
	typ    reflect.Type
	text   bool    // a struct, or a list of texts, that may also be written as a string
	elem   *shape  // of a list
	fields []field // of a struct, in the order of the type
}

type field struct {
	name  string
	shape *shape
	index []int
}

func (s *shape) field(name string) *field {
	for i := range s.fields {
		if s.fields[i].name == name {
			return &s.fields[i]
		}
	}
	return nil
}

var (
	typDuration = reflect.TypeFor[time.Duration]()
	typText     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// shapeOf panics on a type that the loader cannot read: that is a fault of the program, caught by every test.
func shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &shape{typ: t}
	text := reflect.PointerTo(t).Implements(typText)
	switch {
	case t == typDuration:
		s.kind = kindDuration
	case t.Kind() == reflect.Struct:
		s.kind, s.text = kindStruct, text
		s.fields = fieldsOf(t, nil)
		if len(s.fields) == 0 && text {
			s.kind, s.text = kindText, false
		}
	case text && t.Kind() == reflect.Slice:
		s.kind, s.text, s.elem = kindList, true, shapeOf(t.Elem())
	case text:
		s.kind = kindText
	case t.Kind() == reflect.String:
		s.kind = kindString
	case t.Kind() == reflect.Bool:
		s.kind = kindBool
	case t.Kind() == reflect.Int64:
		s.kind = kindSize
	case t.Kind() == reflect.Int, t.Kind() == reflect.Uint16:
		s.kind = kindInt
	case t.Kind() == reflect.Float64:
		s.kind = kindFloat
	case t.Kind() == reflect.Slice:
		s.kind, s.elem = kindList, shapeOf(t.Elem())
	default:
		panic(fmt.Sprintf("configs: type %s cannot be a setting", t))
	}
	return s
}

func fieldsOf(t reflect.Type, index []int) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		at := append(append([]int{}, index...), i)
		if opts == "squash" {
			out = append(out, fieldsOf(f.Type, at)...)
			continue
		}
		if name == "" {
			panic(fmt.Sprintf("configs: field %s.%s has no mapstructure tag", t, f.Name))
		}
		out = append(out, field{name: name, shape: shapeOf(f.Type), index: at})
	}
	return out
}

// configShape is the schema of the whole file; it is never changed.
var configShape = sync.OnceValue(func() *shape { return shapeOf(reflect.TypeFor[Config]()) })

// walkLeaves calls fn for every key outside lists: scalars and lists themselves, with its path (a.b.c).
func (s *shape) walkLeaves(path string, fn func(path string, s *shape)) {
	if s.kind != kindStruct {
		fn(path, s)
		return
	}
	for _, f := range s.fields {
		f.shape.walkLeaves(join(path, f.name), fn)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
