package allowlist

import (
	"bufio"
	"bytes"
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
	return readSitemapTo(body, maxSitemapBytes, emit)
}

func readSitemapTo(body io.Reader, limit int64, emit func(sitemapEntry)) (cut bool, err error) {
	br := bufio.NewReaderSize(body, 32<<10)
	if magic, _ := br.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		br = bufio.NewReaderSize(&lazyGzip{src: br}, 32<<10)
	}
	br = bufio.NewReaderSize(&capped{br, limit}, 32<<10)
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

// readXML walks the elements without building anything. Names count without their prefix, but an element inside an entry
// has to have the prefix of the entry: image:loc is no page.
func readXML(br *bufio.Reader, emit func(sitemapEntry) bool) (cut bool, err error) {
	var (
		x      = xmlScanner{r: br}
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
		tok, err := x.next(text != nil)
		if err != nil {
			switch {
			case errors.Is(err, errEncoding):
				return false, err
			case known && (errors.Is(err, errTooLarge) || errors.Is(err, errXML)):
				return true, nil
			case known && errors.Is(err, io.EOF):
				return depth > 0, nil
			case errors.Is(err, io.EOF), errors.Is(err, errXML), errors.Is(err, errTooLarge):
				return false, errors.New("not a sitemap: no urlset or sitemapindex in it")
			}
			return false, err
		}
		if tok == xmlText {
			if text != nil && len(*text)+len(x.text) <= maxLocBytes {
				*text += x.text
			}
			continue
		}
		text = nil
		if tok == xmlStart {
			depth++
			if !known {
				if form, known = xmlForms[x.name]; !known {
					return false, fmt.Errorf("not a sitemap: its root is %.40q", x.name)
				}
			}
			if kept == depth-1 && depth <= 4 {
				kept++
				path = strings.TrimPrefix(path+"/"+x.name, "/")
				switch {
				case path == form.entry:
					e, prefix = sitemapEntry{index: form.index}, x.prefix
				case x.prefix != prefix:
				case path == form.loc && form.entry == "feed/entry":
					if href, ok := x.atomLink(); ok {
						e.loc = href
					}
				case path == form.loc:
					text, e.loc = &e.loc, ""
				case path == form.lastmod:
					text, e.lastmod = &e.lastmod, ""
				}
			}
			if !x.empty {
				continue
			}
			text = nil
		}
		switch {
		case depth == 0 && known:
			return true, nil
		case depth == 0:
			return false, errors.New("not a sitemap: it begins with an end")
		case kept == depth:
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
	}
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
