package proxy

import (
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
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
}

func newJobs(s JobStore, log *slog.Logger) *jobs {
	j := &jobs{all: map[string]*Job{}, store: s, log: log, dirty: map[string]bool{}}
	if s == nil {
		return j
	}
	list, err := s.Load()
	if err != nil {
		log.Error("jobs not read", "error", err)
	}
	for _, job := range list {
		if time.Since(job.Last) < jobLifetime {
			j.all[job.Client+"+"+job.ID] = &job
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

// jobAllows charges the job with this request, or says why it may not be sent.
func (x *exchange) jobAllows() *refusal {
	if x.job == "" {
		return nil
	}
	j := x.g.jobs
	site := x.host.Name
	if d, err := publicsuffix.EffectiveTLDPlusOne(site); err == nil {
		site = d
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	key := x.id.client.Name + "+" + x.job
	job := j.all[key]
	if job == nil || time.Since(job.Last) >= jobLifetime {
		job = &Job{Client: x.id.client.Name, ID: x.job, Profile: x.profile.Name, Began: time.Now(), Refused: map[string]int{}, MaxPages: x.profile.Job.MaxPages, First: x.target, Site: site}
		j.all[key] = job
	}
	job.Last = time.Now()
	j.dirty[key] = true
	if x.jobLimit > 0 && (job.MaxPages == 0 || x.jobLimit < job.MaxPages) {
		job.MaxPages = x.jobLimit
	}
	no := func() *refusal {
		if x.profile.Job.SameSite && job.Site != site && !x.kind.thirdParty {
			return &refusal{code: JobOffSite, class: "job_off_site", detail: "The job began on " + job.Site + " and stays there. Fetch only that site in this job."}
		}
		if page := x.kind.kind == pacing.Page || x.kind.kind == pacing.Sitemap; page && job.MaxPages > 0 && job.Pages >= job.MaxPages {
			job.Stopped = string(JobExhausted)
			return &refusal{code: JobExhausted, class: "job_exhausted", detail: "The job has fetched its " + strconv.Itoa(job.MaxPages) + " pages. Start a new job if a person asked for more."}
		} else if page {
			job.Pages++
			x.charged = job
		}
		return nil
	}()
	if no != nil {
		job.Refused[string(no.code)]++
	}
	return no
}

// settleJob takes back a charge for a page that was never sent, and counts refusals of later steps.
func (x *exchange) settleJob() {
	job := x.charged
	if job == nil {
		return
	}
	j := x.g.jobs
	j.mu.Lock()
	defer j.mu.Unlock()
	if !x.ev.Sent {
		job.Pages--
	}
	if x.no != nil && x.no.code != reasonClientGone {
		job.Refused[string(x.no.code)]++
	}
	j.dirty[job.Client+"+"+job.ID] = true
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
	j.mu.Lock()
	defer j.mu.Unlock()
	key := client + "+" + id
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
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, job := range j.all {
		if job.ID != id || client != "" && job.Client != client {
			continue
		}
		if pages <= 0 || job.MaxPages > 0 && pages > job.MaxPages {
			return true, errors.New("a job's budget can only be lowered; it is " + strconv.Itoa(job.MaxPages))
		}
		job.MaxPages = pages
		j.dirty[key] = true
		return true, nil
	}
	return false, nil
}
