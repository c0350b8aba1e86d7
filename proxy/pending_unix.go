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
func socketOf(c net.Conn) (syscall.RawConn, error) {
	if gc, ok := c.(*guard.Conn); ok {
		c = gc.Conn
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, nil
	}
	return sc.SyscallConn()
}

// pending looks without waiting and takes nothing away.
func pending(c net.Conn) int {
	raw, err := socketOf(c)
	if err != nil {
		return endPending
	}
	if raw == nil {
		return nothingPending // it cannot be looked at
	}
	what := endPending
	if err := raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
			what = nothingPending
		case err == nil && n > 0:
			what = somethingPending
		}
		return true
	}); err != nil {
		return endPending
	}
	return what
}

// readSoon reads what is there, and tells before it waits for more.
type readSoon struct {
	raw syscall.RawConn
	try func(uintptr) bool
	c   *originConn
	p   []byte
	n   int
	err error
}

func (r *readSoon) read(c *originConn, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.raw == nil {
		raw, err := socketOf(c.Conn)
		if err != nil {
			return 0, err
		}
		if raw == nil {
			c.waits() // whether it will have to wait cannot be known
			return c.Conn.Read(p)
		}
		r.raw, r.c, r.try = raw, c, r.once
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
