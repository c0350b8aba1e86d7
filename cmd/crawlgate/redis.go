package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/allowlist"
	"crawlgate/configs"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy"
)

// redisLog keeps the client library quiet: what fails is told by the packages that asked.
type redisLog struct{}

// Printf drops the message.
func (redisLog) Printf(context.Context, string, ...any) {}

// openRedis connects to the Redis that all instances share.
func openRedis(cfg *configs.Config) (redis.UniversalClient, error) {
	opts, err := redis.ParseURL(cfg.Redis.URL)
	if err != nil {
		return nil, usage("redis.url: not a URL like redis://user:password@host:6379/0")
	}
	opts.ContextTimeoutEnabled = true
	opts.MaxRetries = -1 // a command that is sent twice would count as a lost lease; the pacer tries again itself
	opts.DialerRetries = 1
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	redis.SetLogger(redisLog{})
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
	client, err := openRedis(cfg)
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
	i.share = func(p *policy.Policy) { p.Share(policy.NewRedisShared(client)) }
	store := allowlist.NewRedisStore(client, longestLock(cfg))
	if i.ledger, err = allowlist.NewLedger(store, i.log); err != nil {
		return fail("redis.url: %w", err)
	}
	if i.locks, err = allowlist.NewLocks(store, longestLock(cfg), i.log); err != nil {
		return fail("redis.url: %w", err)
	}
	follow, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); store.Follow(follow, i.ledger, i.locks, i.log) }()
	i.closers = append(i.closers, func() error { stop(); <-done; return nil })
	return nil
}

// openRedisLedger is the shared ledger, for a command that runs beside no instance.
func openRedisLedger(cfg *configs.Config) (*allowlist.Ledger, func() error, error) {
	client, err := openRedis(cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := allowlist.NewLedger(allowlist.NewRedisStore(client, longestLock(cfg)), nil)
	if err != nil {
		client.Close()
		return nil, nil, fail("redis.url: %w", err)
	}
	return l, client.Close, nil
}

// readRedisJobs lists the shared jobs, for a command that runs beside no instance.
func readRedisJobs(ctx context.Context, cfg *configs.Config) ([]proxy.Job, error) {
	client, err := openRedis(cfg)
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
