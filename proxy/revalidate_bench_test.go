package proxy

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkRevalidated is one request for a page that the site says has not changed, beside the same page in full: with
// a store that keeps it each time, and with none.
//
//	go test -run xxx -bench Revalidated -benchtime 2s -count 5 ./proxy
func BenchmarkRevalidated(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10, 4 << 20} {
		page := strings.Repeat("x", size)
		for _, c := range []struct {
			name       string
			store, ask bool
		}{
			{name: "no store"}, {name: "kept", store: true}, {name: "304", store: true, ask: true},
		} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, c.name), func(b *testing.B) {
				r := newRig(b)
				r.quiet = true
				o := r.origin("bench.test", true, "", func(w http.ResponseWriter, req *http.Request) {
					w.Header()["Etag"] = []string{`"1"`}
					if c.ask && req.Header.Get("If-None-Match") != "" {
						w.WriteHeader(http.StatusNotModified)
						return
					}
					_, _ = io.WriteString(w, page)
				})
				o.forget = true
				opt := rigOptions{rules: func(ru *Rules) { ru.Default.Pacing.Parallel = 64 }}
				if c.store {
					s, err := OpenAnswers(filepath.Join(r.dir, "answers"), AnswersConfig{MaxSize: 256 << 20}, testLog(b))
					must(b, err)
					opt.answers = s
				}
				r.start(opt)
				h, u := r.client(false), o.url("https", "/")
				h.Transport.(*http.Transport).MaxIdleConnsPerHost = 16
				b.SetBytes(int64(size))
				measured(b, func() error {
					resp, err := h.Get(u)
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(size) {
						return fmt.Errorf("%d bytes, %w", n, err)
					}
					return nil
				})
			})
		}
	}
}

// BenchmarkFind is the look-up of a kept page of 32 KiB among many, with its body read through.
func BenchmarkFind(b *testing.B) {
	s := openAnswers(b, b.TempDir(), 1<<30)
	for n := range 1000 {
		if !s.put(fmt.Sprintf("https://bench.test/%d", n), strings.Repeat("x", 32<<10), http.Header{"Etag": {`"1"`}}) {
			b.Fatal("not kept")
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		a := s.find(fmt.Sprintf("https://bench.test/%d", n%1000), "c a", http.Header{})
		if a == nil {
			b.Fatal("not found")
		}
		a.close()
	}
}
