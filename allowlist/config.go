package allowlist

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Config is what the list is made of: the clients with their sites, and the hosts that no client may reach.
type Config struct {
	Clients   []ClientConfig `mapstructure:"clients"`
	DenyHosts []string       `mapstructure:"deny_hosts"` // hosts and "*." wildcards closed to every client; no site entry opens them
}

// ClientConfig is where one client may go.
type ClientConfig struct {
	Name  string `mapstructure:"name"`
	Sites []Site `mapstructure:"sites"` // none: the client reaches nothing, but under a profile with sites: any
	// Grants are the kinds of evidence that widen the list: redirects or redirects-same-site, files, subresources.
	// Absent means redirects and files; an empty list means none.
	Grants           []string `mapstructure:"grants"`
	DenyHosts        []string `mapstructure:"deny_hosts"`        // as Config.DenyHosts, for this client
	SubresourcesPost bool     `mapstructure:"subresources_post"` // page windows admit the profile's other methods too
	Open             bool     `mapstructure:"-"`                 // any site: the mode without configured clients
}

// Site is one entry of a client's list. Exactly one of its fields is set; an entry that is plain text is a URL.
type Site struct {
	URL     string   `mapstructure:"url"`     // a whole site or a path prefix: https://a.example/docs/, https://*.a.example/
	Pages   []string `mapstructure:"pages"`   // exactly these URLs, path and query
	Sitemap string   `mapstructure:"sitemap"` // the sitemap, the ones below it, and the URLs they list
}

// UnmarshalText reads the plain form of an entry, a URL.
func (s *Site) UnmarshalText(text []byte) error {
	*s = Site{URL: string(text)}
	return nil
}

// String names the entry as messages do.
func (s Site) String() string {
	switch {
	case s.Sitemap != "":
		return "sitemap " + s.Sitemap
	case len(s.Pages) == 1:
		return "page " + s.Pages[0]
	case s.Pages != nil:
		return fmt.Sprintf("list of %d pages", len(s.Pages))
	}
	return s.URL
}

// The grants that a client can have.
const (
	GrantRedirects         = "redirects"           // where an admitted answer redirects to
	GrantRedirectsSameSite = "redirects-same-site" // the same, within the registrable domain
	GrantFiles             = "files"               // files that an admitted page links to
	GrantSubresources      = "subresources"        // other hosts' files that an admitted page uses
)

// DefaultGrants are a client's grants when the configuration names none.
func DefaultGrants() []string { return []string{GrantRedirects, GrantFiles} }

// Defaults is the configuration that an empty file means: no client, no closed host.
func Defaults() Config { return Config{} }

// settingError is one problem of the configuration, at a key relative to the Config that found it.
type settingError struct{ key, text string }

func (e *settingError) Error() string { return e.text }

// Key is the setting's path, such as clients[0].sites[2].
func (e *settingError) Key() string { return e.key }

// Validate reports every problem of the clients and of the closed hosts, joined. Each part has a method Key with the
// path of the setting.
func (c Config) Validate() error {
	var errs []error
	add := func(key, text string) { errs = append(errs, &settingError{key, text}) }
	validateHosts(c.DenyHosts, "deny_hosts", add)
	names := map[string]int{}
	for i := range c.Clients {
		at := fmt.Sprintf("clients[%d].", i)
		c.Clients[i].validate(func(key, text string) { add(at+key, text) })
		if first, ok := names[c.Clients[i].Name]; ok {
			add(at+"name", fmt.Sprintf("client %q is clients[%d] already", c.Clients[i].Name, first))
			continue
		}
		names[c.Clients[i].Name] = i
	}
	return errors.Join(errs...)
}

// Validate reports every problem of one client, with keys relative to it (sites[2]).
func (c ClientConfig) Validate() error {
	var errs []error
	c.validate(func(key, text string) { errs = append(errs, &settingError{key, text}) })
	return errors.Join(errs...)
}

func (c *ClientConfig) validate(add func(key, text string)) {
	for i := range c.Sites {
		c.Sites[i].validate(fmt.Sprintf("sites[%d]", i), add)
	}
	seen := map[string]bool{}
	for i, g := range c.Grants {
		key := fmt.Sprintf("grants[%d]", i)
		switch g {
		case GrantRedirects, GrantRedirectsSameSite, GrantFiles, GrantSubresources:
			if seen[g] {
				add(key, fmt.Sprintf("%q stands there twice", g))
			}
		default:
			add(key, fmt.Sprintf("%q is not one of redirects, redirects-same-site, files, subresources", g))
		}
		seen[g] = true
	}
	if seen[GrantRedirects] && seen[GrantRedirectsSameSite] {
		add("grants", "redirects and redirects-same-site contradict each other: keep one")
	}
	if c.SubresourcesPost && !seen[GrantSubresources] {
		add("subresources_post", "has no effect without subresources in grants")
	}
	validateHosts(c.DenyHosts, "deny_hosts", add)
}

