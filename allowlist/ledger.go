package allowlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What a ledger entry does.
const (
	ActionStop = "stop" // no request to the host
	ActionSlow = "slow" // at least Gap between requests
)

// MaxGap is the longest gap of a slow entry.
const MaxGap = 24 * time.Hour

// Entry is one wish of a site's owner, as the operator entered it.
type Entry struct {
	Host       string        `json:"host"` // canonical, without port
	Action     string        `json:"action"`
	Gap        time.Duration `json:"gap_ns,omitempty"`
	Subdomains bool          `json:"subdomains,omitempty"` // for the hosts below as well
	Reason     string        `json:"reason,omitempty"`
	Who        string        `json:"who,omitempty"`
	When       time.Time     `json:"when"`
}

// Covers tells whether the entry holds for a canonical host.
func (e *Entry) Covers(host string) bool {
	return host == e.Host || e.Subdomains && strings.HasSuffix(host, "."+e.Host)
}

// stricter orders entries that hold for one host: a stop before any slow, then the longer gap.
func (e *Entry) stricter(than *Entry) bool {
	if e.Action != than.Action {
		return e.Action == ActionStop
	}
	return e.Gap > than.Gap
}

func (e *Entry) equal(f *Entry) bool {
	a, b := *e, *f
	a.When, b.When = time.Time{}, time.Time{}
	return a == b && e.When.Equal(f.When)
}

// Change is one change of the ledger. After is nil when the host was resumed; Before is nil when it had no entry.
type Change struct {
	Host          string
	Before, After *Entry
}

// LedgerStore keeps the entries. Each method returns when the change is durable.
type LedgerStore interface {
	LoadEntries() ([]Entry, error)
	PutEntry(Entry) error
	DeleteEntry(host string) error
}

// readEntry decodes an entry as a store keeps it.
func readEntry(host string, v []byte) (e Entry, err error) {
	if err := json.Unmarshal(v, &e); err != nil {
		return e, fmt.Errorf("entry of %q: %w", host, err)
	}
	if e.Host != host || e.Action != ActionStop && e.Action != ActionSlow {
		return e, fmt.Errorf("entry of %q is not one of this version", host)
	}
	return e, nil
}

// Ledger is the operator's ledger of site owners' wishes. Reading it takes no lock.
type Ledger struct {
	store   LedgerStore // nil: memory only
	log     *slog.Logger
	entries atomic.Pointer[map[string]Entry]

	mu       sync.Mutex // writers, and the order of callbacks
	onChange []func(Change)
}

// NewLedger reads the ledger from its store; a nil store keeps it in memory.
func NewLedger(store LedgerStore, log *slog.Logger) (*Ledger, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{store: store, log: log}
	m, err := l.load()
	if err != nil {
		return nil, err
	}
	l.entries.Store(&m)
	return l, nil
}

func (l *Ledger) load() (map[string]Entry, error) {
	m := map[string]Entry{}
	if l.store == nil {
		return m, nil
	}
	list, err := l.store.LoadEntries()
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	for _, e := range list {
		m[e.Host] = e
	}
	return m, nil
}

// OnChange registers a function that is called after every change, in order, while no other change can happen. It must
// not change the ledger.
func (l *Ledger) OnChange(f func(Change)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onChange = append(l.onChange, f)
}

// Get gives the strictest entry that holds for a host, its own or one above it with Subdomains.
func (l *Ledger) Get(host string) (Entry, bool) {
	m := *l.entries.Load()
	if len(m) == 0 {
		return Entry{}, false
	}
	if !isNormal(host) {
		h, err := canonicalHost(host)
		if err != nil {
			return Entry{}, false
		}
		host = h
	}
	found, ok := m[host]
	for name := host; ; {
		i := strings.IndexByte(name, '.')
		if i < 0 {
			return found, ok
		}
		name = name[i+1:]
		if e, above := m[name]; above && e.Subdomains && (!ok || e.stricter(&found)) {
			found, ok = e, true
		}
	}
}

// List gives all entries, by host.
func (l *Ledger) List() []Entry {
	return slices.SortedFunc(maps.Values(*l.entries.Load()), func(a, b Entry) int { return strings.Compare(a.Host, b.Host) })
}

