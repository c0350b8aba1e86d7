package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"crawlgate/audit"
	"crawlgate/pacing"
)

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// body is an answer's body on its way to the fetcher. It is copied by its own loop, which flushes what is there,
// counts, keeps the size limit, watches that bytes move, and ends the exchange: a cut is always loud, never a clean
// end.
type body struct {
	x      *exchange
	resp   *http.Response
	src    io.ReadCloser
	links  io.WriteCloser // learns links from what passes
	index  *indexing      // learns the page's own directives
	unread bool           // whose coding is not known
	keep   *keeper        // keeps what passes, for the next time
	limit  int64
	left   int64 // of a known length; -1 when unknown

	ended atomic.Bool // what reads along has ended

	moved   atomic.Int64 // bumped at each progress
	writing atomic.Bool  // it is the fetcher that is waited for
	err     error
}

func newBody(x *exchange, resp *http.Response) *body {
	b := &body{x: x, resp: resp, src: resp.Body, limit: x.profile.Limits.ResponseBody, left: resp.ContentLength}
	if noBodyStatus(x.in.Method, resp.StatusCode) {
		b.left = 0
	}
	if b.left != 0 && htmlType(resp.Header.Get("Content-Type")) {
		b.links = x.learn(resp)
		var known bool
		b.index, known = newIndexing(resp.Header, x.profile.Agent.Token)
		b.unread = !known
	}
	b.keep = x.keeper(resp)
	return b
}

// noBodyStatus tells whether an answer has no body whatever its fields say (RFC 9110 6.4.1).
func noBodyStatus(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified || status < 200
}

// eventStream tells whether an answer is a stream of events, which stays open while nothing happens.
func eventStream(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream")
}

func htmlType(ct string) bool {
	ct, _, _ = strings.Cut(ct, ";")
	ct = strings.ToLower(strings.TrimSpace(ct))
	return ct == "text/html" || ct == "application/xhtml+xml"
}

// Read counts what passes and keeps the limit.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.src.Read(p)
	b.moved.Add(1)
	total := b.count(int64(n))
	if b.limit > 0 && total > b.limit {
		return n, errBodyTooLarge
	}
	if b.left > 0 {
		b.left -= int64(n)
	}
	if b.links != nil && n > 0 {
		_, _ = b.links.Write(p[:n])
	}
	if b.index != nil && n > 0 {
		_, _ = b.index.Write(p[:n])
	}
	if b.keep != nil && n > 0 {
		b.keep.write(p[:n])
	}
	return n, err
}

// count adds bytes to what came, from the site or from what is kept, and gives the sum.
func (b *body) count(n int64) int64 {
	if b.x.stored.reuse {
		b.x.stored.bytes += n
		return b.x.stored.bytes
	}
	return b.x.wire.in.Add(n)
}

// endKeeping ends the keeping: of a whole answer by having it, of another by dropping it.
func (b *body) endKeeping(whole bool) {
	k := b.keep
	if k == nil {
		return
	}
	b.keep = nil
	if !whole {
		k.abandon()
		return
	}
	b.x.ev.Kept = k.done()
}

// Close ends the exchange, once. Without a whole body it counts as left by the client.
func (b *body) Close() error {
	b.endTaps()
	b.endKeeping(false)
	err := b.src.Close()
	b.x.end()
	return err
}

// endTaps ends what reads along, and notes what the page said of itself.
func (b *body) endTaps() {
	if b.links != nil {
		_ = b.links.Close()
		b.links = nil
	}
	if b.index == nil || b.ended.Swap(true) {
		return
	}
	_ = b.index.Close()
	b.x.ev.Indexing = b.index.directives()
	if b.x.ev.Indexing == "" && b.unread {
		b.x.ev.Indexing = unread
	}
}

// directives are what is known of the page's own directives; whose head said nothing of them may say so later.
func (b *body) directives() string {
	if b.index == nil {
		return ""
	}
	return b.index.directives()
}

// learning tells whether the page may still say more of itself than its head will.
func (b *body) learning() bool {
	return b.index != nil && !b.unread && !b.ended.Load() && b.directives() != "noindex, nofollow"
}

