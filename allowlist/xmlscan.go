package allowlist

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
)

// xmlScanner reads the tokens of an XML document that a sitemap needs. Other than encoding/xml it keeps no token whole, so
// that a comment or a text of many megabytes costs no memory, and it runs at the speed of a search for the next "<". It does
// not check that elements match. Entities of the document's own are never expanded.
type xmlScanner struct {
	r *bufio.Reader

	prefix, name string // of the element
	attrs        []byte // of a start, as they stand there
	empty        bool   // the start is an end as well
	text         string

	latin1 bool
	buf    []byte
}

const (
	xmlStart = iota
	xmlEnd
	xmlText
)

const (
	maxXMLName = 256
	maxXMLTag  = 16 << 10 // a start with its attributes
)

var (
	errXML      = errors.New("not well-formed XML")
	errEncoding = errors.New("encoding")
)

// next gives the next token; text only if it is wanted.
func (x *xmlScanner) next(wantText bool) (int, error) {
	for {
		c, err := x.r.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != '<' {
			if err := x.r.UnreadByte(); err != nil {
				return 0, err
			}
			found, err := x.readText(wantText)
			if found || err != nil {
				return xmlText, err
			}
			continue
		}
		if c, err = x.r.ReadByte(); err != nil {
			return 0, unexpected(err)
		}
		switch c {
		case '?':
			err = x.instruction()
		case '!':
			var cdata bool
			if cdata, err = x.declaration(); cdata {
				var found bool
				if found, err = x.cdata(wantText); found {
					return xmlText, err
				}
			}
		case '/':
			return xmlEnd, x.tag(false)
		default:
			if err := x.r.UnreadByte(); err != nil {
				return 0, err
			}
			return xmlStart, x.tag(true)
		}
		if err != nil {
			return 0, err
		}
	}
}

// unexpected makes the end of the file inside of a token an error of the document.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return errXML
	}
	return err
}

// readText reads up to the next "<". It keeps the text if that is wanted and not too long.
func (x *xmlScanner) readText(want bool) (found bool, err error) {
	x.buf = x.buf[:0]
	for {
		part, err := x.r.ReadSlice('<')
		end := err == nil
		if end {
			part = part[:len(part)-1]
		}
		if want && len(x.buf) <= maxLocBytes {
			x.buf = append(x.buf, part...)
		}
		switch {
		case end:
			if err := x.r.UnreadByte(); err != nil {
				return false, err
			}
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case !errors.Is(err, io.EOF):
			return false, err
		}
		if want && len(x.buf) > 0 {
			x.text = unescapeXML(x.decode(x.buf))
			return true, nil
		}
		return false, nil
	}
}

// skipTo reads up to and with a closing text, handing what stands before it to keep, if that is not nil.
func (x *xmlScanner) skipTo(closing string, keep func([]byte)) error {
	last := closing[len(closing)-1]
	tail := make([]byte, 0, 8) // the end of what was read, for a closing text that two parts share
	for {
		part, err := x.r.ReadSlice(last)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return unexpected(err)
		}
		if keep != nil {
			keep(part)
		}
		tail = append(tail, part[max(0, len(part)-len(closing)):]...)
		if n := len(tail) - len(closing); n > 0 {
			tail = append(tail[:0], tail[n:]...)
		}
		if string(tail) == closing {
			return nil
		}
	}
}

// instruction reads <?...?>. The XML declaration may name an encoding.
func (x *xmlScanner) instruction() error {
	var text []byte
	err := x.skipTo("?>", func(b []byte) {
		if len(text)+len(b) <= maxXMLName {
			text = append(text, b...)
		}
	})
	if err != nil || !bytes.HasPrefix(text, []byte("xml")) {
		return err
	}
	i := bytes.Index(text, []byte("encoding"))
	if i < 0 {
		return nil
	}
	rest := bytes.TrimLeft(text[i+len("encoding"):], " \t\r\n=")
	if len(rest) == 0 || rest[0] != '"' && rest[0] != '\'' {
		return nil
	}
	label, _, closed := bytes.Cut(bytes.TrimSuffix(rest[1:], []byte("?>")), rest[:1])
	if !closed {
		return nil
	}
	switch strings.ToLower(string(label)) {
	case "utf-8", "utf8", "us-ascii", "ascii":
	case "iso-8859-1", "latin1", "windows-1252", "iso-8859-15":
		x.latin1 = true
	default:
		return fmt.Errorf("%w %.40q", errEncoding, label)
	}
	return nil
}

