package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// exportEvents are one of each kind that exports treat differently.
func exportEvents(t *testing.T) []*Event {
	red := newRedactor(Defaults(), []byte("key"))
	full := fullEvent(t)
	full.ID = "0123456789ABCDEFGHJK"
	refused := &Event{ID: "R", Time: full.Time, Method: "BREW", Decision: Refused, Reason: "address-denied", Class: "addr_private", UserAgent: "=cmd()", Client: Client{IP: "hmac:00ff", Name: "@team"}}
	refused.SetURL(parse(t, "http://[2001:db8::7]:8080/?token=abc"))
	refused.Upstream = Upstream{IP: "10.0.0.12", Port: 8080, Resolved: []string{"10.0.0.12"}}
	failed := &Event{ID: "F", Time: full.Time, Method: "GET", Host: "example.com", Decision: Failed, Reason: "upstream-timeout"}
	cancelled := &Event{Type: TypeTunnel, ID: "C", Time: full.Time, Method: "CONNECT", Host: "example.com", Port: 443, Decision: Cancelled}
	robots := &Event{Type: TypeRobots, ID: "B", Time: full.Time, Method: "GET", Host: "example.com", Decision: Forwarded, Reason: "ok", Status: 200, Hops: 1}
	intent := &Event{Type: TypeIntent, ID: "I", Time: full.Time, Method: "GET", Host: "example.com"}
	gap := &Event{Type: TypeGap, Time: full.Time, Class: "queue_full", FromSeq: 7, Lost: 3}
	list := []*Event{full, refused, failed, cancelled, robots, intent, gap}
	for i, e := range list {
		if e.Type == "" {
			e.Type = TypeRequest
		}
		e.Schema, e.Seq, e.Prev, e.Hash = Schema, uint64(i+1), zeroHash, zeroHash
		red.apply(e)
	}
	return list
}

