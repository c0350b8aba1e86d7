package audit

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// nginxFormat is an nginx log_format: text and variables in turn.
type nginxFormat struct {
	parts []nginxPart
}

// nginxPart is one variable and the text after it; the first part is text only.
type nginxPart struct {
	v    nginxVar
	text []byte
}

type nginxVar int

const (
	varIgnored nginxVar = iota
	varAddr
	varTime
	varRequest
	varMethod
	varURI
	varStatus
	varHost
	varAgent
	varXFF
	varTag
	nginxVars
)

var nginxNames = map[string]nginxVar{
	"remote_addr": varAddr, "time_local": varTime, "time_iso8601": varTime, "msec": varTime, "request": varRequest,
	"request_method": varMethod, "request_uri": varURI, "status": varStatus, "host": varHost, "http_host": varHost,
	"server_name": varHost, "http_user_agent": varAgent, "http_x_forwarded_for": varXFF, "sent_http_x_robots_tag": varTag,
}

// parseNginxFormat reads the text of a log_format, with $name and ${name}.
func parseNginxFormat(s string) (*nginxFormat, error) {
	f := &nginxFormat{parts: []nginxPart{{}}}
	var have [nginxVars]bool
	for len(s) > 0 {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			i = len(s)
		}
		last := &f.parts[len(f.parts)-1]
		last.text = append(last.text, s[:i]...)
		if s = s[i:]; s == "" {
			break
		}
		s = s[1:]
		var name string
		if rest, ok := strings.CutPrefix(s, "{"); ok {
			if name, s, ok = strings.Cut(rest, "}"); !ok {
				return nil, errors.New("${ without }")
			}
		} else {
			n := 0
			for n < len(s) && (isLetter(s[n]) || isDigit(s[n]) || s[n] == '_') {
				n++
			}
			name, s = s[:n], s[n:]
		}
		if name == "" {
			return nil, errors.New("$ without a name")
		}
		if len(f.parts) > 1 && len(last.text) == 0 {
			return nil, fmt.Errorf("$%s stands right after another variable: where one ends can not be told", name)
		}
		v := nginxNames[name]
		if v != varIgnored && have[v] {
			v = varIgnored // the first one counts
		}
		have[v] = true
		f.parts = append(f.parts, nginxPart{v: v})
	}
	var missing []string
	if !have[varAddr] {
		missing = append(missing, "$remote_addr")
	}
	if !have[varTime] {
		missing = append(missing, "$time_local")
	}
	if !have[varRequest] && !(have[varMethod] && have[varURI]) {
		missing = append(missing, "$request")
	}
	if !have[varStatus] {
		missing = append(missing, "$status")
	}
	if missing != nil {
		return nil, fmt.Errorf("%s missing", strings.Join(missing, ", "))
	}
	return f, nil
}

// nginx parses a line by a log_format.
func (p *lineParser) nginx(line []byte, f *nginxFormat) reason {
	e := &p.e
	*e = entry{}
	var v [nginxVars][]byte
	rest, ok := bytes.CutPrefix(line, f.parts[0].text)
	if !ok {
		return badStructure
	}
	for i, part := range f.parts[1:] {
		n := len(rest)
		if len(part.text) > 0 {
			if n = indexUnescaped(rest, part.text, i == len(f.parts)-2); n < 0 {
				return badStructure
			}
		}
		value := rest[:n]
		rest = rest[n+len(part.text):]
		if part.v != varIgnored {
			v[part.v] = value
		}
	}
	if len(rest) > 0 {
		return badStructure
	}
	if e.peer, ok = p.address(v[varAddr]); !ok {
		return badAddress
	}
	if e.time, ok = p.anyTime(v[varTime]); !ok {
		return badTime
	}
	e.host = dash(v[varHost])
	if v[varRequest] != nil {
		ok = e.request(p.unescaped(0, v[varRequest]))
	} else {
		ok = e.methodTarget(v[varMethod], p.unescaped(0, v[varURI]))
	}
	if !ok {
		return badRequest
	}
	if !e.setStatus(v[varStatus]) {
		return badStatus
	}
	e.agent = dash(p.unescaped(1, v[varAgent]))
	e.xff = dash(p.unescaped(2, v[varXFF]))
	e.tag = dash(p.unescaped(3, v[varTag]))
	return lineOK
}

// indexUnescaped finds text; a leading `"` in it must not be escaped. At the end of the format it must end the line.
func indexUnescaped(b, text []byte, last bool) int {
	if last && !bytes.HasSuffix(b, text) {
		return -1
	}
	for from := 0; ; {
		i := bytes.Index(b[from:], text)
		if i < 0 {
			return -1
		}
		i += from
		k := i
		for text[0] == '"' && k > 0 && b[k-1] == '\\' {
			k--
		}
		if (i-k)%2 == 0 && (!last || i+len(text) == len(b)) {
			return i
		}
		from = i + 1
	}
}

func (p *lineParser) unescaped(buf int, b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	p.bufs[buf] = unescapeLog(p.bufs[buf][:0], b)
	return p.bufs[buf]
}

// anyTime reads a time in whichever of the known forms it is.
func (p *lineParser) anyTime(b []byte) (int64, bool) {
	if len(b) > 4 && b[4] == '-' {
		return isoTime(b)
	}
	if len(b) > 2 && b[2] == '/' {
		return p.logTime(b)
	}
	return epochTime(b)
}
