package allowlist

import (
	"net/url"
	"slices"
	"sync"
	"time"
)

// Page windows: for a minute after the last request of a page, other hosts' files load as part of it.
const (
	windowLife  = 60 * time.Second
	maxSessions = 10_000 // the ones least used go first
	maxPages    = 32     // open pages of one session
	maxHelpers  = 16     // style sheets' and scripts' origins of one page that may be named as the Referer
)

// windows holds the open pages by client and session.
type windows struct {
	mu       sync.Mutex
	sessions *evidence[*session]
}

type session struct{ pages []page } // the one used last is last

type page struct {
	origin, host string
	last         time.Time
	gen          uint64
	helpers      []string
}

func newWindows() *windows {
	return &windows{sessions: newEvidence[*session](maxSessions, windowLife)}
}

func sessionKey(client, id string) []byte {
	b := make([]byte, 0, 128)
	b = append(append(b, client...), 0)
	return append(b, id...)
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// open starts a page's window, or keeps it open.
func (w *windows) open(s *scope, id string, u *url.URL, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := sessionKey(s.name, id)
	ss, ok := w.sessions.get(key, now)
	if !ok {
		ss = &session{}
	}
	p := page{origin: origin(u), host: hostOf(u)}
	for i := range ss.pages {
		if ss.pages[i].origin == p.origin {
			p = ss.pages[i]
			ss.pages = append(ss.pages[:i], ss.pages[i+1:]...)
			break
		}
	}
	if len(ss.pages) >= maxPages {
		ss.pages = append(ss.pages[:0], ss.pages[1:]...)
	}
	p.last, p.gen = now, s.gen
	ss.pages = append(ss.pages, p)
	w.sessions.put(key, 0, ss, now, nil)
}

// find gives the host of an open page that the request belongs to: the one of the Referer's origin or, without a
// Referer, the one used last. With touch it stays open for another minute.
func (w *windows) find(s *scope, r *Request, now time.Time, touch bool) (host string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := sessionKey(s.name, r.Session)
	ss, found := w.sessions.get(key, now)
	if !found {
		return "", false
	}
	from := ""
	if r.Referer != nil {
		n, err := normalise(r.Referer)
		if err != nil {
			return "", false
		}
		from = origin(n)
	}
	for i := len(ss.pages) - 1; i >= 0; i-- {
		p := &ss.pages[i]
		if p.gen != s.gen || now.Sub(p.last) >= windowLife {
			continue
		}
		if from != "" && p.origin != from && !slices.Contains(p.helpers, from) {
			continue
		}
		if from == "" && r.URL != nil && p.host == hostOf(r.URL) { // a window is for other hosts' files
			continue
		}
		if touch {
			p.last = now
			if u := r.URL; u != nil && (r.Dest == "style" || r.Dest == "script") {
				if o := origin(u); o != p.origin && len(p.helpers) < maxHelpers && !slices.Contains(p.helpers, o) {
					p.helpers = append(p.helpers, o)
				}
			}
			w.sessions.put(key, 0, ss, now, nil)
		}
		return p.host, true
	}
	return "", false
}

// isDocument tells whether a request opens a page or a frame: a window never admits these.
func isDocument(r *Request) bool {
	if r.Document {
		return true
	}
	switch r.Dest {
	case "document", "iframe", "frame", "embed", "object", "fencedframe":
		return true
	}
	return false
}
