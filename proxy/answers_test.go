package proxy

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func openAnswers(t testing.TB, dir string, max int64) *Answers {
	t.Helper()
	s, err := OpenAnswers(dir, AnswersConfig{MaxSize: max}, testLog(t))
	must(t, err)
	return s
}

// put keeps an answer.
func (s *Answers) put(url, body string, h http.Header) bool {
	k := s.keep(&answerHead{url: url, owner: "c a", came: time.UnixMilli(1_700_000_000_000), header: h}, -1)
	if k == nil {
		return false
	}
	for len(body) > 0 { // in pieces
		n := min(len(body), 10_000)
		k.write([]byte(body[:n]))
		body = body[n:]
	}
	return k.done()
}

// body gives what is kept of a URL.
func (s *Answers) body(t testing.TB, url string) (string, bool) {
	t.Helper()
	a := s.find(url, "c a", http.Header{})
	if a == nil {
		return "", false
	}
	defer a.close()
	b, err := io.ReadAll(a.reader())
	must(t, err)
	return string(b), true
}

func TestAnswersSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	s := openAnswers(t, dir, 1<<20)
	h := http.Header{"Etag": {`"1"`}, "X-Two": {"a", "b"}, "X-Odd": {"caf\xe9"}, "X-Empty": {""}}
	if !s.put("https://a.test/", "hello", h) || !s.put("https://a.test/", "hello again", h) || !s.put("https://b.test/", "", h) {
		t.Fatal("not kept")
	}
	s = openAnswers(t, dir, 1<<20)
	if got, ok := s.body(t, "https://a.test/"); !ok || got != "hello again" {
		t.Errorf("%q %v", got, ok)
	}
	if got, ok := s.body(t, "https://b.test/"); !ok || got != "" {
		t.Errorf("%q %v", got, ok)
	}
	a := s.find("https://a.test/", "c a", nil)
	defer a.close()
	if !reflect.DeepEqual(a.head.header, h) {
		t.Errorf("%v", a.head.header)
	}
	if s.find("https://a.test/", "d a", nil) != nil {
		t.Error("another client got it")
	}
	if n, size := s.Size(); n != 2 || size != 4*block-block { // an empty body takes none
		t.Errorf("%d, %d bytes", n, size)
	}
}

