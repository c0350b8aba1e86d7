package pacing

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

var fuzzNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRetryAfterOfAnAnswer(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const date, late = "Thu, 01 Jan 2026 00:10:00 GMT", "Thu, 01 Jan 2026 00:10:20 GMT"
	for _, c := range []struct {
		lines []string
		value string
		wait  time.Duration
	}{
		{nil, "", 0},
		{[]string{"soon", "+30", ""}, "", 0},
		{[]string{"0"}, "0", 0},
		{[]string{"5", "30", "7"}, "30", 30 * time.Second},
		{[]string{"soon", late, "19"}, late, 20 * time.Second},
		{[]string{"5", "99999999999999999999"}, "99999999999999999999", maxWait},
	} {
		h := http.Header{"Date": {date}, "Retry-After": c.lines}
		if value, wait := RetryAfter(h, now); value != c.value || wait != c.wait {
			t.Errorf("%q: %q, %v", c.lines, value, wait)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"0", "", 0, true},
		{" 12\t", "", 12 * time.Second, true},
		{"86400", "", day, true},
		{"86401", "", day, true},
		{"99999999999999999999999", "", day, true},
		{"9223372036854775808", "", day, true},
		{"00000000000000000000000000005", "", 5 * time.Second, true},
		{"", "", 0, false},
		{"-5", "", 0, false},
		{"+30", "", 0, false},
		{"1.5", "", 0, false},
		{"1e1", "", 0, false},
		{"0x10", "", 0, false},
		{"10 s", "", 0, false},
		{"soon", "", 0, false},
		{"１２", "", 0, false},
		{"2026-01-01T00:01:00Z", "", 0, false},
		{"Thu, 01 Jan 2026 00:00:20 GMT", "", 20 * time.Second, true},
		{"Thu, 01 Jan 2026 00:00:20 UTC", "", 0, false},
		{"Thursday, 01-Jan-26 00:00:20 GMT", "", 20 * time.Second, true},
		{"Thu Jan  1 00:00:20 2026", "", 20 * time.Second, true},
		{"Thu, 01 Jan 2026 10:00:20 GMT", "Thu, 01 Jan 2026 10:00:00 GMT", 20 * time.Second, true},
		{"Thu, 01 Jan 2026 00:00:20 GMT", "yesterday", 20 * time.Second, true},
		{"Wed, 31 Dec 2025 00:00:00 GMT", "", 0, true},
		{"Fri, 01 Jan 2100 00:00:00 GMT", "", day, true},
		{"Friday, 01-Jan-75 00:00:00 GMT", "", day, true},    // 2075, not past
		{"Saturday, 01-Jan-77 00:00:00 GMT", "", 0, true},    // 1977
		{"Wednesday, 01-Jan-70 00:00:00 GMT", "", day, true}, // 2070
	} {
		got, ok := retryAfter(tc.value, tc.date, fuzzNow, day)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%q (Date %q): %v %v, want %v %v", tc.value, tc.date, got, ok, tc.want, tc.ok)
		}
	}
	at := time.Date(2099, 12, 31, 0, 0, 0, 0, time.UTC) // the turn of a century
	if got, ok := httpDate("Friday, 01-Jan-00 00:00:00 GMT", at); !ok || got.Year() != 2100 {
		t.Error(got, ok)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{"12", "-5", "99999999999999999999", "Thu, 01 Jan 2026 00:00:20 GMT", "Thu Jan  1 00:00:15 2026", "Thursday, 01-Jan-26 00:00:15 GMT", " 1 ", ""} {
		f.Add(v, "")
		f.Add(v, "Thu, 01 Jan 2026 00:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		const limit = 24 * time.Hour
		d, ok := retryAfter(value, date, fuzzNow, limit)
		if d < 0 || d > limit || !ok && d != 0 {
			t.Fatalf("%q: %v %v", value, d, ok)
		}
		v := strings.Trim(value, " \t")
		if v != "" && strings.Trim(v, "0123456789") == "" && !ok {
			t.Fatalf("digits %q refused", value)
		}
		if at, err := time.Parse(http.TimeFormat, v); err == nil && date == "" {
			if want := min(max(at.Sub(fuzzNow), 0), limit); d != want {
				t.Fatalf("%q: %v, want %v", value, d, want)
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"end":1767225600000,"gap":1000000000,"hold":1767225700000,"fails":3,"level":2,"level_at":1767225600000}`))
	f.Add([]byte(`{"v":1,"window":[3534451200001],"open_until":9223372036854775807,"opens":3,"pages":{"0011223344556677":[1,4]}}`))
	f.Add([]byte(`{"v":1,"end":-9223372036854775808,"robots_end":9223372036854775807}`))
	f.Add([]byte(`{`))
	c := Defaults()
	p, err := newPacer(c, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const now, wall = int64(time.Second), int64(1767225600000)
		k, err := p.decode("h.test", b, now, wall)
		if err != nil {
			return
		}
		day := int64(27 * time.Hour)
		if k.lastEnd > now || k.robotsEnd > now || k.incidentAt > now || k.levelAt > now || k.holdUntil > now+day || k.openUntil > now+day {
			t.Fatalf("a time too far ahead: %+v", k)
		}
		w := want{class: classPage, gap: time.Second}
		if at := k.nextAt(&c, &w); at > now+day*64 || at < never {
			t.Fatalf("next at %d", at)
		}
		k.settled(&c, now)
		again, err := json.Marshal(k.record(&c, now, wall))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.decode("h.test", again, now, wall); err != nil {
			t.Fatalf("our own record %s: %v", again, err)
		}
	})
}

func FuzzWakeUp(f *testing.F) {
	f.Add("h.test", "1000000", "abc")
	f.Add("h.test", "-1", "")
	f.Add("h.test", "99999999999999999999", "x")
	p, err := newPacer(Defaults(), nil)
	if err != nil {
		f.Fatal(err)
	}
	p.shared = newSharing(p, nil, RedisDefaults(), "me")
	s, hash := p.shard("h.test")
	a := &asker{wake: make(chan struct{}, 1)}
	k := newEntry("h.test", newState(never))
	k.ext = &ext{asker: a}
	s.add(hash, k)
	f.Fuzz(func(t *testing.T, name, wait, first string) {
		p.heard(name, wait, first)
		if d := a.sleep.Load(); d < 0 {
			t.Fatal(d)
		}
	})
}
