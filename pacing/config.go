package pacing

import (
	"errors"
	"fmt"
	"time"
)

// Modes of [ProfileConfig] and of the fields of [Request] with the same names.
const (
	ModeTurns = "turns" // a turn for every request
	ModeNone  = "none"  // no turn, no wait

	KeyHost              = "host"               // one turn per host
	KeyRegistrableDomain = "registrable_domain" // and one per registrable domain

	RedirectFollow  = "follow"   // the target of a redirect just answered goes at once
	CompanionsRide  = "ride"     // a page's files, render and repeat need no turn of their own
	OwnTurn         = "own_turn" // redirect, companions: wait like a page
	RobotsPaced     = "paced"    // robots.txt keeps the profile's gap on both sides
	RobotsFree      = "free"     // robots.txt waits for no gap and leaves none
	WhenDownRefuse  = "refuse"   // without Redis no turn is given
	WhenDownLocal   = "local"    // without Redis each instance keeps gap x instances
	maxLevelAllowed = 16
	maxRecover      = 10000
)

// Config is the `pacing:` block: what holds for every profile.
type Config struct {
	LongestDelay      time.Duration `mapstructure:"longest_delay"`      // a longer robots delay counts as this
	CompanionParallel int           `mapstructure:"companion_parallel"` // riders in flight per key
	CompanionWindow   time.Duration `mapstructure:"companion_window"`   // how long after its end a page turn carries riders
	CompanionBudget   int           `mapstructure:"companion_budget"`   // riders per page turn
	MaxQueue          int           `mapstructure:"max_queue"`          // waiting per key
	MaxQueueClient    int           `mapstructure:"max_queue_client"`   // waiting per key and client
	MaxWaiting        int           `mapstructure:"max_waiting"`        // waiting in the process
	MaxKeys           int           `mapstructure:"max_keys"`           // keys known at once
	IPParallel        int           `mapstructure:"ip_parallel"`        // in flight per dialled address (a /64 for IPv6); 0: no cap
	Backoff           BackoffConfig `mapstructure:"backoff"`
	Slow              SlowConfig    `mapstructure:"slow"`
	Pages             PagesConfig   `mapstructure:"pages"`
	Breaker           BreakerConfig `mapstructure:"breaker"`
	StallTimeout      time.Duration `mapstructure:"stall_timeout"` // no byte moved for so long ends the exchange
	TurnLimit         time.Duration `mapstructure:"turn_limit"`    // longest time a turn is held
	PersistOver       time.Duration `mapstructure:"persist_over"`  // a key that owes more is written to disk
}

// BackoffConfig says how long a host is left alone after a 429, a 5xx or an error.
type BackoffConfig struct {
	Base          time.Duration `mapstructure:"base"`
	Factor        float64       `mapstructure:"factor"`
	Cap           time.Duration `mapstructure:"cap"`
	Jitter        float64       `mapstructure:"jitter"` // 0..1, only ever added
	RetryAfterCap time.Duration `mapstructure:"retry_after_cap"`
	ForgetAfter   time.Duration `mapstructure:"forget_after"` // quiet so long: the count starts again
}

// SlowConfig says when the gap of a host is doubled and when it comes back.
type SlowConfig struct {
	Window       time.Duration `mapstructure:"window"` // two incidents closer than this are sustained
	MaxLevel     int           `mapstructure:"max_level"`
	RecoverAfter int           `mapstructure:"recover_after"` // good answers for one level down
	Decay        time.Duration `mapstructure:"decay"`         // untouched so long: one level down
}

// PagesConfig says when a page that answers 429 or 503 is left for its round.
type PagesConfig struct {
	Retries int           `mapstructure:"retries"`
	Round   time.Duration `mapstructure:"round"`
}

// BreakerConfig says when a host that refuses almost everything is left alone.
type BreakerConfig struct {
	Size    int           `mapstructure:"size"`
	Min     int           `mapstructure:"min"`
	Ratio   float64       `mapstructure:"ratio"`
	Window  time.Duration `mapstructure:"window"`
	OpenFor time.Duration `mapstructure:"open_for"`
	Factor  float64       `mapstructure:"factor"`
	Cap     time.Duration `mapstructure:"cap"`
}

// ProfileConfig is `profiles[].pacing`.
type ProfileConfig struct {
	Mode             string        `mapstructure:"mode"`
	Gap              time.Duration `mapstructure:"gap"`
	Parallel         int           `mapstructure:"parallel"`
	Key              string        `mapstructure:"key"`
	MaxWait          time.Duration `mapstructure:"max_wait"`
	Redirect         string        `mapstructure:"redirect"`
	Companions       string        `mapstructure:"companions"`
	Robots           string        `mapstructure:"robots"`
	CompanionMaxWait time.Duration `mapstructure:"companion_max_wait"`
}

