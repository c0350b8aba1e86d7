package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"crawlgate/allowlist"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

// refusal is why a request gets an answer of ours instead of the site's.
type refusal struct {
	code       Reason
	status     int    // 0: the table's
	class      string // the finer word
	detail     string // first sentence, or both; empty: the table's
	proxyError string // empty: the table's
	retryAfter time.Duration
	final      bool     // asking again at once is pointless
	allow      []string // for method-denied
	challenge  bool     // for 407
	verdict    *policy.Verdict
	address    string // only if the request named it
	err        error  // for the log, never for the client
	resolved   []string
	upstreamIP string
}

// problem is the body (RFC 9457).
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Reason     Reason `json:"reason"`
	Class      string `json:"class,omitempty"`
	URL        string `json:"url,omitempty"`
	RequestID  string `json:"request_id"`
	Agent      string `json:"agent,omitempty"`
	RobotsURL  string `json:"robots_url,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Line       int    `json:"line,omitempty"`
	Group      string `json:"group,omitempty"`
	Signal     string `json:"signal,omitempty"`
	Address    string `json:"address,omitempty"`
	RetryAfter int64  `json:"retry_after_s,omitempty"`
}

// answer builds the response for a refusal. url is shown in the body, wantsHTML asks for the page form.
func (no *refusal) answer(req *http.Request, id, url, agent string, wantsHTML bool) *http.Response {
	t := table[no.code]
	status := t.status
	if no.status != 0 {
		status = no.status
	}
	p := problem{
		Type: "https://crawlgate.invalid/problems/" + string(no.code), Title: t.title, Status: status,
		Detail: no.sentence(t), Reason: no.code, Class: no.class, URL: url, RequestID: id, Agent: agent, Address: no.address,
	}
	details := string(no.code)
	if v := no.verdict; v != nil {
		p.RobotsURL, p.Rule, p.Line, p.Group = v.RobotsURL, v.Rule, v.Line, v.Group
		if v.Signal != "" {
			p.Signal, p.Line = v.Signal, v.SignalLine
		}
		if p.Line > 0 {
			details += ": line " + strconv.Itoa(p.Line)
		}
	}
	if no.class != "" && !strings.Contains(details, ":") {
		details += ": " + no.class
	}
	perr := t.proxyError
	if no.proxyError != "" {
		perr = no.proxyError
	}
	h := http.Header{
		"Proxy-Status":           {proxyStatus(perr, details)},
		"Crawlgate-Reason":       {string(no.code)},
		"Crawlgate-Request-Id":   {id},
		"Cache-Control":          {"no-store"},
		"X-Content-Type-Options": {"nosniff"},
	}
	if no.retryAfter > 0 {
		secs := int64((no.retryAfter + time.Second - 1) / time.Second)
		p.RetryAfter = max(1, secs)
		h["Retry-After"] = []string{strconv.FormatInt(p.RetryAfter, 10)}
	}
	if len(no.allow) > 0 {
		h["Allow"] = []string{strings.Join(no.allow, ", ")}
	}
	if no.challenge {
		h["Proxy-Authenticate"] = []string{`Basic realm="crawlgate", charset="UTF-8"`}
	}
	var body []byte
	if wantsHTML {
		h["Content-Type"] = []string{"text/html; charset=utf-8"}
		h["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'unsafe-inline'"}
		body = p.html()
	} else {
		h["Content-Type"] = []string{"application/problem+json"}
		body, _ = json.Marshal(p)
		body = append(body, '\n')
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: req,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// sentence is what the rule is, and what to do.
func (no *refusal) sentence(t row) string {
	if v := no.verdict; v != nil && no.detail == "" {
		switch {
		case v.Class == policy.ClassResponseSignal:
			return "The last answer for this URL said " + v.Signal + " in its header. " + t.advice
		case v.Class == policy.ClassNoVersion:
			return "The archive holds no version of " + v.RobotsURL + " for that time."
		case v.Signal != "":
			return v.RobotsURL + " line " + strconv.Itoa(v.SignalLine) + " says: " + v.Signal + ". " + t.advice
		case v.Rule != "":
			group := ""
			if v.Group != "" {
				group = " (group " + v.Group + ")"
			}
			return v.RobotsURL + " line " + strconv.Itoa(v.Line) + " says: " + v.Rule + group + ". " + t.advice
		case v.RobotsURL != "" && (no.code == RobotsUnreadable || no.code == RobotsChallenge):
			return v.RobotsURL + " " + unreadable(v) + ". " + t.advice
		}
	}
	if no.detail == "" {
		return t.title + ". " + t.advice
	}
	if strings.HasSuffix(no.detail, ".") {
		if strings.Contains(strings.TrimSuffix(no.detail, "."), ". ") {
			return no.detail
		}
		return no.detail + " " + t.advice
	}
	return no.detail + ". " + t.advice
}

// unreadable says what became of a robots.txt that nothing could be judged by.
func unreadable(v *policy.Verdict) string {
	switch v.Class {
	case policy.ClassChallenge:
		return "was answered by a bot check"
	case policy.ClassRedirectBlocked:
		return "redirects to where crawlgate does not go"
	case policy.ClassTooManyRedirects:
		return "redirects more than five times"
	case policy.ClassUnreachable:
		if v.Status == 0 {
			return "did not come"
		}
	}
	if v.Status >= 300 {
		return "answered " + strconv.Itoa(v.Status)
	}
	return "could not be read"
}

// shellURL is a URL that can stand between single quotes in a shell, as the page shows it: the site, or whoever made the link,
// chose its text.
func shellURL(u string) string { return strings.ReplaceAll(u, "'", "%27") }

var page = template.Must(template.New("refusal").Funcs(template.FuncMap{"shell": shellURL}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">
<title>{{.Status}} {{.Title}}</title>
<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:4rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0 0 .5rem}code,dd{overflow-wrap:anywhere}code,dd{font-family:ui-monospace,monospace}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:1.5rem 0}dt{opacity:.7}dd{margin:0}p.by{opacity:.7;font-size:.875rem}</style></head>
<body><h1>{{.Title}}</h1><p>{{.Detail}}</p>
<dl><dt>reason</dt><dd>{{.Reason}}{{with .Class}} ({{.}}){{end}}</dd>{{with .URL}}<dt>url</dt><dd>{{.}}</dd>{{end}}
{{with .Rule}}<dt>rule</dt><dd>{{.}}{{with $.Line}} (line {{.}}){{end}}</dd>{{end}}{{with .Signal}}<dt>signal</dt><dd>{{.}}{{with $.Line}} (line {{.}}){{end}}</dd>{{end}}
{{with .RetryAfter}}<dt>try again in</dt><dd>{{.}} s</dd>{{end}}<dt>request</dt><dd>{{.RequestID}}</dd></dl>
{{with .URL}}<p>Why, in full: <code>crawlgate check '{{shell .}}'</code></p>{{end}}
<p class="by">This answer was made by the egress proxy crawlgate, not by the site.</p></body></html>
`))

