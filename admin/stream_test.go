package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"crawlgate/audit"
)

// reader reads the stream of a real connection, frame by frame.
type reader struct {
	t   *testing.T
	res *http.Response
	sc  *bufio.Scanner
}

func openStream(t *testing.T, base, query, last string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", base+"/api/decisions"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return &reader{t: t, res: res, sc: bufio.NewScanner(res.Body)}
}

// next returns the next frame as its lines joined by "|"; "" at the end.
func (r *reader) next() string {
	var lines []string
	for r.sc.Scan() {
		if l := r.sc.Text(); l != "" {
			lines = append(lines, l)
			continue
		}
		return strings.Join(lines, "|")
	}
	return ""
}

// id returns the number of the next frame that has one.
func (r *reader) id() string {
	for {
		f := r.next()
		if f == "" {
			return ""
		}
		if id, ok := strings.CutPrefix(strings.Split(f, "|")[0], "id: "); ok {
			return id
		}
		if strings.HasPrefix(f, "event: gap") {
			return f
		}
	}
}

func listen(t *testing.T, s *Server) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(s.Handler())
	s.o.Addr = srv.Listener.Addr
	srv.Start()
	t.Cleanup(func() {
		_ = s.Close()
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	return srv
}

func TestStream(t *testing.T) {
	s := newServer(t, nil)
	srv := listen(t, s)
	s.Observe(event(1, "https://example.com/before", nil))
	r := openStream(t, srv.URL, "", "")
	if ct := r.res.Header.Get("Content-Type"); ct != "text/event-stream" || r.res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", r.res.Header)
	}
	if f := r.next(); f != "retry: 2000" {
		t.Errorf("first frame %q", f)
	}
	s.Observe(event(2, "https://example.com/\n\ndata: forged\nevent: gap\u2028x", nil))
	lines := strings.Split(r.next(), "|")
	if len(lines) != 3 || lines[0] != "id: 2" || lines[1] != "event: decision" {
		t.Fatalf("frame %q", lines)
	}
	var e struct {
		Seq uint64
		URL string
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &e); err != nil {
		t.Fatal(err)
	}
	if e.Seq != 2 || e.URL != "https://example.com/\n\ndata: forged\nevent: gap\u2028x" {
		t.Errorf("event %+v", e)
	}
	if strings.Contains(lines[2], "\u2028") {
		t.Error("a line separator is not escaped")
	}
}

func TestStreamGoesOn(t *testing.T) {
	s := newServer(t, nil)
	srv := listen(t, s)
	for i := uint64(1); i <= 5; i++ {
		s.Observe(event(i, "https://example.com/", nil))
	}
	r := openStream(t, srv.URL, "", "3")
	if a, b := r.id(), r.id(); a != "4" || b != "5" {
		t.Errorf("after 3 came %s and %s", a, b)
	}
	r = openStream(t, srv.URL, "?after=4", "")
	if a := r.id(); a != "5" {
		t.Errorf("after 4 came %s", a)
	}
	// The browser's own field, of a connection that came later, counts.
	r = openStream(t, srv.URL, "?after=1", "4")
	if a := r.id(); a != "5" {
		t.Errorf("after 4 came %s", a)
	}
}

// What is no more kept is a gap that is said, not silence.
func TestStreamGap(t *testing.T) {
	s := newServer(t, nil)
	srv := listen(t, s)
	for i := uint64(1); i <= maxRecords+10; i++ {
		s.Observe(event(i, "https://example.com/", nil))
	}
	r := openStream(t, srv.URL, "", "2")
	if f := r.id(); f != `event: gap|data: {"lost":8}` {
		t.Errorf("got %q", f)
	}
	if f := r.id(); f != "11" {
		t.Errorf("then %q", f)
	}
}

