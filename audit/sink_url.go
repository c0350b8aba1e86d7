package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// urlSink posts each head to a URL. A head is taken when the answer is 2xx. Redirects are not followed: neither the
// credentials nor the head belong elsewhere, and most would turn the POST into a GET.
type urlSink struct {
	to    *target
	trans *http.Transport
}

const answerRead = 64 << 10 // bytes of an answer that are read, so that it can end in peace

func newURLSink(t *target, n network) *urlSink {
	return &urlSink{to: t, trans: &http.Transport{
		DialContext:     n.dial, // and no Proxy: the proxy variables often name the gate itself
		TLSClientConfig: n.tls(""),
		// Heads are rare. A connection of its own for each is never one that the other side has closed meanwhile.
		DisableKeepAlives: true,
	}}
}

func (s *urlSink) send(ctx context.Context, h *signedHead) error {
	// The line ends like one of the log, so that a receiver that only appends bodies to a file has a readable file.
	body := append(h.line[:len(h.line):len(h.line)], '\n')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.url.String(), bytes.NewReader(body))
	if err != nil {
		return errTarget
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "crawlgate")
	if s.to.user != nil {
		password, _ := s.to.user.Password()
		req.SetBasicAuth(s.to.user.Username(), password)
	}
	// The transport itself: a client's errors name the URL.
	resp, err := s.trans.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, answerRead))
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if after := retryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
		return retryLater{err, after}
	}
	return err
}

// retryAfter reads the field of that name (RFC 9110 section 10.2.3), 0 if it says nothing.
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
