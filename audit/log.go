package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is given by a log that was closed.
var ErrClosed = errors.New("audit log is closed")

// Unavailable says why the log cannot take events.
type Unavailable struct {
	Why string // write_failed, fsync_failed, disk_low, queue_full
	Err error  // of the file system, nil for queue_full
}

func (u *Unavailable) Error() string {
	if u.Err == nil {
		return "audit log unavailable: " + u.Why
	}
	return "audit log unavailable: " + u.Why + ": " + u.Err.Error()
}

// Unwrap gives the file system's error.
func (u *Unavailable) Unwrap() error { return u.Err }

// settings are what a reload may change.
type settings struct {
	Config
	every time.Duration // between fsyncs; 0: before each answer
	red   *Redactor
}

// Log is the gate's own log. Its methods may be called from many goroutines.
type Log struct {
	set    atomic.Pointer[settings]
	key    []byte // of url_hash
	path   string
	dir    string // keys
	log    *slog.Logger
	signer *signer
	push   *exporter // of signed heads
	lock   *fileLock

	mu              sync.Mutex // the chain
	seq             uint64
	head            string
	hash            hasher
	pending         *batch
	queued, bytes   int // of pending and of what the writer has in hand
	sinceCheckpoint int
	lost            int64 // events refused since the last gap event
	lostFrom        uint64
	totalLost       int64
	signed          Head // last signed
	closed          bool

	subs   []*func(*Event) // never changed in place
	outbox []*Event        // recorded, not yet given to the subscribers

	sub sync.Mutex // held while delivering, so that order holds

	down   atomic.Pointer[Unavailable]
	full   atomic.Int64 // events waiting, for Ready
	probed atomic.Int64 // when the disk was last looked at, nanoseconds since 1970

	wake, urgent, probe chan struct{}
	ops                 chan op
	quit, done          chan struct{}
	keep                chan struct{} // work for the keeper
	keepDone            chan struct{}
	closing             sync.Once
	closeErr            error

	w writer
}

// Open opens the log of a state folder, made if it is not there, and goes on with the chain it finds. What a crash left
// unfinished is moved aside and named in the start event. stateDir/audit holds the keys. A nil logger discards. Heads can
// go to files only; [OpenVia] opens a log that also delivers them over the network.
func Open(c Config, stateDir string, log *slog.Logger) (*Log, error) {
	return open(c, stateDir, log, nil, openAppend)
}

// OpenVia is [Open] with a way to the sinks of checkpoint_to that are on the network.
func OpenVia(dial Dial, c Config, stateDir string, log *slog.Logger) (*Log, error) {
	return open(c, stateDir, log, dial, openAppend)
}

func open(c Config, stateDir string, log *slog.Logger, dial Dial, opener func(string) (file, error)) (*Log, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		path: c.path(stateDir), dir: filepath.Join(stateDir, "audit"), log: log, pending: new(batch),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), probe: make(chan struct{}, 1), ops: make(chan op),
		quit: make(chan struct{}), done: make(chan struct{}), keep: make(chan struct{}, 1), keepDone: make(chan struct{}),
	}
	for _, dir := range []string{l.dir, filepath.Dir(l.path)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open the audit log: %w", err)
		}
	}
	var err error
	if l.lock, err = lockFile(lockPath(l.path)); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if err := l.start(c, dial, opener); err != nil {
		l.lock.unlock()
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	go l.run()
	go l.keeper()
	l.signalKeeper()
	return l, nil
}

