package audit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fill records n events of about 600 bytes and writes them, a few at a time.
func fill(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		if err := l.Record(context.Background(), simple("ok")); err != nil {
			t.Fatal(err)
		}
		if i%20 == 19 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
}

func smallConfig() Config {
	c := Defaults()
	c.MaxSize = minMaxSize
	c.Compress = false
	return c
}

// TestRotation: sealed files have their names, end with a signed head, and the chain runs through all of them, whatever
// order they are given in.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openDisk(t, smallConfig(), t.TempDir(), &disk{room: -1})
		fill(t, l, 400)
		_, head := l.Head()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := Files(l.Path())
		if err != nil || len(files) < 4 {
			t.Fatalf("files %v, %v", files, err)
		}
		for _, f := range files[:len(files)-1] {
			first, err := firstLink(f)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, first.time)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("crawlgate-%s-%d.jsonl", at.Format("20060102T150405.000Z"), first.seq)
			if filepath.Base(f) != want {
				t.Errorf("sealed as %s, want %s", filepath.Base(f), want)
			}
			last, err := lastOf(f)
			if err != nil || last.typ != TypeCheckpoint {
				t.Errorf("%s ends with %+v, %v", f, last, err)
			}
		}
		keys, err := LoadKeys(filepath.Join(l.dir, publicKeysFile))
		if err != nil {
			t.Fatal(err)
		}
		mustVerify(t, l.Path(), VerifyOptions{Keys: keys, Head: head})
		slices.Reverse(files)
		ordered, err := Order(files)
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(ordered, VerifyOptions{}); err != nil || !rep.OK {
			t.Errorf("reversed: %+v %v", rep, err)
		}
		// A whole file missing, in the middle and at the beginning.
		ordered = slices.Delete(ordered, 1, 2)
		if rep, err := Verify(ordered, VerifyOptions{}); err != nil || rep.OK || rep.Broken.Kind != FileMissing || rep.Broken.Line != 1 {
			t.Errorf("second file missing: %+v %v", rep.Broken, err)
		}
		if rep, err := Verify(ordered[1:], VerifyOptions{}); err != nil || rep.OK || rep.Broken.Kind != FileMissing {
			t.Errorf("first files missing: %+v %v", rep.Broken, err)
		}
		first, err := firstLink(ordered[1])
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(ordered[1:], VerifyOptions{From: first.seq}); err != nil || !rep.OK {
			t.Errorf("first files missing, --from: %+v %v", rep.Broken, err)
		}
		if rep, err := Verify(ordered[1:], VerifyOptions{From: first.seq + 10}); err != nil || !rep.OK || rep.First != first.seq+10 {
			t.Errorf("from inside a file: %+v %v", rep, err)
		}
		if rep, err := Verify(ordered[1:], VerifyOptions{From: 1 << 40}); err != nil || rep.OK || rep.Broken.Kind != TailMissing {
			t.Errorf("from beyond the end: %+v %v", rep.Broken, err)
		}
	})
}

// TestRetention: the oldest files go, a signed checkpoint says which events went, and verify accepts a chain that begins
// there, and none that begins elsewhere.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := smallConfig()
		c.Keep, c.Compress = 2, true
		l := openDisk(t, c, t.TempDir(), &disk{room: -1})
		for range 6 {
			fill(t, l, 120)
			synctest.Wait() // the keeper has done its round
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := Files(l.Path())
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 3 {
			t.Errorf("%d files kept, want 2 sealed and the live one: %v", len(files), files)
		}
		for _, f := range files[:2] {
			if !strings.HasSuffix(f, ".gz") {
				t.Errorf("%s is not compressed", f)
			}
		}
		keys, err := LoadKeys(filepath.Join(l.dir, publicKeysFile))
		if err != nil {
			t.Fatal(err)
		}
		rep := mustVerify(t, l.Path(), VerifyOptions{Keys: keys})
		if rep.First == 1 {
			t.Error("nothing was deleted")
		}
		if rep, err := Verify(files[1:], VerifyOptions{}); err != nil || rep.OK || rep.Broken.Kind != FileMissing {
			t.Errorf("one more file missing: %+v %v", rep.Broken, err)
		}
	})
}