func (p problem) html() []byte {
	var b bytes.Buffer
	if err := page.Execute(&b, p); err != nil {
		return []byte(template.HTMLEscapeString(p.Title))
	}
	return b.Bytes()
}

// refusalFor turns an error of a package into a refusal. It is the only place that does.
func refusalFor(err error) *refusal {
	var (
		denied *guard.Denied
		host   *guard.HostError
		res    *guard.ResolveError
		dial   *guard.DialError
		busy   *pacing.Busy
		site   *allowlist.Denied
		ref    *refusal
	)
	switch {
	case errors.As(err, &ref):
		return ref
	case errors.As(err, &denied):
		return deniedRefusal(denied, err)
	case errors.As(err, &host):
		no := &refusal{code: BadRequest, class: host.Class, detail: "The target cannot be used: " + host.Text, err: err}
		if host.Class == "host_ambiguous_ipv4" || host.Class == "host_single_label" || host.Class == "host_special_use" || strings.HasPrefix(host.Class, "addr_") {
			no.code, no.detail = AddressDenied, ""
		}
		if host.Class == "port_denied" {
			no.code = PortDenied
		}
		if host.Class == "scheme_denied" || host.Class == "https_needs_connect" {
			no.code = SchemeDenied
		}
		return no
	case errors.As(err, &res):
		no := &refusal{code: DNSFailed, class: res.Class, final: res.NotFound, err: err}
		if res.Class == "dns_timeout" {
			no.proxyError = "dns_timeout"
		}
		return no
	case errors.As(err, &busy):
		return &refusal{code: Reason(busy.Reason), class: busy.Class, retryAfter: time.Duration(busy.RetryAfter()) * time.Second, err: err}
	case errors.As(err, &site):
		no := &refusal{code: SiteDenied, class: site.Class, err: err}
		if site.Hint != "" {
			no.detail = table[SiteDenied].title + ". " + site.Hint + "."
		}
		return no
	case errors.As(err, &dial):
		if dial.Class == "connect_timeout" {
			return &refusal{code: UpstreamTimeout, class: dial.Class, err: err}
		}
		no := &refusal{code: UpstreamFailed, class: "connect_failed", err: err}
		if errors.Is(err, syscall.ECONNREFUSED) {
			no.proxyError = "connection_refused"
		}
		return no
	}
	return transportRefusal(err)
}

func deniedRefusal(d *guard.Denied, err error) *refusal {
	no := &refusal{code: AddressDenied, class: d.Class, err: err}
	switch {
	case d.Class == "addr_self":
		no.code = Loop
	case d.Class == "port_denied":
		no.code = PortDenied
		no.detail = "Port " + strconv.Itoa(int(d.Port)) + " is not open (egress.ports). Use one of the open ports."
	}
	if d.Literal && d.Addr.IsValid() {
		no.address = d.Addr.String()
	}
	if d.Addr.IsValid() {
		no.upstreamIP = d.Addr.String()
	}
	for _, a := range d.Resolved {
		no.resolved = append(no.resolved, a.String())
	}
	return no
}

