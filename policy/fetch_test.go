package policy

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

func TestStatusClasses(t *testing.T) {
	for status := 100; status < 700; status++ {
		want := ClassUnreachable
		switch {
		case status >= 200 && status < 300:
			want = ClassRuleDisallow
		case status == 429:
			want = ClassRateLimited
		case status >= 400 && status < 500:
			want = ClassNoRobots
		}
		q := query(t, "https://a.test/no")
		q.Profile.Retries = 0
		p := New(Defaults(), &site{answer: inTurn(status)}, nil, nil)
		if v := p.Check(t.Context(), q); v.Class != want || v.Allowed != (want == ClassNoRobots) {
			t.Errorf("%d: %v %s, want %s", status, v.Allowed, v.Class, want)
		}
	}
}

func TestProfileReadsStatusesItsOwnWay(t *testing.T) {
	loop := func(int, FetchRequest) (*FetchResponse, error) { return reply(301, "", "Location", "/again"), nil }
	for _, c := range []struct {
		name    string
		answer  func(int, FetchRequest) (*FetchResponse, error)
		set     func(*ProfileConfig)
		allowed bool
		class   string
	}{
		{"403", inTurn(403), func(*ProfileConfig) {}, true, ClassNoRobots},
		{"403 deny", inTurn(403), func(c *ProfileConfig) { c.On401403 = Deny }, false, ClassForbidden},
		{"401 deny", inTurn(401), func(c *ProfileConfig) { c.On401403 = Deny }, false, ClassForbidden},
		{"404 is not meant", inTurn(404), func(c *ProfileConfig) { c.On401403 = Deny }, true, ClassNoRobots},
		{"403 deny, unreadable allow", inTurn(403), func(c *ProfileConfig) { c.On401403 = Deny; c.WhenUnreadable = Allow }, true, ClassUnreadableAllow},
		{"loop", loop, func(*ProfileConfig) {}, true, ClassNoRobots},
		{"loop deny", loop, func(c *ProfileConfig) { c.TooManyRedirects = Deny }, false, ClassTooManyRedirects},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := query(t, "https://a.test/x")
			c.set(&q.Profile)
			v := New(Defaults(), &site{answer: c.answer}, nil, nil).Check(t.Context(), q)
			if v.Allowed != c.allowed || v.Class != c.class {
				t.Errorf("%v %s, want %v %s", v.Allowed, v.Class, c.allowed, c.class)
			}
		})
	}
}

func TestRedirectHops(t *testing.T) {
	s := &site{answer: func(n int, _ FetchRequest) (*FetchResponse, error) {
		switch n {
		case 0:
			return reply(301, "", "Location", "https://user:pass@A.test:443/r?x=1#top"), nil
		case 1:
			return reply(308, "", "Location", "//b.test"), nil
		case 2:
			return reply(307, "", "Location", "http://b.test:80/robots.txt"), nil
		}
		return reply(200, "User-agent: *\nDisallow: /no\n"), nil
	}}
	p := New(Defaults(), s, nil, nil)
	q := query(t, "https://a.test/no")
	q.Requester = "me"
	wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
	want := []struct {
		url  string
		same bool
	}{{"https://a.test/robots.txt", false}, {"https://a.test/r?x=1", true}, {"https://b.test/", false}, {"http://b.test/robots.txt", false}}
	for i, r := range s.asked {
		if r.URL.String() != want[i].url || r.Hop != i || r.SameHost != want[i].same || r.Requester != "me" {
			t.Errorf("hop %d: %s same host %v", r.Hop, r.URL, r.SameHost)
		}
	}
	// The rules hold for the first authority only.
	s.answer = always(404, "")
	wants(t, p.Check(t.Context(), query(t, "https://b.test/no")), true, ReasonOK, ClassNoRobots)
}

func TestBadRedirects(t *testing.T) {
	for _, c := range []struct{ location, class string }{
		{"", ClassUnreachable},
		{" ", ClassUnreachable},
		{"http://[::1", ClassUnreachable},
		{"https://", ClassUnreachable},
		{"ftp://a.test/robots.txt", ClassRedirectBlocked},
		{"javascript:alert(1)", ClassRedirectBlocked},
		{"data:,User-agent", ClassRedirectBlocked},
	} {
		q := query(t, "https://a.test/x")
		p := New(Defaults(), &site{answer: always(302, "", "Location", c.location)}, nil, nil)
		if v := p.Check(t.Context(), q); v.Class != c.class || v.Reason != ReasonUnreadable {
			t.Errorf("%q: %s %s", c.location, v.Class, v.Reason)
		}
	}
}

