package redistest_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/pacing/redistest"
)

func client(t *testing.T, s *redistest.Server, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, Password: password, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestServer(t *testing.T) {
	ctx := context.Background()
	one, two := redistest.Start(t), redistest.Start(t, "--requirepass", "right")
	if err := client(t, two, "right").Set(ctx, "k", "two", 0).Err(); err != nil {
		t.Error(err)
	}
	if err := client(t, two, "").Get(ctx, "k").Err(); err == nil {
		t.Error("no password was asked for")
	}
	c := client(t, one, "")
	if err := c.Set(ctx, "k", "one", 0).Err(); err != nil {
		t.Error(err)
	}
	one.Stop()
	if err := c.Get(ctx, "k").Err(); err == nil || err == redis.Nil {
		t.Errorf("it still answers: %v", err)
	}
	addr := one.Addr
	one.Start()
	if err := client(t, one, "").Get(ctx, "k").Err(); err != redis.Nil || one.Addr != addr {
		t.Errorf("%s: %v", one.Addr, err)
	}
	one.Stop()
	one.Stop()
}
