package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"crawlgate/proxy/guard"
)

// who is step 1: the client, its profile and job.
func (x *exchange) who() *refusal {
	if x.g.drain.draining() {
		return drainingNow()
	}
	if no := x.wellFormed(); no != nil {
		return no
	}
	id := (*identity)(nil)
	switch {
	case x.from.own != nil:
		id = x.from.own.id
	case x.tun != nil:
		id = x.tun.client
	default:
		var no *refusal
		if id, no = x.g.identify(x.from); no != nil {
			return no
		}
	}
	x.setClient(id)
	profile := id.profile
	h := x.in.Header
	if id.client.Fields {
		if v := h.Get("Crawlgate-Profile"); v != "" {
			profile = v
		}
		if v := h.Get("Crawlgate-Job"); v != "" {
			name, rest, _ := strings.Cut(v, ";")
			if name = strings.TrimSpace(name); !plainName(name) {
				return &refusal{code: BadRequest, class: "job_name", detail: "Crawlgate-Job does not name a job"}
			}
			name = strings.Clone(name) // jobs live long
			x.job, x.ev.Job = name, name
			x.jobLimit = jobLimit(rest)
		}
	}
	p, ok := id.client.profile(profile)
	if !ok {
		return &refusal{code: ProfileDenied, class: "profile_unknown"}
	}
	x.profile = p
	x.ev.Profile, x.ev.Agent = p.Name, p.Agent.Name
	if p.Job.Required && x.job == "" {
		return &refusal{code: JobRequired}
	}
	return nil
}

// wellFormed checks what the servers let pass: number of fields, length of the target.
func (x *exchange) wellFormed() *refusal {
	if no := x.from.fault; no != nil {
		if x.tun != nil {
			x.setClient(x.tun.client)
		}
		return &refusal{code: BadRequest, status: no.status, class: no.class, detail: no.detail()}
	}
	if x.in.ProtoMajor == 2 && !oneLength(x.in.Header["Content-Length"], x.in.ContentLength) {
		return &refusal{code: BadRequest, class: "request_framing", detail: "Content-Length is not a single number that the body keeps to. Send the body's length, or none."}
	}
	if e := x.in.Header.Get("Expect"); e != "" && !strings.EqualFold(e, "100-continue") { // over HTTP/2; else the servers say so
		return &refusal{code: BadRequest, status: http.StatusExpectationFailed, class: "request_expect", detail: malformedDetails["request_expect"]}
	}
	n, size := 0, 0
	for k, v := range x.in.Header {
		n += len(v)
		for _, s := range v {
			size += len(k) + len(s) + 4
		}
	}
	if limit := x.rules.Server.HeadBytes; limit > 0 && size > limit {
		return &refusal{code: BadRequest, status: http.StatusRequestHeaderFieldsTooLarge, class: "header_too_large",
			detail: "The request's header is larger than " + strconv.Itoa(limit) + " bytes (server.head_bytes). Send less."}
	}
	if limit := x.rules.Server.Fields; limit > 0 && n > limit {
		return &refusal{code: BadRequest, status: http.StatusRequestHeaderFieldsTooLarge, class: "header_too_large",
			detail: "The request has more than " + strconv.Itoa(limit) + " header fields. Send fewer."}
	}
	if limit := x.rules.Server.TargetBytes; limit > 0 && len(x.in.RequestURI) > limit {
		return &refusal{code: BadRequest, status: http.StatusRequestURITooLong, class: "uri_too_long",
			detail: "The request target is longer than " + strconv.Itoa(limit) + " bytes. Send a shorter one."}
	}
	return nil
}

// oneLength tells whether the values of Content-Length agree with each other and with the length that the message has. The
// library takes over HTTP/2 the first of several, or none, where the message is malformed (RFC 9113 8.1.1); whoever reads
// it next could take another.
func oneLength(values []string, length int64) bool {
	for _, v := range values {
		if n, err := strconv.ParseUint(v, 10, 63); err != nil || int64(n) != length {
			return false
		}
	}
	return true
}

// what is step 2: one spelling of the target.
func (x *exchange) what() *refusal {
	u, host, port, no := x.readTarget()
	if no != nil {
		return no
	}
	x.setTarget(u, host, port)
	if x.from.raw == "" { // over HTTP/2 it has been escaped before
		x.from.raw = guard.StrayTarget(x.in.RequestURI)
	}
	if x.tun != nil && u.Scheme == "http" && port == 443 {
		return &refusal{code: SchemeDenied, class: "connect_not_tls", detail: "Plain HTTP in a tunnel to port 443 is not served. Speak TLS in the tunnel."}
	}
	return nil
}

