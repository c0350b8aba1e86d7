package audit

import (
	_ "embed"
	"encoding/json"
)

// EventSchema is the published JSON Schema of an event, as in event.schema.json.
//
//go:embed event.schema.json
var EventSchema []byte

// words are the closed sets that fields of those names hold.
var words = map[string][]string{
	"client.auth":  {"", "basic", "mtls", "network", "none"},
	"scheme":       {"", "http", "https", "ws", "wss"},
	"decision":     {"", Forwarded, Refused, Cancelled, Failed},
	"revalidation": {"", AskedWhether, Unchanged, Spared, AskedInFull},
	"robots.state": {"", "fresh", "stale", "none", "not_consulted"},
}

// forms are patterns that fields of those names follow.
var forms = map[string]string{
	"url_hash":                "^([0-9a-f]{64})?$",
	"robots.sha256":           "^([0-9a-f]{64})?$",
	"policy_sha256":           "^([0-9a-f]{64})?$",
	"checkpoint.head":         "^[0-9a-f]{64}$",
	"checkpoint.removed_head": "^([0-9a-f]{64})?$",
}

const timeForm = `^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)?$`

// schema makes the JSON Schema from the table of fields: one object per type, every key of the type required.
func schema() ([]byte, error) {
	type object = map[string]any
	valueOf := func(f *field) object {
		s := object{"description": f.doc}
		switch {
		case f.num != nil:
			s["type"], s["minimum"] = "integer", 0
		case f.yes != nil:
			s["type"] = "boolean"
		case f.at != nil:
			s["type"], s["pattern"] = "string", timeForm
		case f.list != nil:
			s["type"], s["items"], s["maxItems"] = "array", object{"type": "string"}, maxList
		default:
			s["type"] = "string"
			if w := words[f.name()]; w != nil {
				s["enum"] = w
			}
			if p := forms[f.name()]; p != "" {
				s["pattern"] = p
			}
		}
		return s
	}
	hash := object{"type": "string", "pattern": "^[0-9a-f]{64}$"}
	defs := object{}
	var refs []object
	for _, t := range typeNames {
		props := object{
			"schema": object{"const": Schema}, "type": object{"const": t.name},
			"seq":  object{"type": "integer", "minimum": 1, "description": "one more for each event of the chain"},
			"prev": hash, "hash": hash,
		}
		required := []string{"schema", "type", "seq"}
		for _, f := range byType[t.name] {
			if f.group == "" {
				props[f.key] = valueOf(f.field)
				required = append(required, f.key)
				continue
			}
			group, ok := props[f.group].(object)
			if !ok {
				group = object{"type": "object", "properties": object{}, "required": []string{}}
				props[f.group] = group
				required = append(required, f.group)
			}
			group["properties"].(object)[f.key] = valueOf(f.field)
			group["required"] = append(group["required"].([]string), f.key)
		}
		defs[t.name] = object{"type": "object", "properties": props, "required": append(required, "prev", "hash")}
		refs = append(refs, object{"if": object{"properties": object{"type": object{"const": t.name}}}, "then": object{"$ref": "#/$defs/" + t.name}})
	}
	names := make([]string, len(typeNames))
	for i, t := range typeNames {
		names[i] = t.name
	}
	b, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     "urn:crawlgate:audit:event:1",
		"title":   Schema,
		"description": "one line of crawlgate's audit log; keys stand in a fixed order, unknown keys are allowed and never break the chain: " +
			"hash is SHA-256 over \"crawlgate-audit-1\\n\" and the line up to (not including) `,\"hash\":`",
		"type":       "object",
		"properties": object{"schema": object{"const": Schema}, "type": object{"enum": names}},
		"required":   []string{"schema", "type", "seq", "prev", "hash"},
		"allOf":      refs,
		"$defs":      defs,
	}, "", "  ")
	return append(b, '\n'), err
}