// RedisConfig is the `redis:` block.
type RedisConfig struct {
	URL        string        `mapstructure:"url"`         // redis://host:port/db; empty: one instance, no Redis
	LeaseTTL   time.Duration `mapstructure:"lease_ttl"`   // a crashed holder's turn is free after this
	StoreGrace time.Duration `mapstructure:"store_grace"` // how long a request waits for a Redis that is away
	WhenDown   string        `mapstructure:"when_down"`   // refuse | local
	Instances  int           `mapstructure:"instances"`   // for when_down: local
}

// Defaults is what absent keys of the `pacing:` block mean.
func Defaults() Config {
	return Config{
		LongestDelay: 24 * time.Hour, CompanionParallel: 6, CompanionWindow: 30 * time.Second, CompanionBudget: 200,
		MaxQueue: 256, MaxQueueClient: 64, MaxWaiting: 10000, MaxKeys: 2000000,
		Backoff: BackoffConfig{
			Base: 5 * time.Second, Factor: 2, Cap: time.Hour, Jitter: 0.1,
			RetryAfterCap: 24 * time.Hour, ForgetAfter: 30 * time.Minute,
		},
		Slow:  SlowConfig{Window: 10 * time.Minute, MaxLevel: 6, RecoverAfter: 10, Decay: 30 * time.Minute},
		Pages: PagesConfig{Retries: 3, Round: time.Hour},
		Breaker: BreakerConfig{
			Size: 20, Min: 10, Ratio: 0.9, Window: time.Hour,
			OpenFor: time.Hour, Factor: 2, Cap: 24 * time.Hour,
		},
		StallTimeout: 30 * time.Second, TurnLimit: 10 * time.Minute, PersistOver: 5 * time.Second,
	}
}

// ProfileDefaults is what absent keys of `profiles[].pacing` mean.
func ProfileDefaults() ProfileConfig {
	return ProfileConfig{
		Mode: ModeTurns, Gap: time.Second, Parallel: 1, Key: KeyHost, MaxWait: time.Minute,
		Redirect: RedirectFollow, Companions: CompanionsRide, Robots: RobotsPaced, CompanionMaxWait: 10 * time.Second,
	}
}

// RedisDefaults is what absent keys of the `redis:` block mean.
func RedisDefaults() RedisConfig {
	return RedisConfig{LeaseTTL: 10 * time.Second, StoreGrace: 2 * time.Second, WhenDown: WhenDownRefuse, Instances: 1}
}

// keyError is one thing wrong with one setting.
type keyError struct{ key, text string }

func (e *keyError) Error() string { return e.text }

// Key is the setting's path relative to its block, like `backoff.cap`.
func (e *keyError) Key() string { return e.key }

// problems collects everything that is wrong, so that a user sees it all at once.
type problems []error

func (p *problems) unless(ok bool, key, format string, args ...any) {
	if !ok {
		*p = append(*p, &keyError{key, fmt.Sprintf(format, args...)})
	}
}

func (p *problems) oneOf(key, got string, want ...string) {
	for _, w := range want {
		if got == w {
			return
		}
	}
	*p = append(*p, &keyError{key, fmt.Sprintf("%q is not one of %q", got, want)})
}

