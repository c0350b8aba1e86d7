package admin

import (
	"testing"
	"time"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":             "plain",
		"ünïcode ✓ 日本":      "ünïcode ✓ 日本",
		"a\u202eb":          `a\u202eb`,
		"a\x00\x1b":         `a\u0000\u001b`,
		"\xff":              `\ufffd`,
		"line\u2028break\n": `line\u2028break\u000a`,
		"\U000E0041":        `\U000e0041`,
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	now := testTime
	for got, want := range map[string]string{
		short(0): "0s", short(250 * time.Millisecond): "250ms", short(1200 * time.Millisecond): "1.2s", short(2 * time.Second): "2s",
		short(45 * time.Second): "45s", short(192 * time.Second): "3m12s", short(5 * time.Hour): "5h", short(72 * time.Hour): "3d", short(-2 * time.Second): "-2s",
		ago(now, now): "now", ago(now.Add(-39*time.Minute-50*time.Second), now): "40m ago", ago(time.Time{}, now): "",
		in(now.Add(700*time.Millisecond), now): "in 700ms", in(now.Add(-time.Second), now): "now", in(now.Add(90*time.Second), now): "in 1m30s",
		number(18402): "18\u202f402", number(-1234): "-1\u202f234", number(7): "7",
		size(12): "12 B", size(17 * 1024): "17.0 KiB", size(3 << 20): "3.0 MiB", size(5 << 30): "5.0 GiB",
		shorten("abcdef", 4): "abc…", shorten("abcd", 4): "abcd",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A name is shortened at its front: two hosts of one owner look alike, two of different owners never do.
func TestShortHost(t *testing.T) {
	for in, want := range map[string]string{"a.example": "a.example", "0123456789.example": "…89.example", "bücher.example.test": "…ample.test"} {
		if got := shortHost(in, 11); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
