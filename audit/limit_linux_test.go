package audit

import (
	"context"
	"errors"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFileSizeLimit is TestFullDisk with the system's own refusal: the file may not grow past a limit, the write that
// reaches it stops inside a line, and goes on there when the limit is lifted.
func TestFileSizeLimit(t *testing.T) {
	ossignal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { ossignal.Reset(syscall.SIGXFSZ) })
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	c := Defaults()
	c.Queue = 64
	l := openTest(t, c, t.TempDir())
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	limit := before
	limit.Cur = 1<<20 + 1 // it holds for all files of the process, among them the list that go test keeps of what tests open
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) })
	lost := int64(0)
	for i := 0; l.Ready() == nil || lost == 0; i++ {
		if i > 10_000 {
			t.Fatal("the limit was never reached")
		}
		if l.Record(context.Background(), simple("ok")) != nil {
			lost++
		}
		if i%10 == 9 {
			_ = l.Flush()
		}
	}
	if err := l.Ready(); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("ready: %v", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.Ready(); err != nil {
		t.Errorf("ready after: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if rep := mustVerify(t, l.Path(), VerifyOptions{}); rep.Lost != lost {
		t.Errorf("%d lost, %d declared", lost, rep.Lost)
	}
}

// TestTinyDisk fills a real file system of 300 kB. Only root may make one; without that right TestFileSizeLimit stands for it.
func TestTinyDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=300k"); err != nil {
		t.Logf("no tmpfs: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c := Defaults()
	c.MinFree = 0
	l := openTest(t, c, dir)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, []byte(strings.Repeat("x", 200_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 0; l.Ready() == nil; i++ {
		if i > 10_000 {
			t.Fatal("the disk never filled")
		}
		if err := l.Record(context.Background(), simple("ok")); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			_ = l.Flush()
		}
	}
	if err := l.Ready(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("ready: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.Ready(); err != nil {
		t.Errorf("ready after: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if rep := mustVerify(t, l.Path(), VerifyOptions{}); rep.Lost != 0 {
		t.Errorf("%d lost", rep.Lost)
	}
}
