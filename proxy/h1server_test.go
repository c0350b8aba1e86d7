package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
	"time"
)

// Fetchers that read nothing, not even a close_notify, do not hold up the end one after the other.
func TestH1ShutdownUnread(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS() // for its certificate
	defer srv.Close()
	for name, end := range map[string]func(*h1Conns){
		"idle": func(s *h1Conns) {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_ = s.shutdown(ctx)
		},
		"busy": (*h1Conns).close,
	} {
		t.Run(name, func(t *testing.T) {
			s := newH1Conns()
			for range 8 {
				ours, fetchers := net.Pipe() // without any buffer
				defer fetchers.Close()
				a := &answerConn{Conn: ours}
				a.stall.Store(int64(time.Minute))
				c := tls.Server(a, &tls.Config{Certificates: srv.TLS.Certificates, MaxVersion: tls.VersionTLS12})
				done := make(chan error, 1)
				go func() { done <- c.Handshake() }()
				must(t, tls.Client(fetchers, &tls.Config{InsecureSkipVerify: true}).Handshake()) //nolint:gosec // a test
				must(t, <-done)
				s.add(&h1Conn{conn: c})
			}
			began := time.Now()
			end(s)
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
}
