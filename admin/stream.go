package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Bounds of the decisions stream.
const (
	maxSubscribers = 100
	streamQueue    = 256              // records a slow reader may be behind
	streamBeat     = 15 * time.Second // a comment, so that middle boxes keep the connection
	streamWrite    = 10 * time.Second // longest one write may take
	streamRetry    = 2000             // milliseconds before a browser connects again
)

// subscriber is one reader of the stream. A reader that is too slow loses
// records and is told how many; it never slows the gate.
type subscriber struct {
	keep func(*record) bool
	c    chan *record
	lost atomic.Uint64
}

// offer is called with the state's lock held and never blocks.
func (s *subscriber) offer(r *record) {
	if s.keep != nil && !s.keep(r) {
		return
	}
	select {
	case s.c <- r:
	default:
		s.lost.Add(1)
	}
}

// subscribe adds a reader and returns what it missed since seq; resume false
// starts with what comes next. ok is false when there are too many.
func (s *state) subscribe(keep func(*record) bool, seq uint64, resume bool) (sub *subscriber, missed []*record, lost uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) >= maxSubscribers {
		return nil, nil, 0, false
	}
	if resume {
		missed, lost = s.after(seq)
	}
	sub = &subscriber{keep: keep, c: make(chan *record, streamQueue)}
	s.subs[sub] = struct{}{}
	return sub, missed, lost, true
}

func (s *state) unsubscribe(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, sub)
}

func (s *state) subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs)
}

// serveDecisions streams events as they are recorded (server-sent events). The
// id is the event's number in the log, so a reader that comes back with
// Last-Event-ID goes on where it was; what is not kept any more, or what a slow
// reader lost, is said by an event "gap" with {"lost":N}.
func (s *Server) serveDecisions(w http.ResponseWriter, r *http.Request) error {
	keep, err := filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	var seq uint64
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after") // for the first connection of the page, which can't set the field
	}
	if last != "" {
		if seq, err = strconv.ParseUint(last, 10, 64); err != nil {
			return &BadInput{"Last-Event-ID is not the number of an event"}
		}
	}
	sub, missed, lost, ok := s.state.subscribe(keep, seq, last != "")
	if !ok {
		w.Header().Set("Retry-After", "30")
		return &httpError{http.StatusServiceUnavailable, "too many readers of the stream"}
	}
	defer s.state.unsubscribe(sub)

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := streamWriter{w: w, rc: http.NewResponseController(w)}
	out.printf("retry: %d\n\n", streamRetry)
	out.gap(lost)
	for _, m := range missed {
		if keep == nil || keep(m) {
			out.event(m)
		}
	}
	out.flush()

	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for out.err == nil {
		select {
		case <-r.Context().Done():
			return nil
		case <-s.closed:
			return nil
		case <-beat.C:
			out.printf(": beat\n\n")
		case m := <-sub.c:
			out.gap(sub.lost.Swap(0))
			out.event(m)
			for n := len(sub.c); n > 0; n-- { // what came meanwhile goes in the same flush
				out.event(<-sub.c)
			}
		}
		out.flush()
	}
	return nil // the reader has gone
}

// streamWriter writes frames and remembers the first error. Each flush gets a
// deadline of its own, since the server's would end the stream.
type streamWriter struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

func (o *streamWriter) printf(format string, args ...any) {
	if o.err == nil {
		o.deadline()
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

func (o *streamWriter) gap(lost uint64) {
	if lost > 0 {
		o.printf("event: gap\ndata: {\"lost\":%d}\n\n", lost)
	}
}

// event writes one record. Its JSON holds no line break: encoding/json escapes
// control characters, U+2028 and U+2029.
func (o *streamWriter) event(r *record) {
	o.printf("id: %d\nevent: decision\ndata: %s\n\n", r.Seq, r.raw())
}

func (o *streamWriter) flush() {
	if o.err == nil {
		o.err = o.rc.Flush()
	}
}

func (o *streamWriter) deadline() {
	if err := o.rc.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.err = err
	}
}
