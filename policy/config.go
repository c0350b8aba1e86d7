package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Values of the keys of [ProfileConfig].
const (
	ModeObey   = "obey"   // our group, else the * group
	ModeNamed  = "named"  // only a group that names us
	ModeIgnore = "ignore" // robots.txt is not read

	Refuse = "refuse"
	Allow  = "allow"
	Deny   = "deny"
	Keep   = "keep"
	IfRead = "if_read"
	Own    = "own"
	Record = "record"
	Bind   = "bind"
	Ignore = "ignore"

	Enforce = "enforce"
)

// Config is the `robots:` block: what holds for all profiles.
type Config struct {
	// CacheBytes bounds the compiled rules kept in memory.
	CacheBytes int64 `mapstructure:"cache_bytes"`
	// ArchiveMaxAge is how long a version of a file is kept after it was replaced; 0 keeps every one.
	ArchiveMaxAge time.Duration `mapstructure:"archive_max_age"`
	// ArchiveMaxBytes bounds the archive on disk, bodies and index together; 0 does not.
	ArchiveMaxBytes int64 `mapstructure:"archive_max_bytes"`
	// ChallengeMarkers replaces the built-in list of what a bot check looks like; nil keeps it.
	ChallengeMarkers []ChallengeMarker `mapstructure:"challenge_markers"`
}

// Defaults is what absent keys mean: 64 MiB of rules, versions for 400 days, 10 GiB on disk, the built-in markers.
func Defaults() Config {
	return Config{CacheBytes: 64 << 20, ArchiveMaxAge: 400 * 24 * time.Hour, ArchiveMaxBytes: 10 << 30}
}

// ProfileConfig is `profiles[].robots`.
type ProfileConfig struct {
	// Mode is obey, named or ignore.
	Mode string `mapstructure:"mode"`
	// WhenUnreadable is refuse or allow.
	WhenUnreadable string `mapstructure:"when_unreadable"`
	// StopOn are the signals (`key=value`) that count as Disallow: /. Nil takes Query.StopOn, empty means none.
	StopOn []string `mapstructure:"stop_on"`
	// ThirdParty is if_read or own: whether the robots.txt of other hosts' files is only used when known, or read first.
	ThirdParty string `mapstructure:"third_party"`
	// On401403 is allow (RFC 9309 2.3.1.3) or deny.
	On401403 string `mapstructure:"on_401_403"`
	// TooManyRedirects is allow (as for 404, RFC 9309 2.3.1.2) or deny.
	TooManyRedirects string `mapstructure:"too_many_redirects"`
	// StaleUse is how old a copy may become while the file cannot be read again, 24h to 720h (RFC 9309 2.4); 0 is 24h.
	StaleUse time.Duration `mapstructure:"stale_use"`
	// StaleOnError is keep (use the last good copy while the file cannot be read again) or deny.
	StaleOnError string `mapstructure:"stale_on_error"`
	// ResponseSignals is record or bind: whether a signal in an answer's header stops later requests for that URL.
	ResponseSignals string `mapstructure:"response_signals"`
	// VisitTime is ignore or enforce.
	VisitTime string `mapstructure:"visit_time"`
	// NamedGroupStopsAll lets any Disallow in a group that names us stop the whole site.
	NamedGroupStopsAll bool `mapstructure:"named_group_stops_all"`
	// Retries is how often a failed fetch is tried again while somebody waits for it.
	Retries int `mapstructure:"retries"`
}

// ProfileDefaults is what absent keys mean.
func ProfileDefaults() ProfileConfig {
	return ProfileConfig{
		Mode: ModeObey, WhenUnreadable: Refuse, ThirdParty: IfRead, On401403: Allow, TooManyRedirects: Allow,
		StaleUse: maxAge, StaleOnError: Keep, ResponseSignals: Record, VisitTime: Ignore, Retries: 3,
	}
}

// keyError is a problem with one key.
type keyError struct{ key, text string }

func (e *keyError) Error() string { return e.text }

// Key is the path of the key, relative to the struct that was validated.
func (e *keyError) Key() string { return e.key }

// Validate returns all problems, joined; each has a method Key.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, &keyError{key, fmt.Sprintf(format, args...)})
	}
	if c.CacheBytes < 1<<20 {
		bad("cache_bytes", "%d is less than 1 MiB, too little for one large file", c.CacheBytes)
	}
	if c.ArchiveMaxAge < 0 || c.ArchiveMaxAge > 0 && c.ArchiveMaxAge < maxAge {
		bad("archive_max_age", "%v is less than 24h, the longest time a version can be in force", c.ArchiveMaxAge)
	}
	if c.ArchiveMaxBytes < 0 || c.ArchiveMaxBytes > 0 && c.ArchiveMaxBytes < 1<<20 {
		bad("archive_max_bytes", "%d is less than 1 MiB", c.ArchiveMaxBytes)
	}
	for i, m := range c.ChallengeMarkers {
		if problem := m.problem(); problem != "" {
			bad(fmt.Sprintf("challenge_markers[%d]", i), "%s", problem)
		}
	}
	return errors.Join(errs...)
}

// Validate returns all problems, joined; each has a method Key.
func (c ProfileConfig) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, &keyError{key, fmt.Sprintf(format, args...)})
	}
	oneOf := func(key, value string, words ...string) {
		for _, w := range words {
			if value == w {
				return
			}
		}
		bad(key, "%q is not one of %s", value, strings.Join(words, ", "))
	}
	oneOf("mode", c.Mode, ModeObey, ModeNamed, ModeIgnore)
	oneOf("when_unreadable", c.WhenUnreadable, Refuse, Allow)
	oneOf("third_party", c.ThirdParty, IfRead, Own)
	oneOf("on_401_403", c.On401403, Allow, Deny)
	oneOf("too_many_redirects", c.TooManyRedirects, Allow, Deny)
	oneOf("stale_on_error", c.StaleOnError, Keep, Deny)
	oneOf("response_signals", c.ResponseSignals, Record, Bind)
	oneOf("visit_time", c.VisitTime, Ignore, Enforce)
	for i, s := range c.StopOn {
		if k, _ := stopLevel(s); k < 0 {
			bad(fmt.Sprintf("stop_on[%d]", i), "%q is no signal; known are %s", s, knownSignals())
		}
	}
	if c.StaleUse != 0 && (c.StaleUse < maxAge || c.StaleUse > 30*24*time.Hour) {
		bad("stale_use", "%v is not between 24h and 720h", c.StaleUse)
	}
	if c.Retries < 0 || c.Retries > 10 {
		bad("retries", "%d is not between 0 and 10", c.Retries)
	}
	return errors.Join(errs...)
}

// Warnings names what works but is weaker than the site may expect.
func (c ProfileConfig) Warnings() []string {
	var out []string
	if c.Mode == ModeIgnore {
		out = append(out, "robots.mode is ignore: robots.txt is not read")
	}
	if c.WhenUnreadable == Allow {
		out = append(out, "robots.when_unreadable is allow: a site whose robots.txt cannot be read is fetched all the same")
	}
	return out
}

// ValidStop tells whether s (`key=value`) can stand in stop_on.
func ValidStop(s string) bool {
	k, _ := stopLevel(s)
	return k >= 0
}

func knownSignals() string {
	var all []string
	for k, values := range signalValues {
		for _, v := range values {
			all = append(all, signalKeys[k]+"="+v)
		}
	}
	return strings.Join(all, ", ")
}
