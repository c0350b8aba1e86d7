package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSink takes heads, or fails, or hangs.
type fakeSink struct {
	mu   sync.Mutex
	err  error
	hang bool
	took []uint64
	at   []time.Time // attempts
}

func (s *fakeSink) send(ctx context.Context, h *signedHead) error {
	s.mu.Lock()
	hang, err := s.hang, s.err
	s.at = append(s.at, time.Now())
	if !hang && err == nil {
		s.took = append(s.took, h.Seq)
	}
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *fakeSink) set(f func(*fakeSink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// testPusher runs a pusher to a sink; stop ends it.
func testPusher(t *testing.T, s sink) (p *pusher, stop func()) {
	t.Helper()
	p = newPusher(&target{label: "fake", kind: SinkURL}, s, slog.New(slog.DiscardHandler), func(*target, *signedHead) {})
	go p.run()
	return p, func() { p.end(); <-p.done }
}

func TestPusherInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSink{}
		p, stop := testPusher(t, s)
		defer stop()
		for seq := range uint64(5) {
			p.add(testHead(t, seq+1))
		}
		synctest.Wait()
		if want := []uint64{1, 2, 3, 4, 5}; !reflect.DeepEqual(s.took, want) {
			t.Errorf("%v", s.took)
		}
		if st := p.status(); st.Delivered != 5 || st.Newest.Seq != 5 || st.Waiting != 0 || st.Failures != 0 || st.Failing || st.At.IsZero() {
			t.Errorf("%+v", st)
		}
	})
}

// While a sink is away the waits double up to a bound; when it is back the newest head comes first and none is missing.
func TestPusherComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSink{err: errors.New("away\n\x1b[31m")}
		p, stop := testPusher(t, s)
		defer stop()
		began := time.Now()
		for seq := range uint64(3) {
			p.add(testHead(t, seq+1))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		st := p.status()
		if !st.Failing || st.Waiting != 3 || st.Failures != uint64(len(s.at)) || !st.Since.Equal(began) || strings.ContainsAny(st.Error, "\n\x1b") || st.Error == "" {
			t.Errorf("%+v", st)
		}
		for i := 1; i < len(s.at); i++ {
			want := min(pushFirst<<(i-1), pushLast)
			if got := s.at[i].Sub(s.at[i-1]); got < want || got > want+want/4 || got > pushLast {
				t.Errorf("attempt %d came %s after the one before, want %s", i+1, got, want)
			}
		}
		s.set(func(s *fakeSink) { s.err = nil })
		p.add(testHead(t, 4))
		time.Sleep(pushLast)
		synctest.Wait()
		if want := []uint64{4, 1, 2, 3}; !reflect.DeepEqual(s.took, want) {
			t.Errorf("%v", s.took)
		}
		if st := p.status(); st.Failing || st.Error != "" || st.Waiting != 0 || st.Newest.Seq != 4 || !st.Since.IsZero() {
			t.Errorf("%+v", st)
		}
	})
}

// What a sink says of the time is kept, within bounds.
func TestPusherRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSink{err: retryLater{errors.New("answered 503"), 90 * time.Second}}
		p, stop := testPusher(t, s)
		defer stop()
		p.add(testHead(t, 1))
		time.Sleep(2 * time.Minute)
		s.set(func(s *fakeSink) { s.err = retryLater{errors.New("answered 503"), 24 * time.Hour} })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if len(s.at) < 4 || s.at[1].Sub(s.at[0]) != 90*time.Second || s.at[3].Sub(s.at[2]) != pushLast {
			t.Errorf("%v", s.at)
		}
	})
}

// Too many heads: the oldest are left out and counted, the newest stays.
func TestPusherBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSink{hang: true}
		p, stop := testPusher(t, s)
		defer stop()
		for seq := range uint64(pushQueue + 50) {
			p.add(testHead(t, seq+1)) // returns although nothing is taken
		}
		synctest.Wait()
		if st := p.status(); st.Waiting != pushQueue || st.Skipped != 50 {
			t.Errorf("%+v", st)
		}
		s.set(func(s *fakeSink) { s.hang = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		st := p.status()
		if s.took[0] != pushQueue+50 || st.Newest.Seq != pushQueue+50 || st.Waiting != 0 || uint64(len(s.took)) != st.Delivered || st.Delivered != pushQueue {
			t.Errorf("%d first, %+v", s.took[0], st)
		}
	})
}

