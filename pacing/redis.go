package pacing

import (
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // Redis names scripts so
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed turns.lua
var turnsLua string

const (
	redisPrefix  = "crawlgate:turn:"
	redisChannel = "crawlgate:turn:wake"
	silentFor    = 2 * time.Second // an instance that waits and was not heard for so long has lost its place
)

// redisStore is the backend over Redis 7 or Valkey.
type redisStore struct {
	c     redis.UniversalClient
	conf  Config
	ttl   time.Duration
	h     *sharing
	clock func() int64 // tests only: replaces the server's TIME, in microseconds
	sub   *redis.PubSub

	mu       sync.Mutex
	run      string // the server's run id
	src, sha string // of the script for this run id
	floor    int64  // every key counts as ended then
	settings string
}

// NewShared makes a Pacer whose turns, back-off, breakers and page counts are shared by every instance that uses the
// same Redis (section 10). It refuses a server that may evict keys. The client stays the caller's to close, after the
// Pacer.
func NewShared(ctx context.Context, c Config, rc RedisConfig, client redis.UniversalClient, log *slog.Logger) (*Pacer, error) {
	p, st, err := newShared(ctx, c, rc, client, log)
	if err != nil {
		return nil, err
	}
	st.sub = client.Subscribe(ctx, redisChannel)
	messages := st.sub.Channel()
	p.shared.run(func() { p.listen(messages) })
	p.wg.Add(1)
	go p.sweeper()
	return p, nil
}

func newShared(ctx context.Context, c Config, rc RedisConfig, client redis.UniversalClient, log *slog.Logger) (*Pacer, *redisStore, error) {
	if err := rc.Validate(); err != nil {
		return nil, nil, err
	}
	p, err := newPacer(c, log)
	if err != nil {
		return nil, nil, err
	}
	if err := CheckRedis(ctx, client); err != nil {
		return nil, nil, err
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, nil, fmt.Errorf("random: %w", err)
	}
	st := &redisStore{c: client, conf: c, ttl: rc.LeaseTTL}
	p.shared = newSharing(p, st, rc, hex.EncodeToString(id[:]))
	p.slack = lateExpiry
	st.h = p.shared
	if _, err := st.look(ctx); err != nil {
		return nil, nil, err
	}
	return p, st, nil
}

// CheckRedis reports why a server cannot keep turns: it does not answer, or it may evict keys, and an evicted key is a
// broken promise. For start and for `doctor`.
func CheckRedis(ctx context.Context, client redis.UniversalClient) error {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if policy := field(info, "maxmemory_policy"); policy != "noeviction" {
		return fmt.Errorf("redis: maxmemory-policy is %q, must be noeviction: an evicted key is a turn given twice", policy)
	}
	return nil
}

// field finds one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// look learns which server answers. The script carries the run id, so that a server which was restarted or took over
// does not know it and every instance comes by here: then every key counts as just ended, for one gap.
func (st *redisStore) look(ctx context.Context) (changed bool, err error) {
	info, err := st.c.Info(ctx, "server").Result()
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	run := field(info, "run_id")
	if run == "" {
		return false, errors.New("redis: INFO names no run_id")
	}
	at, err := st.c.Time(ctx).Result()
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	changed = st.run != "" && st.run != run
	if changed {
		st.floor = at.UnixMicro()
	}
	st.run = run
	st.src = turnsLua + "\n-- " + run + "\n"
	sum := sha1.Sum([]byte(st.src)) //nolint:gosec // Redis names scripts so
	st.sha = hex.EncodeToString(sum[:])
	b, err := json.Marshal(st.scriptSettings())
	st.settings = string(b)
	return changed, err
}

// scriptSettings are the settings in microseconds, under the script's names.
func (st *redisStore) scriptSettings() map[string]any {
	c := &st.conf
	return map[string]any{
		"floor": st.floor, "ttl": us(st.ttl), "beat": us(silentFor), "longest": us(c.LongestDelay), "decay": us(c.Slow.Decay),
		"slow": us(c.Slow.Window), "maxlevel": c.Slow.MaxLevel, "recover": c.Slow.RecoverAfter, "base": us(c.Backoff.Base),
		"factor": c.Backoff.Factor, "cap": us(c.Backoff.Cap), "forget": us(c.Backoff.ForgetAfter), "window": us(c.Breaker.Window),
		"size": c.Breaker.Size, "min": c.Breaker.Min, "ratio": c.Breaker.Ratio, "openfor": us(c.Breaker.OpenFor),
		"openfactor": c.Breaker.Factor, "opencap": us(c.Breaker.Cap), "retries": c.Pages.Retries, "round": us(c.Pages.Round), "pages": maxPages, "poll": us(pollNotFirst),
	}
}

func (st *redisStore) script() (src, sha, settings string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.src, st.sha, st.settings
}

// call runs the script once.
func (st *redisStore) call(ctx context.Context, op, name string, a *args) (reply, error) {
	if st.clock != nil {
		a.Now = st.clock()
	}
	a.Channel = redisChannel
	j, err := json.Marshal(a)
	if err != nil {
		return reply{}, fmt.Errorf("encode %s: %w", op, err)
	}
	keys := []string{redisPrefix + "{" + name + "}"}
	_, sha, settings := st.script()
	v, err := st.c.EvalSha(ctx, sha, keys, op, settings, j).Int64Slice()
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		changed, lerr := st.look(ctx)
		if lerr != nil {
			return reply{}, lerr
		}
		if changed {
			st.h.p.log.Warn("redis was restarted or another server took over; every host counts as just asked")
			st.h.renewAll()
		}
		var src string
		src, _, settings = st.script()
		v, err = st.c.Eval(ctx, src, keys, op, settings, j).Int64Slice()
	}
	if err != nil {
		return reply{}, fmt.Errorf("redis: %s: %w", op, err)
	}
	return readReply(v)
}

func (st *redisStore) ping(ctx context.Context) error {
	if err := st.c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

func (st *redisStore) close() error {
	if st.sub != nil {
		return st.sub.Close()
	}
	return nil
}

// listen wakes the askers of the keys that other instances name.
func (p *Pacer) listen(messages <-chan *redis.Message) {
	for {
		select {
		case <-p.shared.ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			if f := strings.Fields(m.Payload); len(f) == 3 {
				p.heard(f[0], f[1], f[2])
			}
		}
	}
}
