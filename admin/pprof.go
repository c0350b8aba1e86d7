package admin

import (
	"net/http"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// pathPprof is where profiles are, under the names that `go tool pprof` asks for.
const pathPprof = "/debug/pprof/"

// Times of a processor profile: an answer has to begin within the listener's time for writing.
const (
	profileDefault = 30 * time.Second
	profileMost    = 60 * time.Second
)

// servePprof writes one profile of this process: profile (of the processor, ?seconds=30), or heap, allocs, goroutine,
// block, mutex, threadcreate. ?debug=1 asks for text.
func (s *Server) servePprof(w http.ResponseWriter, r *http.Request) error {
	name, q := strings.TrimPrefix(r.URL.Path, pathPprof), r.URL.Query()
	if name == "profile" {
		return profileCPU(w, r, q.Get("seconds"))
	}
	p := pprof.Lookup(name)
	if p == nil {
		return &httpError{http.StatusNotFound, "there is no profile of this name: profile, heap, allocs, goroutine, block, mutex, threadcreate"}
	}
	debug := 0
	if v := q.Get("debug"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 2 {
			return &BadInput{"debug is 0, 1 or 2"}
		}
		debug = n
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	return p.WriteTo(w, debug)
}

func profileCPU(w http.ResponseWriter, r *http.Request, seconds string) error {
	took := profileDefault
	if seconds != "" {
		n, err := strconv.Atoi(seconds)
		if err != nil || n < 1 || time.Duration(n)*time.Second > profileMost {
			return &BadInput{"seconds is 1 to 60"}
		}
		took = time.Duration(n) * time.Second
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		return &httpError{http.StatusConflict, "a processor profile is being made already"}
	}
	defer pprof.StopCPUProfile()
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return nil
}
