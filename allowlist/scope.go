package allowlist

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// scope is one client's list, compiled: what is looked up for a request is found by its host, whatever the number of
// entries. It never changes after compile.
type scope struct {
	name  string
	open  bool
	rules []rule
	hosts map[string]hostRules // by hostKey
	wild  map[string]hostRules // by wildKey of the name after "*."
	deny  denySet

	sitemaps map[string][]sitemapRule // by registrable domain of the sitemap's host

	redirects, sameSite, files, subresources, post bool

	gen uint64 // grants of an earlier generation of this client's list do not count
}

// rule is one entry of a client's sites, for messages.
type rule struct {
	site  *Site // in the configuration, which stays as it is
	words atomic.Pointer[string]
}

// hostRules is what the list says of one host. Most hosts have one rule, for the whole site.
type hostRules struct {
	whole int32 // rule number, from 1; 0: none
	more  *pathRules
}

type pathRules struct {
	prefixes []prefixRule     // longest first
	index    map[string]int32 // of prefixes by path, where there are many
	longest  int              // path
	pages    map[string]int32
	first    int32 // a rule of the host, to name where none admits
}

// manyPrefixes of one host are looked up by the path's segments instead of one after another.
const manyPrefixes = 16

type prefixRule struct {
	path string
	rule int32
}

type sitemapRule struct {
	rule int32
	set  *sitemap
}

// compile makes a client's scope. The configuration has been validated; sitemapFor gives the shared set of a sitemap URL.
func compile(c *ClientConfig, sitemapFor func(*url.URL) *sitemap) (*scope, error) {
	s := &scope{
		name:  c.Name,
		open:  c.Open,
		post:  c.SubresourcesPost,
		rules: make([]rule, len(c.Sites)),
		hosts: make(map[string]hostRules, len(c.Sites)),
		wild:  map[string]hostRules{},
	}
	grants := c.Grants
	if grants == nil {
		grants = DefaultGrants()
	}
	for _, g := range grants {
		switch g {
		case GrantRedirects:
			s.redirects = true
		case GrantRedirectsSameSite:
			s.redirects, s.sameSite = true, true
		case GrantFiles:
			s.files = true
		case GrantSubresources:
			s.subresources = true
		}
	}
	var err error
	if s.deny, err = compileDeny(c.DenyHosts, "deny_hosts of client "+c.Name); err != nil {
		return nil, err
	}
	for i := range c.Sites {
		if err := s.add(int32(i+1), &c.Sites[i], sitemapFor); err != nil {
			return nil, fmt.Errorf("client %s, site %d: %w", c.Name, i+1, err)
		}
	}
	for _, m := range []map[string]hostRules{s.hosts, s.wild} {
		for _, h := range m {
			if h.more != nil {
				h.more.finish()
			}
		}
	}
	return s, nil
}

func (s *scope) add(n int32, site *Site, sitemapFor func(*url.URL) *sitemap) error {
	s.rules[n-1].site = site
	switch {
	case site.Sitemap != "":
		u, err := parseExact(site.Sitemap)
		if err != nil {
			return err
		}
		if s.sitemaps == nil {
			s.sitemaps = map[string][]sitemapRule{}
		}
		host, _ := splitPort(u.Host)
		domain := siteOf(host)
		s.sitemaps[domain] = append(s.sitemaps[domain], sitemapRule{n, sitemapFor(u)})
	case site.Pages != nil:
		for _, p := range site.Pages {
			u, err := parseExact(p)
			if err != nil {
				return err
			}
			key := hostKey(u)
			h := s.hosts[key]
			if h.more == nil {
				h.more = &pathRules{first: n}
			}
			if h.more.pages == nil {
				h.more.pages = map[string]int32{}
			}
			page := string(appendPage(nil, u))
			if _, ok := h.more.pages[page]; !ok {
				h.more.pages[page] = n
			}
			s.hosts[key] = h
		}
	default:
		p, err := parsePrefix(site.URL)
		if err != nil {
			return err
		}
		m := s.hosts
		if p.wild {
			m = s.wild
		}
		h := m[p.key]
		switch {
		case p.path != "/":
			if h.more == nil {
				h.more = &pathRules{first: n}
			}
			h.more.prefixes = append(h.more.prefixes, prefixRule{p.path, n})
		case h.whole == 0:
			h.whole = n
		}
		m[p.key] = h
	}
	return nil
}

