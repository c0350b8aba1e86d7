package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// plainDial is the dialer that the program hands in.
var plainDial Dial = new(net.Dialer).DialContext

func testHead(t testing.TB, seq uint64) *signedHead {
	t.Helper()
	h, err := headOf(&Event{Schema: Schema, Type: TypeCheckpoint, Seq: seq + 1, Time: time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC), Prev: zeroHash, Hash: zeroHash,
		Checkpoint: Checkpoint{Seq: seq, Head: zeroHash, SignedBy: "key", Signature: "sig"}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// sinkTo is the way to a target, by these roots.
func sinkTo(t *testing.T, text, caFile string) sink {
	t.Helper()
	to, err := parseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(plainDial, caFile)
	if err != nil {
		t.Fatal(err)
	}
	return n.sinkOf(to)
}

func TestURLSink(t *testing.T) {
	var got []string
	status, more := http.StatusNoContent, http.Header{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		got = append(got, fmt.Sprintf("%s %s %s %d %s:%s %s", r.Method, r.URL, r.Header.Get("Content-Type"), r.ContentLength, user, password, b))
		for k := range more {
			w.Header().Set(k, more.Get(k))
		}
		w.WriteHeader(status)
	})
	plain := httptest.NewServer(h)
	defer plain.Close()
	secure := httptest.NewTLSServer(h)
	defer secure.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	head := testHead(t, 7)
	want := func(path, auth string) string {
		return fmt.Sprintf("POST %s application/json %d %s %s\n", path, len(head.line)+1, auth, head.line)
	}
	for _, c := range []struct{ url, ca, want string }{
		{plain.URL + "/heads?gate=1", "", want("/heads?gate=1", ":")},
		{strings.Replace(secure.URL, "https://", "https://gate:se%20cret@", 1) + "/x", ca, want("/x", "gate:se cret")},
		{strings.Replace(plain.URL, "http://", "http://token@", 1), "", want("/", "token:")},
	} {
		got = nil
		if err := sinkTo(t, c.url, c.ca).send(t.Context(), head); err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %v\n%q\n%q", c.url, err, got, c.want)
		}
	}
	if err := sinkTo(t, secure.URL, "").send(t.Context(), head); err == nil {
		t.Error("a certificate of a stranger was taken")
	}

	// No answer but 2xx is a delivery, and a redirect leads nowhere.
	more.Set("Location", plain.URL+"/elsewhere")
	for _, status = range []int{302, 307, 400, 401, 500} {
		got = nil
		err := sinkTo(t, plain.URL, "").send(t.Context(), head)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("answered %d ", status)) || len(got) != 1 {
			t.Errorf("%d: %v, %d requests", status, err, len(got))
		}
	}
	status = 503
	more.Set("Retry-After", "90")
	var later retryLater
	if err := sinkTo(t, plain.URL, "").send(t.Context(), head); !errors.As(err, &later) || later.after != 90*time.Second {
		t.Errorf("Retry-After: %v", err)
	}
	plain.Close()
	err := sinkTo(t, strings.Replace(plain.URL, "http://", "http://u:hunter2@", 1)+"/?key=hunter3", "").send(t.Context(), head)
	if err == nil || strings.Contains(err.Error(), "hunter") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "1.5": 0, "99999999999999999999": 0, "Wed, 04 Mar 2026 05:07:07 GMT": time.Minute, "Wed, 04 Mar 2026 05:05:07 GMT": 0, "soon": 0,
	} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("%q: %s, want %s", v, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{"", "7", "-7", "Wed, 04 Mar 2026 05:07:07 GMT", "Wednesday, 04-Mar-26 05:07:07 GMT", "Wed Mar  4 05:07:07 2026"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if d := retryAfter(v, time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)); d < 0 {
			t.Errorf("%q: %s", v, d)
		}
	})
}

// A URL that never answers is left at the end of the attempt's time.
func TestURLSinkHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the kernel takes the connection, nobody answers
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sinkTo(t, "http://"+l.Addr().String(), "").send(ctx, testHead(t, 1)) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// rfc5424 is a message as the standard has it, with the record behind the header.
var rfc5424 = regexp.MustCompile(`^<110>1 2026-03-04T05:06:07\.089Z [!-~]+ crawlgate [0-9]+ checkpoint - (\{.*\})$`)

