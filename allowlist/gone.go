package allowlist

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"
)

// maxGone bounds the URLs of all hosts that are remembered as gone; past it the one entered longest ago is forgotten.
const maxGone = 1_000_000

// GoneURL is a URL of which its site has said that it is gone for good (410, RFC 9110 15.5.11).
type GoneURL struct {
	Host string    `json:"host"`          // without a port
	URL  string    `json:"url,omitempty"` // fingerprint of the canonical URL; "": all of the host's are asked for again
	At   time.Time `json:"at"`
}

// GoneStore keeps the URLs that are gone. Its writes return when they are durable. LoadGone gives them in the order in
// which they were entered, as far as the store knows it, and may give an entry without a URL, which lifts those of its
// host that came before.
type GoneStore interface {
	LoadGone(each func(GoneURL)) error
	PutGone(put GoneURL, forget []GoneURL) error
	LiftGone(host string, urls []GoneURL) error
}

// Gone is the ledger of URLs that are gone for good, of all clients together: http and https alike, whatever the method.
type Gone struct {
	store GoneStore // nil: memory only
	log   *slog.Logger
	max   int

	mu    sync.RWMutex
	hosts map[string]map[[12]byte]int64 // when, in seconds since 1970
	order []goneKey                     // as entered; some may have been lifted since
	count int
}

type goneKey struct {
	host string
	url  [12]byte
	at   int64
}

// NewGone reads the ledger from its store; a nil store keeps it in memory.
func NewGone(store GoneStore, log *slog.Logger) (*Gone, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g := &Gone{store: store, log: log, max: maxGone, hosts: map[string]map[[12]byte]int64{}}
	if store == nil {
		return g, nil
	}
	if err := store.LoadGone(g.Apply); err != nil {
		return nil, fmt.Errorf("read the URLs that are gone: %w", err)
	}
	// A store that knows no order gives any; what goes first is still what was entered first.
	slices.SortStableFunc(g.order, func(a, b goneKey) int { return int(a.at - b.at) })
	return g, nil
}

// Find tells since when a URL is known to be gone.
func (g *Gone) Find(u *url.URL) (since time.Time, gone bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	urls := g.hosts[hostOf(u)]
	if len(urls) == 0 {
		return time.Time{}, false
	}
	at, gone := urls[goneFingerprint(u)]
	return time.Unix(at, 0), gone
}

// Record enters a URL. It returns when that is durable; in force it is at once.
func (g *Gone) Record(u *url.URL, at time.Time) error {
	k := goneKey{hostOf(u), goneFingerprint(u), at.Unix()}
	g.mu.Lock()
	fresh, forgotten := g.enter(k)
	g.mu.Unlock()
	if g.store == nil || !fresh {
		return nil
	}
	if err := g.store.PutGone(k.entry(), forgotten); err != nil {
		return fmt.Errorf("write the URLs that are gone: %w", err)
	}
	return nil
}

// Lift has all URLs of a host asked for again, and tells how many those are.
func (g *Gone) Lift(host string) (int, error) {
	g.mu.Lock()
	lifted := g.lift(host)
	g.mu.Unlock()
	if g.store == nil || len(lifted) == 0 {
		return len(lifted), nil
	}
	if err := g.store.LiftGone(host, lifted); err != nil {
		return 0, fmt.Errorf("write the URLs that are gone: %w", err)
	}
	return len(lifted), nil
}

// Apply enters what the store or another instance says.
func (g *Gone) Apply(e GoneURL) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.URL == "" {
		g.lift(e.Host)
		return
	}
	k := goneKey{host: e.Host, at: e.At.Unix()}
	if b, err := hex.DecodeString(e.URL); err == nil && copy(k.url[:], b) == len(k.url) {
		g.enter(k)
	}
}

// enter is Record in memory; mu is held.
func (g *Gone) enter(k goneKey) (fresh bool, forgotten []GoneURL) {
	urls := g.hosts[k.host]
	if _, known := urls[k.url]; known {
		return false, nil
	}
	if urls == nil {
		urls = map[[12]byte]int64{}
		g.hosts[k.host] = urls
	}
	urls[k.url] = k.at
	g.order = append(g.order, k)
	for g.count++; g.count > g.max; {
		oldest := g.order[0]
		g.order = g.order[1:]
		if at, there := g.hosts[oldest.host][oldest.url]; there && at == oldest.at {
			g.remove(oldest)
			forgotten = append(forgotten, oldest.entry())
		}
	}
	if len(g.order) > 2*g.max { // lifted ones
		g.order = slices.Clone(slices.DeleteFunc(g.order, func(k goneKey) bool { return g.hosts[k.host][k.url] != k.at }))
	}
	return true, forgotten
}

func (g *Gone) lift(host string) (lifted []GoneURL) {
	for u, at := range g.hosts[host] {
		lifted = append(lifted, goneKey{host, u, at}.entry())
	}
	g.count -= len(lifted)
	delete(g.hosts, host)
	return lifted
}

func (g *Gone) remove(k goneKey) {
	g.count--
	if delete(g.hosts[k.host], k.url); len(g.hosts[k.host]) == 0 {
		delete(g.hosts, k.host)
	}
}

func (k goneKey) entry() GoneURL {
	return GoneURL{Host: k.host, URL: hex.EncodeToString(k.url[:]), At: time.Unix(k.at, 0).UTC()}
}

// goneFingerprint is a short hash of the canonical URL: what may be secret in it is not kept.
func goneFingerprint(u *url.URL) [12]byte {
	var buf [512]byte
	sum := sha256.Sum256(appendURL(buf[:0], u))
	return [12]byte(sum[:12])
}
