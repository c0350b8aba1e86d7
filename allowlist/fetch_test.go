package allowlist

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// refusing is a fetcher that gets nothing.
type refusing struct{}

var errRefused = errors.New("refused")

func (refusing) FetchSitemap(context.Context, SitemapRequest) (*SitemapResponse, error) {
	return nil, errRefused
}

// origin answers sitemap requests from a table, after a delay.
type fakeOrigin struct {
	mu    sync.Mutex
	files map[string]answer // by URL
	asked []SitemapRequest
	delay time.Duration
}

type answer struct {
	status int
	body   string
	header map[string]string
	err    error
}

func (o *fakeOrigin) set(url string, a answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.files == nil {
		o.files = map[string]answer{}
	}
	o.files[url] = a
}

func (o *fakeOrigin) urls() (out []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.asked {
		out = append(out, r.URL.String())
	}
	return out
}

func (o *fakeOrigin) FetchSitemap(ctx context.Context, r SitemapRequest) (*SitemapResponse, error) {
	o.mu.Lock()
	o.asked = append(o.asked, r)
	a, ok := o.files[r.URL.String()]
	delay := o.delay
	o.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !ok {
		a.status = 404
	}
	if a.err != nil {
		return nil, a.err
	}
	if a.status == 0 {
		a.status = 200
	}
	h := http.Header{}
	for k, v := range a.header {
		h.Set(k, v)
	}
	if e := h.Get("Etag"); e != "" && r.Header.Get("If-None-Match") == e {
		return &SitemapResponse{Status: http.StatusNotModified, Header: h, Body: http.NoBody}, nil
	}
	return &SitemapResponse{Status: a.status, Header: h, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func urlset(locs ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, l := range locs {
		b.WriteString("<url><loc>" + l + "</loc></url>")
	}
	return b.String() + "</urlset>"
}

func index(locs ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, l := range locs {
		b.WriteString("<sitemap><loc>" + l + "</loc></sitemap>")
	}
	return b.String() + "</sitemapindex>"
}
