package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// robotsScript plays the site: it answers with the responses in order. A redirect to an address or port that the gate
// would not connect to is refused as the gate does.
type robotsScript struct {
	answers []robotsAnswer
	guard   *guard.Dialer
	next    int
	body    []byte
}

func (s *robotsScript) Fetch(_ context.Context, r policy.FetchRequest) (*policy.FetchResponse, error) {
	if r.Hop > 0 {
		if err := s.allowed(r.URL); err != nil {
			return nil, &policy.FetchError{Reason: "address-denied", Err: err}
		}
	}
	if s.next == len(s.answers) {
		return nil, errors.New("no response left")
	}
	a := s.answers[s.next]
	s.next++
	switch a.Error {
	case "":
	case "dns":
		return nil, &policy.FetchError{Reason: "dns-failed", Class: "dns_error", Err: errors.New("does not resolve")}
	case "tls":
		return nil, &policy.FetchError{Reason: "upstream-tls", Class: "tls_failed", Err: errors.New("TLS failed")}
	default:
		return nil, &policy.FetchError{Reason: "upstream-failed", Err: errors.New(a.Error)}
	}
	h := http.Header{}
	for k, v := range a.Headers {
		h.Set(k, v)
	}
	s.body = []byte(a.Body)
	return &policy.FetchResponse{Status: a.Status, Header: h, Body: io.NopCloser(strings.NewReader(a.Body))}, nil
}

// allowed judges a redirect's target as far as that goes without the network: its port, and its host if it is an address.
func (s *robotsScript) allowed(u *url.URL) error {
	h, err := guard.ParseHost(u.Host[:len(u.Host)-len(portSuffix(u))])
	if err != nil {
		return err
	}
	port := uint16(80)
	if u.Scheme == "https" {
		port = 443
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return err
		}
		port = uint16(n)
	}
	if err := s.guard.CheckPort(h, port); err != nil {
		return err
	}
	if !h.IsLiteral() {
		return nil
	}
	return s.guard.CheckHost(h, port)
}

func portSuffix(u *url.URL) string {
	if p := u.Port(); p != "" {
		return ":" + p
	}
	return ""
}
