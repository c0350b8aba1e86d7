package audit

import (
	"bytes"
	"net/netip"
)

// squid parses Squid's native format:
//
//	time elapsed address code/status bytes method URL user hierarchy/peer type
func (p *lineParser) squid(line []byte) reason {
	e := &p.e
	*e = entry{}
	var f [10][]byte
	rest := line
	for i := range f {
		rest = trimSpace(rest)
		if len(rest) == 0 {
			return badStructure
		}
		f[i], rest = nextField(rest)
	}
	slash := bytes.IndexByte(f[3], '/')
	if slash < 0 {
		return badStructure
	}
	var ok bool
	if e.peer, ok = p.address(f[2]); !ok {
		return badAddress
	}
	if e.time, ok = epochTime(f[0]); !ok {
		return badTime
	}
	if !e.methodTarget(f[5], f[6]) {
		return badRequest
	}
	if !e.setStatus(f[3][slash+1:]) {
		return badStatus
	}
	return lineOK
}

// alb parses lines of an AWS application load balancer:
//
//	type time elb client:port target:port 3 times elb_status target_status received sent "request" "agent" ...
func (p *lineParser) alb(line []byte) reason {
	e := &p.e
	*e = entry{}
	var f [12][]byte
	rest := line
	for i := range f {
		if len(rest) == 0 {
			return badStructure
		}
		if f[i], rest = nextField(rest); len(f[i]) == 0 {
			return badStructure
		}
	}
	request, rest, ok := p.quoted(rest, 0)
	if !ok || !isLower(f[0]) {
		return badStructure
	}
	agent, _, ok := p.quoted(trimSpace(rest), 1)
	if !ok {
		return badStructure
	}
	if e.peer, ok = p.addressPort(f[3]); !ok {
		return badAddress
	}
	if e.time, ok = isoTime(f[1]); !ok {
		return badTime
	}
	if !e.request(request) {
		return badRequest
	}
	if !e.setStatus(f[8]) {
		return badStatus
	}
	e.agent = dash(agent)
	return lineOK
}

// isLower tells whether a type like `https` or `h2` stands here.
func isLower(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && !isDigit(c) {
			return false
		}
	}
	return isLetter(b[0])
}

// addressPort reads addr:port; IPv6 with or without brackets.
func (p *lineParser) addressPort(b []byte) (a netip.Addr, ok bool) {
	i := bytes.LastIndexByte(b, ':')
	if i < 0 || !isPort(b[i:]) {
		return p.address(b)
	}
	addr := b[:i]
	if len(addr) > 1 && addr[0] == '[' && addr[len(addr)-1] == ']' {
		addr = addr[1 : len(addr)-1]
	}
	return p.address(addr)
}
