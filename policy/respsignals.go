package policy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// bindTime is how long a signal in an answer's header stops requests for that URL.
	bindTime = 24 * time.Hour
	// maxBinds bounds what is remembered; past it the soonest to end would go first, which a log line tells.
	maxBinds    = 200_000
	signalsName = "signals.jsonl"
)

// binding is one line of signals.jsonl: an answer said Stop, so the agent leaves that URL alone until Until. A line
// with an empty Stop lifts it.
type binding struct {
	Key   string    `json:"key"` // SHA-256 of agent and URL: no URL with its secrets is kept
	Stop  string    `json:"stop"`
	Until time.Time `json:"until"`
}

// bindings remembers signals of answers, on disk too when there is an archive.
type bindings struct {
	mu    sync.Mutex
	log   *slog.Logger
	dir   string // "": memory only
	file  *os.File
	all   map[string]binding
	lines int

	untold map[string]binding // the shared store did not answer
}

func newBindings(a *Archive, log *slog.Logger) *bindings {
	b := &bindings{log: log, all: make(map[string]binding)}
	if a == nil {
		return b
	}
	b.dir = a.dir
	if err := b.load(); err != nil {
		log.Error("signals of earlier answers could not be read", "err", err)
	}
	return b
}

func (b *bindings) load() error {
	f, err := os.Open(filepath.Join(b.dir, signalsName))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sc := bufio.NewScanner(f)
	now := time.Now()
	for sc.Scan() {
		var e binding
		if json.Unmarshal(sc.Bytes(), &e) != nil || e.Key == "" {
			continue // cut off by a crash: the answer it came with was not passed on
		}
		if e.Stop == "" || !e.Until.After(now) {
			delete(b.all, e.Key)
		} else {
			b.all[e.Key] = e
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	return b.rewrite(now)
}

// rewrite writes the bindings in force to a new file.
func (b *bindings) rewrite(now time.Time) error {
	for k, e := range b.all {
		if !e.Until.After(now) {
			delete(b.all, k)
		}
	}
	if b.file != nil {
		_ = b.file.Close()
		b.file = nil
	}
	b.lines = len(b.all)
	return writeSynced(b.dir, filepath.Join(b.dir, signalsName), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		for _, e := range b.all {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bindings) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return nil
	}
	f := b.file
	b.file = nil
	return f.Close()
}

// put remembers or, with an empty Stop, forgets.
func (b *bindings) put(e binding) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.all[e.Key]
	if e.Stop == "" && !known {
		return nil
	}
	if e.Stop == "" {
		delete(b.all, e.Key)
	} else {
		if !known && len(b.all) >= maxBinds {
			b.makeRoom()
		}
		b.all[e.Key] = e
	}
	if b.dir == "" {
		return nil
	}
	if b.lines > 2*len(b.all)+1000 {
		return b.rewrite(time.Now())
	}
	if b.file == nil {
		f, err := os.OpenFile(filepath.Join(b.dir, signalsName), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		b.file = f
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := b.file.Write(append(line, '\n')); err != nil {
		return err
	}
	b.lines++
	return b.file.Sync()
}

// makeRoom drops what has ended, and if that is not enough the one that ends first.
func (b *bindings) makeRoom() {
	now := time.Now()
	var first binding
	for k, e := range b.all {
		if !e.Until.After(now) {
			delete(b.all, k)
		} else if first.Key == "" || e.Until.Before(first.Until) {
			first = e
		}
	}
	if len(b.all) >= maxBinds {
		delete(b.all, first.Key)
		b.log.Warn("too many URLs with signals in their answers; the oldest is forgotten", "most", maxBinds)
	}
}

func (b *bindings) get(key string) (binding, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.all[key]
	return e, ok
}

func (b *bindings) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all) == 0
}

// bindKey names agent and URL, in whatever spelling it is asked for.
func bindKey(q *Query) string {
	k := keyOf(q.URL, q.Agent)
	target := appendTarget(nil, q.URL)
	if hasDotSegment(target[:pathLen(target)]) {
		target = resolveDots(target)
	}
	return hexSum([]byte(k.agent + "\n" + k.scheme + "://" + k.host + string(target)))
}

// ResponseSignals reads Content-Signal and Content-Usage from an answer's header: keys search, ai-input, ai-train, use.
// Nil when they say nothing.
func ResponseSignals(h http.Header) map[string]string { return responseLevels(h).words() }

func responseLevels(h http.Header) levels {
	var l levels
	for _, line := range h.Values("Content-Signal") {
		if strings.HasPrefix(strings.TrimSpace(line), "/") {
			continue // a path has no place in a header
		}
		signalPairs(line, func(key, val string) { l.raise(key, val) })
	}
	if lines := h.Values("Content-Usage"); len(lines) > 0 {
		for k, v := range usageLevels(lines) {
			l[k] = max(l[k], v)
		}
	}
	return l
}

// ObserveResponse notes what an answer to q said in its header and returns it as text (`ai-input=no, search=yes`), ""
// for nothing. The answer itself passes. With response_signals: bind a value in stop_on stops later requests of the
// agent for that URL, for 24 hours or until an answer with a 2xx status comes without it. It must be called before the
// answer is passed on, so that a crash does not lose it.
func (p *Policy) ObserveResponse(q Query, status int, h http.Header) (signals string) {
	l := responseLevels(h)
	if q.Profile.ResponseSignals != Bind || q.URL == nil {
		return l.String()
	}
	stopOn := q.Profile.StopOn
	if stopOn == nil {
		stopOn = q.StopOn
	}
	e := binding{Until: time.Now().Add(bindTime).UTC()}
	for _, s := range stopOn {
		if k, v := stopLevel(s); k >= 0 && l[k] == v {
			e.Stop = s
			break
		}
	}
	if e.Stop == "" && (status < 200 || status > 299 || p.binds.empty()) {
		return l.String()
	}
	e.Key = bindKey(&q)
	if _, known := p.binds.get(e.Key); e.Stop == "" && !known {
		return l.String()
	}
	if err := p.binds.put(e); err != nil {
		p.log.Error("a signal in an answer could not be stored; it holds until the next restart", "host", q.URL.Host, "err", err)
	}
	p.shareBinding(e)
	return l.String()
}

// bound refuses a URL whose last answer said so.
func (p *Policy) bound(ctx context.Context, v *Verdict, q *Query) {
	if !v.Allowed || q.Profile.ResponseSignals != Bind {
		return
	}
	e, err := p.bindingOf(ctx, bindKey(q))
	if err != nil && !p.spare {
		v.refuse(ReasonStoreAway, ClassStoreAway)
		v.RetryAfter, v.Cause = storeRetry, err
		return
	}
	left := time.Until(e.Until)
	if e.Stop == "" || left <= 0 {
		return
	}
	v.refuse(ReasonSignal, ClassResponseSignal)
	v.Rule, v.Line, v.RuleOctets = "", 0, 0
	v.Signal, v.RetryAfter = e.Stop, left
	v.Notes = append(v.Notes, fmt.Sprintf("an answer for this URL said %s in its header", e.Stop))
}
