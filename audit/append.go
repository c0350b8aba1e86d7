package audit

import (
	"context"
	"errors"
	"sync"
	"time"
)

// batch is what goes to the disk in one write.
type batch struct {
	buf       []byte
	off       int // bytes of buf already written
	events    int
	firstSeq  uint64
	firstTime time.Time
	written   *ack
	synced    *ack // set: somebody waits for the disk
	heads     []*Event
}

// ack tells waiters how a batch ended.
type ack struct {
	done chan struct{}
	err  error
}

func (a *ack) end(err error) {
	if a == nil {
		return
	}
	a.err = err
	close(a.done)
}

// settle ends a batch's waits, once.
func (b *batch) settle(err error) {
	b.written.end(err)
	b.written = nil
	b.synced.end(err)
	b.synced = nil
}

func (b *batch) reset() { *b = batch{buf: b.buf[:0]} }

// What record waits for.
type wait int

const (
	queuedOnly wait = iota
	untilWritten
	untilSynced
)

// bodies holds buffers that events are built in, outside the lock.
var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func (l *Log) record(ctx context.Context, e *Event, how wait) error {
	now := time.Now()
	e.Schema = Schema
	switch {
	case e.Type == TypeCheckpoint:
		return errors.New("record: checkpoints are the log's own")
	case bitOf(e.Type) == 0:
		e.Type = TypeRequest
	}
	if e.ID == "" && bitOf(e.Type)&onTraffic != 0 {
		e.ID = NewID()
	}
	if e.Time.IsZero() {
		e.Time = now
	}
	set := l.set.Load()
	set.red.apply(e)
	p := bodies.Get().(*[]byte)
	body := appendBody((*p)[:0], e)

	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	if l.queued >= set.Queue || l.bytes+len(body) > maxBuffered {
		if l.lost == 0 {
			l.lostFrom = l.seq + 1
		}
		l.lost++
		l.totalLost++
		l.mu.Unlock()
		return &Unavailable{Why: "queue_full"}
	}
	if l.lost > 0 {
		l.appendGap()
	}
	first := l.pending.events == 0
	l.link(e, body)
	if l.sinceCheckpoint >= set.CheckpointEvery {
		l.appendCheckpoint(Checkpoint{})
	}
	var a *ack
	switch how {
	case untilWritten:
		if l.pending.written == nil {
			l.pending.written = &ack{done: make(chan struct{})}
		}
		a = l.pending.written
	case untilSynced:
		if l.pending.synced == nil {
			l.pending.synced = &ack{done: make(chan struct{})}
		}
		a = l.pending.synced
	}
	hurry := a != nil || len(l.pending.buf) >= flushBytes
	heard := len(l.outbox) > 0
	l.mu.Unlock()
	if heard {
		l.deliver()
	}

	*p = body
	bodies.Put(p)
	if hurry {
		signal(l.urgent)
	} else if first {
		signal(l.wake)
	}
	if a == nil {
		return nil
	}
	// While the disk fails nobody is made to wait for it: the event keeps its place in the queue.
	if u := l.down.Load(); u != nil && u.Why != "disk_low" {
		return u
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// link gives an event its place in the chain. The caller holds l.mu.
func (l *Log) link(e *Event, body []byte) {
	l.seq++
	e.Seq, e.Prev = l.seq, l.head
	b := l.pending
	if b.events == 0 {
		b.firstSeq, b.firstTime = e.Seq, e.Time
	}
	start := len(b.buf)
	b.buf = appendHead(b.buf, e.Type, e.Seq)
	b.buf = append(b.buf, body...)
	b.buf = append(b.buf, prevKey...)
	b.buf = append(b.buf, l.head...)
	b.buf = append(b.buf, '"')
	l.head = string(l.hash.of(b.buf[start:]))
	e.Hash = l.head
	b.buf = append(b.buf, hashKey...)
	b.buf = append(b.buf, l.head...)
	b.buf = append(b.buf, "\"}\n"...)
	b.events++
	l.queued++
	l.bytes += len(b.buf) - start
	l.full.Store(int64(l.queued))
	l.sinceCheckpoint++
	if len(l.subs) > 0 {
		l.outbox = append(l.outbox, e)
	}
}

// deliver calls the subscribers in the order of the chain. No lock of the chain is held meanwhile, so they may ask for the
// head; whoever comes while another delivers waits for its own events to be through.
func (l *Log) deliver() {
	l.sub.Lock()
	defer l.sub.Unlock()
	for {
		l.mu.Lock()
		events, subs := l.outbox, l.subs
		l.outbox = nil
		l.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for _, e := range events {
			for _, f := range subs {
				(*f)(e)
			}
		}
	}
}

// appendOwn appends an event of the log itself, whatever the queue holds. The caller holds l.mu.
func (l *Log) appendOwn(e *Event) {
	e.Schema = Schema
	l.link(e, appendBody(nil, e))
}

// appendGap declares lost events. The caller holds l.mu.
func (l *Log) appendGap() {
	e := &Event{Type: TypeGap, Time: time.Now(), Class: "queue_full", FromSeq: l.lostFrom, Lost: l.lost}
	l.lost = 0
	l.appendOwn(e)
}
