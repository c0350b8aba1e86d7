package audit

import (
	"bytes"
	"net/netip"
)

// entry is one line of an access log, as far as the audit needs it. Its bytes belong to the line or to the parser and
// are good until the next line.
type entry struct {
	peer   netip.Addr
	xff    []byte // X-Forwarded-For; nil: none
	time   int64  // Unix time in ms
	host   []byte // as logged; empty: the line names none
	target []byte // path and query as logged, without fragment; empty: no path (`*`, CONNECT)
	agent  []byte // empty: none
	tag    []byte // X-Robots-Tag, several values joined by LF
	status int16
	own    bool // of the gate's own log: the address is a fetcher's, nothing to verify
}

// reason is what a line is: a request, a comment, or why it is malformed. The order is the order of testing.
type reason uint8

const (
	lineOK reason = iota
	lineComment
	badStructure
	badAddress
	badTime
	badRequest
	badStatus
	badJSON
	badFormat
	reasons
)

// lineParser parses lines of all formats. It belongs to one goroutine.
type lineParser struct {
	e     entry
	bufs  [4][]byte
	addrs map[string]netip.Addr
	clock struct {
		text [26]byte
		ms   int64
	}
	json    jsonLine
	headers []byte
}

// address reads an IP address: mapped ones as IPv4, without zone.
func (p *lineParser) address(b []byte) (netip.Addr, bool) {
	if a, ok := parseIPv4(b); ok {
		return a, true
	}
	if len(b) < 2 || len(b) > 100 {
		return netip.Addr{}, false
	}
	if a, ok := p.addrs[string(b)]; ok {
		return a, a.IsValid()
	}
	a, err := netip.ParseAddr(string(b))
	if err == nil {
		a = a.WithZone("").Unmap()
	}
	if p.addrs == nil || len(p.addrs) >= 1<<13 {
		p.addrs = make(map[string]netip.Addr, 1<<10)
	}
	p.addrs[string(b)] = a
	return a, err == nil
}

// parseIPv4 reads four decimal numbers without leading zeros.
func parseIPv4(b []byte) (netip.Addr, bool) {
	var a [4]byte
	part, digits, n := 0, 0, 0
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			if digits > 0 && n == 0 {
				return netip.Addr{}, false
			}
			n = n*10 + int(c-'0')
			digits++
			if n > 255 {
				return netip.Addr{}, false
			}
		case c == '.' && digits > 0 && part < 3:
			a[part] = byte(n)
			part++
			digits, n = 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	if part != 3 || digits == 0 {
		return netip.Addr{}, false
	}
	a[3] = byte(n)
	return netip.AddrFrom4(a), true
}

// request reads `METHOD target[ HTTP/x]`; the target may hold spaces.
func (e *entry) request(b []byte) bool {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 {
		return false
	}
	method, target := b[:i], b[i+1:]
	if j := bytes.LastIndexByte(target, ' '); j >= 0 && bytes.HasPrefix(target[j+1:], []byte("HTTP/")) {
		target = target[:j]
	}
	return e.methodTarget(method, target)
}

// methodTarget reads a method and a target that were logged apart.
func (e *entry) methodTarget(method, target []byte) bool {
	if len(method) == 0 || !isLetter(method[0]) || len(target) == 0 {
		return false
	}
	e.target = nil
	if target[0] == '/' {
		e.target = cutFragment(target)
		return true
	}
	if len(target) == 1 && target[0] == '*' {
		return true
	}
	if string(method) == "CONNECT" {
		e.host = target
		return true
	}
	// Absolute form: scheme "://" authority path.
	i := bytes.Index(target, []byte("://"))
	if i <= 0 || !isScheme(target[:i]) {
		return false
	}
	rest := target[i+3:]
	end := bytes.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, rest := rest[:end], rest[end:]
	if at := bytes.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if len(host) == 0 {
		return false
	}
	e.host = host
	rest = cutFragment(rest)
	switch {
	case len(rest) == 0:
		e.target = slash
	case rest[0] == '?':
		e.target = append(append(make([]byte, 0, len(rest)+1), '/'), rest...)
	default:
		e.target = rest
	}
	return true
}

var slash = []byte("/")

func cutFragment(b []byte) []byte {
	if i := bytes.IndexByte(b, '#'); i >= 0 {
		return b[:i]
	}
	return b
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isScheme(b []byte) bool {
	for i, c := range b {
		if !isLetter(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return true
}

// setStatus reads three digits.
func (e *entry) setStatus(b []byte) bool {
	if len(b) != 3 || !isDigit(b[0]) || !isDigit(b[1]) || !isDigit(b[2]) {
		return false
	}
	e.status = int16(b[0]-'0')*100 + int16(b[1]-'0')*10 + int16(b[2]-'0')
	return true
}

// dash is nil for the `-` that stands for nothing.
func dash(b []byte) []byte {
	if len(b) == 1 && b[0] == '-' {
		return nil
	}
	return b
}

// hostName gives a host the form that it is counted by: lower case, no final dot, no port 80 or 443.
func hostName[T string | []byte](raw T) string {
	b := append([]byte(nil), raw...) // raw may be a piece of the line
	if len(b) == 1 && b[0] == '-' {
		return ""
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	port := ""
	if i := bytes.LastIndexByte(b, ':'); i >= 0 && bytes.IndexByte(b[i:], ']') < 0 && (b[0] == '[' || bytes.IndexByte(b, ':') == i) {
		port = string(b[i:])
		b = b[:i]
	}
	b = bytes.TrimSuffix(b, []byte("."))
	if port == ":80" || port == ":443" || port == ":" {
		port = ""
	}
	return string(b) + port
}
