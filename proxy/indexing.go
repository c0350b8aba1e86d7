package proxy

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/html"

	"crawlgate/policy"
)

const (
	indexingBytes = 256 << 10 // of a page, decoded, are read for its robots meta tags
	metaBytes     = 4 << 10   // a longer tag says nothing to us
	zstdWindow    = 8 << 20   // RFC 9659: what a receiver must take
)

// unread stands in the audit event where a page's own directives could not be looked for.
const unread = "unread"

// indexing reads what a page says about indexing while it passes: X-Robots-Tag and the robots meta tags, to everybody
// or to our token, the most restrictive of all. It decodes for itself alone, holds nothing back, and looks no further
// than the first 256 KiB decoded. A page can make it learn nothing, and no more than that.
type indexing struct {
	token string
	lines []string // all that was said

	now atomic.Pointer[string] // the directives known so far; written by the copying goroutine, read by a head's

	coded *pulled // of an encoded page
	left  int     // decoded bytes still to be looked at
	carry []byte  // an unfinished tag
	skip  string  // end mark of what is being skipped: a comment, a script
}

// newIndexing makes the tap of an HTML answer. known reports whether the page's coding is one that is read.
func newIndexing(h http.Header, token string) (ix *indexing, known bool) {
	ix = &indexing{token: token, lines: h.Values("X-Robots-Tag"), left: indexingBytes}
	ix.settle()
	coding := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ",")))
	switch coding {
	case "", "identity":
		return ix, true
	case "gzip", "x-gzip", "br", "zstd":
		ix.coded = newPulled(func(r io.Reader) { ix.readAll(r, coding) })
		return ix, true
	}
	ix.left = 0
	return ix, false
}

// directives are those known so far: "noindex, nofollow", one of them, or "".
func (ix *indexing) directives() string { return *ix.now.Load() }

func (ix *indexing) settle() {
	s := policy.IndexingDirectives(http.Header{"X-Robots-Tag": ix.lines}, ix.token)
	ix.now.Store(&s)
}

// Write looks at the bytes as they pass. It never fails and never waits.
func (ix *indexing) Write(p []byte) (int, error) {
	switch {
	case ix.left <= 0:
	case ix.coded != nil:
		ix.coded.feed(p)
	default:
		ix.scan(p)
	}
	return len(p), nil
}

// Close ends the page.
func (ix *indexing) Close() error {
	if ix.coded != nil {
		ix.coded.end()
	}
	ix.left, ix.carry = 0, nil
	return nil
}

// zstdReaders are kept: one costs more to make than a page to read.
var zstdReaders = sync.Pool{New: func() any {
	z, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	return z
}}

