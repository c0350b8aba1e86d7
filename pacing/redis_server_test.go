package pacing

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/pacing/redistest"
)

// redisServer is a real server of a test's own.
type redisServer struct{ *redistest.Server }

func startRedis(tb testing.TB, args ...string) *redisServer {
	tb.Helper()
	return &redisServer{redistest.Start(tb, args...)}
}

func (r *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1, DialTimeout: 500 * time.Millisecond, ReadTimeout: 2 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
}
