package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"crawlgate/allowlist"
	"crawlgate/audit"
	"crawlgate/proxy"
)

// controlServer answers the other commands over state_dir/control.sock: the file's mode is the only key it needs.
type controlServer struct {
	i    *instance
	srv  *http.Server
	path string

	mu      sync.Mutex
	joined  int
	changed chan struct{} // closed and replaced when joined changes
}

// status is what an instance says of itself.
type status struct {
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Proxy    string    `json:"proxy"`
	Admin    string    `json:"admin"`
	StateDir string    `json:"state_dir"`
	Config   string    `json:"config"`
	Policy   string    `json:"policy_sha256"`
	CAFile   string    `json:"ca_file"`
	SPKI     string    `json:"spki"`
	Audit    string    `json:"audit"`
	Agents   []string  `json:"agents"`
	UAs      []string  `json:"user_agents"`
	Started  time.Time `json:"started"`
	NotReady []string  `json:"not_ready"`
	Clock    *float64  `json:"clock_offset,omitempty"` // seconds ahead of the sites, once enough of them were seen
	Profile  string    `json:"profile,omitempty"`      // to a command that joins: its client's first
}

// openControl makes the socket. One that nobody answers on is left over from a crash and replaced: the state file's
// lock has already told that we are the owner.
func (i *instance) openControl() error {
	path := controlPath(i.cfg.Load().StateDir)
	_ = os.Remove(path)
	l, err := listenUnix(path)
	if err != nil {
		return usage("state_dir: control socket: %w", err)
	}
	c := &controlServer{i: i, path: path, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", c.status)
	mux.HandleFunc("GET /explain", c.explain)
	mux.HandleFunc("GET /ledger", c.ledger)
	mux.HandleFunc("POST /ledger/stop", c.ledgerStop)
	mux.HandleFunc("POST /ledger/slow", c.ledgerSlow)
	mux.HandleFunc("POST /ledger/resume", c.ledgerResume)
	mux.HandleFunc("POST /reload", c.reload)
	mux.HandleFunc("GET /jobs", c.jobs)
	mux.HandleFunc("POST /join", c.join)
	c.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	i.control = c
	go func() { _ = c.srv.Serve(l) }()
	return nil
}

func (i *instance) closeControl() {
	if i.control == nil {
		return
	}
	_ = i.control.srv.Close()
	_ = os.Remove(i.control.path)
	i.control = nil
}

func (i *instance) status() status {
	cfg := i.cfg.Load()
	s := status{PID: os.Getpid(), Version: buildVersion(), Proxy: i.proxyURL(), StateDir: cfg.StateDir, Config: i.src.Load().File, Policy: cfg.Hash(),
		CAFile: i.ca.Load().File, SPKI: i.ca.Load().SPKI(), Audit: i.audit.Path(), Started: i.started, Agents: []string{}, UAs: []string{}, NotReady: []string{}}
	if i.admin != nil {
		s.Admin = i.admin.url()
	}
	for _, a := range cfg.Agents {
		s.Agents = append(s.Agents, a.Name)
		s.UAs = append(s.UAs, a.UserAgent)
	}
	if offset, ok := i.clock.Offset(); ok {
		seconds := offset.Seconds()
		s.Clock = &seconds
	}
	for _, c := range i.ready() {
		if !c.OK {
			s.NotReady = append(s.NotReady, c.Name+": "+c.Detail)
		}
	}
	return s
}

// firstProfile is the profile that a client's requests go by when they name none; "" is the first client.
func (i *instance) firstProfile(client string) string {
	cfg := i.cfg.Load()
	for _, c := range cfg.Clients {
		if (client == "" || c.Name == client) && len(c.Profiles) > 0 {
			return c.Profiles[0]
		}
	}
	if len(cfg.Profiles) == 0 {
		return ""
	}
	return cfg.Profiles[0].Name
}

func (c *controlServer) status(w http.ResponseWriter, _ *http.Request) { reply(w, c.i.status()) }

func (c *controlServer) explain(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	question := proxy.Question{Client: q.Get("client"), Profile: q.Get("profile"), URL: q.Get("url")}
	if at := q.Get("at"); at != "" {
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			refuseControl(w, err)
			return
		}
		question.At = t
	}
	e, err := c.i.gate.Explain(r.Context(), question)
	if err != nil {
		refuseControl(w, err)
		return
	}
	reply(w, e)
}

func (c *controlServer) ledger(w http.ResponseWriter, _ *http.Request) { reply(w, c.i.ledger.List()) }

