package proxy

import (
	"net/http"
	"sync"
	"time"
)

// watcher cuts an exchange in which nothing moves (a turn's own limit ends it through its context). One timer, re-armed only when it fires.
type watcher struct {
	mu    sync.Mutex
	why   error
	timer *time.Timer
	done  bool
}

func (b *body) watch(rc *http.ResponseController) *watcher {
	w := &watcher{}
	stall := b.x.rules.Server.StallTimeout
	if eventStream(b.resp.Header) {
		stall = b.x.rules.Server.StreamIdle
	}
	seen := int64(0)
	fire := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.done {
			return
		}
		if now := b.moved.Load() + taken(b.x.from.conn); now != seen {
			seen = now
			w.timer.Reset(stall)
			return
		}
		w.why = errStalled
		if b.writing.Load() {
			w.why = errUnread
		}
		b.x.g.pacer.CountOverrun("stall_timeout")
		b.x.cancel(w.why)
		_ = rc.SetWriteDeadline(time.Now()) // frees a write that the fetcher does not read
	}
	w.mu.Lock()
	if stall > 0 {
		w.timer = time.AfterFunc(stall, fire)
	}
	w.mu.Unlock()
	return w
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *watcher) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}
