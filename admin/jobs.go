package admin

import (
	"net/http"
	"strings"
)

var errNoJobs = &httpError{http.StatusNotFound, "jobs are not available here"}

func (s *Server) serveJobs(w http.ResponseWriter, r *http.Request) error {
	if s.o.Jobs == nil {
		return errNoJobs
	}
	client := r.URL.Query().Get("client")
	out := []Job{}
	for _, j := range s.o.Jobs.List() {
		if client == "" || j.Client == client {
			out = append(out, j)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"jobs": out})
	return nil
}

// job finds the job of /api/jobs/{id}. Ids are a client's own, so two clients
// may have the same: then ?client= must say whose.
func (s *Server) job(r *http.Request) (Job, error) {
	if s.o.Jobs == nil {
		return Job{}, errNoJobs
	}
	id := strings.TrimPrefix(r.URL.Path, "/api/jobs/")
	client := r.URL.Query().Get("client")
	var found []Job
	for _, j := range s.o.Jobs.List() {
		if j.ID == id && (client == "" || j.Client == client) {
			found = append(found, j)
		}
	}
	switch len(found) {
	case 0:
		return Job{}, &httpError{http.StatusNotFound, "there is no such job"}
	case 1:
		return found[0], nil
	}
	return Job{}, &httpError{http.StatusConflict, "several clients have a job of this name; add ?client=NAME"}
}

func (s *Server) serveJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, j)
	return nil
}

// limitJob lowers a job's budget (RO-3): {"max_pages": 100}.
func (s *Server) limitJob(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		MaxPages int `json:"max_pages"`
	}
	j, err := s.job(r)
	if err != nil {
		return err
	}
	if err := readJSON(r, &c); err != nil {
		return err
	}
	if c.MaxPages < 1 {
		return &BadInput{"max_pages is not a number of 1 or more"}
	}
	ok, err := s.o.Jobs.Limit(j.Client, j.ID, c.MaxPages)
	if err != nil {
		return err
	}
	if !ok {
		return &httpError{http.StatusNotFound, "there is no such job"}
	}
	s.log.Info("job limited", "client", j.Client, "job", j.ID, "max_pages", c.MaxPages)
	return s.serveJob(w, r)
}

func (s *Server) endJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	if !s.o.Jobs.End(j.Client, j.ID) {
		return &httpError{http.StatusNotFound, "there is no such job"}
	}
	s.log.Info("job ended", "client", j.Client, "job", j.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
