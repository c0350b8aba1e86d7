package audit

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Formats of an export.
const (
	FormatECS  = "ecs"  // Elastic Common Schema, one JSON object a line
	FormatOCSF = "ocsf" // OCSF HTTP Activity (class 4002), one JSON object a line
	FormatCSV  = "csv"  // all fields, a header first
)

// Versions of the schemas written to.
const (
	ecsVersion  = "8.11.0"
	ocsfVersion = "1.3.0"
)

// Exporter writes events in another schema. Both schemas and the documentation come from the table of fields; what is
// computed and not copied stands in [Exporter.Write]'s helpers below.
type Exporter struct {
	format string
	w      *bufio.Writer
	json   *json.Encoder
	csv    *csv.Writer
}

// NewExporter begins an export; csv gets its header.
func NewExporter(format string, w io.Writer) (*Exporter, error) {
	x := &Exporter{format: format, w: bufio.NewWriter(w)}
	x.json = json.NewEncoder(x.w)
	x.json.SetEscapeHTML(false)
	switch format {
	case FormatECS, FormatOCSF:
		return x, nil
	case FormatCSV:
		x.csv = csv.NewWriter(x.w)
		return x, x.csv.Write(csvHeader())
	}
	return nil, fmt.Errorf("%q is not one of %s, %s, %s", format, FormatECS, FormatOCSF, FormatCSV)
}

// Write exports one event.
func (x *Exporter) Write(e *Event) error {
	switch x.format {
	case FormatECS:
		return x.json.Encode(toECS(e))
	case FormatOCSF:
		return x.json.Encode(toOCSF(e))
	}
	return x.csv.Write(csvRow(e))
}

// Flush writes what is buffered.
func (x *Exporter) Flush() error {
	if x.csv != nil {
		x.csv.Flush()
		if err := x.csv.Error(); err != nil {
			return err
		}
	}
	return x.w.Flush()
}

// value is a field's value as JSON has it, nil when it says nothing: empty text, no time, a port or status of 0.
func (f *field) value(e *Event) any {
	switch {
	case f.str != nil:
		if s := f.str(e); s != "" {
			return s
		}
	case f.num != nil:
		n := f.num(e)
		if n != 0 || strings.HasSuffix(f.key, "_ms") || strings.HasPrefix(f.key, "bytes_") {
			return n
		}
	case f.yes != nil:
		return f.yes(e)
	case f.at != nil:
		if t := f.at(e); !t.IsZero() {
			return string(trimQuotes(appendTime(nil, t)))
		}
	default:
		if l := f.list(e); len(l) > 0 {
			return l
		}
	}
	return nil
}

func trimQuotes(b []byte) []byte { return b[1 : len(b)-1] }

// put sets a value at a dotted name.
func put(m map[string]any, name string, v any) {
	for {
		group, rest, found := strings.Cut(name, ".")
		if !found {
			m[name] = v
			return
		}
		inner, ok := m[group].(map[string]any)
		if !ok {
			inner = map[string]any{}
			m[group] = inner
		}
		m, name = inner, rest
	}
}

