package proxy

import (
	"net/http"
	"strings"

	"crawlgate/pacing"
	"crawlgate/proxy/guard"
)

// Values of limits.deny_kinds.
const (
	kindScript   = "script-navigation"
	kindPrefetch = "prefetch"
	kindNoise    = "browser-noise"
)

// browserNoise are hosts that a full Chromium asks by itself, whatever flags it gets, and Firefox without the preferences
// that `ca env --for firefox` prints.
var browserNoise = map[string]bool{
	"accounts.google.com": true, "update.googleapis.com": true, "optimizationguide-pa.googleapis.com": true,
	"content-autofill.googleapis.com": true, "safebrowsing.googleapis.com": true, "redirector.gvt1.com": true,
	"clients2.google.com": true, "edgedl.me.gvt1.com": true, "safebrowsingohttpgateway.googleapis.com": true,
	"android.clients.google.com": true, "mtalk.google.com": true, "passwordsleakcheck-pa.googleapis.com": true,
	"dns.google": true, "cloudflare-dns.com": true, "chrome.cloudflare-dns.com": true, "dns.quad9.net": true,
	"doh.opendns.com": true, "doh.cleanbrowsing.org": true,

	"firefox.settings.services.mozilla.com": true, "firefox-settings-attachments.cdn.mozilla.net": true, "content-signature-2.cdn.mozilla.net": true,
	"push.services.mozilla.com": true, "detectportal.firefox.com": true, "location.services.mozilla.com": true, "normandy.cdn.mozilla.net": true,
	"aus5.mozilla.org": true, "ads.mozilla.org": true, "incoming.telemetry.mozilla.org": true, "services.addons.mozilla.org": true,
	"versioncheck.addons.mozilla.org": true, "prod.ohttp-gateway.prod.webservices.mozgcp.net": true, "shavar.services.mozilla.com": true,
	"tracking-protection.cdn.mozilla.net": true, "contile.services.mozilla.com": true, "merino.services.mozilla.com": true,
	"classify-client.services.mozilla.com": true, "ciscobinary.openh264.org": true, "mozilla.cloudflare-dns.com": true, "firefox.dns.nextdns.io": true,
}

// destinations are the values of Sec-Fetch-Dest for files and frames (Fetch, request destination), and empty. A
// document is asked for by a navigation only.
var destinations = map[string]bool{
	"audio": true, "audioworklet": true, "embed": true, "empty": true, "font": true, "frame": true, "iframe": true, "image": true,
	"json": true, "manifest": true, "object": true, "paintworklet": true, "report": true, "script": true, "serviceworker": true,
	"sharedworker": true, "style": true, "track": true, "video": true, "webidentity": true, "worker": true, "xslt": true,
}

// kindOf is what a request is, and by which evidence. Kinds relax the pace only; allowlist, guard and robots.txt hold
// for every one of them.
type kindOf struct {
	kind       pacing.Kind
	denied     string // one of limits.deny_kinds
	class      string // finer word of a denial
	detail     string
	document   bool        // a document is asked for
	frame      bool        // a page inside the page: it loads at its pace and is judged by its own robots.txt
	thirdParty bool        // a file that another site's page loads
	owner      *openPage   // the page it belongs to
	hop        *hop        // the redirect it follows
	again      pacing.Kind // a second look at a page, should the redirect have been followed before; Page: it is none
	preflight  bool
	websocket  bool
}

func (k kindOf) name() string { return k.kind.String() }