// sinkLog is a log whose one sink is the fake.
func sinkLog(t *testing.T, s *fakeSink) *Log {
	t.Helper()
	c := Defaults()
	c.CheckpointEvery, c.CheckpointTo = 10, Texts{"https://heads.example/"}
	l := openTest(t, c, t.TempDir())
	l.push.mu.Lock()
	l.push.pushers[0].use(s)
	l.push.mu.Unlock()
	return l
}

// A sink that hangs holds up nobody who records, and the end of the log only so long.
func TestHangingSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSink{hang: true}
		l := sinkLog(t, s)
		began := time.Now()
		for range 1000 {
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > flushEvery {
			t.Errorf("recording took %s", took)
		}
		c := *l.set.Load()
		c.CheckpointTo = nil
		if err := l.Reload(c.Config); err != nil { // leaves the hanging attempt behind
			t.Fatal(err)
		}
		c.CheckpointTo = Texts{"https://other.example/"}
		if err := l.Reload(c.Config); err != nil {
			t.Fatal(err)
		}
		l.push.mu.Lock()
		l.push.pushers[0].use(s)
		l.push.mu.Unlock()
		if err := l.Record(context.Background(), simple("ok")); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > closeWithin+time.Second {
			t.Errorf("closing took %s", took)
		}
	})
}

// At the end a sink that was away is tried again, the newest head first.
func TestCloseTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSink{err: errors.New("away")}
		l := sinkLog(t, s)
		for range 25 {
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		go func() {
			time.Sleep(time.Second)
			s.set(func(s *fakeSink) { s.err = nil })
		}()
		began := time.Now()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closing took %s", took)
		}
		if len(s.took) < 3 || s.took[0] != l.signed.Seq {
			t.Errorf("took %v, the last was signed at %d", s.took, l.signed.Seq)
		}
	})
}

