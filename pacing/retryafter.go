package pacing

import (
	"net/http"
	"strings"
	"time"
)

// RetryAfter reads the Retry-After of an answer, as the turns do; of several the longest counts. value is the one that
// does, to be told in an Outcome, and wait what it asks for: zero where there is none that can be read.
func RetryAfter(h http.Header, now time.Time) (value string, wait time.Duration) {
	date := ""
	if d := h["Date"]; len(d) > 0 {
		date = d[0]
	}
	for _, v := range h["Retry-After"] {
		if d, ok := retryAfter(v, date, now, maxWait); ok && (value == "" || d > wait) {
			value, wait = v, d
		}
	}
	return value, wait
}

// retryAfter reads a Retry-After value (RFC 9110 section 10.2.3). Seconds that do not fit count as limit, not as
// invalid; a date is taken against the answer's own Date when that is readable, else against now. What is neither is
// as if absent. The result is between 0 and limit.
func retryAfter(value, date string, now time.Time, limit time.Duration) (time.Duration, bool) {
	v := strings.Trim(value, " \t")
	if v == "" {
		return 0, false
	}
	if d, ok := digits(v, limit); ok {
		return d, true
	}
	if v[0] < 'A' || v[0] > 'Z' { // all three date forms start with a day's name
		return 0, false
	}
	at, ok := httpDate(v, now)
	if !ok {
		return 0, false
	}
	from := now
	if d, ok := httpDate(strings.Trim(date, " \t"), now); ok {
		from = d
	}
	return min(max(at.Sub(from), 0), limit), true
}

// digits reads 1*DIGIT as seconds, more than limit as limit.
func digits(v string, limit time.Duration) (time.Duration, bool) {
	var n int64
	most := int64(limit / time.Second)
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
		if n <= most {
			n = n*10 + int64(v[i]-'0')
		}
	}
	if n > most {
		return limit, true
	}
	return time.Duration(n) * time.Second, true
}

// httpDate reads the three forms of RFC 9110 section 5.6.7. A two-digit year that would lie more than 50 years ahead
// is the most recent past one with those digits.
func httpDate(v string, now time.Time) (time.Time, bool) {
	if v == "" {
		return time.Time{}, false
	}
	if t, err := time.Parse(http.TimeFormat, v); err == nil {
		return t, true
	}
	if t, err := time.Parse("Monday, 02-Jan-06 15:04:05 GMT", v); err == nil {
		year := now.UTC().Year()/100*100 + t.Year()%100
		t = time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
		limit := now.AddDate(50, 0, 0)
		if next := t.AddDate(100, 0, 0); !next.After(limit) {
			t = next
		} else if t.After(limit) {
			t = t.AddDate(-100, 0, 0)
		}
		return t, true
	}
	if t, err := time.Parse(time.ANSIC, v); err == nil {
		return t, true
	}
	return time.Time{}, false
}
