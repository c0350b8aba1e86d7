package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewID(t *testing.T) {
	const n = 2000
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := ""
			for range n {
				id := NewID()
				if len(id) != 20 || id <= last || strings.Trim(id, idAlphabet) != "" {
					t.Errorf("%q after %q", id, last)
				}
				last = id
				mu.Lock()
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 4*n {
		t.Errorf("%d different ids of %d", len(seen), 4*n)
	}
}

// TestSubscribe: each event once, in the order of the chain, from many recorders; subscribers may ask for the head; a
// cancelled one hears no more.
func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openDisk(t, Defaults(), t.TempDir(), &disk{room: -1})
		var seqs, early []uint64
		cancel := l.Subscribe(func(e *Event) { early = append(early, e.Seq) })
		l.Subscribe(func(e *Event) {
			if head, _ := l.Head(); head < e.Seq {
				t.Errorf("head %d when event %d is delivered", head, e.Seq)
			}
			seqs = append(seqs, e.Seq)
		})
		if err := l.Record(context.Background(), simple("ok")); err != nil {
			t.Fatal(err)
		}
		cancel()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 250 {
					if err := l.Record(context.Background(), simple("ok")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for i, seq := range seqs {
			if seq != uint64(i)+2 {
				t.Fatalf("event %d delivered at place %d", seq, i)
			}
		}
		if last, _ := l.Head(); len(seqs) != int(last)-1 {
			t.Errorf("%d events delivered of %d", len(seqs), last-1)
		}
		if !slices.Equal(early, []uint64{2}) {
			t.Errorf("the cancelled one heard %v", early)
		}
	})
}

// TestRecordSets: what Record fills in, and that a type nobody knows is recorded rather than lost.
func TestRecordSets(t *testing.T) {
	l := openTest(t, Defaults(), t.TempDir())
	e := &Event{Type: "nonsense"}
	if err := l.Record(context.Background(), e); err != nil {
		t.Fatal(err)
	}
	if e.Type != TypeRequest || e.Seq != 2 || len(e.ID) != 20 || e.Time.IsZero() || len(e.Prev) != 64 || len(e.Hash) != 64 || e.Schema != Schema {
		t.Errorf("%+v", e)
	}
	if err := l.Record(context.Background(), &Event{Type: TypeCheckpoint}); err == nil {
		t.Error("a checkpoint that the log did not make")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Record(ctx, simple("ok")); err != nil {
		t.Errorf("an event of a client that left: %v", err)
	}
}

// TestSetURL: host, scheme and port as the rest of the gate writes them.
func TestSetURL(t *testing.T) {
	for _, c := range []struct {
		url, host string
		port      int
	}{
		{"https://example.com/", "example.com", 443}, {"http://example.com/", "example.com", 80}, {"http://example.com:8080/", "example.com", 8080},
		{"https://[2001:db8::7]/", "[2001:db8::7]", 443}, {"https://[2001:db8::7]:8443/", "[2001:db8::7]", 8443}, {"wss://example.com/", "example.com", 443},
		{"ftp://example.com/", "example.com", 0},
	} {
		e := new(Event)
		e.SetURL(parse(t, c.url))
		if e.Host != c.host || e.Port != c.port {
			t.Errorf("%s: %s %d", c.url, e.Host, e.Port)
		}
	}
	e := new(Event)
	e.SetURL(nil)
	if e.Host != "" {
		t.Error("a host of no URL")
	}
}

// TestCloseEndsWaits: a recorder that waits for the disk is let go by Close.
func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.Fsync = fsyncAlways
		l := openDisk(t, c, t.TempDir(), &disk{room: -1})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := l.Record(context.Background(), simple("ok")); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		mustVerify(t, l.Path(), VerifyOptions{})
	})
}

