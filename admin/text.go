package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// clean makes what strangers wrote fit to be read: characters that do not show,
// or that turn the direction of writing so that one address looks like another,
// are spelled out.
func clean(s string) string {
	plain := true
	for _, r := range s {
		if hidden(r) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// hidden: controls, format characters (zero width, direction), line separators,
// private use, and the replacement character of broken UTF-8.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) || r == unicode.ReplacementChar
}

// short writes a duration for people: 0s, 250ms, 1.2s, 45s, 3m12s, 5h, 2d.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d == 0:
		return "0s"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return pair(int(d.Minutes()), "m", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return pair(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	}
	return pair(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func pair(a int, au string, b int, bu string) string {
	if b == 0 {
		return strconv.Itoa(a) + au
	}
	return strconv.Itoa(a) + au + strconv.Itoa(b) + bu
}

// ago and in say a moment relative to now.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := now.Sub(t); d >= time.Second {
		return short(coarse(d)) + " ago"
	}
	return "now"
}

func in(t, now time.Time) string {
	if d := t.Sub(now); d >= 10*time.Millisecond { // less is over when it is read
		if d > 10*time.Second {
			d = coarse(d)
		}
		return "in " + short(d)
	}
	return "now"
}

// coarse rounds a distance to what a reader cares about.
func coarse(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Minute:
		return d.Truncate(time.Second)
	case d < 48*time.Hour:
		return d.Round(time.Minute)
	}
	return d.Round(time.Hour)
}

// number groups digits: 18 402.
func number[T int | int64 | uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteString("\u202f") // narrow no-break space
		}
		b.WriteRune(c)
	}
	if neg {
		return "-" + b.String()
	}
	return b.String()
}

// size writes bytes for people.
func size(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return strconv.FormatInt(n, 10) + " B"
	case n < unit*unit:
		return strconv.FormatFloat(float64(n)/unit, 'f', 1, 64) + " KiB"
	case n < unit*unit*unit:
		return strconv.FormatFloat(float64(n)/(unit*unit), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(unit*unit*unit), 'f', 1, 64) + " GiB"
}