// finish notes how the body ended and records the event; the turn is given back by Close.
func (b *body) finish(err error) {
	b.err = err
	b.endTaps()
	b.endKeeping(err == nil)
	ev := b.x.ev
	var over *pacing.Overrun
	switch {
	case err == nil:
	case errors.Is(err, errBareEnd):
		ev.Reason, ev.Class, ev.Decision = string(UpstreamFailed), "close_without_notify", audit.Failed
	case errors.Is(err, errBodyTooLarge):
		ev.Reason, ev.Class, ev.Decision = string(ResponseTooLarge), "cut", audit.Failed
	case errors.Is(err, errStalled):
		ev.Reason, ev.Class, ev.Decision = string(UpstreamTimeout), "stalled", audit.Failed
		b.x.outcome.Err = err // the site's time-out
		if errors.Is(err, errUnread) || eventStream(b.resp.Header) {
			b.x.outcome.Err = &pacing.Overrun{Limit: "stall_timeout"}
		}
	case errors.As(err, &over):
		ev.Reason, ev.Class, ev.Decision = string(UpstreamTimeout), over.Limit, audit.Failed
		b.x.outcome.Err = over
	case errors.Is(err, errAnswerDamaged):
		ev.Reason, ev.Class, ev.Decision = string(Internal), "stored_damaged", audit.Failed // ours, not the site's
	case errors.Is(err, errClientLeft):
		ev.Class = "client_left_body"
		b.x.outcome.Err = errCanceled
	default:
		ev.Reason, ev.Class, ev.Decision = string(UpstreamFailed), "body_cut", audit.Failed
		b.x.outcome.Err = err
	}
	b.x.record()
}

// copyTo sends the body on. head writes status and fields; it is called before the first byte, after at most a few
// milliseconds, or not at all: an origin that breaks off before the first byte gets an answer of ours instead, which
// copyTo returns.
func (b *body) copyTo(w http.ResponseWriter, head func()) *http.Response {
	if b.left == 0 {
		b.finish(nil)
		head()
		return nil
	}
	rc := http.NewResponseController(w)
	s := &headSender{head: head}
	watch := &watcher{}
	// Of a body that is there already nothing is waited for, and a fetcher over HTTP/1.1 that does not take it is watched where
	// it is written.
	if here, ok := b.src.(*siteBody); !ok || !here.here() || b.x.in.ProtoMajor != 1 {
		watch = b.watch(rc)
		defer watch.stop()
		// A head that comes without a body (SSE, slow pages) must not wait for the first byte.
		early := time.AfterFunc(headPatience, func() { s.send(func() { _ = rc.Flush() }) })
		defer s.claim() // a timer that fires late writes nothing
		defer early.Stop()
	}

	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for first := true; ; first = false {
		n, err := b.Read(*buf)
		if err == nil && b.left == 0 {
			err = b.awaitEnd()
		}
		if err == io.EOF && !b.whole() {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return b.cut(w, rc, s, (*buf)[:n], b.why(err, watch))
		}
		if err == io.EOF {
			b.finish(b.bareEnd())
		}
		b.writing.Store(true)
		s.send(nil)
		if n > 0 {
			if werr := b.write(w, (*buf)[:n]); werr != nil {
				if cause := watch.cause(); cause != nil {
					b.finish(cause)
				} else {
					b.finish(errClientLeft)
				}
				panic(http.ErrAbortHandler)
			}
		}
		if err == io.EOF {
			if stall := b.x.rules.Server.StallTimeout; b.x.in.ProtoMajor == 2 && stall > 0 {
				// What the server still holds back goes out after the handler ended, when nothing watches it any more.
				_ = rc.SetWriteDeadline(time.Now().Add(stall))
			}
			return nil
		}
		if n < len(*buf) {
			_ = rc.Flush()
		}
		b.writing.Store(false)
		if first { // not before the head has gone, which may be sent while the site is waited for
			if end := b.corks(); end != nil {
				defer end()
			}
		}
	}
}

// write sends p. Over HTTP/2, where only the end of a write shows that the fetcher took it, it does so in pieces small enough for
// a slow one to take within the stall time.
func (b *body) write(w io.Writer, p []byte) error {
	most := len(p)
	if b.x.in.ProtoMajor == 2 {
		most = h2Frame
	}
	for len(p) > 0 {
		n, err := w.Write(p[:min(len(p), most)])
		if err != nil {
			return err
		}
		b.moved.Add(1)
		p = p[n:]
	}
	return nil
}

