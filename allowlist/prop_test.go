package allowlist

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// slowCanonical is the canonical path written down a second time, as the RFCs have it: escapes first, then the loop of
// RFC 3986 section 5.2.4 on strings.
func slowCanonical(escaped string) string {
	if !strings.HasPrefix(escaped, "/") {
		escaped = "/" + escaped
	}
	in := slowEscapes(escaped)
	out := ""
	for in != "" {
		switch {
		case strings.HasPrefix(in, "../"):
			in = in[3:]
		case strings.HasPrefix(in, "./"):
			in = in[2:]
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"):
			in = in[3:]
			out = out[:max(strings.LastIndex(out, "/"), 0)]
		case in == "/..":
			in = "/"
			out = out[:max(strings.LastIndex(out, "/"), 0)]
		case in == ".", in == "..":
			in = ""
		default:
			n := strings.Index(in[1:], "/") + 1
			if n == 0 {
				n = len(in)
			}
			out += in[:n]
			in = in[n:]
		}
	}
	return out
}

func slowEscapes(s string) string {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	const reserved = ":/?#[]@!$&'()*+,;=%"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var v byte
		if s[i] == '%' && i+2 < len(s) {
			if n, err := fmt.Sscanf(strings.ToLower(s[i+1:i+3]), "%2x", &v); n == 1 && err == nil && isHex(s[i+1]) && isHex(s[i+2]) {
				if strings.IndexByte(unreserved, v) >= 0 {
					b.WriteByte(v)
				} else {
					fmt.Fprintf(&b, "%%%02X", v)
				}
				i += 2
				continue
			}
		}
		if strings.IndexByte(unreserved+reserved, s[i]) >= 0 && s[i] != '"' {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

// slowUnder compares segment by segment.
func slowUnder(path, prefix string) bool {
	p, q := strings.Split(path, "/"), strings.Split(prefix, "/")
	if last := len(q) - 1; q[last] == "" {
		q = q[:last]
		if len(p) <= len(q) { // /docs is not under /docs/
			return false
		}
	}
	if len(p) < len(q) {
		return false
	}
	for i := range q {
		if p[i] != q[i] {
			return false
		}
	}
	return true
}

func genPath() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{"/", "/", "/", "a", "b", "ab", ".", "..", "%2e", "%2E", "%2f", "%2F", "%61", "%5c", ";", "é", "%c3%a9", "%", "%4", "~", "%7E", " ", "\"", "%zz", "*", "$"})
	return rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
	})
}

func TestCanonicalPathAgainstSlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPath().Draw(t, "path")
		got, hard := canonicalPath(nil, p)
		if want := slowCanonical(p); string(got) != want {
			t.Fatalf("%q: %q, want %q", p, got, want)
		}
		again, _ := canonicalPath(nil, string(got)) // a stray % may become an escape: those never pass a URL parser
		if _, err := url.PathUnescape(p); err == nil && string(again) != string(got) {
			t.Fatalf("%q: not idempotent: %q, then %q", p, got, again)
		}
		if !hard && strings.Contains(strings.ToLower(p), "/../") {
			t.Fatalf("%q is not seen as hard", p)
		}
		kept, _ := canonicalPath([]byte("/x/y"), p)
		if string(kept) != "/x/y"+string(got) {
			t.Fatalf("%q: what stood before was touched: %q", p, kept)
		}
	})
}

// The compiled list agrees with going through all entries one by one.
func TestMatchAgainstSlow(t *testing.T) {
	hosts := []string{"a.example", "b.a.example", "c.b.a.example", "a.example:8080", "xa.example"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "entries")
		var list []Site
		type entry struct {
			scheme, host, path string
			wild               bool
		}
		var slow []entry
		for range n {
			e := entry{rapid.SampledFrom([]string{"http", "https"}).Draw(t, "scheme"), rapid.SampledFrom(hosts).Draw(t, "host"),
				rapid.SampledFrom([]string{"/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "//", "//a", "/a//b", "/%C3%A9", "/a%2Fb", "/a%2Fb/", "/.a/"}).Draw(t, "path"),
				rapid.Bool().Draw(t, "wild")}
			star := ""
			if e.wild {
				star = "*."
			}
			list = append(list, Site{URL: e.scheme + "://" + star + e.host + e.path})
			slow = append(slow, e)
		}
		c := ClientConfig{Name: "c", Sites: list}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		s, err := compile(&c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			raw := rapid.SampledFrom([]string{"http", "https"}).Draw(t, "scheme") + "://" + rapid.SampledFrom(hosts).Draw(t, "host")
			path := genPath().Draw(t, "path")
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if u.Path, err = url.PathUnescape(path); err != nil {
				continue
			}
			u.RawPath = path
			escaped := u.EscapedPath()
			canonical := slowCanonical(escaped)
			_, hard := canonicalPath(nil, escaped)
			want := false
			for _, e := range slow {
				host := u.Host == e.host
				if e.wild {
					host = strings.HasSuffix(u.Host, "."+e.host)
				}
				port := strings.Contains(e.host, ":")
				if !host || port && e.scheme != u.Scheme {
					continue
				}
				if e.path == "/" || canonical == "/robots.txt" || slowUnder(canonical, e.path) && (!hard || underInEveryReading(escaped, e.path)) {
					want = true
				}
			}
			if got, _ := s.match(u); (got != 0) != want {
				t.Fatalf("%s (canonical %q, hard %v): rule %d, want %v", u, canonical, hard, got, want)
			}
		}
	})
}

// Whatever a server makes of the path, what a prefix admits lies under it: read with dot segments removed or not, with
// escaped slashes as slashes or not, with runs of slashes as one or not.
func TestNoWayOutOfAPrefix(t *testing.T) {
	c := ClientConfig{Name: "c", Sites: sites("https://a.example/a/b/")}
	s, err := compile(&c, nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		path := "/a/b/" + genPath().Draw(t, "path")
		u := &url.URL{Scheme: "https", Host: "a.example", RawPath: path}
		if u.Path, err = url.PathUnescape(path); err != nil {
			return
		}
		if n, _ := s.match(u); n == 0 {
			return
		}
		for _, slashes := range []*strings.Replacer{strings.NewReplacer(), strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", "/", "%5c", "/")} {
			seen := slashes.Replace(u.EscapedPath())
			if got := slowCanonical(seen); !slowUnder(got, "/a/b/") {
				t.Fatalf("%q is read as %q", path, got)
			}
			for strings.Contains(seen, "//") {
				seen = strings.ReplaceAll(seen, "//", "/")
			}
			if got := slowCanonical(seen); !slowUnder(got, "/a/b/") {
				t.Fatalf("%q is read as %q", path, got)
			}
		}
	})
}