// start reads keys and the end of the chain, opens the file and appends the start event.
func (l *Log) start(c Config, dial Dial, opener func(string) (file, error)) (err error) {
	if l.key, err = loadHashKey(l.dir, true); err != nil {
		return err
	}
	l.push = newExporter(l.dir, l.key, dial, l.log)
	deliver, err := l.push.prepare(c)
	if err != nil {
		return err
	}
	if err := l.use(c); err != nil {
		return err
	}
	if l.signer, err = openSigner(l.dir); err != nil {
		return err
	}
	found, err := findEnd(l.path, c.Sync == syncIntent)
	if err != nil {
		return err
	}
	l.seq, l.head = found.seq, found.head
	if found.seq > 0 && len(c.CheckpointTo) > 0 {
		h, err := newestCheckpoint(l.path)
		if err != nil {
			l.log.Warn("audit: the newest signed head cannot be read; checkpoint_to gets the next one", "error", err)
		}
		if h != nil {
			l.push.newest, l.signed = h, h.Head
			l.signed.File = l.path
		}
	}
	l.w = writer{open: opener, size: found.size, lastSeq: found.seq, syncedSeq: found.seq, firstSeq: found.firstSeq, firstTime: found.firstTime}
	if l.w.f, err = opener(l.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		l.w.f.Close()
		return err
	}
	deliver()
	if found.torn != "" {
		l.log.Warn("audit: unfinished last line moved aside", "file", found.torn, "bytes", found.tornBytes)
	}
	if len(found.unfinished) > 0 {
		l.log.Warn("audit: requests went out and never ended", "count", len(found.unfinished))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendOwn(&Event{Type: TypeStart, Time: time.Now(), PID: os.Getpid(), Torn: found.torn, TornBytes: found.tornBytes, Unfinished: found.unfinished})
	signal(l.urgent)
	return nil
}

// use puts a configuration in force.
func (l *Log) use(c Config) error {
	every, err := c.fsync()
	if err != nil {
		return err
	}
	l.set.Store(&settings{Config: c, every: every, red: newRedactor(c, l.key)})
	return nil
}

// Reload puts another configuration in force, whole or not at all; events recorded from then on follow it. The file cannot
// change while the log is open.
func (l *Log) Reload(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.File != l.set.Load().File {
		return &keyError{"file", "the audit log's file cannot change while it is open: restart"}
	}
	deliver, err := l.push.prepare(c)
	if err != nil {
		return err
	}
	if err := l.use(c); err != nil {
		return err
	}
	deliver()
	l.signalKeeper()
	return nil
}

// Ready tells, before a request goes out, whether its event can be taken: nil, or *Unavailable or ErrClosed. With
// on_error: drop it is always ready.
func (l *Log) Ready() error {
	select {
	case <-l.quit:
		return ErrClosed
	default:
	}
	set := l.set.Load()
	if set.OnError == drop {
		return nil
	}
	if now := time.Now().UnixNano(); now-l.probed.Load() > int64(time.Second) {
		l.probed.Store(now)
		signal(l.probe)
	}
	if u := l.down.Load(); u != nil {
		return u
	}
	// The last quarter is for requests that are under way already.
	if l.full.Load() > int64(set.Queue)*3/4 {
		return &Unavailable{Why: "queue_full"}
	}
	return nil
}

// Record appends one event. It sets seq, prev, hash, url, location and url_hash, and the event belongs to the log from
// then on. It returns when the event waits for the writer (at most 50 ms); with fsync: always, and for a refusal by
// address, when it is on the disk or ctx ends. An error says that the event is lost (and will be counted in a gap event),
// or, with fsync: always, that it is not yet durable.
func (l *Log) Record(ctx context.Context, e *Event) error {
	how := queuedOnly
	if l.set.Load().every == 0 || e.Reason == "address-denied" {
		how = untilSynced
	}
	return l.record(ctx, e, how)
}

// Intent records, before the first byte goes out, that a request is about to: an intent event with the same id, written
// (with fsync: always, on the disk) when it returns. Without sync: intent it does nothing. The event stays the caller's.
func (l *Log) Intent(ctx context.Context, e *Event) error {
	set := l.set.Load()
	if set.Sync != syncIntent {
		return nil
	}
	if e.ID == "" {
		e.ID = NewID()
	}
	i := *e
	i.Type = TypeIntent
	how := untilWritten
	if set.every == 0 {
		how = untilSynced
	}
	return l.record(ctx, &i, how)
}

// Subscribe calls f once for each event recorded from now on, in order, also those of the log itself (start, checkpoint,
// ...), until cancel is called (a call that is under way then may still end after). f must return at once, must not
// record, and must not change the event.
func (l *Log) Subscribe(f func(*Event)) (cancel func()) {
	p := &f
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs = append(slices.Clip(l.subs), p)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.subs = slices.DeleteFunc(slices.Clone(l.subs), func(s *func(*Event)) bool { return s == p })
	}
}

// Head is the number and hash of the last event: keep it elsewhere, and a cut tail can be proven.
func (l *Log) Head() (seq uint64, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq, l.head
}

// Path is the live file.
func (l *Log) Path() string { return l.path }

// Reopen writes what waits and opens the file by its name again, for movers of log files that signal.
func (l *Log) Reopen() error { return l.do((*Log).reopen) }

// Flush returns when everything recorded before is on the disk, or with the reason why it is not.
func (l *Log) Flush() error {
	return l.do(func(l *Log) error {
		if err := l.flush(); err != nil {
			return err
		}
		return l.sync()
	})
}

// op is work for the writer.
type op struct {
	run  func(*Log) error
	done chan error
}

func (l *Log) do(run func(*Log) error) error {
	o := op{run, make(chan error, 1)}
	select {
	case l.ops <- o:
		return <-o.done
	case <-l.quit:
		return ErrClosed
	}
}

// Close records the stop, writes and fsyncs everything, gives the delivery of signed heads a few seconds, and frees the
// file. Later calls return the same.
func (l *Log) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		if l.lost > 0 {
			l.appendGap()
		}
		l.appendOwn(&Event{Type: TypeStop, Time: time.Now(), PID: os.Getpid()})
		l.appendCheckpoint(Checkpoint{})
		l.closed = true
		l.mu.Unlock()
		l.deliver()
		close(l.quit)
		<-l.done
		<-l.keepDone
		l.push.close()
		l.lock.unlock()
	})
	return l.closeErr
}

// signal wakes a goroutine that waits on a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