// readTarget finds what a request is for. Host never finds a target on the proxy port; inside a tunnel the tunnel's host
// and port count, and the request's host must be the same.
func (x *exchange) readTarget() (*url.URL, guard.Host, uint16, *refusal) {
	deny := func(no *refusal) (*url.URL, guard.Host, uint16, *refusal) { return nil, guard.Host{}, 0, no }
	r := x.in
	if x.from.own != nil {
		u, host, port, err := guard.ParseURL(x.from.own.url.String())
		if err != nil {
			return deny(refusalFor(err))
		}
		return u, host, port, nil
	}
	if x.tun == nil {
		u, host, port, err := guard.ParseTarget(r.RequestURI)
		if err != nil {
			no := refusalFor(err)
			var he *guard.HostError
			if errors.As(err, &he) {
				switch he.Class {
				case "https_needs_connect":
					no.detail = "https:// in absolute form is not served, since cookies would cross the network in clear. Use CONNECT: set HTTPS_PROXY, or the client's https proxy."
				case "not_a_proxy_request":
					no.detail = "This is the proxy port of crawlgate. Set it as the proxy of your client (http_proxy, https_proxy), and its CA from the admin port's /ca.pem."
				}
			}
			return deny(no)
		}
		return u, host, port, nil
	}
	t := x.tun
	if r.Method == http.MethodConnect {
		no := &refusal{code: MethodDenied, class: "method_denied", detail: "A tunnel inside a tunnel is not served. Send the request itself."}
		if x.profile != nil {
			no.allow = x.profile.Limits.Methods
		}
		return deny(no)
	}
	if name := t.misnamed.Load(); name != nil {
		return deny(&refusal{code: HostMismatch, class: "sni_mismatch",
			detail: "The TLS server name in this tunnel is not the host of its CONNECT. Open a tunnel to the host that the request is for."})
	}
	scheme := "http"
	if x.from.secure {
		scheme = "https"
	}
	raw := r.Host
	absolute := !strings.HasPrefix(r.RequestURI, "/") && strings.Contains(r.RequestURI, "://") // a query may hold a URL
	if absolute {
		// An absolute target inside a tunnel must name the tunnel's host, and its scheme, too.
		raw = r.URL.Host
		if r.URL.User != nil {
			return deny(refusalFor(&guard.HostError{Class: "target_userinfo", Text: "user name or password in the target"}))
		}
		if !strings.EqualFold(r.URL.Scheme, scheme) {
			return deny(&refusal{code: SchemeDenied, class: "scheme_denied", detail: "The target's scheme is not the tunnel's. Send the path alone."})
		}
	}
	h, _, err := guard.ParseAuthority(raw, t.port)
	if err != nil {
		return deny(refusalFor(err))
	}
	if h.Name != t.host.Name {
		return deny(&refusal{code: HostMismatch, class: "authority_mismatch"})
	}
	for _, v := range r.Header["Host"] { // HTTP/2, beside :authority (RFC 9113 8.3.1)
		if h, _, err := guard.ParseAuthority(v, t.port); err != nil || h.Name != t.host.Name {
			return deny(&refusal{code: HostMismatch, class: "authority_mismatch"})
		}
	}
	target := r.RequestURI
	if absolute {
		u := *r.URL
		u.Scheme, u.Host = "", ""
		target = u.RequestURI()
	}
	if !strings.HasPrefix(target, "/") {
		if target == "*" {
			return deny(&refusal{code: BadRequest, class: "request_malformed", detail: "The target * is not served. Name a path."})
		}
		return deny(&refusal{code: BadRequest, class: "request_malformed"})
	}
	u, host, port, err := guard.ParseURL(scheme + "://" + t.host.Name + ":" + strconv.Itoa(int(t.port)) + target)
	if err != nil {
		return deny(refusalFor(err))
	}
	return u, host, port, nil
}

func (x *exchange) setTarget(u *url.URL, h guard.Host, port uint16) {
	x.url, x.target, x.host, x.port = u, u.String(), h, port
	x.ev.SetURL(u)
}
