package proxy

import (
	"bytes"
	"strconv"
	"strings"
)

// headScan reads a connection's HTTP/1 request heads along and spoils those that other readers may understand in
// another way than the standard server does: a line that ends in a bare LF, a folded line (RFC 9112 2.2, 5.2), and
// Transfer-Encoding in HTTP/1.0 (6.1). A spoilt head holds a NUL, so the server answers 400. Where it cannot follow (a
// chunked body, after which the connection ends; an upgrade; a tunnel) it stops looking.
type headScan struct {
	off     bool
	spoilt  bool
	connect bool  // a CONNECT, whose head is not followed to its end
	body    int64 // bytes of body to pass over

	lines  int      // lines of this head that ended
	length int      // of the line so far, without its end
	cr     bool     // the last byte was CR
	line   [80]byte // the line's beginning
	http10 bool
	coded  bool
	raises bool // it asks for another protocol
	size   int64

	this headFacts
	// seen are those of the heads that ended, and asked how many of them next gave, where keep is set: several requests
	// may have been read at once.
	keep  bool
	seen  []headFacts
	asked int
}

// headFacts are what the library does not tell of a head.
type headFacts struct {
	named  bool   // it has Host
	coding coding // what Transfer-Encoding names
}

// next gives the facts of the next head in the order of their coming. It reports false for one that was not followed to
// its end.
func (s *headScan) next() (f headFacts, followed bool) {
	if s.asked == len(s.seen) {
		return f, false
	}
	f = s.seen[s.asked]
	if s.asked++; s.asked == len(s.seen) {
		s.seen, s.asked = s.seen[:0], 0
	}
	return f, true
}

// begun tells whether a head has begun and not ended.
func (s *headScan) begun() bool { return !s.off && s.lines+s.length > 0 }

type coding uint8

const (
	codingNone coding = iota
	codingChunked
	codingUnknown // one that the server does not know, or several
)

// scan looks at bytes that were read, and spoils them in place.
func (s *headScan) scan(p []byte) {
	for len(p) > 0 && !s.off {
		if s.body > 0 {
			n := min(s.body, int64(len(p)))
			s.body -= n
			p = p[n:]
			continue
		}
		if s.length == 0 && !s.cr && s.lines > 0 && (p[0] == ' ' || p[0] == '\t') {
			p[0], s.off, s.spoilt = 0, true, true
			return
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			s.take(p)
			return
		}
		if cr := i > 0 && p[i-1] == '\r' || i == 0 && s.cr; !cr {
			p[i], s.off, s.spoilt = 0, true, true
			return
		}
		s.take(p[:i])
		s.length-- // its CR
		if !s.ends() {
			p[i], s.off, s.spoilt = 0, true, true
			return
		}
		s.length, s.cr = 0, false
		p = p[i+1:]
	}
}

// take adds to the line.
func (s *headScan) take(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.length < len(s.line) {
		copy(s.line[s.length:], p)
	}
	s.length += len(p)
	s.cr = p[len(p)-1] == '\r'
}

// ends handles the end of a line and reports whether the head may go on.
func (s *headScan) ends() bool {
	whole := s.length <= len(s.line)
	line := s.line[:min(s.length, len(s.line))]
	switch {
	case s.length == 0 && s.lines == 0:
		return true // an empty line before a head is passed over (RFC 9112 2.2), or refused by the server
	case s.length == 0:
		s.headEnds()
		return true
	case s.lines == 0:
		s.this = headFacts{}
		s.connect = bytes.HasPrefix(line, []byte("CONNECT "))
		s.off = s.connect
		s.http10 = bytes.HasSuffix(line, []byte(" HTTP/1.0"))
		if !whole {
			s.http10 = false // its end was not kept; such a target is refused for its length or harmless
		}
	default:
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch strings.ToLower(string(name)) {
		case "transfer-encoding":
			if s.this.coding = codingChunked; s.coded || !whole || !strings.EqualFold(string(bytes.TrimSpace(value)), "chunked") {
				s.this.coding = codingUnknown
			}
			s.coded = true
			if s.http10 {
				return false
			}
		case "content-length":
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil || !whole {
				s.off = true // refused by the server, or not to be followed
			}
			s.size = n
		case "host":
			s.this.named = true
		case "upgrade":
			s.raises = true
		}
	}
	s.lines++
	return true
}

func (s *headScan) headEnds() {
	s.off = s.coded || s.raises
	if s.keep {
		s.seen = append(s.seen, s.this)
	}
	s.body = s.size
	s.lines, s.size, s.coded, s.http10, s.raises = 0, 0, false, false, false
}