// declaration reads what follows "<!": a comment, the start of a CDATA section (told by cdata), or a DOCTYPE with
// everything in its brackets.
func (x *xmlScanner) declaration() (cdata bool, err error) {
	head, err := x.r.Peek(7)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("--")):
		_, _ = x.r.Discard(2)
		return false, x.skipTo("-->", nil)
	case string(head) == "[CDATA[":
		_, _ = x.r.Discard(7)
		return true, nil
	}
	depth := 1
	var quote byte
	for depth > 0 {
		c, err := x.r.ReadByte()
		switch {
		case err != nil:
			return false, unexpected(err)
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '<':
			if peek, _ := x.r.Peek(3); string(peek) == "!--" {
				if err := x.skipTo("-->", nil); err != nil {
					return false, err
				}
				continue
			}
			depth++
		case c == '>':
			depth--
		}
	}
	return false, nil
}

// cdata reads to the end of a CDATA section, whose text counts as it is.
func (x *xmlScanner) cdata(want bool) (found bool, err error) {
	x.buf = x.buf[:0]
	err = x.skipTo("]]>", func(b []byte) {
		if want && len(x.buf) <= maxLocBytes {
			x.buf = append(x.buf, b...)
		}
	})
	if err != nil || !want {
		return false, err
	}
	x.text = x.decode(bytes.TrimSuffix(x.buf, []byte("]]>")))
	return true, nil
}

// tag reads an element's name and, of a start, its attributes, up to ">".
func (x *xmlScanner) tag(start bool) error {
	x.buf, x.empty = x.buf[:0], false
	var quote byte
	for {
		part, err := x.r.ReadSlice('>')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return unexpected(err)
		}
		if len(x.buf)+len(part) > maxXMLTag {
			return errXML
		}
		x.buf = append(x.buf, part...)
		if bytes.IndexByte(part, '<') >= 0 || start && (quote != 0 || bytes.IndexByte(part, '"') >= 0 || bytes.IndexByte(part, '\'') >= 0) {
			for _, c := range part {
				switch {
				case quote != 0:
					if c == quote {
						quote = 0
					}
				case start && (c == '"' || c == '\''):
					quote = c
				case c == '<':
					return errXML
				}
			}
		}
		if err == nil && quote == 0 {
			x.buf = x.buf[:len(x.buf)-1]
			break
		}
	}
	b := x.buf
	if start {
		b, x.empty = bytes.CutSuffix(b, []byte("/"))
	}
	n := bytes.IndexAny(b, " \t\r\n")
	if n < 0 {
		n = len(b)
	}
	if n == 0 || n > maxXMLName {
		return errXML
	}
	x.attrs = b[n:]
	x.prefix, x.name = "", ""
	if prefix, name, ok := bytes.Cut(b[:n], []byte(":")); ok && len(prefix) > 0 && len(name) > 0 {
		x.prefix, x.name = string(prefix), string(name)
	} else {
		x.name = knownName(b[:n])
	}
	return nil
}

// knownName spares an allocation for the names that sitemaps are made of.
func knownName(b []byte) string {
	switch string(b) {
	case "url":
		return "url"
	case "loc":
		return "loc"
	case "lastmod":
		return "lastmod"
	case "changefreq":
		return "changefreq"
	case "priority":
		return "priority"
	case "sitemap":
		return "sitemap"
	}
	return string(b)
}

// atomLink gives the address of an Atom entry's alternate link (RFC 4287 section 4.2.7).
func (x *xmlScanner) atomLink() (href string, ok bool) {
	rest := x.attrs
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		name, after, found := bytes.Cut(rest, []byte("="))
		after = bytes.TrimLeft(after, " \t\r\n")
		if !found || len(after) == 0 || after[0] != '"' && after[0] != '\'' {
			return href, href != "" && len(href) <= maxLocBytes
		}
		value, next, found := bytes.Cut(after[1:], after[:1])
		if !found {
			return "", false
		}
		switch string(bytes.TrimSpace(name)) {
		case "href":
			href = unescapeXML(x.decode(value))
		case "rel":
			if string(value) != "alternate" {
				return "", false
			}
		}
		rest = next
	}
}

func (x *xmlScanner) decode(b []byte) string {
	if !x.latin1 {
		return string(b)
	}
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// unescapeXML replaces the five entities of XML and numeric references; anything else that begins with "&" stays.
func unescapeXML(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s[:min(len(s), 12)], ';')
		ref := ""
		if end > 0 {
			ref = s[1:end]
		}
		switch {
		case ref == "amp", ref == "lt", ref == "gt", ref == "quot":
			b.WriteString(html.UnescapeString(s[:end+1]))
		case ref == "apos":
			b.WriteByte('\'')
		case strings.HasPrefix(ref, "#"):
			digits, base := ref[1:], 10
			if strings.HasPrefix(digits, "x") {
				digits, base = digits[1:], 16
			}
			n, err := strconv.ParseUint(digits, base, 32)
			if err != nil || n > 0x10ffff {
				b.WriteString(s[:end+1])
			} else {
				b.WriteRune(rune(n))
			}
		default:
			b.WriteByte('&')
			s = s[1:]
			continue
		}
		s = s[end+1:]
	}
}
