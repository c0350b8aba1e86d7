package admin

import (
	"bytes"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"crawlgate/audit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

const (
	ownHost = "127.0.0.1:3129"
	token   = "cg_0123456789abcdefghijklmnopqrstuvwxyz"
)

func addrOf(s string) func() net.Addr {
	return func() net.Addr {
		a, err := net.ResolveTCPAddr("tcp", s) // a literal: no resolver is asked
		if err != nil {
			panic(err)
		}
		return a
	}
}

// newServer returns a server on a loopback listener's address, with a token.
func newServer(t testing.TB, change func(*Options)) *Server {
	t.Helper()
	o := Options{Addr: addrOf(ownHost), Token: token, ProxyAddr: func() string { return "127.0.0.1:3128" }}
	if change != nil {
		change(&o)
	}
	s := New(o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ask makes one request to a handler; header lines are "Name: value".
func ask(h http.Handler, method, target, host string, body string, header ...string) *httptest.ResponseRecorder {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, rd)
	r.Host = host
	for _, l := range header {
		name, value, _ := strings.Cut(l, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(s *Server, target string, header ...string) *httptest.ResponseRecorder {
	return ask(s.Handler(), "GET", target, ownHost, "", header...)
}

var testTime = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// event makes an event of a page that was fetched; change makes it another.
func event(seq uint64, url string, change func(*audit.Event)) *audit.Event {
	e := &audit.Event{
		Schema: audit.Schema, Type: audit.TypeRequest, Seq: seq, ID: "id" + strings.Repeat("x", int(seq%3)),
		Time:   testTime.Add(time.Duration(seq) * time.Second),
		Client: audit.Client{Name: "team-a"}, Agent: "example", Profile: "crawl", Kind: "page",
		Method: "GET", Host: "example.com", Decision: audit.Forwarded, Reason: "ok",
		Sent: true, Status: 200, Answered: 200, DelayOwedMS: 1000, DelaySource: "default", TurnWaitMS: 250, TotalMS: 400,
	}
	e.SentAt = e.Time.Add(250 * time.Millisecond)
	e.DoneAt = e.Time.Add(400 * time.Millisecond)
	if err := e.URL.UnmarshalText([]byte(url)); err != nil {
		panic(err)
	}
	if change != nil {
		change(e)
	}
	return e
}

func refusal(reason string) func(*audit.Event) {
	return func(e *audit.Event) {
		e.Decision, e.Reason, e.Sent, e.Status, e.Answered = audit.Refused, reason, false, 0, 403
		e.SentAt, e.DoneAt = time.Time{}, time.Time{}
	}
}

// golden compares with a file under testdata, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update rewrites it)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
