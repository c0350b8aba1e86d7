package audit

import "bytes"

// jsonLog parses one JSON line; which program wrote it is told by its keys, line by line.
func (p *lineParser) jsonLog(line []byte) reason {
	e := &p.e
	*e = entry{}
	p.headers = p.headers[:0]
	j := &p.json
	if !j.object(line) {
		return badJSON
	}
	switch {
	case bytes.HasPrefix(j.text(jSchema), []byte("crawlgate.audit.event/")):
		return p.ownEvent()
	case j.v[jCFURI] != nil:
		return p.logpush()
	case len(j.v[jRequest]) > 0 && j.v[jRequest][0] == '{':
		return p.caddy()
	}
	return p.nginxJSON()
}

func (p *lineParser) nginxJSON() reason {
	e, j := &p.e, &p.json
	var ok bool
	if e.peer, ok = p.address(j.first(jRemoteAddr, jClientAddr, jRemoteIP)); !ok {
		return badAddress
	}
	if e.time, ok = p.anyTime(j.first(jTimeISO, jTime, jTimestamp, jAtTimestamp, jTimeLocal, jMsec)); !ok {
		return badTime
	}
	e.host = dash(j.first(jHost, jHTTPHost, jServerName))
	if r := j.text(jRequest); r != nil {
		ok = e.request(r)
	} else {
		ok = e.methodTarget(j.text(jRequestMethod), j.text(jRequestURI))
	}
	if !ok {
		return badRequest
	}
	if !e.setStatus(j.text(jStatus)) {
		return badStatus
	}
	e.agent = dash(j.first(jHTTPAgent, jUserAgent))
	e.xff = dash(j.first(jHTTPXFF, jXFF))
	e.tag = dash(j.text(jSentTag))
	return lineOK
}

// logpush parses Cloudflare's Logpush lines.
func (p *lineParser) logpush() reason {
	e, j := &p.e, &p.json
	var ok bool
	if e.peer, ok = p.address(j.text(jClientIP)); !ok {
		return badAddress
	}
	if e.time, ok = p.anyTime(j.text(jCFTime)); !ok {
		return badTime
	}
	e.host = dash(j.text(jCFHost))
	if !e.methodTarget(j.text(jCFMethod), j.text(jCFURI)) {
		return badRequest
	}
	if !e.setStatus(j.text(jCFStatus)) {
		return badStatus
	}
	e.agent = dash(j.text(jCFAgent))
	e.tag = p.header(j.v[jCFHeaders], "x-robots-tag", '\n')
	return lineOK
}

// caddy parses the lines of Caddy's access log. The peer is remote_ip: client_ip is resolved already, by rules that are
// not ours.
func (p *lineParser) caddy() reason {
	e, j := &p.e, &p.json
	ts, status, answer := j.text(jTS), j.text(jStatus), j.v[jRespHeaders]
	request := j.v[jRequest]
	for _, k := range [...]jsonKey{jRemoteIP, jRemoteAddr, jMethod, jHost, jURI, jHeaders} {
		j.v[k] = nil
	}
	j.members(request, 0, func(key, value []byte) {
		switch k := jsonKeyOf(key); k {
		case jRemoteIP, jRemoteAddr, jMethod, jHost, jURI, jHeaders:
			j.v[k] = value
		default:
		}
	})
	var ok bool
	if ip := j.text(jRemoteIP); ip != nil {
		e.peer, ok = p.address(ip)
	} else {
		e.peer, ok = p.addressPort(j.text(jRemoteAddr))
	}
	if !ok {
		return badAddress
	}
	if e.time, ok = p.anyTime(ts); !ok {
		return badTime
	}
	e.host = dash(j.text(jHost))
	if !e.methodTarget(j.text(jMethod), j.text(jURI)) {
		return badRequest
	}
	if !e.setStatus(status) {
		return badStatus
	}
	headers := j.v[jHeaders]
	e.agent = dash(p.header(headers, "user-agent", ' '))
	e.xff = dash(p.header(headers, "x-forwarded-for", ','))
	e.tag = p.header(answer, "x-robots-tag", '\n')
	return lineOK
}

// header gives the values of a header field of a JSON object, joined; names without case, values strings or lists.
func (p *lineParser) header(object []byte, name string, sep byte) []byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	from := len(p.headers)
	add := func(v []byte) {
		if len(v) == 0 || v[0] != '"' {
			return
		}
		if len(p.headers) > from {
			p.headers = append(p.headers, sep)
		}
		p.headers = unescapeJSON(p.headers, v[1:len(v)-1])
	}
	p.json.members(object, 0, func(key, value []byte) {
		if !equalFoldASCII(key, name) || len(value) == 0 {
			return
		}
		if value[0] == '[' {
			p.json.elements(value, 0, add)
		} else {
			add(value)
		}
	})
	if len(p.headers) == from {
		return nil
	}
	return p.headers[from:len(p.headers):len(p.headers)]
}

// equalFoldASCII compares with a name in lower case.
func equalFoldASCII(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// ownEvent parses an event of the gate's own log. Only what was sent to a site is a request; every other event is a
// comment.
func (p *lineParser) ownEvent() reason {
	e, j := &p.e, &p.json
	switch string(j.text(jType)) {
	case TypeRequest, TypeRobots, TypeTunnel:
	default:
		return lineComment
	}
	if string(j.v[jSent]) != "true" {
		return lineComment
	}
	e.own = true
	if c := j.v[jClient]; len(c) > 0 && c[0] == '{' {
		j.members(c, 0, func(key, value []byte) {
			if jsonKeyOf(key) == jIP {
				j.v[jIP] = value
			}
		})
		// Hashed, or none for the gate's own fetches: not an address, and nothing to verify.
		e.peer, _ = p.address(j.text(jIP))
	}
	at := j.text(jSentAt)
	if len(at) == 0 {
		at = j.text(jTime)
	}
	var ok bool
	if e.time, ok = isoTime(at); !ok {
		return badTime
	}
	e.host = j.text(jHost)
	if url := j.text(jURL); len(url) > 0 && !e.methodTarget([]byte("GET"), url) {
		return badRequest
	}
	status := j.text(jStatus)
	if string(status) == "0" {
		status = []byte("000")
	}
	if !e.setStatus(status) {
		return badStatus
	}
	e.agent, e.tag = j.text(jUserAgent), j.text(jRobotsTag)
	return lineOK
}
