package audit

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Times and bounds of delivering heads.
const (
	pushQueue   = 256                    // heads that wait for one sink; past it the oldest goes, since the newest covers it
	pushTimeout = 10 * time.Second       // of one attempt
	pushFirst   = time.Second            // wait after the first failure, doubled each time
	pushLast    = 5 * time.Minute        // longest wait
	pushClosing = 200 * time.Millisecond // wait after the first failure while the log is closed
	closeWithin = 5 * time.Second        // for all sinks together, when the log is closed
)

// SinkStatus is how the delivery of heads to one item of checkpoint_to stands.
type SinkStatus struct {
	Target    string    `json:"target"`      // without credentials
	Kind      string    `json:"kind"`        // file, url, syslog
	Newest    Head      `json:"newest"`      // the newest head that was taken; File is empty
	At        time.Time `json:"at,omitzero"` // when, zero before the first of this process
	Waiting   int       `json:"waiting"`
	Delivered uint64    `json:"delivered"`       // by this process, like the two below
	Failures  uint64    `json:"failures"`        // attempts that failed
	Skipped   uint64    `json:"skipped"`         // heads left out because newer ones cover them and too many waited
	Failing   bool      `json:"failing"`         // the last attempt failed
	Since     time.Time `json:"since,omitzero"`  // then: since when
	Error     string    `json:"error,omitempty"` // then: of the last attempt
}

// pusher delivers heads to one sink, one after another, on a goroutine of its own: neither the writer nor a request ever
// waits for it.
type pusher struct {
	to   *target
	log  *slog.Logger
	took func(t *target, h *signedHead) // after each delivery

	life    context.Context // its end breaks off the attempt under way
	end     context.CancelFunc
	wake    chan struct{}
	closing chan struct{} // closed: deliver what waits, then end
	done    chan struct{}

	mu    sync.Mutex
	sink  sink
	queue []*signedHead // oldest first
	top   uint64        // highest number taken by this process; what was taken before may be of another chain
	st    SinkStatus
}

func newPusher(t *target, s sink, log *slog.Logger, took func(*target, *signedHead)) *pusher {
	p := &pusher{to: t, sink: s, log: log, took: took, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	p.st = SinkStatus{Target: t.label, Kind: t.kind}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// add puts a head behind those that wait.
func (p *pusher) add(h *signedHead) {
	p.mu.Lock()
	p.queue = append(p.queue, h)
	dropped := len(p.queue) - pushQueue
	if dropped > 0 {
		p.queue = slices.Delete(p.queue, 0, dropped)
		p.st.Skipped += uint64(dropped)
	}
	first := dropped > 0 && p.st.Skipped == uint64(dropped)
	p.mu.Unlock()
	if first {
		p.log.Warn("audit: too many heads wait, the oldest are left out; the newest covers them", "to", p.to.label, "waiting", pushQueue)
	}
	signal(p.wake)
}

// use replaces the way to the target.
func (p *pusher) use(s sink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sink = s
}

// next is the head to send and the way: in order while all goes well, else the newest head, which matters most.
func (p *pusher) next() (*signedHead, sink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.queue) == 0:
		return nil, nil
	case p.st.Failing:
		return p.queue[len(p.queue)-1], p.sink
	}
	return p.queue[0], p.sink
}

func (p *pusher) status() SinkStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.st
	st.Waiting = len(p.queue)
	return st
}

// run delivers until the pusher is closed and nothing waits, or its life ends.
func (p *pusher) run() {
	defer close(p.done)
	closing := p.closing // nil once it was seen
	wait, last := pushFirst, pushClosing
	for p.life.Err() == nil {
		h, to := p.next()
		if h == nil {
			if closing == nil {
				return
			}
			select {
			case <-p.wake:
			case <-closing:
				closing = nil
			case <-p.life.Done():
			}
			continue
		}
		ctx, cancel := context.WithTimeout(p.life, pushTimeout)
		err := to.send(ctx, h)
		cancel()
		p.settle(h, err)
		if err == nil {
			wait = pushFirst
			continue
		}
		pause := wait + rand.N(wait/4) // several gates come back to one sink
		var later retryLater
		if errors.As(err, &later) {
			pause = max(pause, later.after)
		}
		pause = min(pause, pushLast)
		if closing == nil {
			pause = last
			last *= 2
		}
		wait = min(2*wait, pushLast)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-closing:
			closing = nil // a last try at once
		case <-p.life.Done():
		}
		timer.Stop()
	}
}

// settle notes how an attempt ended.
func (p *pusher) settle(h *signedHead, err error) {
	p.mu.Lock()
	was := p.st.Failing
	now := time.Now()
	if err != nil {
		p.st.Failures++
		p.st.Failing, p.st.Error = true, Printable(err.Error(), 300)
		if !was {
			p.st.Since = now
		}
		p.mu.Unlock()
		p.log.Warn("audit: head not delivered, it will be tried again", "to", p.to.label, "seq", h.Seq, "error", err)
		return
	}
	p.queue = slices.DeleteFunc(p.queue, func(q *signedHead) bool { return q == h })
	p.st.Delivered++
	p.st.Failing, p.st.Error, p.st.Since, p.st.At = false, "", time.Time{}, now
	newest := h.Seq >= p.top
	if newest {
		p.top, p.st.Newest = h.Seq, h.Head
	}
	p.mu.Unlock()
	if was {
		p.log.Info("audit: heads are delivered again", "to", p.to.label, "seq", h.Seq)
	}
	if newest {
		p.took(p.to, h)
	}
}
