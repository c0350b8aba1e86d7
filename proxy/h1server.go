package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// How long a port that cannot accept, for want of descriptors or memory, waits before it tries again.
const (
	acceptPause    = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// serveOn accepts connections of a port until it is closed; nil: by Shutdown.
func (g *Gate) serveOn(l net.Listener, via *listenerOf) error {
	defer l.Close()
	if !g.h1.listen(l) {
		return nil
	}
	defer g.h1.unlisten(l)
	for pause := acceptPause; ; {
		c, err := l.Accept()
		if err == nil {
			pause = acceptPause
			g.startH1(&h1Conn{g: g, via: via, conn: g.accepted(c), remote: c.RemoteAddr().String()})
			continue
		}
		if g.drain.stopped.Err() != nil {
			return nil
		}
		if !passing(err) {
			return err
		}
		g.log.Warn("no connection can be accepted, trying again", "error", err, "pause", pause.String())
		select {
		case <-time.After(pause):
		case <-g.drain.stopped.Done():
		}
		pause = min(2*pause, acceptPauseMax)
	}
}

// passing tells whether a fault of accepting may pass.
func passing(err error) bool {
	var no syscall.Errno
	return timedOut(err) || errors.As(err, &no) && (no.Temporary() || no == syscall.ENOBUFS || no == syscall.ENOMEM || no == syscall.ECONNABORTED)
}

// h1Conns are the ports, and the connections being served.
type h1Conns struct {
	mu        sync.Mutex
	all       map[*h1Conn]struct{}
	listeners map[net.Listener]struct{}
	closed    bool
	empty     chan struct{} // closed when the last one ends after the close
}

func newH1Conns() *h1Conns {
	return &h1Conns{all: map[*h1Conn]struct{}{}, listeners: map[net.Listener]struct{}{}, empty: make(chan struct{})}
}

// listen takes a port in, unless all is closed.
func (s *h1Conns) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *h1Conns) unlisten(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

func (s *h1Conns) add(c *h1Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[c] = struct{}{}
	return true
}

// remove takes out a connection that has ended, or that is no longer served here (a WebSocket, which the drain waits for
// last).
func (s *h1Conns) remove(c *h1Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[c]; !there {
		return
	}
	delete(s.all, c)
	if s.closed && len(s.all) == 0 {
		close(s.empty)
	}
}

// shutdown closes the ports and the connections that wait for a request, and waits for the others, which end after their
// answer.
func (s *h1Conns) shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if len(s.all) == 0 {
			close(s.empty)
		}
	}
	for l := range s.listeners {
		l.Close()
	}
	var idle []net.Conn
	for c := range s.all {
		if c.state.CompareAndSwap(h1Idle, h1Closed) {
			idle = append(idle, c.conn)
		}
	}
	s.mu.Unlock()
	closeEach(idle)
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the connections that are still there.
func (s *h1Conns) close() {
	s.mu.Lock()
	all := make([]net.Conn, 0, len(s.all))
	for c := range s.all {
		all = append(all, c.conn)
	}
	s.mu.Unlock()
	closeEach(all)
}