// TestAnswersAfterCrash: whatever of the two files is missing, cut, or of another's, is never an answer, and goes.
func TestAnswersAfterCrash(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(head, body string) error
	}{
		{"no head", func(head, _ string) error { return os.Remove(head) }},
		{"no body", func(_, body string) error { return os.Remove(body) }},
		{"head cut", func(head, _ string) error { return os.Truncate(head, 100) }},
		{"head empty", func(head, _ string) error { return os.Truncate(head, 0) }},
		{"body cut", func(_, body string) error { return os.Truncate(body, 3) }},
		{"body longer", func(_, body string) error { return os.Truncate(body, 100) }},
		{"body of zeroes", func(_, body string) error { return os.WriteFile(body, make([]byte, 5), 0o600) }},
		{"body is the head", func(head, body string) error { return os.Rename(head, body) }},
		{"head changed", func(head, _ string) error {
			b, err := os.ReadFile(head)
			return errors.Join(err, os.WriteFile(head, bytes.Replace(b, []byte("body 5"), []byte("body 4"), 1), 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openAnswers(t, dir, 1<<20)
			s.put("https://a.test/", "hello", http.Header{"Etag": {`"1"`}})
			files, err := filepath.Glob(filepath.Join(dir, "??", "*.head"))
			must(t, err)
			must(t, c.harm(files[0], strings.TrimSuffix(files[0], "head")+"body"))
			must(t, os.WriteFile(s.aside("1.body"), []byte("half"), 0o600))
			s = openAnswers(t, dir, 1<<20)
			if got, ok := s.body(t, "https://a.test/"); ok {
				t.Errorf("%q is an answer", got)
			}
			if n, size := s.Size(); n != 0 || size != 0 {
				t.Errorf("%d left, %d bytes", n, size)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			must(t, err)
			if len(left) != 0 {
				t.Errorf("files left: %v", left)
			}
		})
	}
}

// TestAnswersBound: what was used longest ago goes first, also after a restart, and the disk holds what is counted.
func TestAnswersBound(t *testing.T) {
	dir := t.TempDir()
	const each = 3 * block // 8 KiB and a head
	s := openAnswers(t, dir, 10*each)
	url := func(n int) string { return "https://a.test/" + strconv.Itoa(n) }
	for n := range 10 {
		s.put(url(n), strings.Repeat("x", 8<<10), http.Header{"Etag": {`"1"`}})
	}
	if _, ok := s.body(t, url(0)); !ok {
		t.Fatal("the first is gone")
	}
	s.put(url(10), strings.Repeat("x", 8<<10), http.Header{"Etag": {`"1"`}})
	for n := range 11 {
		if _, ok := s.body(t, url(n)); ok != (n != 1) {
			t.Errorf("%d: %v", n, ok)
		}
	}
	if n, size := s.Size(); n != 10 || size != 10*each {
		t.Errorf("%d, %d bytes", n, size)
	}
	s = openAnswers(t, dir, 3*each)
	if n, size := s.Size(); n != 3 || size != 3*each {
		t.Errorf("%d, %d bytes", n, size)
	}
	heads, _ := filepath.Glob(filepath.Join(dir, "??", "*.head"))
	bodies, _ := filepath.Glob(filepath.Join(dir, "??", "*.body"))
	if len(heads) != 3 || len(bodies) != 3 {
		t.Errorf("%d heads, %d bodies", len(heads), len(bodies))
	}
	if s.put(url(20), strings.Repeat("x", 3*each/largestShare+1), nil) {
		t.Error("an answer larger than its share is kept")
	}
}

func TestAnswersOfStoppedHosts(t *testing.T) {
	dir := t.TempDir()
	s := openAnswers(t, dir, 1<<20)
	for _, u := range []string{"https://a.test/1", "http://a.test:8080/2", "https://www.a.test/", "https://b.test/"} {
		s.put(u, "x", http.Header{"Etag": {`"1"`}})
	}
	s.ForgetHosts(func(host string) bool { return host == "a.test" || strings.HasSuffix(host, ".a.test") })
	if n, _ := s.Size(); n != 1 {
		t.Errorf("%d are kept", n)
	}
	if _, ok := s.body(t, "https://b.test/"); !ok {
		t.Error("another host's is gone")
	}
	files, err := filepath.Glob(filepath.Join(dir, "??", "*"))
	must(t, err)
	if len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
}

func TestAnswersVariantsAreBounded(t *testing.T) {
	s := openAnswers(t, t.TempDir(), 1<<20)
	for n := range 3 * maxVariants {
		k := s.keep(&answerHead{url: "https://a.test/", owner: "c a", vary: []string{"x"}, key: [8]byte{byte(n)}, header: http.Header{}}, 1)
		k.write([]byte("x"))
		if !k.done() {
			t.Fatal("not kept")
		}
	}
	if n, _ := s.Size(); n != maxVariants {
		t.Errorf("%d are kept", n)
	}
}

// TestPicker: exactly one of each n, not always the same.
func TestPicker(t *testing.T) {
	places := map[int]bool{}
	for seed := range uint64(20) {
		p := newPicker(50, seed)
		for range 4 {
			hits := 0
			for n := range 50 {
				if p.next() {
					hits++
					places[n] = true
				}
			}
			if hits != 1 {
				t.Errorf("%d of 50", hits)
			}
		}
	}
	if len(places) < 20 {
		t.Errorf("only %d places", len(places))
	}
	if p := newPicker(0, 1); p.next() {
		t.Error("0 picks")
	}
}

func FuzzAnswerHead(f *testing.F) {
	a := &answerHead{url: "https://a.test/", owner: "c a", vary: []string{"accept", "x"}, key: [8]byte{1}, length: 5, came: time.UnixMilli(1), full: true,
		header: http.Header{"Etag": {`"1"`}, "X": {"", "b c"}}}
	f.Add(a.encode(), false)
	f.Add([]byte("url x\nfor c a\nbody 0 "+strings.Repeat("0", 64)+"\n: A: b\n"), true)
	f.Add([]byte("crawlgate-answer/1 \n"), false)
	f.Fuzz(func(t *testing.T, text []byte, fields bool) {
		parse := parseAnswerHead
		if fields { // past the digest, which no fuzzer finds
			parse = parseAnswerFields
		}
		got, err := parse(text)
		if err != nil {
			return
		}
		again, err := parseAnswerHead(got.encode())
		if err != nil {
			t.Fatalf("%v of %q", err, got.encode())
		}
		if !bytes.Equal(again.encode(), got.encode()) {
			t.Fatalf("%q, then %q", got.encode(), again.encode())
		}
	})
}

func FuzzCacheControl(f *testing.F) {
	for _, s := range []string{"", "no-store", "max-age=0, no-cache", `private="a, b", x="\""`, "a=;b", `x="`, ",,", "S-MaxAge=1\tPUBLIC", "no-cache no-store"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := cacheControl([]string{s})
		if !ok {
			return
		}
		// A directive that stands by itself in the list is never overlooked.
		if more, ok := cacheControl([]string{s + ", no-store"}); !ok || !more.noStore {
			t.Errorf("no-store after %q: %v %v", s, more, ok)
		}
		if two, ok := cacheControl([]string{"private", s}); !ok || !two.private || two.noStore != d.noStore || two.public != d.public {
			t.Errorf("private before %q: %v %v", s, two, ok)
		}
	})
}

func FuzzVary(f *testing.F) {
	for _, s := range []string{"", "*", "Accept", "accept , ACCEPT,User-Agent", "a b", "signature", ",,x", "a,*"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		names, ok := varyFields([]string{s})
		if ok && strings.Contains(s, "*") && names == nil {
			t.Errorf("%q varies by nothing", s)
		}
		again, ok2 := varyFields([]string{strings.Join(names, ",")})
		if ok && (!ok2 || strings.Join(again, ",") != strings.Join(names, ",")) {
			t.Errorf("%q: %v, then %v", s, names, again)
		}
		for _, name := range names {
			with := http.Header{http.CanonicalHeaderKey(name): {value}}
			if varyKey(names, with) == varyKey(names, http.Header{}) {
				t.Errorf("%s: absent matches %q", name, value)
			}
			if varyKey(names, with) != varyKey(names, http.Header{http.CanonicalHeaderKey(name): {" " + value + "\t"}}) {
				t.Errorf("%s: whitespace matters", name)
			}
		}
	})
}
