package policy

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// challengeBytes is how much of an answer is searched for markers.
const challengeBytes = 64 << 10

// ChallengeMarker is one sign that a firewall or bot check answered in place of the site. It needs a header, or words in
// a body, or, with With, both. That a vendor is present is no sign.
type ChallengeMarker struct {
	// Vendor names it in notes and logs.
	Vendor string `mapstructure:"vendor"`
	// Status lists the statuses it counts for; 4 and 5 stand for 4xx and 5xx. Empty: any.
	Status []int `mapstructure:"status"`
	// Header is `name` or `name: value`; the value may be followed by anything.
	Header string `mapstructure:"header"`
	// With is a header that a body marker needs beside it.
	With string `mapstructure:"with"`
	// Body lists words of which one must occur in a web page: a body that starts with < or has type text/html, and
	// has no line that is a rule.
	Body []string `mapstructure:"body"`
	// All lists words that must all occur.
	All []string `mapstructure:"all"`
	// JSON looks for the words in a JSON object instead of a web page.
	JSON bool `mapstructure:"json"`
}

// problem tells what is wrong with a configured marker.
func (m *ChallengeMarker) problem() string {
	if m.Header == "" && len(m.Body) == 0 && len(m.All) == 0 {
		return "has neither header nor body nor all, so it would fit everything"
	}
	if m.Header != "" && (len(m.Body) > 0 || len(m.All) > 0) {
		return "has header and body; use with for a header that a body marker needs"
	}
	if slices.Contains(m.Body, "") || slices.Contains(m.All, "") {
		return "has an empty word, which every page holds"
	}
	for _, s := range m.Status {
		if s != 4 && s != 5 && (s < 200 || s > 599) {
			return "has a status that is neither 4, 5 nor 200 to 599"
		}
	}
	return ""
}

// ChallengeMarkers is the built-in list. The AWS, Cloudflare header and Imperva rows stand in vendors' documents or
// public detection rules; the others are common knowledge. Body words count only for the statuses the check is served
// with: some vendors add their scripts to every page, a plain 404 included.
func ChallengeMarkers() []ChallengeMarker {
	return []ChallengeMarker{
		{Vendor: "Cloudflare", Header: "cf-mitigated: challenge"},
		{Vendor: "Cloudflare", Status: []int{403, 503}, Body: []string{"Just a moment...", "/cdn-cgi/challenge-platform/", "_cf_chl_opt", "Attention Required! | Cloudflare"}},
		{Vendor: "AWS WAF", Header: "x-amzn-waf-action: challenge"},
		{Vendor: "AWS WAF", Header: "x-amzn-waf-action: captcha"},
		{Vendor: "AWS WAF", Status: []int{202, 403, 405}, Body: []string{"awsWafCookieDomainList", "gokuProps"}},
		{Vendor: "Imperva", Status: []int{200, 403}, With: "x-iinfo", Body: []string{"_Incapsula_Resource", "Incapsula incident ID"}},
		{Vendor: "DataDome", Status: []int{4}, Header: "x-datadome"},
		{Vendor: "DataDome", Status: []int{4}, Header: "x-dd-b"},
		{Vendor: "DataDome", Status: []int{403, 429}, Body: []string{"captcha-delivery.com"}},
		{Vendor: "HUMAN", Status: []int{403, 429}, Body: []string{"px-captcha", "_pxAppId"}},
		{Vendor: "HUMAN", Status: []int{403, 429}, All: []string{"blockScript", "appId"}, JSON: true},
		{Vendor: "Akamai", Status: []int{403, 428}, Body: []string{"sec-if-cpt-container"}},
		{Vendor: "Akamai", Status: []int{403, 428}, All: []string{"errors.edgesuite.net", "Access Denied"}},
		{Vendor: "Kasada", Status: []int{403, 429}, Header: "x-kpsdk-ct"},
		{Vendor: "Kasada", Status: []int{403, 429}, Body: []string{"KPSDK"}},
		{Vendor: "Vercel", Header: "x-vercel-mitigated: challenge"},
		{Vendor: "Vercel", Status: []int{403, 429}, Body: []string{"Vercel Security Checkpoint"}},
		{Vendor: "F5", Status: []int{200}, Body: []string{"The requested URL was rejected. Please consult with your administrator."}},
		{Vendor: "Sucuri", Status: []int{200, 403, 503}, Header: "x-sucuri-block"},
		{Vendor: "Sucuri", Status: []int{200, 403, 503}, Body: []string{"Sucuri Website Firewall"}},
		{Vendor: "DDoS-Guard", Status: []int{200, 403, 503}, Body: []string{"/.well-known/ddos-guard/"}},
		{Vendor: "Anubis", Status: []int{200, 403, 503}, Body: []string{"anubis_challenge"}},
		{Vendor: "bot check", Status: []int{403, 429, 503}, Body: []string{"g-recaptcha", "h-captcha", "cf-turnstile"}},
	}
}

// challengeBy names the vendor whose check answered, or "".
func challengeBy(markers []ChallengeMarker, status int, h http.Header, body []byte) string {
	body = body[:min(len(body), challengeBytes)]
	page := 0 // 1: a web page without rules, -1: not
	for i := range markers {
		m := &markers[i]
		if len(m.Status) > 0 && !slices.Contains(m.Status, status) && !slices.Contains(m.Status, status/100) {
			continue
		}
		if m.Header != "" {
			if hasHeader(h, m.Header) {
				return m.Vendor
			}
			continue
		}
		if m.With != "" && !hasHeader(h, m.With) || !m.inBody(body) {
			continue
		}
		if m.JSON {
			if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
				return m.Vendor
			}
			continue
		}
		if page == 0 {
			page = -1
			if looksLikePage(h, body) {
				page = 1
			}
		}
		if page == 1 {
			return m.Vendor
		}
	}
	return ""
}

func (m *ChallengeMarker) inBody(body []byte) bool {
	for _, w := range m.All {
		if !bytes.Contains(body, []byte(w)) {
			return false
		}
	}
	if len(m.Body) == 0 {
		return len(m.All) > 0
	}
	for _, w := range m.Body {
		if bytes.Contains(body, []byte(w)) {
			return true
		}
	}
	return false
}

// hasHeader looks for `name` or `name: value`.
func hasHeader(h http.Header, want string) bool {
	name, value, valued := strings.Cut(want, ":")
	value = strings.TrimSpace(value)
	for _, v := range h.Values(name) {
		if !valued || hasPrefixFold(strings.TrimSpace(v), strings.ToLower(value)) {
			return true
		}
	}
	return false
}

// looksLikePage tells a web page from a rules file that only mentions a vendor.
func looksLikePage(h http.Header, body []byte) bool {
	html := hasPrefixFold(strings.TrimSpace(h.Get("Content-Type")), "text/html") ||
		bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))), []byte("<"))
	return html && !Parse(body).HasRules()
}
