package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"crawlgate/audit"
)

// watched is a log of some events with a watch that says what it finds.
func watched(t *testing.T, c audit.Config) (w *chainWatch, said *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(c, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	said = &bytes.Buffer{}
	w = &chainWatch{events: l, stateDir: dir, every: func() time.Duration { return time.Hour }, log: slog.New(slog.NewTextHandler(said, nil))}
	w.more(t, 50)
	return w, said
}

func (w *chainWatch) more(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := w.events.Record(context.Background(), &audit.Event{Method: "GET", Host: "example.com", Decision: audit.Refused, Reason: "site-denied", Note: strings.Repeat("x", 1000)}); err != nil {
			t.Error(err)
		}
	}
}

// A change of the log by somebody else is found, told once, and its end too.
func TestChainWatch(t *testing.T) {
	w, said := watched(t, audit.Defaults())
	w.verify(t.Context())
	if c := w.last.Load(); !c.whole() || c.text() != "" || c.rep.Events != 51 || said.Len() > 0 {
		t.Fatalf("%+v\n%s", c, said)
	}
	live := w.events.Path()
	whole, err := os.ReadFile(live)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		// In place, as somebody with an editor would not do it but a thief may: the gate keeps writing to the same file.
		if err := os.WriteFile(live, b, 0o600); err != nil {
			t.Fatal(err)
		}
		w.verify(t.Context())
	}
	put(bytes.Replace(whole, []byte("example.com"), []byte("example.org"), 1))
	if c := w.last.Load(); c.whole() || c.rep.Broken.Kind != audit.Altered || !strings.Contains(c.text(), "crawlgate.jsonl line 2") {
		t.Errorf("altered: %+v", c)
	}
	w.verify(t.Context())
	if n := strings.Count(said.String(), "the chain is not whole"); n != 1 {
		t.Errorf("told %d times", n)
	}
	put(whole)
	if c := w.last.Load(); !c.whole() || !strings.Contains(said.String(), "whole again") {
		t.Errorf("mended: %+v\n%s", c, said)
	}
	// A tail that was cut is no broken chain by itself; the head that the gate holds shows it.
	lines := bytes.SplitAfter(whole, []byte("\n"))
	put(bytes.Join(lines[:30], nil))
	if c := w.last.Load(); c.whole() || c.rep.Broken.Kind != audit.TailMissing {
		t.Errorf("cut: %+v", c)
	}
	if err := os.Remove(live); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(live, 0o700); err != nil {
		t.Fatal(err)
	}
	w.verify(t.Context())
	if c := w.last.Load(); c.whole() || c.err == nil || !strings.Contains(c.text(), "could not be read") {
		t.Errorf("a folder in its place: %+v", c)
	}
	if err := os.Remove(live); err != nil {
		t.Fatal(err)
	}
}

// Files that are sealed, compressed and deleted while the watch reads are no finding.
func TestChainWatchAndRotation(t *testing.T) {
	c := audit.Defaults()
	c.MaxSize, c.Keep = 64<<10, 3
	w, said := watched(t, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 40 {
			w.more(t, 25)
			_ = w.events.Flush()
		}
	}()
	n := 0
	for running := true; running; n++ {
		select {
		case <-done:
			running = false
		default:
		}
		if c := w.read(t.Context()); !c.whole() && running {
			// So busy a log can beat five attempts, but it must never be called altered.
			if c.rep.Broken != nil && c.rep.Broken.Kind == audit.Altered {
				t.Errorf("%+v", c.rep.Broken)
			}
		}
	}
	within(t, 20*time.Second, "the log is whole when its last files are sealed", func() bool { return w.read(t.Context()).whole() })
	if said.Len() > 0 {
		t.Errorf("%s", said)
	}
}

// The watch reads at the start and then as often as it is told, and ends with its context.
func TestChainWatchRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, audit.Defaults())
		defer w.events.Close()
		var every atomic.Int64
		every.Store(int64(time.Hour))
		w.every = func() time.Duration { return time.Duration(every.Load()) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.run(ctx) }()
		began := time.Now()
		at := func() time.Duration { synctest.Wait(); return w.last.Load().at.Sub(began) }
		time.Sleep(time.Second)
		if got := at(); got > flushSlack {
			t.Errorf("first after %s", got)
		}
		time.Sleep(90 * time.Minute)
		if got := at(); got < time.Hour || got > time.Hour+2*chainLook {
			t.Errorf("then after %s", got)
		}
		before := w.last.Load()
		every.Store(0)
		time.Sleep(24 * time.Hour)
		if synctest.Wait(); w.last.Load() != before {
			t.Error("verified although it is switched off")
		}
		cancel()
		<-done
		w.verify(ctx)
		if w.last.Load() != before {
			t.Error("an ended verification counts")
		}
	})
}

// flushSlack is what writing what waits may take.
const flushSlack = 100 * time.Millisecond

func TestProofReader(t *testing.T) {
	dir := t.TempDir()
	var r proofReader
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	if k, err := r.read(dir, log); k != nil || err != nil {
		t.Errorf("none: %v %v", k, err)
	}
	p := &audit.Proof{Schema: audit.ProofSchema, Sent: 1}
	if err := audit.SaveProof(dir, p, time.Now(), "v", 0); err != nil {
		t.Fatal(err)
	}
	k, err := r.read(dir, log)
	if err != nil || k.Proof.Sent != 1 {
		t.Fatalf("%+v %v", k, err)
	}
	if again, err := r.read(dir, log); err != nil || again != k {
		t.Error("the same file was read twice")
	}
	file := audit.ProofFile(dir)
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.read(dir, log); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%v", err)
		}
	}
	if n := strings.Count(said.String(), "cannot be read"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if k, err := r.read(dir, log); k != nil || err != nil {
		t.Errorf("removed: %v %v", k, err)
	}
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(dir, log); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
}
