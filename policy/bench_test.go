package policy

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jimsmart/grobotstxt"
)

// cpu reports the processor time of an operation, which other work on the machine disturbs less than the clock.
func cpu(b *testing.B) func() {
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}

func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rulesFile makes a file with n rules for us among groups of others.
func rulesFile(n int) string {
	var b strings.Builder
	b.WriteString("User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\n")
	for i := range n {
		switch i % 10 {
		case 3:
			fmt.Fprintf(&b, "Disallow: /*?filter%d=\n", i)
		case 6:
			fmt.Fprintf(&b, "Allow: /section-%d/public\n", i)
		case 9:
			fmt.Fprintf(&b, "Disallow: /archive/*/page-%d$\n", i)
		default:
			fmt.Fprintf(&b, "Disallow: /section-%d/private/\n", i)
		}
	}
	b.WriteString("Sitemap: https://a.test/sitemap.xml\n")
	return b.String()
}

func sized(n int) []byte {
	s := rulesFile(n / 20)
	for len(s) < n {
		s += s[:min(len(s), n-len(s))]
	}
	return []byte(s[:n])
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1 << 10, 50 << 10, 500 << 10} {
		body := sized(n)
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			done := cpu(b)
			for b.Loop() {
				Parse(body)
			}
			done()
		})
	}
}

// BenchmarkParseGoogle is the reference port's reader, for comparison.
func BenchmarkParseGoogle(b *testing.B) {
	body := string(sized(50 << 10))
	b.SetBytes(int64(len(body)))
	done := cpu(b)
	for b.Loop() {
		grobotstxt.Parse(body, nothing{})
	}
	done()
}

type nothing struct{}

func (nothing) HandleRobotsStart()                      {}
func (nothing) HandleRobotsEnd()                        {}
func (nothing) HandleUserAgent(int, string)             {}
func (nothing) HandleAllow(int, string)                 {}
func (nothing) HandleDisallow(int, string)              {}
func (nothing) HandleSitemap(int, string)               {}
func (nothing) HandleUnknownAction(int, string, string) {}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1 << 10, 50 << 10, 500 << 10} {
		rs := Parse(sized(n))
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			done := cpu(b)
			for b.Loop() {
				rs.Group("ExampleBot")
			}
			done()
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	u := target(b, "https://a.test/products/shoes/red-runner-42?color=red&size=42")
	for _, n := range []int{10, 100, 1000, 10000} {
		g := Parse([]byte(rulesFile(n))).Group("ExampleBot")
		b.Run(fmt.Sprintf("%drules", n), func(b *testing.B) {
			b.ReportAllocs()
			done := cpu(b)
			for b.Loop() {
				g.Match(u)
			}
			done()
		})
	}
}

// hostileFiles are 500 KiB each, made to be as slow as a file can be against hostilePath.
func hostileFiles() map[string]string {
	lines := func(key string, line func(i int) string) string {
		var b strings.Builder
		b.WriteString("User-agent: *\n")
		for i := 0; b.Len() < MaxBody-20000; i++ {
			b.WriteString(key + ": " + line(i) + "\n")
		}
		return b.String()
	}
	fill := func(line func(i int) string) string { return lines("Disallow", line) }
	bits := func(i, n int) string {
		s := []byte(strings.Repeat("a", n))
		for j := range s {
			if i>>j&1 == 1 {
				s[j] = 'b'
			}
		}
		return string(s)
	}
	return map[string]string{
		"stars":        fill(func(int) string { return "/" + strings.Repeat("*a", 4000) + "c" }),
		"short":        fill(func(i int) string { return "/*" + bits(i, 17) + "c" }),
		"pairs":        fill(func(i int) string { return "/*" + bits(i, 8) + "*" + bits(i>>8, 9) + "c" }),
		"end":          fill(func(i int) string { return "/*a*" + bits(i, 17) + "c*$" }),
		"nested":       fill(func(i int) string { return "/" + strings.Repeat("a", i%900) }),
		"prefixes":     fill(func(i int) string { return "/aaaaaaa" + bits(i, 17) }),
		"single stars": fill(func(i int) string { return "*" + bits(i, 17) + "*" }),
		"signals":      lines("Content-Signal", func(i int) string { return "/*" + bits(i, 17) + "c search=yes" }),
		"usage":        lines("Content-Usage", func(i int) string { return "/*a*" + bits(i, 17) + "c search=y" }),
		"windows":      lines("Request-rate", func(i int) string { return fmt.Sprintf("1/%d 0000-%02d%02d", i, i/60%24, i%60) }),
		"names":        strings.Repeat("User-agent: a\nCrawl-delay: 1\n", 17000),
		"sitemaps":     strings.Repeat("Sitemap: x\n", 46000),
		"long pieces":  fill(func(i int) string { return "/*" + strings.Repeat("a", 2000) + bits(i, 12) }),
	}
}

