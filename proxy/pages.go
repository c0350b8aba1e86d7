package proxy

import (
	"container/list"
	"net/http"
	"net/url"
	"sync"
	"time"

	"crawlgate/pacing"
)

const (
	maxSessions     = 20_000
	maxSessionPages = 32
	maxSessionHops  = 64
	hopLifetime     = time.Minute // a Location counts as followed when it is asked for within this
)

// pages remembers, for each fetcher, which pages it opened and where their redirects pointed: the evidence by which
// a request is told a page, a page's file, a redirect or a script's navigation. It is bounded; the oldest fetcher is
// forgotten first, which only makes its next request a page.
type pages struct {
	mu       sync.Mutex
	sessions map[string]*list.Element // of *session
	order    *list.List               // most recently used first
}

type session struct {
	key    string
	opened []*openPage
	hops   map[string]hop
}

// openPage is one page a fetcher opened.
type openPage struct {
	mu     sync.Mutex
	id     string // request id
	url    string
	origin string
	host   string
	status int
	end    time.Time // zero while it is open
}

// hop is where an answer pointed.
type hop struct {
	count int // hops from the chain's start
	from  string
	host  string
	at    time.Time
}

func newPages() *pages { return &pages{sessions: map[string]*list.Element{}, order: list.New()} }

func (p *pages) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.sessions)
	p.order.Init()
}

// session returns a fetcher's memory, making it. The caller holds p.mu.
func (p *pages) session(key string) *session {
	if e, ok := p.sessions[key]; ok {
		p.order.MoveToFront(e)
		return e.Value.(*session)
	}
	if len(p.sessions) >= maxSessions {
		old := p.order.Back()
		delete(p.sessions, old.Value.(*session).key)
		p.order.Remove(old)
	}
	s := &session{key: key}
	p.sessions[key] = p.order.PushFront(s)
	return s
}

func (p *pages) peek(key string) *session {
	e, ok := p.sessions[key]
	if !ok {
		return nil
	}
	return e.Value.(*session)
}

// open notes that a fetcher opens a page.
func (p *pages) open(x *exchange) *openPage {
	switch x.kind.kind {
	case pacing.Page, pacing.Sitemap, pacing.Redirect, pacing.Render:
	default:
		return nil
	}
	pg := &openPage{id: x.ev.ID, url: x.target, origin: x.target[:len(x.url.Scheme)+len("://")+len(x.url.Host)], host: x.host.Name}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session(x.id.session)
	if len(s.opened) >= maxSessionPages {
		s.opened = append(s.opened[:0], s.opened[1:]...)
	}
	s.opened = append(s.opened, pg)
	return pg
}

// ended notes how a page ended.
func (pg *openPage) ended(o pacing.Outcome) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	pg.end = time.Now()
	if pg.status == 0 {
		pg.status = o.Status
	}
}

// answered notes the status as soon as the head is there: a browser asks for the files while the page still loads.
func (pg *openPage) answered(status int) {
	pg.mu.Lock()
	pg.status = status
	pg.mu.Unlock()
}

// carries tells whether the page may still carry files.
func (pg *openPage) carries(window time.Duration) bool {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	return pg.end.IsZero() || time.Since(pg.end) < window
}

func (pg *openPage) good() bool {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	return pg.status >= 200 && pg.status < 300 || pg.status == http.StatusNotModified
}

// owner finds the page a request belongs to: the one its Referer names, else the latest of the Referer's or Origin's
// origin.
func (p *pages) owner(key string, referer, origin string, window time.Duration) *openPage {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.peek(key)
	if s == nil {
		return nil
	}
	if referer != "" {
		for i := len(s.opened) - 1; i >= 0; i-- {
			if s.opened[i].url == referer && s.opened[i].carries(window) {
				return s.opened[i]
			}
		}
		if u, err := url.Parse(referer); err == nil && u.Host != "" {
			origin = u.Scheme + "://" + u.Host
		}
	}
	for i := len(s.opened) - 1; i >= 0; i-- {
		if s.opened[i].origin == origin && s.opened[i].carries(window) {
			return s.opened[i]
		}
	}
	return nil
}

// same finds a page of this very URL that answered well and is still open or just ended.
func (p *pages) same(key, u string, window time.Duration) *openPage {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.peek(key)
	if s == nil {
		return nil
	}
	for i := len(s.opened) - 1; i >= 0; i-- {
		if pg := s.opened[i]; pg.url == u && pg.good() && pg.carries(window) {
			return pg
		}
	}
	return nil
}

// redirected notes that a fetcher was sent on to a URL.
func (p *pages) redirected(key, target string, h hop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session(key)
	if s.hops == nil {
		s.hops = map[string]hop{}
	}
	if len(s.hops) >= maxSessionHops {
		for k, v := range s.hops {
			if time.Since(v.at) > hopLifetime {
				delete(s.hops, k)
			}
		}
		if len(s.hops) >= maxSessionHops {
			clear(s.hops)
		}
	}
	s.hops[target] = h
}

// hopTo tells whether a fetcher was just sent to a URL.
func (p *pages) hopTo(key, target string) (hop, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.peek(key)
	if s == nil {
		return hop{}, false
	}
	h, ok := s.hops[target]
	if !ok || time.Since(h.at) > hopLifetime {
		return hop{}, false
	}
	return h, true
}
