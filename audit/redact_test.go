package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMaskQuery(t *testing.T) {
	for _, c := range []struct{ mode, in, out string }{
		{"secrets", "https://h/p", "https://h/p"},
		{"secrets", "https://h/p?", "https://h/p?"},
		{"secrets", "https://h/p?q=shoes&page=2", "https://h/p?q=shoes&page=2"},
		{"secrets", "https://h/p?token=abc&q=1", "https://h/p?token=*&q=1"},
		{"secrets", "https://h/p?%74oken=abc", "https://h/p?%74oken=*"},
		{"secrets", "https://h/p?API_KEY=abc;x=1", "https://h/p?API_KEY=*;x=1"},
		{"secrets", "https://h/p?token=", "https://h/p?token="},
		{"secrets", "https://h/p?token", "https://h/p?token"},
		{"secrets", "https://h/p?x=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "https://h/p?x=*"},
		{"secrets", "https://h/p?eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "https://h/p?*"},
		{"secrets", "https://h/p?h=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "https://h/p?h=*"},
		{"secrets", "https://h/p?h=00000000000000000000000000000000", "https://h/p?h=00000000000000000000000000000000"},
		{"secrets", "https://h/p?id=123e4567-e89b-12d3-a456-426614174000", "https://h/p?id=*"},
		{"secrets", "https://h/p?x=c2VjcmV0LXNlY3JldC1zZWNyZXQtMTIz%2BabcXYZ%3D%3D", "https://h/p?x=*"},
		{"secrets", "https://h/p?title=a-very-long-article-title-about-things-people-like", "https://h/p?title=a-very-long-article-title-about-things-people-like"},
		{"secrets", "https://h/p?next=/docs/getting/started/with/something/else/entirely", "https://h/p?next=/docs/getting/started/with/something/else/entirely"},
		{"secrets", "https://h/p?next=https%3A%2F%2Fo%2F%3Ftoken%3Dabc", "https://h/p?next=*"},
		{"secrets", "https://h/p?next=https%253A%252F%252Fo%252F%253Ftoken%253Dabc", "https://h/p?next=*"},
		{"secrets", "https://h/p?next=https%3A%2F%2Fu%3Apw%40o%2F", "https://h/p?next=*"},
		{"secrets", "https://h/p?next=https%3A%2F%2Fauth.example%2Flogin", "https://h/p?next=https%3A%2F%2Fauth.example%2Flogin"},
		{"secrets", "https://h/p?q=Bearer+dGhpcyBpcyBhIHNlY3JldCB0b2tlbiBvZiBtaW5l", "https://h/p?q=*"},
		{"secrets", "https://h/p?v=F+yP8a9KZCLTZ+GNXrbfpGWlMx91jnk+qVqU6w0VtiqS", "https://h/p?v=*"},
		{"secrets", "https://h/p?v=F%2ByP8a9KZCLTZ%2BGNXrbfpGWlMx91jnk%2BqVqU6w0VtiqS", "https://h/p?v=*"},
		{"secrets", "https://h/p?q=Best+Shoes+for+Running+in+the+Rain+of+2025+and+After", "https://h/p?q=Best+Shoes+for+Running+in+the+Rain+of+2025+and+After"},
		{"secrets", "https://h/token/abc?q=1", "https://h/token/abc?q=1"},
		{"names", "https://h/p?q=shoes&page=2&x", "https://h/p?q=*&page=*&x"},
		{"names", "https://h/p?q=", "https://h/p?q="},
		{"drop", "https://h/p?q=shoes", "https://h/p"},
		{"drop", "https://h/p?", "https://h/p"},
	} {
		out, masked := maskQuery(c.in, c.mode)
		if out != c.out || masked != (c.in != c.out && c.in != "https://h/p?") {
			t.Errorf("%s %s: %s %v, want %s", c.mode, c.in, out, masked, c.out)
		}
	}
}

func TestLocation(t *testing.T) {
	for _, c := range []struct{ mode, in, out string }{
		{"secrets", "/next?sid=1#frag", "/next?sid=*"},
		{"secrets", "https://user:pw@h.example/x?a=1", "https://h.example/x?a=1"},
		{"secrets", "//user:p@w@h.example/x", "//h.example/x"},
		{"secrets", `https://user:pw@h.example\x`, `https://h.example\x`},
		{"secrets", "/a//b@c", "/a//b@c"},
		{"secrets", "https://kept.example/?token=abc", "https://kept.example/?token=abc"},
		{"secrets", "https://u@KEPT.example:8080/?token=abc", "https://KEPT.example:8080/?token=abc"},
		{"full", "https://user:pw@h.example/?token=abc", "https://h.example/?token=abc"},
		{"drop", "?token=abc", ""},
	} {
		conf := Defaults()
		conf.Query, conf.FullFor = c.mode, []string{"kept.example"}
		r := newRedactor(conf, []byte("key"))
		if out := r.maskReference(c.in); out != c.out {
			t.Errorf("%s %s: %s, want %s", c.mode, c.in, out, c.out)
		}
	}
}

// secretsToPlant makes 60 secrets of the kinds that turn up in URLs.
func secretsToPlant() []string {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(alphabet string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	var s []string
	for range 10 {
		s = append(s, word("0123456789abcdef", 40), word(alnum, 43), word(alnum+"-_", 64), word("abcdefghijklmnopqrstuvwxyz234567", 52),
			word(alnum, 30)+"+"+word(alnum, 30), "eyJ"+word(alnum, 20)+"."+word(alnum, 40)+"."+word(alnum+"-_", 43))
	}
	return s
}

// TestPlantedSecrets puts each of 60 secrets into every place that a fetcher or a site can put one (query under a telling
// and a harmless name, nested URL, user info, Location), and finds none in the file, its exports, or what subscribers get.
// Header fields and bodies have no way in: an event has no field for them.
func TestPlantedSecrets(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Defaults(), dir)
	var heard bytes.Buffer
	l.Subscribe(func(e *Event) { fmt.Fprintf(&heard, "%+v\n", e) })
	secrets := secretsToPlant()
	for _, s := range secrets {
		short := s[:9] // only its name gives it away
		for _, raw := range []string{
			"https://www.example.com/p?access_token=" + short + "&q=1",
			"https://www.example.com/p?x=" + s,
			"https://www.example.com/p?x=" + url.QueryEscape("Bearer "+s),
			"https://www.example.com/p?next=" + url.QueryEscape("https://o.example/?sid="+short),
			"https://www.example.com/p?" + s,
			"https://u:" + s + "@www.example.com/p",
			"https://" + s + "@www.example.com/p?pwd=" + short,
			"https://www.example.com/p?a=1;session=" + short + "#" + s,
		} {
			e := &Event{Decision: Forwarded, Reason: "ok"}
			e.SetURL(parse(t, raw))
			e.SetLocation(raw)
			if err := l.Record(context.Background(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	outputs := map[string][]byte{"subscribers": heard.Bytes()}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		outputs[filepath.Base(path)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{FormatECS, FormatOCSF, FormatCSV} {
		var b bytes.Buffer
		x, err := NewExporter(format, &b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events(t, l.Path()) {
			if err := x.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Flush(); err != nil {
			t.Fatal(err)
		}
		outputs[format] = b.Bytes()
	}
	for name, text := range outputs {
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s[:9])) {
				t.Errorf("%s holds the secret %s", name, s)
			}
		}
	}
	if len(outputs["crawlgate.jsonl"]) < 400*500 {
		t.Errorf("only %d bytes in the log: the test saw nothing", len(outputs["crawlgate.jsonl"]))
	}
}

// TestHostileText: quotes, line ends, separators, 1 MiB and bytes that are not UTF-8, in every text field, make one valid
// line each.
func TestHostileText(t *testing.T) {
	l := openTest(t, Defaults(), t.TempDir())
	texts := []string{
		`quote " backslash \ end`, "line\nend\r\n{\"schema\":1}", "\u2028 \u2029 \u202e \ufeff \u0085", "\x00\x01\x1b[31m\x7f", "invalid \xff\xfe\xc3 \xed\xa0\x80",
		strings.Repeat("a", 1<<20), strings.Repeat("\xff", 1<<20), strings.Repeat("é", 1<<19), strings.Repeat(`"`, 1<<20), strings.Repeat("\u2028", 1<<18),
		`","hash":"` + zeroHash + `"}`,
	}
	for _, s := range texts {
		u := &url.URL{Scheme: "https", Host: "example.com", Path: "/", RawPath: "/" + s, RawQuery: "q=" + s[:min(len(s), 5000)]}
		e := &Event{
			Client: Client{Name: s, Auth: s}, Agent: s, Profile: s, Job: s, Kind: s, Method: s, Decision: s, Reason: s, Class: s, Rule: Rule{Text: s, Group: s},
			UserAgent: s, ClientUserAgent: s, ContentType: s, RobotsTag: s, Indexing: s, Signals: s, RateLimit: s, RedirectOf: s, Parent: s, Exception: s, Entry: s,
			Upstream: Upstream{Resolved: make([]string, 100)},
		}
		for i := range e.Upstream.Resolved {
			e.Upstream.Resolved[i] = s
		}
		e.SetURL(u)
		e.SetLocation("/" + s)
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
		// And a URL alone: what rules need is kept as far as a line goes.
		e = &Event{Decision: Forwarded, Reason: "ok"}
		e.SetURL(&url.URL{Scheme: "https", Host: "example.com", Path: "/", RawPath: "/" + s})
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
		if len(s) > MaxLine {
			if fmt.Sprint(e.Cut) != "[url]" {
				t.Errorf("cut %v", e.Cut)
			}
		} else if len(e.Cut) > 0 {
			t.Errorf("%q: cut %v", s, e.Cut)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if len(line) > MaxLine {
			t.Errorf("line %d has %d bytes", n, len(line))
		}
		if !utf8.Valid(line) || !json.Valid(line) {
			t.Errorf("line %d is not valid", n)
		}
		for _, r := range string(bytes.TrimSuffix(line, []byte("\n"))) {
			if r < 0x20 || r == 0x7f || r >= 0x80 && mustEscape(r) {
				t.Errorf("line %d holds %U", n, r)
				break
			}
		}
	}
	if want := 2*len(texts) + 3; n != want {
		t.Errorf("%d lines, want %d", n, want)
	}
	mustVerify(t, l.Path(), VerifyOptions{})
}

// TestOneBuilder: the same keys for plain HTTP, intercepted and tunnelled requests, so that no path forgets one.
func TestOneBuilder(t *testing.T) {
	keys := func(e *Event) string {
		b, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		var names []string
		for k := range m {
			names = append(names, k)
		}
		return fmt.Sprint(len(names))
	}
	plain, inner, tunnel := simple("ok"), simple("ok"), simple("ok")
	inner.Intercepted, tunnel.Type = true, TypeTunnel
	if keys(plain) != keys(inner) || keys(plain) != keys(tunnel) || keys(plain) != keys(fullEvent(t)) {
		t.Errorf("%s, %s, %s keys", keys(plain), keys(inner), keys(tunnel))
	}
	for i := range byType[TypeRequest] {
		if byType[TypeRequest][i].field != byType[TypeTunnel][i].field {
			t.Errorf("%s in one of two", byType[TypeRequest][i].name())
		}
	}
	for typ, fs := range byType {
		if last := fs[len(fs)-1]; last.group != "" {
			t.Errorf("the last field of %s stands in an object: %s", typ, last.name())
		}
	}
	for _, f := range byType[TypeRobots] {
		if f.group == "client" {
			t.Errorf("a robots fetch has no client, but %s", f.name())
		}
	}
}

// TestURLHash: the same URL has the same hash under one key, masked or not, and a key of another folder gives another.
func TestURLHash(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Defaults(), dir)
	u := parse(t, "https://example.com/?token=abc")
	a, b := simple("ok"), simple("ok")
	a.SetURL(u)
	b.SetURL(parse(t, "https://example.com/?token=abd"))
	for _, e := range []*Event{a, b} {
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if a.URL != b.URL || a.URLHash == b.URLHash {
		t.Errorf("%s %s, %s %s", a.URL, a.URLHash, b.URL, b.URLHash)
	}
	red, err := OpenRedactor(Defaults(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, hash := red.URL(u); hash != a.URLHash {
		t.Errorf("found again as %s, recorded as %s", hash, a.URLHash)
	}
	if _, err := OpenRedactor(Defaults(), t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder without a key: %v", err)
	}
}
