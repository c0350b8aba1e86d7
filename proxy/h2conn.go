package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// h2Conn is a decrypted HTTP/2 connection of a fetcher on its way to the standard server. The server lets an unfinished
// header block take as long as it likes (with a stream open it does not even have an idle limit), so this reads the
// frame heads along and bounds the time from a block's first byte to its last.
type h2Conn struct {
	net.Conn
	tunnel *tunnel
	limit  time.Duration

	preface int // bytes of the client's preface seen
	head    [9]byte
	have    int   // bytes of head that are there
	left    int64 // of the frame's payload
	block   bool  // a header block has begun and not ended
	closes  bool  // the frame being read ends the block
	armed   bool  // a deadline is set
}

const h2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var errNoPreface = errors.New("no HTTP/2 preface")

// Frame types and the flag that matter here (RFC 9113 6).
const (
	frameHeaders      = 0x1
	frameContinuation = 0x9
	flagEndHeaders    = 0x4
)

func newH2Conn(c *tls.Conn, t *tunnel, limit time.Duration) *h2Conn {
	h := &h2Conn{Conn: c, tunnel: t, limit: limit, armed: true}
	_ = c.SetReadDeadline(time.Now().Add(limit)) // for the preface
	return h
}

// SetReadDeadline is the server's: it never needs one, and must not lift ours.
func (c *h2Conn) SetReadDeadline(time.Time) error { return nil }

// SetDeadline sets the deadline for writes alone, for the same reason.
func (c *h2Conn) SetDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(t) }

// CloseWrite half-closes, as the server does after its last frame.
func (c *h2Conn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *h2Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.scan(p[:n]) {
		return 0, errNoPreface
	}
	if waits := c.preface < len(h2Preface) || c.block || c.have > 0; waits != c.armed {
		c.armed = waits
		by := time.Time{}
		if waits {
			by = time.Now().Add(c.limit)
		}
		_ = c.Conn.SetReadDeadline(by)
	}
	return n, err
}

// scan follows the frames through p and reports whether they begin as HTTP/2 does.
func (c *h2Conn) scan(p []byte) bool {
	for len(p) > 0 {
		switch {
		case c.preface < len(h2Preface):
			if p[0] != h2Preface[c.preface] {
				return false
			}
			c.preface++
			p = p[1:]
		case c.left > 0:
			k := min(c.left, int64(len(p)))
			c.left -= k
			p = p[k:]
			c.frameEnds()
		default:
			k := copy(c.head[c.have:], p)
			c.have += k
			p = p[k:]
			if c.have < len(c.head) {
				return true
			}
			c.have = 0
			c.left = int64(binary.BigEndian.Uint32(c.head[:4]) >> 8)
			if t := c.head[3]; t == frameHeaders || t == frameContinuation {
				c.block, c.closes = true, c.head[4]&flagEndHeaders != 0
			}
			c.frameEnds()
		}
	}
	return true
}

func (c *h2Conn) frameEnds() {
	if c.left == 0 && c.closes {
		c.block, c.closes = false, false
	}
}
