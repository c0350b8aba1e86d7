package audit

import (
	"bytes"
	"strings"
)

// w3cFields are the columns of a W3C extended log, as the latest #Fields line names them: -1 for a column that is not
// there.
type w3cFields struct {
	n                                                       int
	date, time, ip, method, stem, query, status, agent, xff int
	hosts                                                   [3]int
}

const fieldsDirective = "#Fields:"

// parseFields reads a #Fields line; it gives nil when a column that is needed is missing.
func parseFields(line []byte) *w3cFields {
	names := strings.Fields(strings.ToLower(string(line[len(fieldsDirective):])))
	at := func(want ...string) int {
		for _, w := range want {
			for i, n := range names {
				if n == w {
					return i
				}
			}
		}
		return -1
	}
	f := &w3cFields{
		n: len(names), date: at("date"), time: at("time"), ip: at("c-ip"), method: at("cs-method"), stem: at("cs-uri-stem"),
		query: at("cs-uri-query"), status: at("sc-status"), agent: at("cs(user-agent)"),
		xff:   at("x-forwarded-for", "cs(x-forwarded-for)"),
		hosts: [3]int{at("x-host-header"), at("cs-host"), at("cs(host)")},
	}
	if min(f.date, f.time, f.ip, f.method, f.stem, f.status) < 0 {
		return nil
	}
	return f
}

// w3c parses a data line; f is nil before any usable #Fields line.
func (p *lineParser) w3c(line []byte, f *w3cFields) reason {
	e := &p.e
	*e = entry{}
	if len(line) > 0 && line[0] == '#' {
		return lineComment
	}
	if f == nil {
		return badStructure
	}
	sep := byte(' ')
	if bytes.IndexByte(line, '\t') >= 0 {
		sep = '\t'
	} else {
		line = bytes.TrimRight(line, " ")
	}
	var cols [64][]byte
	n := 0
	for rest := line; ; n++ {
		i := bytes.IndexByte(rest, sep)
		v := rest
		if i >= 0 {
			v, rest = rest[:i], rest[i+1:]
		}
		if n < len(cols) {
			cols[n] = v
		}
		if i < 0 {
			n++
			break
		}
	}
	if n != f.n || n > len(cols) {
		return badStructure
	}
	get := func(i int) []byte {
		if i < 0 {
			return nil
		}
		return dash(cols[i])
	}
	var ok bool
	if e.peer, ok = p.address(cols[f.ip]); !ok {
		return badAddress
	}
	day, ok := isoDay(cols[f.date])
	at := cols[f.time]
	if !ok || len(at) < 8 {
		return badTime
	}
	ms, ok := clock(at[:8])
	frac, left, ok2 := fraction(at[8:])
	if !ok || !ok2 || len(left) > 0 {
		return badTime
	}
	e.time = day*86_400_000 + ms + frac
	for _, i := range f.hosts {
		if h := get(i); len(h) > 0 {
			e.host = h
			break
		}
	}
	target := cols[f.stem]
	if q := get(f.query); len(q) > 0 {
		p.bufs[0] = append(append(append(p.bufs[0][:0], target...), '?'), q...)
		target = p.bufs[0]
	}
	if !e.methodTarget(cols[f.method], target) {
		return badRequest
	}
	if !e.setStatus(cols[f.status]) {
		return badStatus
	}
	e.agent, e.xff = get(f.agent), get(f.xff)
	if sep == '\t' {
		e.agent = p.percent(1, e.agent)
		e.xff = p.percent(2, e.xff)
	} else {
		e.agent = p.plus(1, e.agent)
		e.xff = p.plus(2, e.xff)
	}
	return lineOK
}

// percent undoes %XX once.
func (p *lineParser) percent(buf int, b []byte) []byte {
	if bytes.IndexByte(b, '%') < 0 {
		return b
	}
	dst := p.bufs[buf][:0]
	for i := 0; i < len(b); i++ {
		if b[i] == '%' && i+2 < len(b) {
			if h, l := unhex(b[i+1]), unhex(b[i+2]); h >= 0 && l >= 0 {
				dst = append(dst, byte(h<<4|l))
				i += 2
				continue
			}
		}
		dst = append(dst, b[i])
	}
	p.bufs[buf] = dst
	return dst
}

// plus turns + into a blank, as IIS writes it.
func (p *lineParser) plus(buf int, b []byte) []byte {
	if bytes.IndexByte(b, '+') < 0 {
		return b
	}
	dst := append(p.bufs[buf][:0], b...)
	for i, c := range dst {
		if c == '+' {
			dst[i] = ' '
		}
	}
	p.bufs[buf] = dst
	return dst
}
