package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"crawlgate/pacing"
	"crawlgate/pacing/redistest"
)

// jobRedis is a real server of a test's own.
type jobRedis struct {
	*redistest.Server
	t *testing.T
}

func startJobRedis(t *testing.T) *jobRedis {
	t.Helper()
	quietOnce.Do(func() { redis.SetLogger(quietRedis{}) })
	return &jobRedis{redistest.Start(t), t}
}

// quietRedis drops what the client says of a server that a test took away.
type quietRedis struct{}

var quietOnce sync.Once

func (quietRedis) Printf(context.Context, string, ...any) {}

func (r *jobRedis) client() redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1, DialTimeout: 500 * time.Millisecond, DialerRetries: 1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// gate is the part of an instance that keeps jobs.
func (r *jobRedis) gate(down pacing.RedisConfig) *Gate {
	return &Gate{jobs: newJobs(&Parts{SharedJobs: NewRedisJobs(r.client()), JobsDown: down}, slog.New(slog.DiscardHandler))}
}

func refuseAtOnce() pacing.RedisConfig {
	c := pacing.RedisDefaults()
	c.StoreGrace = 0
	return c
}

func localOf(instances int) pacing.RedisConfig {
	c := pacing.RedisDefaults()
	c.WhenDown, c.Instances = pacing.WhenDownLocal, instances
	return c
}

func charge(t *testing.T, g *Gate, a JobCharge) (Job, Reason) {
	t.Helper()
	job, code, err := g.jobs.charge(t.Context(), &a)
	must(t, err)
	return job, code
}

// aPage is a page of the site of a job with a budget of four.
var aPage = JobCharge{Client: "team-a", ID: "job42", Profile: "crawl", Site: "one.example", First: "https://one.example/", MaxPages: 4, SameSite: true, Page: true}

// One list of steps, in memory, and through one instance or two of them in turn: a job is the same everywhere.
func TestJobSteps(t *testing.T) {
	t.Parallel()
	memory := &Gate{jobs: newJobs(&Parts{}, slog.New(slog.DiscardHandler))}
	one, two := startJobRedis(t), startJobRedis(t)
	a, b, c := one.gate(refuseAtOnce()), two.gate(refuseAtOnce()), two.gate(refuseAtOnce())
	for name, gates := range map[string][]*Gate{"memory": {memory}, "redis": {a}, "two instances": {b, c}} {
		t.Run(name, func(t *testing.T) {
			n := 0
			g := func() *Gate { n++; return gates[n%len(gates)] }
			file := aPage
			file.Page = false
			foreign := aPage
			foreign.Site = "two.example"
			lower := aPage
			lower.Limit = 3

			if job, code := charge(t, g(), aPage); code != "" || job.Pages != 1 || job.MaxPages != 4 {
				t.Fatalf("%+v %q", job, code)
			}
			if _, code := charge(t, g(), file); code != "" {
				t.Fatal(code)
			}
			if job, code := charge(t, g(), foreign); code != JobOffSite || job.Site != "one.example" {
				t.Fatalf("%+v %q", job, code)
			}
			job, code := charge(t, g(), aPage)
			if code != "" || job.Pages != 2 {
				t.Fatalf("%+v %q", job, code)
			}
			g().jobs.settle(&job, -1, RobotsDisallow) // it was not sent
			if job, code := charge(t, g(), lower); code != "" || job.Pages != 2 || job.MaxPages != 3 {
				t.Fatalf("%+v %q", job, code)
			}
			if _, err := g().LimitJob("", "job42", 5); err == nil {
				t.Fatal("a budget grew")
			}
			if ok, err := g().LimitJob("", "job42", 2); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if ok, _ := g().LimitJob("team-b", "job42", 1); ok {
				t.Fatal("another client's job")
			}
			if job, code := charge(t, g(), aPage); code != JobExhausted || job.MaxPages != 2 {
				t.Fatalf("%+v %q", job, code)
			}
			want := []Job{{
				Client: "team-a", ID: "job42", Profile: "crawl", Site: "one.example", First: "https://one.example/", Pages: 2, MaxPages: 2, Stopped: string(JobExhausted),
				Refused: map[string]int{string(JobOffSite): 1, string(JobExhausted): 1, string(RobotsDisallow): 1},
			}}
			got := g().Jobs()
			if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Job{}, "Began", "Last")); d != "" {
				t.Fatal(d)
			}
			if since := time.Since(got[0].Began); since < 0 || since > time.Minute || got[0].Last.Before(got[0].Began) {
				t.Errorf("began %s, last %s", got[0].Began, got[0].Last)
			}
			if !g().EndJob("team-a", "job42") || g().EndJob("team-a", "job42") || len(g().Jobs()) != 0 {
				t.Fatal("not ended, or twice")
			}
			g().jobs.settle(&job, -1, RobotsDisallow) // of the job that ended
			for range 2 {
				if job, code := charge(t, g(), aPage); code != "" || job.MaxPages != 4 {
					t.Fatalf("the next request begins a new job: %+v %q", job, code)
				}
			}
			if got := g().Jobs(); len(got) != 1 || got[0].Pages != 2 || len(got[0].Refused) != 0 {
				t.Fatalf("%+v", got)
			}
		})
	}
}