// whole tells whether a body that ended is all of it. A site that sees its connection end may still end its body in good
// form, and we read that: after the exchange was ended by us only a body of known length is known to be whole.
func (b *body) whole() bool {
	return b.left == 0 || b.left < 0 && b.x.sending.Err() == nil
}

// awaitEnd waits for the end of a body whose announced bytes are all there. Over HTTP/2 the end is a mark of its own,
// and closing before it came would reset a stream that the origin has served whole.
func (b *body) awaitEnd() error {
	if b.resp.ProtoMajor == 2 {
		var one [1]byte
		_, _ = b.src.Read(one[:])
	}
	return io.EOF
}

// bareEnd is the fault of a body that only the connection's end ended, where that end may have been anybody's. It has
// passed for whole to the fetcher, as it does everywhere.
func (b *body) bareEnd() error {
	if b.left < 0 && b.resp.ProtoMajor == 1 && len(b.resp.TransferEncoding) == 0 && b.x.wire.endedBare() {
		return errBareEnd
	}
	return nil
}

// why names the reason of a body that broke off: ours, the fetcher's, or the origin's own.
func (b *body) why(err error, w *watcher) error {
	if cause := w.cause(); cause != nil {
		return cause
	}
	if errors.Is(err, errBodyTooLarge) {
		return err
	}
	if b.x.ctx().Err() != nil {
		return errClientLeft
	}
	if cause := b.x.cause(); cause != nil {
		return cause
	}
	return err
}

// cut ends a body that broke off. Where nothing has gone out yet the fetcher gets an answer that says why; else its
// connection or stream is reset, which no client takes for a clean end.
func (b *body) cut(w http.ResponseWriter, rc *http.ResponseController, s *headSender, rest []byte, err error) *http.Response {
	if errors.Is(err, errClientLeft) {
		b.finish(err)
		panic(http.ErrAbortHandler)
	}
	if s.claim() {
		return b.instead(err)
	}
	if len(rest) > 0 && !errors.Is(err, errBodyTooLarge) {
		_, _ = w.Write(rest)
	}
	_ = rc.Flush()
	b.finish(err)
	if !b.x.in.ProtoAtLeast(1, 1) {
		resetOnClose(b.x.from.conn)
	}
	panic(http.ErrAbortHandler)
}

// headSender writes a head once, from whichever of two goroutines comes first.
type headSender struct {
	mu   sync.Mutex
	sent bool
	head func()
}

// send writes the head, and then calls after, unless it was written or claimed before.
func (s *headSender) send(after func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent {
		return
	}
	s.sent = true
	s.head()
	if after != nil {
		after()
	}
}

// claim keeps the head from being written and reports whether it was not written yet.
func (s *headSender) claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.sent
	s.sent = true
	return !was
}

// headPatience is how long a head waits for its first byte of body, so that both leave together and an origin that
// breaks off at once can still be answered for.
const headPatience = 5 * time.Millisecond

// instead makes an answer of ours in place of one that broke off before its first byte.
func (b *body) instead(err error) *http.Response {
	var no *refusal
	switch {
	case errors.Is(err, errBodyTooLarge):
		no = &refusal{code: ResponseTooLarge, class: "size"}
	case errors.Is(err, errStalled):
		no = &refusal{code: UpstreamTimeout, class: "stalled", err: err}
	case errors.Is(err, errAnswerDamaged):
		no = &refusal{code: Internal, class: "stored_damaged", err: err, detail: "The kept copy of the page is damaged and was removed. Ask again: the page will be asked for in full."}
		err = nil
	default:
		no = &refusal{code: UpstreamFailed, class: "body_cut", proxyError: "http_response_incomplete", err: err}
	}
	b.x.outcome.Err = err
	resp := b.x.refuseLater(no)
	b.x.record()
	return resp
}

var (
	errBareEnd    = errors.New("the connection ended without close_notify")
	errClientLeft = errors.New("the fetcher left")
	errCanceled   = error(canceled{})
)

// canceled is context.Canceled with a name: pacing counts it as the fetcher's end, not the site's.
type canceled struct{}

func (canceled) Error() string        { return "fetcher left" }
func (canceled) Is(target error) bool { return target == errCtxCanceled }
