package allowlist

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"net/url"
	"time"

	"golang.org/x/net/html"
)

// maxPageBytes is how much of a page, decoded, is searched for links.
const maxPageBytes = 2 << 20

// ObserveHTML is told of every text/html answer to an admitted request, before its body passes. It opens the page's
// window and, with the grant files, gives a writer that learns the links: hand it the body's bytes as received, before
// they go on to the client, and close it at the end, complete or not. Its Write takes all bytes, returns no error, waits for
// nothing and starts no goroutine. It is nil when there is nothing to learn.
//
// Only pages open a window and teach links: answers on the list, or that a redirect led to; a file that turns out to be
// HTML, or a part of a page, widens nothing further.
func (l *List) ObserveHTML(r Request, a Admission, contentEncoding string) io.WriteCloser {
	s := l.state.Load().clients[r.Client]
	if s == nil || s.open || r.URL == nil || a.part || a.leaf || !a.Listed && a.Grant != GrantRedirects {
		return nil
	}
	u, err := normalise(r.URL)
	if err != nil {
		return nil
	}
	l.windows.open(s, r.Session, u, time.Now())
	if !s.files || r.Method == "HEAD" {
		return nil
	}
	return newScanner(contentEncoding, u, func(base *url.URL, href []byte) bool { return l.learn(s, base, href) })
}

// scanner turns the reading of links into a writer: the reader runs as a coroutine that gives way whenever it wants
// more bytes than were written.
type scanner struct {
	in   bytes.Reader
	next func() (struct{}, bool)
	stop func()
	done bool
}

var errNoMore = errors.New("the page ended early")

func newScanner(contentEncoding string, base *url.URL, learn func(base *url.URL, href []byte) bool) *scanner {
	s := &scanner{}
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		src := readerFunc(func(p []byte) (int, error) {
			for s.in.Len() == 0 {
				if !yield(struct{}{}) {
					return 0, errNoMore
				}
			}
			return s.in.Read(p)
		})
		body, closeBody, err := decoded(src, contentEncoding)
		if err != nil {
			return
		}
		defer closeBody()
		readLinks(io.LimitReader(body, maxPageBytes), base, learn)
	})
	return s
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Write learns from the bytes. It never fails and never waits.
func (s *scanner) Write(p []byte) (n int, err error) {
	if s.done || len(p) == 0 {
		return len(p), nil
	}
	// A decoder's fault on hostile bytes must not take the answer with it: the page then teaches nothing more.
	defer func() {
		if recover() != nil {
			s.done = true
		}
		s.in.Reset(nil)
		n, err = len(p), nil
	}()
	s.in.Reset(p)
	if _, more := s.next(); !more {
		s.done = true
	}
	return len(p), nil
}

// Close ends the page.
func (s *scanner) Close() (err error) {
	defer func() { _ = recover() }()
	s.done = true
	s.stop()
	return nil
}

// readLinks gives the links of a page to learn, at most maxPageFiles that were granted. A base element counts from
// where it stands (HTML section 4.2.3), if it is the first.
func readLinks(r io.Reader, base *url.URL, learn func(base *url.URL, href []byte) bool) {
	z := html.NewTokenizer(r)
	granted, based := 0, false
	for granted < maxPageFiles {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
		default:
			continue
		}
		name, more := z.TagName()
		attr := linkAttr(name)
		if attr == "" || !more {
			continue
		}
		for more {
			var key, val []byte
			key, val, more = z.TagAttr()
			if string(key) != attr {
				continue
			}
			if string(name) != "base" {
				if learn(base, val) {
					granted++
				}
			} else if !based && len(val) <= 4096 {
				if ref, err := url.Parse(escapeStray(string(bytes.TrimSpace(val)))); err == nil {
					base, based = base.ResolveReference(ref), true
				}
			}
			break // the first attribute of a name counts
		}
	}
}

// linkAttr is the attribute of an element that names a file, or "".
func linkAttr(name []byte) string {
	switch string(name) {
	case "a", "area", "link", "base":
		return "href"
	case "iframe", "embed":
		return "src"
	case "object":
		return "data"
	}
	return ""
}