// TestRefusedOnAHop: where a redirect leads is the site's doing, when the turn would come is not.
func TestRefusedOnAHop(t *testing.T) {
	for _, c := range []struct{ reason, wantReason, wantClass string }{
		{"address-denied", ReasonUnreadable, ClassRedirectBlocked},
		{"port-denied", ReasonUnreadable, ClassRedirectBlocked},
		{"scheme-denied", ReasonUnreadable, ClassRedirectBlocked},
		{"site-stopped", ReasonUnreadable, ClassRedirectBlocked},
		{"dns-failed", ReasonUnreadable, ClassUnreachable},
		{"upstream-tls", ReasonUnreadable, ClassUnreachable},
		{"host-backoff", "host-backoff", "hold"},
	} {
		s := &site{answer: func(_ int, r FetchRequest) (*FetchResponse, error) {
			if r.Hop == 0 {
				return reply(302, "", "Location", "https://b.test/r"), nil
			}
			return nil, &FetchError{Reason: c.reason, Class: "hold"}
		}}
		v := New(Defaults(), s, nil, nil).Check(t.Context(), query(t, "https://a.test/x"))
		wants(t, v, false, c.wantReason, c.wantClass)
	}
}

// brokenBody ends in the middle.
type brokenBody struct{ r io.Reader }

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (brokenBody) Close() error { return nil }

// TestTransferCutShort: what came is not the file, and a rule may be missing.
func TestTransferCutShort(t *testing.T) {
	s := &site{answer: func(int, FetchRequest) (*FetchResponse, error) {
		return &FetchResponse{Status: 200, Body: brokenBody{strings.NewReader("User-agent: *\nAllow: /\n")}}, nil
	}}
	p := New(Defaults(), s, nil, nil)
	wants(t, p.Check(t.Context(), query(t, "https://a.test/x")), false, ReasonUnreadable, ClassUnreachable)
	if s.count() != 4 {
		t.Errorf("asked %d times", s.count())
	}
	s.answer = func(int, FetchRequest) (*FetchResponse, error) { return &FetchResponse{Status: 204}, nil }
	wants(t, p.Check(t.Context(), query(t, "https://b.test/x")), true, ReasonOK, ClassNoGroup)
}

// hangingBody trickles: a site can hold a connection open for ever.
type hangingBody struct{ done <-chan struct{} }

func (b hangingBody) Read([]byte) (int, error) {
	<-b.done
	return 0, errors.New("cancelled")
}

func (hangingBody) Close() error { return nil }

func TestBodyThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Defaults(), hangingSite{}, nil, nil)
		q := query(t, "https://a.test/x")
		q.Profile.Retries = 0
		start := time.Now()
		wants(t, p.Check(t.Context(), q), false, ReasonUnreadable, ClassUnreachable)
		if d := time.Since(start); d != exchangeTime {
			t.Errorf("took %v", d)
		}
	})
}

type hangingSite struct{}

func (hangingSite) Fetch(ctx context.Context, _ FetchRequest) (*FetchResponse, error) {
	return &FetchResponse{Status: 200, Body: hangingBody{ctx.Done()}}, nil
}

func TestContentCodings(t *testing.T) {
	const rules = "User-agent: *\nDisallow: /no\n"
	pack := func(f func(w io.Writer) io.WriteCloser, s string) string {
		var b bytes.Buffer
		w := f(&b)
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	gz := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	codings := map[string]string{
		"identity": rules,
		"gzip":     pack(gz, rules),
		"X-GZIP":   pack(gz, rules),
		"deflate":  pack(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, rules),
		"br":       pack(func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }, rules),
		"zstd": pack(func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return z
		}, rules),
	}
	ask := func(coding, body string) Verdict {
		q := query(t, "https://a.test/no")
		q.Profile.Retries = 0
		return New(Defaults(), &site{answer: always(200, body, "Content-Encoding", coding)}, nil, nil).Check(t.Context(), q)
	}
	for coding, body := range codings {
		if v := ask(coding, body); v.Class != ClassRuleDisallow {
			t.Errorf("%s: %s", coding, v.Class)
		}
		if coding == "identity" {
			continue
		}
		if v := ask(coding, body[:len(body)/2]); v.Class != ClassUnreachable {
			t.Errorf("half of %s: %s", coding, v.Class)
		}
		if v := ask(coding, "User-agent: *\n"); v.Class != ClassUnreachable {
			t.Errorf("no %s at all: %s", coding, v.Class)
		}
	}
	if v := ask("compress", rules); v.Class != ClassUnreachable {
		t.Errorf("unknown coding: %s", v.Class)
	}
	if v := ask("gzip", ""); v.Class != ClassNoGroup {
		t.Errorf("empty body: %s", v.Class)
	}
	bomb := pack(gz, rules+strings.Repeat("#", 3<<20))
	start := time.Now()
	if v := ask("gzip", bomb); v.Class != ClassRuleDisallow || !v.Truncated {
		t.Errorf("bomb: %s truncated %v", v.Class, v.Truncated)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("a bomb took %v", d)
	}
}

