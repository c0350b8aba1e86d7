package proxy

import (
	"encoding/binary"
	"net"
	"syscall"
)

const canTellHalfClose = true

const tcpClose = 7 // TCP_CLOSE of tcp_states.h

// wasReset tells whether the connection has ended in both directions, as a reset ends it. One that the fetcher has only
// half-closed is in another state.
func wasReset(c net.Conn) bool {
	a := outermost(c)
	if a == nil {
		return true
	}
	t := tcpUnder(a.Conn)
	if t == nil {
		return true
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	state := uint8(tcpClose)
	_ = raw.Control(func(fd uintptr) {
		// The state is the first byte of tcp_info, and no more than these four are asked for.
		if v, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO); err == nil {
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], uint32(v))
			state = b[0]
		}
	})
	return state == tcpClose
}
