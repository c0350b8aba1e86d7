package audit

import (
	"bytes"
	"unicode/utf8"
)

// jsonLine holds the values of one JSON object that the audit knows, as they stand in the line.
type jsonLine struct {
	v     [jsonKeys][]byte
	bufs  [jsonKeys][]byte
	depth int
}

type jsonKey uint8

const (
	jNone jsonKey = iota
	jSchema
	jType
	jSent
	jSentAt
	jURL
	jUserAgent
	jRobotsTag
	jClient
	jClientIP // Cloudflare
	jCFHost
	jCFMethod
	jCFURI
	jCFAgent
	jCFStatus
	jCFTime
	jCFHeaders
	jRequest
	jTS
	jStatus
	jRespHeaders
	jRemoteAddr
	jClientAddr
	jRemoteIP
	jTimeISO
	jTime
	jTimestamp
	jAtTimestamp
	jTimeLocal
	jMsec
	jRequestMethod
	jRequestURI
	jHost
	jHTTPHost
	jServerName
	jHTTPAgent
	jHTTPXFF
	jXFF
	jSentTag
	jMethod
	jURI
	jHeaders
	jIP
	jsonKeys
)

func jsonKeyOf(b []byte) jsonKey {
	switch string(b) {
	case "schema":
		return jSchema
	case "type":
		return jType
	case "sent":
		return jSent
	case "sent_at":
		return jSentAt
	case "url":
		return jURL
	case "user_agent":
		return jUserAgent
	case "robots_tag":
		return jRobotsTag
	case "client":
		return jClient
	case "ClientIP":
		return jClientIP
	case "ClientRequestHost":
		return jCFHost
	case "ClientRequestMethod":
		return jCFMethod
	case "ClientRequestURI":
		return jCFURI
	case "ClientRequestUserAgent":
		return jCFAgent
	case "EdgeResponseStatus":
		return jCFStatus
	case "EdgeStartTimestamp":
		return jCFTime
	case "ResponseHeaders":
		return jCFHeaders
	case "request":
		return jRequest
	case "ts":
		return jTS
	case "status":
		return jStatus
	case "resp_headers":
		return jRespHeaders
	case "remote_addr":
		return jRemoteAddr
	case "client_ip":
		return jClientAddr
	case "remote_ip":
		return jRemoteIP
	case "time_iso8601":
		return jTimeISO
	case "time":
		return jTime
	case "timestamp":
		return jTimestamp
	case "@timestamp":
		return jAtTimestamp
	case "time_local":
		return jTimeLocal
	case "msec":
		return jMsec
	case "request_method":
		return jRequestMethod
	case "request_uri":
		return jRequestURI
	case "host":
		return jHost
	case "http_host":
		return jHTTPHost
	case "server_name":
		return jServerName
	case "http_user_agent":
		return jHTTPAgent
	case "http_x_forwarded_for":
		return jHTTPXFF
	case "x_forwarded_for":
		return jXFF
	case "sent_http_x_robots_tag":
		return jSentTag
	case "method":
		return jMethod
	case "uri":
		return jURI
	case "headers":
		return jHeaders
	case "ip":
		return jIP
	}
	return jNone
}

// object reads a whole JSON object and keeps the known values; b must hold nothing else. It accepts what
// encoding/json accepts, down to 500 levels.
func (j *jsonLine) object(b []byte) bool {
	clear(j.v[:])
	j.depth = 0
	i := skipBlank(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	i = j.members(b, i, func(key []byte, value []byte) {
		if k := jsonKeyOf(key); k != jNone {
			j.v[k] = value
		}
	})
	return i >= 0 && skipBlank(b, i) == len(b)
}

// members reads the object at b[i] and gives each key, unescaped, with its value as written. It is the index after the
// object, -1 if it is not well formed.
func (j *jsonLine) members(b []byte, i int, f func(key, value []byte)) int {
	if j.depth++; j.depth > 500 {
		return -1
	}
	defer func() { j.depth-- }()
	i = skipBlank(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end := jsonString(b, i)
		if end < 0 {
			return -1
		}
		key := b[i+1 : end-1]
		if i = skipBlank(b, end); i >= len(b) || b[i] != ':' {
			return -1
		}
		i = skipBlank(b, i+1)
		if end = j.value(b, i); end < 0 {
			return -1
		}
		if f != nil {
			if bytes.IndexByte(key, '\\') >= 0 {
				key = unescapeJSON(nil, key)
			}
			f(key, b[i:end])
		}
		if i = skipBlank(b, end); i >= len(b) {
			return -1
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i = skipBlank(b, i+1)
		default:
			return -1
		}
	}
}

// value is the index after the value at b[i], -1 if there is none.
func (j *jsonLine) value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return jsonString(b, i)
	case c == '{':
		return j.members(b, i, nil)
	case c == '[':
		return j.elements(b, i, nil)
	case c == '-' || isDigit(c):
		return jsonNumber(b, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
			return i + len(word)
		}
	}
	return -1
}

// elements reads the array at b[i] like members.
func (j *jsonLine) elements(b []byte, i int, f func(value []byte)) int {
	if j.depth++; j.depth > 500 {
		return -1
	}
	defer func() { j.depth-- }()
	i = skipBlank(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		end := j.value(b, i)
		if end < 0 {
			return -1
		}
		if f != nil {
			f(b[i:end])
		}
		if i = skipBlank(b, end); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ']':
			return i + 1
		case ',':
			i = skipBlank(b, i+1)
		default:
			return -1
		}
	}
}

func skipBlank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// jsonString is the index after the string at b[i].
func jsonString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i >= len(b) {
				return -1
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if i+4 >= len(b) || hex4(b[i+1:]) < 0 {
					return -1
				}
				i += 4
			default:
				return -1
			}
		}
	}
	return -1
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		d := unhex(c)
		if d < 0 {
			return -1
		}
		r = r<<4 | rune(d)
	}
	return r
}

// jsonNumber is the index after the number at b[i].
func jsonNumber(b []byte, i int) int {
	digits := func() bool {
		from := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// unescapeJSON appends the text of a well-formed string without its quotes. Lone surrogates become U+FFFD.
func unescapeJSON(dst, b []byte) []byte {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(b[i+1:])
			i += 4
			if r >= 0xD800 && r < 0xDC00 && i+6 < len(b) && b[i+1] == '\\' && b[i+2] == 'u' {
				if low := hex4(b[i+3:]); low >= 0xDC00 && low < 0xE000 {
					r = (r-0xD800)<<10 + (low - 0xDC00) + 0x10000
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// text is a value as text: a string without escapes, or a number as written; nil for anything else.
func (j *jsonLine) text(k jsonKey) []byte {
	v := j.v[k]
	if len(v) == 0 {
		return nil
	}
	switch {
	case v[0] == '"':
		v = v[1 : len(v)-1]
		if bytes.IndexByte(v, '\\') >= 0 {
			j.bufs[k] = unescapeJSON(j.bufs[k][:0], v)
			v = j.bufs[k]
		}
		return v
	case v[0] == '-' || isDigit(v[0]):
		return v
	}
	return nil
}

// first is the text of the first key that has one.
func (j *jsonLine) first(keys ...jsonKey) []byte {
	for _, k := range keys {
		if v := j.text(k); v != nil {
			return v
		}
	}
	return nil
}