func TestLimit(t *testing.T) {
	line := "Disallow: /late\n"
	wide := func(parts ...string) string {
		b := []byte("\xff\xfe")
		for _, u := range utf16.Encode([]rune(strings.Join(parts, ""))) {
			b = binary.LittleEndian.AppendUint16(b, u)
		}
		return string(b)
	}
	const late, n = "Disallow: /late\n", MaxBody/2 - 1 - 14 - 16 // characters of padding, so that the last line ends with the limit
	pad := func(n int) string { return "User-agent: *\n" + strings.Repeat("#", n-14-1) + "\n" }
	for _, c := range []struct {
		name      string
		body      string
		class     string
		truncated bool
	}{
		{"just fits", pad(MaxBody-len(line)) + line, ClassRuleDisallow, false},
		{"fits but for its end", pad(MaxBody-len(line)+1) + line, ClassRuleDisallow, true},
		{"one octet too many", pad(MaxBody-len(line)+2) + line, ClassNoMatch, true},
		{"fits, more follows", pad(MaxBody-len(line)) + line + line, ClassRuleDisallow, true},
		{"past it", pad(MaxBody) + line, ClassNoMatch, true},
		{"UTF-16 fits, more follows", wide("User-agent: *\n"+strings.Repeat("#", n-1)+"\n", late, line), ClassRuleDisallow, true},
		{"UTF-16 cut at a letter that begins like a line end", wide("User-agent: *\n"+strings.Repeat("#", n)+"\n", "Disallow: /late\u010a", line), ClassNoMatch, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := New(Defaults(), &site{answer: always(200, c.body)}, nil, nil).Check(t.Context(), query(t, "https://a.test/late"))
			if v.Class != c.class || v.Truncated != c.truncated {
				t.Errorf("%s truncated %v, want %s %v", v.Class, v.Truncated, c.class, c.truncated)
			}
		})
	}
}

// page is a web page written for these tests around one marker.
func page(marker string) string {
	return "<!DOCTYPE html>\n<html><head><title>One moment</title></head>\n<body><p>We check your browser.</p>" + marker + "</body></html>\n"
}