func toECS(e *Event) map[string]any {
	m := map[string]any{}
	for _, f := range byType[e.Type] {
		v := f.value(e)
		if v == nil {
			continue
		}
		for _, name := range f.ecs {
			switch {
			case strings.HasPrefix(name, "labels."):
				put(m, name, label(v)) // labels are keywords
			case name == "rule.id":
				put(m, name, label(v))
			case strings.HasSuffix(name, ".ip") && f.group == "client" && strings.HasPrefix(e.Client.IP, "hmac:"):
				put(m, strings.TrimSuffix(name, ".ip")+".address", v) // not an address any more
			case name == "url.domain":
				put(m, name, strings.Trim(e.Host, "[]"))
			case name == "http.response.mime_type":
				mime, _, _ := strings.Cut(e.ContentType, ";")
				put(m, name, strings.TrimSpace(mime))
			default:
				put(m, name, v)
			}
		}
	}
	put(m, "ecs.version", ecsVersion)
	put(m, "event.kind", "event")
	put(m, "event.category", []string{"network", "web"})
	put(m, "event.action", e.Type)
	put(m, "event.sequence", e.Seq)
	put(m, "event.hash", e.Hash)
	put(m, "labels.prev", e.Prev)
	put(m, "observer.type", "proxy")
	put(m, "observer.product", "crawlgate")
	if bitOf(e.Type)&onTraffic == 0 {
		put(m, "event.type", []string{"info"})
		return m
	}
	put(m, "network.direction", "outbound")
	if e.SentAt.IsZero() {
		put(m, "event.start", m["@timestamp"])
	}
	if _, rest, ok := strings.Cut(e.URL.s, "://"); ok {
		path, query, found := strings.Cut(rest, "?")
		if i := strings.IndexByte(path, '/'); i >= 0 {
			put(m, "url.path", path[i:])
		}
		if found {
			put(m, "url.query", query)
		}
	}
	if bitOf(e.Type)&onEnds == 0 {
		put(m, "event.type", []string{"start"})
		return m
	}
	put(m, "event.duration", e.TotalMS*int64(time.Millisecond))
	// Allowed or denied is event.type's; the outcome says whether the gate could do its task (ECS, categorization fields).
	kind, outcome := "allowed", "success"
	switch e.Decision {
	case Refused:
		kind = "denied"
	case Failed:
		outcome = "failure"
	case Cancelled:
		outcome = "unknown"
	}
	put(m, "event.type", []string{kind})
	put(m, "event.outcome", outcome)
	return m
}

// label is a value as one keyword.
func label(v any) string {
	if l, ok := v.([]string); ok {
		return strings.Join(l, " ")
	}
	return fmt.Sprint(v)
}

// ocsfActivities are HTTP Activity's activity_id by method.
var ocsfActivities = map[string]int{"CONNECT": 1, "DELETE": 2, "GET": 3, "HEAD": 4, "OPTIONS": 5, "POST": 6, "PUT": 7, "TRACE": 8}

func toOCSF(e *Event) map[string]any {
	m := map[string]any{}
	for _, f := range byType[e.Type] {
		v := f.value(e)
		if v == nil {
			continue
		}
		for _, name := range f.ocsf {
			switch name {
			case "time":
				put(m, "time", e.Time.UnixMilli())
			case "observables":
				var list []map[string]any
				for _, ip := range e.Upstream.Resolved {
					list = append(list, map[string]any{"name": "dst_endpoint.ip", "type_id": 2, "value": ip})
				}
				put(m, name, list)
			case "firewall_rule.uid":
				put(m, name, label(v))
			case "src_endpoint.ip":
				if strings.HasPrefix(e.Client.IP, "hmac:") {
					name = "src_endpoint.uid" // not an address any more
				}
				put(m, name, v)
			default:
				put(m, name, v)
			}
		}
	}
	put(m, "metadata.version", ocsfVersion)
	put(m, "metadata.product.name", "crawlgate")
	put(m, "metadata.product.vendor_name", "crawlgate")
	put(m, "metadata.event_code", e.Type)
	put(m, "metadata.sequence", e.Seq)
	put(m, "metadata.original_event_uid", e.Hash)
	put(m, "unmapped.prev", e.Prev)
	put(m, "severity_id", 1)
	if bitOf(e.Type)&onTraffic == 0 {
		// Not an HTTP activity: OCSF's base event, which knows no policy.
		if _, ok := m["policy"]; ok {
			delete(m, "policy")
			put(m, "unmapped.policy_sha256", e.PolicySHA256)
		}
		put(m, "category_uid", 0)
		put(m, "class_uid", 0)
		put(m, "activity_id", 99)
		put(m, "type_uid", 99)
		return m
	}
	completeOCSF(m, e)
	activity, ok := ocsfActivities[e.Method]
	if !ok {
		activity = 99
	}
	put(m, "category_uid", 4)
	put(m, "class_uid", 4002)
	put(m, "activity_id", activity)
	put(m, "type_uid", 400200+activity)
	action, disposition, status := 1, 1, 1
	switch e.Decision {
	case "": // an intent
		action, disposition, status = 0, 0, 0
	case Refused:
		action, disposition = 2, 2
	case Failed, Cancelled:
		status = 2
	}
	put(m, "action_id", action)
	put(m, "disposition_id", disposition)
	put(m, "status_id", status)
	if !e.SentAt.IsZero() {
		put(m, "start_time", e.SentAt.UnixMilli())
	}
	if !e.DoneAt.IsZero() {
		put(m, "end_time", e.DoneAt.UnixMilli())
	}
	return m
}

