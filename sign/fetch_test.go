package sign

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// roundTrip is a transport without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// directoryServer answers like a publisher of s, and counts.
func directoryServer(s *Signer, n *int) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		*n++
		return ask(s, r.Method, r.URL.Path, r.URL.Host, r.Header), nil
	}
}

func TestFetchKeepsSets(t *testing.T) {
	s := openTest(t, Defaults(), example())
	synctest.Test(t, func(t *testing.T) {
		n := 0
		fail := false
		serve := directoryServer(s, &n)
		f := KeyFetcher{RequireProof: true, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if fail {
				n++
				return nil, errors.New("away")
			}
			if r.Header.Get("Accept") != DirectoryType || r.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("asked with %v", r.Header)
			}
			return serve(r)
		})}}
		get := func(want int) {
			t.Helper()
			set, _, err := f.Fetch(t.Context(), "https://bot.example.com"+DirectoryPath)
			if err != nil || set.Len() != 1 || n != want {
				t.Errorf("%v, %d fetches, want %d", err, n, want)
			}
		}
		get(1)
		time.Sleep(time.Hour - time.Second) // max-age of the answer
		get(1)
		time.Sleep(2 * time.Second)
		get(2)
		fail = true
		time.Sleep(2 * time.Hour)
		get(3) // failed: the old set stays
		get(3) // and the failure is remembered
		time.Sleep(5*time.Minute + time.Second)
		fail = false
		get(4)
	})
}

func TestFetchRemembersFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := KeyFetcher{Client: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { n++; return nil, errors.New("away") })}}
		for _, want := range []int{1, 1, 2} {
			if _, _, err := f.Fetch(t.Context(), "https://bot.example.com/"); err == nil || !strings.Contains(err.Error(), "away") || n != want {
				t.Errorf("%v after %d", err, n)
			}
			if want == 1 && n == 1 {
				time.Sleep(3 * time.Minute)
			}
		}
		if n != 2 {
			t.Errorf("%d fetches in six minutes", n)
		}
	})
}

func TestFetchRefuses(t *testing.T) {
	answer := func(status int, h http.Header, body io.Reader) roundTrip {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(body)}, nil
		}
	}
	typed := http.Header{"Content-Type": {DirectoryType}}
	for name, c := range map[string]struct {
		url  string
		rt   roundTrip
		want string
	}{
		"http":        {"http://bot.example.com/", nil, "not an absolute https URL"},
		"user info":   {"https://a@bot.example.com/", nil, "user info"},
		"redirect":    {"https://bot.example.com/", answer(302, http.Header{"Location": {"https://bot.example.com/x"}}, strings.NewReader("")), "status 302"},
		"not found":   {"https://bot.example.com/", answer(404, typed, strings.NewReader("")), "status 404"},
		"too big":     {"https://bot.example.com/", answer(200, typed, strings.NewReader(strings.Repeat("a", maxDirectory+1))), "64 KiB"},
		"endless":     {"https://bot.example.com/", answer(200, typed, endless{}), "64 KiB"},
		"not a set":   {"https://bot.example.com/", answer(200, typed, strings.NewReader("<html>")), "neither a JWK Set"},
		"never comes": {"https://bot.example.com/", func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				f := KeyFetcher{Client: &http.Client{Transport: c.rt}}
				if _, _, err := f.Fetch(t.Context(), c.url); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("took %s", d)
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestFetchCallerLeaves: a caller that goes away leaves no failure behind for others.
func TestFetchCallerLeaves(t *testing.T) {
	s := openTest(t, Defaults(), example())
	n := 0
	serve := directoryServer(s, &n)
	f := KeyFetcher{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return serve(r)
	})}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.Fetch(gone, "https://bot.example.com/"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, _, err := f.Fetch(t.Context(), "https://bot.example.com/"); err != nil {
		t.Error(err)
	}
}

func TestFetchIsBounded(t *testing.T) {
	f := KeyFetcher{Client: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("away") })}}
	for i := range maxCachedSets + 50 {
		_, _, _ = f.Fetch(t.Context(), "https://bot.example.com/"+strings.Repeat("a", i%200)+string(rune('a'+i/200)))
	}
	if len(f.sets) > maxCachedSets {
		t.Errorf("%d sets are kept", len(f.sets))
	}
}

func TestFreshness(t *testing.T) {
	for line, want := range map[string]time.Duration{"": 5 * time.Minute, "max-age=60": time.Minute, `public, Max-Age="60"`: time.Minute, "max-age=999999999": 24 * time.Hour,
		"no-store": 0, "max-age=60, no-cache": 0, "max-age=x": 0, "max-age=-1": 0} {
		if got := freshness([]string{line}); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}