func validateHosts(hosts []string, key string, add func(key, text string)) {
	for i, h := range hosts {
		if _, err := hostPattern(h); err != nil {
			add(fmt.Sprintf("%s[%d]", key, i), err.Error())
		}
	}
}

func (s *Site) validate(key string, add func(key, text string)) {
	kinds := 0
	if s.URL != "" {
		kinds++
		if _, err := parsePrefix(s.URL); err != nil {
			add(key, err.Error())
		}
	}
	if s.Pages != nil {
		kinds++
		if len(s.Pages) == 0 {
			add(key+".pages", "the list of pages is empty")
		}
		for i, p := range s.Pages {
			if _, err := parseExact(p); err != nil {
				add(fmt.Sprintf("%s.pages[%d]", key, i), err.Error())
			}
		}
	}
	if s.Sitemap != "" {
		kinds++
		if _, err := parseExact(s.Sitemap); err != nil {
			add(key+".sitemap", err.Error())
		}
	}
	switch {
	case kinds == 0:
		add(key, "the entry is empty: write a URL, {pages: [...]} or {sitemap: URL}")
	case kinds > 1:
		add(key, fmt.Sprintf("%q: an entry is a URL, pages or a sitemap, not several of them", s.String()))
	}
}

// prefix is a parsed site entry.
type prefix struct {
	wild bool   // the hosts below
	key  string // of the host index: hostKey, or wildKey for wildcards
	host string // with port, without "*."
	path string // canonical; "/" is the whole site
}

// parsePrefix reads a site entry.
func parsePrefix(raw string) (prefix, error) {
	if raw != strings.TrimSpace(raw) {
		return prefix{}, fmt.Errorf("%q has blanks at an end", raw)
	}
	if !strings.Contains(raw, "://") {
		return prefix{}, fmt.Errorf("%q has no scheme: write https://%s", raw, strings.TrimLeft(raw, "/"))
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, wild := rest[:end], false
	if strings.Contains(authority, "*") {
		if strings.Contains(authority, "@") {
			return prefix{}, fmt.Errorf("%q carries a user name", raw)
		}
		name, port := authority, ""
		if i := strings.LastIndexByte(authority, ':'); i >= 0 {
			name, port = authority[:i], authority[i:]
		}
		p, err := hostPattern(name)
		if err != nil {
			return prefix{}, err
		}
		wild = true
		raw = scheme + "://" + strings.TrimPrefix(p, "*.") + port + rest[end:]
	}
	u, err := url.Parse(escapeStray(raw))
	if err != nil {
		return prefix{}, fmt.Errorf("%q is not a URL", raw)
	}
	if u.RawQuery != "" || u.ForceQuery {
		return prefix{}, fmt.Errorf("%q has a query: a site is a host and a path, list single URLs under pages", raw)
	}
	if strings.Contains(raw, "#") {
		return prefix{}, fmt.Errorf("%q has a fragment, which is never sent", raw)
	}
	n, err := normalise(u)
	if err != nil {
		return prefix{}, err
	}
	path := n.EscapedPath()
	if strings.Contains(path, "*") || strings.HasSuffix(path, "$") {
		return prefix{}, fmt.Errorf("%q: a path is a plain prefix, * and $ have no meaning in it", raw)
	}
	canon, _ := canonicalPath(nil, path)
	p := prefix{wild: wild, key: hostKey(n), host: n.Host, path: string(canon)}
	if wild {
		p.key = wildKey(n)
	}
	return p, nil
}

// parseExact reads the URL of a page or a sitemap.
func parseExact(raw string) (*url.URL, error) {
	if raw != strings.TrimSpace(raw) {
		return nil, fmt.Errorf("%q has blanks at an end", raw)
	}
	if !strings.Contains(raw, "://") {
		return nil, fmt.Errorf("%q has no scheme: write https://%s", raw, strings.TrimLeft(raw, "/"))
	}
	u, err := url.Parse(escapeStray(raw))
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL", raw)
	}
	if strings.Contains(u.Host, "*") {
		return nil, fmt.Errorf("%q: a wildcard stands only in the host of a whole site", raw)
	}
	return normalise(u)
}
