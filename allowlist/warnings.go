package allowlist

import (
	"fmt"
	"strings"
)

const maxWarnings = 100

// Warnings names entries that are valid but probably not meant: that another one covers, that are closed by deny_hosts,
// or that can never be reached. Each names the entry and its place.
func (c Config) Warnings() []string {
	w := &warner{}
	global, err := compileDeny(c.DenyHosts, denyAll)
	if err != nil {
		return nil // Validate says it
	}
	for i := range c.Clients {
		w.client(&c.Clients[i], fmt.Sprintf("client %s: ", c.Clients[i].Name), global)
	}
	return w.list()
}

// Warnings is that of Config for one client, without the global deny list.
func (c ClientConfig) Warnings() []string {
	w := &warner{}
	w.client(&c, "", denySet{})
	return w.list()
}

type warner struct {
	found []string
	more  int
}

func (w *warner) add(format string, args ...any) {
	if len(w.found) >= maxWarnings {
		w.more++
		return
	}
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *warner) list() []string {
	if w.more > 0 {
		return append(w.found, fmt.Sprintf("and %d more like these", w.more))
	}
	return w.found
}

func (w *warner) client(c *ClientConfig, who string, global denySet) {
	if c.Validate() != nil {
		return // one thing at a time
	}
	s, err := compile(c, newSitemaps(nil, nil).begin().get)
	if err != nil {
		return
	}
	if len(c.Grants) > 0 && len(c.Sites) == 0 {
		w.add("%sgrants have no effect without sites", who)
	}
	for i := range c.Sites {
		site := &c.Sites[i]
		at := fmt.Sprintf("%ssites[%d] %q", who, i, site.String())
		switch {
		case site.Sitemap != "":
			u, _ := parseExact(site.Sitemap)
			if h, ok := s.hosts[hostKey(u)]; ok && h.whole != 0 {
				w.covered(s, at, h.whole)
			} else if n := s.twin(u.Host, site, i); n != 0 {
				w.covered(s, at, n)
			}
			w.host(s, global, at, hostOf(u))
		case site.Pages != nil:
			for j, p := range site.Pages {
				u, _ := parseExact(p)
				at := fmt.Sprintf("%ssites[%d].pages[%d] %q", who, i, j, p)
				if n, _ := s.match(u); n != 0 && n != int32(i+1) {
					w.covered(s, at, n)
				}
				w.host(s, global, at, hostOf(u))
			}
		default:
			p, _ := parsePrefix(site.URL)
			if n := s.cover(&p, int32(i+1)); n != 0 {
				w.covered(s, at, n)
			}
			host, _ := splitPort(p.host)
			if p.wild {
				w.below(s, global, at, host)
			} else {
				w.host(s, global, at, host)
			}
		}
	}
}

func (w *warner) covered(s *scope, at string, by int32) {
	w.add("%s is covered by sites[%d] %q", at, by-1, s.rules[by-1].site.String())
}

// host warns of an entry whose host is closed or cannot be reached.
func (w *warner) host(s *scope, global denySet, at, host string) {
	for _, d := range []*denySet{&global, &s.deny} {
		if words := d.find(host); words != "" {
			w.add("%s can never be visited: %s closes the host", at, words)
			return
		}
	}
	switch {
	case isAddress(host):
	case !strings.Contains(host, "."):
		w.add("%s has a host of a single label, which is reached only if egress.hosts names it", at)
	case isSpecial(host):
		w.add("%s has a special-use host, which is reached only if egress.hosts names it", at)
	}
}

// below warns of a wildcard all of whose hosts are closed.
func (w *warner) below(s *scope, global denySet, at, host string) {
	for _, d := range []*denySet{&global, &s.deny} {
		words, ok := d.below[host]
		if !ok {
			words = d.find(host)
			ok = words != "" && d.hosts[host] == ""
		}
		if ok {
			w.add("%s can never be visited: %s closes all hosts below it", at, words)
			return
		}
	}
}

// isSpecial tells whether a name is of the special-use domains that the address guard refuses without a lookup
// (RFC 6761, 6762, 7686, 8375, 9476).
func isSpecial(host string) bool {
	for _, d := range []string{"localhost", "localdomain", "local", "internal", "home.arpa", "onion", "invalid", "alt", "in-addr.arpa", "ip6.arpa"} {
		if host == d || strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

// twin gives an earlier entry with the same sitemap.
func (s *scope) twin(host string, site *Site, i int) int32 {
	name, _ := splitPort(host)
	for _, r := range s.sitemaps[siteOf(name)] {
		if int(r.rule-1) < i && s.rules[r.rule-1].site.Sitemap == site.Sitemap {
			return r.rule
		}
	}
	return 0
}

// cover gives another entry that admits everything that the entry self does, or 0. Of two equal ones the later is covered.
func (s *scope) cover(p *prefix, self int32) int32 {
	in := func(h hostRules, ok bool) int32 {
		if !ok {
			return 0
		}
		if h.whole != 0 && h.whole != self {
			return h.whole
		}
		if h.more == nil || len(h.more.prefixes) > 1000 {
			return 0
		}
		for _, q := range h.more.prefixes {
			if q.rule != self && underPrefix([]byte(p.path), q.path) && (q.path != p.path || q.rule < self) {
				return q.rule
			}
		}
		return 0
	}
	own, above := s.hosts, ""
	if p.wild {
		own = s.wild
	}
	h, ok := own[p.key]
	if n := in(h, ok); n != 0 {
		return n
	}
	lead := ""
	above = p.key
	if !p.wild {
		name, port := splitPort(p.host)
		if above = name; port != "" {
			scheme, _, _ := strings.Cut(p.key, "//")
			lead = scheme + "/" + port + "/"
		}
	} else if i := strings.LastIndexByte(above, '/'); i >= 0 {
		lead, above = above[:i+1], above[i+1:]
	}
	for i := strings.IndexByte(above, '.'); i >= 0; i = strings.IndexByte(above, '.') {
		above = above[i+1:]
		h, ok := s.wild[lead+above]
		if n := in(h, ok); n != 0 {
			return n
		}
	}
	return 0
}
