package policy

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf16"
)

const (
	// MaxBody is how much of a robots.txt is read, in octets of the decoded body (RFC 9309 2.5: at least 500 KiB).
	MaxBody = 500 << 10
	// maxLine is how much of one line is read, as in the reference parser.
	maxLine = 2083*8 - 1
)

// decode turns a body into text of at most [MaxBody] octets of it: UTF-16 by its byte order mark, else UTF-8 without
// its mark or the first octets of one. A last line that the limit cuts stands in rest.
func decode(raw []byte) (text, rest []byte, truncated bool) {
	whole := true
	if len(raw) > MaxBody {
		truncated = true
		// Of UTF-16 that octet is half a character: which one, nobody has read.
		whole = utf16Order(raw) == nil && (raw[MaxBody] == '\n' || raw[MaxBody] == '\r')
		raw = raw[:MaxBody]
	}
	text = decodeBOM(raw)
	if !whole {
		end := bytes.LastIndexAny(text, "\r\n") + 1
		text, rest = text[:end], text[end:]
	}
	return text, rest, truncated
}

// utf16Order is the byte order of UTF-16 by its mark, nil for everything else.
func utf16Order(raw []byte) binary.ByteOrder {
	switch {
	case len(raw) < 2:
	case raw[0] == 0xFF && raw[1] == 0xFE:
		return binary.LittleEndian
	case raw[0] == 0xFE && raw[1] == 0xFF:
		return binary.BigEndian
	}
	return nil
}

func decodeBOM(raw []byte) []byte {
	if order := utf16Order(raw); order != nil {
		u := make([]uint16, 0, len(raw)/2)
		for i := 2; i+1 < len(raw); i += 2 {
			u = append(u, order.Uint16(raw[i:]))
		}
		return []byte(string(utf16.Decode(u)))
	}
	for _, b := range []byte{0xEF, 0xBB, 0xBF} {
		if len(raw) == 0 || raw[0] != b {
			break
		}
		raw = raw[1:]
	}
	return raw
}

// lines steps through the lines of a text as the library counts them: CRLF, CR and LF each end one.
type lines struct {
	text   []byte
	pos    int
	lf, cr int // the next of each, remembered: a file with only one kind must not be searched again for every line
	n      int32
}

func linesOf(text []byte) lines { return lines{text: text, lf: -1, cr: -1} }

// next gives the span of the next line without its end, and its number in n.
func (l *lines) next() (start, end int, ok bool) {
	if l.pos >= len(l.text) {
		return 0, 0, false
	}
	l.n++
	l.lf, l.cr = l.find(l.lf, '\n'), l.find(l.cr, '\r')
	start, end = l.pos, min(l.lf, l.cr)
	l.pos = end + 1
	if end == l.cr && l.lf == l.cr+1 {
		l.pos++
	}
	return start, end, true
}

func (l *lines) find(at int, c byte) int {
	if at >= l.pos {
		return at
	}
	if i := bytes.IndexByte(l.text[l.pos:], c); i >= 0 {
		return l.pos + i
	}
	return len(l.text)
}

// original is a line that cleaning changed in a way that its value shows: the value is taken from the text as it came.
type original struct{ line, start, end int32 }

// cleaned gives text in a form that the library reads right, line by line, so that its numbers stay; and which lines'
// values are not those of the text any more; count is how many lines may count. See docs/decisions/0002-grobotstxt.md.
func cleaned(text []byte) (body string, changed []original, count int) {
	var out strings.Builder
	out.Grow(len(text))
	var line []byte
	l := linesOf(text)
	for start, end, ok := l.next(); ok; start, end, ok = l.next() {
		if start < end {
			line = append(line[:0], text[start:min(end, start+maxLine)]...)
			kept, differs := cleanLine(line)
			out.Write(kept)
			if len(kept) > 1 {
				count++
			}
			if differs {
				changed = append(changed, original{l.n, int32(start), int32(end)})
			}
		}
		out.Write(text[end:min(l.pos, len(text))])
	}
	return out.String(), changed, count
}

const (
	octetPlain = iota
	octetBlank
	octetColon
	octetHash
	octetPercent
	octetHigh
	octetNUL
)

var octetClass = func() (t [256]uint8) {
	t[' '], t['\t'], t[':'], t['#'], t['%'], t[0] = octetBlank, octetBlank, octetColon, octetHash, octetPercent, octetNUL
	for c := 0x80; c < 0x100; c++ {
		t[c] = octetHigh
	}
	return t
}()

// cleanLine prepares one line in place and tells whether its value is changed by that:
//   - NUL ends the line, as # does: the library would keep it in the pattern;
//   - hex digits of %XX become upper case: the library's own change of case damages the digits;
//   - octets from 0x80 become ?: the library would trim some of them, and make three of each;
//   - the key becomes lower case, which the library would do up to 13 times for one line;
//   - a line whose key none can be becomes an empty comment: the library would look 13 times.
func cleanLine(b []byte) (kept []byte, changed bool) {
	first := 0
	for first < len(b) && asciiSpace(b[first]) {
		first++
	}
	colon, blank := -1, -1
scan:
	for i := first; i < len(b); i++ {
		switch octetClass[b[i]] {
		case octetPlain:
		case octetBlank:
			if blank < 0 {
				blank = i
			}
		case octetColon:
			if colon < 0 {
				colon = i
			}
		case octetNUL:
			b[i] = '#'
			b = b[:i+1]
		case octetHash:
			break scan
		case octetHigh:
			b[i] = '?'
			changed = true
		case octetPercent:
			if i+2 < len(b) && unhex(b[i+1]) >= 0 && unhex(b[i+2]) >= 0 {
				for j := i + 1; j <= i+2; j++ {
					if b[j] >= 'a' {
						b[j] -= 'a' - 'A'
						changed = true
					}
				}
			}
		}
	}
	key := colon
	if colon < 0 {
		key = blank // without a colon the first word is the key
	}
	if key-first < shortestKey || !keyStart[b[first]|0x20] {
		b[0] = '#' // not nothing: CR, an empty line and LF would be one line end
		return b[:1], false
	}
	for i := first; i < key; i++ {
		b[i] = lower(b[i])
	}
	return b, changed
}

// shortestKey is the length of `host`, keyStart the first letters of all keys.
const shortestKey = 4

var keyStart = [256]bool{'u': true, 'a': true, 'd': true, 's': true, 'c': true, 'r': true, 'v': true, 'h': true}