var (
	errHeadTimeout  = errors.New("no answer head in time")
	errStalled      = errors.New("no byte moved in time")
	errUnread       = fmt.Errorf("%w: the fetcher does not read", errStalled)
	errBodyTooLarge = errors.New("the answer's body is too large")
	errReqTooLarge  = errors.New("the request's body is too large")
)

// transportRefusal classifies what the connections to sites return, crypto/tls and HTTP/2 of the library among them.
func transportRefusal(err error) *refusal {
	var (
		over    *pacing.Overrun
		lost    *pacing.LeaseLost
		unknown x509.UnknownAuthorityError
		hostErr x509.HostnameError
		invalid x509.CertificateInvalidError
		verify  *tls.CertificateVerificationError
		upload  *uploadError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		ne      net.Error
	)
	switch {
	case errors.Is(err, errReqTooLarge):
		return &refusal{code: BodyDenied, class: "request_body", err: err}
	case errors.As(err, &upload):
		return uploadRefusal(upload)
	case errors.As(err, &over):
		return &refusal{code: UpstreamTimeout, class: over.Limit, err: err}
	case errors.As(err, &lost):
		return &refusal{code: Overloaded, class: "lease_lost", retryAfter: time.Second, err: err}
	case errors.Is(err, errSiteFull):
		return &refusal{code: Overloaded, class: "host_connections", retryAfter: 5 * time.Second, err: err,
			detail: "All connections that may be open to this host are taken (limits.connections). Wait as Retry-After says, or have the limit raised."}
	case errors.Is(err, errAnswerHeadSize):
		return &refusal{code: UpstreamFailed, class: "response_head", proxyError: "http_response_header_section_size", err: err}
	case errors.Is(err, errAnswerInvalid):
		return &refusal{code: UpstreamFailed, class: "response_invalid", proxyError: "http_protocol_error", err: err}
	case errors.Is(err, errBadField):
		return &refusal{code: BadRequest, class: "request_malformed", err: err}
	case errors.Is(err, errHeadTimeout):
		return &refusal{code: UpstreamTimeout, class: "head_timeout", proxyError: "http_response_timeout", err: err}
	case errors.As(err, &unknown), errors.As(err, &hostErr), errors.As(err, &invalid), errors.As(err, &verify):
		return &refusal{code: UpstreamTLS, class: "tls_certificate", proxyError: "tls_certificate_error", final: true, err: err}
	case errors.As(err, &record), errors.As(err, &alert):
		return &refusal{code: UpstreamTLS, class: "tls_failed", err: err}
	case errors.Is(err, context.Canceled):
		return &refusal{code: reasonClientGone, err: err}
	case errors.As(err, &ne) && ne.Timeout():
		return &refusal{code: UpstreamTimeout, class: "timeout", err: err}
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "tls: "), strings.Contains(text, "remote error: tls"):
		return &refusal{code: UpstreamTLS, class: "tls_failed", err: err}
	case strings.Contains(text, "server response headers exceeded"), strings.Contains(text, "response header list larger"):
		return &refusal{code: UpstreamFailed, class: "response_head", proxyError: "http_response_header_section_size", err: err}
	case strings.Contains(text, "received from peer"): // the site's own word, of a stream that it refused
		return &refusal{code: UpstreamFailed, class: "connection_lost", proxyError: "connection_terminated", err: err}
	case strings.Contains(text, "malformed"), strings.Contains(text, "PROTOCOL_ERROR"), strings.Contains(text, "Content-Length"),
		strings.Contains(text, "transfer encoding"), strings.Contains(text, "http2: failed reading"), strings.Contains(text, "http2: frame too large"):
		return &refusal{code: UpstreamFailed, class: "response_invalid", proxyError: "http_protocol_error", err: err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, net.ErrClosed), strings.Contains(text, "http2: client conn"), strings.Contains(text, "GOAWAY"):
		return &refusal{code: UpstreamFailed, class: "connection_lost", proxyError: "connection_terminated", err: err}
	}
	return &refusal{code: UpstreamFailed, class: "failed", err: err}
}

// uploadRefusal classifies what reading the request's body returned.
func uploadRefusal(err *uploadError) *refusal {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{code: BadRequest, status: http.StatusRequestTimeout, class: "request_body_slow", err: err,
			detail: "No byte of the request's body came for too long (pacing.stall_timeout). Send it again, faster."}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.Canceled), errors.Is(err, syscall.ECONNRESET):
		return &refusal{code: reasonClientGone, class: "client_left_upload", err: err}
	case strings.Contains(err.Error(), "client disconnected"):
		return &refusal{code: reasonClientGone, class: "client_left_upload", err: err}
	}
	return &refusal{code: BadRequest, class: "request_framing", err: err}
}

// Error makes a refusal an error, so that a step deep in the transport can carry one out.
func (no *refusal) Error() string { return string(no.code) + ": " + no.class }

// Unwrap gives the error behind it.
func (no *refusal) Unwrap() error { return no.err }
