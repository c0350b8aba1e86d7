package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write golden files")

func TestSchemaIsCurrent(t *testing.T) {
	want, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("event.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(EventSchema, want) {
		t.Error("event.schema.json is not what the table of fields gives: go test ./audit -update")
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(EventSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("event.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("event.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEventsFollowSchema validates real lines of each type, and sees that a line without a key is refused.
func TestEventsFollowSchema(t *testing.T) {
	s := compileSchema(t)
	c := Defaults()
	c.Sync = syncIntent
	l := openTest(t, c, t.TempDir())
	ctx := context.Background()
	for _, typ := range typeNames {
		e := fullEvent(t)
		e.Type = typ.name
		switch typ.name {
		case TypeIntent:
			e.Type = ""
			if err := l.Intent(ctx, e); err != nil {
				t.Fatal(err)
			}
		case TypeCheckpoint, TypeStart, TypeStop:
			continue // the log writes its own
		}
		if err := l.Record(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	empty := &Event{}
	if err := l.Record(ctx, empty); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range bytes.Lines(text) {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s\n%v", line, err)
		}
		m := doc.(map[string]any)
		seen[m["type"].(string)] = true
		delete(m, "time")
		if s.Validate(doc) == nil {
			t.Errorf("a %v event without time is accepted", m["type"])
		}
	}
	for _, typ := range typeNames {
		if !seen[typ.name] {
			t.Errorf("no %s event in the log", typ.name)
		}
	}
}

// TestRoundTrip: what is read back writes the same bytes, so no field is lost between struct, table and schema.
func TestRoundTrip(t *testing.T) {
	l := openTest(t, Defaults(), t.TempDir())
	if err := l.Record(context.Background(), fullEvent(t)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		e, err := Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, line) {
			t.Errorf("got  %s\nwant %s", got, line)
		}
		if e.Type != TypeRequest {
			continue
		}
		// Every field of a full event has a value, else this test would not see it get lost.
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		for _, f := range byType[TypeRequest] {
			v := m[f.key]
			if f.group != "" {
				v = m[f.group].(map[string]any)[f.key]
			}
			switch v {
			case nil, "", 0.0, false:
				if f.key != "query_masked" && f.key != "hops" {
					t.Errorf("%s is empty in the full event", f.name())
				}
			}
		}
	}
}
