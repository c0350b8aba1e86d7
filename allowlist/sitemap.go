package allowlist

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one sitemap entry: its own file, those below it, and the URLs of all.
const (
	// SitemapWait is the longest that a request waits for the first read of a sitemap.
	SitemapWait = 20 * time.Second

	sitemapFresh    = 24 * time.Hour     // then it is read again, behind the requests
	sitemapStale    = 3 * 24 * time.Hour // then it counts as unread: requests wait for it
	sitemapRetry    = time.Minute        // after a failure, doubled with each further one
	sitemapRetryMax = time.Hour          //
	sitemapLoadMax  = 12 * time.Hour     // one reading of all files
	sitemapDepth    = 3                  // an index, an index in it, and the files of that
	sitemapHops     = 5                  // redirects of one file, on the same site
	sitemapTries    = 10                 // of one file whose turn does not come
	sitemapLoads    = 8                  // sitemaps read at once
	maxSitemapFiles = 1000               // of one entry
	maxSitemapTotal = 2_000_000          // URLs of one entry
)

// SitemapFetcher sends the requests for sitemap files: one exchange a call, as itself, under the client's profile, with
// robots.txt, turn and address guard like any other request. It follows no redirect.
type SitemapFetcher interface {
	FetchSitemap(ctx context.Context, r SitemapRequest) (*SitemapResponse, error)
}

// SitemapRequest is one request for a sitemap file.
type SitemapRequest struct {
	Client string      // whose list made it necessary
	URL    *url.URL    // normalised
	Header http.Header // conditional fields (RFC 9110 section 13.1) of a file that was read before, or empty
	Hop    int         // redirects followed so far for this file
}

// SitemapResponse is the answer. Body is as received, with the Content-Encoding that Header names; the list closes it.
type SitemapResponse struct {
	Status int
	Header http.Header
	Body   io.ReadCloser
}

// SitemapLater is a fetcher's error for a file whose turn would come too late, or whose host is to be left alone for a
// while: it is tried again then, at most an hour later and ten times.
type SitemapLater struct {
	After time.Duration
	Err   error // the refusal
}

func (e *SitemapLater) Error() string { return fmt.Sprintf("not before %s: %v", e.After, e.Err) }

// Unwrap gives the refusal.
func (e *SitemapLater) Unwrap() error { return e.Err }

var sitemapSeed = maphash.MakeSeed()

// listed is a URL of a sitemap: the hash of its key, which nobody outside can aim at, and its date in Unix seconds (0: none).
type listed struct {
	hash    uint64
	lastmod int64
}

func compareListed(a, b listed) int {
	switch {
	case a.hash < b.hash:
		return -1
	case a.hash > b.hash:
		return 1
	}
	return 0
}

func hashURL(u *url.URL) uint64 {
	var buf [512]byte
	return maphash.Bytes(sitemapSeed, appendURL(buf[:0], u))
}

// sitemap is the set of URLs that one sitemap and those below it list, shared by all clients that name it.
type sitemap struct {
	url  *url.URL
	self uint64
	site string

	maxFiles, maxURLs int // 0: those of a sitemap that a client lists

	data    atomic.Pointer[sitemapData]
	asking  atomic.Uint64 // the file on its way, or 0
	mu      sync.Mutex
	loading bool
	next    time.Time // not tried again before
	fails   int
	err     error // of the last reading
}

// sitemapData is what was read; it never changes.
type sitemapData struct {
	files []*sitemapFile
	all   []listed // with the files themselves, sorted; nil while files are still being read
	read  time.Time
	whole bool // every file could be read
}

type sitemapFile struct {
	url      *url.URL
	self     uint64
	etag     string
	modified string // Last-Modified
	urls     []listed
	children []*url.URL
	hosts    map[string]struct{}
	read     time.Time
}

// found tells whether the sitemap is one that a robots.txt names, and no client lists.
func (m *sitemap) found() bool { return m.maxFiles > 0 }

