package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/allowlist"
	"crawlgate/configs"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy"
)

// redisLog brings what the client library says of its connections into our log: one line in ten seconds, because a server
// that is away makes it say the same at every attempt. What that means for requests is told by the packages that asked.
type redisLog struct {
	log *slog.Logger

	mu      sync.Mutex
	last    time.Time
	leftOut int
}

const redisLogEvery = 10 * time.Second

// Printf logs a message, or counts it for the next line.
func (r *redisLog) Printf(ctx context.Context, format string, v ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < redisLogEvery {
		r.leftOut++
		return
	}
	r.log.WarnContext(ctx, "redis client", "message", fmt.Sprintf(format, v...), "left_out", r.leftOut)
	r.last, r.leftOut = now, 0
}

// openRedis connects to the Redis that all instances share.
func openRedis(cfg *configs.Config, log *slog.Logger) (redis.UniversalClient, error) {
	opts, err := redis.ParseURL(cfg.Redis.URL)
	if err != nil {
		return nil, usage("redis.url: not a URL like redis://user:password@host:6379/0")
	}
	opts.ContextTimeoutEnabled = true
	opts.MaxRetries = -1 // a command that is sent twice would count as a lost lease; the pacer tries again itself
	opts.DialerRetries = 1
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	redis.SetLogger(&redisLog{log: log})
	client := redis.NewClient(opts)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := pacing.CheckRedis(ctx, client); err != nil {
		client.Close()
		return nil, usage("redis.url: %w", err)
	}
	return client, nil
}

// openShared keeps turns, the ledger, the identity locks, robots.txt and jobs in Redis, together with every other instance that uses it.
func (i *instance) openShared(cfg *configs.Config) error {
	client, err := openRedis(cfg, i.log)
	if err != nil {
		return err
	}
	i.closers = append(i.closers, client.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if i.pacer, err = pacing.NewShared(ctx, cfg.Pacing, cfg.Redis, client, i.log); err != nil {
		return usage("redis.url: %w", err)
	}
	i.closers = append(i.closers, i.pacer.Close)
	i.jobs = proxy.NewRedisJobs(client)
	i.share = func(p *policy.Policy) {
		p.Share(policy.NewRedisShared(client), cfg.Redis.WhenDown == pacing.WhenDownLocal)
	}
	store := allowlist.NewRedisStore(client, longestLock(cfg))
	if i.ledger, err = allowlist.NewLedger(store, i.log); err != nil {
		return fail("redis.url: %w", err)
	}
	if i.locks, err = allowlist.NewLocks(store, longestLock(cfg), i.log); err != nil {
		return fail("redis.url: %w", err)
	}
	if i.gone, err = allowlist.NewGone(store, i.log); err != nil {
		return fail("redis.url: %w", err)
	}
	follow, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); store.Follow(follow, i.ledger, i.locks, i.gone, i.log) }()
	i.closers = append(i.closers, func() error { stop(); <-done; return nil })
	return nil
}

// openRedisLedger is the shared ledger, for a command that runs beside no instance.
func openRedisLedger(cfg *configs.Config) (*allowlist.Ledger, func() error, error) {
	client, err := openRedis(cfg, slog.New(slog.DiscardHandler)) // what fails is the command's error
	if err != nil {
		return nil, nil, err
	}
	l, err := ledgerIn(allowlist.NewRedisStore(client, longestLock(cfg)))
	if err != nil {
		client.Close()
		return nil, nil, fail("redis.url: %w", err)
	}
	return l, client.Close, nil
}

// readRedisJobs lists the shared jobs, for a command that runs beside no instance.
func readRedisJobs(ctx context.Context, cfg *configs.Config) ([]proxy.Job, error) {
	client, err := openRedis(cfg, slog.New(slog.DiscardHandler)) // as above
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, err := proxy.NewRedisJobs(client).List(ctx)
	if err != nil {
		return nil, fail("redis.url: %w", err)
	}
	return all, nil
}
