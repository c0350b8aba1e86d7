package admin

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

// What the operator publishes about the crawler; also on publish.listen.
const (
	pathDirectory = "/.well-known/http-message-signatures-directory"
	pathCard      = "/signature-agent-card.json"
	pathIPRanges  = "/ip-ranges.json"
	pathAbout     = "/about"
)

// publishAge is how long the published files may be kept by others. The key
// directory has its own.
const publishAge = "public, max-age=3600"

// forAll takes back what keeps other origins out: these files are for everybody.
func forAll(h http.Header) {
	h.Set("Cache-Control", publishAge)
	h.Del("Cross-Origin-Resource-Policy")
	h.Del("Cross-Origin-Opener-Policy")
}

func notPublished(what string) error {
	return &httpError{http.StatusNotFound, what + " is not configured here"}
}

func (s *Server) serveDirectory(w http.ResponseWriter, r *http.Request) error {
	if s.o.Directory == nil {
		return notPublished("a key directory")
	}
	forAll(w.Header())
	w.Header().Del("Cache-Control") // sign's own: it knows how long the proof holds
	s.o.Directory.ServeHTTP(w, r)
	return nil
}

func (s *Server) serveCard(w http.ResponseWriter, r *http.Request) error {
	if s.o.Card != nil {
		if card, ok := s.o.Card(r.Host); ok {
			forAll(w.Header())
			w.Header().Set("Content-Type", "application/json")
			_, err := w.Write(card)
			return err
		}
	}
	return notPublished("a signature agent card")
}

// serveAbout shows the crawler page. It is HTML of our own making without
// script; it may bring its style along.
func (s *Server) serveAbout(w http.ResponseWriter, _ *http.Request) error {
	if s.o.About != nil {
		if page, ok := s.o.About(); ok {
			h := w.Header()
			forAll(h)
			h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			h.Set("Content-Type", "text/html; charset=utf-8")
			_, err := w.Write(page)
			return err
		}
	}
	return notPublished("a crawler page")
}

// ipRange is one prefix in the form that crawler operators publish
// (googlebot.json).
type ipRange struct {
	IPv4 string `json:"ipv4Prefix,omitempty"`
	IPv6 string `json:"ipv6Prefix,omitempty"`
}

// serveIPRanges lists the source addresses of requests (RL-6).
func (s *Server) serveIPRanges(w http.ResponseWriter, _ *http.Request) error {
	var addrs []netip.Addr
	if s.o.IPRanges != nil {
		addrs = slices.Clone(s.o.IPRanges())
	}
	if len(addrs) == 0 {
		return notPublished("a list of source addresses")
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap().WithZone("")
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	out := struct {
		Created  string    `json:"creationTime"`
		Prefixes []ipRange `json:"prefixes"`
	}{Created: time.Now().UTC().Format("2006-01-02T15:04:05.000000"), Prefixes: []ipRange{}}
	for _, a := range addrs {
		p := netip.PrefixFrom(a, a.BitLen()).String()
		if a.Is4() {
			out.Prefixes = append(out.Prefixes, ipRange{IPv4: p})
		} else {
			out.Prefixes = append(out.Prefixes, ipRange{IPv6: p})
		}
	}
	forAll(w.Header())
	writeJSON(w, http.StatusOK, out)
	return nil
}

// serveCA gives out the certificate that clients must trust. A private key in
// the same file never leaves: only CERTIFICATE blocks are written.
func (s *Server) serveCA(w http.ResponseWriter, _ *http.Request) error {
	var out []byte
	if s.o.CAPEM != nil {
		for rest := s.o.CAPEM(); ; {
			var b *pem.Block
			if b, rest = pem.Decode(rest); b == nil {
				break
			}
			if b.Type == "CERTIFICATE" {
				out = append(out, pem.EncodeToMemory(&pem.Block{Type: b.Type, Bytes: b.Bytes})...)
			}
		}
	}
	if len(out) == 0 {
		return &httpError{http.StatusNotFound, "there is no interception CA"}
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Header().Set("Content-Disposition", `attachment; filename="crawlgate-ca.pem"`)
	_, err := w.Write(out)
	return err
}

// safeHost is what may stand in the PAC file's string: a name or an address.
var safeHost = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// pac returns the proxy auto-config file for a proxy at host:port; ok is false
// when the address can't be written into it safely.
func pac(proxy string) (text string, ok bool) {
	host, port, err := net.SplitHostPort(proxy)
	if err != nil {
		return "", false
	}
	for _, c := range port {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	if port == "" || len(port) > 5 {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.WithZone("").String()
		if a.Is6() {
			host = "[" + host + "]"
		}
	} else if len(host) > 253 || !safeHost.MatchString(host) {
		return "", false
	}
	return `// crawlgate: every request goes through the gate. There is no "DIRECT" on
// purpose: when the gate is away, requests must fail, not slip past it.
function FindProxyForURL(url, host) {
  return "PROXY ` + host + ":" + port + `";
}
`, true
}

// servePAC gives browsers their proxy. A wildcard listener has no address a
// client could use, so the one by which the client came here stands in.
func (s *Server) servePAC(w http.ResponseWriter, r *http.Request) error {
	text, ok := pac(s.proxyFor(r))
	if !ok {
		return &httpError{http.StatusNotFound, "the proxy's address is not known here"}
	}
	w.Header().Set("Content-Type", "application/x-ns-proxy-autoconfig")
	_, err := w.Write([]byte(text))
	return err
}

// proxyFor is the proxy's address as this client can reach it.
func (s *Server) proxyFor(r *http.Request) string {
	if s.o.ProxyAddr == nil {
		return ""
	}
	addr := s.o.ProxyAddr()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if a, err := netip.ParseAddr(host); host != "" && (err != nil || !a.IsUnspecified()) {
		return addr
	}
	name, _ := splitHost(r.Host)
	return net.JoinHostPort(name, port)
}
