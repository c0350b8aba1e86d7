package policy

import "strings"

// star is the token of the global group.
const star = "*"

// groupToken is the product token that a User-agent value names: its leading run of letters, digits, - and _.
// "*" alone or before white space is the global group. "" names nobody, as `*bot` does.
//
// Digits belong to a name, so UnlobBot2 is not UnlobBot: Google cuts at the digit, three other parsers do not.
func groupToken(value string) string {
	if strings.HasPrefix(value, star) {
		if len(value) == 1 || asciiSpace(value[1]) {
			return star
		}
		return ""
	}
	i := 0
	for i < len(value) && tokenChar(value[i]) {
		i++
	}
	return value[:i]
}

func tokenChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// equalFold compares ASCII strings without case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// TokenProblem tells what is wrong with a configured product token, and whether that is only a warning. userAgent is
// what the crawler sends; "" skips the check that the token occurs in it (RFC 9309 2.2.1).
func TokenProblem(token, userAgent string) (problem string, warning bool) {
	if token == "" {
		return "is empty", false
	}
	digits := false
	for i := range len(token) {
		switch c := token[i]; {
		case !tokenChar(c):
			return "may hold only letters, - and _ (RFC 9309 section 2.2.1), so no group can name it", false
		case '0' <= c && c <= '9':
			digits = true
		}
	}
	if userAgent != "" && !strings.Contains(strings.ToLower(userAgent), strings.ToLower(token)) {
		return "does not occur in the user agent that is sent, so site owners cannot find it (RFC 9309 section 2.2.1)", true
	}
	if digits {
		return "holds digits: some sites' tools cut a name at a digit", true
	}
	return "", false
}
