package allowlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keys of a Redis 7 or Valkey that several instances share. The ledger is a hash, host to entry, with a stream that tells
// of changes; the identity locks are a stream of refusals, and the URLs that are gone one of 410s and of hosts whose are lifted, which every
// instance replays. The braces keep all in one slot of a cluster.
const (
	redisLedger        = "crawlgate:{lists}:ledger"
	redisLedgerChanges = "crawlgate:{lists}:ledger:changes"
	redisLocks         = "crawlgate:{lists}:locks"
	redisGone          = "crawlgate:{lists}:gone"

	redisTimeout = 5 * time.Second        // of one command
	redisPoll    = 500 * time.Millisecond // a changed ledger is in force everywhere within a second
	redisPage    = 1000                   // refusals read at once
	redisMaxLog  = 2_000_000              // refusals kept, if so many come within the retention
)

// RedisStore keeps the ledger, the identity locks and the URLs that are gone for all instances that use the same Redis. It
// is a LedgerStore, a LockStore and a GoneStore; Follow brings what the other instances write.
type RedisStore struct {
	c      redis.UniversalClient
	retain time.Duration

	mu       sync.Mutex
	lastLock string // id of the last refusal that was read
	lastGone string // of the last URL that is gone
}

// NewRedisStore uses a client that stays the caller's to close. retain is the longest identity_lock of any profile.
func NewRedisStore(c redis.UniversalClient, retain time.Duration) *RedisStore {
	return &RedisStore{c: c, retain: retain, lastLock: "0-0", lastGone: "0-0"}
}

func redisContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), redisTimeout)
}

// LoadEntries reads the whole ledger. An entry that cannot be read is an error: a stop must not be lost.
func (r *RedisStore) LoadEntries() ([]Entry, error) {
	ctx, cancel := redisContext()
	defer cancel()
	all, err := r.c.HGetAll(ctx, redisLedger).Result()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(all))
	for host, v := range all {
		e, err := readEntry(host, []byte(v))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// PutEntry writes one entry and tells the other instances.
func (r *RedisStore) PutEntry(e Entry) error {
	v, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return r.change(e.Host, func(ctx context.Context, p redis.Pipeliner) { p.HSet(ctx, redisLedger, e.Host, v) })
}

// DeleteEntry removes a host's entry and tells the other instances.
func (r *RedisStore) DeleteEntry(host string) error {
	return r.change(host, func(ctx context.Context, p redis.Pipeliner) { p.HDel(ctx, redisLedger, host) })
}

func (r *RedisStore) change(host string, do func(context.Context, redis.Pipeliner)) error {
	ctx, cancel := redisContext()
	defer cancel()
	_, err := r.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		do(ctx, p)
		p.XAdd(ctx, &redis.XAddArgs{Stream: redisLedgerChanges, MaxLen: 100, Approx: true, Values: []string{"host", host}})
		return nil
	})
	return err
}

// LoadLocks reads every refusal within the retention, in the order in which they came.
func (r *RedisStore) LoadLocks(each func(Lock)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		ctx, cancel := redisContext()
		list, err := r.c.XRangeN(ctx, redisLocks, "("+r.lastLock, "+", redisPage).Result()
		cancel()
		if err != nil {
			return err
		}
		for _, m := range list {
			k, err := readLock(m)
			if err != nil {
				return err
			}
			each(k)
			r.lastLock = m.ID
		}
		if len(list) < redisPage {
			return nil
		}
	}
}

// UpdateLocks adds refusals to the stream. Removals need none: they follow from the refusals, for every instance alike,
// and from time.
func (r *RedisStore) UpdateLocks(put []Lock, _ []string) error {
	if len(put) == 0 {
		return nil
	}
	ctx, cancel := redisContext()
	defer cancel()
	oldest := strconv.FormatInt(time.Now().Add(-r.retain-time.Hour).UnixMilli(), 10)
	_, err := r.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, k := range put {
			v, err := json.Marshal(k)
			if err != nil {
				return err
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: redisLocks, Values: []string{"lock", string(v)}})
		}
		p.XTrimMinIDApprox(ctx, redisLocks, oldest, 0)
		p.XTrimMaxLenApprox(ctx, redisLocks, redisMaxLog, 0)
		return nil
	})
	return err
}

