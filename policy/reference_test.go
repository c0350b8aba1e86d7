package policy

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The reference matcher: slow, obvious, written from RFC 9309 2.2.2 and sharing no code with the real one.

func refUnreserved(c byte) bool {
	return strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", c) >= 0
}

func refHex(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	v := byte(0)
	for _, c := range []byte(strings.ToUpper(s[1:3])) {
		i := strings.IndexByte("0123456789ABCDEF", c)
		if i < 0 {
			return 0, false
		}
		v = v<<4 | byte(i)
	}
	return v, true
}

// refCanonical gives a list of octets or "*" (any run) and "$" (the end).
func refCanonical(s string, pattern bool) (out []string) {
	enc := func(c byte) {
		const hex = "0123456789ABCDEF"
		out = append(out, "%", string(hex[c>>4]), string(hex[c&15]))
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		d, escaped := refHex(s[i:])
		switch {
		case escaped && refUnreserved(d):
			out = append(out, string(rune(d)))
			i += 2
		case escaped:
			enc(d)
			i += 2
		case pattern && c == '*':
			out = append(out, "ANY")
		case pattern && c == '$' && i == len(s)-1:
			out = append(out, "END")
		case c == '*' || c == '$' || c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0:
			enc(c)
		default:
			out = append(out, string(rune(c)))
		}
	}
	return out
}

// refMatches walks pattern against path with a table of every pair of positions.
func refMatches(pattern, path []string) bool {
	reach := make([]bool, len(path)+1)
	reach[0] = true
	for _, p := range pattern {
		next := make([]bool, len(path)+1)
		for i := range reach {
			if !reach[i] {
				continue
			}
			switch {
			case p == "ANY":
				for j := i; j <= len(path); j++ {
					next[j] = true
				}
			case p == "END":
				next[i] = next[i] || i == len(path)
			case i < len(path) && path[i] == p:
				next[i+1] = true
			}
		}
		reach = next
	}
	for _, r := range reach {
		if r {
			return true
		}
	}
	return false
}

func refResolve(path string) string {
	path, query, hasQuery := strings.Cut(path, "?")
	var out []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	path = "/" + strings.Join(out, "/")
	if hasQuery {
		path += "?" + query
	}
	return path
}

type refRule struct {
	allow   bool
	pattern string
	line    int
}

// refJudge gives the class and the line for one group of rules.
func refJudge(rules []refRule, path string) (string, int) {
	raw := strings.Join(refCanonical(path, false), "")
	resolved := refResolve(raw)
	if p, _, _ := strings.Cut(resolved, "?"); p == "/robots.txt" {
		return ClassRobotsItself, 0
	}
	one := func(target string) (string, int) {
		octets := strings.Split(target, "")
		best, line, allow := 0, 0, true
		for _, r := range rules {
			if !strings.HasPrefix(r.pattern, "/") && !strings.HasPrefix(r.pattern, "*") {
				continue
			}
			p := refCanonical(r.pattern, true)
			if !refMatches(p, octets) {
				continue
			}
			if len(p) > best || len(p) == best && r.allow && !allow {
				best, line, allow = len(p), r.line, r.allow
			}
		}
		switch {
		case line == 0:
			return ClassNoMatch, 0
		case allow:
			return ClassRuleAllow, line
		}
		return ClassRuleDisallow, line
	}
	class, line := one(resolved)
	if raw != resolved && class != ClassRuleDisallow {
		if c, l := one(raw); c == ClassRuleDisallow {
			return c, l
		}
	}
	return class, line
}

// compare judges path by rules both ways.
func compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, rules []refRule, path string,
) {
	t.Helper()
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range rules {
		rules[i].line = i + 2
		if rules[i].allow {
			b.WriteString("Allow: " + rules[i].pattern + "\n")
		} else {
			b.WriteString("Disallow: " + rules[i].pattern + "\n")
		}
	}
	wantClass, wantLine := refJudge(rules, path)
	m := Parse([]byte(b.String())).Group("X").MatchString(path)
	if m.Class != wantClass || m.Line != wantLine {
		t.Fatalf("%q\npath %q: %s line %d, the reference says %s line %d", b.String(), path, m.Class, m.Line, wantClass, wantLine)
	}
}

func patterns() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{
		"/", "a", "b", "ab", "*", "**", "$", "%61", "%2f", "%2F", "%2A", "%24", "%7e", "~", "?", "x=", ".", "..", "/.", "/..", "%2e", "é", "%c3%a9",
		"%", "%z", " ", "robots.txt", "/robots.txt", ";", "&", "\"", "\\", "aaab", "abab",
	})
	return rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "slash") {
			s = "/" + s
		}
		return strings.Trim(s, " ")
	})
}

func TestMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "rules")
		rules := make([]refRule, n)
		for i := range rules {
			rules[i] = refRule{allow: rapid.Bool().Draw(t, "allow"), pattern: patterns().Draw(t, "pattern")}
		}
		compare(t, rules, "/"+patterns().Draw(t, "path"))
	})
}

// TestOrderIsIrrelevant: shuffled rules give the same answer, but for the line.
func TestOrderIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"Allow: ", "Disallow: "}).Draw(t, "kind") + patterns().Draw(t, "pattern")
		}), 1, 10).Draw(t, "lines")
		path := "/" + patterns().Draw(t, "path")
		other := rapid.Permutation(lines).Draw(t, "shuffled")
		judge := func(lines []string) Match {
			m := Parse([]byte("User-agent: *\n" + strings.Join(lines, "\n"))).Group("X").MatchString(path)
			m.Line, m.Rule = 0, ""
			return m
		}
		if a, b := judge(lines), judge(other); a != b {
			t.Fatalf("%q: %+v, shuffled %+v", path, a, b)
		}
	})
}

// TestCanonicalIsIdempotent, but for a stray % that decoding completes: `%%36%31` is decoded once, to `%61`.
func TestCanonicalIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := patterns().Draw(t, "path")
		for i := range len(s) {
			if _, ok := refHex(s[i:]); s[i] == '%' && !ok {
				return
			}
		}
		once := appendCanonical(nil, s, false)
		if twice := appendCanonical(nil, string(once), false); string(twice) != string(once) {
			t.Fatalf("%q: %q, then %q", s, once, twice)
		}
	})
}

// TestURLAndTextAgree: a URL is judged alike parsed and as text, unless net/url would send it in another spelling: then
// what is sent is judged.
func TestURLAndTextAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := "https://a.test/" + patterns().Draw(t, "path")
		u, err := url.Parse(s)
		if err != nil || u.RawPath != "" && u.RawPath != u.EscapedPath() {
			return
		}
		if a, b := string(appendTarget(nil, u)), string(appendTargetString(nil, s)); a != b {
			t.Fatalf("%q: %q from the URL, %q from the text", s, a, b)
		}
	})
}

// TestAnswersStand: the same question has the same answer, and a decision on any file ends quickly.
func TestAnswersStand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		path := string(rapid.SliceOf(rapid.Byte()).Draw(t, "path"))
		a, b := Parse(body).Group("X").MatchString(path), Parse(body).Group("X").MatchString(path)
		if a != b {
			t.Fatalf("%+v, then %+v", a, b)
		}
	})
}
