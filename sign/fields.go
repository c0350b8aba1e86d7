package sign

import (
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// signatureFields are the three fields of a message, parsed as dictionaries over all their lines.
type signatureFields struct {
	signatures *httpsfv.Dictionary
	input      *httpsfv.Dictionary
	agent      *httpsfv.Dictionary // nil when the field is absent or a single string
	agentItem  *httpsfv.Item       // the older form: one string
}

// readSignatureFields refuses what can't be parsed, labels that are repeated and sets of labels that differ.
func readSignatureFields(m *message) (*signatureFields, *failure) {
	if len(m.fields["signature"]) == 0 && len(m.fields["signature-input"]) == 0 {
		return nil, failed("no-signature", "neither Signature nor Signature-Input")
	}
	var s signatureFields
	var f *failure
	if s.signatures, f = dictionary(m, "signature"); f != nil {
		return nil, f
	}
	if s.input, f = dictionary(m, "signature-input"); f != nil {
		return nil, f
	}
	a, b := slices.Sorted(slices.Values(s.signatures.Names())), slices.Sorted(slices.Values(s.input.Names()))
	switch {
	case len(a) == 0 && len(b) == 0:
		return nil, failed("no-signature", "Signature and Signature-Input are empty")
	case !slices.Equal(a, b):
		return nil, failed("label-mismatch", "Signature has %s, Signature-Input %s", strings.Join(a, " "), strings.Join(b, " "))
	}
	lines := m.fields["signature-agent"]
	if len(lines) == 0 {
		return &s, nil
	}
	if item, err := httpsfv.UnmarshalItem(lines); err == nil {
		if _, ok := item.Value.(string); ok {
			s.agentItem = &item
			return &s, nil
		}
	}
	if s.agent, f = dictionary(m, "signature-agent"); f != nil {
		return nil, f
	}
	return &s, nil
}

func dictionary(m *message, name string) (*httpsfv.Dictionary, *failure) {
	d, err := httpsfv.UnmarshalDictionary(m.fields[name])
	if err != nil {
		return nil, failed("malformed-"+name, "not a dictionary")
	}
	// The parser keeps the last of equal keys, as RFC 8941 4.2.2 says; for signatures that is an ambiguity to refuse.
	seen := map[string]bool{}
	for _, key := range dictionaryKeys(strings.Join(m.fields[name], ",")) {
		if seen[key] {
			return nil, failed("duplicate-label", "%s has %s twice", name, key)
		}
		seen[key] = true
	}
	return d, nil
}

// dictionaryKeys lists the keys of a dictionary that parses, with repetitions.
func dictionaryKeys(s string) []string {
	var keys []string
	start, depth, quoted := 0, 0, false
	member := func(text string) {
		text = strings.TrimLeft(text, " \t")
		if end := strings.IndexAny(text, "=;"); end >= 0 {
			text = text[:end]
		}
		if text = strings.TrimRight(text, " \t"); text != "" {
			keys = append(keys, text)
		}
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			member(s[start:i])
			start = i + 1
		}
	}
	member(s[start:])
	return keys
}

// pick gives the labels whose tag is the one asked for; each is judged alone.
func (s *signatureFields) pick(tag string) ([]string, *failure) {
	var labels []string
	other := ""
	for _, label := range s.input.Names() {
		one := s.signature(label)
		if one.malformed != nil && one.malformed.reason == "malformed-signature-input" {
			return nil, one.malformed
		}
		switch v, found := one.input.Params.Get("tag"); {
		case found && v == tag:
			labels = append(labels, label)
		case found:
			other = label
		}
	}
	switch {
	case len(labels) > 0:
		return labels, nil
	case other != "":
		return nil, failed("wrong-tag", "label %s has another tag than %s", other, tag)
	}
	return nil, failed("missing-tag", "no label has the tag %s", tag)
}

// signature takes one label apart; what is malformed about it is in the result.
func (s *signatureFields) signature(label string) *oneSignature {
	one := &oneSignature{label: label}
	one.input.Params = httpsfv.NewParams()
	member, _ := s.input.Get(label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		one.malformed = failed("malformed-signature-input", "%s is not an inner list", label)
		return one
	}
	one.input = list
	for _, item := range list.Items {
		if _, ok := item.Value.(string); !ok {
			one.malformed = failed("malformed-signature-input", "%s covers something that is not a string", label)
			return one
		}
		id, err := componentID(item)
		if err != nil {
			one.malformed = failed("malformed-signature-input", "%s: %s", label, err)
			return one
		}
		one.ids = append(one.ids, id)
	}
	member, _ = s.signatures.Get(label)
	item, _ := member.(httpsfv.Item)
	if one.value, ok = item.Value.([]byte); !ok {
		one.malformed = failed("malformed-signature", "%s is not a byte sequence", label)
	}
	return one
}

// checkAgent finds the Signature-Agent value of a label and checks that it is covered in its form.
func (s *signatureFields) checkAgent(one *oneSignature) (agentURL string, f *failure) {
	var item httpsfv.Item
	component := `"signature-agent"`
	switch {
	case s.agentItem != nil:
		item = *s.agentItem
	case s.agent == nil || len(s.agent.Names()) == 0:
		return "", failed("missing-signature-agent", "no Signature-Agent field")
	default:
		member, found := s.agent.Get(one.label)
		if !found {
			return "", failed("agent-label-mismatch", "Signature-Agent has no member %s", one.label)
		}
		component += `;key="` + one.label + `"`
		var ok bool
		if item, ok = member.(httpsfv.Item); !ok {
			return "", failed("agent-not-https", "Signature-Agent is a list")
		}
	}
	if !one.covers(component) {
		return "", failed("agent-not-covered", "%s is not covered", component)
	}
	text, ok := item.Value.(string)
	if !ok {
		return "", failed("agent-not-https", "Signature-Agent is not a string")
	}
	if err := checkAgentURL(text); err != nil {
		return text, failed("agent-not-https", "%q: %s", clip(text, 100), err)
	}
	if names := item.Params.Names(); len(names) > 0 {
		return text, failed("agent-member-parameters", "Signature-Agent has the parameter %s", names[0])
	}
	return text, nil
}
