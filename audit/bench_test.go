package audit

import (
	"context"
	"os"
	"testing"
)

func BenchmarkRecord(b *testing.B) {
	c := Defaults()
	c.Queue = maxQueue
	l := openTest(b, c, b.TempDir())
	u := parse(b, "https://www.example.com/some/path?page=2&sort=up")
	from := *fullEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		e := from
		e.SetURL(u)
		e.rawLocation = ""
		e.Client.IP = "192.0.2.10"
		if err := l.Record(context.Background(), &e); err != nil {
			b.Fatal(err)
		}
	}
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
