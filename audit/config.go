package audit

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Defaults and limits.
const (
	defaultMaxSize    = 100 << 20
	defaultKeep       = 30
	defaultQueue      = 8192
	defaultMinFree    = 16 << 20
	defaultCheckpoint = 1000
	defaultFsync      = time.Second
	defaultVerify     = 24 * time.Hour

	minMaxSize   = 64 << 10
	maxQueue     = 1 << 20
	flushEvery   = 50 * time.Millisecond // group commit: written at least this often
	flushBytes   = 256 << 10             // or when so much waits
	maxBuffered  = 64 << 20              // bytes that may wait, whatever the queue's length
	fsyncAlways  = "always"
	syncIntent   = "intent"
	refuse, drop = "refuse", "drop"
)

// Config is the `audit:` block.
type Config struct {
	File            string        `mapstructure:"file"`             // "": audit/crawlgate.jsonl in the state folder
	MaxSize         int64         `mapstructure:"max_size"`         // bytes of a file before it is sealed
	MaxAge          time.Duration `mapstructure:"max_age"`          // age of a file before it is sealed; 0: size only
	Keep            int           `mapstructure:"keep"`             // sealed files kept; 0: all
	Compress        bool          `mapstructure:"compress"`         // gzip sealed files
	Query           string        `mapstructure:"query"`            // secrets, full, names, drop
	FullFor         []string      `mapstructure:"full_for"`         // hosts whose query is kept
	ClientIP        string        `mapstructure:"client_ip"`        // keep, hash
	Fsync           string        `mapstructure:"fsync"`            // a duration, or always: before the answer is given
	Sync            string        `mapstructure:"sync"`             // "" or intent: an event before the request goes out
	OnError         string        `mapstructure:"on_error"`         // refuse, drop
	Queue           int           `mapstructure:"queue"`            // events that may wait for the disk
	MinFree         int64         `mapstructure:"min_free"`         // bytes free below which nothing goes out; 0: not looked at
	CheckpointEvery int           `mapstructure:"checkpoint_every"` // events between signed heads
	CheckpointTo    Texts         `mapstructure:"checkpoint_to"`    // where each signed head also goes: files, URLs, syslog
	// CheckpointCAFile holds roots, beside the system's, for https and syslog+tls.
	CheckpointCAFile string `mapstructure:"checkpoint_ca_file"`
	// VerifyEvery is how often a running gate verifies its own chain, at its start first; 0: never. The program does it,
	// not the log.
	VerifyEvery time.Duration `mapstructure:"verify_every"`
	// Access is about `crawlgate audit access` alone.
	Access AccessConfig `mapstructure:"access"`
}

// Defaults is what absent keys mean.
func Defaults() Config {
	return Config{
		MaxSize: defaultMaxSize, Keep: defaultKeep, Compress: true, Query: "secrets", ClientIP: "keep", Fsync: defaultFsync.String(),
		OnError: refuse, Queue: defaultQueue, MinFree: defaultMinFree, CheckpointEvery: defaultCheckpoint,
		VerifyEvery: defaultVerify, Access: AccessDefaults(),
	}
}

// keyError is a problem of one setting.
type keyError struct{ key, text string }

func (e *keyError) Error() string { return e.text }

// Key is the setting's path inside the block.
func (e *keyError) Key() string { return e.key }

// Validate returns all problems, joined; each has a method Key that names the setting.
func (c Config) Validate() error {
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
	if strings.HasSuffix(c.File, ".gz") {
		bad("file", "%q would be taken for a compressed file: name it .jsonl", c.File)
	}
	if strings.HasSuffix(c.File, string(filepath.Separator)) {
		bad("file", "%q is a folder: name a file", c.File)
	}
	if c.MaxSize < minMaxSize {
		bad("max_size", "%d bytes is below the smallest, %d", c.MaxSize, minMaxSize)
	}
	if c.MaxAge < 0 || c.MaxAge > 0 && c.MaxAge < time.Second {
		bad("max_age", "%s: give 0s or at least 1s", c.MaxAge)
	}
	if c.Keep < 0 {
		bad("keep", "%d is negative: give 0 to keep all files", c.Keep)
	}
	oneOf("query", c.Query, "secrets", "full", "names", "drop")
	for i, h := range c.FullFor {
		if !validHost(h) {
			bad(fmt.Sprintf("full_for[%d]", i), "%q is not a host name: give it without scheme, port and path", h)
		}
	}
	oneOf("client_ip", c.ClientIP, "keep", "hash")
	if _, err := c.fsync(); err != nil {
		bad("fsync", "%v", err)
	}
	if c.Sync != "" {
		oneOf("sync", c.Sync, syncIntent)
	}
	oneOf("on_error", c.OnError, refuse, drop)
	if c.Queue < 16 || c.Queue > maxQueue {
		bad("queue", "%d is not between 16 and %d", c.Queue, maxQueue)
	}
	if c.MinFree < 0 {
		bad("min_free", "%d is negative", c.MinFree)
	}
	if c.CheckpointEvery < 1 {
		bad("checkpoint_every", "%d: at least 1", c.CheckpointEvery)
	}
	for i, text := range c.CheckpointTo {
		if _, err := parseTarget(text); err != nil {
			bad(fmt.Sprintf("checkpoint_to[%d]", i), "%v", err)
		} else if slices.Contains(c.CheckpointTo[:i], text) {
			bad(fmt.Sprintf("checkpoint_to[%d]", i), "is named twice")
		}
	}
	if c.VerifyEvery < 0 || c.VerifyEvery > 0 && c.VerifyEvery < time.Minute {
		bad("verify_every", "%s: give 0s or at least 1m", c.VerifyEvery)
	}
	c.Access.validate(func(key, format string, args ...any) { bad("access."+key, format, args...) })
	return errors.Join(errs...)
}

// Warnings names settings that are allowed and seldom meant.
func (c Config) Warnings() []string {
	var w []string
	if c.Query == "full" {
		w = append(w, "audit.query: full writes session ids and tokens of URLs into the log")
	}
	if c.OnError == drop {
		w = append(w, "audit.on_error: drop lets requests go out that are not recorded")
	}
	for _, t := range parseTargets(c.CheckpointTo) {
		if t.bare() {
			w = append(w, "audit.checkpoint_to: the password for "+t.label+" goes there unencrypted: write https")
		}
	}
	return w
}

// fsync parses the setting: 0 for always.
func (c Config) fsync() (time.Duration, error) {
	if c.Fsync == fsyncAlways {
		return 0, nil
	}
	d, err := time.ParseDuration(c.Fsync)
	if err != nil {
		return 0, fmt.Errorf("%q is neither `always` nor a duration with a unit, like 1s", c.Fsync)
	}
	if d < 10*time.Millisecond || d > time.Hour {
		return 0, fmt.Errorf("%s is not between 10ms and 1h", d)
	}
	return d, nil
}

// path is the live file of the log.
func (c Config) path(stateDir string) string {
	if c.File != "" {
		return c.File
	}
	return filepath.Join(stateDir, "audit", "crawlgate.jsonl")
}

func validHost(h string) bool {
	if _, err := netip.ParseAddr(strings.Trim(h, "[]")); err == nil {
		return true
	}
	return h != "" && len(h) <= 253 && !strings.ContainsAny(h, ":/?#@[]*% \t\\")
}
