package policy

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisPrefix = "crawlgate:robots:"
	// redisTime bounds one command: a page waits for it.
	redisTime = 2 * time.Second
)

// giveBack deletes a lease only if it is still ours: it may have ended and be another instance's.
var giveBack = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// redisShared is a Shared over Redis 7 or Valkey.
type redisShared struct{ c redis.UniversalClient }

// NewRedisShared shares through Redis. The client stays the caller's to close.
func NewRedisShared(client redis.UniversalClient) Shared { return redisShared{client} }

// Both keys of a file lie in one slot.
func valueKey(id string) string { return redisPrefix + "{" + id + "}" }
func leaseKey(id string) string { return valueKey(id) + ":lease" }

func (r redisShared) Load(ctx context.Context, id string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTime)
	defer cancel()
	b, err := r.c.Get(ctx, valueKey(id)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return b, err
}

func (r redisShared) Store(ctx context.Context, id string, value []byte, keep time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, redisTime)
	defer cancel()
	return r.c.Set(ctx, valueKey(id), value, keep).Err()
}

func (r redisShared) Lease(ctx context.Context, id string, d time.Duration) (release func(), ok bool, err error) {
	short, cancel := context.WithTimeout(ctx, redisTime)
	defer cancel()
	token := rand.Text()
	ok, err = r.c.SetNX(short, leaseKey(id), token, d).Result()
	if err != nil || !ok {
		return func() {}, false, err
	}
	return func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTime)
		defer cancel()
		_ = giveBack.Run(short, r.c, []string{leaseKey(id)}, token).Err() // else it ends by itself
	}, true, nil
}
