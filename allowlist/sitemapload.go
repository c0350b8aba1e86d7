package allowlist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// load reads a sitemap and all files below it, one after another, and publishes after each what is known by then.
func (s *sitemaps) load(m *sitemap, client string) {
	ctx, cancel := context.WithTimeout(context.Background(), sitemapLoadMax)
	defer cancel()
	watch := make(chan struct{})
	s.wg.Go(func() {
		select {
		case <-s.stop:
			cancel()
		case <-watch:
		}
	})
	defer close(watch)
	if m.found() {
		defer func() { <-s.spare }() // taken when it was wanted
	} else {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
		}
	}
	whole, err := s.read(ctx, m, client)
	m.mu.Lock()
	m.loading = false
	m.err = err
	if err == nil {
		m.fails = 0
		m.next = time.Time{}
	} else {
		m.fails++
		m.next = time.Now().Add(min(sitemapRetry<<min(m.fails-1, 10), sitemapRetryMax))
	}
	m.mu.Unlock()
	s.step()
	if err != nil {
		s.log.Warn("sitemap not read", "sitemap", m.url.Redacted(), "client", client, "partly", !whole, "error", err)
	}
}

// read walks from the sitemap's own file through its indexes. An error of the first file changes nothing; one of a file
// below keeps what that file listed before.
func (s *sitemaps) read(ctx context.Context, m *sitemap, client string) (whole bool, err error) {
	type todo struct {
		url   *url.URL
		depth int
	}
	old := m.data.Load()
	known := map[uint64]*sitemapFile{}
	if old != nil {
		for _, f := range old.files {
			known[f.self] = f
		}
	}
	var (
		files []*sitemapFile
		errs  []error
		total int
		queue = []todo{{m.url, 1}}
		seen  = map[uint64]bool{m.self: true}

		maxFiles, maxURLs = cmp.Or(m.maxFiles, maxSitemapFiles), cmp.Or(m.maxURLs, maxSitemapTotal)
	)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		self := hashURL(next.url)
		f := known[self]
		var err error
		if f == nil || time.Since(f.read) >= sitemapFresh { // else another file made this reading necessary
			f, err = s.readFile(ctx, m, client, next.url, f)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", next.url.Redacted(), err)
			if len(files) == 0 || ctx.Err() != nil {
				return false, err
			}
			if len(errs) < 10 {
				errs = append(errs, err)
			}
			if f = known[self]; f == nil {
				continue
			}
		}
		if total += len(f.urls); total > maxURLs {
			errs = append(errs, fmt.Errorf("more than %d URLs in all, the rest is left out", maxURLs))
			break
		}
		files = append(files, f)
		for _, c := range f.children {
			h := hashURL(c)
			switch {
			case seen[h]: // a loop, or named twice
			case next.depth >= sitemapDepth:
				s.log.Warn("sitemap index too deep, left out", "sitemap", m.url.Redacted(), "file", c.Redacted())
				seen[h] = true
			case len(seen) >= maxFiles:
				if len(seen) == maxFiles {
					s.log.Warn("more files than are read, the rest is left out", "sitemap", m.url.Redacted(), "limit", maxFiles)
				}
				seen[h] = true
				if len(seen) > 2*maxFiles {
					continue
				}
			default:
				seen[h] = true
				queue = append(queue, todo{c, next.depth + 1})
			}
		}
		if old == nil || old.all == nil {
			m.data.Store(&sitemapData{files: slices.Clone(files)})
			s.step()
		}
	}
	d := &sitemapData{files: files, read: time.Now(), whole: len(errs) == 0, all: make([]listed, 0, total+len(files))}
	for _, f := range files {
		d.all = append(d.all, f.urls...)
		d.all = append(d.all, listed{hash: f.self})
	}
	// Of a URL that is listed twice the later date counts.
	slices.SortFunc(d.all, func(a, b listed) int { return cmp.Or(compareListed(a, b), cmp.Compare(b.lastmod, a.lastmod)) })
	d.all = slices.CompactFunc(d.all, func(a, b listed) bool { return a.hash == b.hash })
	m.data.Store(d)
	s.log.Info("sitemap read", "sitemap", m.url.Redacted(), "client", client, "files", len(files), "urls", total)
	return d.whole, errors.Join(errs...)
}

