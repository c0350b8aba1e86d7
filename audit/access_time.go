package audit

import (
	"bytes"
	"math"
	"strconv"
)

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// unixDay is the number of days since 1970-01-01; ok is false for a date that does not exist.
func unixDay(y, m, d int) (day int64, ok bool) {
	if m < 1 || m > 12 || d < 1 || d > daysIn(y, m) {
		return 0, false
	}
	// Days from civil, with March as the first month.
	yy := int64(y)
	if m <= 2 {
		yy--
	}
	era := yy / 400
	if yy < 0 {
		era = (yy - 399) / 400
	}
	yoe := yy - era*400
	doy := int64((153*((m+9)%12)+2)/5 + d - 1)
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468, true
}

func daysIn(y, m int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// number reads n digits at b[i:], -1 if they are none.
func number(b []byte, i, n int) int {
	if i+n > len(b) {
		return -1
	}
	v := 0
	for _, c := range b[i : i+n] {
		if !isDigit(c) {
			return -1
		}
		v = v*10 + int(c-'0')
	}
	return v
}

// clock reads hh:mm:ss in ms; second 60 counts as 59.
func clock(b []byte) (ms int64, ok bool) {
	if len(b) != 8 || b[2] != ':' || b[5] != ':' {
		return 0, false
	}
	h, m, s := number(b, 0, 2), number(b, 3, 2), number(b, 6, 2)
	if h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60 {
		return 0, false
	}
	return int64(h*3600+m*60+min(s, 59)) * 1000, true
}

// fraction reads `.ddd...` at the start of b, cut to ms.
func fraction(b []byte) (ms int64, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' && b[0] != ',' {
		return 0, b, true
	}
	i, scale := 1, int64(100)
	for i < len(b) && isDigit(b[i]) {
		ms += int64(b[i]-'0') * scale
		scale /= 10
		i++
	}
	return ms, b[i:], i > 1
}

// offset reads Z, +hh:mm or +hhmm in ms.
func offset(b []byte) (ms int64, ok bool) {
	if len(b) == 1 && b[0]|0x20 == 'z' {
		return 0, true
	}
	if len(b) < 5 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, m := number(b, 1, 2), -1
	switch {
	case len(b) == 5:
		m = number(b, 3, 2)
	case len(b) == 6 && b[3] == ':':
		m = number(b, 4, 2)
	}
	if h < 0 || h > 23 || m < 0 || m > 59 {
		return 0, false
	}
	ms = int64(h*60+m) * 60_000
	if b[0] == '-' {
		ms = -ms
	}
	return ms, true
}

// logTime reads `02/Jan/2006:15:04:05 -0700`, also with a fraction of the second.
func (p *lineParser) logTime(b []byte) (int64, bool) {
	if len(b) == len(p.clock.text) && string(b) == string(p.clock.text[:]) {
		return p.clock.ms, true
	}
	if len(b) < 26 || b[2] != '/' || b[6] != '/' || b[11] != ':' {
		return 0, false
	}
	i := bytes.Index([]byte(months), b[3:6])
	if i < 0 || i%3 != 0 {
		return 0, false
	}
	y, d := number(b, 7, 4), number(b, 0, 2)
	day, ok := unixDay(y, i/3+1, d)
	at, ok2 := clock(b[12:20])
	if y < 0 || !ok || !ok2 {
		return 0, false
	}
	ms, rest, ok := fraction(b[20:])
	if !ok || len(rest) != 6 || rest[0] != ' ' {
		return 0, false
	}
	off, ok := offset(rest[1:])
	if !ok {
		return 0, false
	}
	t := day*86_400_000 + at + ms - off
	if len(b) == len(p.clock.text) {
		copy(p.clock.text[:], b)
		p.clock.ms = t
	}
	return t, true
}

// isoTime reads RFC 3339; a blank may stand for the T.
func isoTime(b []byte) (int64, bool) {
	if len(b) < 20 || b[10]|0x20 != 't' && b[10] != ' ' {
		return 0, false
	}
	day, ok := isoDay(b[:10])
	at, ok2 := clock(b[11:19])
	if !ok || !ok2 {
		return 0, false
	}
	ms, rest, ok := fraction(b[19:])
	if !ok {
		return 0, false
	}
	off, ok := offset(rest)
	return day*86_400_000 + at + ms - off, ok
}

func isoDay(b []byte) (int64, bool) {
	if len(b) != 10 || b[4] != '-' || b[7] != '-' {
		return 0, false
	}
	y, m, d := number(b, 0, 4), number(b, 5, 2), number(b, 8, 2)
	if y < 0 {
		return 0, false
	}
	return unixDay(y, m, d)
}

// epochTime reads seconds since 1970 with a fraction, rounded to microseconds and cut to ms; a larger number is in
// milliseconds (above 10^11) or nanoseconds (above 10^14).
func epochTime(b []byte) (int64, bool) {
	i, n := 0, int64(0)
	for i < len(b) && i < 18 && isDigit(b[i]) {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	if i > 0 && i == len(b) {
		switch {
		case n > 100_000_000_000_000:
			return n / 1_000_000, true
		case n > 100_000_000_000:
			return n, true
		}
		return n * 1000, true
	}
	if i > 0 && i < 12 && b[i] == '.' && len(b)-i-1 <= 6 && len(b) > i+1 {
		f, scale := int64(0), int64(100_000)
		for _, c := range b[i+1:] {
			if !isDigit(c) {
				return 0, false
			}
			f += int64(c-'0') * scale
			scale /= 10
		}
		return n*1000 + f/1000, true
	}
	for _, c := range b {
		if !isDigit(c) && c != '.' && c|0x20 != 'e' && c != '+' && c != '-' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(string(b), 64)
	switch {
	case err != nil || math.IsNaN(f) || f < -1e10 || f > 1e20:
		return 0, false
	case f > 1e14:
		f /= 1e9
	case f > 1e11:
		f /= 1e3
	}
	return floorDiv(int64(math.Round(f*1e6)), 1000), true
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
