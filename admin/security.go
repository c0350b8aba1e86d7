package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// csp allows the page its own files and nothing else: no inline script or
// style, no frame, no form to elsewhere. URLs and user agents on the page were
// written by strangers; this is the second fence behind escaping.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets the fields that every answer carries. There is no CORS field:
// only the key directory has one, and sign sets it.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// admit says whether the admin listener answers this request.
func (s *Server) admit(r *http.Request, rt route) error {
	// A request in absolute form takes its Host from the target: somebody uses
	// this port as a proxy.
	if r.URL.Host != "" || r.Method == http.MethodConnect {
		s.metrics.denied.WithLabelValues("host").Inc()
		return &httpError{http.StatusForbidden, "this is the admin port of crawlgate, not its proxy port"}
	}
	if rt.publish && (s.o.IgnoreHost || s.published(r.Host)) {
		return nil // public: the organisation's own site shows it to everybody
	}
	if !s.ownHost(r.Host) {
		s.metrics.denied.WithLabelValues("host").Inc()
		return &httpError{http.StatusForbidden, "the Host of this request is not the admin listener's; add it to admin.hosts if it should be"}
	}
	if crossSite(r) {
		s.metrics.denied.WithLabelValues("cross_site").Inc()
		return &httpError{http.StatusForbidden, "a page of another site asked for this; open the address yourself"}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if !s.o.ReadToken || rt.open || s.bearer(r) || s.basic(r) {
			return nil
		}
	case http.MethodPost, http.MethodDelete:
		if s.o.Token == "" {
			s.metrics.denied.WithLabelValues("token").Inc()
			return &httpError{http.StatusForbidden, "changes are switched off: there is no admin token"}
		}
		// Not by Basic: a browser adds that by itself to any request.
		if s.bearer(r) {
			return nil
		}
	default:
		return nil // no path takes another method: 405
	}
	s.metrics.denied.WithLabelValues("token").Inc()
	return &httpError{http.StatusUnauthorized, "this needs the admin token (Authorization: Bearer TOKEN)"}
}

// admitPublished says whether the publish listener answers: under a configured
// authority only, or any with publish.ignore_host.
func (s *Server) admitPublished(r *http.Request, _ route) error {
	if r.URL.Host == "" && (s.o.IgnoreHost || s.published(r.Host)) {
		return nil
	}
	s.metrics.denied.WithLabelValues("host").Inc()
	return &httpError{http.StatusNotFound, "there is nothing at this path"}
}

// published says whether host is a configured authority of the published paths.
func (s *Server) published(host string) bool {
	if s.o.Authorities == nil || host == "" {
		return false
	}
	name, port := splitHost(host)
	for _, a := range s.o.Authorities() {
		an, ap := splitHost(a)
		if an == name && (ap == port || ap == "" && (port == "443" || port == "80")) {
			return true
		}
	}
	return false
}

// ownHost says whether a Host field names this listener. A name that resolves
// here is not enough (DNS rebinding). An address is: a page whose origin is an
// address was served by that address.
func (s *Server) ownHost(host string) bool {
	if host == "" {
		return false
	}
	name, port := splitHost(host)
	for _, h := range s.o.Hosts {
		hn, hp := splitHost(h)
		if hn == name && (hp == "" || hp == port) {
			return true
		}
	}
	if s.o.Addr == nil {
		return false
	}
	addr := s.o.Addr()
	if addr == nil {
		return false
	}
	if addr.Network() == "unix" {
		return true // no browser comes in by a socket file
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return false
	}
	own := ap.Addr().Unmap().WithZone("")
	// Browsers take localhost for loopback without asking a resolver.
	if name == "localhost" {
		return own.IsLoopback() || own.IsUnspecified()
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	if err != nil {
		return false
	}
	ip = ip.Unmap().WithZone("")
	switch {
	case own.IsUnspecified():
		return true
	case own.IsLoopback():
		return ip.IsLoopback()
	}
	return ip == own
}

// splitHost returns the name in lower case without a final dot, and the port.
func splitHost(h string) (name, port string) {
	name = h
	if n, p, err := net.SplitHostPort(h); err == nil {
		name, port = n, p
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), "."), port
}

// crossSite says whether a page of another origin made the request. Browsers
// send Sec-Fetch-Site to loopback and to https; for the rest Origin and Referer
// are what there is. A client that is no browser sends none of them.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	for _, f := range []string{"Origin", "Referer"} {
		for _, v := range r.Header.Values(f) {
			u, err := url.Parse(v)
			if err != nil || !strings.EqualFold(u.Host, r.Host) || u.Host == "" {
				return true // also Origin: null, a page that hides where it is from
			}
		}
	}
	return false
}

// bearer says whether the request carries the token.
func (s *Server) bearer(r *http.Request) bool {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return ok && strings.EqualFold(scheme, "Bearer") && s.isToken(strings.TrimSpace(token))
}

// basic says whether the request carries the token as a password.
func (s *Server) basic(r *http.Request) bool {
	_, token, ok := r.BasicAuth()
	return ok && s.isToken(token)
}

// isToken compares in constant time. The hashes make the lengths equal.
func (s *Server) isToken(got string) bool {
	if s.o.Token == "" {
		return false
	}
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(s.o.Token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
