// Package allowlist decides where a client may go: its sites (whole hosts, path prefixes, lists of pages, the URLs of a
// sitemap), widened by evidence that the gate saw itself (redirects, linked files, the files of a page), and closed by
// lists of denied hosts. Beside the list it keeps two ledgers: what site owners asked the operator for (Ledger: stop,
// slow), and which agent a site refused a URL to (Locks).
//
//	l, err := allowlist.New(config, fetcher, logger)
//	admission, err := l.CheckContext(ctx, allowlist.Request{Client: "team-a", URL: u, Method: "GET"})
//	// err is a *Denied: Class, Entry and Hint say why and what to do
package allowlist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// Request is what is asked of the list.
type Request struct {
	Client   string
	URL      *url.URL // normalised: lower-case host as A-labels, no default port, no fragment
	Method   string   // of a CORS preflight: the method it announces
	Any      bool     // the profile says sites: any; only the closed hosts count
	Dest     string   // Sec-Fetch-Dest, "" if the client sends none
	Document bool     // the request was classified as a page's own (a navigation or plain fetch)
	Referer  *url.URL // or nil; the Origin field will do where there is no Referer
	Session  string   // what page windows belong to, within the client

	// Peek only asks: nothing is fetched or waited for, and no page window is kept open.
	Peek bool
}

// Admission says why a request may go out.
type Admission struct {
	Listed bool   // on the client's own list, or open mode: what `sign: sites` means by an allowlisted site
	Entry  string // in words: `rule 1 (https://example.com/)`
	Grant  string // "", redirects, files or subresources

	hops int
	part bool // a part of a page: never a document
	leaf bool // a file, or where one redirects to: what it holds widens nothing further
}

// The classes of a denial. All are the reason `site-denied`.
const (
	HostDenied     = "host_denied"      // on a list of closed hosts
	SiteNotAllowed = "site_not_allowed" // no entry for the host
	PathNotAllowed = "path_not_allowed" // entries for the host, none for this URL
	PageNotOpen    = "page_not_open"    // another host's document inside a page, or a file whose page is not open
	SitemapUnread  = "sitemap_not_read" // the sitemap that might list the URL could not be read yet
	wordsOpen      = "open mode"        //
	denyAll        = "egress.deny_hosts"
	wordsAny       = "profile (sites: any)" //
)

// Denied is the refusal of a request.
type Denied struct {
	Class string // one of the classes above
	Entry string // the closed host's entry, or the entry nearest to the URL, in words; may be ""
	Hint  string // what to do about it; safe to show to the client
	Err   error  // the cause, where there is one (a sitemap that could not be fetched); for the log only
}

func (d *Denied) Error() string { return d.Class + ": " + d.Hint }

// Unwrap gives the cause.
func (d *Denied) Unwrap() error { return d.Err }

// List is the allowlist of all clients. It is safe for concurrent use; Reload swaps the whole of it.
type List struct {
	state   atomic.Pointer[state]
	grants  *evidence[grant]
	windows *windows
	maps    *sitemaps
	found   *found
	log     *slog.Logger

	reload sync.Mutex
	gen    uint64
}

type state struct {
	config  Config
	deny    denySet
	clients map[string]*scope
}

