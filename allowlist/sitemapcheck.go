package allowlist

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// candidates gives the sitemap entries that may list URLs of a host: those of its registrable domain, or of itself.
func (s *scope) candidates(host string, f func(sitemapRule) bool) {
	for name := host; ; {
		for _, r := range s.sitemaps[name] {
			if !f(r) {
				return
			}
		}
		i := strings.IndexByte(name, '.')
		if i < 0 {
			return
		}
		name = name[i+1:]
	}
}

// inSitemap gives the sitemap entry that lists the URL by what has been read so far.
func (s *scope) inSitemap(u *url.URL, now time.Time) (rule int32) {
	var h uint64
	s.candidates(hostOf(u), func(r sitemapRule) bool {
		if h == 0 {
			h = hashURL(u)
		}
		if _, ok := r.set.find(h, u, now); ok {
			rule = r.rule
			return false
		}
		return true
	})
	return rule
}

// sitemapNear gives a sitemap entry whose host, or one of whose hosts, the URL has.
func (s *scope) sitemapNear(u *url.URL) (rule int32) {
	s.candidates(hostOf(u), func(r sitemapRule) bool {
		if r.set.holds(hostKey(u)) {
			rule = r.rule
			return false
		}
		return true
	})
	return rule
}

// awaitSitemap waits for sitemaps that may list the URL and were not read yet, or not lately. It gives the entry that
// lists it; or a *Denied when one cannot be read; or nothing when all were read and none lists it.
func (s *scope) awaitSitemap(ctx context.Context, l *List, r *Request, u *url.URL) (int32, error) {
	h := hashURL(u)
	host := hostOf(u)
	now := time.Now()
	var timeout <-chan time.Time
	for {
		changed := l.maps.waiting()
		var rule, unread int32
		var cause error
		wait := false
		s.candidates(host, func(c sitemapRule) bool {
			running := !r.Peek && l.maps.want(c.set, s.name, now)
			if _, ok := c.set.find(h, u, now); ok {
				rule = c.rule
				return false
			}
			if d := c.set.data.Load(); d != nil && d.all != nil && now.Sub(d.read) < sitemapStale {
				if d.whole {
					return true
				}
			} else if running {
				wait = true
			}
			if unread == 0 {
				unread = c.rule
				c.set.mu.Lock()
				cause = c.set.err
				c.set.mu.Unlock()
			}
			return true
		})
		switch {
		case rule != 0:
			return rule, nil
		case unread == 0:
			return 0, nil
		case !wait:
			return 0, s.unread(unread, cause, "could not be read")
		}
		if timeout == nil {
			t := time.NewTimer(SitemapWait)
			defer t.Stop()
			timeout = t.C
		}
		select {
		case <-changed:
		case <-timeout:
			return 0, s.unread(unread, context.DeadlineExceeded, "is still being read")
		case <-ctx.Done():
			return 0, s.unread(unread, ctx.Err(), "is still being read")
		}
		now = time.Now()
	}
}

func (s *scope) unread(rule int32, cause error, what string) *Denied {
	return &Denied{Class: SitemapUnread, Entry: s.words(rule), Err: cause, Hint: fmt.Sprintf(
		"the sitemap %s %s, so nothing says that client %s may visit this URL; try again later", s.rules[rule-1].site.Sitemap, what, s.name)}
}

// refreshSitemaps starts readings that are due for a URL that a sitemap already admits; nothing waits for them.
func (s *scope) refreshSitemaps(l *List, u *url.URL, now time.Time) {
	s.candidates(hostOf(u), func(r sitemapRule) bool {
		if d := r.set.data.Load(); d != nil && d.all != nil && now.Sub(d.read) >= sitemapFresh {
			l.maps.want(r.set, s.name, now)
		}
		return true
	})
}
