package policy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDepends(t *testing.T) {
	for _, c := range []struct {
		rules, known string
		want         bool
	}{
		{"Disallow: /private/", "/a?token=", false},
		{"Disallow: /a", "/a?token=", false},
		{"Disallow: /a?token=x", "/a?token=", true},
		{"Disallow: /a?other=x", "/a?token=", false},
		{"Disallow: /*?", "/a?token=", false},
		{"Disallow: /*x", "/a?token=", true},
		{"Disallow: /*x\nAllow: /a?tok", "/a?token=", false}, // the longer rule that matches stands
		{"Allow: /*x", "/a?token=", false},                   // allowed either way
		{"Allow: /*x\nDisallow: /a", "/a?token=", true},
		{"Disallow: /b*x", "/a?token=", false},
		{"Disallow: /a$", "/a?token=", false},
		{"Disallow: /*$", "/a?token=", true},
		{"Disallow: /*x$", "/a?token=", true},
		{"Disallow: /", "/robots.txt?x=", false},
		{"Disallow: /%7Ex?a=%zz", "/~x?a=", true},
		{"Content-Signal: /a?t=x ai-input=no", "/a?t=", true},
		{"Content-Signal: ai-input=no", "/a?t=", false},
	} {
		g := Parse([]byte("User-agent: *\n" + c.rules + "\n")).Group("ExampleBot")
		if got := g.Depends(c.known, Options{StopOn: []string{"ai-input=no"}}); got != c.want {
			t.Errorf("%q %s: %v", c.rules, c.known, got)
		}
	}
}

// TestDependsIsSound: where the answer is no, whatever follows changes nothing.
func TestDependsIsSound(t *testing.T) {
	text := func(max int, letters string) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.SampledFrom([]rune(letters)), 0, max, -1)
	}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("User-agent: *\n")
		for range rapid.IntRange(1, 4).Draw(t, "rules") {
			b.WriteString(rapid.SampledFrom([]string{"Allow: /", "Disallow: /"}).Draw(t, "kind") + text(6, "ab?=*$").Draw(t, "pattern") + "\n")
		}
		g := Parse([]byte(b.String())).Group("x")
		known := "/" + text(3, "ab").Draw(t, "path") + "?" + text(3, "ab=").Draw(t, "query")
		if g.Depends(known, Options{}) {
			return
		}
		one := g.MatchString(known + text(5, "ab?=$").Draw(t, "rest"))
		two := g.MatchString(known + text(5, "ab?=$").Draw(t, "other"))
		if one.Allowed != two.Allowed {
			t.Fatalf("%q %s", b.String(), known)
		}
	})
}
