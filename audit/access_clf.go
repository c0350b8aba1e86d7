package audit

import (
	"bytes"
	"net/netip"
)

// clf parses the common, combined and vhost formats:
//
//	[host[:port] ]addr ident user [time] "request" status bytes ["referer" "agent" ["xff"] ...]
func (p *lineParser) clf(line []byte) reason {
	e := &p.e
	*e = entry{}
	// Structure: where the parts begin and end.
	first, rest := nextField(line)
	second, after := nextField(rest)
	if len(first) == 0 || len(second) == 0 {
		return badStructure
	}
	peer, ok := p.address(first)
	if !ok {
		if a, isVhost := p.address(second); isVhost {
			peer, ok = a, true
			e.host = dash(first)
			rest = after
		}
	}
	_, rest = nextField(rest) // ident
	open := bytes.Index(rest, []byte(" ["))
	if open < 1 {
		return badStructure
	}
	rest = rest[open+2:]
	end := bytes.IndexByte(rest, ']')
	if end < 0 {
		return badStructure
	}
	at := rest[:end]
	request, rest, quoted := p.quoted(trimSpace(rest[end+1:]), 0)
	if !quoted {
		return badStructure
	}
	status, rest := nextField(trimSpace(rest))
	size, rest := nextField(rest)
	if len(status) == 0 || len(size) == 0 {
		return badStructure
	}
	if rest = trimSpace(rest); len(rest) > 0 {
		if _, rest, quoted = p.quoted(rest, -1); !quoted {
			return badStructure
		}
		agent, rest, quoted := p.quoted(trimSpace(rest), 1)
		if !quoted {
			return badStructure
		}
		e.agent = dash(agent)
		if rest = trimSpace(rest); len(rest) > 0 {
			xff := rest
			if rest[0] == '"' {
				if xff, _, quoted = p.quoted(rest, 2); !quoted {
					return badStructure
				}
			} else {
				xff, _ = nextField(rest)
			}
			if isForwarded(xff) {
				e.xff = xff
			}
		}
	}
	// Values.
	if !ok {
		return badAddress
	}
	e.peer = peer
	if e.time, ok = p.logTime(at); !ok {
		return badTime
	}
	if !e.request(request) {
		return badRequest
	}
	if !e.setStatus(status) {
		return badStatus
	}
	return lineOK
}

// nextField cuts the text up to the next blank.
func nextField(b []byte) (value, rest []byte) {
	i := bytes.IndexByte(b, ' ')
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i+1:]
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	return b
}

// quoted cuts a quoted field: it ends at a `"` that is not escaped and is followed by a blank or the end. Escapes are
// undone in buffer number buf; -1: not at all.
func (p *lineParser) quoted(b []byte, buf int) (value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	for i := 1; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return nil, b, false
		}
		i += j
		k := i
		for k > 1 && b[k-1] == '\\' {
			k--
		}
		if (i-k)%2 == 1 || i+1 < len(b) && b[i+1] != ' ' {
			continue
		}
		value, rest = b[1:i], b[i+1:]
		break
	}
	escaped := bytes.IndexByte(value, 0x5c) >= 0
	if escaped && buf >= 0 {
		p.bufs[buf] = unescapeLog(p.bufs[buf][:0], value)
		value = p.bufs[buf]
	}
	return value, rest, true
}

// unescapeLog undoes \", \\, \xHH and \n \t \r \b \v \f; another backslash stays as it is.
func unescapeLog(dst, b []byte) []byte {
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c != '\\' || i+1 == len(b) {
			dst = append(dst, c)
			continue
		}
		switch n := b[i+1]; n {
		case '"', '\\':
			dst = append(dst, n)
			i++
		case 'n', 't', 'r', 'b', 'v', 'f':
			dst = append(dst, "\n\t\r\b\v\f"[bytes.IndexByte([]byte("ntrbvf"), n)])
			i++
		case 'x':
			h, l := -1, -1
			if i+3 < len(b) {
				h, l = unhex(b[i+2]), unhex(b[i+3])
			}
			if h < 0 || l < 0 {
				dst = append(dst, c)
				continue
			}
			dst = append(dst, byte(h<<4|l))
			i += 3
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// isForwarded tells whether a field is an X-Forwarded-For value: every element an address, `unknown` or `_name`.
func isForwarded(b []byte) bool {
	for more := true; more; {
		var el []byte
		el, b, more = bytes.Cut(b, []byte(","))
		el = bytes.Trim(el, " \t")
		if _, ok := forwardedAddr(el); !ok && !bytes.EqualFold(el, []byte("unknown")) && (len(el) < 2 || el[0] != '_') {
			return false
		}
	}
	return true
}

// forwardedAddr reads one element of X-Forwarded-For: an address with or without port, brackets or quotes.
func forwardedAddr(el []byte) (netip.Addr, bool) {
	el = bytes.Trim(el, " \t\"")
	if a, ok := parseIPv4(el); ok {
		return a, true
	}
	if len(el) == 0 || len(el) > 100 {
		return netip.Addr{}, false
	}
	if el[0] == '[' {
		i := bytes.IndexByte(el, ']')
		if i < 0 || i+1 < len(el) && !isPort(el[i+1:]) {
			return netip.Addr{}, false
		}
		el = el[1:i]
		if bytes.IndexByte(el, ':') < 0 {
			return netip.Addr{}, false
		}
	} else if i := bytes.IndexByte(el, ':'); i >= 0 && i == bytes.LastIndexByte(el, ':') {
		a, ok := parseIPv4(el[:i])
		return a, ok && isPort(el[i:])
	}
	a, err := netip.ParseAddr(string(el))
	if err != nil {
		return netip.Addr{}, false
	}
	return a.WithZone("").Unmap(), true
}

func isPort(b []byte) bool {
	if len(b) < 2 || len(b) > 6 || b[0] != ':' {
		return false
	}
	n := number(b, 1, len(b)-1)
	return n >= 0 && n <= 65535
}

// clientOf finds the client of a request: the peer, or, behind trusted proxies, the address that the
// nearest of them was called from.
func clientOf(peer netip.Addr, xff []byte, trusted prefixSet) netip.Addr {
	client := peer
	if len(trusted.lo) == 0 || !trusted.contains(peer) {
		return client
	}
	for len(xff) > 0 {
		el := xff
		if i := bytes.LastIndexByte(xff, ','); i >= 0 {
			el, xff = xff[i+1:], xff[:i]
		} else {
			xff = nil
		}
		a, ok := forwardedAddr(el)
		if !ok {
			return client
		}
		client = a
		if !trusted.contains(a) {
			return client
		}
	}
	return client
}
