package policy

import (
	"math/bits"
	"strings"
	"time"
)

// maxDelay is the longest gap a site can ask for; more counts as this.
const maxDelay = 24 * time.Hour

// delay is one Crawl-delay or Request-rate line.
type delay struct {
	gap    time.Duration
	line   int32
	rate   bool
	window window
}

// visit is one Visit-time line.
type visit struct {
	window window
	line   int32
	val    text
}

// window is a time of day in UTC, both ends included, in minutes; it may cross midnight.
type window struct {
	from, to int16
	set      bool
}

func (w window) contains(t time.Time) bool {
	t = t.UTC()
	m := int16(t.Hour()*60 + t.Minute())
	if w.from <= w.to {
		return w.from <= m && m <= w.to
	}
	return m >= w.from || m <= w.to
}

// until is how long after t the window opens.
func (w window) until(t time.Time) time.Duration {
	t = t.UTC()
	d := time.Date(t.Year(), t.Month(), t.Day(), 0, int(w.from), 0, 0, time.UTC).Sub(t)
	if d < 0 {
		d += 24 * time.Hour
	}
	return d
}

func parseDelay(k kind, value string) (delay, bool) {
	if k == kindCrawlDelay {
		d, ok := parseCrawlDelay(value)
		return delay{gap: d}, ok
	}
	return parseRequestRate(value)
}

// number reads digits with at most one dot, as nanoseconds of unit, capped at [maxDelay]. It tells how much it read.
func number(s string, unit time.Duration) (d time.Duration, n int) {
	digits := 0
	whole, scale := int64(0), int64(unit)
	const most = int64(maxDelay)
	for ; n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
		digits++
		if whole < most {
			whole = whole*10 + int64(s[n]-'0')
		}
	}
	total := most
	if whole <= most/scale {
		total = whole * scale
	}
	if n < len(s) && s[n] == '.' {
		for n++; n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
			digits++
			scale /= 10
			total += int64(s[n]-'0') * scale
		}
	}
	if digits == 0 {
		return 0, 0
	}
	return time.Duration(min(total, most)), n
}

// unitOf is a unit of time by letter or word.
func unitOf(s string, days bool) (time.Duration, bool) {
	switch strings.ToLower(s) {
	case "ms", "msec", "msecs", "millisecond", "milliseconds":
		return time.Millisecond, true
	case "s", "sec", "secs", "second", "seconds":
		return time.Second, true
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute, true
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour, true
	case "d", "day", "days":
		return 24 * time.Hour, days
	}
	return 0, false
}

// letters is the leading run of ASCII letters.
func letters(s string) string {
	i := 0
	for i < len(s) && 'a' <= s[i]|0x20 && s[i]|0x20 <= 'z' {
		i++
	}
	return s[:i]
}

// parseCrawlDelay reads `5`, `0.5`, `.25`, `3.`, with an optional unit; after a blank anything may follow.
func parseCrawlDelay(s string) (time.Duration, bool) {
	_, n := number(s, time.Second)
	if n == 0 {
		return 0, false
	}
	unit, rest := time.Second, s[n:]
	if rest != "" && !asciiSpace(rest[0]) {
		word := letters(rest)
		u, ok := unitOf(word, false)
		if !ok || len(word) < len(rest) && !asciiSpace(rest[len(word)]) {
			return 0, false
		}
		unit = u
	} else if u, ok := unitOf(letters(trimASCII(rest)), false); ok {
		unit = u
	}
	d, _ := number(s, unit)
	return d, true
}

// parseRequestRate reads `pages/period`, the period in seconds or with s, m, h or d, and an optional window HHMM-HHMM.
func parseRequestRate(s string) (delay, bool) {
	d := delay{rate: true}
	pages, period, ok := strings.Cut(s, "/")
	if !ok {
		return d, false
	}
	pages, period = trimASCII(pages), trimASCII(period)
	for i := range len(pages) {
		if pages[i] < '0' || pages[i] > '9' {
			return d, false
		}
	}
	n, i := count(pages), 0
	for i < len(period) && '0' <= period[i] && period[i] <= '9' {
		i++
	}
	if n == 0 || i == 0 {
		return d, false
	}
	digits, rest := period[:i], period[i:]
	unit := time.Second
	word := letters(trimASCII(rest))
	if word != "" {
		u, known := unitOf(word, true)
		glued := !asciiSpace(rest[0])
		if glued && (!known || u < time.Second) {
			return d, false
		}
		if known {
			unit = u
			rest = trimASCII(rest)[len(word):]
		}
	}
	if rest != "" && !asciiSpace(rest[0]) {
		return d, false
	}
	d.gap = ratio(digits, unit, n)
	if w, ok := parseWindow(trimASCII(rest)); ok {
		d.window = w
	}
	return d, true
}

// ratio is period divided by pages, capped; the period is not capped before the division (1000/48h is 172.8 s).
func ratio(digits string, unit time.Duration, pages uint64) time.Duration {
	hi, lo := bits.Mul64(count(digits), uint64(unit))
	if hi >= pages {
		return maxDelay // the quotient has more than 64 bits
	}
	gap, _ := bits.Div64(hi, lo, pages)
	return time.Duration(min(gap, uint64(maxDelay)))
}

// count reads digits; what has more than 18 of them is more than any site means.
func count(digits string) uint64 {
	const most = uint64(1e18)
	n := uint64(0)
	for i := range len(digits) {
		if n = n*10 + uint64(digits[i]-'0'); n > most {
			return most
		}
	}
	return n
}

// parseWindow reads HHMM-HHMM.
func parseWindow(s string) (window, bool) {
	if len(s) < 9 || s[4] != '-' || len(s) > 9 && !asciiSpace(s[9]) {
		return window{}, false
	}
	from, ok1 := clock(s[:4])
	to, ok2 := clock(s[5:9])
	return window{from, to, true}, ok1 && ok2
}

func clock(s string) (int16, bool) {
	v := int16(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		v = v*10 + int16(s[i]-'0')
	}
	h, m := v/100, v%100
	return h*60 + m, m < 60 && (h < 24 || h == 24 && m == 0)
}
