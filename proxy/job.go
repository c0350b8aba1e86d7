package proxy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/publicsuffix"

	"crawlgate/pacing"
)

// jobLifetime is how long after its last request a job ends.
const jobLifetime = 24 * time.Hour

// Job is one errand of a client: what it fetched, what it was refused, and why it stopped.
type Job struct {
	Client   string         `json:"client"`
	ID       string         `json:"id"`
	Profile  string         `json:"profile"`
	Site     string         `json:"site"`            // registrable domain of its first page
	Pages    int            `json:"pages"`           // pages fetched
	MaxPages int            `json:"max_pages"`       // 0: no budget
	Refused  map[string]int `json:"refused"`         // by reason code
	Began    time.Time      `json:"began"`           //
	Last     time.Time      `json:"last"`            //
	Stopped  string         `json:"stopped"`         // why it fetches no more: job-exhausted, ended, or ""
	First    string         `json:"first,omitempty"` // its first page
}

// JobStore keeps jobs across restarts. Its methods are called outside the request path.
type JobStore interface {
	Load() ([]Job, error)
	Save(Job) error
	Delete(client, id string) error
}

type jobs struct {
	mu    sync.Mutex
	all   map[string]*Job
	store JobStore
	log   *slog.Logger
	dirty map[string]bool

	// With a store for all instances, all is what this one remembers.
	shared SharedJobs
	down   pacing.RedisConfig
	alone  map[string]*alone
	away   atomic.Bool  // the store does not answer
	tried  atomic.Int64 // when it was asked last, unix ns
}

func newJobs(p *Parts, log *slog.Logger) *jobs {
	s := p.Jobs
	j := &jobs{all: map[string]*Job{}, store: s, log: log, dirty: map[string]bool{}, shared: p.SharedJobs, down: p.JobsDown, alone: map[string]*alone{}}
	if s == nil {
		return j
	}
	list, err := s.Load()
	if err != nil {
		log.Error("jobs not read", "error", err)
	}
	for _, job := range list {
		if time.Since(job.Last) < jobLifetime {
			j.all[jobKey(job.Client, job.ID)] = &job
		} else {
			_ = s.Delete(job.Client, job.ID)
		}
	}
	return j
}

