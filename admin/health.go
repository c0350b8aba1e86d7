package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// serveHealth says that the process answers; it checks nothing else, so that a
// supervisor does not restart a gate whose Redis is away.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, "ok\n")
	return err
}

// serveReady answers 200 when traffic may be sent here, else 503 with the names
// of what is not ready. On a listener that asks for the token to read, the
// details are for those who have it.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) error {
	checks, ok := s.ready()
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "5")
	}
	if s.o.ReadToken && !s.bearer(r) && !s.basic(r) {
		for i := range checks {
			checks[i].Detail = ""
		}
	}
	writeJSON(w, status, struct {
		Ready    bool     `json:"ready"`
		NotReady []string `json:"not_ready,omitempty"`
		Checks   []Check  `json:"checks"`
	}{ok, notReady(checks), checks})
	return nil
}

// ready asks every check; without any the gate is ready as soon as it answers.
func (s *Server) ready() (checks []Check, ok bool) {
	if s.o.Ready != nil {
		checks = append([]Check{}, s.o.Ready()...)
	}
	return checks, len(notReady(checks)) == 0
}

func notReady(checks []Check) (names []string) {
	for _, c := range checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.serve.ServeHTTP(w, r)
	return nil
}

// writeJSON answers with v, indented for people who look at it with curl.
func writeJSON(w http.ResponseWriter, status int, v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"error":"the answer can't be written as JSON","status":500}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, b.String()) // a reader that has gone needs no answer
}
