package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"net/url"
	"strings"
	"sync"
)

// RedactedURL is a URL whose secrets are masked. Only a log's own rules make one (or reading one back from a log), so that
// no caller can put a raw URL into an event.
type RedactedURL struct{ s string }

// String returns the text, "" for none.
func (u RedactedURL) String() string { return u.s }

// MarshalText returns the text.
func (u RedactedURL) MarshalText() ([]byte, error) { return []byte(u.s), nil }

// UnmarshalText reads a URL back from a log.
func (u *RedactedURL) UnmarshalText(b []byte) error {
	u.s = string(b)
	return nil
}

// Redactor masks URLs and hashes what must be found again without being shown.
type Redactor struct {
	mode     string // secrets, full, names, drop
	fullFor  map[string]bool
	hashIP   bool
	key      []byte
	hmacPool sync.Pool
}

func newRedactor(c Config, key []byte) *Redactor {
	r := &Redactor{mode: c.Query, hashIP: c.ClientIP == "hash", fullFor: map[string]bool{}, key: key}
	if r.mode == "" {
		r.mode = "secrets"
	}
	for _, h := range c.FullFor {
		r.fullFor[strings.ToLower(strings.TrimSuffix(h, "."))] = true
	}
	r.hmacPool.New = func() any { return hmac.New(sha256.New, key) }
	return r
}

// apply fills what an event says about URLs and the client's address.
func (r *Redactor) apply(e *Event) {
	if u := e.rawURL; u != nil {
		p := bodies.Get().(*[]byte)
		full := appendURL((*p)[:0], u)
		e.URLHash = r.sum(full)
		mode := r.mode
		if len(r.fullFor) > 0 && r.fullFor[strings.Trim(e.Host, "[]")] {
			mode = "full"
		}
		text := string(full)
		*p = full
		bodies.Put(p)
		if mode == "full" {
			e.URL.s = text
		} else {
			e.URL.s, e.QueryMasked = maskQuery(text, mode)
		}
		e.rawURL = nil
	}
	if e.rawLocation != "" {
		e.Location.s = r.maskReference(e.rawLocation)
		e.rawLocation = ""
	}
	if r.hashIP && e.Client.IP != "" && !strings.HasPrefix(e.Client.IP, "hmac:") {
		e.Client.IP = "hmac:" + r.sum([]byte(e.Client.IP))[:32]
	}
}

// URL gives a URL's masked text and its hash, as an event would hold them; for finding a URL in a log.
func (r *Redactor) URL(u *url.URL) (text RedactedURL, urlHash string) {
	e := &Event{}
	e.SetURL(u)
	r.apply(e)
	return e.URL, e.URLHash
}

// sum is the HMAC-SHA-256 of b under the local key, in hex.
func (r *Redactor) sum(b []byte) string {
	h := r.hmacPool.Get().(hash.Hash)
	h.Reset()
	h.Write(b)
	var sum [sha256.Size]byte
	s := h.Sum(sum[:0])
	r.hmacPool.Put(h)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], s)
	return string(text[:])
}

// appendURL writes the whole URL without user info and fragment.
func appendURL(b []byte, u *url.URL) []byte {
	if u.Scheme != "" {
		b = append(b, u.Scheme...)
		b = append(b, ':')
	}
	if u.Host != "" || u.Scheme != "" && u.Opaque == "" {
		b = append(b, "//"...)
		b = append(b, u.Host...)
	}
	if u.Opaque != "" {
		b = append(b, u.Opaque...)
	} else {
		path := u.RawPath
		if path == "" {
			path = u.EscapedPath()
		}
		b = append(b, path...)
	}
	if u.ForceQuery || u.RawQuery != "" {
		b = append(b, '?')
		b = append(b, u.RawQuery...)
	}
	return b
}

// maskReference masks a URL or relative reference that a site sent.
func (r *Redactor) maskReference(ref string) string {
	ref, _, _ = strings.Cut(ref, "#")
	if i := strings.Index(ref, "//"); i >= 0 && (i == 0 || strings.HasSuffix(ref[:i], ":")) {
		rest := ref[i+2:]
		end := strings.IndexAny(rest, `/\?`)
		if end < 0 {
			end = len(rest)
		}
		if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
			rest, end = rest[at+1:], end-at-1
		}
		host, _ := splitHost(rest[:end])
		if r.fullFor[strings.Trim(strings.ToLower(host), "[]")] {
			return ref[:i+2] + rest
		}
		ref = ref[:i+2] + rest
	}
	if r.mode == "full" {
		return ref
	}
	masked, _ := maskQuery(ref, r.mode)
	return masked
}

// maskQuery masks a URL's query; the rest stays as it is.
func maskQuery(u, mode string) (string, bool) {
	head, query, found := strings.Cut(u, "?")
	switch {
	case !found:
		return u, false
	case mode == "drop":
		return head, query != ""
	}
	var b strings.Builder
	done := 0 // bytes of u that stand in b; nothing is copied until something is masked
	mask := func(from, to int, text string) {
		b.WriteString(u[done:from])
		b.WriteString(text)
		done = to
	}
	for at := len(head) + 1; ; {
		end := len(u)
		if i := strings.IndexAny(u[at:], "&;"); i >= 0 {
			end = at + i
		}
		name, value, pair := strings.Cut(u[at:end], "=")
		if secretValue(name) {
			mask(at, at+len(name), masked(name))
		}
		if pair && value != "" && value != "*" && (mode == "names" || secretName(unescape(name, ' ')) || secretValue(value)) {
			mask(at+len(name)+1, end, masked(value))
		}
		if end == len(u) {
			break
		}
		at = end + 1
	}
	if done == 0 {
		return u, false
	}
	b.WriteString(u[done:])
	return b.String(), true
}

// masked stands for a text: a star for all but its question marks, which rules of robots.txt look at.
func masked(s string) string { return "*" + strings.Repeat("?*", strings.Count(s, "?")) }

// secretWords are the parts of a parameter's name that make its value a secret.
var secretWords = []string{"token", "key", "secret", "pass", "pwd", "auth", "sig", "session", "sid", "code", "jwt", "credential"}

// secretName tells whether an unescaped parameter name holds one of the words.
func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, w := range secretWords {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// unescape undoes escapes where they are valid; nested escapes are undone too, at most three times. plus stands for a plus
// sign: ' ' in a form, '+' in a digit of base64.
func unescape(s string, plus byte) string {
	for range 3 {
		if !strings.ContainsAny(s, "%+") {
			break
		}
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			switch {
			case s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0:
				b.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
				i += 2
			case s[i] == '+':
				b.WriteByte(plus)
			default:
				b.WriteByte(s[i])
			}
		}
		if b.String() == s {
			break
		}
		s = b.String()
	}
	return s
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// MaskURL masks a URL as the default setting does, for finding it in a log whose key is not at hand.
func MaskURL(u *url.URL) RedactedURL {
	text, _ := maskQuery(string(appendURL(nil, u)), "secrets")
	return RedactedURL{text}
}
