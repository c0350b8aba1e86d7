package policy

import (
	"container/list"
	"sync"
	"time"
)

const (
	// maxAge is how long a file may be used without asking again (RFC 9309 2.4).
	maxAge = 24 * time.Hour
	// minAge is the shortest time, whatever Cache-Control says.
	minAge = time.Minute
	// A failure is remembered for minFail, twice as long after each further one, up to maxFail.
	minFail = time.Minute
	maxFail = time.Hour
)

// key names one file as one agent sees it.
type key struct{ scheme, host, agent string }

func (k key) url() string { return k.scheme + "://" + k.host + "/robots.txt" }

// state is what is known about one file. It is immutable: a new fetch puts a new one in place.
type state struct {
	good *copied  // the last one that could be read, or nil
	fail *failure // set when the last try failed
}

// copied is a file that could be read, which includes that there is none.
type copied struct {
	class     string // ClassNoMatch for a file with rules to judge by, else ClassNoRobots or ClassTooManyRedirects
	group     *Group // for a file with rules
	named     *Group // the same file without the * group
	token     string
	fallback  []string
	status    int
	sha       string
	from      time.Time // when this version was first seen
	fetched   time.Time // when it was last read or confirmed
	expires   time.Time
	final     string // URL of the last hop, to which the validators belong
	etag      string
	modified  string
	hops      int
	bytes     int64 // of the body
	truncated bool
}

// failure is a file that could not be read.
type failure struct {
	class  string
	reason string
	status int
	at     time.Time
	next   time.Time // not asked again before
	count  int       // in a row
	note   string
	cause  error
}

// size is roughly what a state occupies.
func (s *state) size() int64 {
	n := 160
	if c := s.good; c != nil {
		n += 240 + len(c.sha) + len(c.final) + len(c.etag) + len(c.modified) + len(c.token)
		if c.group != nil {
			n += c.group.size
		}
		if c.named != c.group && c.named != nil {
			n += c.named.size
		}
	}
	if s.fail != nil {
		n += 160 + len(s.fail.note)
	}
	return int64(n)
}

// cache keeps states, bounded by bytes, the least recently used going first. It is exact, unlike a cache with
// admission, because a state that is lost at once would be fetched again for every page.
type cache struct {
	mu    sync.Mutex
	max   int64
	bytes int64
	all   map[key]*list.Element
	order list.List // of *cached, the most recently used in front
}

type cached struct {
	key   key
	state *state
	size  int64
}

func newCache(maxBytes int64) *cache {
	return &cache{max: maxBytes, all: make(map[key]*list.Element)}
}

func (c *cache) get(k key) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[k]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).state
}

func (c *cache) put(k key, s *state) {
	size := s.size() + int64(len(k.scheme)+len(k.host)+len(k.agent)) + 128
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[k]; e != nil {
		old := e.Value.(*cached)
		c.bytes += size - old.size
		e.Value = &cached{k, s, size}
		c.order.MoveToFront(e)
	} else {
		c.all[k] = c.order.PushFront(&cached{k, s, size})
		c.bytes += size
	}
	c.trim()
}

// resize changes the bound.
func (c *cache) resize(maxBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = maxBytes
	c.trim()
}

// trim drops what is past the bound. The newest stays, however large: without it the file would be fetched for every page.
func (c *cache) trim() {
	for c.bytes > c.max && c.order.Len() > 1 {
		e := c.order.Back()
		old := e.Value.(*cached)
		c.order.Remove(e)
		delete(c.all, old.key)
		c.bytes -= old.size
	}
}

func (c *cache) stats() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all), c.bytes
}
