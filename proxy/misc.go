package proxy

import (
	"io"
	"net/http"
	"net/url"
	"time"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/proxy/guard"
)

// normalised gives a URL that an answer named (Location) the spelling that requests have here, or nil.
func normalised(u *url.URL) (*url.URL, string) {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, ""
	}
	c := *u
	c.User, c.Fragment, c.RawFragment = nil, "", ""
	out, host, _, err := guard.ParseURL(c.String())
	if err != nil {
		return nil, ""
	}
	return out, host.Name
}

// stopDetail says since when and why a site is stopped.
func stopDetail(e allowlist.Entry) string {
	s := "The operator stopped this site on " + e.When.UTC().Format(time.DateOnly)
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	return s + ". Leave the site alone: its owner asked for that."
}

// applyProfile fills a turn's request with what the profile says.
func applyProfile(r pacing.Request, p pacing.ProfileConfig) pacing.Request {
	r.Parallel, r.Redirect, r.Companions, r.Robots = p.Parallel, p.Redirect, p.Companions, p.Robots
	if p.Key == pacing.KeyRegistrableDomain {
		r.DomainKey = pacing.DomainKey(r.Key)
	}
	return r
}

// recordTunnel writes the event of a tunnel in which no request arrived.
func (g *Gate) recordTunnel(t *tunnel, class string) {
	x := &exchange{g: g, rules: g.rules(), tun: t, began: t.opened}
	x.ev = &audit.Event{Type: audit.TypeRequest, ID: t.id, Time: t.opened, Method: http.MethodConnect, Host: t.host.Name, Port: int(t.port),
		PolicySHA256: x.rules.Hash, Decision: audit.Cancelled, Reason: string(BadRequest), Class: class, Intercepted: true}
	if class == "client_gone" {
		x.ev.Reason = string(reasonClientGone)
	}
	if class == "sni_mismatch" {
		x.ev.Decision, x.ev.Reason = audit.Refused, string(HostMismatch)
	}
	x.setClient(t.client)
	x.ev.SetClient(t.client.addr)
	x.record()
}

// learn gives the tap that reads an HTML answer as it passes: the links a page's files may be fetched by.
func (x *exchange) learn(resp *http.Response) io.WriteCloser {
	if resp.StatusCode/100 != 2 {
		return nil
	}
	return x.g.list.ObserveHTML(x.request, x.admitted, resp.Header.Get("Content-Encoding"))
}

// urlOf is the root of a host.
func urlOf(scheme string, h guard.Host, port uint16) (*url.URL, error) {
	u, err := url.Parse(scheme + "://" + hostPort(h, port) + "/")
	if err != nil {
		return nil, err
	}
	out, _ := normalised(u)
	return out, nil
}

// allowRequestFor asks the list about a URL without a request of the fetcher behind it.
func allowRequestFor(x *exchange, u *url.URL) allowlist.Request {
	return allowlist.Request{Client: x.id.client.Name, URL: u, Method: http.MethodGet, Document: true,
		Any: x.profile.AnySite || x.id.client == x.rules.open, Session: x.id.session}
}
