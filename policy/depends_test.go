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
		{"Disallow: /private/", "/a?token=@", false},
		{"Disallow: /a", "/a?token=@", false},
		{"Disallow: /a?token=x", "/a?token=@", true},
		{"Disallow: /a?other=x", "/a?token=@", false},
		{"Disallow: /*?", "/a?token=@", false},
		{"Disallow: /*?sort=", "/a?token=@&page=2", false}, // a masked value holds no ? and no &
		{"Disallow: /*&sort=", "/a?token=@&page=2", false},
		{"Disallow: /*&page=", "/a?token=@&page=2", false}, // matches, whatever the value is
		{"Disallow: /*sort=", "/a?token=@&page=2", true},
		{"Disallow: /*?sort=", "/a?token=@...", true},
		{"Disallow: /*x", "/a?token=@", true},
		{"Disallow: /*x\nAllow: /a?tok", "/a?token=@", false}, // the longer rule that matches stands
		{"Allow: /*x", "/a?token=@", false},                   // allowed either way
		{"Allow: /*x\nDisallow: /a", "/a?token=@", true},
		{"Disallow: /b*x", "/a?token=@", false},
		{"Disallow: /a$", "/a?token=@", false},
		{"Disallow: /*$", "/a?token=@", false},
		{"Disallow: /*x$", "/a?token=@", true},
		{"Disallow: /*x$", "/a?token=@&y=1", false},
		{"Disallow: /*.pdf$", "/a?token=@...", true},
		{"Disallow: /a/b", "/a/b...", false},
		{"Disallow: /a/b", "/a/...", true},
		{"Disallow: /", "/robots.txt?x=@", false},
		{"Disallow: /%7Ex?a=%zz", "/~x?a=@", true},
		{"Disallow: /b", "/a/../b?t=@", false},
		{"Disallow: /b?t=x", "/a/../b?t=@", true},
		{"Content-Signal: /a?t=x ai-input=no", "/a?t=@", true},
		{"Content-Signal: ai-input=no", "/a?t=@", false},
	} {
		g := Parse([]byte("User-agent: *\n" + c.rules + "\n")).Group("ExampleBot")
		known, open := strings.CutSuffix(c.known, "...")
		if got := g.Depends(strings.Split(known, "@"), open, Options{StopOn: []string{"ai-input=no"}}); got != c.want {
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
			b.WriteString(rapid.SampledFrom([]string{"Allow: /", "Disallow: /"}).Draw(t, "kind") + text(6, "ab?&=*$").Draw(t, "pattern") + "\n")
		}
		if rapid.Bool().Draw(t, "signal") {
			b.WriteString("Content-Usage: /" + text(6, "ab?&=*$/.").Draw(t, "pattern") + " search=n\n")
		}
		o := Options{StopOn: []string{"search=no"}}
		g := Parse([]byte(b.String())).Group("x")
		parts := []string{"/" + text(6, "ab/.").Draw(t, "path") + "?" + text(3, "ab=").Draw(t, "query")}
		for range rapid.IntRange(0, 2).Draw(t, "masked") {
			parts = append(parts, text(3, "ab&=").Draw(t, "part"))
		}
		open := rapid.Bool().Draw(t, "open")
		if g.Depends(parts, open, o) {
			return
		}
		fill := func(name string) string {
			var b strings.Builder
			for i, p := range parts {
				if i > 0 {
					b.WriteString(text(4, "ab=$").Draw(t, name))
				}
				b.WriteString(p)
			}
			if open {
				b.WriteString(text(5, "ab?&=$").Draw(t, name))
			}
			return b.String()
		}
		one, two := fill("one"), fill("two")
		if g.DecideString(one, o).Allowed != g.DecideString(two, o).Allowed {
			t.Fatalf("%q %s %s", b.String(), one, two)
		}
	})
}
