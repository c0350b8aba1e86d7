package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// queued is a context for the time a request waits: it ends as its parent does, and with the refusal `draining` as its
// cause when the gate stops, since what has not begun then shall not hold the end up. Most requests wait for nothing, so
// the two are joined only when somebody waits.
type queued struct {
	context.Context
	d *drain

	once   sync.Once
	joined atomic.Pointer[joint]
}

type joint struct {
	context.Context
	free func()
}

func (q *queued) join() context.Context {
	q.once.Do(func() {
		ctx, cancel := context.WithCancelCause(q.Context)
		stop := context.AfterFunc(q.d.stopped, func() { cancel(drainingNow()) })
		q.joined.Store(&joint{ctx, func() { stop(); cancel(nil) }})
	})
	return q.joined.Load()
}

// Done closes when the wait is to end.
func (q *queued) Done() <-chan struct{} { return q.join().Done() }

// Err tells whether it has ended.
func (q *queued) Err() error {
	if q.joined.Load() == nil && !q.d.draining() {
		return q.Context.Err()
	}
	return q.join().Err()
}

// Value finds the joined context for those that derive from this one (context.Cause, propagation of an end).
func (q *queued) Value(key any) any { return q.join().Value(key) }

// done frees what was joined.
func (q *queued) done() {
	if j := q.joined.Load(); j != nil {
		j.free()
	}
}

// refusal is that of the gate's end, if that ended the wait, or nil.
func (q *queued) refusal() *refusal { return drainCause(context.Cause(q.join())) }

// patient is a context that nothing but time ends; the clock starts when somebody waits on it.
type patient struct {
	limit time.Duration

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
}

func (p *patient) start() context.Context {
	p.once.Do(func() { p.timed, p.cancel = context.WithTimeout(context.Background(), p.limit) })
	return p.timed
}

// Done closes when the time is over.
func (p *patient) Done() <-chan struct{} { return p.start().Done() }

// Err tells whether it is.
func (p *patient) Err() error { return p.start().Err() }

// Deadline is none that is known.
func (p *patient) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value has nothing.
func (p *patient) Value(any) any { return nil }

func (p *patient) done() {
	if p.cancel != nil {
		p.cancel()
	}
}
