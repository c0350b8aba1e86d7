package proxy

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed jobs.lua
var jobsLua string

var jobsScript = redis.NewScript(jobsLua)

// Keys of a Redis 7 or Valkey that several instances share: a hash for each job, and an index of them. The braces keep all in
// one slot of a cluster.
const (
	redisJobs    = "crawlgate:{jobs}"
	redisTimeout = time.Second // of one command: a request waits for it
)

// redisJobStore is a SharedJobs over Redis.
type redisJobStore struct{ c redis.UniversalClient }

// NewRedisJobs keeps jobs for all instances that use the same Redis. The client stays the caller's to close.
func NewRedisJobs(c redis.UniversalClient) SharedJobs { return redisJobStore{c} }

// jobArgs are the script's arguments.
type jobArgs struct {
	Name       string `json:"name"` // of the job, in the index
	Life       int64  `json:"life"` // ms
	Known      *Job   `json:"known,omitempty"`
	KnownBegan int64  `json:"known_began"`
	Fresh      *Job   `json:"fresh,omitempty"`
	Limit      int    `json:"limit"`
	SameSite   bool   `json:"same_site"`
	Page       bool   `json:"page"`
	Pages      int    `json:"pages"`
	Refused    string `json:"refused"`
}

func (a *jobArgs) know(known *Job) {
	if known == nil {
		return
	}
	a.Known = known
	if !known.Began.IsZero() {
		a.KnownBegan = known.Began.UnixMilli()
	}
}

// step runs the script once: all of a step happens, or nothing.
func (r redisJobStore) step(ctx context.Context, op, client, id string, a *jobArgs) (code string, fields []any, err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	a.Name, a.Life = jobKey(client, id), jobLifetime.Milliseconds()
	j, err := json.Marshal(a)
	if err != nil {
		return "", nil, err
	}
	v, err := jobsScript.Run(ctx, r.c, []string{redisJobs + ":" + a.Name, redisJobs}, op, j).Slice()
	if err != nil {
		return "", nil, fmt.Errorf("redis: job: %w", err)
	}
	if len(v) == 2 {
		code, ok := v[0].(string)
		fields, ok2 := v[1].([]any)
		if ok && ok2 {
			return code, fields, nil
		}
	}
	return "", nil, fmt.Errorf("redis: job: answered %v", v)
}

func (r redisJobStore) Charge(ctx context.Context, a *JobCharge, known *Job) (Job, Reason, error) {
	fresh := a.newJob()
	x := &jobArgs{Fresh: &fresh, Limit: a.Limit, SameSite: a.SameSite, Page: a.Page}
	x.know(known)
	code, fields, err := r.step(ctx, "charge", a.Client, a.ID, x)
	if err != nil {
		return Job{}, "", err
	}
	m := make(map[string]string, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		m[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	return readJob(m), Reason(code), nil
}

func (r redisJobStore) Settle(ctx context.Context, job *Job, pages int, refused Reason) error {
	x := &jobArgs{Pages: pages, Refused: string(refused)}
	x.know(job)
	_, _, err := r.step(ctx, "settle", job.Client, job.ID, x)
	return err
}

func (r redisJobStore) End(ctx context.Context, client, id string) (bool, error) {
	code, _, err := r.step(ctx, "end", client, id, &jobArgs{})
	return code != "", err
}

func (r redisJobStore) Limit(ctx context.Context, client, id string, pages int) (found bool, budget int, err error) {
	code, fields, err := r.step(ctx, "limit", client, id, &jobArgs{Pages: pages})
	if err != nil || code == "" || len(fields) != 2 {
		return false, 0, err
	}
	budget, err = strconv.Atoi(fmt.Sprint(fields[1]))
	return true, budget, err
}

func (r redisJobStore) List(ctx context.Context) ([]Job, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*redisTimeout)
	defer cancel()
	names, err := r.c.ZRange(ctx, redisJobs, 0, -1).Result()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	all := make([]*redis.MapStringStringCmd, len(names))
	_, err = r.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			all[i] = p.HGetAll(ctx, redisJobs+":"+name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("redis: jobs: %w", err)
	}
	out := make([]Job, 0, len(all))
	for _, c := range all {
		if m := c.Val(); m["id"] != "" {
			out = append(out, readJob(m))
		}
	}
	return out, nil
}

// readJob reads a hash as the script writes it.
func readJob(m map[string]string) Job {
	num := func(field string) int64 { n, _ := strconv.ParseInt(m[field], 10, 64); return n }
	job := Job{
		Client: m["client"], ID: m["id"], Profile: m["profile"], Site: m["site"], First: m["first"], Stopped: m["stopped"],
		Pages: int(num("pages")), MaxPages: int(num("max")), Began: time.UnixMilli(num("began")), Last: time.UnixMilli(num("last")),
		Refused: map[string]int{},
	}
	for field := range m {
		if code, ok := strings.CutPrefix(field, "refused:"); ok {
			job.Refused[code] = int(num(field))
		}
	}
	return job
}
