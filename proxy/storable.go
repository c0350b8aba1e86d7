package proxy

import (
	"crypto/sha256"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// What may be kept of an answer, and for which requests (RFC 9111 3). Whatever cannot be read for certain is not kept.

// directives are those members of Cache-Control (RFC 9111 5.2) that decide here. Freshness is none of them: what is
// kept is never given out because it is young.
type directives struct {
	noStore, noCache, private, public, mustRevalidate, proxyRevalidate, sharedAge, maxAge, zeroAge, minFresh bool
}

// cacheControl reads Cache-Control. It is strict: a field that is not a list of directives is reported as not ok, and
// then nothing is kept, since it may have meant no-store.
func cacheControl(values []string) (d directives, ok bool) {
	for _, v := range values {
		for v = skipSpace(v); v != ""; v = skipSpace(v) {
			if v[0] == ',' { // empty members are to be ignored (RFC 9110 5.6.1.2)
				v = v[1:]
				continue
			}
			name, rest := cutToken(v)
			if name == "" {
				return d, false
			}
			value := ""
			if strings.HasPrefix(rest, "=") {
				if value, rest, ok = cutValue(rest[1:]); !ok {
					return d, false
				}
			}
			if rest = skipSpace(rest); rest != "" && rest[0] != ',' {
				return d, false
			}
			v = rest
			switch strings.ToLower(name) {
			case "no-store":
				d.noStore = true
			case "private": // with a list of fields, too: which of them matter is not worth knowing
				d.private = true
			case "public":
				d.public = true
			case "must-revalidate":
				d.mustRevalidate = true
			case "proxy-revalidate":
				d.proxyRevalidate = true
			case "no-cache":
				d.noCache = true
			case "max-age":
				d.maxAge, d.zeroAge = true, d.zeroAge || strings.Trim(value, "0") == ""
			case "min-fresh":
				d.minFresh = true
			case "s-maxage":
				d.sharedAge = true
			}
		}
	}
	return d, true
}

func skipSpace(s string) string { return strings.TrimLeft(s, " \t") }

// cutToken takes a token (RFC 9110 5.6.2) off the front.
func cutToken(s string) (token, rest string) {
	n := 0
	for n < len(s) && tokenByte(s[n]) {
		n++
	}
	return s[:n], s[n:]
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// cutValue takes a token or a quoted string (RFC 9110 5.6.4) off the front.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest = cutToken(s)
		return value, rest, value != ""
	}
	for n := 1; n < len(s); n++ {
		switch s[n] {
		case '\\':
			n++
		case '"':
			return s[1:n], s[n+1:], true
		}
	}
	return "", "", false
}

// maxVary bounds the fields that an answer may name.
const maxVary = 32

