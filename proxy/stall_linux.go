package proxy

import (
	"net"
	"syscall"
	"time"
)

// Options of tcp(7).
const (
	tcpUserTimeout  = 0x12
	tcpNotSentLowat = 0x19
)

// notSent is how much the system keeps beside what is under way. Else it takes megabytes, and wakes a writer only when a third
// of them is gone: a fetcher that reads 20 kB in a second looks for longer than the stall time as if it read nothing.
const notSent = 32 << 10

// unacknowledged bounds how long the system keeps what a fetcher does not take, also after we have closed the connection:
// an answer that fits into its buffers is written without waiting, and megabytes would stay there for minutes. What it costs
// a fetcher that reads again later is what pacing.stall_timeout costs it anyway.
func unacknowledged(c net.Conn, d time.Duration) {
	t := tcpUnder(c)
	if t == nil {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return // closed already
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, notSent)
	})
}
