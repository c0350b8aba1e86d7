package pacing

import (
	"encoding/hex"
	"time"
)

// question is a waiter to ask for, and how.
type question struct {
	w *waiter
	a *args
}

// argsFor words the question for a waiter. The caller holds the shard.
func (p *Pacer) argsFor(k *entry, w *waiter, now int64) *args {
	if w.token == "" {
		w.token = p.shared.token()
	}
	a := &args{Token: w.token, Rides: bit(w.kind.companion() && !w.own), Slow: us(w.slow), Wide: bit(w.part.wide)}
	a.of(&w.want)
	since := w.came
	if q := &k.ext.queues; q.pages.head() == w {
		since = q.pages.waits()
	}
	a.Age = max(0, now-since) / 1000
	if w.class == classRider {
		a.Class, a.Prio, a.Parallel = int(classPage), 2, 1
		if w.part.wide {
			a.Class = int(classRider)
		}
	}
	if w.url != "" && w.class != classRobots && !w.part.wide {
		id := pageOf(w.url)
		a.Page = hex.EncodeToString(id[:])
	}
	if w.notBefore != 0 {
		a.NotBefore = max(0, w.notBefore-now+999) / 1000
	}
	return a
}

// askFor asks for one waiter. It returns how long to wait before the next try and whether the instance now stands in the
// store's queue.
func (p *Pacer) askFor(s *shard, k *entry, name string, q question) (next int64, enlisted bool, err error) {
	w, a, sent := q.w, q.a, p.now()
	rep, err := p.shared.call("acquire", name, a)
	if err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := p.now()
	w.token = ""
	p.mirror(k, &rep, now)
	p.requeue(k)
	switch rep.status {
	case stGranted:
		p.leased(s, k, w, a, &rep, sent, now)
		return 0, false, nil
	case stRides:
		if k.waiting() > 0 && k.ext.queues.remove(w) {
			w.class = classRider
			p.handOut(s, k, w, now)
			w.part.granted = rep.now
		}
		return 0, false, nil
	case stStopped:
		p.refuseAll(k, HostStopped, "", now+rep.wait*1000, now)
		return 0, false, nil
	case stLeft:
		p.refuse(k, w, p.busy(URLLeft, "", now+rep.wait*1000, now))
		return 0, false, nil
	}
	p.judge(k, now)
	if rep.status == stHeld {
		p.hopeless(k, now, func(w *waiter, _ int64) bool { return k.holdUntil > w.deadline })
	} else {
		p.hopeless(k, now, pastDeadline)
	}
	p.arm(s, k, now)
	switch {
	case rep.status == stHeld:
		return max(min(rep.wait*1000, int64(heartBeat)), int64(time.Millisecond)), true, nil
	case rep.wait <= 0:
		return int64(time.Millisecond), true, nil
	}
	return rep.wait*1000 + 1, rep.status == stWait, nil
}

// judge refuses newcomers whose turn cannot come in time, each with the forecast at its own arrival.
func (p *Pacer) judge(k *entry, now int64) {
	var fresh []*waiter
	k.ext.queues.each(func(w *waiter) {
		if !w.judged {
			fresh = append(fresh, w)
		}
	})
	for _, w := range fresh {
		w.judged = true
		if at := k.earliest(&p.c, w, now); at > w.deadline {
			p.refuse(k, w, p.tooFar(k, w, at, now))
		}
	}
}

// handOut gives a turn to a waiter that is out of the queue already.
func (p *Pacer) handOut(s *shard, k *entry, w *waiter, now int64) {
	p.waiting.Add(-1)
	w.part.want = w.want
	w.part.far = true
	w.granted = true
	p.grant(s, k, w.part, now)
	close(w.done)
	p.arm(s, k, now)
}

// leased hands a lease to the waiter it was asked for, or to the next of its class if that one left.
func (p *Pacer) leased(s *shard, k *entry, w *waiter, a *args, rep *reply, sent, now int64) {
	a.Token += ":" + itoa(rep.wait)
	q := &k.ext.queues
	var heir *waiter
	switch class(a.Class) { //nolint:gosec // 0..2
	case classRobots:
		if len(q.robots) > 0 {
			heir = q.robots[0]
		}
	case classRedirect:
		if len(q.redirects) > 0 {
			heir = q.redirects[0]
		}
	default:
		heir = q.pages.head()
	}
	if heir != nil && (heir != w && (us(heir.gap) > a.Gap || us(heir.delay) > a.Delay || heir.url != w.url)) {
		heir = nil // the lease was measured for somebody else
	}
	if heir == nil {
		p.shared.run(func() { _, _ = p.shared.call("done", k.name, &args{Token: a.Token, Verdict: notSent.String()}) })
		return
	}
	q.pop(heir, now)
	p.handOut(s, k, heir, now)
	heir.part.lease = p.shared.newLease(heir.part, a.Token, sent)
}
