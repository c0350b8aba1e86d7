package proxy

import (
	"net"
	"sync"
)

// innerListener hands connections that were accepted, authenticated and decrypted elsewhere to the standard
// library's server, which brings HTTP/2, time limits and graceful shutdown.
type innerListener struct {
	ch     chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInnerListener() *innerListener {
	return &innerListener{ch: make(chan net.Conn), closed: make(chan struct{})}
}

// push gives one connection to the server; after Close it closes the connection.
func (l *innerListener) push(c net.Conn) {
	select {
	case l.ch <- c:
	case <-l.closed:
		c.Close()
	}
}

// Accept returns the next pushed connection.
func (l *innerListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *innerListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr names the listener in logs.
func (l *innerListener) Addr() net.Addr { return innerAddr{} }

type innerAddr struct{}

func (innerAddr) Network() string { return "tunnel" }
func (innerAddr) String() string  { return "tunnel" }