// TestChallenges has a page for every marker of the built-in list.
func TestChallenges(t *testing.T) {
	for _, c := range []struct {
		vendor string
		status int
		body   string
		header []string
	}{
		{"Cloudflare", 403, page(""), []string{"Cf-Mitigated", "challenge"}},
		{"Cloudflare", 429, "", []string{"cf-mitigated", "challenge"}},
		{"Cloudflare", 403, page("<title>Just a moment...</title>"), nil},
		{"Cloudflare", 503, page(`<script src="/cdn-cgi/challenge-platform/h/b/x.js"></script>`), nil},
		{"Cloudflare", 403, page("<script>window._cf_chl_opt = {a: 1};</script>"), nil},
		{"Cloudflare", 403, page("<title>Attention Required! | Cloudflare</title>"), nil},
		{"AWS WAF", 202, "", []string{"x-amzn-waf-action", "challenge"}},
		{"AWS WAF", 405, "", []string{"x-amzn-waf-action", "captcha"}},
		{"AWS WAF", 202, page("<script>awsWafCookieDomainList = [];</script>"), nil},
		{"AWS WAF", 405, page("<script>window.gokuProps = {};</script>"), nil},
		{"Imperva", 200, page(`<iframe src="/_Incapsula_Resource?q=2"></iframe>`), []string{"x-iinfo", "9-8-7"}},
		{"Imperva", 403, page("Incapsula incident ID: 1-2"), []string{"x-iinfo", "9-8-7"}},
		{"DataDome", 403, "", []string{"x-datadome", "protected"}},
		{"DataDome", 403, "", []string{"x-dd-b", "1"}},
		{"DataDome", 429, page(`<script src="https://ct.captcha-delivery.com/c.js"></script>`), nil},
		{"HUMAN", 403, page(`<div id="px-captcha"></div>`), nil},
		{"HUMAN", 429, page(`<script>window._pxAppId = "PX1";</script>`), nil},
		{"HUMAN", 403, ` {"appId":"PX1","blockScript":"/x.js"}`, []string{"Content-Type", "application/json"}},
		{"Akamai", 428, page(`<div id="sec-if-cpt-container"></div>`), nil},
		{"Akamai", 403, "<HTML><HEAD><TITLE>Access Denied</TITLE></HEAD><BODY>https&#58;//errors.edgesuite.net/1.2</BODY></HTML>", nil},
		{"Kasada", 429, "", []string{"x-kpsdk-ct", "token"}},
		{"Kasada", 403, page("<script>window.KPSDK={};</script>"), nil},
		{"Vercel", 429, "", []string{"x-vercel-mitigated", "challenge"}},
		{"Vercel", 403, page("<title>Vercel Security Checkpoint</title>"), nil},
		{"F5", 200, page("The requested URL was rejected. Please consult with your administrator."), nil},
		{"Sucuri", 403, "", []string{"x-sucuri-block", "geo"}},
		{"Sucuri", 403, page("<h1>Sucuri Website Firewall</h1>"), nil},
		{"DDoS-Guard", 403, page(`<script src="/.well-known/ddos-guard/js-challenge/i.js"></script>`), nil},
		{"Anubis", 200, page(`<script id="anubis_challenge" type="application/json">{}</script>`), nil},
		{"bot check", 403, page(`<div class="g-recaptcha"></div>`), nil},
		{"bot check", 429, page(`<div class="h-captcha"></div>`), nil},
		{"bot check", 503, page(`<div class="cf-turnstile"></div>`), nil},
		{"bot check", 503, `{"not": "html"} g-recaptcha`, []string{"Content-Type", "text/html; charset=utf-8"}},
		{"bot check", 403, "\ufeff\r\n " + page("g-recaptcha"), nil},
	} {
		s := &site{answer: always(c.status, c.body, c.header...)}
		v := New(Defaults(), s, nil, nil).Check(t.Context(), query(t, "https://a.test/x"))
		if v.Reason != ReasonChallenge || v.Class != ClassChallenge || len(v.Notes) != 1 || !strings.HasPrefix(v.Notes[0], c.vendor+" ") {
			t.Errorf("%s %d %v %.60q: %s %s %q", c.vendor, c.status, c.header, c.body, v.Reason, v.Class, v.Notes)
		}
		if s.count() != 1 {
			t.Errorf("%s: a check was asked again %d times", c.vendor, s.count()-1)
		}
	}
}

// TestNoChallenges: a vendor's presence is no sign, nor are its words where no check is served.
func TestNoChallenges(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		class  string
		header []string
	}{
		{"plain 403 behind Cloudflare", 403, "Forbidden", ClassNoRobots, []string{"server", "cloudflare", "cf-ray", "8c-FRA"}},
		{"404 page with a script that Cloudflare adds to every page", 404, page(`<script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script>`), ClassNoRobots, nil},
		{"200 page with it", 200, page(`<script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script>`), ClassNoGroup, nil},
		{"soft 404 with a contact form", 200, page(`<div class="g-recaptcha"></div>`), ClassNoGroup, nil},
		{"404 with a contact form", 404, page(`<div class="h-captcha"></div>`), ClassNoRobots, nil},
		{"mitigated, but not by a check", 403, "", ClassNoRobots, []string{"cf-mitigated", "block"}},
		{"rules that mention a vendor", 200, "# Sucuri Website Firewall\nUser-agent: *\nDisallow: /x\n", ClassRuleDisallow, nil},
		{"rules with type text/html", 200, "User-agent: *\nDisallow: /x # anubis_challenge\n", ClassRuleDisallow, []string{"Content-Type", "text/html"}},
		{"Imperva in front of rules", 200, "User-agent: *\nDisallow: /x\n", ClassRuleDisallow, []string{"x-iinfo", "1", "x-cdn", "Imperva"}},
		{"Imperva's words without its header", 403, page("_Incapsula_Resource"), ClassNoRobots, nil},
		{"DataDome's header on a good answer", 200, "User-agent: *\nDisallow: /x\n", ClassRuleDisallow, []string{"x-datadome", "protected"}},
		{"Akamai in front of a plain 403", 403, page("Access Denied"), ClassNoRobots, []string{"server", "AkamaiGHost"}},
		{"words past the first 64 KiB", 403, page("") + strings.Repeat(" ", 64<<10) + "g-recaptcha", ClassNoRobots, nil},
		{"text that mentions one", 403, "g-recaptcha", ClassNoRobots, []string{"Content-Type", "text/plain"}},
		{"JSON error", 403, `{"appId": 1}`, ClassNoRobots, nil},
		{"429 without one", 429, page("slow down"), ClassRateLimited, nil},
		{"503 without one", 503, page("maintenance"), ClassUnreachable, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := query(t, "https://a.test/x")
			q.Profile.Retries = 0
			if v := New(Defaults(), &site{answer: always(c.status, c.body, c.header...)}, nil, nil).Check(t.Context(), q); v.Class != c.class {
				t.Errorf("%s, want %s (%q)", v.Class, c.class, v.Notes)
			}
		})
	}
}

