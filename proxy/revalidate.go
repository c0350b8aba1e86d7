package proxy

import (
	"context"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"crawlgate/audit"
	"crawlgate/proxy/guard"
)

// storedField tells the fetcher that an answer was not transferred by the site but taken from what is kept.
const storedField = "Crawlgate-Stored"

// revalidation is what the store of answers has to do with one request.
type revalidation struct {
	keeps bool        // the answer may be kept
	sent  http.Header // of the request as it leaves
	kept  *keptAnswer // the site is asked about it
	reuse bool        // it is the answer
	bytes int64       // body bytes from the store
}

// recall makes the request conditional when an answer to it is kept: the site then need not send the page again (RFC 9111
// 4.3.1). Conditional fields of the fetcher's own are left as they are, and its 304 is then its own. A request for a
// page that was chosen after an earlier 304 stays unconditional.
func (x *exchange) recall(out *http.Request) {
	s := x.g.answers
	if s == nil || !x.plainGet() || !keeps(out.Header) {
		return
	}
	x.stored.keeps, x.stored.sent = s.trusts(x.url.Host), out.Header
	if !x.stored.keeps || asksItself(out.Header) {
		return
	}
	kept := s.find(x.target, x.owner(), out.Header)
	if kept == nil {
		return
	}
	x.stored.kept = kept
	if out.Header["Authorization"] != nil {
		if d, ok := cacheControl(kept.head.header["Cache-Control"]); !ok || !d.forAll() {
			return // RFC 9111 3.5
		}
	}
	if kept.head.full {
		x.ev.Revalidation = audit.AskedInFull
		return
	}
	x.ev.Revalidation = audit.AskedWhether
	validators(kept.head.header).apply(out.Header)
}

// plainGet tells whether a request is a GET of a fetcher, without content, that may have to do with the store at all. What
// a person reads under a browser's own name is the person's.
func (x *exchange) plainGet() bool {
	return x.in.Method == http.MethodGet && x.from.own == nil && !x.profile.Agent.Pass && (x.in.Body == nil || x.in.ContentLength == 0 || x.empty)
}

// owner is who a kept answer belongs to. Clients of one gate may be different people's: none gets what another's
// requests brought.
func (x *exchange) owner() string { return x.id.client.Name + " " + x.profile.Agent.Name }

// revive puts the kept answer in place of the site's 304 to a request that was made conditional here: the fetcher did
// not ask for a 304 and could do nothing with it. It also removes what a request has changed at the site.
func (x *exchange) revive(resp *http.Response) (*http.Response, *refusal) {
	if x.g.answers == nil {
		return resp, nil
	}
	x.forgetChanged(resp)
	kept := x.stored.kept
	if resp.StatusCode != http.StatusNotModified || x.ev.Revalidation != audit.AskedWhether {
		return resp, nil
	}
	was := validators(kept.head.header)
	resp.Body.Close()
	if !was.confirmedBy(resp.Header) {
		// Another request would need a turn of its own. The next one is unconditional, as are all to this site from now on.
		x.g.answers.distrust(x.url.Host)
		x.g.answers.drop(kept.e)
		return nil, &refusal{code: UpstreamFailed, class: "validator_mismatch", proxyError: "http_protocol_error", retryAfter: time.Second,
			detail: "The site answered 304 for another version of the page than it was asked about. Ask again: the page will be asked for in full."}
	}
	x.stored.reuse = true
	x.ev.Revalidation = audit.Unchanged
	return x.reuse(resp), nil
}

// reuse makes the answer: the kept one, with the fields of the 304 (RFC 9111 3.2).
func (x *exchange) reuse(resp *http.Response) *http.Response {
	kept := x.stored.kept
	stripAnswer(resp.Header)
	h := freshen(kept.head.header, resp.Header)
	// RFC 9111 4.2.3, corrected_age_value: as old as the 304 was when it came, and the time it took.
	age := ageOf(resp.Header) + time.Since(x.wire.sentAt())
	x.noteUnchanged(h, time.Now().Add(-age))
	return x.keptResponse(h, age)
}

// ageOf reads Age.
func ageOf(h http.Header) time.Duration {
	s, err := strconv.ParseInt(h.Get("Age"), 10, 64)
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(min(s, math.MaxInt32)) * time.Second
}

// keptResponse is the kept answer with these fields.
func (x *exchange) keptResponse(h http.Header, age time.Duration) *http.Response {
	kept := x.stored.kept
	h["Age"] = []string{strconv.FormatInt(int64(max(age, 0)/time.Second), 10)}
	h["Content-Length"] = []string{strconv.FormatInt(kept.head.length, 10)}
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		ContentLength: kept.head.length, Body: kept.reader()}
}

