package allowlist

import (
	"bytes"
	"net/url"
	"path"
	"strings"
	"time"
)

// Lives and bounds of grants.
const (
	redirectLife = 10 * time.Minute
	fileLife     = 24 * time.Hour
	maxHops      = 5       // redirects in a chain that may leave the list
	maxGrants    = 100_000 // of all clients together; the oldest go first
	maxPageFiles = 4096    // links learned from one page, so that one page cannot push out all other grants
)

// Kinds of evidence.
const (
	kindRedirect = iota
	kindFile
)

// grant is one URL that the list was widened by.
type grant struct {
	hops     int    // redirects since the last listed page
	gen      uint64 // of the client's list
	readOnly bool   // GET and HEAD
	part     bool   // never as a document: it came from a file of a page
}

func grantKey(b []byte, kind int, client string) []byte {
	b = append(b, "rf"[kind])
	b = append(b, client...)
	return append(b, 0)
}

// findGrant looks for a grant that covers the request.
func (l *List) findGrant(s *scope, r *Request, u *url.URL, now time.Time) (Admission, bool) {
	read := r.Method == "GET" || r.Method == "HEAD" || r.Method == ""
	var buf [512]byte
	if s.redirects {
		g, ok := l.grants.get(appendURL(grantKey(buf[:0], kindRedirect, s.name), u), now)
		if ok && g.gen == s.gen && (read || !g.readOnly) && (!g.part || !isDocument(r)) {
			return Admission{Grant: GrantRedirects, Entry: "a redirect of an admitted page", hops: g.hops, part: g.part, leaf: g.readOnly}, true
		}
	}
	if s.files && read {
		g, ok := l.grants.get(appendURL(grantKey(buf[:0], kindFile, s.name), u), now)
		if ok && g.gen == s.gen {
			return Admission{Grant: GrantFiles, Entry: "a file that an admitted page links to", hops: g.hops, leaf: true}, true
		}
	}
	return Admission{}, false
}

// addGrant admits exactly one URL from now on, and robots.txt of its host.
func (l *List) addGrant(s *scope, kind int, u *url.URL, g grant, now time.Time) {
	g.gen = s.gen
	nearest := func(old, fresh grant) grant {
		if old.gen != fresh.gen {
			return fresh
		}
		fresh.hops = min(fresh.hops, old.hops)
		fresh.part = fresh.part && old.part
		fresh.readOnly = fresh.readOnly && old.readOnly
		return fresh
	}
	l.grants.put(appendURL(grantKey(nil, kind, s.name), u), kind, g, now, nearest)
	if u.Path != "/robots.txt" {
		g.readOnly = true
		l.grants.put(appendURL(grantKey(nil, kind, s.name), robotsOf(u)), kind, g, now, nearest)
	}
}

func robotsOf(u *url.URL) *url.URL {
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
}

// ObserveRedirect is told of every 3xx answer with a Location to an admitted request: with the grant redirects the
// client may follow it, five hops at most since the last page on its list. location may be relative to r.URL.
func (l *List) ObserveRedirect(r Request, a Admission, location *url.URL) {
	s := l.state.Load().clients[r.Client]
	if s == nil || s.open || !s.redirects || location == nil || r.URL == nil {
		return
	}
	if !a.Listed && a.Grant == "" { // under sites: any, where nothing needs a grant
		return
	}
	if location.Scheme == "" || location.Host == "" {
		location = r.URL.ResolveReference(location)
	}
	u, err := normalise(location)
	if err != nil {
		return
	}
	if s.sameSite && siteOf(hostOf(u)) != siteOf(hostOf(r.URL)) {
		return
	}
	hops := 1
	if !a.Listed {
		hops = a.hops + 1
	}
	if hops > maxHops {
		return
	}
	if n, _ := s.match(u); n != 0 {
		return
	}
	g := grant{hops: hops, readOnly: a.leaf, part: a.part || a.Grant == GrantSubresources}
	l.addGrant(s, kindRedirect, u, g, time.Now())
}

func hostOf(u *url.URL) string {
	h, _ := splitPort(u.Host)
	return h
}

// fileExtensions are the kinds of linked files that the grant files covers: documents, tables, books, archives.
var fileExtensions = func() map[string]bool {
	m := map[string]bool{}
	for _, e := range strings.Fields(`pdf ps djvu doc docx docm dot dotx rtf odt ods odp odg xls xlsx xlsm xlsb ppt pptx pptm
		pps ppsx pages numbers key csv tsv txt md tex epub mobi azw3 ics vcf zip 7z rar tar gz tgz bz2 xz zst`) {
		m[e] = true
	}
	return m
}()

// isFile tells whether a URL's path ends in one of the extensions, in upper or lower case.
func isFile(u *url.URL) bool {
	ext := path.Ext(u.Path)
	return len(ext) > 1 && len(ext) <= 6 && fileExtensions[strings.ToLower(ext[1:])]
}

// mayBeFile is a cheap look at a link's end, which spares most links the parser: those whose path has no extension of
// fileExtensions, escaped or not.
func mayBeFile(href []byte) bool {
	if i := bytes.IndexAny(href, "?#"); i >= 0 {
		href = href[:i]
	}
	href = bytes.TrimRight(href, "\t\n\f\r ")
	if bytes.ContainsAny(href[max(0, len(href)-20):], "%\t\n\r") {
		return true
	}
	var ext [8]byte
	n := 0
	for i := len(href) - 1; ; i-- {
		if i < 0 || n == len(ext) || href[i] == '/' {
			return false
		}
		if href[i] == '.' {
			break
		}
		n++
		ext[len(ext)-n] = href[i] | 0x20 // letters to lower case, digits as they are
	}
	return fileExtensions[string(ext[len(ext)-n:])]
}

// learn takes one link of an admitted page and grants it if it is a file that the list does not hold yet. It tells
// whether the link was granted.
func (l *List) learn(s *scope, base *url.URL, href []byte) bool {
	if len(href) > 4096 || !mayBeFile(href) {
		return false
	}
	ref, err := url.Parse(escapeStray(string(bytes.Trim(href, "\t\n\f\r "))))
	if err != nil {
		return false
	}
	u, err := normalise(base.ResolveReference(ref))
	if err != nil || !isFile(u) {
		return false
	}
	if n, _ := s.match(u); n != 0 {
		return false
	}
	l.addGrant(s, kindFile, u, grant{readOnly: true}, time.Now())
	return true
}
