package sign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	fetchTimeout  = 5 * time.Second
	defaultFresh  = 5 * time.Minute // of a set whose answer says nothing about caching
	longestFresh  = 24 * time.Hour
	longestFailed = 5 * time.Minute
	maxCachedSets = 1000
)

// KeyFetcher fetches key sets and keeps them as long as their answers allow. Failures are remembered for up to five
// minutes, and never push out a set that was fetched before.
type KeyFetcher struct {
	// Client does the exchange. It decides which addresses may be reached: give it a dialer that refuses those that are not
	// public, and no proxy. Its CheckRedirect and Timeout are not used: redirects are refused, five seconds are allowed.
	Client *http.Client
	// Skew is how far ahead the created of a proof may be.
	Skew time.Duration
	// Now is the clock that proofs are judged at; zero: the time.
	Now time.Time
	// RequireProof leaves out keys without a valid proof.
	RequireProof bool

	mu   sync.Mutex
	sets map[string]*fetchedSet
}

type fetchedSet struct {
	mu     sync.Mutex // one fetch at a time
	set    *KeySet
	proofs []Proof
	until  time.Time // the set is fresh, or the failure is remembered
	err    error
}

// Fetch gives the key set at an https URL.
func (f *KeyFetcher) Fetch(ctx context.Context, rawURL string) (*KeySet, []Proof, error) {
	if f.Client == nil {
		return nil, nil, errors.New("key sets can't be fetched without a client")
	}
	u, err := parseAgentURL(rawURL)
	if err != nil {
		return nil, nil, fmt.Errorf("key set %q: %w", clip(rawURL, maxAgentURL), err)
	}
	e := f.entry(u.String())
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Before(e.until) {
		if e.set != nil {
			return e.set, e.proofs, nil
		}
		return nil, e.proofs, e.err
	}
	set, proofs, fresh, err := f.fetch(ctx, u)
	switch {
	case err == nil:
		e.set, e.proofs, e.err, e.until = set, proofs, nil, time.Now().Add(fresh)
	case ctx.Err() != nil: // the caller gave up; that says nothing about the set
		return nil, nil, err
	default:
		e.err, e.until = fmt.Errorf("key set %s: %w", u, err), time.Now().Add(longestFailed)
		if e.set == nil {
			e.proofs = proofs
			return nil, proofs, e.err
		}
	}
	return e.set, e.proofs, nil
}

func (f *KeyFetcher) entry(name string) *fetchedSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sets == nil {
		f.sets = map[string]*fetchedSet{}
	}
	e := f.sets[name]
	if e == nil {
		for other := range f.sets {
			if len(f.sets) < maxCachedSets {
				break
			}
			delete(f.sets, other)
		}
		e = &fetchedSet{}
		f.sets[name] = e
	}
	return e
}

func (f *KeyFetcher) fetch(ctx context.Context, u *url.URL) (*KeySet, []Proof, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, 0, err
	}
	r.Header.Set("Accept", DirectoryType)
	r.Header.Set("Accept-Encoding", "identity") // the digest is over what is transferred
	c := &http.Client{Transport: f.Client.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(r)
	if err != nil {
		return nil, nil, 0, err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDirectory+1))
	if err != nil {
		return nil, nil, 0, err
	}
	if len(body) > maxDirectory {
		return nil, nil, 0, errors.New("more than 64 KiB")
	}
	capture := DirectoryCapture{URL: u.String(), Status: res.StatusCode, Body: body}
	for name, values := range res.Header {
		for _, v := range values {
			capture.Fields = append(capture.Fields, [2]string{name, v})
		}
	}
	now := f.Now
	if now.IsZero() {
		now = time.Now()
	}
	set, proofs, err := VerifyDirectory(capture, now, f.Skew, f.RequireProof)
	return set, proofs, freshness(res.Header["Cache-Control"]), err
}

// freshness reads Cache-Control (RFC 9111 5.2.2).
func freshness(lines []string) time.Duration {
	fresh := defaultFresh
	for _, line := range lines {
		for d := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(d), "=")
			switch strings.ToLower(name) {
			case "no-store", "no-cache":
				return 0
			case "max-age":
				n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 32)
				if err != nil {
					return 0
				}
				fresh = min(time.Duration(n)*time.Second, longestFresh)
			}
		}
	}
	return fresh
}