// readFile reads one file, following redirects on the same site. before is what the file was at the last reading, or nil.
func (s *sitemaps) readFile(ctx context.Context, m *sitemap, client string, u *url.URL, before *sitemapFile) (*sitemapFile, error) {
	at := u
	for hop := 0; ; hop++ {
		header := http.Header{}
		if before != nil {
			if before.etag != "" {
				header.Set("If-None-Match", before.etag)
			}
			if before.modified != "" {
				header.Set("If-Modified-Since", before.modified)
			}
		}
		resp, err := s.ask(ctx, m, SitemapRequest{Client: client, URL: at, Header: header, Hop: hop})
		if err != nil {
			return nil, err
		}
		f, to, err := s.take(m, u, at, resp, before)
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		if err != nil || to == nil {
			return f, err
		}
		if hop >= sitemapHops {
			return nil, fmt.Errorf("more than %d redirects", sitemapHops)
		}
		at = to
	}
}

// ask sends one request, when its turn comes. While it is on its way the list admits its URL, which may be the target of
// a redirect or a file that no index was read to name yet.
func (s *sitemaps) ask(ctx context.Context, m *sitemap, r SitemapRequest) (*SitemapResponse, error) {
	m.asking.Store(hashURL(r.URL))
	defer m.asking.Store(0)
	for try := 1; ; try++ {
		resp, err := s.fetch.FetchSitemap(ctx, r)
		var later *SitemapLater
		if !errors.As(err, &later) || try == sitemapTries {
			return resp, err
		}
		wait := time.NewTimer(min(max(later.After, time.Second), time.Hour))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

// take reads one answer: a file, or where it redirects to.
func (s *sitemaps) take(m *sitemap, u, at *url.URL, resp *SitemapResponse, before *sitemapFile) (f *sitemapFile, to *url.URL, err error) {
	switch resp.Status {
	case http.StatusOK:
	case http.StatusNotModified:
		if before == nil {
			return nil, nil, errors.New("status 304 to a request without conditions")
		}
		same := *before
		same.read = time.Now()
		return &same, nil, nil
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		ref, err := url.Parse(escapeStray(resp.Header.Get("Location")))
		if err != nil || ref.String() == "" {
			return nil, nil, fmt.Errorf("status %d without a valid Location", resp.Status)
		}
		to, err = normalise(at.ResolveReference(ref))
		if err != nil {
			return nil, nil, fmt.Errorf("redirect: %w", err)
		}
		if siteOf(hostOf(to)) != m.site {
			return nil, nil, fmt.Errorf("redirects to another site, %s", hostOf(to))
		}
		return nil, to, nil
	default:
		return nil, nil, fmt.Errorf("status %d", resp.Status)
	}
	if resp.Body == nil {
		return nil, nil, errors.New("status 200 without a body")
	}
	body, closeBody, err := decoded(io.Reader(resp.Body), resp.Header.Get("Content-Encoding"))
	if err != nil {
		return nil, nil, err
	}
	defer closeBody()
	f = &sitemapFile{url: u, self: hashURL(u), etag: resp.Header.Get("Etag"), modified: resp.Header.Get("Last-Modified"),
		hosts: map[string]struct{}{}, read: time.Now()}
	foreign := 0
	cut, err := readSitemap(body, func(e sitemapEntry) {
		ref, err := url.Parse(escapeStray(e.loc))
		if err != nil {
			return
		}
		v, err := normalise(at.ResolveReference(ref))
		if err != nil {
			return
		}
		// The owner of a site speaks for that site only (sitemaps.org, "Sitemap file location").
		if siteOf(hostOf(v)) != m.site {
			foreign++
			return
		}
		if e.index {
			f.children = append(f.children, v)
			return
		}
		l := listed{hash: hashURL(v)}
		if t := parseLastmod(e.lastmod); !t.IsZero() {
			l.lastmod = t.Unix()
		}
		f.urls = append(f.urls, l)
		f.hosts[hostKey(v)] = struct{}{}
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(f.urls, compareListed)
	if cut {
		s.log.Warn("sitemap file cut short: past a limit or not well-formed; what came before counts", "file", u.Redacted(), "urls", len(f.urls))
	}
	if foreign > 0 {
		s.log.Warn("sitemap file lists other sites, left out", "file", u.Redacted(), "entries", foreign)
	}
	return f, nil, nil
}
