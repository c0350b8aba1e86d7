package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"crawlgate/allowlist"
)

// ownFetch is a request that the gate makes for a client without a fetcher behind it.
type ownFetch struct {
	id  *identity
	url *url.URL
}

// FetchSitemap sends one request for a sitemap file of a client's list, on the one path: robots.txt, turn, guard,
// user agent, signature and audit hold for it as for any page. It follows no redirect.
func (g *Gate) FetchSitemap(ctx context.Context, r allowlist.SitemapRequest) (*allowlist.SitemapResponse, error) {
	rules := g.rules()
	c := rules.byName[r.Client]
	if c == nil && len(rules.Clients) == 0 && r.Client == rules.open.Name {
		c = rules.open
	}
	if c == nil {
		return nil, fmt.Errorf("client %s is not configured", r.Client)
	}
	h := r.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Accept-Encoding", "gzip")
	req := (&http.Request{Method: http.MethodGet, URL: r.URL, Host: r.URL.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	resp := g.serve(&inbound{ctx: ctx, r: req, own: &ownFetch{id: &identity{client: c, auth: "none", session: "sitemap " + c.Name}, url: r.URL}})
	if code := Reason(resp.Header.Get("Crawlgate-Reason")); code != "" {
		resp.Body.Close()
		err := fmt.Errorf("sitemap %s: %s", r.URL, code)
		switch code {
		case TurnTooFar, HostBackoff, HostStopped, RobotsUnreadable, Overloaded:
			after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			return nil, &allowlist.SitemapLater{After: time.Duration(after) * time.Second, Err: err}
		}
		return nil, err
	}
	return &allowlist.SitemapResponse{Status: resp.StatusCode, Header: resp.Header, Body: resp.Body}, nil
}
