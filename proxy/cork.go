package proxy

import (
	"sync"
)

// A large body in a tunnel comes in TLS records of 16 KiB and leaves in such, each by a system call and as a packet of its
// own. While the site has more that can be read at once they are put together; before anybody waits for the site they leave,
// so nothing that has come is ever held back.

const (
	corkBytes = 64 << 10
	// corkWorth is how much of a body must be left for that.
	corkWorth = 64 << 10
)

var corks = sync.Pool{New: func() any { b := make([]byte, 0, corkBytes); return &b }}

// cork is what a fetcher's connection holds back.
type cork struct {
	mu   sync.Mutex
	held *[]byte // nil: nothing is to be
	err  error   // of a write that nobody waited for
}

// cork begins to hold back.
func (c *answerConn) corkUp() {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	if c.cork.held == nil {
		c.cork.held = corks.Get().(*[]byte)
	}
}

// corkOff sends what is held and ends the holding.
func (c *answerConn) corkOff() {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	if c.cork.held == nil {
		return
	}
	c.pour()
	corks.Put(c.cork.held)
	c.cork.held = nil
}

// corkFlush sends what is held.
func (c *answerConn) corkFlush() {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	if c.cork.held != nil {
		c.pour()
	}
}

// pour writes what is held. The caller holds the lock.
func (c *answerConn) pour() {
	b := *c.cork.held
	if len(b) > 0 && c.cork.err == nil {
		_, c.cork.err = c.send(b)
	}
	*c.cork.held = b[:0]
}

// hold keeps p, if anything is held back, and reports whether it did.
func (c *answerConn) hold(p []byte) (kept bool, err error) {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	if c.cork.err != nil {
		return true, c.cork.err
	}
	if c.cork.held == nil {
		return false, nil
	}
	if len(*c.cork.held)+len(p) > corkBytes {
		if c.pour(); c.cork.err != nil {
			return true, c.cork.err
		}
		if len(p) > corkBytes {
			return false, nil
		}
	}
	*c.cork.held = append(*c.cork.held, p...)
	return true, nil
}

// corks begins to put the answer's pieces together where that is worth it and can be done, and returns what ends it.
func (b *body) corks() (end func()) {
	src, ok := b.src.(*siteBody)
	if !ok || !b.x.from.secure || b.x.in.ProtoMajor != 1 || b.left >= 0 && b.left < corkWorth {
		return nil
	}
	a := outermost(b.x.from.conn)
	if a == nil {
		return nil
	}
	a.corkUp()
	src.onWait(func() {
		b.writing.Store(true) // it is the fetcher that is waited for
		a.corkFlush()
		b.writing.Store(false)
	})
	return func() {
		src.onWait(nil)
		a.corkOff()
	}
}