// LoadGone replays the stream of URLs that are gone.
func (r *RedisStore) LoadGone(each func(GoneURL)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		ctx, cancel := redisContext()
		list, err := r.c.XRangeN(ctx, redisGone, "("+r.lastGone, "+", redisPage).Result()
		cancel()
		if err != nil {
			return err
		}
		for _, m := range list {
			e, err := readGone(m)
			if err != nil {
				return err
			}
			each(e)
			r.lastGone = m.ID
		}
		if len(list) < redisPage {
			return nil
		}
	}
}

// PutGone adds a URL to the stream. What is forgotten needs no word: every instance forgets by the same bound.
func (r *RedisStore) PutGone(put GoneURL, _ []GoneURL) error { return r.addGone(put) }

// LiftGone adds to the stream that all URLs of a host are asked for again.
func (r *RedisStore) LiftGone(host string, _ []GoneURL) error {
	return r.addGone(GoneURL{Host: host, At: time.Now().UTC()})
}

func (r *RedisStore) addGone(e GoneURL) error {
	v, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := redisContext()
	defer cancel()
	return r.c.XAdd(ctx, &redis.XAddArgs{Stream: redisGone, MaxLen: redisMaxLog, Approx: true, Values: []string{"gone", string(v)}}).Err()
}

func readGone(m redis.XMessage) (e GoneURL, err error) {
	v, ok := m.Values["gone"].(string)
	if !ok {
		return e, fmt.Errorf("gone URL %s has no value", m.ID)
	}
	if err := json.Unmarshal([]byte(v), &e); err != nil {
		return e, fmt.Errorf("gone URL %s: %w", m.ID, err)
	}
	return e, nil
}

func readLock(m redis.XMessage) (k Lock, err error) {
	v, ok := m.Values["lock"].(string)
	if !ok {
		return k, fmt.Errorf("refusal %s has no value", m.ID)
	}
	if err := json.Unmarshal([]byte(v), &k); err != nil {
		return k, fmt.Errorf("refusal %s: %w", m.ID, err)
	}
	return k, nil
}

// Follow brings into force what other instances write, until ctx ends: stops and gaps within a second, refusals too. While
// Redis is away what is known stays in force; afterwards nothing is missed.
func (r *RedisStore) Follow(ctx context.Context, ledger *Ledger, locks *Locks, gone *Gone, log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	changes := "0-0" // the first round reads the ledger once more: something may have changed since it was loaded
	away := false
	for ctx.Err() == nil {
		err := r.round(ctx, &changes, ledger, locks, gone)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !away:
			log.Error("the shared ledger cannot be read; what is known stays in force", "error", err)
		case err == nil && away:
			log.Info("the shared ledger can be read again")
		}
		if away = err != nil; away {
			t := time.NewTimer(redisPoll)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
		}
	}
}

// round waits for news for a short while and brings it into force.
func (r *RedisStore) round(ctx context.Context, changes *string, ledger *Ledger, locks *Locks, gone *Gone) error {
	r.mu.Lock()
	lastLock, lastGone := r.lastLock, r.lastGone
	r.mu.Unlock()
	news, err := r.c.XRead(ctx, &redis.XReadArgs{Streams: []string{redisLedgerChanges, redisLocks, redisGone, *changes, lastLock, lastGone}, Count: redisPage, Block: redisPoll}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range news {
		if len(s.Messages) == 0 {
			continue
		}
		last := s.Messages[len(s.Messages)-1].ID
		switch s.Stream {
		case redisLedgerChanges:
			if err := ledger.Refresh(); err != nil {
				return err
			}
			*changes = last
			continue
		case redisGone:
			for _, m := range s.Messages {
				e, err := readGone(m)
				if err != nil {
					return err
				}
				gone.Apply(e)
			}
			r.mu.Lock()
			r.lastGone = last
			r.mu.Unlock()
			continue
		}
		for _, m := range s.Messages {
			k, err := readLock(m)
			if err != nil {
				return err
			}
			locks.Apply(k)
		}
		r.mu.Lock()
		r.lastLock = last
		r.mu.Unlock()
	}
	return nil
}
