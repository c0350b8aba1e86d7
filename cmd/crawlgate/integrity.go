package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"crawlgate/admin"
	"crawlgate/audit"
)

// chainCheck is what a gate found when it read its own log.
type chainCheck struct {
	at  time.Time
	rep audit.Report
	err error // the log could not be read
}

// whole tells whether the chain was.
func (c *chainCheck) whole() bool { return c.err == nil && c.rep.OK }

// text says what is wrong, "" for nothing.
func (c *chainCheck) text() string {
	switch {
	case c.err != nil:
		return "the log could not be read: " + c.err.Error()
	case c.rep.Broken != nil:
		return c.rep.Broken.String()
	}
	return ""
}

// chainWatch verifies the gate's own log at the start and every audit.verify_every.
type chainWatch struct {
	events   *audit.Log
	stateDir string
	every    func() time.Duration // 0: never
	log      *slog.Logger
	last     atomic.Pointer[chainCheck]
}

// chainLook is how often the watch looks whether a verification is due.
const chainLook = time.Minute

// run verifies until ctx ends.
func (w *chainWatch) run(ctx context.Context) {
	t := time.NewTicker(chainLook)
	defer t.Stop()
	for {
		last := w.last.Load()
		if every := w.every(); every > 0 && (last == nil || time.Since(last.at) >= every) {
			w.verify(ctx)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// verify reads the whole log and tells when the answer is another than before.
func (w *chainWatch) verify(ctx context.Context) {
	c := w.read(ctx)
	if ctx.Err() != nil {
		return
	}
	before := w.last.Swap(c)
	switch {
	case !c.whole() && (before == nil || before.text() != c.text()):
		w.log.Error("audit: the chain is not whole; crawlgate audit verify says more", "found", c.text())
	case c.whole() && before != nil && !before.whole():
		w.log.Info("audit: the chain is whole again")
	}
}

// read verifies against the head that this process holds, so that a tail that was cut off behind its back shows. While
// files are sealed, compressed or deleted meanwhile, what it finds says nothing, and it begins again.
func (w *chainWatch) read(ctx context.Context) *chainCheck {
	var c *chainCheck
	for range 5 {
		opt := audit.VerifyOptions{}
		_, head := w.events.Head()
		if w.events.Flush() == nil {
			opt.Head = head
		}
		keys, err := audit.LoadKeys(filepath.Join(w.stateDir, "audit", "checkpoint-keys.json"))
		if err == nil {
			opt.Keys = keys
		}
		files, err := audit.Files(w.events.Path())
		var rep audit.Report
		if err == nil {
			rep, err = audit.VerifyContext(ctx, files, opt)
		}
		c = &chainCheck{time.Now(), rep, err}
		if c.whole() || ctx.Err() != nil {
			return c
		}
		if again, err := audit.Files(w.events.Path()); err == nil && slices.Equal(files, again) {
			return c
		}
	}
	return c
}

// watchChain verifies the log beside everything else, until the instance is closed.
func (i *instance) watchChain(ctx context.Context) {
	w := &chainWatch{events: i.audit, stateDir: i.cfg.Load().StateDir, every: func() time.Duration { return i.cfg.Load().Audit.VerifyEvery }, log: i.log}
	i.chain.Store(w)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	i.closers = append(i.closers, func() error { cancel(); <-done; return nil })
}

// lastChain is the last verification, nil before the first.
func (i *instance) lastChain() *chainCheck {
	if w := i.chain.Load(); w != nil {
		return w.last.Load()
	}
	return nil
}

// proofReader reads the proof that `audit prove` kept, again only when the file is another.
type proofReader struct {
	mu   sync.Mutex
	mod  time.Time
	size int64
	kept *audit.KeptProof
	err  error
}

// read gives the last proof, nil if there is none. One that cannot be read is told in the log once.
func (r *proofReader) read(stateDir string, log *slog.Logger) (*audit.KeptProof, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, err := os.Stat(audit.ProofFile(stateDir))
	if err != nil {
		r.kept, r.err, r.mod = nil, nil, time.Time{}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	if !st.ModTime().Equal(r.mod) || st.Size() != r.size {
		r.mod, r.size = st.ModTime(), st.Size()
		if r.kept, r.err = audit.LoadProof(stateDir); r.err != nil {
			log.Error("the last proof cannot be read", "error", r.err)
		}
	}
	return r.kept, r.err
}

func (i *instance) lastProof() (*audit.KeptProof, error) {
	return i.proof.read(i.cfg.Load().StateDir, i.log)
}

// liveChain is the audit log as the admin page shows it.
func (i *instance) liveChain() admin.LiveChain {
	st := i.audit.Status()
	c := admin.LiveChain{
		Seq: st.Seq, Head: st.Head, File: st.File, Size: st.Size, Checkpoint: st.Signed.Time, Signed: st.Signed.Seq, Sinks: st.Sinks,
		Lost: uint64(max(0, st.Lost)), Queued: st.Queued, QueueLimit: st.QueueLimit, DiskFree: st.Free,
	}
	if st.Err != nil {
		c.Unwritable = st.Err.Error()
	}
	if v := i.lastChain(); v != nil {
		c.Verified = admin.LiveVerified{At: v.at, Broken: v.text(), Files: v.rep.Files, Events: v.rep.Events, First: v.rep.First, Last: v.rep.Last, Signed: v.rep.Signed, Lost: v.rep.Lost}
	}
	return c
}

// trailChecks are lines of readiness about the log that stop no traffic: nothing is sent unrecorded, but what was recorded
// may be in danger.
func (i *instance) trailChecks() []admin.Check {
	heads := admin.Check{Name: "audit heads", OK: true}
	sinks := i.audit.Status().Sinks
	failing := 0
	for _, s := range sinks {
		if s.Failing {
			failing++
		}
	}
	if failing > 0 {
		heads.Detail = fmt.Sprintf("signed heads do not reach %d of %d places of audit.checkpoint_to", failing, len(sinks))
	}
	out := []admin.Check{heads}
	if c := i.lastChain(); c != nil {
		chain := admin.Check{Name: "audit chain", OK: true}
		if !c.whole() {
			chain.Detail = "the chain is not whole; crawlgate audit verify says where"
		}
		out = append(out, chain)
	}
	return out
}
