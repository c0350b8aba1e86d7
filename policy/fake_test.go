package policy

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// site is a Fetcher that plays a web site.
type site struct {
	answer func(n int, r FetchRequest) (*FetchResponse, error) // n counts from 0
	delay  time.Duration                                       // until each answer

	mu    sync.Mutex
	asked []FetchRequest
}

func (s *site) Fetch(ctx context.Context, r FetchRequest) (*FetchResponse, error) {
	s.mu.Lock()
	n := len(s.asked)
	s.asked = append(s.asked, r)
	s.mu.Unlock()
	if s.delay > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(s.delay):
		}
	}
	return s.answer(n, r)
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *site) request(i int) FetchRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[i]
}

// always answers every request alike.
func always(status int, body string, header ...string) func(int, FetchRequest) (*FetchResponse, error) {
	return func(int, FetchRequest) (*FetchResponse, error) { return reply(status, body, header...), nil }
}

// inTurn answers with each status once, then with the last one. 0 is a network error, 200 rules that close /no.
func inTurn(statuses ...int) func(int, FetchRequest) (*FetchResponse, error) {
	return func(n int, _ FetchRequest) (*FetchResponse, error) {
		switch s := statuses[min(n, len(statuses)-1)]; s {
		case 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return reply(s, "User-agent: *\nDisallow: /no\n"), nil
		}
	}
}

func reply(status int, body string, header ...string) *FetchResponse {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &FetchResponse{Status: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func target(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func query(t testing.TB, s string) Query {
	return Query{URL: target(t, s), Agent: "a", Token: "ExampleBot", Profile: ProfileDefaults(), Wait: 10 * time.Minute}
}

// wants checks the parts of a verdict that decide.
func wants(t *testing.T, v Verdict, allowed bool, reason, class string) {
	t.Helper()
	if v.Allowed != allowed || v.Reason != reason || v.Class != class {
		t.Errorf("got %v %s %s (cause %v), want %v %s %s", v.Allowed, v.Reason, v.Class, v.Cause, allowed, reason, class)
	}
	if v.Allowed != (v.Reason == ReasonOK) {
		t.Errorf("allowed %v with reason %q", v.Allowed, v.Reason)
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }
