package guard

import (
	"net/netip"
	"sync"
	"time"
)

// maxAnswers bounds the names kept by egress.dns_cache.
const maxAnswers = 10_000

// answers keeps resolved sets that passed whole, for a fixed short time: Go's
// resolver tells no TTL. A nil *answers keeps nothing.
type answers struct {
	keep time.Duration
	mu   sync.Mutex
	of   map[string]answer
}

type answer struct {
	addrs []netip.Addr
	until time.Time
}

func newAnswers(keep time.Duration) *answers {
	if keep <= 0 {
		return nil
	}
	return &answers{keep: keep, of: map[string]answer{}}
}

func (s *answers) get(name string) ([]netip.Addr, bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.of[name]
	if !ok || !time.Now().Before(a.until) {
		return nil, false
	}
	return a.addrs, true
}

func (s *answers) put(name string, addrs []netip.Addr) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.of) >= maxAnswers {
		for n, a := range s.of {
			if !now.Before(a.until) {
				delete(s.of, n)
			}
		}
	}
	if len(s.of) < maxAnswers { // a full cache keeps what it has: all of it is gone within 30 s
		s.of[name] = answer{addrs, now.Add(s.keep)}
	}
}

func (s *answers) drop(name string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, name)
}