// varyFields reads Vary: the names in lower case, each once, in order. An answer that varies by anything (*), or whose
// field cannot be read, is not ok. Neither is one that varies by a signature, which never comes twice.
func varyFields(values []string) (names []string, ok bool) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			part = textproto.TrimString(part)
			if part == "" {
				continue
			}
			name, rest := cutToken(part)
			if name == "*" || rest != "" || len(names) == maxVary {
				return nil, false
			}
			name = strings.ToLower(name)
			if strings.HasPrefix(name, "signature") {
				return nil, false
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// varyKey is a digest of the fields of a request that an answer varies by. Whitespace and the number of lines make no
// difference, a field that is absent matches only one that is absent (RFC 9111 4.1).
func varyKey(names []string, request http.Header) (key [8]byte) {
	if len(names) == 0 {
		return key
	}
	var b []byte
	for _, name := range names {
		b = append(append(b, name...), 0)
		values, there := request[http.CanonicalHeaderKey(name)]
		if there {
			b = append(b, 1)
		}
		for i, v := range values {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(b, textproto.TrimString(v)...)
		}
		b = append(b, 0)
	}
	sum := sha256.Sum256(b)
	return [8]byte(sum[:8])
}

// keeps tells whether a plain GET, by its fields, is one whose answer may be kept, and which a kept answer may serve. A cookie makes it
// one person's; a fetcher that says no-store wants no copy (RFC 9111 5.2.1.5); a part of an answer is no answer.
func keeps(h http.Header) bool {
	for _, name := range [...]string{"Cookie", "Range", "If-Range", "If-Match", "If-Unmodified-Since", "Upgrade"} {
		if _, there := h[name]; there {
			return false
		}
	}
	d, ok := cacheControl(h["Cache-Control"])
	return ok && !d.noStore
}

// takesUnasked tells whether a fetcher takes a kept answer without the site being asked: not one that says how fresh it
// must be (RFC 9111 5.2.1, 5.4), nor one whose right to the page only the site knows.
func takesUnasked(h http.Header) bool {
	d, ok := cacheControl(h["Cache-Control"])
	return ok && !d.noCache && !d.maxAge && !d.minFresh && h["Pragma"] == nil && h["Authorization"] == nil && !asksItself(h)
}

// givesUnasked tells whether a kept answer may be given without the site being asked, on the word of its sitemap: not one
// whose site wants to be asked each time, or once it is stale (RFC 9111 4.2.4).
func givesUnasked(h http.Header) bool {
	d, ok := cacheControl(h["Cache-Control"])
	return ok && !d.noCache && !d.mustRevalidate && !d.proxyRevalidate && !d.sharedAge && !d.zeroAge
}

// asksItself tells whether the fetcher made the request conditional.
func asksItself(h http.Header) bool {
	return h["If-None-Match"] != nil || h["If-Modified-Since"] != nil
}

// storable tells whether an answer may be kept (RFC 9111 3 and 3.5), and whether keeping it has any use: there must be a
// validator to ask with. vary names the fields of the request it belongs to.
func storable(request http.Header, status int, h http.Header) (vary []string, ok bool) {
	if status != http.StatusOK || h["Set-Cookie"] != nil || h["Content-Range"] != nil || !validators(h).any() {
		return nil, false
	}
	d, ok := cacheControl(h["Cache-Control"])
	if !ok || d.noStore || d.private {
		return nil, false
	}
	if request["Authorization"] != nil && !d.forAll() {
		return nil, false
	}
	return varyFields(h["Vary"])
}

// forAll tells whether an answer to a request with Authorization may be kept and given again (RFC 9111 3.5).
func (d directives) forAll() bool { return d.public || d.mustRevalidate || d.sharedAge }

// validator is what an answer can be asked about again by (RFC 9110 8.8), each as it came or "".
type validator struct{ etag, modified string }

func (v validator) any() bool { return v.etag != "" || v.modified != "" }

// validators reads the validators of an answer. An entity tag counts in its proper form only: another could be taken
// for two. A date of last modification alone counts if it is at least a second before the answer's own, because the
// page could have changed once more in that second (RFC 9110 8.8.2.2).
func validators(h http.Header) (v validator) {
	if e := h["Etag"]; len(e) == 1 && validTag(e[0]) {
		v.etag = e[0]
	}
	m := h["Last-Modified"]
	if len(m) != 1 {
		return v
	}
	modified, err := http.ParseTime(m[0])
	if err != nil {
		return v
	}
	if v.etag == "" {
		at, err := http.ParseTime(h.Get("Date"))
		if err != nil || at.Sub(modified) < time.Second {
			return v
		}
	}
	v.modified = m[0]
	return v
}

// validTag checks the form of an entity tag (RFC 9110 8.8.3).
func validTag(s string) bool {
	s = strings.TrimPrefix(s, "W/")
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	for _, c := range []byte(s[1 : len(s)-1]) {
		if c < 0x21 || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}

// apply makes a request conditional (RFC 9111 4.3.1). A site that knows entity tags ignores the date (RFC 9110 13.1.3).
func (v validator) apply(h http.Header) {
	if v.etag != "" {
		h["If-None-Match"] = []string{v.etag}
	}
	if v.modified != "" {
		h["If-Modified-Since"] = []string{v.modified}
	}
}

// confirmedBy tells whether a 304 is about the answer with these validators. One that names another validator is about
// something else, whatever was asked, and confirms nothing (RFC 9111 4.3.4).
func (v validator) confirmedBy(h http.Header) bool {
	if e := h["Etag"]; len(e) > 0 {
		return len(e) == 1 && strings.TrimPrefix(e[0], "W/") == strings.TrimPrefix(v.etag, "W/")
	}
	if m := h["Last-Modified"]; len(m) > 0 && v.modified != "" {
		return len(m) == 1 && m[0] == v.modified
	}
	return true
}

// freshen puts the fields of a 304 in place of those kept (RFC 9111 3.2). What describes the bytes stays as it came with
// them: a 304 has none, and sites get these wrong there.
func freshen(kept, h http.Header) http.Header {
	out := make(http.Header, len(kept)+len(h))
	for k, v := range kept {
		out[k] = v
	}
	for k, v := range h {
		switch k {
		case "Etag", "Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Content-Digest", "Content-Md5", "Digest", "Repr-Digest":
		default:
			out[k] = v
		}
	}
	if _, there := h["Date"]; !there {
		out["Date"] = []string{httpDate()}
	}
	return out
}
