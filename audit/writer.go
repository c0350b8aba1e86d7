package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// file is what the writer needs of the live file.
type file interface {
	Write(b []byte) (int, error)
	Sync() error
	Stat() (os.FileInfo, error)
	Close() error
}

// openAppend opens a log file; nobody but its owner reads it.
func openAppend(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// Times of the writer.
const (
	retryFirst  = 100 * time.Millisecond
	retryLast   = 2 * time.Second
	rotateRetry = time.Minute
)

// writer is the state of the one goroutine that touches the live file.
type writer struct {
	open      func(string) (file, error)
	f         file
	cur       *batch // taken from the chain, not yet wholly written
	spare     *batch
	size      int64
	firstSeq  uint64 // of the live file
	firstTime time.Time
	lastSeq   uint64 // written
	syncedSeq uint64 // on the disk
	dirty     bool   // written since the last fsync began

	syncing    chan error // the end of an fsync under way beside the writer, nil if there is none
	syncingSeq uint64     // what it covers

	flushed time.Time // last taken from the chain

	flushAt, syncAt, retryAt, probeAt, rotateAt time.Time

	failed   *Unavailable // the last write, nil when it worked
	unsynced *Unavailable // the last fsync
	low      *Unavailable // too little room
	retry    time.Duration
}

// run is the writer: it writes what waits at least every 50 ms or 256 KiB, fsyncs, rotates, and tries again what failed.
func (l *Log) run() {
	defer close(l.done)
	w := &l.w
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-l.wake:
			// After a quiet time at once; in busy ones at most every 50 ms.
			if w.flushAt.IsZero() {
				w.flushAt = w.flushed.Add(flushEvery)
			}
		case <-l.urgent:
			w.flushAt = time.Now()
		case <-l.probe:
			w.probeAt = time.Now()
		case o := <-l.ops:
			o.done <- o.run(l)
		case err := <-l.w.syncing:
			_ = l.synced(err) // kept in w.unsynced
		case <-timer.C:
		case <-l.quit:
			l.finish()
			return
		}
		l.work(time.Now())
		timer.Reset(w.next())
	}
}

// work does what is due.
func (l *Log) work(now time.Time) {
	w := &l.w
	if due(&w.probeAt, now) {
		l.checkRoom()
	}
	if due(&w.flushAt, now) || due(&w.retryAt, now) {
		_ = l.flush() // kept in w.failed and tried again
	}
	if due(&w.syncAt, now) {
		l.beginSync()
	}
	if w.failed == nil && l.mustRotate(now) {
		if err := l.rotate(); err != nil {
			w.rotateAt = now.Add(rotateRetry)
			l.log.Error("audit: rotate", "error", err)
		}
	}
}

// due tells whether a time has come, and forgets it.
func due(t *time.Time, now time.Time) bool {
	if t.IsZero() || t.After(now) {
		return false
	}
	*t = time.Time{}
	return true
}

// next is how long nothing is due.
func (w *writer) next() time.Duration {
	wait := time.Hour
	for _, t := range []time.Time{w.flushAt, w.syncAt, w.retryAt, w.probeAt} {
		if !t.IsZero() {
			wait = min(wait, time.Until(t))
		}
	}
	return max(wait, 0)
}

// take gives the events that wait, nil if none do. The caller holds l.mu.
func (l *Log) take() *batch {
	if l.pending.events == 0 {
		return nil
	}
	b := l.pending
	if l.pending = l.w.spare; l.pending == nil {
		l.pending = new(batch)
	}
	l.w.spare = nil
	return b
}

// flush writes everything that waited when it was called, and fsyncs if somebody waits for that.
func (l *Log) flush() error {
	// What an earlier write left, then what came since: no more, or a flood would keep the rest of the work from its turn.
	if err := l.writeOut(); err != nil {
		return err
	}
	l.w.flushed = time.Now()
	l.mu.Lock()
	l.w.cur = l.take()
	l.mu.Unlock()
	return l.writeOut()
}