func TestOwnMarkers(t *testing.T) {
	c := Defaults()
	c.ChallengeMarkers = []ChallengeMarker{{Vendor: "House", Status: []int{4}, Header: "x-house: no"}}
	ask := func(status int, header ...string) string {
		return New(c, &site{answer: always(status, page("g-recaptcha"), header...)}, nil, nil).Check(t.Context(), query(t, "https://a.test/x")).Class
	}
	if got := ask(418, "X-House", "No, thanks"); got != ClassChallenge {
		t.Error(got)
	}
	if got := ask(403); got != ClassNoRobots {
		t.Errorf("the built-in list is replaced, got %s", got)
	}
}

func TestReceivedCounts(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	s := &site{answer: func(int, FetchRequest) (*FetchResponse, error) {
		r := reply(200, "", "Cache-Control", "max-age=7200")
		r.Received = at
		return r, nil
	}}
	v := New(Defaults(), s, nil, nil).Check(t.Context(), query(t, "https://a.test/x"))
	if !v.FetchedAt.Equal(at) || !v.Expires.Equal(at.Add(2*time.Hour)) {
		t.Errorf("fetched %v, expires %v", v.FetchedAt, v.Expires)
	}
}

// TestFailureIsNeverEmptyRules: whatever goes wrong, no failed fetch opens a page.
func TestFailureIsNeverEmptyRules(t *testing.T) {
	bad := map[string]func(int, FetchRequest) (*FetchResponse, error){
		"error":        func(int, FetchRequest) (*FetchResponse, error) { return nil, errors.New("x") },
		"eof":          func(int, FetchRequest) (*FetchResponse, error) { return nil, io.EOF },
		"empty reason": func(int, FetchRequest) (*FetchResponse, error) { return nil, &FetchError{} },
		"wrapped": func(int, FetchRequest) (*FetchResponse, error) {
			return nil, fmt.Errorf("a: %w", &FetchError{Reason: "x"})
		},
		"status 0": func(int, FetchRequest) (*FetchResponse, error) { return &FetchResponse{}, nil },
		"status 999": func(int, FetchRequest) (*FetchResponse, error) {
			return &FetchResponse{Status: 999, Header: http.Header{}}, nil
		},
		"unreadable 200": func(int, FetchRequest) (*FetchResponse, error) {
			return &FetchResponse{Status: 200, Body: brokenBody{strings.NewReader("")}}, nil
		},
		"redirect":       always(302, "User-agent: *\nAllow: /\n"),
		"304":            always(304, ""),
		"500 with rules": always(500, "User-agent: *\nAllow: /\n"),
	}
	for name, answer := range bad {
		p := New(Defaults(), &site{answer: answer}, nil, nil)
		for range 2 {
			if v := p.Check(t.Context(), query(t, "https://a.test/x")); v.Allowed || v.RetryAfter < 0 {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

// A name that does not exist, or a certificate that does not hold, is not asked for again while a fetcher waits.
func TestFinalFailureIsNotRetried(t *testing.T) {
	for _, final := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			p := New(Defaults(), &site{answer: func(int, FetchRequest) (*FetchResponse, error) {
				calls++
				return nil, &FetchError{Reason: "dns-failed", Class: "dns_error", Final: final, Err: errors.New("no such name")}
			}}, nil, nil)
			u, _ := url.Parse("https://missing.test/")
			v := p.Check(t.Context(), Query{URL: u, Agent: "a", Token: "ABot", Profile: ProfileDefaults(), Wait: time.Hour})
			if v.Allowed || v.Reason != "dns-failed" {
				t.Errorf("verdict %+v", v)
			}
			if want := map[bool]int{false: 1 + ProfileDefaults().Retries, true: 1}[final]; calls != want {
				t.Errorf("final=%v: %d exchanges, want %d", final, calls, want)
			}
		})
	}
}
