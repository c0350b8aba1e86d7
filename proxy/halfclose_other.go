//go:build !linux

package proxy

import "net"

// canTellHalfClose: here any end of the fetcher's direction is taken for its leaving.
const canTellHalfClose = false

func wasReset(net.Conn) bool { return true }

func endCame(net.Conn) (came, ok bool) { return false, false }