// writeOut writes the batch in hand, if there is one.
func (l *Log) writeOut() error {
	w := &l.w
	if w.cur == nil {
		return nil
	}
	err := l.write(w.cur)
	if err != nil {
		l.writeFailed(err)
		w.cur.settle(w.failed)
	}
	return err
}

// write puts a batch, or what is left of it, into the file.
func (l *Log) write(b *batch) error {
	w := &l.w
	if err := l.checkFile(); err != nil {
		return err
	}
	for b.off < len(b.buf) {
		n, err := w.f.Write(b.buf[b.off:])
		if n > 0 {
			if w.size == 0 {
				w.firstSeq, w.firstTime = b.firstSeq, b.firstTime
			}
			b.off += n
			w.size += int64(n)
			w.dirty = true
		}
		if err != nil {
			return err
		}
	}
	w.lastSeq = b.firstSeq + uint64(b.events) - 1
	l.mu.Lock()
	l.queued -= b.events
	l.bytes -= len(b.buf)
	l.full.Store(int64(l.queued))
	if l.lost > 0 {
		l.appendGap()
		signal(l.urgent)
	}
	l.mu.Unlock()
	l.deliver()
	l.push.add(b.heads)
	w.cur = nil
	b.written.end(nil)
	b.written = nil
	switch {
	case b.synced != nil:
		b.synced.end(l.sync())
		b.synced = nil
	case w.syncAt.IsZero():
		w.syncAt = time.Now().Add(l.set.Load().every)
	}
	if w.failed != nil {
		w.failed, w.retryAt = nil, time.Time{}
		l.recovered()
	}
	b.reset()
	if cap(b.buf) <= 4*flushBytes {
		w.spare = b
	}
	return nil
}

// beginSync starts an fsync beside the writer: events go on into the file while a slow disk takes its time.
func (l *Log) beginSync() {
	w := &l.w
	if !w.dirty || w.syncing != nil {
		return // with one under way, its end looks at what was written since
	}
	f, done := w.f, make(chan error, 1)
	w.syncing, w.syncingSeq, w.dirty = done, w.lastSeq, false
	go func() { done <- f.Sync() }()
}

// endSync waits for an fsync under way.
func (l *Log) endSync() error {
	if l.w.syncing == nil {
		return nil
	}
	return l.synced(<-l.w.syncing)
}

// synced takes the end of an fsync. What a failed one covered may be lost for good (the kernel drops it), so that is
// declared in the chain.
func (l *Log) synced(err error) error {
	w := &l.w
	w.syncing = nil
	if err != nil {
		w.dirty = true
		if w.unsynced == nil {
			l.mu.Lock()
			l.appendOwn(&Event{Type: TypeGap, Time: time.Now(), Class: "fsync_failed", FromSeq: w.syncedSeq + 1, Note: Printable(err.Error(), 256)})
			l.mu.Unlock()
			l.deliver()
			signal(l.urgent)
			l.log.Error("audit: cannot fsync", "file", l.path, "error", err)
		}
		w.unsynced = &Unavailable{Why: "fsync_failed", Err: err}
		w.syncAt = time.Now().Add(retryLast)
		l.down.Store(w.unavailable())
		return w.unsynced
	}
	w.syncedSeq = w.syncingSeq
	if w.dirty && w.syncAt.IsZero() {
		w.syncAt = time.Now().Add(l.set.Load().every)
	}
	if w.unsynced != nil {
		w.unsynced = nil
		l.recovered()
	}
	return nil
}

// sync makes what was written durable before it returns.
func (l *Log) sync() error {
	if err := l.endSync(); err != nil {
		return err // it may have covered what was written since it began
	}
	l.w.syncAt = time.Time{}
	l.beginSync()
	return l.endSync()
}

// writeFailed tells Ready that the log can't take events, and when to try again.
func (l *Log) writeFailed(err error) {
	w := &l.w
	if w.failed == nil {
		l.log.Error("audit: cannot write", "file", l.path, "error", err)
		w.retry = retryFirst
	} else {
		w.retry = min(2*w.retry, retryLast)
	}
	w.failed = &Unavailable{Why: "write_failed", Err: err}
	w.retryAt = time.Now().Add(w.retry)
	l.down.Store(w.unavailable())
}

