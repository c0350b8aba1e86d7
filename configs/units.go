package configs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseDuration reads a duration that must carry a unit: Go's form, with an optional count of days (24 h) in front.
// Negative durations have no meaning in any key and are refused.
func parseDuration(s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	if t == "" {
		return 0, errors.New(`is empty; write a duration such as 1s`)
	}
	if _, err := strconv.ParseFloat(t, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit; write %ss", s, t)
	}
	if strings.HasPrefix(t, "-") {
		return 0, fmt.Errorf("%q is negative", s)
	}
	var days time.Duration
	if n, rest, ok := strings.Cut(t, "d"); ok && digits(n) {
		v, err := strconv.ParseInt(n, 10, 64)
		if err != nil || v > int64(math.MaxInt64/(24*time.Hour)) {
			return 0, fmt.Errorf("%q is too long", s)
		}
		if days = time.Duration(v) * 24 * time.Hour; rest == "" {
			return days, nil
		}
		t = rest
	}
	d, err := time.ParseDuration(t)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write a number with ms, s, m, h or d, such as 90s", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	if days+d < d {
		return 0, fmt.Errorf("%q is too long", s)
	}
	return days + d, nil
}

var sizeUnits = []struct {
	name string
	n    int64
}{
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1},
}

// parseSize reads a count of bytes: 64MiB, 10kB, 1.5GiB, or plain bytes.
func parseSize(s string) (int64, error) {
	t := strings.TrimSpace(s)
	if strings.HasPrefix(t, "-") {
		return 0, fmt.Errorf("%q is negative", s)
	}
	end := strings.IndexFunc(t, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(t)
	}
	num, unit := t[:end], strings.TrimSpace(t[end:])
	factor := int64(1)
	if unit != "" {
		if factor = sizeUnit(unit); factor == 0 {
			for _, u := range sizeUnits {
				if strings.EqualFold(u.name, unit) || strings.EqualFold(strings.TrimSuffix(u.name, "B"), unit) {
					return 0, fmt.Errorf("%q has no known unit; did you mean %s%s?", s, num, u.name)
				}
			}
			return 0, fmt.Errorf("%q is not a size; write bytes, or a number with kB, MB, GB, KiB, MiB or GiB", s)
		}
	}
	if digits(num) {
		v, err := strconv.ParseInt(num, 10, 64)
		if err != nil || v > math.MaxInt64/factor {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return v * factor, nil
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || factor == 1 {
		return 0, fmt.Errorf("%q is not a size; write bytes, or a number with kB, MB, GB, KiB, MiB or GiB", s)
	}
	if f *= float64(factor); f >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return int64(f), nil
}

func sizeUnit(name string) int64 {
	for _, u := range sizeUnits {
		if u.name == name {
			return u.n
		}
	}
	return 0
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// formatDuration is the shortest form that parseDuration reads back: 90s, 1h30m, 24h.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	s := d.String()
	if d >= time.Minute && strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if d >= time.Hour && strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// formatSize writes whole binary units where it can: 64MiB, else whole decimal ones, else bytes.
func formatSize(n int64) string {
	for _, u := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if f := sizeUnit(u); n >= f && n%f == 0 {
			return fmt.Sprintf("%d%s", n/f, u)
		}
	}
	for _, u := range []string{"TB", "GB", "MB", "kB"} {
		if f := sizeUnit(u); n >= f && n%f == 0 {
			return fmt.Sprintf("%d%s", n/f, u)
		}
	}
	return strconv.FormatInt(n, 10)
}
