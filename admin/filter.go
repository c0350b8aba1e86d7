package admin

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxFilter is the longest value of a filter, in bytes.
const maxFilter = 512

// filterOf reads client, host, decision, reason and kind; nil selects all.
func filterOf(q url.Values) (func(*record) bool, error) {
	f := filterIn(q)
	for _, v := range []string{f.Client, f.Host, f.Decision, f.Reason, f.Kind} {
		if len(v) > maxFilter {
			return nil, &BadInput{"a filter is longer than 512 bytes"}
		}
	}
	if f.Decision != "" && !slices.Contains(decisions, f.Decision) {
		return nil, &BadInput{"decision is one of " + strings.Join(decisions, ", ")}
	}
	if f == (filter{}) {
		return nil, nil
	}
	return f.match, nil
}

func filterIn(q url.Values) filter {
	return filter{
		Client:   q.Get("client"),
		Host:     strings.ToLower(q.Get("host")),
		Decision: q.Get("decision"),
		Reason:   q.Get("reason"),
		Kind:     q.Get("kind"),
	}
}

type filter struct{ Client, Host, Decision, Reason, Kind string }

func (f filter) match(r *record) bool {
	return (f.Client == "" || f.Client == r.Client) &&
		(f.Host == "" || f.Host == r.Host || strings.HasSuffix(r.Host, "."+f.Host)) &&
		(f.Decision == "" || f.Decision == r.Decision) &&
		(f.Reason == "" || f.Reason == r.Reason) &&
		(f.Kind == "" || f.Kind == r.Kind)
}

// timeOf reads a time: RFC 3339, or a duration back from now ("24h").
func timeOf(name, v string, now time.Time) (time.Time, error) {
	if v == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, nil
	}
	// A form's datetime-local field has no zone; it means the gate's.
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, v, now.Location()); err == nil {
			return t, nil
		}
	}
	if d, err := time.ParseDuration(v); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, &BadInput{name + " is neither a time like 2026-11-30T10:00:00Z nor a duration like 24h"}
}

// intOf reads a number of 1 to most; absent is def.
func intOf(name, v string, def, most int) (int, error) {
	if v == "" {
		return def, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return 0, &BadInput{name + " is not a number from 1 to " + strconv.Itoa(most)}
	}
	return n, nil
}
