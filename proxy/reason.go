package proxy

import (
	"net/http"
	"slices"
	"strings"
)

// Reason is a code of the one list: headers, metrics, the audit log, `check` and the documentation use these and no
// others.
type Reason string

// The reason codes.
const (
	AuthRequired     Reason = "auth-required"
	AuthFailed       Reason = "auth-failed"
	IdentityMissing  Reason = "identity-missing"
	ProfileDenied    Reason = "profile-denied"
	JobRequired      Reason = "job-required"
	JobExhausted     Reason = "job-exhausted"
	JobOffSite       Reason = "job-off-site"
	BadRequest       Reason = "bad-request"
	HostMismatch     Reason = "host-mismatch"
	KindDenied       Reason = "kind-denied"
	SchemeDenied     Reason = "scheme-denied"
	PortDenied       Reason = "port-denied"
	MethodDenied     Reason = "method-denied"
	BodyDenied       Reason = "body-denied"
	SiteDenied       Reason = "site-denied"
	SiteStopped      Reason = "site-stopped"
	AddressDenied    Reason = "address-denied"
	DNSFailed        Reason = "dns-failed"
	RobotsDisallow   Reason = "robots-disallow"
	RobotsSignal     Reason = "robots-signal"
	RobotsUnreadable Reason = "robots-unreadable"
	RobotsChallenge  Reason = "robots-challenge"
	TurnTooFar       Reason = "turn-too-far"
	HostBackoff      Reason = "host-backoff"
	HostStopped      Reason = "host-stopped"
	URLLeft          Reason = "url-left"
	IdentitySwitch   Reason = "identity-switch"
	TooManyRedirects Reason = "too-many-redirects"
	ResponseTooLarge Reason = "response-too-large"
	UpstreamFailed   Reason = "upstream-failed"
	UpstreamTimeout  Reason = "upstream-timeout"
	UpstreamTLS      Reason = "upstream-tls"
	Loop             Reason = "loop"
	Overloaded       Reason = "overloaded"
	Draining         Reason = "draining"
	SignFailed       Reason = "sign-failed"
	AuditUnavailable Reason = "audit-unavailable"
	Internal         Reason = "internal"
	reasonOK         Reason = "ok"
	reasonClientGone Reason = "client-gone" // only in the audit event of a request whose client left; never on the wire
)

// row is what a code means on the wire.
type row struct {
	status int
	title  string
	// proxyError is the RFC 9209 error type.
	proxyError string
	// advice is the second sentence of the detail: what to do.
	advice string
}