// hostileShapes are 500 KiB each, made to be slow to read.
func hostileShapes() map[string]string {
	fill := func(s string) string { return strings.Repeat(s, MaxBody/len(s)) }
	return map[string]string{
		"one line":       "Disallow: /" + strings.Repeat("a", MaxBody-11),
		"one key":        strings.Repeat("d", MaxBody-2) + ":/",
		"one high":       strings.Repeat("\xe9", MaxBody),
		"CR":             fill("\r"),
		"LF":             fill("\n"),
		"CRLF":           fill("\r\n"),
		"LFCR":           fill("\n\r"),
		"colons":         fill(":"),
		"colon lines":    fill(":\n"),
		"hashes":         fill("#\n"),
		"blanks":         fill(" "),
		"percent":        fill("%"),
		"NUL":            fill("\x00"),
		"letters":        fill("a:\n"),
		"two words":      fill("A B\n"),
		"unknown":        fill("crap:\n"),
		"unknown upper":  fill("CRAP:\n"),
		"unknown words":  fill("Crap x\n"),
		"unknown blanks": fill("A CRA:\n"),
		"unknown high":   fill("CR\xe9\xe9:\n"),
		"unknown deep":   fill("diasllo:\n"),
		"unknown long":   fill("content-signalz:\n"),
		"typos":          fill("DIASLLOW:/\n"),
		"typos last":     fill("disallaw:\n"),
		"sitemaps":       fill("site-map:x\n"),
		"agents":         fill("user agent:a\n"),
		"allow":          fill("allow:\n"),
		"host":           fill("host:h\n"),
		"escapes":        fill("Disallow: /%c3%a9\n"),
		"escapes short":  fill("allow:%aa\n"),
		"high short":     fill("allow:\xe9\n"),
		"nbsp":           "User-agent: *\n" + fill("Disallow: "+strings.Repeat("\u00a0", 8000)+"/"+strings.Repeat("\u00a0", 300)+"\n"),
		"long keys":      fill("D" + strings.Repeat("X", 16600) + ":/\n"),
		"long high keys": fill("Disallow" + strings.Repeat("\xc4\xb0", 8000) + ":/\n"),
		"long escapes":   fill("Disallow: /" + strings.Repeat("%aa", 5540) + "\n"),
		"UTF-16":         "\xff\xfe" + strings.Repeat("a\x00:\x00\n\x00", MaxBody/6),
		"UTF-16 high":    "\xff\xfe" + strings.Repeat("\x00\x4e", MaxBody/2-1),
		"signals":        fill("Content-Signal: ai-input=no\n"),
		"web page":       fill("<div class=\"a\"><a href=\"https://a.test/x?y=z\">a word or two</a></div>\n"),
	}
}

// BenchmarkParseHostile is the worst that reading a file costs; the bound is 50 ms (docs/decisions/0002).
func BenchmarkParseHostile(b *testing.B) {
	for name, file := range hostileShapes() {
		body := []byte(file)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			done := cpu(b)
			for b.Loop() {
				Parse(body)
			}
			done()
		})
	}
}

func hostilePaths() map[string]string {
	return map[string]string{
		"2KB": "/" + strings.Repeat("a", 2000), "8KB": "/" + strings.Repeat("a", 8000), "8KB mixed": "/" + strings.Repeat("aabab", 1600) + "/",
		"16KB dots": "/" + strings.Repeat("a/../", 3200),
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, file := range hostileFiles() {
		g := Parse([]byte(file)).Group("ExampleBot")
		for size, path := range hostilePaths() {
			b.Run(name+"/"+size, func(b *testing.B) {
				done := cpu(b)
				for b.Loop() {
					g.DecideString(path, Options{StopOn: []string{"search=no"}})
				}
				done()
			})
		}
	}
}

// TestHostile finds what is slow by an order: processor time, with room for a busy machine and the race detector. The
// bounds, 5 ms a decision and 50 ms a file, are the benchmark's.
func TestHostile(t *testing.T) {
	best := func(f func()) time.Duration {
		least := time.Hour
		for range 2 {
			start := used()
			f()
			least = min(least, used()-start)
		}
		return least
	}
	for name, file := range hostileShapes() {
		start := used()
		Parse([]byte(file)).Group("ExampleBot")
		if d := used() - start; d > time.Second {
			t.Errorf("%s: parsed in %v", name, d)
		}
	}
	for name, file := range hostileFiles() {
		var g *Group
		if d := best(func() { g = Parse([]byte(file)).Group("ExampleBot") }); d > time.Second {
			t.Errorf("%s: parsed in %v", name, d)
		}
		for size, path := range hostilePaths() {
			d := best(func() { g.DecideString(path, Options{StopOn: []string{"search=no"}}) })
			if d > 200*time.Millisecond {
				t.Errorf("%s against %s: %v", name, size, d)
			}
		}
	}
}

func BenchmarkCheckCached(b *testing.B) {
	p := New(Defaults(), &site{answer: always(200, typical)}, nil, nil)
	q := query(b, "https://a.test/products/shoes/red-runner-42?color=red&size=42")
	q.StopOn = StopOnFor([]string{"search", "ai-input"})
	p.Check(b.Context(), q)
	b.ReportAllocs()
	done := cpu(b)
	for b.Loop() {
		p.Check(b.Context(), q)
	}
	done()
}

// TestAllocations: exact, whatever the machine.
func TestAllocations(t *testing.T) {
	u := target(t, "https://a.test/products/shoes/red-runner-42?color=red&size=42")
	none := Parse([]byte(rulesFile(100))).Group("ExampleBot")
	if n := testing.AllocsPerRun(100, func() { none.Match(u) }); n != 0 {
		t.Errorf("a match without a deciding rule: %v allocations", n)
	}
	p := New(Defaults(), &site{answer: always(200, typical)}, nil, nil)
	for raw, most := range map[string]float64{"https://a.test/products?color=red": 1, "https://a.test/wp-admin/admin-ajax.php": 2, "https://a.test/cart": 2} {
		q := query(t, raw)
		q.StopOn = StopOnFor([]string{"search", "ai-input"})
		p.Check(t.Context(), q)
		if n := testing.AllocsPerRun(100, func() { p.Check(t.Context(), q) }); n > most {
			t.Errorf("%s: %v allocations, at most %v", raw, n, most)
		}
	}
}
