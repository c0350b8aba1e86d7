package audit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// exportedFile remembers, in the log's state folder, which head each sink has taken last, so that a start knows which
// one it still owes.
const exportedFile = "exported.json"

// exporter delivers signed heads to all sinks of checkpoint_to.
type exporter struct {
	file string
	key  []byte // of names in the file: a target may hold a password
	dial Dial
	log  *slog.Logger

	within time.Duration // what close gives all sinks

	mu      sync.Mutex
	pushers []*pusher
	gone    []*pusher   // of targets that are configured no more
	newest  *signedHead // the last that is in the log
	closed  bool

	saving sync.Mutex      // of the file and what goes into it
	taken  map[string]Head // by the name of the target
}

// delivered is the form of exportedFile.
type delivered struct {
	Taken map[string]Head `json:"taken"`
}

func newExporter(dir string, key []byte, dial Dial, log *slog.Logger) *exporter {
	x := &exporter{file: filepath.Join(dir, exportedFile), key: key, dial: dial, log: log, within: closeWithin, taken: map[string]Head{}}
	text, err := os.ReadFile(x.file)
	if errors.Is(err, fs.ErrNotExist) {
		return x
	}
	var d delivered
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		log.Warn("audit: what was delivered before is not known; the newest head is sent again", "file", x.file, "error", err)
		return x
	}
	for name, h := range d.Taken {
		x.taken[name] = h
	}
	return x
}

// name is what a target is called in the file.
func (x *exporter) name(t *target) string {
	h := hmac.New(sha256.New, x.key)
	h.Write([]byte("checkpoint_to\n" + t.text))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// prepare makes what a configuration needs; nothing happens before commit.
func (x *exporter) prepare(c Config) (commit func(), err error) {
	n, err := newNetwork(x.dial, c.CheckpointCAFile)
	if err != nil {
		return nil, err
	}
	targets := parseTargets(c.CheckpointTo)
	return func() { x.use(targets, n) }, nil
}

// use delivers to these targets from now on. One that stays goes on with what waits for it; one that is new, or has not
// taken the newest head yet, gets that. Nothing here waits for a sink: the writer of the log may come to add meanwhile.
func (x *exporter) use(targets []*target, n network) {
	taken := x.forget(targets)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	old := map[string]*pusher{}
	for _, p := range x.pushers {
		old[p.to.text] = p
	}
	x.pushers = nil
	for _, t := range targets {
		p := old[t.text]
		if p != nil {
			delete(old, t.text)
			p.use(n.sinkOf(t)) // by other roots, perhaps
		} else {
			p = newPusher(t, n.sinkOf(t), x.log, x.took)
			p.st.Newest = taken[x.name(t)]
			if h := x.newest; h != nil && !sameHead(p.st.Newest, h.Head) {
				p.queue = []*signedHead{h}
			}
			go p.run()
		}
		x.pushers = append(x.pushers, p)
	}
	for _, p := range old {
		p.end()
		x.gone = append(x.gone, p)
	}
}

// forget drops what targets have taken that are configured no more, and tells what the others have.
func (x *exporter) forget(targets []*target) map[string]Head {
	x.saving.Lock()
	defer x.saving.Unlock()
	kept := map[string]Head{}
	for _, t := range targets {
		if h, ok := x.taken[x.name(t)]; ok {
			kept[x.name(t)] = h
		}
	}
	x.taken = kept
	return maps.Clone(kept)
}

func sameHead(a, b Head) bool { return a.Seq == b.Seq && a.Head == b.Head }

// took remembers what a sink has taken.
func (x *exporter) took(t *target, h *signedHead) {
	x.saving.Lock()
	defer x.saving.Unlock()
	x.taken[x.name(t)] = h.Head
	text, err := json.MarshalIndent(delivered{x.taken}, "", " ")
	if err == nil {
		err = replaceFile(x.file, append(text, '\n'))
	}
	if err != nil {
		x.log.Warn("audit: a delivered head will be sent again after a restart", "file", x.file, "error", err)
	}
}

// add delivers checkpoint events that are in the log now.
func (x *exporter) add(events []*Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range events {
		h, err := headOf(e)
		if err != nil {
			x.log.Error("audit: head not delivered", "seq", e.Checkpoint.Seq, "error", err)
			continue
		}
		x.newest = h
		for _, p := range x.pushers {
			p.add(h)
		}
	}
}

func headOf(e *Event) (*signedHead, error) {
	line, err := e.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return &signedHead{Head{Seq: e.Checkpoint.Seq, Head: e.Checkpoint.Head, Time: e.Time}, line}, nil
}

// status tells how each sink stands, in the order of the configuration.
func (x *exporter) status() []SinkStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]SinkStatus, 0, len(x.pushers))
	for _, p := range x.pushers {
		out = append(out, p.status())
	}
	return out
}

// close gives what waits a bounded time. What is still owed then is sent after the next start.
func (x *exporter) close() {
	x.mu.Lock()
	x.closed = true
	pushers, gone := x.pushers, x.gone
	x.mu.Unlock()
	for _, p := range pushers {
		close(p.closing)
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.within)
	defer cancel()
	for _, p := range pushers {
		select {
		case <-p.done:
		case <-ctx.Done():
		}
	}
	for _, p := range append(gone, pushers...) {
		p.end()
		select {
		case <-p.done:
		case <-time.After(pushClosing): // a disk or share that answers no more: nothing can wake its writer
		}
		if st := p.status(); st.Waiting > 0 && slices.Contains(pushers, p) {
			x.log.Warn("audit: stopped before all heads were delivered; the newest is sent after the next start", "to", p.to.label, "waiting", st.Waiting, "error", st.Error)
		}
	}
}

// replaceFile puts a small file in place whole.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