func TestStreamFilter(t *testing.T) {
	s := newServer(t, nil)
	srv := listen(t, s)
	r := openStream(t, srv.URL, "?host=example.com&decision=refused&reason=robots-disallow&client=team-a&kind=page", "")
	r.next()
	s.Observe(event(1, "https://example.com/", nil))
	s.Observe(event(2, "https://example.com/", refusal("site-denied")))
	s.Observe(event(3, "https://other.example/", func(e *audit.Event) { refusal("robots-disallow")(e); e.Host = "other.example" }))
	s.Observe(event(4, "https://notexample.com/", func(e *audit.Event) { refusal("robots-disallow")(e); e.Host = "notexample.com" }))
	s.Observe(event(5, "https://a.example.com/", func(e *audit.Event) { refusal("robots-disallow")(e); e.Host = "a.example.com" }))
	if id := r.id(); id != "5" {
		t.Errorf("got %s", id)
	}
	for _, q := range []string{"?decision=maybe", "?host=" + strings.Repeat("a", maxFilter+1)} {
		if w := get(s, "/api/decisions"+q); w.Code != 400 {
			t.Errorf("%.20s: %d", q, w.Code)
		}
	}
	if w := get(s, "/api/decisions", "Last-Event-ID: x"); w.Code != 400 {
		t.Errorf("Last-Event-ID: %d", w.Code)
	}
}

func TestStreamLimit(t *testing.T) {
	s := newServer(t, nil)
	srv := listen(t, s)
	var rs []*reader
	for range maxSubscribers {
		r := openStream(t, srv.URL, "", "")
		if r.res.StatusCode != 200 {
			t.Fatalf("reader %d: %d", len(rs), r.res.StatusCode)
		}
		rs = append(rs, r)
	}
	r := openStream(t, srv.URL, "", "")
	if r.res.StatusCode != 503 || r.res.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", r.res.StatusCode)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		for r.next() != "" {
		}
	}
	if n := s.state.subscribers(); n != 0 {
		t.Errorf("%d readers after the end", n)
	}
}

// A reader that is too slow loses events and is told; nobody waits for it.
func TestSlowReader(t *testing.T) {
	s := newServer(t, nil)
	sub, _, _, ok := s.state.subscribe(nil, 0, false)
	if !ok {
		t.Fatal("no place")
	}
	defer s.state.unsubscribe(sub)
	for i := uint64(1); i <= streamQueue+7; i++ {
		s.Observe(event(i, "https://example.com/", nil))
	}
	if n := sub.lost.Load(); n != 7 {
		t.Errorf("lost %d, want 7", n)
	}
	if n := len(sub.c); n != streamQueue {
		t.Errorf("%d wait", n)
	}
}

// memory is a ResponseWriter that works in a bubble of virtual time.
type memory struct {
	mu   sync.Mutex
	h    http.Header
	text strings.Builder
	err  error
}

func (m *memory) Header() http.Header { return m.h }
func (m *memory) WriteHeader(int)     {}
func (m *memory) Flush()              {}
func (m *memory) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return 0, m.err
	}
	return m.text.Write(p)
}

func (m *memory) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

func TestStreamBeatsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		m := &memory{h: http.Header{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := httptest.NewRequest("GET", "/api/decisions", nil)
			r.Host = ownHost
			s.Handler().ServeHTTP(m, r)
		}()
		time.Sleep(2*streamBeat + time.Second)
		synctest.Wait()
		if n := strings.Count(m.String(), ": beat\n\n"); n != 2 {
			t.Errorf("%d beats in %s", n, 2*streamBeat)
		}
		m.mu.Lock()
		m.err = fmt.Errorf("the reader has gone")
		m.mu.Unlock()
		s.Observe(event(1, "https://example.com/", nil))
		<-done
		if n := s.state.subscribers(); n != 0 {
			t.Errorf("%d readers", n)
		}
	})
}

func TestTimeOf(t *testing.T) {
	now := testTime
	for in, want := range map[string]time.Time{
		"": {}, "2026-11-24T10:00:00Z": time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC), "2026-11-24T10:00": time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC), "24h": now.Add(-24 * time.Hour),
	} {
		got, err := timeOf("at", in, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"yesterday", "-1h", "2026-13-01T00:00:00Z", "5"} {
		if _, err := timeOf("at", in, now); err == nil {
			t.Errorf("%q is taken", in)
		}
	}
}

func TestFilterIn(t *testing.T) {
	got := filterIn(url.Values{"host": {"A.Example"}, "client": {"x"}})
	if want := (filter{Host: "a.example", Client: "x"}); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
