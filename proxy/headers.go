package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
	"golang.org/x/net/http/httpguts"
)

// hopByHop are fields of one connection (RFC 9110 7.6.1), besides those that Connection names.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// isWebSocket tells whether r asks for a WebSocket.
func isWebSocket(h http.Header) bool {
	return hasToken(h["Connection"], "upgrade") && hasToken(h["Upgrade"], "websocket")
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(part), token) {
				return true
			}
		}
	}
	return false
}

// stripConnection removes the fields that Connection names and all hop-by-hop fields. It keeps what framing needs and
// reports whether trailers are accepted (TE: trailers, the one member of TE that is passed on).
func stripConnection(h http.Header) (trailers bool) {
	trailers = hasToken(h["Te"], "trailers")
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.TrimString(name)
			switch strings.ToLower(name) {
			case "", "host", "content-length", "user-agent":
			default:
				deleteField(h, name)
			}
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
	return trailers
}

// deleteField removes a field in whatever spelling it stands in the map.
func deleteField(h http.Header, name string) {
	h.Del(name)
	delete(h, name)
}

// passable is a copy of a fetcher's header without what no fetcher may say to a site. The values are shared: nobody
// changes them in place.
func passable(h http.Header) http.Header {
	out := make(http.Header, len(h)+4)
	for k, v := range h {
		if !private(k) {
			out[k] = v[:len(v):len(v)]
		}
	}
	return out
}

// stripTrailer removes from a request's trailer what a head may not say either, and what may not come so late (RFC 9110
// 6.5.1): a site that joins trailers to the head would take a user agent or credentials from there that we took away.
func stripTrailer(h http.Header) {
	for k := range h {
		if private(k) || k == "User-Agent" || k == "Cookie" || slices.Contains(hopByHop, k) || !httpguts.ValidTrailerHeader(k) {
			delete(h, k)
		}
	}
}

// private tells whether a field is of the proxy's own vocabulary, of another proxy, or a browser's hint that would
// contradict the user agent.
func private(k string) bool {
	if k == "" {
		return false
	}
	switch k[0] | 0x20 {
	case 'c': // the second is taken for the real one by CGI-like readers
		return hasPrefixFold(k, "crawlgate-") || strings.EqualFold(k, "content_length")
	case 'p':
		return hasPrefixFold(k, "proxy-")
	case 'x':
		return hasPrefixFold(k, "x-forwarded-") || strings.EqualFold(k, "x-real-ip") || strings.EqualFold(k, "x-forwarded")
	case 's':
		return hasPrefixFold(k, "sec-ch-ua")
	case 't':
		return strings.EqualFold(k, "transfer_encoding")
	case 'f':
		return strings.EqualFold(k, "forwarded")
	case 'v':
		return strings.EqualFold(k, "via")
	case 'm':
		return strings.EqualFold(k, "max-forwards")
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// stripAnswer removes from an origin's answer what only this proxy may say, hop-by-hop fields, and what would make a
// browser go round the proxy or repeat the request.
func stripAnswer(h http.Header) {
	if up := h["Connection"]; len(up) > 0 {
		stripConnection(h)
	} else {
		for _, name := range hopByHop {
			delete(h, name)
		}
	}
	for k := range h {
		if hasPrefixFold(k, "crawlgate-") {
			delete(h, k)
		}
	}
	delete(h, "Alt-Svc")
	delete(h, "Accept-Ch")
	delete(h, "Critical-Ch")
	if v, ok := h["Proxy-Status"]; ok {
		if kept := otherStatus(v); kept == "" {
			delete(h, "Proxy-Status")
		} else {
			h["Proxy-Status"] = []string{kept}
		}
	}
}

// ourName is our member of Proxy-Status (RFC 9209).
const ourName = "crawlgate"

// otherStatus drops our own member from a Proxy-Status field. A field that cannot be parsed is dropped whole.
func otherStatus(values []string) string {
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return ""
	}
	list = slices.DeleteFunc(list, func(m httpsfv.Member) bool {
		item, ok := m.(httpsfv.Item)
		if !ok {
			return false
		}
		switch v := item.Value.(type) {
		case httpsfv.Token:
			return strings.EqualFold(string(v), ourName)
		case string:
			return strings.EqualFold(v, ourName)
		}
		return false
	})
	if len(list) == 0 {
		return ""
	}
	s, err := httpsfv.Marshal(list)
	if err != nil {
		return ""
	}
	return s
}

// proxyStatus renders our member.
func proxyStatus(proxyError, details string) string {
	item := httpsfv.NewItem(httpsfv.Token(ourName))
	item.Params.Add("error", httpsfv.Token(proxyError))
	if details != "" {
		item.Params.Add("details", printable(details))
	}
	s, err := httpsfv.Marshal(httpsfv.List{item})
	if err != nil {
		return ourName + "; error=" + proxyError
	}
	return s
}

// printable keeps what a structured field String may hold (RFC 9651 3.3.3).
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}
