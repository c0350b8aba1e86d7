package policy

import (
	"net/http"
	"strings"
)

// IndexingDirectives reads X-Robots-Tag: what an answer says about indexing and following, to everybody or to token,
// the most restrictive of all lines, as "noindex, nofollow", "noindex", "nofollow" or "". Lines for other crawlers are
// passed over; `none` is both.
func IndexingDirectives(h http.Header, token string) string {
	noindex, nofollow := false, false
	for _, line := range h.Values("X-Robots-Tag") {
		ours := true
		for _, item := range strings.Split(line, ",") {
			item = strings.TrimSpace(item)
			// A name holds until the next one on the line: `botA: noindex, nofollow, botB: none`.
			if name, rest, ok := strings.Cut(item, ":"); ok && !valued(name) {
				ours = equalFold(strings.TrimSpace(name), token) || strings.TrimSpace(name) == star
				item = strings.TrimSpace(rest)
			}
			if !ours {
				continue
			}
			switch strings.ToLower(item) {
			case "noindex":
				noindex = true
			case "nofollow":
				nofollow = true
			case "none":
				noindex, nofollow = true, true
			}
		}
	}
	switch {
	case noindex && nofollow:
		return "noindex, nofollow"
	case noindex:
		return "noindex"
	case nofollow:
		return "nofollow"
	}
	return ""
}

// valued are directives with a colon of their own, which are no crawler's name.
func valued(name string) bool {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "unavailable_after", "max-snippet", "max-image-preview", "max-video-preview":
		return true
	}
	return false
}