// find looks a URL up: the sitemap files themselves, the URLs listed, and robots.txt of their hosts. What was read too
// long ago does not count.
func (m *sitemap) find(h uint64, u *url.URL, now time.Time) (lastmod int64, ok bool) {
	if h == m.self || h == m.asking.Load() {
		return 0, true
	}
	robots := u.Path == "/robots.txt"
	if robots && hostKey(u) == hostKey(m.url) {
		return 0, true
	}
	d := m.data.Load()
	if d == nil || d.all != nil && now.Sub(d.read) >= sitemapStale {
		return 0, false
	}
	if d.all != nil {
		if i, ok := slices.BinarySearchFunc(d.all, listed{hash: h}, compareListed); ok {
			return d.all[i].lastmod, true
		}
	}
	if d.all != nil && !robots {
		return 0, false
	}
	for _, f := range d.files {
		if f.self == h {
			return 0, true
		}
		if robots {
			if _, ok := f.hosts[hostKey(u)]; ok {
				return 0, true
			}
		}
		if d.all == nil {
			if i, ok := slices.BinarySearchFunc(f.urls, listed{hash: h}, compareListed); ok {
				return f.urls[i].lastmod, true
			}
		}
	}
	return 0, false
}

// holds tells whether a host is the sitemap's own or one that it lists.
func (m *sitemap) holds(key string) bool {
	if key == hostKey(m.url) {
		return true
	}
	if d := m.data.Load(); d != nil {
		for _, f := range d.files {
			if _, ok := f.hosts[key]; ok {
				return true
			}
		}
	}
	return false
}

// sitemaps are all sitemaps of the configuration, and what reads them.
type sitemaps struct {
	fetch SitemapFetcher
	log   *slog.Logger

	stop  chan struct{} // closed by close
	slots chan struct{}
	spare chan struct{} // of sitemaps that robots.txt names: their readings never hold up one that requests wait for

	mu      sync.Mutex
	wg      sync.WaitGroup
	closed  bool
	sets    map[string]*sitemap
	changed chan struct{} // closed and replaced at each step of a reading
}

func newSitemaps(f SitemapFetcher, log *slog.Logger) *sitemaps {
	return &sitemaps{fetch: f, log: log, stop: make(chan struct{}), slots: make(chan struct{}, sitemapLoads), spare: make(chan struct{}, foundLoads),
		sets: map[string]*sitemap{}, changed: make(chan struct{})}
}

// sitemapDraft collects the sitemaps of a configuration that is being compiled.
type sitemapDraft struct {
	from *sitemaps
	sets map[string]*sitemap
}

func (s *sitemaps) begin() *sitemapDraft { return &sitemapDraft{s, map[string]*sitemap{}} }

func (d *sitemapDraft) get(u *url.URL) *sitemap {
	key := u.Scheme + string(appendURL(nil, u))
	if m := d.sets[key]; m != nil {
		return m
	}
	d.from.mu.Lock()
	m := d.from.sets[key]
	d.from.mu.Unlock()
	if m == nil {
		m = &sitemap{url: u, self: hashURL(u), site: siteOf(hostOf(u))}
	}
	d.sets[key] = m
	return m
}

func (s *sitemaps) commit(d *sitemapDraft) {
	s.mu.Lock()
	s.sets = d.sets
	s.mu.Unlock()
}

func (s *sitemaps) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// step wakes the requests that wait for a reading.
func (s *sitemaps) step() {
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

func (s *sitemaps) waiting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// want starts a reading of m for a client where one is due, and tells whether one is running.
func (s *sitemaps) want(m *sitemap, client string, now time.Time) (running bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loading {
		return true
	}
	d := m.data.Load()
	if now.Before(m.next) || d != nil && d.whole && now.Sub(d.read) < sitemapFresh {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if m.found() {
		select {
		case s.spare <- struct{}{}:
		default: // a crawl sees more sites than can be read at once; a later request asks again
			return false
		}
	}
	m.loading = true
	s.wg.Go(func() { s.load(m, client) })
	return true
}
