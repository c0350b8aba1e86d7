package configs

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A change counts when nothing happened for a while; steps of one change are one call.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan struct{})
		var calls []time.Duration
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			settle(ctx, events, quiet, func() { calls = append(calls, time.Since(start)) })
		}()
		at := func(d time.Duration) {
			time.Sleep(d - time.Since(start)) // virtual time
			events <- struct{}{}
		}
		at(0)
		at(100 * time.Millisecond)
		at(399 * time.Millisecond)
		at(2 * time.Second)
		time.Sleep(time.Second)
		cancel()
		<-done
		want := []time.Duration{699 * time.Millisecond, 2300 * time.Millisecond}
		if len(calls) != 2 || calls[0] != want[0] || calls[1] != want[1] {
			t.Errorf("calls at %v, want %v", calls, want)
		}
	})
}

// watching starts Watch and returns a channel of its calls; it waits until the folders are watched.
func watching(t *testing.T, files ...string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	calls := make(chan struct{}, 100)
	ready := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		w, err := newWatch(files, nil)
		close(ready)
		if err == nil {
			err = w.run(ctx, func() { calls <- struct{}{} })
		}
		done <- err
	}()
	<-ready
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return calls
}

func expectCall(t *testing.T, calls <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(10 * time.Second):
		t.Fatalf("no call after %s", what)
	}
	for len(calls) > 0 { // a slow machine may see one change as two
		<-calls
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	file, clients := filepath.Join(dir, FileName), ClientsFile(state)
	write(t, file, "open: true\n")
	calls := watching(t, file, clients)

	write(t, file, "open: false\n")
	expectCall(t, calls, "a write in place")

	write(t, file+".tmp", "open: true\n")
	rename(t, file+".tmp", file)
	expectCall(t, calls, "a replaced file")

	rename(t, file, file+"~") // an editor that keeps a backup
	write(t, file, "open: false\n# more\n")
	expectCall(t, calls, "a backup and a new file")

	write(t, clients, "clients: []\n")
	expectCall(t, calls, "a new clients.yaml")

	// Other files of the folders, and a write of the same content, are no change. The write after them ends the wait.
	write(t, filepath.Join(state, "state.db"), "x")
	write(t, file, "open: false\n# more\n")
	if err := os.Remove(clients); err != nil {
		t.Fatal(err)
	}
	expectCall(t, calls, "a removed clients.yaml")
}

// Kubernetes mounts a folder of links and swaps the one named ..data.
func TestWatchKubernetes(t *testing.T) {
	dir := t.TempDir()
	for _, v := range []string{"..v1", "..v2"} {
		if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, v, FileName), "# "+v+"\n")
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..v1", "..data")
	link("..data/"+FileName, FileName)
	calls := watching(t, filepath.Join(dir, FileName))
	link("..v2", "..data_tmp")
	rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	expectCall(t, calls, "a swapped link")
}

// The file behind a link lies in another folder.
func TestWatchLink(t *testing.T) {
	dir, real := t.TempDir(), filepath.Join(t.TempDir(), "real.yaml")
	write(t, real, "open: true\n")
	if err := os.Symlink(real, filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	calls := watching(t, filepath.Join(dir, FileName))
	write(t, real, "open: false\n")
	expectCall(t, calls, "a write behind a link")
}

// A file named without its folder is watched where the process stands; a folder that is not there is left out.
func TestWatchPlaces(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, FileName, "open: true\n")
	calls := watching(t, FileName, "nowhere/clients.yaml")
	write(t, FileName, "open: false\n")
	expectCall(t, calls, "a write")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Watch(gone, []string{FileName}, nil, func() {}); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
