package audit

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a file system with faults: room for so many bytes, and fsyncs that fail.
type disk struct {
	mu       sync.Mutex
	room     int64 // bytes that may still be written; below 0: no limit
	syncErr  error
	openErr  error
	syncs    int
	slow     time.Duration // that an fsync takes
	written  int64
	unsynced int64 // bytes written since the last fsync
}

func (d *disk) set(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *disk) open(path string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.openErr != nil {
		return nil, d.openErr
	}
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	return &faulty{f.(*os.File), d}, nil
}

type faulty struct {
	*os.File
	d *disk
}

// Write writes what there is room for, as a real disk does.
func (f *faulty) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	var full error
	if f.d.room >= 0 && int64(len(b)) > f.d.room {
		b, full = b[:f.d.room], syscall.ENOSPC
	}
	n, err := f.File.Write(b)
	if f.d.room >= 0 {
		f.d.room -= int64(n)
	}
	f.d.written += int64(n)
	f.d.unsynced += int64(n)
	if err == nil {
		err = full
	}
	return n, err
}

func (f *faulty) Sync() error {
	f.d.mu.Lock()
	slow := f.d.slow
	f.d.mu.Unlock()
	time.Sleep(slow)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.syncs++
	if f.d.syncErr != nil {
		return f.d.syncErr
	}
	f.d.unsynced = 0
	return nil
}

func openDisk(t *testing.T, c Config, dir string, d *disk) *Log {
	t.Helper()
	l, err := open(c, dir, nil, nil, d.open)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// simple is a short event.
func simple(reason string) *Event {
	return &Event{Method: "GET", Host: "example.com", Decision: Refused, Reason: reason}
}

// mustVerify fails the test unless the log's files are a whole chain.
func mustVerify(t *testing.T, live string, opt VerifyOptions) Report {
	t.Helper()
	files, err := Files(live)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Verify(files, opt)
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK {
		t.Fatalf("chain: %v", rep.Broken)
	}
	return rep
}

// events reads all events of a log.
func events(t *testing.T, live string, types ...string) []*Event {
	t.Helper()
	files, err := Files(live)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := Last(context.Background(), files, Query{Types: types}, func(f string, n int) { t.Errorf("%s:%d is no event", f, n) })
	if err != nil {
		t.Fatal(err)
	}
	var es []*Event
	for _, r := range recs {
		es = append(es, r.Event)
	}
	return es
}

// TestFullDisk: with a full disk the log says so before the next request, keeps what it holds, and is whole when room
// returns, also when the last write stopped inside a line.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		c := Defaults()
		c.Queue = 64
		dir := t.TempDir()
		l := openDisk(t, c, dir, d)
		ctx := context.Background()
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		d.set(func(d *disk) { d.room = 100 })
		if err := l.Record(ctx, simple("ok")); err != nil {
			t.Fatalf("the first event after: %v", err)
		}
		time.Sleep(time.Second)
		var u *Unavailable
		if err := l.Ready(); !errors.As(err, &u) || u.Why != "write_failed" || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("ready with a full disk: %v", err)
		}
		lost := 0
		for range 100 {
			if l.Record(ctx, simple("ok")) != nil {
				lost++
			}
		}
		if lost < 30 || lost > 40 {
			t.Fatalf("%d of 100 events lost with a queue of 64", lost)
		}
		if err := l.Flush(); err == nil {
			t.Fatal("flush says nothing of the full disk")
		}
		d.set(func(d *disk) { d.room = -1 })
		time.Sleep(3 * time.Second)
		if err := l.Ready(); err != nil {
			t.Fatalf("ready with room again: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		rep := mustVerify(t, l.Path(), VerifyOptions{})
		if rep.Lost != int64(lost) {
			t.Errorf("gap events declare %d lost, want %d", rep.Lost, lost)
		}
		gaps := events(t, l.Path(), TypeGap)
		if len(gaps) != 1 || gaps[0].FromSeq == 0 || gaps[0].FromSeq > gaps[0].Seq {
			t.Errorf("gaps: %+v", gaps)
		}
	})
}

// TestDropKeepsGoing: with on_error: drop a full disk stops nothing, and the loss is declared.
func TestDropKeepsGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		c := Defaults()
		c.OnError, c.Queue = drop, 16
		l := openDisk(t, c, t.TempDir(), d)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		d.set(func(d *disk) { d.room = 0 })
		for range 50 {
			_ = l.Record(context.Background(), simple("ok"))
		}
		time.Sleep(time.Second)
		if err := l.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		d.set(func(d *disk) { d.room = -1 })
		time.Sleep(3 * time.Second)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if rep := mustVerify(t, l.Path(), VerifyOptions{}); rep.Lost != 34 {
			t.Errorf("lost %d, want 34", rep.Lost)
		}
	})
}