// jobLimit reads max-pages=N after a job's name; a request may only lower the profile's budget.
func jobLimit(params string) int {
	for part := range strings.SplitSeq(params, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), "max-pages="); ok {
			if n, err := strconv.Atoi(v); err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

func jobKey(client, id string) string { return client + "+" + id }

// JobCharge is what a request asks of its job.
type JobCharge struct {
	Client, ID, Profile, Site, First string
	MaxPages                         int  // the profile's, for a new job
	Limit                            int  // the request's own, 0: none
	SameSite                         bool // refuse another site than the first page's
	Page                             bool // it counts as a page
}

func (a *JobCharge) newJob() Job {
	return Job{Client: a.Client, ID: a.ID, Profile: a.Profile, Began: time.Now(), Refused: map[string]int{}, MaxPages: a.MaxPages, First: a.First, Site: a.Site}
}

// job finds or begins the job of a charge. The caller holds the mutex.
func (j *jobs) job(a *JobCharge) *Job {
	key := jobKey(a.Client, a.ID)
	job := j.all[key]
	if job == nil || time.Since(job.Last) >= jobLifetime {
		fresh := a.newJob()
		job = &fresh
		j.all[key] = job
	}
	return job
}

// charge counts a request, or says why it may not be sent. jobs.lua does the same.
func (job *Job) charge(a *JobCharge) (code Reason) {
	job.Last = time.Now()
	if a.Limit > 0 && (job.MaxPages == 0 || a.Limit < job.MaxPages) {
		job.MaxPages = a.Limit
	}
	switch {
	case a.SameSite && job.Site != a.Site:
		code = JobOffSite
	case job.exhausted(a):
		code, job.Stopped = JobExhausted, string(JobExhausted)
	case a.Page:
		job.Pages++
	}
	if code != "" {
		job.Refused[string(code)]++
	}
	return code
}

func (job *Job) exhausted(a *JobCharge) bool {
	return a.Page && job.MaxPages > 0 && job.Pages >= job.MaxPages
}

// charge charges a job and returns it as it is then.
func (j *jobs) charge(ctx context.Context, a *JobCharge) (Job, Reason, error) {
	if j.shared != nil {
		return j.chargeShared(ctx, a)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	job := j.job(a)
	code := job.charge(a)
	j.dirty[jobKey(a.Client, a.ID)] = true
	return job.brief(), code, nil
}

// jobAllows charges the job with this request, or says why it may not be sent.
func (x *exchange) jobAllows(ctx context.Context) *refusal {
	if x.job == "" {
		return nil
	}
	site := x.host.Name
	if d, err := publicsuffix.EffectiveTLDPlusOne(site); err == nil {
		site = d
	}
	a := &JobCharge{
		Client: x.id.client.Name, ID: x.job, Profile: x.profile.Name, Site: site, First: x.target, MaxPages: x.profile.Job.MaxPages,
		Limit: x.jobLimit, SameSite: x.profile.Job.SameSite && !x.kind.thirdParty, Page: x.kind.kind == pacing.Page || x.kind.kind == pacing.Sitemap,
	}
	job, code, err := x.g.jobs.charge(ctx, a)
	switch {
	case err != nil && ctx.Err() != nil:
		return &refusal{code: reasonClientGone, class: "client_gone"}
	case err != nil:
		return &refusal{code: Overloaded, class: pacing.ClassStoreAway, retryAfter: storeRetry, err: err}
	case code == JobOffSite:
		return &refusal{code: code, class: "job_off_site", detail: "The job began on " + job.Site + " and stays there. Fetch only that site in this job."}
	case code != "":
		return &refusal{code: code, class: "job_exhausted", detail: "The job has fetched its " + strconv.Itoa(job.MaxPages) + " pages. Start a new job if a person asked for more."}
	case a.Page:
		x.charged = &job
	}
	return nil
}

// settleJob takes back a charge for a page that was never sent, and counts refusals of later steps.
func (x *exchange) settleJob() {
	if x.charged == nil {
		return
	}
	pages, refused := 0, Reason("")
	if !x.ev.Sent {
		pages = -1
	}
	if x.no != nil && x.no.code != reasonClientGone {
		refused = x.no.code
	}
	x.g.jobs.settle(x.charged, pages, refused)
}

func (j *jobs) settle(charged *Job, pages int, refused Reason) {
	if j.shared != nil {
		j.settleShared(charged, pages, refused)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	key := jobKey(charged.Client, charged.ID)
	job := j.all[key]
	if job == nil || !job.Began.Equal(charged.Began) { // it ended meanwhile
		return
	}
	job.Pages += pages
	if refused != "" {
		job.Refused[string(refused)]++
	}
	j.dirty[key] = true
}

// brief is a job without its refusals, for the request that was charged.
func (job *Job) brief() Job {
	c := *job
	c.Refused = nil
	return c
}

// clone copies a job for use without the lock.
func (job *Job) clone() Job {
	c := *job
	c.Refused = maps.Clone(job.Refused)
	return c
}

// Jobs lists the jobs known, newest first.
func (g *Gate) Jobs() []Job {
	j := g.jobs
	if j.shared != nil {
		list, err := j.shared.List(context.Background())
		if err == nil {
			return list
		}
		j.answers(err) // then those that this instance remembers
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Job, 0, len(j.all))
	for _, job := range j.all {
		c := job.clone()
		if c.Stopped == "" && time.Since(c.Last) >= jobLifetime {
			c.Stopped = "ended"
		}
		out = append(out, c)
	}
	return out
}

// EndJob ends a job now; its next request begins a new one.
func (g *Gate) EndJob(client, id string) bool {
	j := g.jobs
	key := jobKey(client, id)
	if j.shared != nil {
		ended, err := j.shared.End(context.Background(), client, id)
		if err != nil {
			j.answers(err)
			return false
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.all, key)
		delete(j.alone, key)
		return ended
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.all[key]; !ok {
		return false
	}
	delete(j.all, key)
	if j.store != nil {
		_ = j.store.Delete(client, id)
	}
	return true
}

// FlushJobs writes what changed; the owner of the gate calls it once a second and at the end.
func (g *Gate) FlushJobs() {
	j := g.jobs
	if j.shared != nil {
		j.tellAll()
	}
	j.mu.Lock()
	var save []Job
	for key := range j.dirty {
		if job := j.all[key]; job != nil {
			save = append(save, job.clone())
		}
	}
	clear(j.dirty)
	var drop []Job
	for key, job := range j.all {
		if time.Since(job.Last) >= jobLifetime {
			drop = append(drop, *job)
			delete(j.all, key)
		}
	}
	j.mu.Unlock()
	if j.store == nil {
		return
	}
	for _, job := range save {
		if err := j.store.Save(job); err != nil {
			j.log.Error("job not saved", "job", job.ID, "error", err)
		}
	}
	for _, job := range drop {
		_ = j.store.Delete(job.Client, job.ID)
	}
}

// LimitJob lowers a job's page budget; an empty client takes the first job of that id. It reports whether there is
// such a job, and an error when the budget would grow.
func (g *Gate) LimitJob(client, id string, pages int) (bool, error) {
	j := g.jobs
	if j.shared != nil {
		return g.limitShared(client, id, pages)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, job := range j.all {
		if job.ID != id || client != "" && job.Client != client {
			continue
		}
		if pages <= 0 || job.MaxPages > 0 && pages > job.MaxPages {
			return true, errBudget(job.MaxPages)
		}
		job.MaxPages = pages
		j.dirty[key] = true
		return true, nil
	}
	return false, nil
}

func errBudget(is int) error {
	return errors.New("a job's budget can only be lowered; it is " + strconv.Itoa(is))
}
