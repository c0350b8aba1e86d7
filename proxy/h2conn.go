package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2/hpack"
)

// h2Conn is a decrypted HTTP/2 connection of a fetcher on its way to the standard server. Frames pass as they are, except
// header blocks: those are read whole and written anew (h2Door), so that every request reaches a handler of ours and what is
// wrong with it is answered there. docs/decisions/0012 has the reasons.
//
// The server lets an unfinished header block take as long as it likes (with a stream open it does not even have an idle
// limit), so this also bounds the time from a block's first byte to its last.
type h2Conn struct {
	net.Conn
	tunnel *tunnel
	limit  time.Duration
	max    int // of a header block: bytes as sent, and size of its fields (RFC 9113 6.5.2)

	preface int // bytes of the client's preface seen
	head    [h2FrameHead]byte
	have    int    // bytes of head that are there
	left    int    // of the frame's payload
	give    []byte // is for the server before anything else
	err     error  // comes after it
	armed   bool   // a deadline is set

	block     bool   // a header block has begun and not ended
	fragment  bool   // the payload being read is part of it
	stream    uint32 // its stream
	ends      bool   // it has END_STREAM
	continued int    // its CONTINUATION frames
	last      uint32 // the highest stream that a request came on: a block on another is a trailer
	door      *h2Door
	dec       *hpack.Decoder // nil until the first block
}

const h2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var errNoPreface = errors.New("no HTTP/2 preface")

// Frame types and flags that matter here (RFC 9113 6).
const (
	frameHeaders      = 0x1
	frameContinuation = 0x9
	flagEndStream     = 0x1
	flagEndHeaders    = 0x4
	flagPadded        = 0x8
	flagPriority      = 0x20
)

const (
	h2FrameHead = 9
	h2HeadPad   = 1 + 5 + 255 // what a HEADERS frame has beside its fields
	h2MaxFrame  = 1 << 20     // SETTINGS_MAX_FRAME_SIZE of the server
	h2TableSize = 4096        // SETTINGS_HEADER_TABLE_SIZE of the server
	// h2Continuations bounds the CONTINUATION frames of a block, beyond those that its size can need: they may be empty.
	h2Continuations = 64
)

// newH2Conn: a header block may take limit, and have max bytes.
func newH2Conn(c net.Conn, t *tunnel, limit time.Duration, most int) *h2Conn {
	h := &h2Conn{Conn: c, tunnel: t, limit: limit, max: most, armed: true}
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
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(c.give) > 0 {
			n := copy(p, c.give)
			if c.give = c.give[n:]; len(c.give) == 0 {
				c.give = nil
				c.leaveDoor()
			}
			return n, nil
		}
		if c.err != nil {
			return 0, c.err
		}
		n, err := c.next(p)
		if err != nil && c.err == nil {
			c.err = err
		}
		if waits := c.preface < len(h2Preface) || c.block || c.have > 0; waits != c.armed {
			c.armed = waits
			by := time.Time{}
			if waits {
				by = time.Now().Add(c.limit)
			}
			_ = c.Conn.SetReadDeadline(by)
		}
		if n > 0 {
			return n, nil
		}
	}
}

// next reads once from the fetcher and tells how many bytes of it, in p, are for the server as they are.
func (c *h2Conn) next(p []byte) (n int, err error) {
	switch {
	case c.preface < len(h2Preface):
		p = p[:min(len(p), len(h2Preface)-c.preface)]
		n, err = c.Conn.Read(p)
		if string(p[:n]) != h2Preface[c.preface:c.preface+n] {
			return 0, errNoPreface
		}
		c.preface += n
		return n, err
	case c.left == 0:
		n, err = c.Conn.Read(c.head[c.have:])
		if c.have += n; c.have == len(c.head) {
			c.have = 0
			c.frameBegins()
		}
		return 0, err
	case c.fragment:
		n, err = c.door.read(c.Conn, c.left)
		if c.left -= n; c.left == 0 {
			c.fragmentEnds()
		}
		return 0, err
	}
	n, err = c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// frameBegins looks at the head of a frame.
func (c *h2Conn) frameBegins() {
	length, kind, flags := int(binary.BigEndian.Uint32(c.head[:4])>>8), c.head[3], c.head[4]
	stream := binary.BigEndian.Uint32(c.head[5:]) & (1<<31 - 1)
	switch {
	case length > h2MaxFrame:
		c.fail(frameSizeError)
	case c.block != (kind == frameContinuation), c.block && stream != c.stream, kind == frameHeaders && stream == 0:
		c.fail(protocolError) // RFC 9113 4.3, 6.2, 6.10
	case kind == frameHeaders:
		c.block, c.stream, c.ends, c.continued = true, stream, flags&flagEndStream != 0, 0
		c.door = h2Doors.Get().(*h2Door)
		c.fragmentBegins(length)
	case kind == frameContinuation:
		c.continued++
		c.fragmentBegins(length)
	default:
		c.give, c.left = c.head[:], length
	}
}

func (c *h2Conn) fragmentBegins(length int) {
	if len(c.door.block)+length > c.max+h2HeadPad || c.continued > h2Continuations+c.max/h2Frame {
		// Not even to be decoded, without which the connection cannot go on.
		c.fail(protocolError)
		return
	}
	if c.fragment, c.left = true, length; length == 0 {
		c.fragmentEnds()
	}
}

// fragmentEnds looks at a whole frame of a header block, whose head is still there.
func (c *h2Conn) fragmentEnds() {
	c.fragment = false
	if c.head[3] == frameHeaders {
		if code := c.door.strip(c.head[4]); code != 0 {
			c.fail(code)
			return
		}
	}
	if c.head[4]&flagEndHeaders == 0 {
		return
	}
	if c.dec == nil {
		c.dec = hpack.NewDecoder(h2TableSize, func(hpack.HeaderField) {})
		c.dec.SetMaxStringLength(c.max)
	}
	trailer := c.stream <= c.last
	if err := c.door.decode(c.dec, c.max, trailer); err != nil {
		c.fail(compressionError) // RFC 9113 4.3
		return
	}
	c.block = false
	if trailer {
		c.give = c.door.trailerFrames(c.stream, c.ends)
		return
	}
	c.last = c.stream
	c.give = c.door.requestFrames(c.stream, c.ends)
}

// leaveDoor gives back what translating a block took.
func (c *h2Conn) leaveDoor() {
	if c.door == nil || c.block {
		return
	}
	c.door.reset()
	c.door = nil
}

// Error codes (RFC 9113 7) that end a connection here.
const (
	protocolError    = 0x1
	frameSizeError   = 0x6
	compressionError = 0x9
)

// fail ends the connection with a GOAWAY of that code. The server writes it, to a frame that earns it.
func (c *h2Conn) fail(code int) {
	c.block, c.fragment, c.left = false, false, 0
	c.leaveDoor()
	c.err = io.EOF
	switch code {
	case frameSizeError:
		c.give = []byte{0xff, 0xff, 0xff, frameHeaders, 0, 0, 0, 0, 1}
	case compressionError:
		frame := []byte{0, 0, 1, frameHeaders, flagEndHeaders | flagEndStream, 0, 0, 0, 0, 0x80} // index 0 (RFC 7541 6.1)
		binary.BigEndian.PutUint32(frame[5:], c.stream)
		c.give = frame
	default:
		c.give = []byte{0, 0, 0, frameContinuation, flagEndHeaders, 0, 0, 0, 1}
	}
}
