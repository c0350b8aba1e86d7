//go:build race

package proxy

// manyTunnels is fewer under the race detector, which makes a handshake twenty times dearer.
const manyTunnels = 200
