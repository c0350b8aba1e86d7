package admin

import "slices"

// reasons is the closed list of refusal codes, in its order. Each is
// a label of crawlgate_refusals_total from the start, so that an alert on a
// reason that never happened yet has a series to look at.
var reasons = []string{
	"auth-required", "auth-failed",
	"identity-missing",
	"profile-denied",
	"job-required", "job-exhausted", "job-off-site",
	"bad-request",
	"host-mismatch",
	"kind-denied",
	"scheme-denied", "port-denied", "method-denied", "body-denied",
	"site-denied",
	"site-stopped",
	"address-denied",
	"dns-failed",
	"robots-disallow",
	"robots-signal",
	"robots-unreadable",
	"robots-challenge",
	"turn-too-far",
	"host-backoff",
	"host-stopped",
	"url-left",
	"identity-switch",
	"too-many-redirects",
	"response-too-large",
	"upstream-failed", "upstream-timeout", "upstream-tls",
	"loop",
	"overloaded", "draining",
	"sign-failed", "audit-unavailable",
	"internal",
}

// reasonOther is the label of a code outside the list: an event of a newer
// gate, or a mistake. It keeps the label set closed.
const reasonOther = "other"

// turnReasons are the codes with which pacing refuses a turn.
var turnReasons = []string{"turn-too-far", "host-backoff", "host-stopped", "url-left", "overloaded"}

// kinds are the kinds of a request.
var kinds = []string{"page", "subresource", "render", "repeat", "redirect", "robots", "sitemap"}

// decisions are the outcomes of an event.
var decisions = []string{"forwarded", "refused", "cancelled", "failed"}

// Reasons returns the closed list of reason codes that the metrics carry.
func Reasons() []string { return slices.Clone(reasons) }

func known(set []string, v string) string {
	if slices.Contains(set, v) {
		return v
	}
	return reasonOther
}