// TestBetweenCompressionAndRemoval: a file that stands there plain and compressed, as a crash between the two leaves it or a
// reader meets it, counts once: for the reader, for the next start, and for retention.
func TestBetweenCompressionAndRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := smallConfig()
		c.Keep, c.Compress = 3, false
		dir := t.TempDir()
		l := openDisk(t, c, dir, &disk{room: -1})
		for range 2 {
			fill(t, l, 120)
			synctest.Wait()
		}
		files, err := Files(l.Path())
		if err != nil || len(files) < 3 {
			t.Fatal(files, err)
		}
		for _, f := range files[:len(files)-1] {
			plain, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := compressFile(f, nil); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, plain, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := Files(l.Path()); err != nil || !slices.Equal(again, files) {
			t.Errorf("%v, not %v: %v", again, files, err)
		}
		mustVerify(t, l.Path(), VerifyOptions{})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openDisk(t, c, dir, &disk{room: -1})
		fill(t, l, 1)
		synctest.Wait()
		if again, err := Files(l.Path()); err != nil || len(again) < min(len(files), c.Keep) {
			t.Errorf("%v are left of %v: %v", again, files, err)
		}
		mustVerify(t, l.Path(), VerifyOptions{})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRotationByAge: with max_age a file is sealed however small it is.
func TestRotationByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.MaxAge, c.Compress = time.Hour, false
		l := openDisk(t, c, t.TempDir(), &disk{room: -1})
		for range 3 {
			fill(t, l, 1)
			time.Sleep(61 * time.Minute)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		// Three that an hour ended, and the live one with the stop.
		if files, err := Files(l.Path()); err != nil || len(files) != 4 {
			t.Errorf("files %v %v", files, err)
		}
		mustVerify(t, l.Path(), VerifyOptions{})
	})
}

