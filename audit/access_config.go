package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AccessConfig is the `audit.access:` block: what the flags of `crawlgate audit access` are when they are not given, each
// under the flag's name with _ for -. A running gate does nothing with it.
type AccessConfig struct {
	Robots           Texts         `mapstructure:"robots"`
	Crawlers         Texts         `mapstructure:"crawlers"`
	Ranges           string        `mapstructure:"ranges"`
	TrustedProxy     Texts         `mapstructure:"trusted_proxy"`
	DNSCache         string        `mapstructure:"dns_cache"`
	DNS              string        `mapstructure:"dns"`
	Sitemap          Texts         `mapstructure:"sitemap"`
	Host             string        `mapstructure:"host"`
	LogFormat        string        `mapstructure:"log_format"`
	Since            string        `mapstructure:"since"`
	Until            string        `mapstructure:"until"`
	Grace            time.Duration `mapstructure:"grace"`
	Delay            bool          `mapstructure:"delay"`
	DelayTolerance   time.Duration `mapstructure:"delay_tolerance"`
	Dedupe           string        `mapstructure:"dedupe"`
	NoVersion        string        `mapstructure:"no_version"`
	Unverified       string        `mapstructure:"unverified"`
	UnreachableLimit time.Duration `mapstructure:"unreachable_limit"`
	As               string        `mapstructure:"as"`
	Top              int           `mapstructure:"top"`
	Workers          int           `mapstructure:"workers"`
	Format           string        `mapstructure:"format"`
	Output           string        `mapstructure:"output"`
	ByPurpose        bool          `mapstructure:"by_purpose"`
	List             string        `mapstructure:"list"`
	FailOn           Texts         `mapstructure:"fail_on"`
}

// Words of the settings that take one of a few.
var (
	AccessFormats  = []string{"table", "json", "csv", "html"}
	AccessFailures = []string{"violations", "impersonated", "malformed", "delay"}

	accessDNS        = []string{"off", "cache", "live"}
	accessDedupe     = []string{"none", "overlap", "lines"}
	accessNoVersion  = []string{"unjudged", "allowed"}
	accessUnverified = []string{"genuine", "impersonated"}
	accessLists      = []string{"violations"}
)

// AccessDefaults is what absent keys mean, and flags that are not given.
func AccessDefaults() AccessConfig {
	return AccessConfig{LogFormat: "auto", Dedupe: accessDedupe[0], NoVersion: accessNoVersion[0], Unverified: accessUnverified[0], UnreachableLimit: 30 * 24 * time.Hour, Top: 10}
}

// validate tells every problem with its key.
func (c AccessConfig) validate(bad func(key, format string, args ...any)) {
	for _, w := range []struct {
		key, value string
		words      []string
		empty      bool
	}{
		{"dns", c.DNS, accessDNS, true}, {"dedupe", c.Dedupe, accessDedupe, false}, {"no_version", c.NoVersion, accessNoVersion, false},
		{"unverified", c.Unverified, accessUnverified, false}, {"format", c.Format, AccessFormats, true}, {"list", c.List, accessLists, true},
	} {
		if !slices.Contains(w.words, w.value) && (w.value != "" || !w.empty) {
			bad(w.key, "%q is not one of %s", w.value, strings.Join(w.words, ", "))
		}
	}
	for i, what := range c.FailOn {
		if !slices.Contains(AccessFailures, what) {
			bad(fmt.Sprintf("fail_on[%d]", i), "%q is not one of %s", what, strings.Join(AccessFailures, ", "))
		} else if what == "delay" && !c.Delay {
			bad(fmt.Sprintf("fail_on[%d]", i), "needs delay: true")
		}
	}
	for i, text := range c.TrustedProxy {
		for one := range strings.SplitSeq(text, ",") {
			if _, err := ParsePrefix(strings.TrimSpace(one)); err != nil {
				bad(fmt.Sprintf("trusted_proxy[%d]", i), "%v", err)
			}
		}
	}
	if _, err := parseLogFormat(c.LogFormat); err != nil {
		bad("log_format", "%v", err)
	}
	since, err := ParseStamp(c.Since)
	if err != nil {
		bad("since", "%v", err)
	}
	until, uerr := ParseStamp(c.Until)
	if uerr != nil {
		bad("until", "%v", uerr)
	}
	if err == nil && uerr == nil && !since.IsZero() && !until.IsZero() && !since.Before(until) {
		bad("until", "is not after since")
	}
	if c.Grace < 0 {
		bad("grace", "%s is negative", c.Grace)
	}
	if c.DelayTolerance < 0 {
		bad("delay_tolerance", "%s is negative", c.DelayTolerance)
	}
	if c.UnreachableLimit <= 0 {
		bad("unreachable_limit", "%s is not above 0", c.UnreachableLimit)
	}
	if c.Top < 1 {
		bad("top", "%d is not above 0", c.Top)
	}
	if c.Workers < 0 {
		bad("workers", "%d is negative: give 0 for all cores", c.Workers)
	}
}

// ParseStamp reads a time of RFC 3339; "" is no time.
func ParseStamp(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is not a time like 2026-01-31T12:00:00Z", s)
	}
	return t, nil
}
