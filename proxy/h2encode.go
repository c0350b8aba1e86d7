package proxy

import "net/http"

// appendField encodes a field as a literal without indexing (RFC 7541 6.2.2), its name by the static table where it has
// one there.
func appendField(b []byte, name byte, s, value string) []byte {
	b = appendInt(b, 0, 4, int(name))
	if name == 0 {
		b = append(appendInt(b, 0, 7, len(s)), s...)
	}
	return append(appendInt(b, 0, 7, len(value)), value...)
}

// appendPseudo encodes a pseudo field, the usual ones as one byte (RFC 7541 6.1, appendix A).
func appendPseudo(b []byte, name, value string) []byte {
	index := byte(0)
	switch name {
	case ":authority":
		index = 1
	case ":method":
		switch index = 2; value {
		case http.MethodGet:
			return append(b, 0x80|2)
		case http.MethodPost:
			return append(b, 0x80|3)
		}
	case ":path":
		if index = 4; value == "/" {
			return append(b, 0x80|4)
		}
	case ":scheme":
		if index = 7; value == "https" {
			return append(b, 0x80|7)
		}
	}
	return appendField(b, index, name, value)
}

// appendInt encodes v with a prefix of n bits in a byte that begins with first (RFC 7541 5.1).
func appendInt(b []byte, first byte, n uint, v int) []byte {
	most := 1<<n - 1
	if v < most {
		return append(b, first|byte(v))
	}
	b = append(b, first|byte(most))
	for v -= most; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// staticName is the index of a name that requests have in the static table (RFC 7541 appendix A), or 0.
func staticName(name string) byte {
	switch name {
	case "accept-charset":
		return 15
	case "accept-encoding":
		return 16
	case "accept-language":
		return 17
	case "accept":
		return 19
	case "authorization":
		return 23
	case "cache-control":
		return 24
	case "content-encoding":
		return 26
	case "content-language":
		return 27
	case "content-length":
		return 28
	case "content-type":
		return 31
	case "cookie":
		return 32
	case "date":
		return 33
	case "expect":
		return 35
	case "from":
		return 37
	case "host":
		return 38
	case "if-match":
		return 39
	case "if-modified-since":
		return 40
	case "if-none-match":
		return 41
	case "if-range":
		return 42
	case "if-unmodified-since":
		return 43
	case "range":
		return 50
	case "referer":
		return 51
	case "user-agent":
		return 58
	case "via":
		return 60
	}
	return 0
}

// nameBytes are those of a field's name over HTTP/2: of a token, and not in upper case (RFC 9113 8.2.1).
var nameBytes = func() (set [256]bool) {
	for c := byte('a'); c <= 'z'; c++ {
		set[c] = true
	}
	for c := byte('0'); c <= '9'; c++ {
		set[c] = true
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		set[c] = true
	}
	return set
}()

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !nameBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// validValue is what the server takes: no control characters but the tab (RFC 9110 5.5).
func validValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// originForm tells whether a :path is one, or the * that OPTIONS may have (RFC 9113 8.3.1).
func originForm(path string) bool {
	if path == "" || path[0] != '/' {
		return path == "*"
	}
	for i := 0; i < len(path); i++ {
		if c := path[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
