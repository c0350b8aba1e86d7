package pacing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestVectorsRedis plays the scenarios with the turns kept by a real Redis, whose clock is the bubble's: a goroutine that
// reads from a socket keeps virtual time from moving, so that every call takes no time at all.
func TestVectorsRedis(t *testing.T) {
	server := startRedis(t)
	v := readVectors(t)
	for _, sc := range v.Scenarios {
		t.Run(sc.ID, func(t *testing.T) {
			c := server.client()
			if err := c.FlushAll(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			synctest.Test(t, func(t *testing.T) {
				sc.run(t, v.Defaults, func(c Config) *Pacer {
					rc := RedisDefaults()
					client := server.client()
					t.Cleanup(func() { _ = client.Close() })
					p, st, err := newShared(context.Background(), c, rc, client, nil)
					if err != nil {
						t.Fatal(err)
					}
					p.slack = int64(100 * time.Microsecond) // below the scenarios' resolution
					st.clock = func() int64 { return time.Now().UnixMicro() }
					return p
				})
			})
		})
	}
}