func wantSyslog(t *testing.T, msg string, h *signedHead) {
	t.Helper()
	m := rfc5424.FindStringSubmatch(msg)
	if m == nil || m[1] != string(h.line) {
		t.Errorf("message %q", msg)
	}
}

// octetCounted reads one message of RFC 6587 section 3.4.1 and sees the stream end after it.
func octetCounted(conn net.Conn) (string, error) {
	r := bufio.NewReader(conn)
	size, err := r.ReadString(' ')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(size, " "))
	if err != nil {
		return "", err
	}
	rest, err := io.ReadAll(r)
	if err == nil && len(rest) != n {
		err = fmt.Errorf("%d octets, %d announced", len(rest), n)
	}
	return string(rest), err
}

func TestSyslogStream(t *testing.T) {
	secure := httptest.NewUnstartedServer(nil) // for its certificate
	secure.StartTLS()
	defer secure.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"syslog+tcp", "syslog+tls"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if scheme == "syslog+tls" {
			l = tls.NewListener(l, &tls.Config{Certificates: secure.TLS.Certificates})
		}
		msgs := make(chan string, 2)
		go func() {
			defer close(msgs)
			for range 2 {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				msg, err := octetCounted(conn)
				if err != nil {
					msg = err.Error()
				}
				msgs <- msg
				conn.Close()
			}
		}()
		s := sinkTo(t, scheme+"://"+l.Addr().String(), ca)
		for seq := range uint64(2) {
			h := testHead(t, seq+1)
			if err := s.send(t.Context(), h); err != nil {
				t.Errorf("%s: %v", scheme, err)
			}
			wantSyslog(t, <-msgs, h)
		}
		l.Close()
		if err := s.send(t.Context(), testHead(t, 3)); err == nil {
			t.Errorf("%s: delivered to nobody", scheme)
		}
	}
	// Another's certificate: nothing is said.
	s := sinkTo(t, "syslog+tls://"+strings.TrimPrefix(secure.URL, "https://"), "")
	if err := s.send(t.Context(), testHead(t, 1)); err == nil {
		t.Error("a certificate of a stranger was taken")
	}
}

// A server that resets the connection has not taken the message.
func TestSyslogReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_, _ = io.ReadFull(conn, make([]byte, 1))
		conn.Close()
	}()
	if err := sinkTo(t, "syslog+tcp://"+l.Addr().String(), "").send(t.Context(), testHead(t, 1)); err == nil {
		t.Error("a reset counts as delivered")
	}
}

func TestSyslogDatagram(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	unix, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	for to, conn := range map[string]net.PacketConn{"syslog://" + udp.LocalAddr().String(): udp, "syslog+udp://" + udp.LocalAddr().String(): udp, "syslog://" + path: unix} {
		h := testHead(t, 1)
		if err := sinkTo(t, to, "").send(t.Context(), h); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		b := make([]byte, 4096)
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		wantSyslog(t, string(b[:n]), h)
	}
	udp.Close()
	unix.Close()
	for _, to := range []string{"syslog://" + udp.LocalAddr().String(), "syslog://" + path} {
		if err := sinkTo(t, to, "").send(t.Context(), testHead(t, 1)); err == nil {
			t.Errorf("%s: nobody listens, and it counts as delivered", to)
		}
	}
}

func TestSyslogName(t *testing.T) {
	for in, want := range map[string]string{"": "-", "gate-1.example": "gate-1.example", "a b\nc\u00fc": "abc", strings.Repeat("x", 300): strings.Repeat("x", 255)} {
		if got := syslogName(in, 255); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestFileSink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heads")
	a, b := testHead(t, 1), testHead(t, 2)
	s := sinkTo(t, path, "")
	for _, h := range []*signedHead{a, b} {
		if err := s.send(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if want := string(a.line) + "\n" + string(b.line) + "\n"; err != nil || string(text) != want || bytes.Contains(a.line, []byte("\n")) {
		t.Errorf("%v %q", err, text)
	}
	if err := sinkTo(t, filepath.Join(path, "x"), "").send(t.Context(), a); err == nil {
		t.Error("written below a file")
	}
}

func TestCheckpointCAFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + ".none"} {
		c := Defaults()
		c.CheckpointCAFile = file
		var key interface{ Key() string }
		l, err := Open(c, t.TempDir(), nil)
		if err == nil {
			l.Close()
		}
		if !errors.As(err, &key) || key.Key() != "checkpoint_ca_file" || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