// words names a rule as explanations do: rule 1 (https://example.com/).
func (s *scope) words(n int32) string {
	if n <= 0 {
		return ""
	}
	r := &s.rules[n-1]
	if w := r.words.Load(); w != nil {
		return *w
	}
	w := fmt.Sprintf("rule %d (%s)", n, r.site)
	r.words.Store(&w)
	return w
}

// match looks a URL up among sites, prefixes and pages, not sitemaps. It gives the rule that admits it, or a rule of
// the same host that does not.
func (s *scope) match(u *url.URL) (admits, near int32) {
	if len(s.hosts) > 0 {
		if h, ok := s.hosts[hostKey(u)]; ok {
			if admits, near = h.match(u); admits != 0 {
				return admits, near
			}
		}
	}
	if len(s.wild) > 0 {
		host, port := splitPort(u.Host)
		lead := ""
		if port != "" {
			lead = u.Scheme + "/" + port + "/"
		}
		for i := strings.IndexByte(host, '.'); i >= 0; i = strings.IndexByte(host, '.') {
			host = host[i+1:]
			key := host
			if lead != "" {
				key = lead + host
			}
			h, ok := s.wild[key]
			if !ok {
				continue
			}
			a, n := h.match(u)
			if a != 0 {
				return a, 0
			}
			if near == 0 {
				near = n
			}
		}
	}
	return 0, near
}

func (h hostRules) match(u *url.URL) (admits, near int32) {
	if h.whole != 0 {
		return h.whole, 0
	}
	if h.more == nil {
		return 0, 0
	}
	var buf [512]byte
	escaped := u.EscapedPath()
	key, hard := canonicalPath(buf[:0], escaped)
	if string(key) == "/robots.txt" {
		return h.more.first, 0
	}
	if n := h.more.underPrefix(key, hard, escaped); n != 0 {
		return n, 0
	}
	if len(h.more.pages) > 0 {
		if u.RawQuery != "" || u.ForceQuery {
			key = append(key, '?')
			key = appendCanonical(key, u.RawQuery)
		}
		if n, ok := h.more.pages[string(key)]; ok {
			return n, 0
		}
	}
	return 0, h.more.first
}

// finish orders the prefixes of a host once all are there.
func (p *pathRules) finish() {
	slices.SortStableFunc(p.prefixes, func(a, b prefixRule) int { return len(b.path) - len(a.path) })
	if len(p.prefixes) <= manyPrefixes {
		return
	}
	p.index = make(map[string]int32, len(p.prefixes))
	p.longest = len(p.prefixes[0].path)
	for i := range p.prefixes {
		if _, ok := p.index[p.prefixes[i].path]; !ok {
			p.index[p.prefixes[i].path] = int32(i)
		}
	}
}

// underPrefix gives the rule with the longest prefix that holds the canonical path and, where the path can be read in
// another way, that reading too.
func (p *pathRules) underPrefix(path []byte, hard bool, escaped string) int32 {
	if len(p.prefixes) == 0 {
		return 0
	}
	if p.index == nil {
		for i := range p.prefixes {
			if r := &p.prefixes[i]; underPrefix(path, r.path) && (!hard || underInEveryReading(escaped, r.path)) {
				return r.rule
			}
		}
		return 0
	}
	for n := min(len(path), p.longest); n > 0; n-- {
		// A prefix ends at the end of the path, after a slash or before one.
		if n < len(path) && path[n-1] != '/' && path[n] != '/' {
			continue
		}
		i, ok := p.index[string(path[:n])]
		if !ok {
			continue
		}
		if r := &p.prefixes[i]; !hard || underInEveryReading(escaped, r.path) {
			return r.rule
		}
	}
	return 0
}
