package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sort"
	"strings"
	"sync"
)

// Bounds of a request to the admin listener. The time a connection may take is
// the http.Server's.
const (
	maxBody     = 64 << 10 // bytes of a request's body
	maxURL      = 8 << 10  // bytes of a URL to explain
	maxExplains = 4        // explanations at once: each may wait for a robots.txt
)

// Server answers on the admin and the publish listener. Make one with New.
type Server struct {
	o       Options
	log     *slog.Logger
	state   *state
	metrics *metrics

	explains chan struct{} // a slot for each explanation under way

	closed    chan struct{}
	closeOnce sync.Once
}

// New returns a server with a metrics registry of its own. Close ends its streams.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		o:        o,
		log:      o.Log,
		state:    newState(),
		explains: make(chan struct{}, maxExplains),
		closed:   make(chan struct{}),
	}
	s.metrics = newMetrics(s)
	return s
}

// Close ends the streams, so that http.Server.Shutdown need not wait for them.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { close(s.closed) })
	return nil
}

// handler answers a request or returns why not; serve turns the error into an answer.
type handler func(w http.ResponseWriter, r *http.Request) error

// httpError is an answer other than 200 with its words.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

// route is what one path answers: its handlers by method.
type route struct {
	get     handler
	post    handler
	delete  handler
	open    bool // readable without the token though reading needs it
	publish bool // also answered under a configured authority
}

// methods lists what is allowed, for the Allow field.
func (rt route) methods() string {
	var m []string
	if rt.get != nil {
		m = append(m, "GET", "HEAD")
	}
	if rt.post != nil {
		m = append(m, "POST")
	}
	if rt.delete != nil {
		m = append(m, "DELETE")
	}
	sort.Strings(m)
	return strings.Join(m, ", ")
}

func (rt route) handler(method string) handler {
	switch method {
	case http.MethodGet, http.MethodHead:
		return rt.get
	case http.MethodPost:
		return rt.post
	case http.MethodDelete:
		return rt.delete
	}
	return nil
}

// routes is the whole surface; a test walks it. Files of the page's own come
// from assets.
func (s *Server) routes() map[string]route {
	all := map[string]route{
		"/":              {get: s.serveLive},
		"/live.svg":      {get: s.serveTurns},
		"/live.css":      {get: asset("live.css", "text/css; charset=utf-8"), open: true},
		"/live.js":       {get: asset("live.js", "text/javascript; charset=utf-8"), open: true},
		"/favicon.svg":   {get: asset("favicon.svg", "image/svg+xml"), open: true},
		"/healthz":       {get: s.serveHealth, open: true},
		"/readyz":        {get: s.serveReady, open: true},
		"/metrics":       {get: s.serveMetrics},
		"/ca.pem":        {get: s.serveCA, open: true},
		"/proxy.pac":     {get: s.servePAC, open: true},
		"/api/status":    {get: s.serveStatus},
		"/api/decisions": {get: s.serveDecisions},
		"/api/hosts":     {get: s.serveHosts},
		"/api/jobs":      {get: s.serveJobs},
		"/api/jobs/":     {get: s.serveJob, post: s.limitJob, delete: s.endJob},
		"/api/explain":   {get: s.serveExplain},
		"/api/ledger":    {get: s.serveLedger, post: s.changeLedger, delete: s.resumeHost},
		"/api/audit":     {get: s.serveAudit},
		"/api/proof":     {get: s.serveProof},
		"/api/robots/":   {get: s.serveRobots},

		pathDirectory: {get: s.serveDirectory, open: true, publish: true},
		pathCard:      {get: s.serveCard, open: true, publish: true},
		pathIPRanges:  {get: s.serveIPRanges, open: true, publish: true},
		pathAbout:     {get: s.serveAbout, open: true, publish: true},
	}
	if s.o.Pprof {
		all[pathPprof] = route{get: s.servePprof}
	}
	return all
}

// find returns the route of a path. A route whose path ends in "/" takes a name
// after it: a job's or a file's.
func find(routes map[string]route, path string) (route, bool) {
	i := strings.LastIndexByte(path, '/') + 1
	if i > 1 && i < len(path) {
		if rt, ok := routes[path[:i]]; ok {
			return rt, true
		}
	}
	rt, ok := routes[path]
	return rt, ok && (path == "/" || !strings.HasSuffix(path, "/"))
}

// Handler answers on the admin listener.
func (s *Server) Handler() http.Handler {
	routes := s.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, routes, s.admit)
	})
}

// PublishHandler answers on publish.listen: the published paths and nothing else.
func (s *Server) PublishHandler() http.Handler {
	routes := s.routes()
	for p, rt := range routes {
		if !rt.publish {
			delete(routes, p)
		}
	}
	if s.o.ServeRoot {
		routes["/"] = routes[pathDirectory]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, routes, s.admitPublished)
	})
}

// ControlHandler answers on state_dir/control.sock: the same paths with no
// Host check and no token, since whoever may open the socket owns the state.
// It must never be given to a TCP listener.
func (s *Server) ControlHandler() http.Handler {
	routes := s.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, routes, func(*http.Request, route) error { return nil })
	})
}

// serve is the way of every request: headers, who may, which path, which
// method, and one place where an error becomes an answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, routes map[string]route, admit func(*http.Request, route) error) {
	secure(w.Header())
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	rt, found := find(routes, r.URL.Path)
	if found && s.o.ServeRoot && r.URL.Path == "/" && s.published(r.Host) {
		rt = routes[pathDirectory]
	}
	err := admit(r, rt)
	switch {
	case err != nil:
	case !found:
		err = &httpError{http.StatusNotFound, "there is nothing at this path"}
	default:
		h := rt.handler(r.Method)
		if h == nil {
			w.Header().Set("Allow", rt.methods())
			err = &httpError{http.StatusMethodNotAllowed, "this path takes " + rt.methods()}
			s.metrics.denied.WithLabelValues("method").Inc()
			break
		}
		err = h(w, r)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// fail answers an error. What the caller can't mend is logged and not shown.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "something failed here; the gate's log has it"
	var he *httpError
	var bad *BadInput
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &he):
		status, text = he.status, he.text
	case errors.As(err, &bad):
		status, text = http.StatusBadRequest, bad.Text
	case errors.As(err, &big):
		status, text = http.StatusRequestEntityTooLarge, "the body is larger than 64 KiB"
	case errors.Is(err, context.DeadlineExceeded):
		status, text = http.StatusGatewayTimeout, "no answer in time"
	case errors.Is(err, context.Canceled):
		return // the reader has gone
	default:
		s.log.Error("admin request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	h := w.Header()
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="crawlgate"`)
		h.Add("WWW-Authenticate", `Basic realm="crawlgate", charset="UTF-8"`)
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		writeJSON(w, status, map[string]any{"error": text, "status": status})
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // an answer to a reader that has gone is nobody's
}
