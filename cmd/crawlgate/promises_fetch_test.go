package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// The fetchers and the sites of a stage.

// received is what a fetcher got.
type received struct {
	status       int
	header       http.Header
	trailer      http.Header
	body         string
	err          error
	began, ended time.Time
}

// reason is crawlgate's, or "" where the site answered.
func (r received) reason() string { return r.header.Get("Crawlgate-Reason") }

func (r received) problem() (p problem) {
	_ = json.Unmarshal([]byte(r.body), &p)
	return p
}

func (r received) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %.300s", r.status, r.reason(), r.body))
}

// as gives the fetcher of a proxy user: CLIENT[+PROFILE[+JOB]].
func (s *stage) as(user string) *http.Client {
	s.t.Helper()
	if c := s.clients[user]; c != nil {
		return c
	}
	proxy := strings.Replace(s.g.proxy, "://", "://"+url.PathEscape(user)+":"+promiseSecret+"@", 1)
	c := goClient(s.t, proxy, s.g.ca, false)
	c.Timeout = 100 * time.Second
	s.clients[user] = c
	return c
}

// get asks for a URL as a user. fields are names and values by turns; a field "method" is the method, "body" the body.
func (s *stage) get(user, target string, fields ...string) received {
	s.t.Helper()
	return send(s.as(user), target, fields...)
}

// getAll asks for several URLs at the same time, all as one user.
func (s *stage) getAll(user string, targets ...string) []received {
	s.t.Helper()
	c := s.as(user)
	out := make([]received, len(targets))
	done := make(chan struct{})
	for n, target := range targets {
		go func() {
			defer func() { done <- struct{}{} }()
			out[n] = send(c, target)
		}()
	}
	for range targets {
		<-done
	}
	return out
}

func send(c *http.Client, target string, fields ...string) (r received) {
	method, body := http.MethodGet, io.Reader(nil)
	h := http.Header{"User-Agent": {"fetcher/9"}, "Accept": {"*/*"}}
	for n := 0; n+1 < len(fields); n += 2 {
		switch fields[n] {
		case "method":
			method = fields[n+1]
		case "body":
			body = strings.NewReader(fields[n+1])
		default:
			h.Set(fields[n], fields[n+1])
		}
	}
	r.began = time.Now()
	req, err := http.NewRequest(method, target, body)
	if err != nil {
		r.err = err
		return r
	}
	req.Header = h
	resp, err := c.Do(req)
	if err != nil {
		r.err, r.ended = err, time.Now()
		return r
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 128<<20))
	r.status, r.header, r.trailer, r.body, r.err, r.ended = resp.StatusCode, resp.Header, resp.Trailer, string(raw), err, time.Now()
	return r
}

// page answers with a page that holds markup.
func page(markup string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><title>page</title>"+markup)
	}
}

// paths answers each path by its own handler, and others with a small page.
func paths(m map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h, ok := m[r.URL.Path]; ok {
			h(w, r)
			return
		}
		page("<p>"+r.URL.Path)(w, r)
	}
}

func redirectTo(status int, target string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", target)
		w.WriteHeader(status)
	}
}

func statusOnly(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; n+1 < len(fields); n += 2 {
			w.Header().Add(fields[n], fields[n+1])
		}
		w.WriteHeader(status)
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

// closedPort gives a port of loopback that nothing listens on.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// lockedText is a text that a test changes while a site serves it.
type lockedText struct {
	mu sync.Mutex
	s  string
}

func (l *lockedText) set(s string) { l.mu.Lock(); defer l.mu.Unlock(); l.s = s }
func (l *lockedText) get() string  { l.mu.Lock(); defer l.mu.Unlock(); return l.s }