// Many at once, through two instances: never a page more than the budget.
func TestJobBudgetAcrossInstances(t *testing.T) {
	t.Parallel()
	r := startJobRedis(t)
	gates := []*Gate{r.gate(refuseAtOnce()), r.gate(refuseAtOnce())}
	many := aPage
	many.MaxPages = 100
	var mu sync.Mutex
	pages, refused := 0, 0
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for range 10 {
				_, code, err := gates[n%2].jobs.charge(t.Context(), &many)
				mu.Lock()
				switch {
				case err != nil:
					t.Error(err)
				case code == JobExhausted:
					refused++
				default:
					pages++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if pages != 100 || refused != 60 {
		t.Errorf("%d pages, %d refused", pages, refused)
	}
}

// Without the store nothing is fetched for a job; a store that comes back empty learns from the instances what it lost, but
// not a job that was ended.
func TestJobStoreAway(t *testing.T) {
	t.Parallel()
	r := startJobRedis(t)
	a, b := r.gate(refuseAtOnce()), r.gate(refuseAtOnce())
	other := aPage
	other.ID = "job43"
	charge(t, a, aPage)
	charge(t, b, aPage)
	charge(t, a, other)
	if !b.EndJob("team-a", "job43") {
		t.Fatal("not ended")
	}
	if job, _ := charge(t, a, other); job.Pages != 1 {
		t.Fatalf("an ended job came back: %+v", job)
	}
	r.Stop()
	if _, _, err := a.jobs.charge(t.Context(), &aPage); !errors.Is(err, errJobStore) {
		t.Fatalf("%v", err)
	}
	if got := b.Jobs(); len(got) != 1 || got[0].Pages != 2 {
		t.Fatalf("what is remembered: %+v", got)
	}
	r.Start() // with nothing in it
	if job := eventuallyCharged(t, b); job.Pages != 3 {
		t.Fatalf("%+v", job)
	}
	if job := eventuallyCharged(t, a); job.Pages != 4 {
		t.Fatalf("%+v", job)
	}
}

// With store_grace a short absence is waited for.
func TestJobStoreGrace(t *testing.T) {
	t.Parallel()
	r := startJobRedis(t)
	patient := pacing.RedisDefaults()
	patient.StoreGrace = 20 * time.Second
	g := r.gate(patient)
	charge(t, g, aPage)
	r.Stop()
	back := make(chan struct{})
	go func() {
		defer close(back)
		time.Sleep(300 * time.Millisecond)
		r.Start()
	}()
	if job, code := charge(t, g, aPage); code != "" || job.Pages != 2 {
		t.Errorf("%+v %q", job, code)
	}
	<-back
}

// eventuallyCharged charges the page once the instance has found the store again.
func eventuallyCharged(t *testing.T, g *Gate) Job {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		job, code, err := g.jobs.charge(t.Context(), &aPage)
		if err == nil && code == "" && !g.jobs.away.Load() {
			return job
		}
		if time.Now().After(end) {
			t.Fatalf("%+v %q %v", job, code, err)
		}
	}
}

// With when_down: local each instance goes on with its part of what was left, and tells afterwards.
func TestJobLocal(t *testing.T) {
	t.Parallel()
	r := startJobRedis(t)
	a, b := r.gate(localOf(2)), r.gate(localOf(2))
	ten := aPage
	ten.MaxPages = 10
	charge(t, a, ten)
	charge(t, b, ten)
	r.Stop()
	alone := func(g *Gate, a JobCharge) (n int) {
		for {
			job, _, err := g.jobs.charge(t.Context(), &a)
			if errors.Is(err, errJobStore) {
				return n
			}
			must(t, err)
			if n++; n == 1 {
				g.jobs.settle(&job, -1, RobotsDisallow)
			}
		}
	}
	if n := alone(b, ten) - 1; n != 4 { // two of ten were fetched, one was given back
		t.Errorf("%d pages without the store", n)
	}
	fresh := ten
	fresh.ID = "job44"
	if n := alone(a, fresh) - 1; n != 5 {
		t.Errorf("%d pages of a new job", n)
	}
	for _, g := range []*Gate{a, b} {
		free := aPage
		free.ID, free.MaxPages = "free", 0
		if _, code := charge(t, g, free); code != "" {
			t.Error(code)
		}
	}
	r.Start()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		a.FlushJobs()
		b.FlushJobs()
		pages := map[string]int{}
		for _, job := range a.Jobs() {
			pages[job.ID] = job.Pages
		}
		if !a.jobs.away.Load() && !b.jobs.away.Load() {
			if d := cmp.Diff(map[string]int{"job42": 6, "job44": 5, "free": 2}, pages); d != "" {
				t.Error(d)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("still away")
		}
	}
}
