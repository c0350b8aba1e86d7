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
// does not exist yet is left out, with a line in the log. An error means that nothing can be watched.
func Watch(ctx context.Context, files []string, log *slog.Logger, changed func()) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	defer w.Close()
	names := map[string]bool{}
	folders := map[string]bool{}
	for _, f := range files {
		for _, name := range []string{f, resolved(f)} {
			dir := filepath.Dir(name)
			names[filepath.Join(dir, filepath.Base(name))] = true
			if folders[dir] {
				continue
			}
			if err := w.Add(dir); err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("watch %s: %w", dir, err)
				}
				log.Info("folder does not exist, changes in it need a SIGHUP", "folder", dir)
				continue
			}
			folders[dir] = true
		}
	}
	seen := contentOf(files)
	events := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-w.Events:
				if !ok {
					return
				}
				// Kubernetes swaps the link ..data beside the file, and the file itself never changes.
				if e.Op == fsnotify.Chmod || !names[filepath.Clean(e.Name)] && !strings.HasPrefix(filepath.Base(e.Name), "..") {
					continue
				}
			case err, ok := <-w.Errors:
				if !ok {
					return
				}
				log.Warn("watching the configuration", "error", err) // an overflow: look at the files to be sure
			}
			select {
			case events <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	settle(ctx, events, quiet, func() {
		if now := contentOf(files); now != seen {
			seen = now
			changed()
		}
	})
	<-done
	return nil
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
