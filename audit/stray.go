package audit

import "strings"

// escapeStray gives a URL, or a reference to one, in which each percent sign of the path that begins no escape is written
// %25, the one spelling that every reader takes for that octet (RFC 3986 2.4). Browsers take such a path, and the gate asks
// for it so. What stands before the path and after it stays.
func escapeStray(raw string) string {
	start, end := 0, len(raw)
	if i := strings.IndexAny(raw, "?#"); i >= 0 {
		end = i
	}
	if i := strings.Index(raw[:end], "//"); i == 0 || i > 0 && raw[i-1] == ':' && strings.IndexByte(raw[:i], '/') < 0 {
		start = end
		if k := strings.IndexByte(raw[i+2:end], '/'); k >= 0 {
			start = i + 2 + k
		}
	}
	var b strings.Builder
	done := 0
	for i := start; i < end; i++ {
		if raw[i] == '%' && (i+2 >= end || unhex(raw[i+1]) < 0 || unhex(raw[i+2]) < 0) {
			b.WriteString(raw[done:i])
			b.WriteString("%25")
			done = i + 1
		}
	}
	if done == 0 {
		return raw
	}
	b.WriteString(raw[done:])
	return b.String()
}
