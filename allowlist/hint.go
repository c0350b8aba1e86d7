package allowlist

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// denied builds the refusal of a URL that nothing admits: which entry came nearest, and what would admit it. A hint is shown
// as a sentence, so it begins with a capital or with a host name.
func (l *List) denied(s *scope, r *Request, u *url.URL, near int32) *Denied {
	host := hostOf(u)
	if near != 0 {
		return &Denied{Class: PathNotAllowed, Entry: s.words(near), Hint: fmt.Sprintf(
			"Client %s may visit parts of %s, not this URL; its operator can add the path or the page to its sites", s.name, host)}
	}
	if n := s.sitemapNear(u); n != 0 {
		return &Denied{Class: PathNotAllowed, Entry: s.words(n), Hint: fmt.Sprintf(
			"The sitemap does not list this URL; client %s may visit what it lists, and its operator can add the page to its sites", s.name)}
	}
	if d := l.deniedInWindow(s, r, host); d != nil {
		return d
	}
	entry, hint := s.nearest(u)
	if hint == "" {
		hint = fmt.Sprintf("%s is not among the sites of client %s; its operator can add %s/ to them", host, s.name, origin(u))
	}
	return &Denied{Class: SiteNotAllowed, Entry: entry, Hint: hint}
}

// deniedInWindow explains why an open page does not cover a request to another host.
func (l *List) deniedInWindow(s *scope, r *Request, host string) *Denied {
	page, open := l.windows.find(s, r, time.Now(), false)
	switch {
	case open && page == host:
		return nil
	case open && isDocument(r) && s.subresources:
		return &Denied{Class: PageNotOpen, Hint: fmt.Sprintf(
			"Pages of %s may load files of other hosts, not documents; ask for %s as a page of its own if it is on the list", page, host)}
	case open && !isDocument(r) && !s.subresources:
		return &Denied{Class: SiteNotAllowed, Hint: fmt.Sprintf(
			"%s is another host than its page's, %s; add subresources to the grants of client %s to load such files", host, page, s.name)}
	case open && !isDocument(r) && !isRead(r.Method):
		return &Denied{Class: SiteNotAllowed, Hint: fmt.Sprintf(
			"A page of %s sent a %s to another host; only GET and HEAD may, unless subresources_post is true for client %s", page, r.Method, s.name)}
	case !open && s.subresources && r.Dest != "" && !isDocument(r):
		return &Denied{Class: PageNotOpen, Hint: fmt.Sprintf(
			"%s may only be loaded as a file of a page that was opened through the proxy in the last %s", host, windowLife)}
	}
	return nil
}

// nearest finds an entry that was probably meant: another port, the parent domain, with or without www.
func (s *scope) nearest(u *url.URL) (entry, hint string) {
	host, port := splitPort(u.Host)
	rule := func(m map[string]hostRules, key string) int32 {
		h, ok := m[key]
		switch {
		case !ok:
			return 0
		case h.whole != 0:
			return h.whole
		case h.more != nil:
			return h.more.first
		}
		return 0
	}
	if port != "" {
		if n := rule(s.hosts, host); n != 0 {
			return s.words(n), fmt.Sprintf("%s is on the list for its default port, not for port %s", host, port)
		}
	}
	if n := rule(s.wild, host); n != 0 {
		return s.words(n), fmt.Sprintf("A wildcard covers the hosts below %s, not the name itself; add %s/ as well", host, origin(u))
	}
	for parent := host; ; {
		i := strings.IndexByte(parent, '.')
		if i < 0 {
			break
		}
		parent = parent[i+1:]
		if n := rule(s.hosts, parent); n != 0 && strings.Contains(parent, ".") {
			return s.words(n), fmt.Sprintf("An entry holds for its host alone, not for %s below it; add %s/ or https://*.%s/", host, origin(u), parent)
		}
	}
	if n := rule(s.hosts, "www."+host); n != 0 {
		return s.words(n), fmt.Sprintf("www.%s is on the list, %s is not; add %s/ as well", host, host, origin(u))
	}
	return "", ""
}
