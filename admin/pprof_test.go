package admin

import (
	"compress/gzip"
	"io"
	"testing"
)

func TestPprof(t *testing.T) {
	off := newServer(t, nil)
	if w := get(off, "/debug/pprof/heap"); w.Code != 404 {
		t.Errorf("switched off: %d", w.Code)
	}
	s := newServer(t, func(o *Options) { o.Pprof = true })
	for path, want := range map[string]int{
		"/debug/pprof/heap": 200, "/debug/pprof/allocs": 200, "/debug/pprof/profile?seconds=1": 200, "/debug/pprof/goroutine?debug=1": 200,
		"/debug/pprof/": 404, "/debug/pprof/nothing": 404, "/debug/pprof/profile?seconds=61": 400, "/debug/pprof/profile?seconds=x": 400, "/debug/pprof/heap?debug=3": 400,
	} {
		w := get(s, path)
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if want != 200 || w.Header().Get("Content-Type") != "application/octet-stream" {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if b, err := io.ReadAll(z); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	far := newServer(t, func(o *Options) { o.Pprof, o.ReadToken = true, true })
	if w := get(far, "/debug/pprof/heap"); w.Code != 401 {
		t.Errorf("without the token: %d", w.Code)
	}
}
