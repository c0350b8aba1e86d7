package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	indexName  = "index.jsonl"
	bodiesName = "bodies"
	tidiedName = "tidied"
	tmpPrefix  = ".tmp-"
)

// Archive keeps every version of every robots.txt that was read: each body once, named by its SHA-256, and one line
// per fetch in index.jsonl. What it returned from was synced to disk. It is safe for concurrent use, by one process.
type Archive struct {
	dir      string
	maxAge   time.Duration
	maxBytes int64
	log      *slog.Logger

	mu     sync.Mutex
	index  *os.File
	size   int64            // of the index
	lines  int              // in the index
	last   map[uint64]int64 // hash of URL and agent: where its last line starts
	bodies int64            // bytes of bodies
	next   time.Time        // of the next look at age and size
	closed bool
}

// OpenArchive opens or makes the archive in dir (state_dir/robots), bounded by age and size as c says, and mends what a
// crash left: a line cut off is removed, since nothing was judged by it.
func OpenArchive(dir string, c Config) (*Archive, error) {
	if err := os.MkdirAll(filepath.Join(dir, bodiesName), 0o700); err != nil {
		return nil, fmt.Errorf("robots archive: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, indexName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("robots archive: %w", err)
	}
	a := &Archive{
		dir: dir, maxAge: c.ArchiveMaxAge, maxBytes: c.ArchiveMaxBytes, index: f, log: slog.New(slog.DiscardHandler),
	}
	for _, left := range leftovers(dir) {
		_ = os.Remove(left)
	}
	if err := a.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("robots archive %s: %w", dir, err), f.Close())
	}
	// A marker tells when age was last looked at, so that short runs get to it too, and none does at its start.
	if st, err := os.Stat(filepath.Join(dir, tidiedName)); err == nil {
		a.next = st.ModTime().Add(tidyEvery)
	}
	return a, nil
}

// logTo says where trouble that stops nothing is told.
func (a *Archive) logTo(log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = log
}

// bound changes how much is kept; it shows at the next store.
func (a *Archive) bound(c Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.maxAge != c.ArchiveMaxAge {
		a.next = time.Time{}
	}
	a.maxAge, a.maxBytes = c.ArchiveMaxAge, c.ArchiveMaxBytes
}

// store adds a version. When it returns nil, body and line are on disk.
func (a *Archive) store(v *Version, body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return os.ErrClosed
	}
	if v.SHA256 != "" && hexSum(body) == v.SHA256 { // else a 304 confirmed a body that is there
		fresh, err := a.writeBody(v.File, body)
		if err != nil {
			return err
		}
		if fresh {
			a.bodies += int64(len(body))
		}
	}
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := a.index.WriteAt(line, a.size); err != nil {
		return errors.Join(err, a.index.Truncate(a.size))
	}
	if err := a.index.Sync(); err != nil {
		return errors.Join(err, a.index.Truncate(a.size))
	}
	a.last[hashKey(v.URL, v.Agent)] = a.size
	a.size += int64(len(line))
	a.lines++
	now := time.Now()
	if now.After(a.next) || a.maxBytes > 0 && a.bodies+a.size > a.maxBytes {
		if err := a.tidy(now); err != nil { // the version itself is on disk
			a.log.Error("robots archive could not be tidied", "err", err)
		}
	}
	return nil
}

// writeBody puts a body in place under its final name only when it is whole and synced.
func (a *Archive) writeBody(file string, body []byte) (fresh bool, err error) {
	path := filepath.Join(a.dir, filepath.FromSlash(file))
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(body)) {
		return false, nil
	}
	if body == nil {
		body = []byte{}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	return true, writeSynced(dir, path, func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	})
}

// writeSynced writes a file under a temporary name, syncs it, gives it its name and syncs the folder.
func writeSynced(dir, path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(dir, tmpPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// has tells whether a body is on disk.
func (a *Archive) has(sha string) bool {
	_, err := os.Stat(filepath.Join(a.dir, filepath.FromSlash(bodyFile(sha))))
	return err == nil
}

// Body returns an archived body and checks it against its name.
func (a *Archive) Body(sha string) ([]byte, error) {
	if len(sha) != 64 || strings.Trim(sha, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("%q is no SHA-256 in hex", sha)
	}
	return readBodyFile(a.dir, sha)
}

// Latest returns the last version of a file that an agent read; url is the one of the robots.txt.
func (a *Archive) Latest(url, agent string) (Version, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	off, ok := a.last[hashKey(url, agent)]
	if !ok || a.closed {
		return Version{}, false
	}
	line, err := bufio.NewReader(io.NewSectionReader(a.index, off, a.size-off)).ReadBytes('\n')
	var v Version
	if err != nil || json.Unmarshal(line, &v) != nil || !v.valid() || v.URL != url || v.Agent != agent {
		return Version{}, false
	}
	return v, true
}

// At returns the version that was in force at a moment: the last one seen before it. It reads the index from the start.
func (a *Archive) At(url, agent string, t time.Time) (Version, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found Version
	ok := false
	if a.closed {
		return found, ok
	}
	_, err := scanIndex(a.index, func(v *Version, _ int64, _ int) {
		if v.URL != url || v.Agent != agent || v.Effective.After(t) {
			return
		}
		// Lines stand in the order of the fetches; one that confirms a version after t still tells of that version.
		if !ok || !v.Effective.Before(found.Effective) {
			if ok && found.same(v) && v.Fetched.After(t) {
				return
			}
			found, ok = *v, true
		}
	})
	return found, ok && err == nil
}

// Versions lists what is kept of one file, the oldest first: one version once, as it was last confirmed. It reads the
// index from the start.
func (a *Archive) Versions(url, agent string) []Version {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Version
	if a.closed {
		return nil
	}
	_, err := scanIndex(a.index, func(v *Version, _ int64, _ int) {
		if v.URL != url || v.Agent != agent {
			return
		}
		if n := len(out); n > 0 && out[n-1].same(v) {
			out[n-1] = *v
			return
		}
		out = append(out, *v)
	})
	if err != nil {
		a.log.Error("robots archive could not be read", "err", err)
	}
	return out
}

// Close ends the use of the archive.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return a.index.Close()
}