// completeOCSF adds what HTTP Activity requires of every event, also of one whose request could not be read: the profiles
// that its attributes are from, a request, an endpoint, and something to name the rule by.
func completeOCSF(m map[string]any, e *Event) {
	put(m, "metadata.profiles", []string{"datetime", "host", "network_proxy", "security_control"})
	put(m, "http_request.uid", e.ID)
	if host := strings.Trim(e.Host, "[]"); host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			put(m, "dst_endpoint.hostname", host)
		} else if e.Upstream.IP == "" {
			put(m, "dst_endpoint.ip", host)
		}
	}
	if _, ok := m["firewall_rule"]; ok && e.Rule.Line == 0 {
		put(m, "firewall_rule.uid", "0") // no line of the file decided
	}
}

func csvHeader() []string {
	row := []string{"schema", "type", "seq"}
	for i := range fields {
		row = append(row, fields[i].name())
	}
	return append(row, "prev", "hash")
}

func csvRow(e *Event) []string {
	bit := bitOf(e.Type)
	row := []string{Schema, e.Type, strconv.FormatUint(e.Seq, 10)}
	for i := range fields {
		f := &fields[i]
		cell := ""
		if f.on&bit != 0 {
			switch {
			case f.num != nil:
				cell = strconv.FormatInt(f.num(e), 10)
			default:
				if v := f.value(e); v != nil {
					cell = noFormula(label(v))
				}
			}
		}
		row = append(row, cell)
	}
	return append(row, e.Prev, e.Hash)
}

// noFormula keeps a spreadsheet from running what a stranger wrote.
func noFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// FieldDoc describes one key of an event, for the documentation.
type FieldDoc struct {
	Name, Kind, Doc string
	Types           []string // event types that have it
	ECS, OCSF       []string
}

// Fields lists the keys between seq and prev in their order.
func Fields() []FieldDoc {
	var docs []FieldDoc
	for i := range fields {
		f := &fields[i]
		d := FieldDoc{Name: f.name(), Doc: f.doc, ECS: f.ecs, OCSF: f.ocsf, Kind: "string"}
		switch {
		case f.num != nil:
			d.Kind = "integer"
		case f.yes != nil:
			d.Kind = "boolean"
		case f.at != nil:
			d.Kind = "time"
		case f.list != nil:
			d.Kind = "list"
		}
		for _, t := range typeNames {
			if f.on&t.bit != 0 {
				d.Types = append(d.Types, t.name)
			}
		}
		docs = append(docs, d)
	}
	return docs
}

// FieldsMarkdown is the table of fields as the reference shows it.
func FieldsMarkdown() string {
	var b strings.Builder
	b.WriteString("| field | kind | events | meaning | ECS | OCSF |\n|---|---|---|---|---|---|\n")
	for _, d := range Fields() {
		types := strings.Join(d.Types, " ")
		if len(d.Types) == len(typeNames) {
			types = "all"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` | `%s` |\n", d.Name, d.Kind, types, d.Doc, strings.Join(d.ECS, "` `"), strings.Join(d.OCSF, "` `"))
	}
	return b.String()
}
