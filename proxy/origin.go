package proxy

import (
	"io"
	"net"
	"sync/atomic"
)

// originConn is a connection to a site. It remembers whether the site ended it: crypto/tls takes an end without
// close_notify for a clean one, and a body that only the end ends cannot then be told from a cut one.
type originConn struct {
	net.Conn
	seat   *seat
	secure bool // TLS is spoken on it
	ended  atomic.Bool
	waits  func() // called before a read waits; nil: none. It is of whoever reads
	soon   readSoon
}

// Close gives the seat to the next.
func (c *originConn) Close() error {
	err := c.Conn.Close()
	c.seat.leave()
	return err
}

func (c *originConn) Read(p []byte) (int, error) {
	var n int
	var err error
	if c.waits != nil {
		n, err = c.soon.read(c, p)
	} else {
		n, err = c.Conn.Read(p)
	}
	if err == io.EOF {
		c.ended.Store(true)
	}
	return n, err
}

// CloseWrite half-closes the connection.
func (c *originConn) CloseWrite() error { return closeWrite(c.Conn) }
