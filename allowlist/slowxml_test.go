package allowlist

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// slowXML walks the tokens without building anything. Names count without their prefix, but an element inside an entry
// has to have the prefix of the entry: image:loc is no page.
func slowXML(br *bufio.Reader, emit func(sitemapEntry) bool) (cut bool, err error) {
	src := &remember{r: br}
	d := xml.NewDecoder(src)
	d.Strict = false
	d.CharsetReader = charset
	var (
		form   xmlForm
		known  bool
		path   string // of the open elements, as far as it can matter
		depth  int
		kept   int // open elements that path names
		prefix string
		e      sitemapEntry
		text   *string
	)
	for {
		tok, err := d.RawToken()
		if err != nil {
			switch {
			case errors.Is(err, errTooLarge):
				return true, nil
			case src.err != nil && !errors.Is(src.err, io.EOF):
				return false, src.err
			case !known:
				return false, errors.New("not a sitemap: no urlset or sitemapindex in it")
			case errors.Is(err, io.EOF):
				return depth > 0, nil
			default:
				return true, nil
			}
		}
		switch t := tok.(type) {
		case xml.StartElement:
			depth++
			if !known {
				if form, known = xmlForms[t.Name.Local]; !known {
					return false, fmt.Errorf("not a sitemap: its root is %.40q", t.Name.Local)
				}
			}
			text = nil
			if kept != depth-1 || depth > 4 {
				continue
			}
			kept++
			if path == "" {
				path = t.Name.Local
			} else {
				path += "/" + t.Name.Local
			}
			switch {
			case path == form.entry:
				e, prefix = sitemapEntry{index: form.index}, t.Name.Space
			case t.Name.Space != prefix:
			case path == form.loc:
				if form.entry == "feed/entry" {
					if href, ok := atomLink(t); ok {
						e.loc = href
					}
				} else {
					text, e.loc = &e.loc, ""
				}
			case path == form.lastmod:
				text, e.lastmod = &e.lastmod, ""
			}
		case xml.EndElement:
			text = nil
			if depth == 0 && !known {
				return false, errors.New("not a sitemap: it begins with an end")
			}
			if depth == 0 {
				return true, nil
			}
			if kept == depth {
				if path == form.entry {
					e.loc, e.lastmod = strings.TrimSpace(e.loc), strings.TrimSpace(e.lastmod)
					if e.loc != "" && !emit(e) {
						return true, nil
					}
					e = sitemapEntry{}
				}
				kept--
				path = path[:max(strings.LastIndexByte(path, '/'), 0)]
			}
			depth--
		case xml.CharData:
			if text != nil && len(*text)+len(t) <= maxLocBytes {
				*text += string(t)
			}
		}
	}
}

// atomLink gives the address of an Atom entry's alternate link (RFC 4287 section 4.2.7).
func atomLink(t xml.StartElement) (href string, ok bool) {
	for _, a := range t.Attr {
		switch a.Name.Local {
		case "href":
			href = a.Value
		case "rel":
			if a.Value != "alternate" {
				return "", false
			}
		}
	}
	return href, href != "" && len(href) <= maxLocBytes
}

// remember keeps the error of the source: encoding/xml wraps some and hides others.
type remember struct {
	r   *bufio.Reader
	err error
}

func (r *remember) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil {
		r.err = err
	}
	return n, err
}

func (r *remember) ReadByte() (byte, error) {
	b, err := r.r.ReadByte()
	if err != nil {
		r.err = err
	}
	return b, err
}

// charset accepts the encodings in which a URL's ASCII octets are themselves.
func charset(label string, r io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "utf-8", "utf8", "us-ascii", "ascii":
		return r, nil
	case "iso-8859-1", "latin1", "windows-1252", "iso-8859-15":
		return &latin1{r: bufio.NewReader(r)}, nil
	}
	return nil, fmt.Errorf("encoding %.40q", label)
}

// latin1 turns ISO 8859-1 into UTF-8.
type latin1 struct {
	r    *bufio.Reader
	rest []byte
}

func (l *latin1) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(l.rest) > 0 {
			c := copy(p[n:], l.rest)
			l.rest = l.rest[c:]
			n += c
			continue
		}
		if n > 0 && l.r.Buffered() == 0 {
			break
		}
		b, err := l.r.ReadByte()
		if err != nil {
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
		l.rest = []byte(string(rune(b)))
	}
	return n, nil
}

func newReader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }
