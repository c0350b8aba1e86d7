package sign

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
)

// message is a captured request or response from which a signature base can be rebuilt (RFC 9421 2).
type message struct {
	method, scheme, authority string
	path, query               string // query with its question mark, "" when there is none
	status                    int    // of a response, 0 for a request
	fields                    map[string][]string
	request                   *message // that a response answers
}

func newMessage(fields [][2]string) *message {
	m := &message{fields: map[string][]string{}}
	for _, f := range fields {
		name := strings.ToLower(f[0])
		m.fields[name] = append(m.fields[name], strings.Trim(f[1], " \t"))
	}
	return m
}

// requestMessage takes a capture apart. The authority is that of the Host field, of which there must be exactly one, and an
// absolute target must agree with it.
func requestMessage(c Capture) (*message, error) {
	m := newMessage(c.Fields)
	m.method = c.Method
	m.scheme = strings.ToLower(c.Scheme)
	target, authority := c.Target, ""
	if i := strings.Index(target, "://"); i > 0 && target[0] != '/' {
		m.scheme, target = strings.ToLower(target[:i]), target[i+3:]
		end := strings.IndexAny(target, "/?#")
		if end < 0 {
			end = len(target)
		}
		authority, target = target[:end], target[end:]
	}
	target, _, _ = strings.Cut(target, "#")
	m.path = target
	if i := strings.IndexByte(target, '?'); i >= 0 {
		m.path, m.query = target[:i], target[i:]
	}
	if m.path == "" {
		m.path = "/" // RFC 9421 2.2.6
	}
	if m.scheme != "https" && m.scheme != "http" {
		return m, fmt.Errorf("scheme %q is not http or https", clip(m.scheme, 20))
	}
	hosts := m.fields["host"]
	if len(hosts) == 0 {
		hosts = m.fields[":authority"]
	}
	if len(hosts) != 1 {
		return m, fmt.Errorf("%d Host fields, not one", len(hosts))
	}
	var err error
	if m.authority, err = normalAuthorityFor(m.scheme, hosts[0]); err != nil {
		return m, err
	}
	for _, other := range append(slices.Clone(m.fields[":authority"]), authority) {
		if other == "" {
			continue
		}
		if a, err := normalAuthorityFor(m.scheme, other); err != nil || a != m.authority {
			return m, fmt.Errorf("host %q is not that of the target, %q", m.authority, clip(other, 100))
		}
	}
	return m, nil
}

// componentID is a component identifier with its parameters in one order, to find doubles (RFC 9421 2).
func componentID(i httpsfv.Item) (string, error) {
	sorted := httpsfv.NewItem(i.Value)
	names := slices.Clone(i.Params.Names())
	slices.Sort(names)
	for _, n := range names {
		v, _ := i.Params.Get(n)
		sorted.Params.Add(n, v)
	}
	return httpsfv.Marshal(sorted)
}

// base rebuilds the signature base over the covered components of a Signature-Input member (RFC 9421 2.5).
func (m *message) base(input httpsfv.InnerList) (string, error) {
	var b strings.Builder
	for _, item := range input.Items {
		id, err := httpsfv.Marshal(item)
		if err != nil {
			return "", err
		}
		value, err := m.component(item)
		if err != nil {
			return "", fmt.Errorf("component %s: %w", id, err)
		}
		b.WriteString(id + ": " + value + "\n")
	}
	params, err := httpsfv.Marshal(input)
	if err != nil {
		return "", err
	}
	b.WriteString(`"@signature-params": ` + params)
	base := b.String()
	if !isASCII(base) {
		return "", errors.New("the signature base is not ASCII")
	}
	return base, nil
}

// component is the value of one covered component.
func (m *message) component(i httpsfv.Item) (string, error) {
	name, ok := i.Value.(string)
	if !ok {
		return "", errors.New("not a string")
	}
	var key, queryName string
	var bs bool
	from := m
	for _, p := range i.Params.Names() {
		v, _ := i.Params.Get(p)
		text, isText := v.(string)
		switch {
		case p == "key" && isText:
			key = text
		case p == "name" && isText && name == "@query-param":
			queryName = text
		case p == "bs" && v == true:
			bs = true
		case p == "req" && v == true && m.request != nil && from == m:
			from = m.request
		default:
			return "", fmt.Errorf("parameter %s is not supported here", p)
		}
	}
	if strings.HasPrefix(name, "@") {
		if key != "" || bs {
			return "", errors.New("a derived component has no such parameter")
		}
		return from.derived(name, queryName)
	}
	lines := from.fields[name] // names are lower case: another spelling is not found
	if len(lines) == 0 {
		return "", errors.New("no such field")
	}
	for _, line := range lines {
		if strings.ContainsAny(line, "\r\n") {
			return "", errors.New("a line break in the value")
		}
	}
	_, hasKey := i.Params.Get("key")
	switch {
	case hasKey && bs:
		return "", errors.New("key and bs exclude each other")
	case hasKey:
		return dictionaryMember(lines, key)
	case bs:
		for j, line := range lines {
			lines = slices.Clone(lines)
			lines[j] = ":" + base64.StdEncoding.EncodeToString([]byte(line)) + ":"
		}
	}
	return strings.Join(lines, ", "), nil
}

func dictionaryMember(lines []string, key string) (string, error) {
	d, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return "", errors.New("not a dictionary")
	}
	member, found := d.Get(key)
	if !found {
		return "", errors.New("no such member")
	}
	v, ok := member.(httpsfv.StructuredFieldValue)
	if !ok {
		return "", errors.New("no such member")
	}
	return httpsfv.Marshal(v)
}

// derived is the value of a derived component (RFC 9421 2.2).
func (m *message) derived(name, queryName string) (string, error) {
	if m.status != 0 {
		if name == "@status" {
			return strconv.Itoa(m.status), nil
		}
		return "", errors.New("not a component of a response")
	}
	switch name {
	case "@method":
		return m.method, nil
	case "@scheme":
		return m.scheme, nil
	case "@authority":
		return m.authority, nil
	case "@target-uri":
		return m.scheme + "://" + m.authority + m.path + m.query, nil
	case "@request-target":
		return m.path + m.query, nil
	case "@path":
		return m.path, nil
	case "@query":
		if m.query == "" {
			return "?", nil // RFC 9421 2.2.7
		}
		return m.query, nil
	case "@query-param":
		return m.queryParam(queryName)
	}
	return "", errors.New("unknown component")
}

// queryParam is the value of the only query parameter of a name (RFC 9421 2.2.8).
func (m *message) queryParam(name string) (string, error) {
	want, err := url.QueryUnescape(name)
	if err != nil {
		return "", err
	}
	q, err := url.ParseQuery(strings.TrimPrefix(m.query, "?"))
	if err != nil {
		return "", err
	}
	if len(q[want]) != 1 {
		return "", fmt.Errorf("%d query parameters of that name, not one", len(q[want]))
	}
	return strings.ReplaceAll(url.QueryEscape(q[want][0]), "+", "%20"), nil
}
