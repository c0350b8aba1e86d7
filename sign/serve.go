package sign

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// directories keeps what ServeDirectory answers with, one for each authority, until the keys, the settings or the day change.
type directories struct {
	mu      sync.Mutex
	state   *state
	publish *PublishConfig
	keys    map[string][]key
	order   []string
	built   map[string]*directory
}

// ServeDirectory answers GET and HEAD for the key directory at DirectoryPath (and at "/" with publish.serve_root) of the
// configured authority; another Host or path gets 404, and so does everything while no agent has a key.
func (s *Signer) ServeDirectory(w http.ResponseWriter, r *http.Request) {
	p := s.publish.Load()
	if r.URL.Path != DirectoryPath && (r.URL.Path != "/" || !p.ServeRoot) {
		http.NotFound(w, r)
		return
	}
	d, err := s.directory(r.Host)
	switch {
	case err != nil:
		s.log.Error("key directory not built", "error", err)
		http.Error(w, "the key directory could not be signed", http.StatusInternalServerError)
		return
	case d == nil:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	for name, values := range d.header {
		h[name] = values
	}
	if matchesETag(r.Header["If-None-Match"], d.header.Get("Etag")) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(d.body) // the client may be gone
	}
}

// DirectoryHosts gives the authorities that ServeDirectory answers for, for a Host check in front of it.
func (s *Signer) DirectoryHosts() []string {
	s.dirs.mu.Lock()
	defer s.dirs.mu.Unlock()
	s.refresh()
	return append([]string(nil), s.dirs.order...)
}

// directory finds or builds what a Host is answered with; nil when the Host is not ours.
func (s *Signer) directory(host string) (*directory, error) {
	s.dirs.mu.Lock()
	defer s.dirs.mu.Unlock()
	s.refresh()
	authority, err := normalAuthority(host)
	if _, ours := s.dirs.keys[authority]; err != nil || !ours {
		if !s.dirs.publish.IgnoreHost || len(s.dirs.order) != 1 {
			return nil, nil
		}
		authority = s.dirs.order[0]
	}
	d := s.dirs.built[authority]
	if d != nil && !d.stale() {
		return d, nil
	}
	fresh, err := buildDirectory(authority, s.dirs.keys[authority], *s.dirs.publish)
	if err != nil {
		if d != nil && time.Now().Before(d.expires) {
			s.log.Error("key directory not renewed, the old proof stays", "authority", authority, "error", err)
			return d, nil
		}
		return nil, err
	}
	s.dirs.built[authority] = fresh
	return fresh, nil
}

// refresh starts over when a reload or SetPublish came in between. The lock is held.
func (s *Signer) refresh() {
	st, p := s.state.Load(), s.publish.Load()
	if s.dirs.state == st && s.dirs.publish == p {
		return
	}
	s.dirs.state, s.dirs.publish = st, p
	s.dirs.keys, s.dirs.order = st.published(*p)
	s.dirs.built = map[string]*directory{}
	if p.IgnoreHost && len(s.dirs.order) > 1 {
		s.log.Warn("publish.ignore_host has no effect with several directory hosts", "hosts", s.dirs.order)
	}
	if _, own := st.published(PublishConfig{}); p.Authority != "" && len(own) > 1 {
		s.log.Warn("publish.authority shows the keys of agents with different hosts in one directory", "hosts", own)
	}
}

// stale is true after a day, and when the clock went back to before the proof was made: verifiers refuse a proof from
// the future.
func (d *directory) stale() bool {
	age := time.Since(d.built)
	if wall := time.Duration(time.Now().Unix()-d.built.Unix()) * time.Second; wall < 0 || wall > age {
		age = wall // the monotonic clock does not see what a verifier sees
	}
	return age < 0 || age >= proofRenewal
}

// matchesETag implements If-None-Match (RFC 9110 13.1.2): weak comparison.
func matchesETag(lines []string, etag string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == etag {
				return true
			}
		}
	}
	return false
}
