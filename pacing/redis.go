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
	redisEpoch   = "crawlgate:turn:epoch" // a random word: while it is the same, nothing was lost
	otherData    = "!changed"             // on the channel: look which server and which data answer
	// resettle is how long after a failover or a loss of data nothing is given: a holder that is under way puts its lease
	// back in that time.
	resettle  = time.Second
	silentFor = 2 * time.Second // an instance that waits and was not heard for so long has lost its place
)

// isRedisURL tells whether the client library can read a URL. What it says of one that it cannot may hold the password.
func isRedisURL(text string) bool {
	_, err := redis.ParseURL(text)
	return err == nil
}

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
	epoch    string // the data's
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
	messages := st.sub.ChannelWithSubscriptions()
	p.shared.run(func() { p.listen(messages, st.notice) })
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

// look learns which server answers, and with which data. The script carries the run id and compares the epoch, so that a
// server that was restarted or took over does not know it, one that was emptied refuses it, and every instance comes by
// here: then every key counts as just ended, for one gap.
func (st *redisStore) look(ctx context.Context) (changed bool, err error) {
	info, err := st.c.Info(ctx, "server").Result()
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	run := field(info, "run_id")
	if run == "" {
		return false, errors.New("redis: INFO names no run_id")
	}
	if err := st.c.SetNX(ctx, redisEpoch, rand.Text(), 0).Err(); err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	epoch, err := st.c.Get(ctx, redisEpoch).Result()
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	at, err := st.c.Time(ctx).Result()
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	changed = st.run != "" && (st.run != run || st.epoch != epoch)
	if changed {
		st.floor = at.Add(resettle).UnixMicro()
	}
	st.run, st.epoch = run, epoch
	st.src = turnsLua + "\n-- " + run + "\n"
	sum := sha1.Sum([]byte(st.src)) //nolint:gosec // Redis names scripts so
	st.sha = hex.EncodeToString(sum[:])
	b, err := json.Marshal(st.scriptSettings())
	st.settings = string(b)
	return changed, err
}

// notice looks, and when server or data are others, puts back what this instance holds and knows to be owed.
func (st *redisStore) notice(ctx context.Context) error {
	changed, err := st.look(ctx)
	if err != nil || !changed {
		return err
	}
	st.h.p.log.Warn("redis was restarted or emptied, or another server took over; every host counts as just asked")
	st.h.changed()
	return nil
}

// tellChange has the other instances look as well: whoever holds a turn must put its lease back soon.
func (st *redisStore) tellChange(ctx context.Context) {
	if err := st.c.Publish(ctx, redisChannel, otherData+" "+st.h.inst).Err(); err != nil {
		st.h.p.log.Warn("other instances are not told that redis changed", "error", err)
	}
}

// scriptSettings are the settings in microseconds, under the script's names.
func (st *redisStore) scriptSettings() map[string]any {
	c := &st.conf
	return map[string]any{
		"epoch": st.epoch, "floor": st.floor, "ttl": us(st.ttl), "beat": us(silentFor), "longest": us(c.LongestDelay), "decay": us(c.Slow.Decay),
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
	keys := []string{redisPrefix + "{" + name + "}", redisEpoch}
	_, sha, settings := st.script()
	v, err := st.c.EvalSha(ctx, sha, keys, op, settings, j).Int64Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") || redis.HasErrorPrefix(err, "EPOCH") {
		if lerr := st.notice(ctx); lerr != nil {
			return reply{}, lerr
		}
		src, _, now := st.script()
		if now != settings {
			st.tellChange(ctx)
			return reply{}, errOtherData
		}
		v, err = st.c.Eval(ctx, src, keys, op, settings, j).Int64Slice()
	}
	switch {
	case err == nil:
		return readReply(v)
	case redis.HasErrorPrefix(err, "FOREIGN"), redis.HasErrorPrefix(err, "user_script"): // the script stumbled over what it read
		return reply{}, fmt.Errorf("%w: %s: %s", errForeign, keys[0], err.Error())
	default:
		return reply{}, fmt.Errorf("redis: %s: %w", op, err)
	}
}

// ping asks whether turns can be kept. A replica or a server out of memory answers, but takes nothing, and looking writes.
func (st *redisStore) ping(ctx context.Context) error { return st.notice(ctx) }

func (st *redisStore) close() error {
	if st.sub != nil {
		return st.sub.Close()
	}
	return nil
}

// listen wakes the askers of the keys that other instances name. A subscription that was made anew, and an instance that
// says so, are reasons to look whether the server is another one.
func (p *Pacer) listen(messages <-chan any, notice func(context.Context) error) {
	look := func() {
		p.shared.run(func() {
			ctx, cancel := context.WithTimeout(p.shared.ctx, callTimeout)
			defer cancel()
			_ = notice(ctx) // if it does not answer now, the next call finds out
		})
	}
	for {
		select {
		case <-p.shared.ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			switch m := m.(type) {
			case *redis.Subscription:
				look()
			case *redis.Message:
				switch f := strings.Fields(m.Payload); {
				case len(f) == 3:
					p.heard(f[0], f[1], f[2])
				case len(f) == 2 && f[0] == otherData && f[1] != p.shared.inst:
					look()
				}
			}
		}
	}
}