// TestExportGolden pins each format; `go test ./audit -update` writes them anew.
func TestExportGolden(t *testing.T) {
	for _, format := range []string{FormatECS, FormatOCSF, FormatCSV} {
		var b bytes.Buffer
		x, err := NewExporter(format, &b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range exportEvents(t) {
			if err := x.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Flush(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "export", "events."+format)
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s is not as in %s:\n%s", format, path, b.Bytes())
		}
	}
	if _, err := NewExporter("xml", &bytes.Buffer{}); err == nil {
		t.Error("a format nobody knows")
	}
}

func lookup(m map[string]any, name string) any {
	for {
		group, rest, found := strings.Cut(name, ".")
		if !found {
			return m[name]
		}
		inner, ok := m[group].(map[string]any)
		if !ok {
			return nil
		}
		m, name = inner, rest
	}
}

// TestExportMeaning pins what the schemas' own rules ask for.
func TestExportMeaning(t *testing.T) {
	list := exportEvents(t)
	for _, c := range []struct {
		event            int
		kind, outcome    string
		action, activity int
		disposition      int
	}{{0, "allowed", "success", 1, 3, 1}, {1, "denied", "success", 2, 99, 2}, {2, "allowed", "failure", 1, 3, 1}, {3, "allowed", "unknown", 1, 1, 1}} {
		ecs, ocsf := toECS(list[c.event]), toOCSF(list[c.event])
		if got := lookup(ecs, "event.type").([]string)[0]; got != c.kind {
			t.Errorf("event %d: event.type %s", c.event, got)
		}
		if got := lookup(ecs, "event.outcome"); got != c.outcome {
			t.Errorf("event %d: event.outcome %v", c.event, got)
		}
		if a, b, d := ocsf["action_id"], ocsf["activity_id"], ocsf["disposition_id"]; a != c.action || b != c.activity || d != c.disposition {
			t.Errorf("event %d: action %v activity %v disposition %v", c.event, a, b, d)
		}
		if ocsf["type_uid"] != 400200+c.activity || ocsf["time"] != list[c.event].Time.UnixMilli() {
			t.Errorf("event %d: %v", c.event, ocsf)
		}
	}
	if got := lookup(toECS(list[0]), "event.duration"); got != 4*int64(time.Millisecond) {
		t.Errorf("duration %v, want nanoseconds", got)
	}
	if got := lookup(toECS(list[1]), "client.ip"); got != nil {
		t.Errorf("a hash as client.ip: %v", got)
	}
}

// TestOCSFRequires holds every event to what the classes of OCSF 1.3 require: the attributes of HTTP Activity with the
// profiles they are from, at least one of request and answer, of the endpoints, and of a rule's names; and in the base
// event nothing that it does not know.
func TestOCSFRequires(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	list := append(exportEvents(t),
		&Event{Type: TypeRequest, ID: "U", Time: now, Client: Client{IP: "192.0.2.1"}, Decision: Refused, Reason: "bad-request", Answered: 400},
		&Event{Type: TypeRobots, ID: "D", Time: now, Method: "GET", Host: "example.com", Decision: Failed, Reason: "dns-failed"},
		&Event{Type: TypeRobots, ID: "L", Time: now, Method: "GET", Host: "[2001:db8::1]", Decision: Refused, Reason: "site-stopped"},
		&Event{Type: TypeRequest, ID: "N", Time: now, Method: "GET", Host: "example.com", Decision: Forwarded, Reason: "ok", Rule: Rule{Group: "*"}},
		&Event{Type: TypeConfig, Time: now, PolicySHA256: zeroHash},
	)
	base := []string{"activity_id", "category_uid", "class_uid", "message", "metadata", "severity_id", "status_code", "status_detail", "time", "type_uid", "unmapped"}
	for _, e := range list {
		m := toOCSF(e)
		has := func(name string) bool { return lookup(m, name) != nil }
		if e.Type == TypeConfig || e.Type == TypeGap {
			for key := range m {
				if !slices.Contains(base, key) {
					t.Errorf("%s: the base event has no %s", e.Type, key)
				}
			}
			continue
		}
		for _, name := range []string{"action_id", "activity_id", "category_uid", "disposition_id", "metadata.product.name", "metadata.profiles", "metadata.version", "severity_id", "time", "type_uid"} {
			if !has(name) {
				t.Errorf("%s %s: no %s", e.Type, e.ID, name)
			}
		}
		if m["class_uid"] != 4002 || !has("http_request") && !has("http_response") || !has("src_endpoint") && !has("dst_endpoint") {
			t.Errorf("%s %s: class %v, or neither request nor answer, or no endpoint", e.Type, e.ID, m["class_uid"])
		}
		if has("firewall_rule") && !has("firewall_rule.uid") && !has("firewall_rule.name") {
			t.Errorf("%s %s: a rule without name and uid", e.Type, e.ID)
		}
		for _, name := range []string{"src_endpoint.ip", "dst_endpoint.ip"} {
			if !has(name) {
				continue
			}
			if _, err := netip.ParseAddr(lookup(m, name).(string)); err != nil {
				t.Errorf("%s %s: %s is %v", e.Type, e.ID, name, err)
			}
		}
	}
}

// TestExportNames: no name of a schema is filled from two fields, nor is one the group of another.
func TestExportNames(t *testing.T) {
	for schema, names := range map[string]func(*field) []string{"ecs": func(f *field) []string { return f.ecs }, "ocsf": func(f *field) []string { return f.ocsf }} {
		seen := map[string]string{}
		for i := range fields {
			f := &fields[i]
			if len(names(f)) == 0 || f.doc == "" {
				t.Errorf("%s has no place in %s, or no words", f.name(), schema)
			}
			for _, name := range names(f) {
				if other := seen[name]; other != "" {
					t.Errorf("%s: %s from %s and %s", schema, name, other, f.name())
				}
				seen[name] = f.name()
			}
		}
		for name := range seen {
			for group, rest, found := strings.Cut(name, "."); found; {
				if seen[group] != "" {
					t.Errorf("%s: %s is a value and a group", schema, group)
				}
				var next string
				next, rest, found = strings.Cut(rest, ".")
				group += "." + next
			}
		}
	}
}

// TestCSVFormulas: a spreadsheet runs nothing that a stranger wrote.
func TestCSVFormulas(t *testing.T) {
	var b bytes.Buffer
	x, err := NewExporter(FormatCSV, &b)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Write(exportEvents(t)[1]); err != nil {
		t.Fatal(err)
	}
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range rows[0] {
		switch name {
		case "user_agent":
			if rows[1][i] != "'=cmd()" {
				t.Errorf("user agent %s", rows[1][i])
			}
		case "client.name":
			if rows[1][i] != "'@team" {
				t.Errorf("client %s", rows[1][i])
			}
		}
	}
	if len(rows[0]) != len(rows[1]) {
		t.Errorf("%d names, %d values", len(rows[0]), len(rows[1]))
	}
}

// TestFieldsDocument: the table for people names each field once, with all its columns.
func TestFieldsDocument(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(FieldsMarkdown()), "\n")
	if len(lines) != len(fields)+2 {
		t.Errorf("%d lines for %d fields", len(lines), len(fields))
	}
	for _, line := range lines {
		if strings.Count(line, "|") != 7 {
			t.Error(line)
		}
	}
	var schema map[string]any
	if err := json.Unmarshal(EventSchema, &schema); err != nil {
		t.Fatal(err)
	}
	for _, d := range Fields() {
		for _, typ := range d.Types {
			group, key, found := strings.Cut(d.Name, ".")
			path := "$defs." + typ + ".properties." + group
			if found {
				path += ".properties." + key
			}
			if lookup(schema, path) == nil {
				t.Errorf("the schema has no %s of %s", d.Name, typ)
			}
		}
	}
}