// classify decides the kind from evidence. A fetcher's own word (Crawlgate-Kind) counts only on requests without
// Sec-Fetch fields, since a page's script can add fields to its requests but not remove those.
func (x *exchange) classify() kindOf {
	h := x.in.Header
	k := kindOf{kind: pacing.Page, document: true}
	if x.from.own != nil {
		return kindOf{kind: pacing.Sitemap}
	}
	if browserNoise[x.host.Name] {
		k.denied, k.class = kindNoise, "browser_noise"
		k.detail = "A browser asks this host by itself; no page did. Use chromium-headless-shell or the preferences of ca env --for firefox, or list the host in the client's sites."
		return k
	}
	window := x.rules.Server.CompanionWindow
	session := x.id.session
	target := x.target
	if hp, ok := x.g.pages.hopTo(session, target); ok {
		k.hop = &hp
	}
	dest, mode, site := h.Get("Sec-Fetch-Dest"), h.Get("Sec-Fetch-Mode"), h.Get("Sec-Fetch-Site")
	referer, origin := guard.EscapeStray(h.Get("Referer")), h.Get("Origin")

	if isWebSocket(h) {
		k.websocket, k.document = true, false
		return x.riding(k, x.g.pages.owner(session, "", origin, window))
	}
	if prefetching(h) {
		k.denied, k.class = kindPrefetch, "prefetch"
		k.detail = "The page was to be loaded in advance and nobody asked for it."
		return k
	}
	if x.in.Method == http.MethodOptions && origin != "" && h.Get("Access-Control-Request-Method") != "" {
		k.preflight, k.document = true, false
		return x.riding(k, x.g.pages.owner(session, referer, origin, window))
	}
	switch {
	case dest == "document" && mode == "navigate":
		if x.profile.denies(kindScript) && site != "none" && referer != "" && h.Get("Sec-Fetch-User") == "" && k.hop == nil {
			if x.g.pages.owner(session, referer, "", window) != nil {
				k.denied, k.class = kindScript, "script_navigation"
				k.detail = "A script of the page went to another page. The URL is recorded, so that it can be read in its own turn."
				return k
			}
		}
		return x.navigation(k, target, pacing.Render)
	case dest == "":
		return x.plain(k, target)
	case !destinations[dest]: // nothing a browser sends: the stricter kind
		return k
	default: // a frame or a file of a page
		k.frame = dest == "iframe" || dest == "frame"
		k.document = k.frame || dest == "embed" || dest == "object"
		return x.riding(k, x.g.pages.owner(session, referer, origin, window))
	}
}

// navigation tells a redirect, a second look at a page (again) and a page apart.
func (x *exchange) navigation(k kindOf, target string, again pacing.Kind) kindOf {
	pg := x.g.pages.same(x.id.session, target, x.rules.Server.CompanionWindow)
	if k.hop != nil && k.hop.host == x.host.Name {
		k.kind = pacing.Redirect
		if pg != nil {
			k.again = again
		}
		return k
	}
	if pg != nil {
		k.kind, k.owner = again, pg
	}
	return k
}

// plain classifies a request without Sec-Fetch fields: tools, and browsers on plain http.
func (x *exchange) plain(k kindOf, target string) kindOf {
	h := x.in.Header
	declared := h.Get("Crawlgate-Kind")
	if h.Get("Sec-Fetch-Mode") != "" || h.Get("Sec-Fetch-Site") != "" || h.Get("Sec-Fetch-User") != "" {
		declared = ""
	}
	switch declared {
	case "subresource":
		if pg := x.g.pages.owner(x.id.session, guard.EscapeStray(h.Get("Crawlgate-Page")), "", x.rules.Server.CompanionWindow); pg != nil {
			k.document = false
			return x.riding(k, pg)
		}
		return k
	case "sitemap":
		k.kind, k.document = pacing.Sitemap, false
		return k
	}
	if strings.Contains(h.Get("Accept"), "text/html") || declared == "page" {
		return x.navigation(k, target, pacing.Render)
	}
	// A browser on plain http sends the page as Referer and asks for something else than HTML.
	if ref := guard.EscapeStray(h.Get("Referer")); ref != "" && x.url.Scheme == "http" {
		if pg := x.g.pages.owner(x.id.session, ref, "", x.rules.Server.CompanionWindow); pg != nil {
			k.document = false
			return x.riding(k, pg)
		}
	}
	return x.navigation(k, target, pacing.Repeat)
}

// riding makes a request a file of its page. Without a page it stays a page: unknown always means the stricter kind.
func (x *exchange) riding(k kindOf, owner *openPage) kindOf {
	if owner == nil {
		return k
	}
	k.kind, k.owner = pacing.Subresource, owner
	k.thirdParty = owner.host != x.host.Name
	if k.hop != nil && !k.thirdParty && k.hop.host == x.host.Name {
		k.hop = nil // a file's redirect rides as the file did
	}
	return k
}

func prefetching(h http.Header) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		if strings.HasPrefix(strings.ToLower(h.Get(name)), "prefetch") {
			return true
		}
	}
	return false
}

// hops refuses a chain of redirects that is too long.
func (x *exchange) hops() *refusal {
	if x.kind.hop == nil {
		return nil
	}
	x.ev.RedirectOf = x.kind.hop.from
	if limit := x.profile.Limits.Redirects; x.kind.hop.count > limit {
		return &refusal{code: TooManyRedirects, class: "redirects"}
	}
	return nil
}
