package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Bounds of answers of the API.
const (
	explainTime   = 60 * time.Second // an explanation may wait for a robots.txt fetch in its turn
	auditDefault  = 1000             // events of /api/audit without a limit
	auditMost     = 100000
	maxReason     = 1024 // bytes of a ledger entry's reason
	maxLedgerHost = 253
)

func (s *Server) live() Live {
	if s.o.Live == nil {
		return Live{}
	}
	return s.o.Live()
}

// serveStatus answers with everything but the lists: who this is and how it is.
func (s *Server) serveStatus(w http.ResponseWriter, _ *http.Request) error {
	l := s.live()
	l.Hosts, l.Clients = nil, nil
	checks, ok := s.ready()
	writeJSON(w, http.StatusOK, struct {
		Time   time.Time       `json:"time"`
		Ready  bool            `json:"ready"`
		Checks []Check         `json:"checks"`
		Counts map[string]span `json:"counts"`
		Events map[string]span `json:"refused_by_reason"`
		Live
	}{time.Now().UTC(), ok, checks, s.state.totals(time.Now()), s.state.refusals(time.Now()), l})
	return nil
}

// serveHosts answers with each host that waits, is held back or was asked
// lately; the worst first.
func (s *Server) serveHosts(w http.ResponseWriter, r *http.Request) error {
	limit, err := intOf("limit", r.URL.Query().Get("limit"), 500, maxHosts)
	if err != nil {
		return err
	}
	host := strings.ToLower(r.URL.Query().Get("host"))
	hosts := s.hostRows(s.live(), time.Now())
	if host != "" {
		hosts = slices.DeleteFunc(hosts, func(h hostRow) bool { return h.Host != host })
	}
	if err := sortHosts(hosts, r.URL.Query().Get("sort")); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Hosts []hostRow `json:"hosts"`
		Total int       `json:"total"`
	}{hosts[:min(limit, len(hosts))], len(hosts)})
	return nil
}

// serveExplain says what would happen to a URL now, or what would have at a
// past time. Few at once: each may fetch a robots.txt.
func (s *Server) serveExplain(w http.ResponseWriter, r *http.Request) error {
	v, err := s.explainURL(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, v)
	return nil
}

