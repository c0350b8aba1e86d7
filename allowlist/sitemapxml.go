package allowlist

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Limits of one sitemap file (sitemaps.org protocol, "Sitemap file limits"); more is left out.
const (
	maxSitemapBytes = 50 << 20 // decoded
	maxSitemapURLs  = 50_000
	maxLocBytes     = 8 << 10
)

// sitemapEntry is one line of a sitemap as it stands there.
type sitemapEntry struct {
	loc, lastmod string
	index        bool // another sitemap
}

// readSitemap reads a sitemap in any form of the protocol: urlset, sitemapindex, RSS 2.0, Atom 1.0, or text with one
// URL a line; gzip is recognised by its first bytes. emit is called for each entry in order. cut tells that a limit or
// broken XML ended the reading early; what came before it counts. An error means that this is no sitemap, or that it
// could not be read.
func readSitemap(body io.Reader, emit func(sitemapEntry)) (cut bool, err error) {
	br := bufio.NewReaderSize(body, 32<<10)
	if magic, _ := br.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		br = bufio.NewReaderSize(&lazyGzip{src: br}, 32<<10)
	}
	br = bufio.NewReaderSize(&capped{br, maxSitemapBytes}, 32<<10)
	if bom, _ := br.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = br.Discard(3)
	}
	head, err := br.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	head = bytes.TrimLeft(head, " \t\r\n")
	n := 0
	counted := func(e sitemapEntry) bool {
		if n >= maxSitemapURLs {
			return false
		}
		n++
		emit(e)
		return true
	}
	if len(head) > 0 && head[0] == '<' {
		return readXML(br, counted)
	}
	return readText(br, counted)
}

// readText reads one URL a line. A file without any is no sitemap, unless it is empty.
func readText(br *bufio.Reader, emit func(sitemapEntry) bool) (cut bool, err error) {
	sc := bufio.NewScanner(br)
	sc.Buffer(make([]byte, 4096), maxLocBytes)
	found, lines := false, 0
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		low := strings.ToLower(line)
		if !strings.HasPrefix(low, "http://") && !strings.HasPrefix(low, "https://") {
			if !found && lines > 10 {
				break
			}
			continue
		}
		found = true
		if !emit(sitemapEntry{loc: line}) {
			return true, nil
		}
	}
	switch err := sc.Err(); {
	case err == nil, errors.Is(err, errTooLarge), errors.Is(err, bufio.ErrTooLong):
		if !found && lines > 0 {
			return false, errors.New("not a sitemap: neither XML nor a list of URLs")
		}
		return err != nil, nil
	default:
		return false, err
	}
}

// xmlForm is where a form of sitemap has its entries: the path of elements to an entry, and to its URL and date.
type xmlForm struct {
	entry, loc, lastmod string
	index               bool
}

var xmlForms = map[string]xmlForm{
	"urlset":       {"urlset/url", "urlset/url/loc", "urlset/url/lastmod", false},
	"sitemapindex": {"sitemapindex/sitemap", "sitemapindex/sitemap/loc", "sitemapindex/sitemap/lastmod", true},
	"rss":          {"rss/channel/item", "rss/channel/item/link", "rss/channel/item/pubDate", false},
	"feed":         {"feed/entry", "feed/entry/link", "feed/entry/updated", false},
}

// readXML walks the tokens without building anything. Names count without their prefix, but an element inside an entry
// has to have the prefix of the entry: image:loc is no page.
func readXML(br *bufio.Reader, emit func(sitemapEntry) bool) (cut bool, err error) {
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
				if path == form.entry && e.loc != "" {
					e.loc, e.lastmod = strings.TrimSpace(e.loc), strings.TrimSpace(e.lastmod)
					if !emit(e) {
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

// lastmodLayouts are the forms of a date in a sitemap: W3C date and time, and those of RSS.
var lastmodLayouts = []string{
	time.RFC3339, "2006-01-02", "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01", "2006",
	time.RFC1123Z, time.RFC1123,
}

// parseLastmod reads a date; a missing or odd one is the zero time.
func parseLastmod(s string) time.Time {
	if s == "" || len(s) > 64 {
		return time.Time{}
	}
	for _, layout := range lastmodLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	return time.Time{}
}
