package audit

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
)

const maxSitemap = 1 << 30 // decoded bytes of one sitemap

// sitemapSet holds the listed URLs: normal path and query by host. Host "" holds those of all hosts, for requests whose
// host is unknown.
type sitemapSet map[string]map[string]struct{}

func (s sitemapSet) add(host, target string) {
	if s[host] == nil {
		s[host] = map[string]struct{}{}
	}
	s[host][target] = struct{}{}
}

func (s sitemapSet) has(host string, target []byte) bool {
	_, ok := s[host][string(target)]
	return ok
}

func (s sitemapSet) addURL(raw string) error {
	u, err := url.Parse(escapeStray(strings.TrimSpace(raw)))
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is not an absolute URL", raw)
	}
	var e entry
	if !e.methodTarget([]byte("GET"), []byte(strings.TrimSpace(raw))) || len(e.target) == 0 {
		return fmt.Errorf("%q is not an absolute URL", raw)
	}
	target := string(appendNormal(nil, e.target))
	s.add(hostName(e.host), target)
	s.add("", target)
	return nil
}

// loadSitemaps reads sitemaps: XML or text, compressed or not. It gives nil without any.
func loadSitemaps(paths []string) (sitemapSet, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	s := sitemapSet{}
	for _, path := range paths {
		if err := s.load(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return s, nil
}

func (s sitemapSet) load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the path is said already
		}
		return err
	}
	defer f.Close()
	o, err := unpack(f)
	if err != nil {
		return err
	}
	defer o.Close()
	in := bufio.NewReader(&limitReader{o, maxSitemap})
	head, err := in.Peek(512)
	if err != nil && err != io.EOF {
		return err
	}
	head = bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	if len(head) > 0 && head[0] == '<' {
		return s.loadXML(in)
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		if err := s.addURL(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

func (s sitemapSet) loadXML(r io.Reader) error {
	d := xml.NewDecoder(r)
	d.Strict = true
	root := ""
	for {
		t, err := d.Token()
		if err == io.EOF {
			if root == "" {
				return errors.New("no urlset in it")
			}
			return nil
		}
		if err != nil {
			return err
		}
		e, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		switch {
		case root == "" && e.Name.Local == "sitemapindex":
			return errors.New("is an index of sitemaps: give the sitemaps it lists")
		case root == "":
			root = e.Name.Local
			if root != "urlset" {
				return fmt.Errorf("is %q, not a urlset", root)
			}
		case e.Name.Local == "loc" && (e.Name.Space == "" || strings.HasPrefix(e.Name.Space, "http://www.sitemaps.org/") || strings.HasPrefix(e.Name.Space, "https://www.sitemaps.org/")):
			var loc string
			if err := d.DecodeElement(&loc, &e); err != nil {
				return err
			}
			if err := s.addURL(loc); err != nil {
				return err
			}
		}
	}
}

// exempt adds the URLs of the Sitemap lines themselves.
func (s sitemapSet) exempt(h *robotsHistory) {
	for _, v := range h.all {
		if v.file == nil {
			continue
		}
		for _, u := range v.file.Sitemaps() {
			_ = s.addURL(u) // one that is no URL is none of a request either
		}
	}
}

// limitReader is an error when there is more to read, not an end.
type limitReader struct {
	r io.Reader
	n int64
}

func (l *limitReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if l.n -= int64(n); l.n < 0 {
		return n, errors.New("is too large")
	}
	return n, err
}

// appendNormal appends the normal form of a path and query: %XX of an unreserved character is decoded,
// every other one gets upper-case digits, what may not stand in a URL is encoded.
func appendNormal(dst, b []byte) []byte {
	const digits = "0123456789ABCDEF"
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == '%' && i+2 < len(b) && unhex(b[i+1]) >= 0 && unhex(b[i+2]) >= 0:
			d := byte(unhex(b[i+1])<<4 | unhex(b[i+2]))
			if isLetter(d) || isDigit(d) || d == '-' || d == '.' || d == '_' || d == '~' {
				dst = append(dst, d)
			} else {
				dst = append(dst, '%', digits[d>>4], digits[d&15])
			}
			i += 2
		case mustEncode[c]:
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

var mustEncode = func() (t [256]bool) {
	for c := range 256 {
		t[c] = c <= ' ' || c > '~' || strings.IndexByte("\"<>\\^`{|}*$", byte(c)) >= 0
	}
	return t
}()