// recovered tells Ready that a failure is over.
func (l *Log) recovered() {
	l.down.Store(l.w.unavailable())
	if l.down.Load() == nil {
		l.log.Info("audit: can write again", "file", l.path)
	}
}

// unavailable is what Ready says, nil when all is well.
func (w *writer) unavailable() *Unavailable {
	switch {
	case w.failed != nil:
		return w.failed
	case w.unsynced != nil:
		return w.unsynced
	}
	return w.low
}

// checkRoom looks at the space left.
func (l *Log) checkRoom() {
	w := &l.w
	before := w.low
	w.low = nil
	if least := l.set.Load().MinFree; least > 0 {
		free, err := freeBytes(filepath.Dir(l.path))
		if err == nil && free < least {
			w.low = &Unavailable{Why: "disk_low", Err: fmt.Errorf("%d bytes free, audit.min_free is %d", free, least)}
			w.probeAt = time.Now().Add(time.Second)
		}
	}
	if (before == nil) != (w.low == nil) {
		if w.low != nil {
			l.log.Error("audit: disk nearly full", "file", l.path, "error", w.low.Err)
		}
		l.down.Store(w.unavailable())
	}
}

// checkFile notices what others did to the live file: cut in place (copytruncate), deleted, or moved away. The chain goes
// on; a cut or deleted file is declared as a gap, a moved one is somebody's rotation.
func (l *Log) checkFile() error {
	w := &l.w
	if w.f == nil {
		return l.openLive()
	}
	st, err := w.f.Stat()
	if err != nil {
		return err
	}
	if st.Size() < w.size {
		l.declare("file_truncated", "the live file shrank: let the gate rotate it, not copytruncate")
		w.size = st.Size()
	}
	at, err := os.Stat(l.path)
	switch {
	case err == nil && os.SameFile(st, at):
		return nil
	case errors.Is(err, fs.ErrNotExist) && gone(st):
		l.declare("file_removed", "the live file was deleted")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return l.openLive()
}

// declare appends a gap event for lines that were in the live file and may be gone.
func (l *Log) declare(class, note string) {
	w := &l.w
	l.mu.Lock()
	l.appendOwn(&Event{Type: TypeGap, Time: time.Now(), Class: class, FromSeq: w.firstSeq, Lost: int64(w.lastSeq + 1 - w.firstSeq), Note: note})
	l.mu.Unlock()
	l.deliver()
	l.log.Error("audit: "+note, "file", l.path)
	signal(l.urgent)
}

// openLive opens the live file by its name, after the one before.
func (l *Log) openLive() error {
	w := &l.w
	_ = l.endSync() // kept in w.unsynced
	f, err := w.open(l.path)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if w.f != nil {
		if w.dirty {
			err = w.f.Sync()
		}
		if cerr := w.f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			l.log.Error("audit: close the moved file", "error", err)
		}
	}
	w.f, w.size, w.dirty = f, st.Size(), false
	if first, err := firstLink(l.path); err == nil { // a file that somebody put there: sealed under its own beginning
		w.firstSeq = first.seq
		w.firstTime, _ = time.Parse(time.RFC3339, first.time)
	}
	return nil
}

// reopen serves Reopen.
func (l *Log) reopen() error {
	err := l.flush()
	if oerr := l.openLive(); oerr != nil {
		err = oerr
	}
	return err
}

// finish is the end: what waits is written and fsynced.
func (l *Log) finish() {
	w := &l.w
	err := l.flush()
	if err == nil {
		if err = l.sync(); err != nil {
			_ = l.flush() // the gap event that says so
		}
	}
	_ = l.endSync() // flush failed, and what is said below is more
	if w.f != nil {
		if cerr := w.f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		l.mu.Lock()
		waiting := l.queued
		l.pending.settle(err)
		l.mu.Unlock()
		l.closeErr = fmt.Errorf("close the audit log: %d events not written: %w", waiting, err)
	}
}
