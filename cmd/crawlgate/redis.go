package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"crawlgate/configs"
	"crawlgate/pacing"
)

// openSharedPacer keeps turns in Redis, together with every other instance that uses the same one.
func openSharedPacer(cfg *configs.Config, log *slog.Logger) (p *pacing.Pacer, closeClient func() error, err error) {
	opts, err := redis.ParseURL(cfg.Redis.URL)
	if err != nil {
		return nil, nil, usage("redis.url: not a URL like redis://user:password@host:6379/0")
	}
	opts.ContextTimeoutEnabled = true
	client := redis.NewClient(opts)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p, err = pacing.NewShared(ctx, cfg.Pacing, cfg.Redis, client, log); err != nil {
		client.Close()
		return nil, nil, usage("redis.url: %w", err)
	}
	return p, client.Close, nil
}