// table is the one table from code to answer.
var table = map[Reason]row{
	AuthRequired:     {http.StatusProxyAuthRequired, "The proxy needs a client name and secret", "http_request_denied", "Set the proxy URL to http://NAME:SECRET@HOST:PORT."},
	AuthFailed:       {http.StatusProxyAuthRequired, "The client name or secret is wrong", "http_request_denied", "Check the proxy URL, or have the operator run `crawlgate client add`."},
	IdentityMissing:  {http.StatusServiceUnavailable, "No crawler identity is configured", "proxy_internal_error", "Add agents: with name, product_token and user_agent, or start with --user-agent."},
	ProfileDenied:    {http.StatusForbidden, "This client may not use that profile", "http_request_denied", "Use a profile that the operator granted to this client."},
	JobRequired:      {http.StatusForbidden, "This profile fetches only as part of a job", "http_request_denied", "Name a job in the proxy user name: CLIENT+PROFILE+JOB."},
	JobExhausted:     {http.StatusForbidden, "The job has fetched all the pages it may", "http_request_denied", "Start a new job if a person asked for more."},
	JobOffSite:       {http.StatusForbidden, "The job stays on the site it began with", "http_request_denied", "Fetch only that site in this job."},
	BadRequest:       {http.StatusBadRequest, "The request cannot be understood", "http_request_error", "Send a well-formed HTTP request to a proxy."},
	HostMismatch:     {http.StatusMisdirectedRequest, "CONNECT, server name and Host name different hosts", "http_request_denied", "Open a tunnel to the host that the request names."},
	KindDenied:       {http.StatusForbidden, "Nobody asked for this request", "http_request_denied", "Ask for the page itself; or leave the kind out of limits.deny_kinds."},
	SchemeDenied:     {http.StatusForbidden, "This scheme or form is not served", "http_request_denied", "Use http:// in absolute form, or CONNECT for https."},
	PortDenied:       {http.StatusForbidden, "This port is not open", "http_request_denied", "Only the ports in egress.ports are open."},
	MethodDenied:     {http.StatusMethodNotAllowed, "This method is outside the profile's limits", "http_request_denied", "Use one of the methods in Allow (limits.methods)."},
	BodyDenied:       {http.StatusRequestEntityTooLarge, "The request body is larger than the profile allows", "http_request_denied", "Send a smaller body, or have limits.request_body raised."},
	SiteDenied:       {http.StatusForbidden, "This site is not on the client's list", "http_request_denied", "Ask the operator to add the site to the client's sites."},
	SiteStopped:      {http.StatusForbidden, "The operator stopped this site", "http_request_denied", "Leave the site alone: its owner asked for that."},
	AddressDenied:    {http.StatusForbidden, "Not a public address", "destination_ip_prohibited", "Use a public host; exceptions are the operator's (egress.allow_private)."},
	DNSFailed:        {http.StatusBadGateway, "The host name does not resolve", "dns_error", "Check the name."},
	RobotsDisallow:   {http.StatusForbidden, "robots.txt does not allow this URL", "http_request_denied", "Skip this URL, or ask the site."},
	RobotsSignal:     {http.StatusForbidden, "The site's content preferences do not allow this use", "http_request_denied", "Skip this site, or ask its owner."},
	RobotsUnreadable: {http.StatusServiceUnavailable, "robots.txt cannot be read", "http_request_denied", "Nothing is fetched until it can be read; try again later."},
	RobotsChallenge:  {http.StatusForbidden, "A bot check answered for robots.txt", "http_request_denied", "The site keeps crawlers out; ask its owner to admit this one."},
	TurnTooFar:       {http.StatusTooManyRequests, "The turn would come too late", "http_request_denied", "Wait as Retry-After says, then ask again."},
	HostBackoff:      {http.StatusTooManyRequests, "The host asked for less", "http_request_denied", "Wait as Retry-After says, then ask again."},
	HostStopped:      {http.StatusServiceUnavailable, "The host refuses almost everything", "http_request_denied", "It is left alone for a while; `crawlgate sites resume` ends that."},
	URLLeft:          {http.StatusTooManyRequests, "This page was tried often enough for now", "http_request_denied", "Leave it for this round."},
	IdentitySwitch:   {http.StatusForbidden, "The site refused this under another name", "http_request_denied", "A refusal is never worked round by another identity."},
	TooManyRedirects: {http.StatusLoopDetected, "Too many redirects", "http_request_denied", "The chain is longer than limits.redirects."},
	ResponseTooLarge: {http.StatusBadGateway, "The answer is larger than the profile allows", "http_response_body_size", "Have limits.response_body raised if the file is wanted."},
	UpstreamFailed:   {http.StatusBadGateway, "The site could not be reached or broke off", "destination_unavailable", "Try again later."},
	UpstreamTimeout:  {http.StatusGatewayTimeout, "The site did not answer in time", "connection_timeout", "Try again later, or have limits.timeout raised."},
	UpstreamTLS:      {http.StatusBadGateway, "The site's TLS could not be trusted", "tls_protocol_error", "Check the site's certificate; egress.root_ca_file adds roots."},
	Loop:             {http.StatusLoopDetected, "The request would reach crawlgate itself", "proxy_loop_detected", "Point the request at another host."},
	Overloaded:       {http.StatusServiceUnavailable, "The proxy is full", "connection_limit_reached", "Wait as Retry-After says, then ask again."},
	Draining:         {http.StatusServiceUnavailable, "The proxy is shutting down", "proxy_internal_error", "Try again after the restart."},
	SignFailed:       {http.StatusServiceUnavailable, "The request could not be signed", "proxy_internal_error", "Nothing was sent; the operator must look at the keys."},
	AuditUnavailable: {http.StatusServiceUnavailable, "The request could not be recorded", "proxy_internal_error", "Nothing was sent; the operator must look at the audit log's disk."},
	Internal:         {http.StatusInternalServerError, "A fault of the proxy", "proxy_internal_error", "Nothing was sent; give the request id to the operator."},
}

// ReasonRow is one code as the documentation shows it.
type ReasonRow struct {
	Code   string
	Status int
	Title  string
	Advice string
}

// ReasonTable lists the codes with their status and words, by code.
func ReasonTable() []ReasonRow {
	out := make([]ReasonRow, 0, len(table))
	for code, r := range table {
		out = append(out, ReasonRow{string(code), r.status, r.title, r.advice})
	}
	slices.SortFunc(out, func(a, b ReasonRow) int { return strings.Compare(a.Code, b.Code) })
	return out
}