// TestGoesOn: each way a process can leave its files is a place to go on from.
func TestGoesOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, live string)
		torn  bool
	}{
		{"clean stop", func(*testing.T, string) {}, false},
		{"half a line", func(t *testing.T, live string) { appendTo(t, live, `{"schema":"crawlgate.audit.event/1","type":"requ`) }, true},
		{"zeros after a power loss", func(t *testing.T, live string) { appendTo(t, live, strings.Repeat("\x00", 200_000)) }, true},
		{"a whole line without its end", func(t *testing.T, live string) {
			text, err := os.ReadFile(live)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(live, bytes.TrimSuffix(text, []byte("\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"sealed, and no live file yet", func(t *testing.T, live string) {
			first, err := firstLink(live)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(live, sealedName(live, time.Now(), first.seq)); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"sealed and compressed, and an empty live file", func(t *testing.T, live string) {
			sealed := sealedName(live, time.Now(), 1)
			if err := os.Rename(live, sealed); err != nil {
				t.Fatal(err)
			}
			if err := compressFile(sealed, nil); err != nil {
				t.Fatal(err)
			}
			appendTo(t, live, "")
		}, false},
		{"only half a line in the live file", func(t *testing.T, live string) {
			if err := os.Rename(live, sealedName(live, time.Now(), 1)); err != nil {
				t.Fatal(err)
			}
			appendTo(t, live, `{"schema":`)
		}, true},
		{"compressing was interrupted", func(t *testing.T, live string) {
			sealed := sealedName(live, time.Now(), 1)
			if err := os.Rename(live, sealed); err != nil {
				t.Fatal(err)
			}
			appendTo(t, sealed+tempMark, "\x1f\x8bhalf")
		}, false},
		{"compressed, and the plain file not yet gone", func(t *testing.T, live string) {
			sealed := sealedName(live, time.Now(), 1)
			if err := os.Rename(live, sealed); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(sealed)
			if err != nil {
				t.Fatal(err)
			}
			if err := compressFile(sealed, nil); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(sealed, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			conf := Defaults()
			conf.Compress = false
			l := openTest(t, conf, dir)
			fill(t, l, 5)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			seq, _ := l.Head()
			c.spoil(t, l.Path())
			l = openTest(t, conf, dir)
			fill(t, l, 5)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			rep := mustVerify(t, l.Path(), VerifyOptions{})
			if rep.Events != int64(seq)+8 {
				t.Errorf("%d events, want %d", rep.Events, seq+8)
			}
			starts := events(t, l.Path(), TypeStart)
			last := starts[len(starts)-1]
			if (last.Torn != "") != c.torn {
				t.Errorf("torn %q", last.Torn)
			}
			if last.Torn != "" {
				st, err := os.Stat(filepath.Join(filepath.Dir(l.Path()), last.Torn))
				if err != nil || st.Size() != last.TornBytes {
					t.Errorf("what was torn: %v %v", st, err)
				}
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(l.Path()), "*"+tempMark))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v %v", left, err)
			}
		})
	}
}

// TestNotOurs: a file that ends with something else is not written to.
func TestNotOurs(t *testing.T) {
	dir := t.TempDir()
	live := filepath.Join(dir, "audit", "crawlgate.jsonl")
	if err := os.MkdirAll(filepath.Dir(live), 0o700); err != nil {
		t.Fatal(err)
	}
	appendTo(t, live, "192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n")
	if l, err := Open(Defaults(), dir, nil); err == nil {
		l.Close()
		t.Error("went on after a line that is no event")
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestOthersTouchTheFile: copytruncate and deletion are declared, a move is followed, and the chain goes on.
func TestOthersTouchTheFile(t *testing.T) {
	for _, c := range []struct {
		name, class string
		touch       func(t *testing.T, l *Log, moved string)
	}{
		{"copytruncate", "file_truncated", func(t *testing.T, l *Log, moved string) {
			text, err := os.ReadFile(l.Path())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(moved, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(l.Path(), 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"deleted", "file_removed", func(t *testing.T, l *Log, moved string) {
			text, err := os.ReadFile(l.Path())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(moved, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(l.Path()); err != nil {
				t.Fatal(err)
			}
		}},
		{"moved and told", "", func(t *testing.T, l *Log, moved string) {
			if err := os.Rename(l.Path(), moved); err != nil {
				t.Fatal(err)
			}
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}},
		{"moved and not told", "", func(t *testing.T, l *Log, moved string) {
			if err := os.Rename(l.Path(), moved); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			l := openTest(t, Defaults(), dir)
			fill(t, l, 10)
			moved := filepath.Join(dir, "moved.jsonl")
			c.touch(t, l, moved)
			fill(t, l, 10)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			rep, err := Verify([]string{moved, l.Path()}, VerifyOptions{})
			if err != nil || !rep.OK {
				t.Fatalf("%+v %v", rep.Broken, err)
			}
			gaps := events(t, l.Path(), TypeGap)
			switch {
			case c.class == "" && len(gaps) > 0:
				t.Errorf("gap %+v", gaps[0])
			case c.class != "" && (len(gaps) != 1 || gaps[0].Class != c.class || gaps[0].FromSeq != 1 || gaps[0].Lost != 11):
				t.Errorf("gaps %+v", gaps)
			}
		})
	}
}

// TestCheckpoints: every so many events a signed head, also in the file on another disk.
func TestCheckpoints(t *testing.T) {
	dir := t.TempDir()
	c := Defaults()
	c.CheckpointEvery, c.CheckpointTo = 10, Texts{filepath.Join(dir, "heads.jsonl")}
	l := openTest(t, c, dir)
	fill(t, l, 95)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	points := events(t, l.Path(), TypeCheckpoint)
	if len(points) < 9 {
		t.Fatalf("%d checkpoints", len(points))
	}
	text, err := os.ReadFile(c.CheckpointTo[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != len(points) {
		t.Errorf("%d heads exported of %d", len(lines), len(points))
	}
	last, err := Decode(lines[len(lines)-1])
	if err != nil || last.Hash != points[len(points)-1].Hash {
		t.Errorf("last exported %+v %v", last, err)
	}
	if rep, err := Verify([]string{l.Path()}, VerifyOptions{Keys: Keys{"x": nil}}); err != nil || rep.OK || rep.Broken.Kind != BadSignature {
		t.Errorf("unknown key: %+v %v", rep.Broken, err)
	}
	// Somebody who rewrites the chain from a line on makes all hashes fit, but not the signatures.
	keys, err := LoadKeys(filepath.Join(l.dir, publicKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	log := bytes.SplitAfter(whole, []byte("\n"))
	log = log[:len(log)-1]
	log[4] = bytes.Replace(log[4], []byte("example.com"), []byte("example.org"), 1)
	forged := filepath.Join(dir, "forged.jsonl")
	if err := os.WriteFile(forged, bytes.Join(relink(log), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := Verify([]string{forged}, VerifyOptions{Keys: keys})
	if err != nil || rep.OK || rep.Broken.Kind != BadSignature || rep.Broken.Line != 11 {
		t.Errorf("rewritten from line 5: %+v %v", rep.Broken, err)
	}
}

// TestReload: what is recorded after follows the new settings.
func TestReload(t *testing.T) {
	l := openTest(t, Defaults(), t.TempDir())
	c := Defaults()
	c.Query, c.ClientIP = "drop", "hash"
	if err := l.Reload(c); err != nil {
		t.Fatal(err)
	}
	e := fullEvent(t)
	if err := l.Record(context.Background(), e); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(e.URL.String(), "?") || !strings.HasPrefix(e.Client.IP, "hmac:") {
		t.Errorf("url %s, client %s", e.URL, e.Client.IP)
	}
	c.File = "elsewhere.jsonl"
	if err := l.Reload(c); err == nil {
		t.Error("the file changed under an open log")
	}
	c.File, c.Queue = "", 1
	if err := l.Reload(c); err == nil {
		t.Error("an invalid configuration was taken")
	}
}