// Validate reports every setting that cannot be used, joined; each error has a method Key() string.
func (c Config) Validate() error {
	var p problems
	pos := func(key string, d time.Duration) { p.unless(d > 0, key, "must be above 0, is %v", d) }
	cnt := func(key string, n, least int) { p.unless(n >= least, key, "must be at least %d, is %d", least, n) }
	pos("longest_delay", c.LongestDelay)
	cnt("companion_parallel", c.CompanionParallel, 1)
	p.unless(c.CompanionWindow >= 0, "companion_window", "must not be below 0, is %v", c.CompanionWindow)
	cnt("companion_budget", c.CompanionBudget, 0)
	cnt("max_queue", c.MaxQueue, 1)
	cnt("max_queue_client", c.MaxQueueClient, 1)
	cnt("max_waiting", c.MaxWaiting, 1)
	cnt("max_keys", c.MaxKeys, 1)
	cnt("ip_parallel", c.IPParallel, 0)
	b := c.Backoff
	pos("backoff.base", b.Base)
	p.unless(b.Factor >= 1, "backoff.factor", "must be at least 1, is %v", b.Factor)
	p.unless(b.Base <= b.Cap, "backoff.cap", "must not be below backoff.base (%v), is %v", b.Base, b.Cap)
	p.unless(b.Jitter >= 0 && b.Jitter <= 1, "backoff.jitter", "must be between 0 and 1, is %v", b.Jitter)
	pos("backoff.retry_after_cap", b.RetryAfterCap)
	pos("backoff.forget_after", b.ForgetAfter)
	p.unless(c.Slow.Window >= 0, "slow.window", "must not be below 0, is %v", c.Slow.Window)
	p.unless(c.Slow.MaxLevel >= 0 && c.Slow.MaxLevel <= maxLevelAllowed, "slow.max_level",
		"must be between 0 and %d, is %d", maxLevelAllowed, c.Slow.MaxLevel)
	p.unless(c.Slow.RecoverAfter >= 1 && c.Slow.RecoverAfter <= maxRecover, "slow.recover_after",
		"must be between 1 and %d, is %d", maxRecover, c.Slow.RecoverAfter)
	pos("slow.decay", c.Slow.Decay)
	cnt("pages.retries", c.Pages.Retries, 0)
	pos("pages.round", c.Pages.Round)
	k := c.Breaker
	cnt("breaker.min", k.Min, 1)
	p.unless(k.Min <= k.Size, "breaker.size", "must not be below breaker.min (%d), is %d", k.Min, k.Size)
	p.unless(k.Ratio > 0 && k.Ratio <= 1, "breaker.ratio", "must be above 0 and at most 1, is %v", k.Ratio)
	pos("breaker.window", k.Window)
	pos("breaker.open_for", k.OpenFor)
	p.unless(k.Factor >= 1, "breaker.factor", "must be at least 1, is %v", k.Factor)
	p.unless(k.OpenFor <= k.Cap, "breaker.cap", "must not be below breaker.open_for (%v), is %v", k.OpenFor, k.Cap)
	pos("stall_timeout", c.StallTimeout)
	pos("turn_limit", c.TurnLimit)
	p.unless(c.PersistOver >= 0, "persist_over", "must not be below 0, is %v", c.PersistOver)
	return errors.Join(p...)
}

// Validate reports every setting that cannot be used, joined; each error has a method Key() string.
func (c ProfileConfig) Validate() error {
	var p problems
	p.oneOf("mode", c.Mode, ModeTurns, ModeNone)
	p.unless(c.Gap >= 0, "gap", "must not be below 0, is %v", c.Gap)
	p.unless(c.Parallel >= 1, "parallel", "must be at least 1, is %d", c.Parallel)
	p.oneOf("key", c.Key, KeyHost, KeyRegistrableDomain)
	p.unless(c.MaxWait >= 0, "max_wait", "must not be below 0, is %v", c.MaxWait)
	p.oneOf("redirect", c.Redirect, RedirectFollow, OwnTurn)
	p.oneOf("companions", c.Companions, CompanionsRide, OwnTurn)
	p.oneOf("robots", c.Robots, RobotsPaced, RobotsFree)
	p.unless(c.CompanionMaxWait >= 0, "companion_max_wait", "must not be below 0, is %v", c.CompanionMaxWait)
	return errors.Join(p...)
}

// Warnings are settings that are allowed and yet need a reason: they are meant for hosts of the operator's own.
func (c ProfileConfig) Warnings() []string {
	var w []string
	if c.Mode == ModeNone {
		return nil
	}
	if c.Gap == 0 {
		w = append(w, "gap 0s: pages follow each other without a pause, only for hosts you own")
	}
	if c.Parallel > 1 {
		w = append(w, fmt.Sprintf("parallel %d: several pages of a host at once, only for hosts you own", c.Parallel))
	}
	return w
}

// Validate reports every setting that cannot be used, joined; each error has a method Key() string.
func (c RedisConfig) Validate() error {
	var p problems
	p.unless(c.URL == "" || isRedisURL(c.URL), "url", "not a URL like redis://user:password@host:6379/0 (rediss:// with TLS, unix:// for a socket)")
	p.unless(c.LeaseTTL >= 3*time.Second, "lease_ttl", "must be at least 3s, is %v", c.LeaseTTL)
	p.unless(c.StoreGrace >= 0, "store_grace", "must not be below 0, is %v", c.StoreGrace)
	p.oneOf("when_down", c.WhenDown, WhenDownRefuse, WhenDownLocal)
	p.unless(c.Instances >= 1, "instances", "must be at least 1, is %d", c.Instances)
	return errors.Join(p...)
}
