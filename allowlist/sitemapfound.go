package allowlist

import (
	"container/list"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Bounds of the sitemaps that robots.txt files name. They are read for their dates alone and admit nothing, so they get
// less room than those that a client lists.
const (
	maxFoundLines = 8         // Sitemap lines of one robots.txt
	maxFound      = 500       // sitemaps
	maxFoundFiles = 50        // files of one
	maxFoundURLs  = 200_000   // URLs of one
	foundLoads    = 64        // read at once
	maxFoundTotal = 5_000_000 // URLs of all; what was used longest ago goes first
)

// dayRoom is how far a date without a time may lie from the same date in UTC.
const dayRoom = 14 * time.Hour

// found are the sitemaps that robots.txt files name (RFC 9309 2.2.4, sitemaps.org "Submitting via robots.txt").
type found struct {
	mu     sync.Mutex
	byURL  map[string]*list.Element
	recent *list.List // of *foundSitemap, the last used in front
}

type foundSitemap struct {
	key string
	set *sitemap
}

func newFound() *found { return &found{byURL: map[string]*list.Element{}, recent: list.New()} }

// get gives the sitemap of a URL, made if it is new.
func (f *found) get(u *url.URL) *sitemap {
	key := u.Scheme + string(appendURL(nil, u))
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byURL[key]; e != nil {
		f.recent.MoveToFront(e)
		return e.Value.(*foundSitemap).set
	}
	m := &sitemap{url: u, self: hashURL(u), site: siteOf(hostOf(u)), maxFiles: maxFoundFiles, maxURLs: maxFoundURLs}
	f.byURL[key] = f.recent.PushFront(&foundSitemap{key, m})
	f.shrink()
	return m
}

// shrink forgets what was used longest ago. It looks at what the sitemaps hold now: a reading adds to it later.
func (f *found) shrink() {
	total := 0
	for e := f.recent.Front(); e != nil; {
		next := e.Next()
		s := e.Value.(*foundSitemap)
		if d := s.set.data.Load(); d != nil {
			total += len(d.all)
		}
		if f.recent.Len() > maxFound && next == nil || total > maxFoundTotal {
			f.recent.Remove(e)
			delete(f.byURL, s.key)
		}
		e = next
	}
}

// ChangedBy gives the latest moment at which a page changed, by the sitemaps that a client lists and those that the site's
// robots.txt names (lines, as written), as far as they have been read within the last day. A reading that is due begins
// and is not waited for. Only sitemaps of the page's own site count.
func (l *List) ChangedBy(client string, u *url.URL, lines []string) (t time.Time, ok bool) {
	h, now := hashURL(u), time.Now()
	look := func(m *sitemap) {
		l.maps.want(m, client, now)
		d := m.data.Load()
		if d == nil || d.all == nil || now.Sub(d.read) >= sitemapFresh {
			return
		}
		if sec, listed := m.find(h, u, now); listed && sec != 0 {
			if at := changedBy(sec); !ok || at.After(t) {
				t, ok = at, true
			}
		}
	}
	if s := l.state.Load().clients[client]; s != nil {
		s.candidates(hostOf(u), func(r sitemapRule) bool { look(r.set); return true })
	}
	if l.maps.fetch == nil {
		return t, ok
	}
	for _, line := range lines[:min(len(lines), maxFoundLines)] {
		ref, err := url.Parse(escapeStray(strings.TrimSpace(line)))
		if err != nil || !ref.IsAbs() && !strings.HasPrefix(ref.Path, "/") { // a whole URL is asked for; a path is as clear
			continue
		}
		at, err := normalise(u.ResolveReference(ref))
		if err != nil || siteOf(hostOf(at)) != siteOf(hostOf(u)) {
			continue
		}
		look(l.found.get(at))
	}
	return t, ok
}

// changedBy is the end of the time that a date in a sitemap may mean: the second, or the whole day, month or year where it
// is at the beginning of one, since a date may have no more than that (W3C date and time formats) and no zone either.
func changedBy(sec int64) time.Time {
	t := time.Unix(sec, 0).UTC()
	switch hour, minute, second := t.Clock(); {
	case hour != 0 || minute != 0 || second != 0:
		return t
	case t.Day() != 1:
		return t.AddDate(0, 0, 1).Add(dayRoom)
	case t.Month() != time.January:
		return t.AddDate(0, 1, 0).Add(dayRoom)
	}
	return t.AddDate(1, 0, 0).Add(dayRoom)
}
