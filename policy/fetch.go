package policy

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// maxHops is how many redirects are followed (RFC 9309 2.3.1.2: at least five).
const maxHops = 5

// exchangeTime bounds one exchange besides the wait for its turn: a site that trickles its file is unreachable.
const exchangeTime = 60 * time.Second

// outcome is what one try to read a file came to.
type outcome struct {
	class    string // as copied.class or failure.class
	reason   string // for a failure: the code a page gets
	status   int    // of the last answer, 0 for none
	body     []byte
	group    *Group // of body, and without the * group
	named    *Group
	confirm  bool // 304: the copy at hand holds
	final    string
	header   http.Header
	hops     int
	received time.Time
	again    bool // worth another try
	note     string
	err      error
	ours     *FetchError // our own side refused: no word about the site
}

func (o *outcome) good() bool {
	switch o.class {
	case ClassNoMatch, ClassNoRobots, ClassTooManyRedirects:
		return true
	}
	return false
}

// fail makes a failure out of an outcome.
func (o *outcome) fail(class string, err error) *outcome {
	o.class, o.reason, o.err = class, ReasonUnreadable, err
	switch class {
	case ClassChallenge:
		o.reason = ReasonChallenge
	case ClassRateLimited:
		o.again = true
	}
	return o
}

// read follows redirects to the file and classifies what it finds (RFC 9309 2.3.1). old may be nil.
func (p *Policy) read(ctx context.Context, k key, old *copied, fl *flight) *outcome {
	u := keyURL(k)
	from := u
	for hop := 0; ; hop++ {
		o := p.exchange(ctx, FetchRequest{
			URL: u, Header: conditional(old, u), Hop: hop, SameHost: hop > 0 && u.Host == from.Host && u.Scheme == from.Scheme,
			Wait: fl.left(), Requester: fl.requester,
		}, old)
		o.hops, o.final = hop, u.String()
		if !redirects(o.status) || o.class != "" {
			return o
		}
		if hop == maxHops {
			o.class = ClassTooManyRedirects
			return o
		}
		next, err := location(u, o.header.Get("Location"))
		switch {
		case err != nil:
			return o.fail(ClassUnreachable, err)
		case next.Scheme != "http" && next.Scheme != "https":
			return o.fail(ClassRedirectBlocked, fmt.Errorf("redirect to scheme %q", next.Scheme))
		}
		from, u = u, next
	}
}

func keyURL(k key) *url.URL { return &url.URL{Scheme: k.scheme, Host: k.host, Path: "/robots.txt"} }

func redirects(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

// location resolves a Location; user information and fragment are dropped.
func location(base *url.URL, value string) (*url.URL, error) {
	if strings.TrimSpace(value) == "" {
		return nil, errors.New("redirect without Location")
	}
	u, err := base.Parse(escapeStray(strings.TrimSpace(value)))
	if err != nil {
		return nil, errors.New("redirect with a Location that is no URL")
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() == "" {
		return nil, errors.New("redirect with a Location that names no host")
	}
	if port := u.Port(); port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// conditional gives the validators of the copy at hand, for the URL they came from.
func conditional(old *copied, u *url.URL) http.Header {
	h := make(http.Header)
	if old == nil || old.final != u.String() {
		return h
	}
	if old.etag != "" {
		h.Set("If-None-Match", old.etag)
	}
	if old.modified != "" {
		h.Set("If-Modified-Since", old.modified)
	}
	return h
}

// exchange makes one request and classifies the answer; class "" means a redirect to follow.
func (p *Policy) exchange(ctx context.Context, r FetchRequest, old *copied) *outcome {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+exchangeTime)
	defer cancel()
	p.fetches.Add(1)
	res, err := p.fetcher.Fetch(ctx, r)
	o := &outcome{received: time.Now()}
	if err != nil {
		return o.failed(err, r.Hop)
	}
	if res.Body == nil {
		res.Body = http.NoBody
	}
	defer func() { _ = res.Body.Close() }()
	timer := time.AfterFunc(exchangeTime, cancel)
	defer timer.Stop()
	o.status, o.header = res.Status, res.Header
	if o.header == nil {
		o.header = http.Header{}
	}
	if !res.Received.IsZero() {
		o.received = res.Received
	}
	if redirects(o.status) {
		return o
	}
	if o.status == http.StatusNotModified {
		if old == nil || len(r.Header) == 0 {
			return o.fail(ClassUnreachable, errors.New("304 without a copy at hand"))
		}
		o.class, o.confirm = old.class, true
		return o
	}
	limit := MaxBody + 1
	if o.status >= 400 {
		limit = challengeBytes
	}
	body, err := readBody(res.Body, o.header.Get("Content-Encoding"), limit)
	if vendor := challengeBy(*p.markers.Load(), o.status, o.header, body); vendor != "" {
		o.note = vendor + " answered with a check in place of robots.txt"
		return o.fail(ClassChallenge, nil)
	}
	switch {
	case o.status >= 200 && o.status < 300:
		if err != nil {
			o.again = true
			return o.fail(ClassUnreachable, err)
		}
		o.class, o.body = ClassNoMatch, body
	case o.status == http.StatusTooManyRequests:
		return o.fail(ClassRateLimited, nil)
	case o.status >= 400 && o.status < 500:
		o.class = ClassNoRobots
	default:
		o.again = o.status >= 500
		return o.fail(ClassUnreachable, fmt.Errorf("status %d", o.status))
	}
	return o
}

// failed classifies an error of the Fetcher.
func (o *outcome) failed(err error, hop int) *outcome {
	var fe *FetchError
	if !errors.As(err, &fe) {
		o.again = true
		return o.fail(ClassUnreachable, err)
	}
	switch {
	case fe.ours() && hop > 0 && fe.place():
		return o.fail(ClassRedirectBlocked, err)
	case fe.ours():
		o.ours, o.err = fe, err
		return o
	}
	o.again = !fe.Final
	o.fail(ClassUnreachable, err)
	if hop == 0 && (fe.Reason == "dns-failed" || fe.Reason == "upstream-tls") {
		o.reason = fe.Reason
	}
	return o
}

// readBody reads at most limit octets of the decoded body. An encoding that is not known is an error: rules that
// cannot be read are not absent.
func readBody(r io.Reader, encoding string, limit int) ([]byte, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r)
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r = z
	case "deflate":
		z, err := zlib.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	case "br":
		r = brotli.NewReader(r)
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16<<20))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("unknown content coding %q", encoding)
	}
	var b bytes.Buffer
	_, err := b.ReadFrom(io.LimitReader(r, int64(limit)))
	return b.Bytes(), err
}

// lifetime is how long an answer may be used (RFC 9111 4.2): Cache-Control alone counts, between [minAge] and [maxAge].
func lifetime(h http.Header) time.Duration {
	age := maxAge
	for _, line := range h.Values("Cache-Control") {
		for _, d := range strings.Split(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(d), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "no-store", "no-cache":
				age = 0
			case "max-age":
				n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
				if err == nil {
					age = min(age, time.Duration(n)*time.Second)
				}
			}
		}
	}
	if n, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil && age < maxAge {
		age -= time.Duration(n) * time.Second
	}
	return max(age, minAge)
}
