package proxy

import (
	"context"
	"errors"
	"time"

	"crawlgate/pacing"
)

// SharedJobs keeps jobs where every instance sees them. Each method is one step that nobody can divide.
type SharedJobs interface {
	// Charge charges a job, a new one if there is none, and returns it as it is then. known is what this instance
	// remembers of it, nil for nothing: it counts where the store has lost the job.
	Charge(ctx context.Context, a *JobCharge, known *Job) (Job, Reason, error)
	// Settle corrects a job's pages and counts a refusal, unless the job has ended since.
	Settle(ctx context.Context, job *Job, pages int, refused Reason) error
	// End ends a job; it reports whether there was one.
	End(ctx context.Context, client, id string) (bool, error)
	// Limit lowers a job's budget, never raises it, and returns the budget in force.
	Limit(ctx context.Context, client, id string, pages int) (found bool, budget int, err error)
	// List gives all jobs.
	List(ctx context.Context) ([]Job, error)
}

// alone is what this instance does for a job while the store is away (when_down: local): its part of what is left of the
// budget, and what it told nobody yet.
type alone struct {
	left     int
	untold   int  // pages
	stranger bool // the job began here while the store was away; it may have one of that name
}

const (
	jobRetry   = 100 * time.Millisecond // between two questions to a store that does not answer
	storeRetry = 5 * time.Second        // what a refusal for it asks for
)

// errJobStore refuses a request whose job cannot be asked for: it may have used up its pages elsewhere.
var errJobStore = errors.New("the store of the jobs does not answer")

// chargeShared is charge with a store. What comes back is remembered, for the list and for a store that goes away.
func (j *jobs) chargeShared(ctx context.Context, a *JobCharge) (Job, Reason, error) {
	for began := time.Now(); ; {
		// A charge that is under way is waited for even if the client leaves: only then can it be taken back.
		job, code, err := j.ask(context.WithoutCancel(ctx), a)
		switch {
		case err == nil:
			return job, code, nil
		case ctx.Err() != nil:
			return Job{}, "", ctx.Err()
		case j.down.WhenDown == pacing.WhenDownLocal:
			return j.chargeAlone(a)
		case time.Since(began)+jobRetry > j.down.StoreGrace:
			return Job{}, "", errors.Join(errJobStore, err)
		}
		select {
		case <-time.After(jobRetry):
		case <-ctx.Done():
			return Job{}, "", ctx.Err()
		}
	}
}

// ask asks the store, but one that was silent only now and then: it may take its time to be silent.
func (j *jobs) ask(ctx context.Context, a *JobCharge) (Job, Reason, error) {
	now := time.Now().UnixNano()
	if last := j.tried.Swap(now); j.away.Load() && now-last < int64(jobRetry)/2 {
		j.tried.Store(last)
		return Job{}, "", errJobStore
	}
	key := jobKey(a.Client, a.ID)
	if err := j.tell(ctx, key); err != nil {
		return Job{}, "", err
	}
	job, code, err := j.shared.Charge(ctx, a, j.remembered(key))
	j.answers(err)
	if err == nil {
		j.mu.Lock()
		kept := job.clone()
		j.all[key] = &kept
		j.mu.Unlock()
	}
	return job, code, err
}

// answers notes whether the store answers, and says so once.
func (j *jobs) answers(err error) {
	switch was := j.away.Swap(err != nil); {
	case err != nil && !was:
		j.log.Error("the store of the jobs does not answer", "error", err, "when_down", j.down.WhenDown)
	case err == nil && was:
		j.log.Info("the store of the jobs answers again")
	}
}

// remembered is a copy of what this instance knows of a job that lives.
func (j *jobs) remembered(key string) *Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	job := j.all[key]
	if job == nil || time.Since(job.Last) >= jobLifetime {
		return nil
	}
	c := job.clone()
	return &c
}

// chargeAlone goes on with what is remembered of a job. Of its budget this instance takes its part only, so that all of
// them together stay below it; then the request has to wait for the store.
func (j *jobs) chargeAlone(a *JobCharge) (Job, Reason, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := jobKey(a.Client, a.ID)
	known := j.all[key]
	job := j.job(a)
	mine := j.alone[key]
	if mine == nil {
		budget := job.MaxPages
		if a.Limit > 0 && (budget == 0 || a.Limit < budget) {
			budget = a.Limit
		}
		mine = &alone{left: max(0, budget-job.Pages) / j.down.Instances, stranger: job != known}
		j.alone[key] = mine
	}
	before := job.Pages
	if a.Page && mine.left <= 0 && (job.MaxPages > 0 || a.Limit > 0) && !job.exhausted(a) {
		return Job{}, "", errJobStore
	}
	code := job.charge(a)
	mine.left -= job.Pages - before
	mine.untold += job.Pages - before
	return job.brief(), code, nil
}

// tell reports what was done alone for a job.
func (j *jobs) tell(ctx context.Context, key string) error {
	j.mu.Lock()
	mine, kept := j.alone[key], j.all[key]
	if mine == nil || kept == nil {
		j.mu.Unlock()
		return nil
	}
	job := kept.clone()
	if mine.stranger {
		job.Began = time.Time{}
	}
	delete(j.alone, key) // so that nobody tells it twice
	j.mu.Unlock()
	err := j.shared.Settle(ctx, &job, mine.untold, "")
	if err == nil {
		return nil
	}
	j.answers(err)
	j.mu.Lock()
	defer j.mu.Unlock()
	if since := j.alone[key]; since != nil {
		mine.untold += since.untold
		mine.left = min(mine.left, since.left)
	}
	j.alone[key] = mine
	return err
}

// settleShared takes back a page that was never sent, and counts a refusal of a later step.
func (j *jobs) settleShared(job *Job, pages int, refused Reason) {
	if pages == 0 && refused == "" {
		return
	}
	j.mu.Lock()
	key := jobKey(job.Client, job.ID)
	if mine := j.alone[key]; mine != nil {
		mine.left -= pages
		mine.untold += pages
		if kept := j.all[key]; kept != nil {
			kept.Pages += pages
		}
		j.mu.Unlock()
		return
	}
	j.mu.Unlock()
	// The client may be gone: its context does not end this.
	if err := j.shared.Settle(context.Background(), job, pages, refused); err != nil {
		j.answers(err) // the page stays counted: a job fetches one less, not one more
	}
}

// tellAll reports what was done alone, once the store answers.
func (j *jobs) tellAll() {
	j.mu.Lock()
	keys := make([]string, 0, len(j.alone))
	for key := range j.alone {
		keys = append(keys, key)
	}
	j.mu.Unlock()
	for _, key := range keys {
		if err := j.tell(context.Background(), key); err != nil {
			return
		}
		j.answers(nil)
	}
}

func (g *Gate) limitShared(client, id string, pages int) (bool, error) {
	j := g.jobs
	for _, job := range g.Jobs() {
		if job.ID != id || client != "" && job.Client != client {
			continue
		}
		if pages <= 0 {
			return true, errBudget(job.MaxPages)
		}
		found, budget, err := j.shared.Limit(context.Background(), job.Client, id, pages)
		if err != nil {
			j.answers(err)
			return true, errJobStore
		}
		if found && budget < pages {
			return true, errBudget(budget)
		}
		return found, nil
	}
	return false, nil
}
