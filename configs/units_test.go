package configs

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0s": 0, "1s": time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute, "2d": 48 * time.Hour,
		"1d12h": 36 * time.Hour, "0d": 0, " 5s ": 5 * time.Second, "106751d": 106751 * 24 * time.Hour,
	} {
		got, err := parseDuration(in)
		if err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", in, got, err, want)
		}
		if again, err := parseDuration(formatDuration(got)); err != nil || again != got {
			t.Errorf("%s is written %s and read %s, %v", got, formatDuration(got), again, err)
		}
	}
	for _, in := range []string{"", "0", "1", "1.5", "-1s", "1 s", "1y", "1w", "d", "1d1d", "s", "1e3s", "106752d", "99999999999999999999d", "106751d100h", "inf", "NaN", "1d-1s"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("%q is %s", in, got)
		}
	}
	for in, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 100 * time.Minute: "1h40m", 24 * time.Hour: "24h",
		time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m", 1500 * time.Millisecond: "1.5s",
	} {
		if got := formatDuration(in); got != want {
			t.Errorf("%d is %s, want %s", in, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "10kB": 10_000, "64MiB": 64 << 20, "64 MiB": 64 << 20, "1GiB": 1 << 30, "1.5GiB": 3 << 29, "2TB": 2e12, "8388607TiB": 8388607 << 40,
	} {
		got, err := parseSize(in)
		if err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", in, got, err, want)
		}
		if again, err := parseSize(formatSize(got)); err != nil || again != got {
			t.Errorf("%d is written %s and read %d, %v", got, formatSize(got), again, err)
		}
	}
	for _, in := range []string{"", "-1", "1.5", "1.5B", "64mb", "64M", "64mib", "B", "MiB", "1e3", "0x10", "1_000", "8388608TiB", "9223372036854775808", "1.2.3MB", "1PB", "9e30TiB", "99999999999.5TiB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q is %d", in, got)
		}
	}
	for in, want := range map[int64]string{0: "0", 1: "1", 1000: "1kB", 1024: "1KiB", 1500: "1500", 100 << 20: "100MiB", 1 << 30: "1GiB", 10_000_000: "10MB"} {
		if got := formatSize(in); got != want {
			t.Errorf("%d is %s, want %s", in, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"listen", "admin", "state_dir", "profiles", "clients", "enforce", "token_file", "gap"}
	for in, want := range map[string]string{
		"listne": "listen", "Listen": "listen", "profile": "profiles", "client": "clients", "statedir": "state_dir", "token": "token_file", "file": "token_file",
		"zzz": "", "x": "", "gp": "gap", "enforced": "enforce", "": "",
	} {
		if got := nearest(in, keys); got != want {
			t.Errorf("%q means %q, want %q", in, got, want)
		}
	}
}