// receiver keeps what is posted, or is away.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []string
	down bool
	seen chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{seen: make(chan struct{}, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.down {
			w.WriteHeader(http.StatusBadGateway)
		} else {
			r.got = append(r.got, string(b))
		}
		r.seen <- struct{}{}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(down bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got, r.down = nil, down
	for len(r.seen) > 0 {
		<-r.seen
	}
	return got
}

func seqs(t *testing.T, bodies []string) (out []uint64) {
	t.Helper()
	for _, b := range bodies {
		e, err := Decode([]byte(strings.TrimSuffix(b, "\n")))
		if err != nil || e.Type != TypeCheckpoint || !strings.HasSuffix(b, "}\n") {
			t.Errorf("%q: %v", b, err)
			continue
		}
		out = append(out, e.Checkpoint.Seq)
	}
	return out
}

// TestDeliveredAfterStart: what a sink has not taken is sent after the next start, what it has is not.
func TestDeliveredAfterStart(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprint("sealed ", sealed), func(t *testing.T) {
			r := newReceiver(t)
			dir := t.TempDir()
			c := Defaults()
			c.CheckpointTo = Texts{strings.Replace(r.URL, "http://", "http://u:hunter2@", 1) + "/heads"}
			var log strings.Builder
			run := func() *Log {
				l, err := OpenVia(plainDial, c, dir, slog.New(slog.NewTextHandler(&log, nil)))
				if err != nil {
					t.Fatal(err)
				}
				l.push.within = 300 * time.Millisecond
				return l
			}
			end := func(l *Log) uint64 {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				return l.signed.Seq
			}
			first := end(run())
			if got := seqs(t, r.take(true)); !reflect.DeepEqual(got, []uint64{first}) {
				t.Fatalf("first run: %v, signed %d", got, first)
			}
			l := run()
			if st := l.Status(); len(st.Sinks) != 1 || st.Sinks[0].Newest.Seq != first || st.Sinks[0].Waiting != 0 || st.Signed.Seq != first {
				t.Errorf("%+v", st)
			}
			second := end(l)
			if got := r.take(false); len(got) != 0 {
				t.Errorf("the sink was away: %v", got)
			}
			if !strings.Contains(log.String(), "the newest is sent after the next start") {
				t.Errorf("the log says nothing of it:\n%s", log.String())
			}
			if sealed {
				live := filepath.Join(dir, "audit", "crawlgate.jsonl")
				whole, err := os.ReadFile(live)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(sealedName(live, time.Now(), 1), whole, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(live); err != nil {
					t.Fatal(err)
				}
			}
			l = run()
			<-r.seen // before anything new is signed
			third := end(l)
			if got := seqs(t, r.take(false)); !reflect.DeepEqual(got, []uint64{second, third}) {
				t.Errorf("third run: %v, want %d and %d", got, second, third)
			}
			text, err := os.ReadFile(filepath.Join(dir, "audit", exportedFile))
			if err != nil || strings.Contains(string(text)+log.String(), "hunter2") || strings.Contains(log.String(), "/heads") {
				t.Errorf("%v\n%s\n%s", err, text, log.String())
			}

			// A file that cannot be read is no reason not to start: the head is sent once more.
			if err := os.WriteFile(filepath.Join(dir, "audit", exportedFile), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			l = run()
			<-r.seen
			fourth := end(l)
			if got := seqs(t, r.take(false)); !reflect.DeepEqual(got, []uint64{third, fourth}) {
				t.Errorf("fourth run: %v, want %d and %d", got, third, fourth)
			}

			// A new chain begins at 1 again, and what it delivers is remembered as well.
			if err := os.Rename(filepath.Join(dir, "audit", "crawlgate.jsonl"), filepath.Join(dir, "moved")); err != nil {
				t.Fatal(err)
			}
			if sealed {
				old, err := sealedFiles(filepath.Join(dir, "audit", "crawlgate.jsonl"))
				if err != nil || len(old) != 1 || os.Remove(old[0].path) != nil {
					t.Fatalf("%v %v", err, old)
				}
			}
			fifth := end(run())
			if got := seqs(t, r.take(false)); !reflect.DeepEqual(got, []uint64{fifth}) || fifth >= fourth {
				t.Errorf("new chain: %v, want %d", got, fifth)
			}
			l = run()
			if st := l.Status().Sinks[0]; st.Newest.Seq != fifth || st.Waiting != 0 {
				t.Errorf("after the new chain: %+v", st)
			}
			sixth := end(l)
			if got := seqs(t, r.take(false)); !reflect.DeepEqual(got, []uint64{sixth}) {
				t.Errorf("sixth run: %v, want %d", got, sixth)
			}
		})
	}
}

// TestReloadSinks: a sink that comes gets the newest head, one that goes gets no more.
func TestReloadSinks(t *testing.T) {
	a, b := newReceiver(t), newReceiver(t)
	c := Defaults()
	c.CheckpointEvery, c.CheckpointTo = 5, Texts{a.URL}
	l, err := OpenVia(plainDial, c, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	record := func(n int) {
		t.Helper()
		for range n {
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	record(5)
	<-a.seen
	c.CheckpointTo = Texts{a.URL, b.URL}
	if err := l.Reload(c); err != nil {
		t.Fatal(err)
	}
	<-b.seen
	if one, two := seqs(t, a.take(false)), seqs(t, b.take(false)); !reflect.DeepEqual(one, two) || len(one) != 1 {
		t.Errorf("%v %v", one, two)
	}
	c.CheckpointTo = Texts{b.URL}
	if err := l.Reload(c); err != nil {
		t.Fatal(err)
	}
	record(10)
	<-b.seen
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if one, two := a.take(false), seqs(t, b.take(false)); len(one) != 0 || len(two) < 2 {
		t.Errorf("%v %v", one, two)
	}
	c.CheckpointCAFile = "none"
	if err := l.Reload(c); err == nil {
		t.Error("an unreadable checkpoint_ca_file was taken")
	}
}
