//go:build !race

package proxy

// manyTunnels are open at once in the stress tests.
const manyTunnels = 1000
