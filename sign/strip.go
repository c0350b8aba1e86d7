package sign

import (
	"net/http"
	"strings"
)

// own are the three fields that Sign sets.
var own = [...]string{"Signature-Agent", "Signature-Input", "Signature"}

// Strip removes from a client's header, or trailer, every field whose name begins with "signature" in any letter case (so
// also Signature_Agent, which some servers read like Signature-Agent), and takes those names out of the lists of Connection
// and Trailer, so that a client can't have our own fields dropped. It gives the number of field lines removed; a trailer that is only announced
// counts as one. Call it before hop-by-hop fields are handled.
func Strip(h http.Header) int {
	n := 0
	for name, values := range h {
		switch {
		case isSignatureName(name):
			n += max(1, len(values)) // an announced trailer has none yet
			delete(h, name)
		case isNameList(name):
			stripNames(h, name, values)
		}
	}
	return n
}

func isSignatureName(name string) bool {
	const prefix = "signature"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

func isNameList(name string) bool {
	return strings.EqualFold(name, "Connection") || strings.EqualFold(name, "Proxy-Connection") || strings.EqualFold(name, "Trailer")
}

// stripNames takes signature field names out of a list of names; lines without any are left as they came.
func stripNames(h http.Header, name string, lines []string) {
	var kept []string
	changed := false
	for _, line := range lines {
		var left []string
		hit := false
		for part := range strings.SplitSeq(line, ",") {
			part = strings.TrimSpace(part)
			switch {
			case isSignatureName(part):
				hit = true
			case part != "":
				left = append(left, part)
			}
		}
		switch {
		case !hit:
			kept = append(kept, line)
		case len(left) > 0:
			kept, changed = append(kept, strings.Join(left, ", ")), true
		default:
			changed = true
		}
	}
	switch {
	case !changed:
	case len(kept) == 0:
		delete(h, name)
	default:
		h[name] = kept
	}
}

// removeOwn takes our three fields away, however they are spelt.
func removeOwn(h http.Header) {
	for name := range h {
		if len(name) >= len("signature") && (name[0] == 'S' || name[0] == 's') {
			for _, o := range own {
				if strings.EqualFold(name, o) {
					delete(h, name)
				}
			}
		}
	}
}
