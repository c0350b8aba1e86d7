//go:build unix

package proxy

import (
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

// pending looks without waiting and takes nothing away.
func pending(c net.Conn) int {
	if gc, ok := c.(*guard.Conn); ok {
		c = gc.Conn
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nothingPending // no socket: it cannot be looked at
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return endPending
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
