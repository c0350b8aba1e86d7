package audit

import (
	"context"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse makes a URL as the gate hands it over.
func parse(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// openTest opens a log that closes at the test's end.
func openTest(t testing.TB, c Config, dir string) *Log {
	t.Helper()
	l, err := Open(c, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// fullEvent has a value in every field a request can have.
func fullEvent(t testing.TB) *Event {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC)
	e := &Event{
		ID: NewID(), Time: at, QueuedMS: 1, TurnWaitMS: 2, UpstreamMS: 3, TotalMS: 4,
		Client: Client{Name: "team-a", Auth: "basic"}, Agent: "example", Profile: "crawl", Job: "job42", Kind: "page",
		Method: "GET", Intercepted: true, Decision: Forwarded, Reason: "ok", Class: "fine", WouldDeny: "site-denied", Entry: "rule 1 (https://example.com/)", Grant: "redirects",
		Sent: true, SentAt: at.Add(time.Second), DoneAt: at.Add(2 * time.Second),
		Rule: Rule{Line: 4, Text: "Allow: /", Group: "ExampleBot"}, Robots: Robots{SHA256: zeroHash, FetchedAt: at, Status: 200, State: "fresh"},
		PolicySHA256: zeroHash, DelayOwedMS: 1000, DelaySource: "default", Exception: "10.0.0.0/8", Reused: true,
		Sig:       Sig{State: "signed", KeyID: "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U", Label: "sig1", Created: 1, Expires: 2, Components: "@authority", Agent: "https://bot.example", Stripped: 1},
		UserAgent: "ExampleBot/1.0 (+https://bot.example/about)", ClientUserAgent: "curl/8", Status: 200, Answered: 200, BytesIn: 5, BytesOut: 6,
		Revalidation: AskedWhether, Kept: true, BytesStored: 7,
		ContentType: "text/html", RobotsTag: "noindex", Indexing: "noindex", Signals: "ai-input=no", RetryAfterS: 7, RateLimit: "r=1", AcceptSignature: true, Permanent: true, Hops: 1,
		RedirectOf: "A", Parent: "B",
	}
	e.SetURL(parse(t, "https://www.example.com:8443/p?q=1&page=2"))
	e.SetLocation("https://www.example.com/q?x=1")
	e.SetClient(netip.MustParseAddrPort("192.0.2.10:4711"))
	e.SetUpstream(netip.MustParseAddrPort("198.51.100.7:443"), []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")})
	return e
}

func TestRecordAndVerify(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Defaults(), dir)
	for range 100 {
		if err := l.Record(context.Background(), fullEvent(t)); err != nil {
			t.Fatal(err)
		}
	}
	seq, head := l.Head()
	if seq != 101 {
		t.Fatalf("seq %d, want 101 with the start event", seq)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeys(filepath.Join(dir, "audit", publicKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Verify([]string{l.Path()}, VerifyOptions{Head: head, Keys: keys})
	if err != nil || !rep.OK {
		t.Fatalf("%+v %v", rep, err)
	}
	if rep.Events != 103 || rep.Signed != 102 {
		t.Errorf("events %d signed to %d, want 103 and 102", rep.Events, rep.Signed)
	}
	for _, name := range []string{hashKeyFile, signKeyFile} {
		st, err := os.Stat(filepath.Join(dir, "audit", name))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
}
