package pacing

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

type vectors struct {
	Defaults  map[string]any `json:"defaults"`
	Scenarios []scenario     `json:"scenarios"`
}

type scenario struct {
	ID      string            `json:"id"`
	Title   string            `json:"title"`
	Config  map[string]any    `json:"config"`
	Delay   json.RawMessage   `json:"robots_delay"`
	Domains map[string]string `json:"domains"`
	Events  []event           `json:"events"`
	Want    []result          `json:"want"`
}

type event struct {
	ID       string   `json:"id"`
	T        float64  `json:"t"`
	Client   string   `json:"client"`
	Host     string   `json:"host"`
	Kind     string   `json:"kind"`
	URL      string   `json:"url"`
	Wait     *float64 `json:"wait"`
	Duration float64  `json:"duration"`
	Outcome  struct {
		Status     int    `json:"status"`
		RetryAfter string `json:"retry_after"`
		Date       string `json:"date"`
		Error      string `json:"error"`
		NotSent    bool   `json:"not_sent"`
	} `json:"outcome"`
	Op    string   `json:"op"`
	Delay *float64 `json:"delay"`
}

type result struct {
	Request     string   `json:"request"`
	GrantedAt   *float64 `json:"granted_at,omitempty"`
	EndedAt     *float64 `json:"ended_at,omitempty"`
	RefusedAt   *float64 `json:"refused_at,omitempty"`
	RefusedWith int      `json:"refused_with,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	RetryAfter  int      `json:"retry_after_s,omitempty"`
	CancelledAt *float64 `json:"cancelled_at,omitempty"`
}

func readVectors(tb testing.TB) vectors {
	tb.Helper()
	b, err := os.ReadFile("testdata/pacing.json")
	if err != nil {
		tb.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

func secs(f float64) time.Duration { return time.Duration(math.Round(f*1000)) * time.Millisecond }

// settings reads the flat names of the vectors.
type settings struct {
	t    testing.TB
	m    map[string]any
	used map[string]bool
}

func (s settings) num(name string) float64 {
	s.used[name] = true
	f, ok := s.m[name].(float64)
	if !ok {
		s.t.Fatalf("%s: no number", name)
	}
	return f
}

func (s settings) str(name string) string {
	s.used[name] = true
	f, ok := s.m[name].(string)
	if !ok {
		s.t.Fatalf("%s: no string", name)
	}
	return f
}
func (s settings) dur(name string) time.Duration { return secs(s.num(name)) }
func (s settings) cnt(name string) int           { return int(s.num(name)) }

func (s settings) config() (Config, ProfileConfig) {
	c, pr := Defaults(), ProfileDefaults()
	pr.Key, pr.Gap, pr.MaxWait, pr.CompanionMaxWait = s.str("key"), s.dur("gap"), s.dur("max_wait"), s.dur("companion_max_wait")
	pr.Redirect, pr.Companions, pr.Robots = s.str("redirect"), s.str("companions"), s.str("robots")
	c.LongestDelay, c.CompanionParallel = s.dur("longest_delay"), s.cnt("companion_parallel")
	c.MaxQueue, c.MaxQueueClient = s.cnt("max_queue"), s.cnt("max_queue_client")
	c.Backoff = BackoffConfig{
		Base: s.dur("backoff_base"), Factor: s.num("backoff_factor"), Cap: s.dur("backoff_cap"), Jitter: s.num("jitter"),
		RetryAfterCap: s.dur("retry_after_cap"), ForgetAfter: s.dur("forget_after"),
	}
	c.Slow = SlowConfig{Window: s.dur("sustain_window"), MaxLevel: s.cnt("level_max"), RecoverAfter: s.cnt("level_recover_after"), Decay: s.dur("level_decay")}
	c.Pages = PagesConfig{Retries: s.cnt("page_retries"), Round: s.dur("round")}
	c.Breaker = BreakerConfig{
		Size: s.cnt("breaker_size"), Min: s.cnt("breaker_min"), Ratio: s.num("breaker_ratio"), Window: s.dur("breaker_window"),
		OpenFor: s.dur("breaker_open_for"), Factor: s.num("breaker_open_factor"), Cap: s.dur("breaker_open_cap"),
	}
	c.Breaker.Size = max(c.Breaker.Size, c.Breaker.Min) // backoff-cap switches the breaker off by a large minimum
	for _, known := range []string{"epoch", "throttle_statuses", "refusal_statuses"} {
		s.used[known] = true
	}
	for name := range s.m {
		if !s.used[name] {
			s.t.Fatalf("unknown setting %q", name)
		}
	}
	return c, pr
}

func TestVectors(t *testing.T) {
	v := readVectors(t)
	if len(v.Scenarios) != 73 {
		t.Errorf("%d scenarios, want 73", len(v.Scenarios))
	}
	for _, sc := range v.Scenarios {
		t.Run(sc.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc.run(t, v.Defaults, func(c Config) *Pacer {
					p, err := New(c, nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					return p
				})
			})
		})
	}
}

// player plays one scenario. Everything but Acquire happens in its own goroutine.
type player struct {
	t       testing.TB
	p       *Pacer
	epoch   time.Time
	grants  chan *flight
	flights map[string]*flight
	ends    []*flight // granted, not ended
	results map[string]*result
}

type flight struct {
	ev     *event
	turn   *Turn
	cancel context.CancelFunc
	res    result // written before the flight is sent to grants
	end    time.Duration
}

func (pl *player) now() time.Duration { return time.Since(pl.epoch).Truncate(time.Millisecond) }
func (pl *player) stamp() *float64    { f := pl.now().Seconds(); return &f }

func (sc *scenario) run(t *testing.T, defaults map[string]any, open func(Config) *Pacer) {
	m := map[string]any{}
	for k, v := range defaults {
		m[k] = v
	}
	for k, v := range sc.Config {
		m[k] = v
	}
	c, pr := settings{t, m, map[string]bool{}}.config()
	epoch, err := time.Parse(time.RFC3339, m["epoch"].(string))
	if err != nil {
		t.Fatal(err)
	}
	wait(time.Until(epoch))
	pl := &player{t: t, epoch: epoch, grants: make(chan *flight, len(sc.Events)), flights: map[string]*flight{}, results: map[string]*result{}}
	pl.p = open(c)
	defer pl.p.Close()
	delays, all := map[string]float64{}, 0.0
	if json.Unmarshal(sc.Delay, &all) != nil {
		if err := json.Unmarshal(sc.Delay, &delays); err != nil {
			t.Fatal(err)
		}
	}
	delay := func(host string) time.Duration {
		if d, ok := delays[host]; ok {
			return secs(d)
		}
		return secs(all)
	}
	events := sc.Events
	for len(events) > 0 || pl.open() > 0 {
		at := time.Duration(math.MaxInt64)
		if len(events) > 0 {
			at = secs(events[0].T)
		}
		for _, f := range pl.ends {
			at = min(at, f.end)
		}
		if now := time.Since(epoch); at > now {
			if !pl.sleep(at - now) {
				continue
			}
		}
		pl.finish()
		var ops, arrivals []*event
		for len(events) > 0 && secs(events[0].T) <= at {
			if ev := &events[0]; ev.Op != "" {
				ops = append(ops, ev)
			} else {
				arrivals = append(arrivals, ev)
			}
			events = events[1:]
		}
		for _, ev := range ops {
			pl.operate(ev, delays)
			pl.settle()
		}
		for _, ev := range arrivals {
			pl.arrive(ev, pr, sc.Domains, delay(HostKey(ev.Host)))
			pl.settle()
		}
	}
	var got []result
	for _, ev := range sc.Events {
		if ev.Op == "" {
			got = append(got, *pl.results[ev.ID])
		}
	}
	if diff := cmp.Diff(sc.Want, got); diff != "" {
		t.Errorf("%s: want (-) got (+)\n%s", sc.Title, diff)
	}
}

// open is how many requests are not over.
func (pl *player) open() int {
	n := 0
	for id := range pl.flights {
		if r := pl.results[id]; r == nil || r.EndedAt == nil && r.RefusedAt == nil && r.CancelledAt == nil {
			n++
		}
	}
	return n
}

// sleep waits for d or until a turn is granted; it reports whether d is over.
func (pl *player) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case f := <-pl.grants:
		pl.granted(f)
		return false
	case <-timer.C:
		return true
	case <-time.After(200 * 24 * time.Hour):
		pl.t.Fatal("nothing happens any more")
		return false
	}
}

// settle waits until everybody waits, and notes who was granted.
func (pl *player) settle() {
	synctest.Wait()
	for {
		select {
		case f := <-pl.grants:
			pl.granted(f)
		default:
			return
		}
	}
}

func (pl *player) granted(f *flight) {
	pl.results[f.ev.ID] = &f.res
	if f.turn == nil { // refused or cancelled
		return
	}
	f.end = secs(*pl.results[f.ev.ID].GrantedAt) + secs(f.ev.Duration)
	pl.ends = append(pl.ends, f)
	if f.ev.Duration == 0 {
		pl.finish()
	}
}

// finish ends the turns whose time it is, in the order of their grants.
func (pl *player) finish() {
	for {
		pl.settle()
		i := -1
		for j, f := range pl.ends {
			if f.end <= time.Since(pl.epoch) {
				i = j
				break
			}
		}
		if i < 0 {
			return
		}
		f := pl.ends[i]
		pl.ends = append(pl.ends[:i], pl.ends[i+1:]...)
		o := Outcome{Sent: !f.ev.Outcome.NotSent, Status: f.ev.Outcome.Status, RetryAfter: f.ev.Outcome.RetryAfter, Date: f.ev.Outcome.Date}
		if f.ev.Outcome.Error != "" {
			o.Err = errors.New(f.ev.Outcome.Error)
		}
		pl.end(f, o)
	}
}

func (pl *player) end(f *flight, o Outcome) {
	pl.results[f.ev.ID].EndedAt = pl.stamp()
	f.turn.Done(o)
}

func (pl *player) operate(ev *event, delays map[string]float64) {
	switch ev.Op {
	case "cancel":
		f := pl.flights[ev.ID]
		for i, x := range pl.ends {
			if x == f {
				pl.ends = append(pl.ends[:i], pl.ends[i+1:]...)
				pl.end(f, Outcome{Sent: true, Err: context.Canceled})
				return
			}
		}
		f.cancel()
	case "robots_delay":
		delays[HostKey(ev.Host)] = *ev.Delay
		pl.p.SetDelay(HostKey(ev.Host), secs(*ev.Delay))
	case "reset":
		pl.p.Resume(HostKey(ev.Host))
	default:
		pl.t.Fatalf("unknown operation %q", ev.Op)
	}
}

func (pl *player) arrive(ev *event, pr ProfileConfig, domains map[string]string, delay time.Duration) {
	kind := Page
	for k := range kinds {
		if k.String() == ev.Kind {
			kind = k
		}
	}
	if kind.String() != ev.Kind {
		pl.t.Fatalf("unknown kind %q", ev.Kind)
	}
	r := Request{
		Key: HostKey(ev.Host), Client: ev.Client, Kind: kind, URL: "http://" + HostKey(ev.Host) + ev.URL, Wait: pr.MaxWait, Gap: pr.Gap, Delay: delay,
		Parallel: pr.Parallel, Redirect: pr.Redirect, Companions: pr.Companions, Robots: pr.Robots,
	}
	if ev.URL == "" {
		r.URL += "/" + ev.ID
	}
	if kind.companion() {
		r.Wait = pr.CompanionMaxWait
	}
	if ev.Wait != nil {
		r.Wait = min(r.Wait, secs(*ev.Wait))
	}
	if pr.Key == KeyRegistrableDomain {
		r.DomainKey = domains[r.Key]
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{ev: ev, cancel: cancel}
	res := &f.res
	res.Request = ev.ID
	pl.flights[ev.ID] = f
	go func() {
		turn, err := pl.p.Acquire(ctx, r)
		var busy *Busy
		switch {
		case err == nil:
			f.turn, res.GrantedAt = turn, pl.stamp()
		case errors.As(err, &busy):
			res.RefusedAt, res.Reason, res.RetryAfter = pl.stamp(), string(busy.Reason), busy.RetryAfter()
			res.RefusedWith = 429
			if busy.Reason == HostStopped || busy.Reason == Overloaded {
				res.RefusedWith = 503
			}
		default:
			res.CancelledAt = pl.stamp()
		}
		pl.grants <- f
	}()
}
