package allowlist

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"
)

// Bounds of the identity lock.
const (
	maxLockedURLs  = 1000      // of one host; past them the whole host is locked
	maxLockAgents  = 8         // identities that one URL or host refused; past them everybody is locked out
	maxLocks       = 500_000   // of all hosts; past them the hosts with the most are locked whole
	maxLockedHosts = 1_000_000 // past them the host whose last refusal is oldest is forgotten, with a warning
	lockGrain      = time.Minute
)

// Lock is a refusal that the site gave to an agent: what it refused goes out under no other one for a while.
type Lock struct {
	Host      string    `json:"host"`          // with a port that is not the default
	URL       string    `json:"url,omitempty"` // fingerprint of the canonical URL; "": the whole host
	Agent     string    `json:"agent"`         // "": several, everybody is locked out
	UserAgent string    `json:"user_agent"`    // fingerprint of a user agent passed on, else ""
	Status    int       `json:"status"`        // of the first refusal; 0 for a bot check or a URL left for its round
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

// Whole tells whether the whole host is locked.
func (l *Lock) Whole() bool { return l.URL == "" }

// Key identifies the lock in a store.
func (l *Lock) Key() string { return l.Host + "\x00" + l.URL + "\x00" + l.Agent + "\x00" + l.UserAgent }

// LockStore keeps the locks. UpdateLocks returns when both changes are durable, together. LoadLocks may give one lock more
// than once, as it became.
type LockStore interface {
	LoadLocks(each func(Lock)) error
	UpdateLocks(put []Lock, remove []string) error
}

// Locks is the identity lock of all clients together: refusals by URL, GET and HEAD alike, http and https alike.
type Locks struct {
	store LockStore // nil: memory only
	log   *slog.Logger

	mu     sync.RWMutex
	hosts  map[string]*lockedHost
	count  int // of URLs with locks
	retain time.Duration
	swept  time.Time
}

type lockedHost struct {
	whole []Lock
	urls  map[string][]Lock
	last  time.Time
}

// NewLocks reads the locks from their store; a nil store keeps them in memory. retain is the longest identity_lock of
// any profile: older refusals are dropped.
func NewLocks(store LockStore, retain time.Duration, log *slog.Logger) (*Locks, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Locks{store: store, log: log, hosts: map[string]*lockedHost{}, retain: retain}
	if store == nil {
		return l, nil
	}
	now := time.Now()
	var stale []string
	err := store.LoadLocks(func(k Lock) {
		if now.Sub(k.Last) >= retain {
			stale = append(stale, k.Key())
			return
		}
		l.apply(k)
	})
	if err == nil && len(stale) > 0 {
		err = store.UpdateLocks(nil, stale)
	}
	if err != nil {
		return nil, fmt.Errorf("read the identity locks: %w", err)
	}
	return l, nil
}

// SetRetain changes how long refusals are kept, after a reload.
func (l *Locks) SetRetain(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain = d
}

func (l *Locks) host(name string) *lockedHost {
	h := l.hosts[name]
	if h == nil {
		h = &lockedHost{urls: map[string][]Lock{}}
		l.hosts[name] = h
	}
	return h
}

// Find tells whether the URL, or its whole host, refused another identity within the asking profile's window; 0 is no
// lock at all. userAgent is "" for an agent with a user agent of its own, and the one to be sent where the agent passes
// the fetcher's on. The lock with the earliest first refusal is returned.
func (l *Locks) Find(u *url.URL, agent, userAgent string, window time.Duration) (*Lock, bool) {
	if window <= 0 {
		return nil, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	h := l.hosts[hostKey(u)]
	if h == nil {
		return nil, false
	}
	now, ua := time.Now(), fingerprint(userAgent)
	var found *Lock
	look := func(locks []Lock) {
		for i := range locks {
			k := &locks[i]
			if now.Sub(k.Last) >= window || k.Agent == agent && k.UserAgent == ua && k.Agent != "" {
				continue
			}
			if found == nil || k.First.Before(found.First) {
				found = k
			}
		}
	}
	look(h.whole)
	if len(h.urls) > 0 {
		look(h.urls[urlFingerprint(u)])
	}
	if found == nil {
		return nil, false
	}
	c := *found
	return &c, true
}

// Record enters a refusal: an origin's 401, 403, 407 or 451, a recognised bot check, a URL left for its round. It
// returns when that is durable. Refusals of a profile without an identity lock are not recorded by the caller.
func (l *Locks) Record(u *url.URL, agent, userAgent string, status int, at time.Time) error {
	if at.IsZero() {
		at = time.Now()
	}
	k := Lock{Host: hostKey(u), URL: urlFingerprint(u), Agent: agent, UserAgent: fingerprint(userAgent), Status: status,
		First: at.UTC().Round(0), Last: at.UTC().Round(0)}
	l.mu.Lock()
	put, remove := l.record(k)
	l.mu.Unlock()
	if l.store == nil || len(put)+len(remove) == 0 {
		return nil
	}
	if err := l.store.UpdateLocks(put, remove); err != nil {
		return fmt.Errorf("write the identity lock: %w", err)
	}
	return nil
}

// Apply enters a refusal that another instance recorded, or this one before.
func (l *Locks) Apply(k Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.apply(k)
}

func (l *Locks) apply(k Lock) {
	if !k.Whole() {
		l.record(k)
		return
	}
	h := l.host(k.Host)
	if k.Last.After(h.last) {
		h.last = k.Last
	}
	if len(h.urls) > 0 {
		l.closeHost(k.Host, h)
	}
	h.whole, _, _ = enter(h.whole, k)
}

// record enters a lock in memory and gives what has to be stored; mu is held.
func (l *Locks) record(k Lock) (put []Lock, remove []string) {
	remove = l.sweep(k.Last)
	h := l.host(k.Host)
	if k.Last.After(h.last) {
		h.last = k.Last
	}
	if len(h.whole) > 0 || len(h.urls) >= maxLockedURLs && len(h.urls[k.URL]) == 0 {
		if len(h.urls) > 0 {
			p, r := l.closeHost(k.Host, h)
			put, remove = append(put, p...), append(remove, r...)
		}
		k.URL = ""
		var p []Lock
		var r []string
		h.whole, p, r = enter(h.whole, k)
		return append(put, p...), append(remove, r...)
	}
	if len(h.urls[k.URL]) == 0 {
		l.count++
	}
	var p []Lock
	var r []string
	h.urls[k.URL], p, r = enter(h.urls[k.URL], k)
	put, remove = append(put, p...), append(remove, r...)
	if l.count > maxLocks {
		name, h := l.fullest()
		p, r := l.closeHost(name, h)
		put, remove = append(put, p...), append(remove, r...)
	}
	if len(l.hosts) > maxLockedHosts {
		remove = append(remove, l.forgetOldest()...)
	}
	return put, remove
}

// enter adds a refusal to the locks of one URL or host: the same identity keeps its first and renews its last.
func enter(locks []Lock, k Lock) (after, put []Lock, remove []string) {
	for i := range locks {
		o := &locks[i]
		if o.Agent != k.Agent || o.UserAgent != k.UserAgent {
			continue
		}
		if k.First.Before(o.First) {
			o.First, o.Status = k.First, k.Status
		}
		if k.Last.Sub(o.Last) < lockGrain { // not worth a write; at most so much earlier after a restart
			return locks, nil, nil
		}
		o.Last = k.Last
		return locks, []Lock{*o}, nil
	}
	if len(locks) < maxLockAgents {
		return append(locks, k), []Lock{k}, nil
	}
	for _, o := range locks {
		remove = append(remove, o.Key())
		if o.First.Before(k.First) {
			k.First, k.Status = o.First, o.Status
		}
		if o.Last.After(k.Last) {
			k.Last = o.Last
		}
	}
	k.Agent, k.UserAgent = "", ""
	return []Lock{k}, []Lock{k}, remove
}

// closeHost turns the locks of a host's URLs into locks of the whole host.
func (l *Locks) closeHost(name string, h *lockedHost) (put []Lock, remove []string) {
	for _, locks := range h.urls {
		for _, k := range locks {
			remove = append(remove, k.Key())
			k.URL = ""
			if k.Agent == "" && len(h.whole) > 0 && h.whole[0].Agent == "" {
				continue
			}
			merged := false
			for i := range h.whole {
				o := &h.whole[i]
				if o.Agent == "" || o.Agent == k.Agent && o.UserAgent == k.UserAgent {
					if k.First.Before(o.First) {
						o.First, o.Status = k.First, k.Status
					}
					if k.Last.After(o.Last) {
						o.Last = k.Last
					}
					merged = true
					break
				}
			}
			if !merged {
				h.whole, _, _ = enter(h.whole, k)
			}
		}
	}
	l.count -= len(h.urls)
	h.urls = map[string][]Lock{}
	put = append(put, h.whole...)
	l.log.Warn("whole host under identity lock: too many of its URLs were refused", "host", name, "agents", len(h.whole))
	return put, remove
}

func (l *Locks) fullest() (name string, h *lockedHost) {
	for n, c := range l.hosts {
		if h == nil || len(c.urls) > len(h.urls) {
			name, h = n, c
		}
	}
	return name, h
}

// forgetOldest drops the host whose last refusal is longest ago.
func (l *Locks) forgetOldest() (remove []string) {
	var name string
	var oldest *lockedHost
	for n, h := range l.hosts {
		if oldest == nil || h.last.Before(oldest.last) {
			name, oldest = n, h
		}
	}
	l.log.Warn("identity locks full, the oldest host is forgotten", "host", name, "hosts", len(l.hosts))
	return l.forget(name, oldest)
}

func (l *Locks) forget(name string, h *lockedHost) (remove []string) {
	for _, k := range h.whole {
		remove = append(remove, k.Key())
	}
	for _, locks := range h.urls {
		for _, k := range locks {
			remove = append(remove, k.Key())
		}
	}
	l.count -= len(h.urls)
	delete(l.hosts, name)
	return remove
}

// sweep drops hosts and URLs whose last refusal is past the retention, now and then.
func (l *Locks) sweep(now time.Time) (remove []string) {
	if now.Sub(l.swept) < max(l.retain/24, lockGrain) {
		return nil
	}
	l.swept = now
	for name, h := range l.hosts {
		if now.Sub(h.last) >= l.retain {
			remove = append(remove, l.forget(name, h)...)
			continue
		}
		for u, locks := range h.urls {
			alive := locks[:0]
			for _, k := range locks {
				if now.Sub(k.Last) < l.retain {
					alive = append(alive, k)
				} else {
					remove = append(remove, k.Key())
				}
			}
			if h.urls[u] = alive; len(alive) == 0 {
				delete(h.urls, u)
				l.count--
			}
		}
		alive := h.whole[:0]
		for _, k := range h.whole {
			if now.Sub(k.Last) < l.retain {
				alive = append(alive, k)
			} else {
				remove = append(remove, k.Key())
			}
		}
		h.whole = alive
	}
	return remove
}

// urlFingerprint is a short hash of the canonical path and query: the URL itself, with what may be secret in it, is not
// kept.
func urlFingerprint(u *url.URL) string {
	var buf [512]byte
	sum := sha256.Sum256(appendPage(buf[:0], u))
	return hex.EncodeToString(sum[:12])
}

func fingerprint(s string) string {
	if s == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
