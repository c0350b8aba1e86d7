package sign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	maxHeadLine = 64 << 10 // bytes of one line of a raw head
	maxFields   = 1000     // field lines of one message
)

// Capture is one request as it was on the wire: nothing in it is normalised.
type Capture struct {
	Method string
	Scheme string      // "" when the capture does not say
	Target string      // request target or absolute URL
	Fields [][2]string // all field lines in order, name and value
}

// ReadCaptures calls each for every request of a capture: JSON objects one after the other (JSON lines), or raw request
// heads as bytes, each ended by an empty line. scheme is taken where a capture does not name one. It stops at the first
// error, of the capture or of each.
//
// A JSON object has method, headers, and url, or target and perhaps scheme; headers is a list of [name, value] pairs, or a
// flat list of names and values as in Node's rawHeaders (also taken under that name).
func ReadCaptures(r io.Reader, scheme string, each func(Capture) error) error {
	b := bufio.NewReaderSize(r, maxHeadLine)
	for {
		c, err := b.ReadByte()
		if errors.Is(err, io.EOF) {
			return errors.New("the capture is empty")
		}
		if err != nil {
			return err
		}
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			continue
		}
		if err := b.UnreadByte(); err != nil {
			return err
		}
		if c == '{' {
			return readJSONCaptures(b, scheme, each)
		}
		return readRawHeads(b, scheme, each)
	}
}

func readJSONCaptures(r io.Reader, scheme string, each func(Capture) error) error {
	d := json.NewDecoder(r)
	for n := 1; ; n++ {
		var m map[string]json.RawMessage
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("request %d of the capture: %w", n, err)
		}
		c, err := jsonCapture(m)
		if err != nil {
			return fmt.Errorf("request %d of the capture: %w", n, err)
		}
		if c.Scheme == "" {
			c.Scheme = scheme
		}
		if err := each(c); err != nil {
			return err
		}
	}
}

func jsonCapture(m map[string]json.RawMessage) (Capture, error) {
	c := Capture{Method: stringMember(m, "method"), Scheme: stringMember(m, "scheme"), Target: stringMember(m, "url")}
	if c.Target == "" {
		c.Target = stringMember(m, "target")
	}
	raw, set := m["headers"]
	if !set {
		raw = m["rawHeaders"]
	}
	var err error
	if c.Fields, err = jsonFields(raw); err != nil {
		return c, err
	}
	// HTTP/2 has these among the fields.
	c.Method = orPseudo(c.Method, c.Fields, ":method")
	c.Target = orPseudo(c.Target, c.Fields, ":path")
	c.Scheme = orPseudo(c.Scheme, c.Fields, ":scheme")
	switch {
	case c.Method == "":
		return c, errors.New("no method")
	case c.Target == "":
		return c, errors.New("neither url nor target")
	}
	return c, nil
}

func orPseudo(have string, fields [][2]string, name string) string {
	for _, f := range fields {
		if have == "" && f[0] == name {
			have = f[1]
		}
	}
	return have
}

// jsonFields takes a list of pairs or a flat list.
func jsonFields(raw json.RawMessage) ([][2]string, error) {
	var pairs [][]string
	if json.Unmarshal(raw, &pairs) == nil {
		fields := make([][2]string, 0, len(pairs))
		for _, p := range pairs {
			if len(p) != 2 {
				return nil, errors.New("headers: a pair of name and value is needed")
			}
			fields = append(fields, [2]string{p[0], p[1]})
		}
		return checkFields(fields)
	}
	var flat []string
	if json.Unmarshal(raw, &flat) != nil || len(flat)%2 != 0 {
		return nil, errors.New("headers: neither a list of pairs nor a flat list of names and values")
	}
	fields := make([][2]string, 0, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		fields = append(fields, [2]string{flat[i], flat[i+1]})
	}
	return checkFields(fields)
}

func checkFields(fields [][2]string) ([][2]string, error) {
	if len(fields) > maxFields {
		return nil, fmt.Errorf("more than %d header fields", maxFields)
	}
	for _, f := range fields {
		if !isToken(strings.TrimPrefix(f[0], ":")) {
			return nil, fmt.Errorf("%q is not a field name", clip(f[0], 40))
		}
		if strings.ContainsAny(f[1], "\r\n\x00") {
			return nil, fmt.Errorf("the value of %s has a line break or a zero byte", f[0])
		}
	}
	return fields, nil
}

// readRawHeads reads request heads, strictly: no folded lines, no space before a colon.
func readRawHeads(b *bufio.Reader, scheme string, each func(Capture) error) error {
	for n := 1; ; n++ {
		c, err := readRawHead(b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("request %d of the capture: %w", n, err)
		}
		c.Scheme = scheme
		if err := each(c); err != nil {
			return err
		}
	}
}

// readRawHead gives io.EOF when nothing but empty lines is left.
func readRawHead(b *bufio.Reader) (Capture, error) {
	var c Capture
	line := []byte{}
	var err error
	for len(line) == 0 {
		if line, err = readLine(b); err != nil {
			return c, err
		}
	}
	parts := strings.Split(string(line), " ")
	if len(parts) != 3 || !isToken(parts[0]) || parts[1] == "" || !strings.HasPrefix(parts[2], "HTTP/") {
		return c, fmt.Errorf("%q is not a request line", clip(string(line), 60))
	}
	c.Method, c.Target = parts[0], parts[1]
	for {
		line, err := readLine(b)
		if err != nil && !errors.Is(err, io.EOF) {
			return c, err
		}
		if len(line) == 0 { // also a head that ends with the file
			c.Fields, err = checkFields(c.Fields)
			return c, err
		}
		name, value, found := strings.Cut(string(line), ":")
		if !found || !isToken(name) {
			return c, fmt.Errorf("%q is not a header line", clip(string(line), 60))
		}
		if len(c.Fields) >= maxFields {
			return c, fmt.Errorf("more than %d header fields", maxFields)
		}
		c.Fields = append(c.Fields, [2]string{name, strings.Trim(value, " \t")})
	}
}

// readLine gives a line without its CRLF or LF; io.EOF only when nothing was left.
func readLine(b *bufio.Reader) ([]byte, error) {
	line, err := b.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("a line longer than %d bytes", maxHeadLine)
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, err
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}
