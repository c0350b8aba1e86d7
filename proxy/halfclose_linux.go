package proxy

import (
	"encoding/binary"
	"net"
	"syscall"
)

const canTellHalfClose = true

// States of tcp_states.h.
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// wasReset tells whether the connection has ended in both directions, as a reset ends it. One that the fetcher has only
// half-closed is in another state.
func wasReset(c net.Conn) bool {
	state, ok := tcpState(c)
	return !ok || state == tcpClose
}

// endCame tells whether the end of the fetcher's direction has come, be it behind bytes that nobody has read, and whether the
// connection can be looked at.
func endCame(c net.Conn) (came, ok bool) {
	state, ok := tcpState(c)
	return state == tcpCloseWait || state == tcpClose, ok
}

func tcpState(c net.Conn) (state uint8, ok bool) {
	a := outermost(c)
	if a == nil {
		return 0, false
	}
	t := tcpUnder(a.Conn)
	if t == nil {
		return 0, false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) {
		// The state is the first byte of tcp_info, and no more than these four are asked for.
		if v, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO); err == nil {
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], uint32(v))
			state, ok = b[0], true
		}
	})
	return state, ok
}