// TestQueueFull: Ready refuses while the last quarter of the queue is kept for requests under way.
func TestQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.Queue = 16
		l := openDisk(t, c, t.TempDir(), &disk{room: -1})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		for range 13 {
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
		}
		var u *Unavailable
		if err := l.Ready(); !errors.As(err, &u) || u.Why != "queue_full" {
			t.Errorf("ready at 13 of 16: %v", err)
		}
		time.Sleep(flushEvery + time.Millisecond)
		if err := l.Ready(); err != nil {
			t.Errorf("ready after the writer's turn: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFsync: `always` and refusals by address return after an fsync, others do not wait.
func TestFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			fsync, reason string
			durable       bool
		}{{"always", "ok", true}, {"1s", "address-denied", true}, {"1s", "ok", false}} {
			d := &disk{room: -1}
			cfg := Defaults()
			cfg.Fsync = c.fsync
			l := openDisk(t, cfg, t.TempDir(), d)
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			if err := l.Record(context.Background(), simple(c.reason)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(before); took != 0 {
				t.Errorf("%+v: waited %s, not at once", c, took)
			}
			text, err := os.ReadFile(l.Path())
			if err != nil {
				t.Fatal(err)
			}
			d.mu.Lock()
			durable := d.unsynced == 0 && bytes.Contains(text, []byte(`"type":"request"`))
			d.mu.Unlock()
			if durable != c.durable {
				t.Errorf("%+v: on the disk: %v", c, durable)
			}
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			d.mu.Lock()
			if d.unsynced != 0 {
				t.Errorf("%+v: %d bytes not fsynced after an interval", c, d.unsynced)
			}
			d.mu.Unlock()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFsyncFails: a failed fsync may have lost what it covered: not ready, waiters get the error, and the chain says so.
func TestFsyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		c := Defaults()
		c.Fsync = fsyncAlways
		l := openDisk(t, c, t.TempDir(), d)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		d.set(func(d *disk) { d.syncErr = syscall.EIO })
		if err := l.Record(context.Background(), simple("ok")); !errors.Is(err, syscall.EIO) {
			t.Errorf("record: %v", err)
		}
		if err := l.Ready(); !errors.Is(err, syscall.EIO) {
			t.Errorf("ready: %v", err)
		}
		// Nobody is made to wait for a disk that fails.
		if err := l.Record(context.Background(), simple("ok")); !errors.Is(err, syscall.EIO) {
			t.Errorf("record while failing: %v", err)
		}
		d.set(func(d *disk) { d.syncErr = nil })
		time.Sleep(2 * retryLast)
		if err := l.Ready(); err != nil {
			t.Errorf("ready after: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, l.Path(), VerifyOptions{})
		gaps := events(t, l.Path(), TypeGap)
		if len(gaps) != 1 || gaps[0].Class != "fsync_failed" {
			t.Errorf("gaps %+v", gaps)
		}
	})
}

// TestIntent: an intent is written when Intent returns; one without its request is named after a crash.
func TestIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := Defaults()
		c.Sync = syncIntent
		l := openDisk(t, c, dir, &disk{room: -1})
		done, open := simple("ok"), simple("ok")
		for _, e := range []*Event{done, open} {
			e.SetURL(parse(t, "https://example.com/?token=abc"))
			if err := l.Intent(context.Background(), e); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(l.Path())
			if err != nil || !bytes.Contains(text, []byte(`"type":"intent","seq":`)) || !bytes.Contains(text, []byte(e.ID)) {
				t.Errorf("the intent is not in the file when Intent returns: %v", err)
			}
		}
		if err := l.Record(context.Background(), done); err != nil {
			t.Fatal(err)
		}
		if done.URL.String() != "https://example.com/?token=*" {
			t.Errorf("the request's URL after its intent: %s", done.URL)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		// A crash: what is on the disk now, in another folder.
		crashed := t.TempDir()
		if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openDisk(t, c, crashed, &disk{room: -1})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		starts := events(t, l.Path(), TypeStart)
		last := starts[len(starts)-1]
		if len(last.Unfinished) != 1 || last.Unfinished[0] != open.ID {
			t.Errorf("unfinished %v, want %s", last.Unfinished, open.ID)
		}
		mustVerify(t, l.Path(), VerifyOptions{})
		// Reported once.
		l = openDisk(t, c, crashed, &disk{room: -1})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		starts = events(t, l.Path(), TypeStart)
		if last := starts[len(starts)-1]; len(last.Unfinished) != 0 {
			t.Errorf("reported again: %v", last.Unfinished)
		}
		// Without the setting an intent is nothing.
		l = openDisk(t, Defaults(), t.TempDir(), &disk{room: -1})
		if err := l.Intent(context.Background(), simple("ok")); err != nil {
			t.Error(err)
		}
		if seq, _ := l.Head(); seq != 1 {
			t.Errorf("seq %d after an intent that is off", seq)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRoomRunsOut: below min_free nothing goes out, before the disk is full.
func TestRoomRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.MinFree = 1 << 62
		l := openDisk(t, c, t.TempDir(), &disk{room: -1})
		time.Sleep(2 * time.Second)
		_ = l.Ready() // looks at the disk when the last look is a second old
		synctest.Wait()
		var u *Unavailable
		if err := l.Ready(); !errors.As(err, &u) || u.Why != "disk_low" {
			t.Errorf("ready: %v", err)
		}
		c.MinFree = 0
		if err := l.Reload(c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := l.Ready(); err != nil {
			t.Errorf("ready with enough room: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestClosed: after Close everything says so, twice is once.
func TestClosed(t *testing.T) {
	l := openTest(t, Defaults(), t.TempDir())
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Ready(); !errors.Is(err, ErrClosed) {
		t.Errorf("ready: %v", err)
	}
	if err := l.Record(context.Background(), simple("ok")); !errors.Is(err, ErrClosed) {
		t.Errorf("record: %v", err)
	}
	if err := l.Reopen(); !errors.Is(err, ErrClosed) {
		t.Errorf("reopen: %v", err)
	}
}

// TestOneWriter: a second log on the same file would tear the chain.
func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Defaults(), dir)
	if second, err := Open(Defaults(), dir, nil); err == nil {
		second.Close()
		t.Fatal("two logs on one file")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	openTest(t, Defaults(), dir)
}

// TestUnwritable: a file that cannot be opened is an error of Open, not of the first request.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "audit", "crawlgate.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(Defaults(), dir, nil); err == nil {
		l.Close()
		t.Fatal("opened a folder")
	}
}

// TestCloseSaysWhatIsLost: a log that cannot write what it holds says so at its end.
func TestCloseSaysWhatIsLost(t *testing.T) {
	d := &disk{room: -1}
	l := openDisk(t, Defaults(), t.TempDir(), d)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	d.set(func(d *disk) { d.room = 0 })
	if err := l.Record(context.Background(), simple("ok")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v", err)
	}
}

// TestWrittenAtOnce: after a quiet time an event is in the file at once; in a busy one at most 50 ms later.
func TestWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openDisk(t, Defaults(), t.TempDir(), &disk{room: -1})
		written := func() int {
			synctest.Wait()
			text, err := os.ReadFile(l.Path())
			if err != nil {
				t.Fatal(err)
			}
			return bytes.Count(text, []byte("\n"))
		}
		time.Sleep(time.Second)
		for _, want := range []int{2, 2, 2} { // the first at once, the others with it or later
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
			if n := written(); n != want {
				t.Errorf("%d lines in the file, want %d", n, want)
			}
		}
		time.Sleep(flushEvery)
		if n := written(); n != 4 {
			t.Errorf("%d lines in the file after 50 ms, want 4", n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSlowFsync: while the disk takes its time over an fsync, events reach the file within 50 ms all the same, and the next
// fsync covers them. What must be durable before its answer still waits.
func TestSlowFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d := t.TempDir(), &disk{room: -1}
		l := openDisk(t, Defaults(), dir, d)
		written := func() (n int64) {
			d.set(func(d *disk) { n = d.written })
			return n
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		d.set(func(d *disk) { d.slow = 5 * time.Second })
		record := func() {
			if err := l.Record(t.Context(), simple("site-denied")); err != nil {
				t.Fatal(err)
			}
		}
		record()
		time.Sleep(1200 * time.Millisecond) // its fsync is under way
		synctest.Wait()
		for range 30 {
			before := written()
			record()
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if written() == before {
				t.Error("an event waited for an fsync")
				break
			}
		}
		began := time.Now()
		if err := l.Record(t.Context(), simple("address-denied")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("an event that must be durable was taken after %v", took)
		}
		record()
		time.Sleep(12 * time.Second) // one fsync a second is due, and they take five
		synctest.Wait()
		d.set(func(d *disk) {
			if d.unsynced != 0 {
				t.Errorf("%d bytes were never fsynced", d.unsynced)
			}
			d.slow = 0
		})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, l.Path(), VerifyOptions{})
	})
}
