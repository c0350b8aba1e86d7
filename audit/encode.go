package audit

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxLine is the longest line in bytes, its end included. Longer values are cut and named in `cut`.
const MaxLine = 16 << 10

// Room that is not the body's: schema, type and seq before it, prev and hash after it.
const frameRoom = 320

// maxList bounds lists (addresses of a name, unfinished ids).
const maxList = 64

// cutSteps are the limits tried, in bytes of JSON text per string, until a line fits: first for the long ones that rules
// need (url, location), second for everything else. The last step always fits: all strings of a type at 64 bytes.
var cutSteps = [...]struct{ urls, others int }{
	{MaxLine, MaxLine}, {12 << 10, 1 << 10}, {8 << 10, 512}, {4 << 10, 256}, {1 << 10, 128}, {64, 64},
}

// appendBody appends an event's keys between seq and prev, each with a leading comma. It cuts until the line fits and
// names in e.Cut what it cut.
func appendBody(b []byte, e *Event) []byte {
	fs := byType[e.Type]
	start := len(b)
	own := e.Cut
	for step, limit := range cutSteps {
		e.Cut = own
		b = appendFields(b[:start], e, fs, limit.urls, limit.others)
		if len(b)-start <= MaxLine-frameRoom || step == len(cutSteps)-1 {
			break
		}
	}
	return b
}

func appendFields(b []byte, e *Event, fs []keyed, urls, others int) []byte {
	for i := range fs {
		f := &fs[i]
		b = append(b, f.lead...)
		switch {
		case f.str != nil:
			limit := others
			if f.key == "url" || f.key == "location" {
				limit = urls
			}
			var cut bool
			if b, cut = appendString(b, f.str(e), limit); cut {
				e.addCut(f.name())
			}
		case f.num != nil:
			b = strconv.AppendInt(b, f.num(e), 10)
		case f.yes != nil:
			b = strconv.AppendBool(b, f.yes(e))
		case f.at != nil:
			b = appendTime(b, f.at(e))
		default:
			var cut bool
			if b, cut = appendList(b, f.list(e), others); cut {
				e.addCut(f.name())
			}
		}
	}
	return b
}

// addCut names a field as shortened; the caller's own list is never written to.
func (e *Event) addCut(name string) {
	if !slices.Contains(e.Cut, name) {
		e.Cut = append(slices.Clip(e.Cut), name)
	}
}

func appendList(b []byte, list []string, limit int) ([]byte, bool) {
	cut := false
	if len(list) > maxList {
		list, cut = list[:maxList], true
	}
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var c bool
		b, c = appendString(b, s, min(limit, 128))
		cut = cut || c
	}
	return append(b, ']'), cut
}

// appendTime writes a time as RFC 3339 in UTC with milliseconds, the zero time as "".
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, `""`...)
	}
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return append(b, `""`...)
	}
	hour, minute, sec := t.Clock()
	ms := t.Nanosecond() / 1e6
	return append(b, '"',
		byte('0'+year/1000), byte('0'+year/100%10), byte('0'+year/10%10), byte('0'+year%10), '-',
		byte('0'+int(month)/10), byte('0'+int(month)%10), '-', byte('0'+day/10), byte('0'+day%10), 'T',
		byte('0'+hour/10), byte('0'+hour%10), ':', byte('0'+minute/10), byte('0'+minute%10), ':',
		byte('0'+sec/10), byte('0'+sec%10), '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z', '"')
}

const hexDigits = "0123456789abcdef"

// plain tells which ASCII bytes stand for themselves in a JSON string: no quote, no backslash, no control character.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendString writes s as a JSON string of at most limit bytes (without its quotes) and tells whether it was cut, never
// inside a character. Control characters, also those above U+007F, line and paragraph separators, direction marks and bytes
// that are not UTF-8 are escaped, so that no value can forge a line or disturb a terminal.
func appendString(b []byte, s string, limit int) ([]byte, bool) {
	b = append(b, '"')
	start := len(b)
	if len(s) > limit+utf8.UTFMax {
		s = s[:limit+utf8.UTFMax] // each byte makes one or more: the limit is passed before this end
	}
	for i := 0; i < len(s); {
		from := i
		for i < len(s) && plain[s[i]] {
			i++
		}
		if i > from {
			if room := limit - (len(b) - start); i-from > room {
				b = append(b, s[from:from+room]...)
				return append(b, '"'), true
			}
			b = append(b, s[from:i]...)
			if i == len(s) {
				break
			}
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		before := len(b)
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case r == utf8.RuneError && n == 1, c < utf8.RuneSelf:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case mustEscape(r):
			b = append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		default:
			b = append(b, s[i:i+n]...)
		}
		if len(b)-start > limit {
			return append(b[:before], '"'), true
		}
		i += n
	}
	return append(b, '"'), false
}

// mustEscape names the characters above U+007F that never stand raw: C1 controls, separators that some readers take for a
// line's end, marks that turn the direction of text, and the byte order mark.
func mustEscape(r rune) bool {
	switch {
	case r < 0xa0:
		return true
	case r < 0x061c:
		return false
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0xfeff:
		return true
	}
	return false
}
