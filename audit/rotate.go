package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

// sealedTime is how a sealed file's name tells when it began.
const sealedTime = "20060102T150405.000Z"

// mustRotate tells whether the live file is full or old.
func (l *Log) mustRotate(now time.Time) bool {
	w := &l.w
	if w.size == 0 || w.rotateAt.After(now) {
		return false
	}
	set := l.set.Load()
	return w.size >= set.MaxSize || set.MaxAge > 0 && now.Sub(w.firstTime) >= set.MaxAge
}

// rotate seals the live file: a signed head as its last line, fsynced, renamed, and a new file begun.
func (l *Log) rotate() error {
	w := &l.w
	if err := l.flush(); err != nil {
		return err
	}
	l.mu.Lock()
	l.appendCheckpoint(Checkpoint{})
	w.cur = l.take() // with the checkpoint as its last event
	l.mu.Unlock()
	l.deliver()
	if err := l.writeOut(); err != nil {
		return err
	}
	if err := l.sync(); err != nil {
		return err
	}
	sealed := sealedName(l.path, w.firstTime, w.firstSeq)
	for _, name := range []string{sealed, sealed + ".gz"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists already", name)
		}
	}
	if err := os.Rename(l.path, sealed); err != nil {
		return err
	}
	err := w.f.Close()
	w.f, w.size, w.dirty = nil, 0, false
	if oerr := l.openLive(); err == nil {
		err = oerr
	}
	if serr := syncDir(filepath.Dir(l.path)); err == nil {
		err = serr
	}
	l.signalKeeper()
	return err
}

// sealedName is a sealed file's name: `<name>-<start time>-<first seq>.jsonl`. A seq is given once in a chain, so a name
// never comes twice.
func sealedName(live string, start time.Time, firstSeq uint64) string {
	base := strings.TrimSuffix(live, ".jsonl")
	return fmt.Sprintf("%s-%s-%d.jsonl", base, start.UTC().Format(sealedTime), firstSeq)
}

func (l *Log) signalKeeper() { signal(l.keep) }

// keeper compresses sealed files and deletes the oldest, beside the writer.
func (l *Log) keeper() {
	defer close(l.keepDone)
	for {
		select {
		case <-l.quit:
			<-l.done
			return
		case <-l.keep:
		}
		if err := l.retain(); err != nil {
			l.log.Error("audit: delete old files", "error", err)
		}
		if l.set.Load().Compress {
			if err := l.compress(); err != nil {
				l.log.Error("audit: compress", "error", err)
			}
		}
	}
}

// retain deletes the oldest sealed files beyond `keep`, after a checkpoint that names what goes is on the disk.
func (l *Log) retain() error {
	keep := l.set.Load().Keep
	if keep == 0 {
		return nil
	}
	sealed, err := sealedFiles(l.path)
	if err != nil || len(sealed) <= keep {
		return err
	}
	old, rest := sealed[:len(sealed)-keep], sealed[len(sealed)-keep:]
	first, err := firstLink(rest[0].path)
	if err != nil {
		return fmt.Errorf("%s: %w", rest[0].path, err)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.appendCheckpoint(Checkpoint{RemovedFrom: old[0].firstSeq, RemovedTo: first.seq - 1, RemovedHead: first.prev})
	l.mu.Unlock()
	l.deliver()
	if err := l.Flush(); err != nil {
		return err
	}
	for _, f := range old {
		for _, path := range []string{f.path, f.path + ".gz"} { // a crash may have left both
			if err := os.Remove(path); err != nil && (path == f.path || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
	}
	return syncDir(filepath.Dir(l.path))
}

// compress turns sealed files into gzip files, one after another, until the log is closed.
func (l *Log) compress() error {
	sealed, err := sealedFiles(l.path)
	if err != nil {
		return err
	}
	for _, f := range sealed {
		if strings.HasSuffix(f.path, ".gz") {
			continue
		}
		if err := compressFile(f.path, l.quit); err != nil {
			return err
		}
	}
	return nil
}

// tempMark is in the name of a file that is being compressed.
const tempMark = ".gz.tmp"

const compressBuffer = 64 << 10

var errStopped = errors.New("stopped")

// compressFile writes path.gz under a temporary name, makes it durable, and only then removes the plain file. It gives up
// without harm when quit is closed.
func compressFile(path string, quit <-chan struct{}) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := path + tempMark
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			out.Close()
			os.Remove(tmp)
		}
		if errors.Is(err, errStopped) {
			err = nil
		}
	}()
	buf := bufio.NewWriterSize(out, compressBuffer)    // gzip writes a few hundred bytes at a time
	z, err := gzip.NewWriterLevel(buf, gzip.BestSpeed) // compressing must not cost more than writing did
	if err != nil {
		return err
	}
	if _, err = io.Copy(z, stopReader{in, quit}); err != nil {
		return err
	}
	if err = z.Close(); err != nil {
		return err
	}
	if err = buf.Flush(); err != nil {
		return err
	}
	if err = out.Sync(); err != nil {
		return err
	}
	if err = out.Close(); err != nil {
		return err
	}
	if err = os.Rename(tmp, path+".gz"); err != nil {
		return err
	}
	if err = syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Remove(path)
}

// stopReader reads until quit is closed.
type stopReader struct {
	r    io.Reader
	quit <-chan struct{}
}

func (s stopReader) Read(b []byte) (int, error) {
	select {
	case <-s.quit:
		return 0, errStopped
	default:
		return s.r.Read(b)
	}
}
