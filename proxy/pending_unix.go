//go:build unix

package proxy

import (
	"io"
	"net"
	"syscall"

	"crawlgate/proxy/guard"
)

// What there is to read on a connection.
const (
	nothingPending = iota
	somethingPending
	endPending
)

// socketOf is the socket of a connection to a site, or nil where it has none.
func socketOf(c net.Conn) syscall.RawConn {
	if gc, ok := c.(*guard.Conn); ok {
		c = gc.Conn
	}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// pending looks without waiting and takes nothing away.
func pending(c *originConn) int {
	if !c.soon.of(c) {
		return nothingPending // it cannot be looked at
	}
	c.soon.what = endPending
	if c.soon.raw.Read(c.soon.peek) != nil {
		return endPending
	}
	return c.soon.what
}

func (r *readSoon) look(fd uintptr) bool {
	var one [1]byte
	n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		r.what = nothingPending
	case err == nil && n > 0:
		r.what = somethingPending
	}
	return true
}

// readSoon reads what is there, and tells before it waits for more. It keeps what looking at a socket takes.
type readSoon struct {
	raw       syscall.RawConn // nil: there is no socket, or it was not asked for yet
	try, peek func(uintptr) bool
	c         *originConn
	what      int
	p         []byte
	n         int
	err       error
}

// of gets the socket of c and reports whether there is one.
func (r *readSoon) of(c *originConn) bool {
	if r.c == nil {
		r.c = c
		if r.raw = socketOf(c.Conn); r.raw != nil {
			r.try, r.peek = r.once, r.look
		}
	}
	return r.raw != nil
}

func (r *readSoon) read(c *originConn, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !r.of(c) {
		c.waits() // whether it will have to wait cannot be known
		return c.Conn.Read(p)
	}
	r.p = p
	err := r.raw.Read(r.try)
	r.p = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, r.err
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

func (r *readSoon) once(fd uintptr) bool {
	for {
		r.n, r.err = syscall.Read(int(fd), r.p)
		switch r.err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if r.c.waits != nil {
				r.c.waits()
			}
			return false
		}
		return true
	}
}