func (s *Server) explainURL(r *http.Request) (any, error) {
	if s.o.Explain == nil {
		return nil, &httpError{http.StatusNotFound, "explaining is not available here"}
	}
	q := r.URL.Query()
	raw := strings.TrimSpace(q.Get("url"))
	switch {
	case raw == "":
		return nil, &BadInput{"url is missing; give the address to explain as ?url="}
	case len(raw) > maxURL:
		return nil, &BadInput{"url is longer than 8 KiB"}
	}
	for _, f := range []string{"client", "profile"} {
		if len(q.Get(f)) > maxFilter {
			return nil, &BadInput{f + " is longer than 512 bytes"}
		}
	}
	at, err := timeOf("at", q.Get("at"), time.Now())
	if err != nil {
		return nil, err
	}
	if at.After(time.Now()) {
		return nil, &BadInput{"at lies in the future"}
	}
	select {
	case s.explains <- struct{}{}:
		defer func() { <-s.explains }()
	default:
		return nil, &httpError{http.StatusServiceUnavailable, "too many explanations at once; try again in a moment"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTime)
	defer cancel()
	return s.o.Explain(ctx, q.Get("client"), q.Get("profile"), raw, at)
}

// serveRobots shows a robots.txt as it was when a request was judged. It was
// written by a stranger: plain text, and nothing in it runs.
func (s *Server) serveRobots(w http.ResponseWriter, r *http.Request) error {
	sum := strings.TrimPrefix(r.URL.Path, "/api/robots/")
	if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size || strings.ToLower(sum) != sum {
		return &BadInput{"this is not a SHA-256 in lower-case hex"}
	}
	if s.o.RobotsFile != nil {
		if body, ok := s.o.RobotsFile(sum); ok {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, err := w.Write(body)
			return err
		}
	}
	return &httpError{http.StatusNotFound, "this version of robots.txt is not archived here"}
}

func (s *Server) serveLedger(w http.ResponseWriter, _ *http.Request) error {
	if s.o.Ledger == nil {
		return &httpError{http.StatusNotFound, "the ledger is not available here"}
	}
	list := s.o.Ledger.List()
	if list == nil {
		list = []LedgerEntry{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"ledger": list})
	return nil
}

// change is the body of a POST to /api/ledger.
type change struct {
	Host       string `json:"host"`
	Action     string `json:"action"` // stop, slow or resume
	Subdomains bool   `json:"subdomains"`
	Gap        string `json:"gap"` // of slow, with a unit: "10s"
	Reason     string `json:"reason"`
}

// changeLedger stops, slows or resumes a host; it is in force at once.
func (s *Server) changeLedger(w http.ResponseWriter, r *http.Request) error {
	if s.o.Ledger == nil {
		return &httpError{http.StatusNotFound, "the ledger is not available here"}
	}
	var c change
	if err := readJSON(r, &c); err != nil {
		return err
	}
	if err := checkLedger(c.Host, c.Reason); err != nil {
		return err
	}
	var err error
	switch c.Action {
	case "stop":
		err = s.o.Ledger.Stop(r.Context(), c.Host, c.Subdomains, c.Reason)
	case "slow":
		gap, perr := time.ParseDuration(c.Gap)
		if perr != nil || gap <= 0 || gap > 24*time.Hour {
			return &BadInput{"gap is not a duration of at most 24h with a unit, like 10s"}
		}
		err = s.o.Ledger.Slow(r.Context(), c.Host, c.Subdomains, gap, c.Reason)
	case "resume":
		return s.resume(w, r, c.Host)
	default:
		return &BadInput{"action is not one of stop, slow, resume"}
	}
	if err != nil {
		return err
	}
	s.log.Info("ledger changed", "action", c.Action, "host", c.Host, "subdomains", c.Subdomains)
	writeJSON(w, http.StatusOK, map[string]any{"host": c.Host, "action": c.Action})
	return nil
}

// resumeHost is DELETE /api/ledger?host=: the entry goes, and the host's hold ends.
func (s *Server) resumeHost(w http.ResponseWriter, r *http.Request) error {
	if s.o.Ledger == nil {
		return &httpError{http.StatusNotFound, "the ledger is not available here"}
	}
	host := r.URL.Query().Get("host")
	if err := checkLedger(host, ""); err != nil {
		return err
	}
	return s.resume(w, r, host)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request, host string) error {
	was, err := s.o.Ledger.Resume(r.Context(), host)
	if err != nil {
		return err
	}
	s.log.Info("ledger changed", "action", "resume", "host", host, "had_entry", was)
	writeJSON(w, http.StatusOK, map[string]any{"host": host, "action": "resume", "had_entry": was})
	return nil
}

func checkLedger(host, reason string) error {
	switch {
	case host == "":
		return &BadInput{"host is missing"}
	case len(host) > maxLedgerHost:
		return &BadInput{"host is longer than 253 bytes"}
	case len(reason) > maxReason:
		return &BadInput{"reason is longer than 1 KiB"}
	}
	return nil
}

// serveAudit streams matching events of the log as JSON Lines.
func (s *Server) serveAudit(w http.ResponseWriter, r *http.Request) error {
	if s.o.Audit == nil {
		return &httpError{http.StatusNotFound, "the audit log is not available here"}
	}
	q := r.URL.Query()
	since, err := timeOf("since", q.Get("since"), time.Now())
	if err != nil {
		return err
	}
	limit, err := intOf("limit", q.Get("limit"), auditDefault, auditMost)
	if err != nil {
		return err
	}
	aq := AuditQuery{Since: since, Host: strings.ToLower(q.Get("host")), Client: q.Get("client"), Reason: q.Get("reason"), Limit: limit}
	for _, v := range []string{aq.Host, aq.Client, aq.Reason} {
		if len(v) > maxFilter {
			return &BadInput{"a filter is longer than 512 bytes"}
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if r.Method == http.MethodHead {
		return nil
	}
	body := &countedWriter{w: w, rc: http.NewResponseController(w)}
	err = s.o.Audit(r.Context(), aq, body)
	if err != nil && body.n > 0 {
		// The status is gone; a cut connection is the only honest end.
		if !errors.Is(err, context.Canceled) {
			s.log.Error("audit query failed", "err", err)
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// countedWriter knows whether anything was written and gives each write a
// deadline of its own: a long answer outlives the server's.
type countedWriter struct {
	w  io.Writer
	rc *http.ResponseController
	n  int64
}

func (c *countedWriter) Write(p []byte) (int, error) {
	if err := c.rc.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// readJSON reads one object with known keys only. Its content type is asked for
// because a form on a strange page can't send it.
func readJSON(r *http.Request, v any) error {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return &httpError{http.StatusUnsupportedMediaType, "the body must be application/json"}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return err
		}
		return &BadInput{"the body is not the JSON expected: " + err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &BadInput{"there is more after the JSON object"}
	}
	return nil
}
