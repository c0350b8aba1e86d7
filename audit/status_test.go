package audit

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
)

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		dir := t.TempDir()
		c := Defaults()
		c.CheckpointEvery, c.CheckpointTo, c.Queue = 5, Texts{filepath.Join(dir, "heads")}, 16
		l := openDisk(t, c, dir, d)
		for range 9 {
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := l.Status()
		seq, head := l.Head()
		if s.Seq != seq || s.Head != head || s.Size == 0 || s.Queued != 0 || s.QueueLimit != 16 || s.Lost != 0 || s.Free == 0 || s.Err != nil {
			t.Errorf("%+v", s)
		}
		if s.Signed.Seq == 0 || len(s.Sinks) != 1 || !sameHead(s.Sinks[0].Newest, s.Signed) || s.Sinks[0].Waiting != 0 {
			t.Errorf("signed %+v, delivered %+v", s.Signed, s.Sinks)
		}
		d.set(func(d *disk) { d.room = 0 })
		for range 20 {
			_ = l.Record(context.Background(), simple("ok"))
		}
		_ = l.Flush()
		if s := l.Status(); s.Lost == 0 || s.Err == nil || s.Queued < 16 {
			t.Errorf("with a full disk: %+v", s)
		}
		d.set(func(d *disk) { d.room = -1 })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