func (c *controlServer) entry(w http.ResponseWriter, r *http.Request, do func(allowlist.Entry) (allowlist.Entry, error)) {
	var e allowlist.Entry
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&e); err != nil {
		refuseControl(w, err)
		return
	}
	out, err := do(e)
	if err != nil {
		refuseControl(w, err)
		return
	}
	reply(w, out)
}

func (c *controlServer) ledgerStop(w http.ResponseWriter, r *http.Request) {
	c.entry(w, r, c.i.ledger.Stop)
}
func (c *controlServer) ledgerSlow(w http.ResponseWriter, r *http.Request) {
	c.entry(w, r, c.i.ledger.Slow)
}

func (c *controlServer) ledgerResume(w http.ResponseWriter, r *http.Request) {
	removed, err := c.i.ledger.Resume(r.URL.Query().Get("host"))
	if err != nil && removed == nil {
		refuseControl(w, err)
		return
	}
	out := struct {
		Removed *allowlist.Entry `json:"removed"`
		Note    string           `json:"note,omitempty"`
	}{Removed: removed}
	if err != nil {
		out.Note = err.Error()
	}
	reply(w, out)
}

func (c *controlServer) reload(w http.ResponseWriter, _ *http.Request) {
	if err := c.i.reload(); err != nil {
		refuseControl(w, err)
		return
	}
	reply(w, c.i.status())
}

func (c *controlServer) jobs(w http.ResponseWriter, _ *http.Request) { reply(w, c.i.gate.Jobs()) }

// join opens a listener for one command of the owner, keeps the gate up until that one hangs up, and streams it the
// events that its summary is made of.
func (c *controlServer) join(w http.ResponseWriter, r *http.Request) {
	c.count(1)
	defer c.count(-1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		refuseControl(w, err)
		return
	}
	defer l.Close()
	c.i.listeners.add(l.Addr())
	defer c.i.listeners.remove(l.Addr())
	c.i.currentDialer().SetSelf(c.i.listeners.addrs)
	events := make(chan *summaryEvent, 4096)
	failed := make(chan error, 1)
	go func() {
		failed <- c.i.gate.ServeTrusted(l, r.URL.Query().Get("client"), func(e *audit.Event) {
			select {
			case events <- newSummaryEvent(e):
			default: // the summary may miss events; the log does not
			}
		})
	}()
	rc := http.NewResponseController(w)
	st := c.i.status()
	st.Proxy = "http://" + l.Addr().String()
	st.Profile = c.i.firstProfile(r.URL.Query().Get("client"))
	enc := json.NewEncoder(w)
	_ = enc.Encode(st)
	_ = rc.Flush()
	for {
		select {
		case e := <-events:
			if enc.Encode(e) != nil || rc.Flush() != nil {
				return
			}
		case <-failed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (c *controlServer) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined += n
	close(c.changed)
	c.changed = make(chan struct{})
}

// waitAlone returns when no other command uses the gate.
func (c *controlServer) waitAlone(ctx context.Context) {
	for {
		c.mu.Lock()
		n, ch := c.joined, c.changed
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return
		}
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuseControl(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = io.WriteString(w, err.Error())
}

// controlClient talks to the instance that holds a state folder.
type controlClient struct {
	http *http.Client
	path string
}

// dialControl finds the running instance of a state folder, or fails.
func dialControl(stateDir string) (*controlClient, error) {
	path := controlPath(stateDir)
	dial := func(ctx context.Context) (net.Conn, error) { return dialUnix(ctx, path) }
	c, err := dial(context.Background())
	if err != nil {
		return nil, err
	}
	c.Close()
	return &controlClient{path: path, http: &http.Client{Transport: &http.Transport{
		Proxy: nil, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}, nil
}

func (c *controlClient) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://control"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return errors.New(string(text))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

func (c *controlClient) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, out)
}

func (c *controlClient) explain(ctx context.Context, q proxy.Question) (*proxy.Explanation, error) {
	v := url.Values{"url": {q.URL}, "client": {q.Client}, "profile": {q.Profile}}
	if !q.At.IsZero() {
		v.Set("at", q.At.Format(time.RFC3339))
	}
	var e proxy.Explanation
	if err := c.get(ctx, "/explain?"+v.Encode(), &e); err != nil {
		return nil, err
	}
	return &e, nil
}

// whoHolds names the process that owns a state folder, as far as it answers.
func whoHolds(stateDir string) string {
	c, err := dialControl(stateDir)
	if err != nil {
		return "another process (it does not answer on control.sock; it may be starting or ending)"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var st status
	if err := c.get(ctx, "/status", &st); err != nil {
		return "another process"
	}
	return fmt.Sprintf("a running crawlgate (process %s, proxy %s)", strconv.Itoa(st.PID), st.Proxy)
}