// New compiles the configuration. f fetches sitemaps and may be nil when no entry names one. Close ends what New began.
func New(c Config, f SitemapFetcher, log *slog.Logger) (*List, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &List{
		grants:  newEvidence[grant](maxGrants, redirectLife, fileLife),
		windows: newWindows(),
		maps:    newSitemaps(f, log),
		found:   newFound(),
		log:     log,
	}
	l.state.Store(&state{})
	if err := l.Reload(c); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload replaces the configuration, all or nothing. Grants of a client whose entries changed are void; sitemaps that
// were read stay.
func (l *List) Reload(c Config) error {
	l.reload.Lock()
	defer l.reload.Unlock()
	if err := c.Validate(); err != nil {
		return err
	}
	if l.maps.fetch == nil {
		for _, cl := range c.Clients {
			for _, s := range cl.Sites {
				if s.Sitemap != "" {
					return fmt.Errorf("client %s lists the sitemap %s, but nothing can fetch it", cl.Name, s.Sitemap)
				}
			}
		}
	}
	old := l.state.Load()
	next := &state{config: c, clients: make(map[string]*scope, len(c.Clients))}
	var err error
	if next.deny, err = compileDeny(c.DenyHosts, denyAll); err != nil {
		return err
	}
	before := map[string]*ClientConfig{}
	for i := range old.config.Clients {
		before[old.config.Clients[i].Name] = &old.config.Clients[i]
	}
	maps := l.maps.begin()
	for i := range c.Clients {
		cl := &c.Clients[i]
		s, err := compile(cl, maps.get)
		if err != nil {
			return err
		}
		if b := before[cl.Name]; b != nil && reflect.DeepEqual(b, cl) {
			s.gen = old.clients[cl.Name].gen
		} else {
			l.gen++
			s.gen = l.gen
		}
		next.clients[cl.Name] = s
	}
	l.maps.commit(maps)
	l.state.Store(next)
	return nil
}

// Close stops reading sitemaps and waits until that has ended.
func (l *List) Close() error {
	l.maps.close()
	return nil
}

// Check decides with no bound of its own on the first read of a sitemap but the list's. See CheckContext.
func (l *List) Check(r Request) (Admission, error) { return l.CheckContext(context.Background(), r) }

// CheckContext decides whether the client may go to the URL. The error is a *Denied. Only an entry that is a sitemap
// not read yet makes it wait, at most SitemapWait and no longer than ctx.
//
// Closed hosts come before all else, those of every client before the client's own; then open mode, the client's
// sites, sites: any, grants.
func (l *List) CheckContext(ctx context.Context, r Request) (Admission, error) {
	st := l.state.Load()
	u := r.URL
	if u == nil || u.Opaque != "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Admission{}, &Denied{Class: SiteNotAllowed, Hint: "only http and https URLs with a host can be on a list"}
	}
	if !isNormal(u.Host) || u.User != nil || u.Path == "" {
		n, err := normalise(u)
		if err != nil {
			return Admission{}, &Denied{Class: SiteNotAllowed, Hint: "the URL's host is not valid", Err: err}
		}
		u, r.URL = n, n
	}
	host := hostOf(u)
	if words := st.deny.find(host); words != "" {
		return Admission{}, &Denied{Class: HostDenied, Entry: words,
			Hint: fmt.Sprintf("%s is closed to every client of this proxy", host)}
	}
	s := st.clients[r.Client]
	if s == nil {
		if r.Any {
			return Admission{Entry: wordsAny}, nil
		}
		return Admission{}, &Denied{Class: SiteNotAllowed,
			Hint: fmt.Sprintf("client %s has no sites; its operator can add %s/ to them", r.Client, origin(u))}
	}
	if words := s.deny.find(host); words != "" {
		return Admission{}, &Denied{Class: HostDenied, Entry: words,
			Hint: fmt.Sprintf("%s is closed to client %s", host, s.name)}
	}
	if s.open {
		return Admission{Listed: true, Entry: wordsOpen}, nil
	}
	admits, near := s.match(u)
	if admits == 0 && len(s.sitemaps) > 0 {
		now := time.Now()
		if admits = s.inSitemap(u, now); admits != 0 && !r.Peek {
			s.refreshSitemaps(l, u, now)
		}
	}
	if admits != 0 {
		if s.subresources && r.Referer != nil && !r.Peek {
			l.windows.find(s, &r, time.Now(), true)
		}
		return Admission{Listed: true, Entry: s.words(admits)}, nil
	}
	if r.Any {
		return Admission{Entry: wordsAny}, nil
	}
	if a, ok := l.findGrant(s, &r, u, time.Now()); ok {
		return a, nil
	}
	if a, ok := l.inWindow(s, &r, u); ok {
		return a, nil
	}
	if len(s.sitemaps) > 0 {
		n, err := s.awaitSitemap(ctx, l, &r, u)
		if n != 0 {
			return Admission{Listed: true, Entry: s.words(n)}, nil
		}
		if err != nil {
			return Admission{}, err
		}
	}
	return Admission{}, l.denied(s, &r, u, near)
}

// inWindow admits another host's file as part of an open page.
func (l *List) inWindow(s *scope, r *Request, u *url.URL) (Admission, bool) {
	if !s.subresources || isDocument(r) || !s.post && !isRead(r.Method) {
		return Admission{}, false
	}
	host, ok := l.windows.find(s, r, time.Now(), !r.Peek)
	if !ok || host == hostOf(u) {
		return Admission{}, false
	}
	return Admission{Grant: GrantSubresources, Entry: "a file of an open page of " + host, part: true}, true
}

func isRead(method string) bool { return method == "GET" || method == "HEAD" || method == "" }

// AsDenied gives the refusal inside an error of Check.
func AsDenied(err error) (*Denied, bool) {
	var d *Denied
	ok := errors.As(err, &d)
	return d, ok
}
