//go:build race

package proxy

// Fewer under the race detector, which makes a handshake twenty times dearer.
const (
	manyTunnels  = 200
	manyRequests = 1500
)