// noteUnchanged keeps the new fields, and now and then that the page is to be asked for in full at its next visit. What
// must no longer be kept goes; the open body is still read.
func (x *exchange) noteUnchanged(h http.Header, at time.Time) {
	kept, s := x.stored.kept, x.g.answers
	head := *kept.head
	head.header = http.Header{}
	for k, v := range h {
		if !notKept(k) {
			head.header[k] = v
		}
	}
	head.full, head.came = s.pickFull(), at
	s.confirmed(kept.e, at)
	vary, ok := storable(x.stored.sent, http.StatusOK, head.header)
	if !ok || varyKey(vary, x.stored.sent) != head.key {
		s.drop(kept.e)
		return
	}
	if !head.full && sameFields(head.header, kept.head.header) {
		s.checked(kept.e)
		return
	}
	head.vary = vary
	if err := s.update(kept.e, &head); err != nil {
		s.fault("kept answer not brought up to date", err)
		s.drop(kept.e)
	}
}

// sameFields tells whether a 304 said nothing new. Its date is new each time, and the file is not worth writing for it.
func sameFields(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if k != "Date" && !slices.Equal(v, b[k]) {
			return false
		}
	}
	return true
}

// keeper begins to keep an answer that may be kept, or drops what is kept and does not hold any more. nil: it is not kept.
func (x *exchange) keeper(resp *http.Response) *keeper {
	if !x.stored.keeps || x.stored.reuse {
		return nil
	}
	s := x.g.answers
	vary, ok := storable(x.stored.sent, resp.StatusCode, resp.Header)
	if ok && len(resp.Trailer) == 0 && !eventStream(resp.Header) {
		head := &answerHead{url: x.target, owner: x.owner(), vary: vary, key: varyKey(vary, x.stored.sent), came: time.Now().Add(-ageOf(resp.Header)), header: http.Header{}}
		for k, v := range resp.Header {
			if !notKept(k) {
				head.header[k] = v
			}
		}
		if k := s.keep(head, resp.ContentLength); k != nil {
			return k
		}
	}
	if kept := x.stored.kept; kept != nil && outdates(resp.StatusCode) {
		s.drop(kept.e)
	}
	return nil
}

// outdates tells whether an answer says that the kept one is the page's no more. A fault of the site, a refusal or a
// request to wait says nothing of the page.
func outdates(status int) bool {
	switch status {
	case http.StatusNotModified:
		return false
	case http.StatusNotFound, http.StatusGone:
		return true
	}
	return status >= 200 && status < 400
}

// unchangedMargin is how far the clocks of a site and of the gate may be apart.
const unchangedMargin = time.Minute

// spare gives the kept answer without asking the site, where its sitemap says that the page has not changed since the site
// last said that the answer holds. It takes no turn: nothing is sent. nil: the site is asked. RFC 9111 4.2.4 leaves that to
// what was agreed otherwise; a sitemap's lastmod is the site's own word for when a page is worth fetching.
func (x *exchange) spare(ctx context.Context) *http.Response {
	s := x.g.answers
	if s == nil || !s.lastmod || !x.plainGet() || !keeps(x.in.Header) || !takesUnasked(x.in.Header) {
		return nil
	}
	changed, ok := x.g.list.ChangedBy(x.id.client.Name, x.url, x.verdict.Sitemaps)
	if !ok || x.g.audit.Ready() != nil {
		return nil
	}
	// What an answer varies by is compared with the fields as they would leave. Those that would be taken out first make
	// a difference here, and then the site is asked.
	sent := maps.Clone(x.in.Header)
	x.sentUA = x.userAgent()
	sent["User-Agent"] = []string{x.sentUA}
	kept := s.find(x.target, x.owner(), sent)
	if kept == nil {
		return nil
	}
	held := s.heldAt(kept)
	if kept.head.full || !held.After(changed.Add(unchangedMargin)) || time.Until(held) > unchangedMargin || !givesUnasked(kept.head.header) {
		kept.close()
		return nil
	}
	x.stored.kept, x.stored.reuse = kept, true
	x.ev.Revalidation = audit.Spared
	x.sending, x.cancel = context.WithCancelCause(ctx)
	return x.keptResponse(maps.Clone(kept.head.header), time.Since(held))
}

// forgetChanged removes what is kept of a page that a request with an unsafe method has changed, and of those that its
// answer names at the same site (RFC 9111 4.4).
func (x *exchange) forgetChanged(resp *http.Response) {
	switch x.in.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return
	}
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return
	}
	x.g.answers.forget(x.target)
	for _, name := range [...]string{"Location", "Content-Location"} {
		v := resp.Header.Get(name)
		if v == "" {
			continue
		}
		if u := x.sameOrigin(v); u != nil {
			x.g.answers.forget(u.String())
		}
	}
}

// sameOrigin resolves a reference, or gives nil if it leads to another origin.
func (x *exchange) sameOrigin(ref string) *url.URL {
	u, err := x.url.Parse(guard.EscapeStray(ref))
	if err != nil {
		return nil
	}
	if u, _ = normalised(u); u == nil || u.Scheme != x.url.Scheme || u.Host != x.url.Host {
		return nil
	}
	return u
}