func TestConfigValidate(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	c := Config{
		File: "log.gz", MaxSize: 1, MaxAge: time.Millisecond, Keep: -1, Query: "some", FullFor: []string{"example.com", "https://example.com/"},
		ClientIP: "drop", Fsync: "1", Sync: "yes", OnError: "panic", Queue: 1, MinFree: -1, CheckpointEvery: 0, CheckpointTo: Texts{"heads", "ftp://example.com/"}, VerifyEvery: 1, Access: AccessDefaults(),
	}
	var keys []string
	for _, err := range c.Validate().(interface{ Unwrap() []error }).Unwrap() {
		keys = append(keys, err.(interface{ Key() string }).Key())
		if strings.Contains(err.Error(), "audit.") || strings.HasSuffix(err.Error(), ".") {
			t.Errorf("text %q", err)
		}
	}
	want := []string{"file", "max_size", "max_age", "keep", "query", "full_for[1]", "client_ip", "fsync", "sync", "on_error", "queue", "min_free", "checkpoint_every", "checkpoint_to[1]", "verify_every"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
	if l, err := Open(c, t.TempDir(), nil); err == nil {
		l.Close()
		t.Error("an invalid configuration opened")
	}
	c = Defaults()
	if len(c.Warnings()) != 0 {
		t.Error("warnings for the defaults")
	}
	c.Query, c.OnError = "full", drop
	if len(c.Warnings()) != 2 {
		t.Errorf("warnings %v", c.Warnings())
	}
	for _, s := range []string{"1ms", "2h", "soon", ""} {
		c = Defaults()
		c.Fsync = s
		if c.Validate() == nil {
			t.Errorf("fsync %q is accepted", s)
		}
	}
}

func TestGroupAndAge(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1 000", 18402: "18 402", 1234567: "1 234 567", -1000: "-1 000"} {
		if got := Group(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	now := time.Unix(1e9, 0)
	for d, want := range map[time.Duration]string{2 * time.Second: "2s ago", 3 * time.Minute: "3m ago", 26 * time.Hour: "26h ago", 72 * time.Hour: "3d ago", -time.Second: "in the future"} {
		if got := Age(now.Add(-d), now); got != want {
			t.Errorf("%s: %q", d, got)
		}
	}
}

// TestQuery: each filter, and the newest in the order of the log.
func TestQuery(t *testing.T) {
	l := openTest(t, Defaults(), t.TempDir())
	base := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for i := range 40 {
		e := simple("robots-disallow")
		e.Time = base.Add(time.Duration(i) * time.Minute)
		e.Client.Name = fmt.Sprintf("team-%d", i%2)
		e.Decision = []string{Refused, Forwarded}[i%2]
		e.SetURL(parse(t, fmt.Sprintf("https://h%d.example.com/p", i%4)))
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files := []string{l.Path()}
	for _, c := range []struct {
		q    Query
		want int
	}{
		{Query{Types: []string{TypeRequest}}, 40}, {Query{Client: "team-1"}, 20}, {Query{Client: "team"}, 0}, {Query{Host: "h3.example.com"}, 10}, {Query{Host: "H3.example.com"}, 10},
		{Query{Host: ".example.com"}, 40}, {Query{Host: "example.com"}, 0}, {Query{Decision: Refused}, 20}, {Query{Reason: "robots-disallow", Client: "team-0"}, 20},
		{Query{Reason: "ok"}, 0}, {Query{Since: base.Add(10 * time.Minute), Until: base.Add(20 * time.Minute)}, 10}, {Query{URL: "https://h1.example.com/p"}, 10},
		{Query{Types: []string{TypeRequest}, After: 31}, 10}, {Query{Types: []string{TypeRequest}, Limit: 7}, 7},
	} {
		recs, err := Last(context.Background(), files, c.q, nil)
		if err != nil || len(recs) != c.want {
			t.Errorf("%+v: %d, want %d (%v)", c.q, len(recs), c.want, err)
		}
		n := 0
		if err := Read(context.Background(), files, c.q, func(Record) error { n++; return nil }, nil); err != nil || n != c.want {
			t.Errorf("read %+v: %d, want %d (%v)", c.q, n, c.want, err)
		}
	}
	recs, err := Last(context.Background(), files, Query{Types: []string{TypeRequest}, Limit: 3}, nil)
	if err != nil || len(recs) != 3 || recs[0].Event.Seq != 39 || recs[2].Event.Seq != 41 {
		t.Errorf("newest three: %v %v", recs, err)
	}
}

// TestFollow: what is recorded after, also over a rotation.
func TestFollow(t *testing.T) {
	l := openTest(t, smallConfig(), t.TempDir())
	fill(t, l, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const n = 150
	var got []uint64
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- Follow(ctx, l.Path(), Query{Types: []string{TypeRequest}}, func(r Record) error {
			if len(got) == 0 {
				close(started)
			}
			got = append(got, r.Event.Seq)
			if len(got) >= n {
				cancel()
			}
			return nil
		})
	}()
	for i := 0; ; i++ {
		fill(t, l, 1)
		select {
		case <-started:
		default:
			continue
		}
		break
	}
	fill(t, l, n)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	all := events(t, l.Path(), TypeRequest)
	at := slices.IndexFunc(all, func(e *Event) bool { return e.Seq == got[0] })
	for i, seq := range got {
		if all[at+i].Seq != seq {
			t.Fatalf("event %d follows as %d, want %d", i, seq, all[at+i].Seq)
		}
	}
}

func TestNormalise(t *testing.T) {
	for in, want := range map[string]string{
		"https://Example.COM:443": "https://example.com/", "http://u:p@example.com:80/a?b#c": "http://example.com/a?b", "example.com/x": "https://example.com/x",
		"http://example.com.:8080/": "http://example.com:8080/", "https://[2001:DB8::7]:443/": "https://[2001:db8::7]/",
		"https://example.com/é b?ü=1": "https://example.com/%C3%A9%20b?%C3%BC=1", "https://example.com/a%2fb": "https://example.com/a%2fb",
	} {
		u, err := Normalise(in)
		if err != nil || u.String() != want {
			t.Errorf("%s: %v %v, want %s", in, u, err, want)
		}
	}
	for _, in := range []string{"ftp://example.com/", "https://", "http://%zz/"} {
		if u, err := Normalise(in); err == nil {
			t.Errorf("%s: %s", in, u)
		}
	}
}

// TestAppendString: cut at the limit, never inside a character or an escape, and told.
func TestAppendString(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		out   string
		cut   bool
	}{
		{"abc", 3, "abc", false}, {"abcd", 3, "abc", true}, {"abé", 3, "ab", true}, {"abé", 4, "abé", false}, {"aaaé", 4, "aaa", true}, {"a\"b", 2, "a", true}, {"a\"b", 3, `a\"`, true},
		{"a\"b", 4, `a\"b`, false}, {"\n", 5, "", true}, {"\n", 6, `\u000a`, false}, {"\xff", 6, `\u00ff`, false}, {"\u2028x", 6, `\u2028`, true}, {"", 0, "", false},
		{"x", 0, "", true}, {strings.Repeat("é", 100), 5, "éé", true}, {strings.Repeat("a", 100) + "\xff", 9, "aaaaaaaaa", true}, {"😀😀", 4, "😀", true}, {"😀😀", 8, "😀😀", false},
	} {
		b, cut := appendString(nil, c.in, c.limit)
		if string(b) != `"`+c.out+`"` || cut != c.cut {
			t.Errorf("%q to %d: %s %v, want %s %v", c.in, c.limit, b, cut, c.out, c.cut)
		}
	}
}
