package policy

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Fetcher makes one exchange for a robots.txt: the guarded dial, the turn of the host, the agent's own user agent and
// signature, and nothing of any client. It follows no redirect.
//
// What stopped an exchange comes back as a *[FetchError], wrapped or not. Any other error counts as a network failure.
// An answer with any status is no error.
type Fetcher interface {
	Fetch(ctx context.Context, r FetchRequest) (*FetchResponse, error)
}

// FetchRequest is one exchange.
type FetchRequest struct {
	URL      *url.URL
	Header   http.Header   // conditional fields only; may be empty
	Hop      int           // 0: the robots.txt itself; n: the nth redirect
	SameHost bool          // this hop goes to the host of the one before
	Wait     time.Duration // longest wait for the turn; 0: now or not at all

	Requester any // Query.Requester of the first that waits for this file
}

// FetchResponse is what came back. Body may be nil and is closed by the receiver.
type FetchResponse struct {
	Status   int
	Header   http.Header
	Body     io.ReadCloser
	Received time.Time // zero: now
}

// FetchError says what stopped an exchange.
//
// With Reason "", "dns-failed", "upstream-failed", "upstream-timeout" or "upstream-tls" the site could not be read:
// that is tried again, remembered for a short time and left to when_unreadable. With any other reason our own side
// refused: that is passed on as it is, never remembered as a verdict about the site, and never allows a page.
type FetchError struct {
	Reason     string        // reason code that a page would get
	Class      string        // finer word
	RetryAfter time.Duration // when to come back; 0: unknown
	Final      bool          // asking again at once is pointless: no such name, a certificate that does not hold
	Err        error
}

func (e *FetchError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

// Unwrap gives the error that the guard, the pacer or the network returned.
func (e *FetchError) Unwrap() error { return e.Err }

// ours tells whether the gate itself refused, so that the failure says nothing about the site.
func (e *FetchError) ours() bool {
	switch e.Reason {
	case "", "dns-failed", "upstream-failed", "upstream-timeout", "upstream-tls", ReasonUnreadable:
		return false
	}
	return true
}

// place tells whether the refusal is about where the request would go, which on a redirect is the site's doing.
func (e *FetchError) place() bool {
	switch e.Reason {
	case "address-denied", "port-denied", "scheme-denied", "site-denied", "site-stopped", "loop", "host-mismatch", "bad-request":
		return true
	}
	return false
}
