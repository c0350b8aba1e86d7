package configs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quiet is how long nothing may happen before a change counts as finished: editors and Kubernetes replace files in steps.
const quiet = 300 * time.Millisecond

// Watch calls changed, one call at a time, when the content of one of the files is another than before, until ctx is
// done; it then returns nil. It watches the folders, so a file may be replaced, removed, or made later. A folder that
// does not exist yet is left out, with a line in the log. An error means that the files cannot be watched.
func Watch(ctx context.Context, files []string, log *slog.Logger, changed func()) error {
	w, err := newWatch(files, log)
	if err != nil {
		return err
	}
	return w.run(ctx, changed)
}

type watch struct {
	files []string
	names map[string]bool // of the files, links resolved too
	seen  string          // content at the last look
	log   *slog.Logger
	fs    *fsnotify.Watcher
}

func newWatch(files []string, log *slog.Logger) (*watch, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the configuration: %w", err)
	}
	w := &watch{files: files, names: map[string]bool{}, log: log, fs: fw}
	folders := map[string]bool{}
	for _, f := range files {
		for _, name := range []string{f, resolved(f)} {
			dir := filepath.Dir(name)
			w.names[filepath.Join(dir, filepath.Base(name))] = true
			if folders[dir] {
				continue
			}
			folders[dir] = true
			switch err := fw.Add(dir); {
			case errors.Is(err, fs.ErrNotExist):
				log.Info("folder does not exist, changes in it need a SIGHUP", "folder", dir)
			case err != nil:
				return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), fw.Close())
			}
		}
	}
	w.seen = contentOf(files)
	return w, nil
}

func (w *watch) run(ctx context.Context, changed func()) error {
	events := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		w.forward(ctx, events)
	}()
	settle(ctx, events, quiet, func() {
		if now := contentOf(w.files); now != w.seen {
			w.seen = now
			changed()
		}
	})
	<-done
	return w.fs.Close()
}

// forward passes on that something may have happened to one of the files.
func (w *watch) forward(ctx context.Context, events chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.fs.Events:
			// Kubernetes swaps the link ..data beside the file, and the file itself never changes.
			if e.Op == fsnotify.Chmod || !w.names[filepath.Clean(e.Name)] && !strings.HasPrefix(filepath.Base(e.Name), "..") {
				continue
			}
		case err := <-w.fs.Errors:
			w.log.Warn("watching the configuration", "error", err) // an overflow: look at the files to be sure
		}
		select {
		case events <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// settle calls fn each time that events came and then none for a while. It returns when ctx is done or events closed.
func settle(ctx context.Context, events <-chan struct{}, quiet time.Duration, fn func()) {
	timer := time.NewTimer(quiet)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				return
			}
			timer.Reset(quiet)
		case <-timer.C:
			fn()
		}
	}
}

// resolved is the file behind links, or the name itself.
func resolved(name string) string {
	if r, err := filepath.EvalSymlinks(name); err == nil {
		return r
	}
	return name
}

// contentOf is one digest of all files; a missing one has a content of its own.
func contentOf(files []string) string {
	h := sha256.New()
	for _, name := range files {
		st, err := os.Stat(name)
		if err != nil || !st.Mode().IsRegular() {
			fmt.Fprintf(h, "%q missing\n", name)
			continue
		}
		data, err := readFile(name)
		sum := sha256.Sum256(data)
		fmt.Fprintf(h, "%q %v %x\n", name, err == nil, sum)
	}
	return string(h.Sum(nil))
}
