package proxy

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// answerConn is a fetcher's connection as the proxy's port accepted it. Every write to the fetcher ends here, those of every
// tunnel too: a fetcher that does not read must not hold a goroutine for ever.
type answerConn struct {
	net.Conn
	stall atomic.Int64 // nanoseconds a write may take nothing; 0: no limit
	taken atomic.Int64 // bytes written
	cork  cork
}

// accepted begins with a connection.
func (g *Gate) accepted(c net.Conn) *answerConn {
	a := &answerConn{Conn: c}
	stall := g.rules().Server.StallTimeout
	a.stall.Store(int64(stall))
	if stall > 0 {
		unacknowledged(c, max(stall, 2*time.Second)) // no less: a packet may be lost
	}
	return a
}

func (c *answerConn) Write(p []byte) (int, error) {
	if kept, err := c.hold(p); err != nil {
		return 0, err
	} else if kept {
		return len(p), nil
	}
	return c.send(p)
}

// send gives up when nothing of p was taken for as long as the fetcher may stall. A fetcher that reads slowly takes some of it.
func (c *answerConn) send(p []byte) (n int, err error) {
	for quiet := 0; ; {
		d := c.stall.Load()
		if d == writesNothing {
			return n, net.ErrClosed
		} else if d > 0 {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(c.perWrite(d)))
		}
		var k int
		k, err = c.Conn.Write(p[n:])
		n += k
		c.taken.Add(int64(k))
		if err == nil || d <= 0 || !timedOut(err) || c.spoilt() {
			break
		}
		if k > 0 {
			quiet = 0
		} else if quiet++; quiet == writeTries {
			break
		}
	}
	if err != nil && timedOut(err) {
		c.forget()
	}
	return n, err
}

// writeTries is how often within the time that a fetcher may stall it is looked whether it has taken some.
const writeTries = 2

// perWrite is how long one write of the connection under this may take.
func (c *answerConn) perWrite(d int64) time.Duration {
	if c.spoilt() {
		return time.Duration(d)
	}
	return time.Duration(d / writeTries)
}

// spoilt tells whether the connection cannot be written any more after a write that did not end in time: TLS of the port
// cannot go on in the middle of a record.
func (c *answerConn) spoilt() bool {
	_, is := c.Conn.(*tls.Conn)
	return is
}

// forget makes the coming close a reset. After a usual one the system would go on for minutes to offer megabytes to a
// fetcher that does not read.
func (c *answerConn) forget() {
	if t := tcpUnder(c.Conn); t != nil {
		_ = t.SetLinger(0)
	}
}

// tcpUnder finds the TCP connection of an accepted one, which a listener with TLS has wrapped.
func tcpUnder(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	t, _ := c.(*net.TCPConn)
	return t
}

// writesNothing, as the time a write may take, keeps even a close_notify in.
const writesNothing = -1

// patience sets how long one write to the fetcher behind c may take; 0: no limit.
func patience(c net.Conn, d time.Duration) {
	if a := outermost(c); a != nil {
		a.stall.Store(int64(d))
	}
}

// taken is how many bytes the fetcher behind c has taken.
func taken(c net.Conn) int64 {
	if a := outermost(c); a != nil {
		return a.taken.Load()
	}
	return 0
}

// resetOnClose makes the coming close of the fetcher's connection a reset, without close_notify: an HTTP/1.0 fetcher
// takes any other end for the end of the body.
func resetOnClose(c net.Conn) {
	a := outermost(c)
	if a == nil {
		return
	}
	a.stall.Store(writesNothing)
	a.forget()
}

// outermost finds the connection that the proxy's listener accepted under c.
func outermost(c net.Conn) *answerConn {
	for c != nil {
		switch t := c.(type) {
		case *answerConn:
			return t
		case *tls.Conn:
			c = t.NetConn()
		case *tunnelConn:
			c = t.Conn
		case *firstByteConn:
			c = t.Conn
		case *replayConn:
			c = t.Conn
		default:
			return nil
		}
	}
	return nil
}

// CloseWrite ends our direction, so that the fetcher can read an early answer.
func (c *answerConn) CloseWrite() error {
	return closeWrite(c.Conn)
}
