package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The Redis client says the same at every attempt: our log has one line in ten seconds, with the number of those left out.
func TestRedisLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := &redisLog{log: slog.New(slog.NewTextHandler(&b, nil))}
		for range 25 { // one a second: at 0, 10 and 20 s
			l.Printf(t.Context(), "redis: connection pool: failed to dial after %d attempts", 1)
			time.Sleep(time.Second)
		}
		s := b.String()
		if n := strings.Count(s, "failed to dial after 1 attempts"); n != 3 || strings.Count(s, "left_out=9") != 2 || !strings.Contains(s, "left_out=0") {
			t.Errorf("%d lines:\n%s", n, s)
		}
	})
}
