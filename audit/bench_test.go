package audit

import (
	"context"
	"os"
	"testing"
)

// BenchmarkRecord is what one event costs on a request's path. The writer catches up outside the clock.
func BenchmarkRecord(b *testing.B) {
	l := openTest(b, Defaults(), b.TempDir())
	u := parse(b, "https://www.example.com/some/path?page=2&sort=up")
	from := *fullEvent(b)
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := from
		e.SetURL(u)
		e.Client.IP = "192.0.2.10"
		if err := l.Record(ctx, &e); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			b.StopTimer()
			if err := l.Flush(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

// BenchmarkRecordFlood is the log alone, as fast as it takes events: an upper bound of what a gate can record.
func BenchmarkRecordFlood(b *testing.B) {
	l := openTest(b, Defaults(), b.TempDir())
	u := parse(b, "https://www.example.com/some/path?page=2&sort=up")
	from := *fullEvent(b)
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			e := from
			e.SetURL(u)
			e.Client.IP = "192.0.2.10"
			if err := l.Record(ctx, &e); err != nil {
				if err := l.Flush(); err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	l := openTest(b, Defaults(), b.TempDir())
	for range 40_000 {
		if err := l.Record(context.Background(), fullEvent(b)); err != nil {
			if err := l.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	st, err := os.Stat(l.Path())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(st.Size())
	for b.Loop() {
		if rep, err := Verify([]string{l.Path()}, VerifyOptions{}); err != nil || !rep.OK {
			b.Fatal(rep, err)
		}
	}
}