// Stop enters that a host is left alone; it replaces the host's entry. Host, Subdomains, Reason, Who and When (zero: now)
// count. The entry as it was kept is returned.
func (l *Ledger) Stop(e Entry) (Entry, error) {
	e.Action, e.Gap = ActionStop, 0
	return l.put(e)
}

// Slow enters the least gap between requests to a host; it replaces the host's entry.
func (l *Ledger) Slow(e Entry) (Entry, error) {
	e.Action = ActionSlow
	if e.Gap <= 0 || e.Gap > MaxGap {
		return Entry{}, fmt.Errorf("gap %s is not between 0s and %s", e.Gap, MaxGap)
	}
	return l.put(e)
}

// LedgerHost reads a host as a person writes it: in Unicode or upper case, with a trailing dot.
func LedgerHost(raw string) (string, error) {
	switch {
	case strings.Contains(raw, "/"):
		return "", fmt.Errorf("%q is not a host: write the bare name, such as example.com", raw)
	case strings.Contains(raw, "*"):
		return "", fmt.Errorf("%q: write the name and use --subdomains for the hosts below it", raw)
	}
	if i := strings.IndexByte(raw, ':'); i > 0 && strings.Count(raw, ":") == 1 {
		return "", fmt.Errorf("%q: an entry holds for every port, write %s", raw, raw[:i])
	}
	return canonicalHost(raw)
}

const maxNote = 1000 // octets of a reason or a name

func (l *Ledger) put(e Entry) (Entry, error) {
	var err error
	if e.Host, err = LedgerHost(e.Host); err != nil {
		return Entry{}, err
	}
	if e.Subdomains && isAddress(e.Host) {
		return Entry{}, fmt.Errorf("%s is an address, which has no hosts below it", e.Host)
	}
	if len(e.Reason) > maxNote || len(e.Who) > maxNote {
		return Entry{}, fmt.Errorf("reason and name have at most %d octets", maxNote)
	}
	if e.When.IsZero() {
		e.When = time.Now()
	}
	e.When = e.When.UTC().Round(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store != nil {
		if err := l.store.PutEntry(e); err != nil {
			return Entry{}, fmt.Errorf("write the ledger: %w", err)
		}
	}
	l.apply(e.Host, &e)
	return e, nil
}

// ErrStillCovered tells that a host without an entry of its own is held by one above it.
var ErrStillCovered = errors.New("an entry for a host above, with subdomains, still holds")

// Resume removes a host's entry and tells those who listen, also when there was none: back-off is to be forgotten then,
// too. The error is ErrStillCovered, or the store's.
func (l *Ledger) Resume(host string) (removed *Entry, err error) {
	if host, err = LedgerHost(host); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := (*l.entries.Load())[host]; ok {
		removed = &e
		if l.store != nil {
			if err := l.store.DeleteEntry(host); err != nil {
				return nil, fmt.Errorf("write the ledger: %w", err)
			}
		}
	}
	l.apply(host, nil)
	if e, held := l.Get(host); held {
		return removed, fmt.Errorf("%s: %w: %s %s", host, ErrStillCovered, e.Action, e.Host)
	}
	return removed, nil
}

// apply swaps in a copy with one entry changed; mu is held.
func (l *Ledger) apply(host string, after *Entry) {
	old := *l.entries.Load()
	c := Change{Host: host, After: after}
	if e, ok := old[host]; ok {
		c.Before = &e
	}
	next := maps.Clone(old)
	if after != nil {
		next[host] = *after
	} else {
		delete(next, host)
	}
	l.entries.Store(&next)
	for _, f := range l.onChange {
		f(c)
	}
}

// Refresh reads the store again and tells of every difference: for a store that other instances write to.
func (l *Ledger) Refresh() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh, err := l.load()
	if err != nil || l.store == nil {
		return err
	}
	old := *l.entries.Load()
	for host := range old {
		if _, ok := fresh[host]; !ok {
			l.apply(host, nil)
		}
	}
	for host, e := range fresh {
		if was, ok := old[host]; !ok || !was.equal(&e) {
			l.apply(host, &e)
		}
	}
	return nil
}
