package guard

import "strings"

// EscapeStray gives a URL, or a reference to one, in which each percent sign of the path that begins no escape is
// written %25, the one spelling that every reader takes for that octet (RFC 3986 2.4). Browsers send it as it is. What
// stands before the path and after it stays.
func EscapeStray(raw string) string {
	start, end := pathOf(raw)
	path := escapeStray(raw[start:end])
	if len(path) == end-start {
		return raw
	}
	return raw[:start] + path + raw[end:]
}

// EscapeStrayTarget is EscapeStray for a request target in origin form (RFC 9112 3.2.1), whose path may begin with two slashes.
func EscapeStrayTarget(target string) string {
	path, _, _ := strings.Cut(target, "?")
	escaped := escapeStray(path)
	if len(escaped) == len(path) {
		return target
	}
	return escaped + target[len(path):]
}

// StrayTarget is the path and query of a request target as they were sent, if the path holds a percent sign that begins
// no escape, else "".
func StrayTarget(raw string) string {
	start, end := pathOf(raw)
	if strings.HasPrefix(raw, "/") { // origin form, which may begin with two slashes
		if start, end = 0, strings.IndexAny(raw, "?#"); end < 0 {
			end = len(raw)
		}
	}
	if !hasStray(raw[start:end]) {
		return ""
	}
	return raw[start:]
}

// pathOf tells where the path of a URL or of a reference to one begins and ends.
func pathOf(raw string) (start, end int) {
	end = len(raw)
	if i := strings.IndexAny(raw, "?#"); i >= 0 {
		end = i
	}
	if i := strings.Index(raw[:end], "://"); i >= 0 && strings.IndexByte(raw[:i], '/') < 0 {
		start = i + len("://")
	} else if strings.HasPrefix(raw, "//") {
		start = len("//")
	} else {
		return 0, end
	}
	if i := strings.IndexByte(raw[start:end], '/'); i >= 0 {
		return start + i, end
	}
	return end, end
}

// hasStray tells whether a path holds a percent sign without two digits after it.
func hasStray(path string) bool {
	for {
		i := strings.IndexByte(path, '%')
		if i < 0 {
			return false
		}
		if !escapeAt(path, i) {
			return true
		}
		path = path[i+1:]
	}
}

// escapeStray writes such signs as %25.
func escapeStray(path string) string {
	if !hasStray(path) {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		b.WriteByte(path[i])
		if path[i] == '%' && !escapeAt(path, i) {
			b.WriteString("25")
		}
	}
	return b.String()
}

func escapeAt(s string, i int) bool {
	return i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2])
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
