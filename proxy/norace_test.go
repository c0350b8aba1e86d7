//go:build !race

package proxy

// What the stress tests open at once, and send in one tunnel.
const (
	manyTunnels  = 1000
	manyRequests = 10_000
)