// readAll decodes src and looks at what comes out, until enough was seen.
func (ix *indexing) readAll(src io.Reader, coding string) {
	r := src
	switch coding {
	case "br":
		r = brotli.NewReader(src)
	case "zstd":
		z := zstdReaders.Get().(*zstd.Decoder)
		if z.Reset(src) != nil {
			return
		}
		defer func() {
			if z.Reset(nil) == nil {
				zstdReaders.Put(z)
			}
		}()
		r = z
	default:
		z, err := gzip.NewReader(src)
		if err != nil {
			return
		}
		r = z
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for ix.left > 0 {
		n, err := r.Read(*buf)
		ix.scan((*buf)[:n])
		if err != nil {
			return
		}
	}
}

// rawText are the elements whose content is no markup (HTML 13.1.2), with the mark that ends each.
var rawText = map[string]string{
	"script": "</script", "style": "</style", "textarea": "</textarea", "title": "</title", "xmp": "</xmp",
	"iframe": "</iframe", "noembed": "</noembed", "noframes": "</noframes",
}

// scan looks for meta tags in the next decoded bytes.
func (ix *indexing) scan(p []byte) {
	if ix.left <= 0 {
		return
	}
	p = p[:min(len(p), ix.left)]
	ix.left -= len(p)
	if len(ix.carry) > 0 {
		p = append(ix.carry, p...)
		ix.carry = nil
	}
	for len(p) > 0 {
		if ix.skip != "" {
			i := indexFold(p, ix.skip)
			if i < 0 {
				ix.keep(p[max(0, len(p)-len(ix.skip)+1):])
				return
			}
			p, ix.skip = p[i+len(ix.skip):], ""
		}
		i := bytes.IndexByte(p, '<')
		if i < 0 {
			return
		}
		p = p[i:]
		if len(p) < 4 {
			ix.keep(p)
			return
		}
		if bytes.HasPrefix(p, []byte("<!--")) {
			// "<!-->" is a whole comment (HTML 13.2.5.43), so its end may share the dashes.
			ix.skip, p = "-->", p[2:]
			continue
		}
		name, whole := tagName(p[1:])
		if !whole {
			ix.keep(p)
			return
		}
		if end, raw := rawText[name]; raw {
			ix.skip, p = end, p[1:]
			continue
		}
		if name != "meta" {
			p = p[1:]
			continue
		}
		end := tagEnd(p)
		if end < 0 {
			ix.keep(p)
			return
		}
		ix.meta(p[:end])
		p = p[end:]
	}
}

// keep holds an unfinished tag for the next bytes, unless it is longer than any that says something.
func (ix *indexing) keep(p []byte) {
	if len(p) <= metaBytes && ix.left > 0 {
		ix.carry = bytes.Clone(p)
	}
}

// tagName is the lower-case name of a tag (without its "<"); whole is false while more of it may come.
func tagName(p []byte) (name string, whole bool) {
	const longest = len("noframes")
	for i := 0; i < len(p) && i <= longest; i++ {
		if c := p[i] | 0x20; c < 'a' || c > 'z' {
			return strings.ToLower(string(p[:i])), true
		}
	}
	return "", len(p) > longest
}

// tagEnd is the length of the tag that p begins with, quotes minded, or -1 when it is not whole.
func tagEnd(p []byte) int {
	quote := byte(0)
	for i, c := range p {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case (c == '"' || c == '\'') && i > 0 && (p[i-1] == '=' || p[i-1] == ' '):
			quote = c
		case c == '>':
			return i + 1
		}
	}
	return -1
}

// meta takes one whole meta tag.
func (ix *indexing) meta(tag []byte) {
	z := html.NewTokenizer(bytes.NewReader(tag))
	if t := z.Next(); t != html.StartTagToken && t != html.SelfClosingTagToken {
		return
	}
	var name, content string
	var named, filled bool
	_, more := z.TagName()
	for more {
		var k, v []byte
		k, v, more = z.TagAttr()
		switch { // the first attribute of a name counts
		case string(k) == "name" && !named:
			name, named = strings.TrimSpace(string(v)), true
		case string(k) == "content" && !filled:
			content, filled = string(v), true
		}
	}
	if named && filled && (strings.EqualFold(name, "robots") || ix.token != "" && strings.EqualFold(name, ix.token)) {
		ix.lines = append(ix.lines[:len(ix.lines):len(ix.lines)], content)
		ix.settle()
	}
}

// indexFold is bytes.Index without regard to ASCII case; mark is lower-case.
func indexFold(p []byte, mark string) int {
	for i := 0; i+len(mark) <= len(p); i++ {
		j := bytes.IndexByte(p[i:], mark[0])
		if j < 0 || i+j+len(mark) > len(p) {
			return -1
		}
		i += j
		if strings.EqualFold(string(p[i:i+len(mark)]), mark) {
			return i
		}
	}
	return -1
}

// pulled runs a reader of a stream as a coroutine that gives way whenever it wants more bytes than were fed.
type pulled struct {
	in   bytes.Reader
	next func() (struct{}, bool)
	stop func()
	done bool
}

var errStreamEnds = errors.New("no more of the page is read")

func newPulled(read func(io.Reader)) *pulled {
	p := &pulled{}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		read(readerFunc(func(b []byte) (int, error) {
			for p.in.Len() == 0 {
				if !yield(struct{}{}) {
					return 0, errStreamEnds
				}
			}
			return p.in.Read(b)
		}))
	})
	return p
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// feed lets the reader run on b. A decoder's panic on hostile bytes ends the reading and nothing else.
func (p *pulled) feed(b []byte) {
	if p.done || len(b) == 0 {
		return
	}
	defer func() {
		if recover() != nil {
			p.done = true
		}
		p.in.Reset(nil)
	}()
	p.in.Reset(b)
	if _, more := p.next(); !more {
		p.done = true
	}
}

// end stops the reader; it must be called once the stream ended.
func (p *pulled) end() {
	defer func() { _ = recover() }()
	p.done = true
	p.stop()
}
