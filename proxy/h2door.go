package proxy

import (
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2/hpack"

	"crawlgate/proxy/guard"
)

// h2Door translates one header block of a fetcher into one that the standard server takes: what the server would answer by
// itself, without a reason or an event, is taken out, and the request is marked for our handler.
//
// The block is decoded with the fetcher's own dynamic table, in h2Conn, and encoded without any, so that the server's stays
// empty.
type h2Door struct {
	block  []byte // as the fetcher encoded it
	fields []byte // encoded anew, pseudo fields apart
	out    []byte // frames

	dec     *hpack.Decoder
	emit    func(hpack.HeaderField)
	max     int
	size    int // of the fields so far (RFC 9113 6.5.2)
	trailer bool
	regular bool // a field that is no pseudo field has come
	te      bool
	fault   byte // index in h2Faults
	pseudo  [4]string
	seen    [4]bool
}

// The pseudo fields of a request (RFC 9113 8.3.1).
const (
	pseudoMethod = iota
	pseudoScheme
	pseudoAuthority
	pseudoPath
)

var h2Doors = sync.Pool{New: func() any {
	d := &h2Door{}
	d.emit = d.field
	return d
}}

// h2DoorKept bounds what a buffer in the pool holds.
const h2DoorKept = 32 << 10

// reset makes d ready for another block and gives it back.
func (d *h2Door) reset() {
	keep := func(b []byte) []byte {
		if cap(b) > h2DoorKept {
			return nil
		}
		return b[:0]
	}
	*d = h2Door{block: keep(d.block), fields: keep(d.fields), out: keep(d.out), emit: d.emit}
	h2Doors.Put(d)
}

// read adds up to n bytes of r to the block. The buffer grows with what comes, not with what is announced.
func (d *h2Door) read(r io.Reader, n int) (int, error) {
	if len(d.block) == cap(d.block) {
		d.block = slices.Grow(d.block, min(n, max(1024, len(d.block))))
	}
	have := len(d.block)
	n, err := r.Read(d.block[have:min(cap(d.block), have+n)])
	d.block = d.block[:have+n]
	return n, err
}

// strip takes padding and priority off a HEADERS frame's payload (RFC 9113 6.2), and tells the code of an error. Priority
// is not passed on: it is deprecated (RFC 9113 5.3.2), and the server does nothing with it.
func (d *h2Door) strip(flags byte) int {
	p, pad := d.block, 0
	if flags&flagPadded != 0 {
		if len(p) == 0 {
			return frameSizeError
		}
		pad, p = int(p[0]), p[1:]
	}
	if flags&flagPriority != 0 {
		if len(p) < 5 {
			return frameSizeError
		}
		p = p[5:]
	}
	if pad > len(p) {
		return protocolError
	}
	d.block = append(d.block[:0], p[:len(p)-pad]...)
	return 0
}

// harmless is a field that is in no dynamic table.
var harmless = []byte{0x82}

// decode reads the block's fields. Those past the limit are dropped, but read to the end: the dynamic table must keep in
// step.
func (d *h2Door) decode(dec *hpack.Decoder, most int, trailer bool) error {
	d.dec, d.max, d.trailer = dec, most, trailer
	dec.SetEmitFunc(d.emit)
	dec.SetEmitEnabled(true)
	_, err := dec.Write(d.block)
	if err == nil {
		err = dec.Close()
	}
	// The decoder remembers where in the block it stopped, and so would hold our buffer as long as the connection lasts.
	dec.SetEmitEnabled(false)
	_, _ = dec.Write(harmless)
	_ = dec.Close()
	dec.SetEmitFunc(func(hpack.HeaderField) {})
	return err
}

func (d *h2Door) mark(fault byte) {
	if d.fault == faultNone {
		d.fault = fault
	}
}

// field takes one decoded field.
func (d *h2Door) field(f hpack.HeaderField) {
	if d.size += len(f.Name) + len(f.Value) + 32; d.size > d.max {
		d.dec.SetEmitEnabled(false) // the rest is read, and not looked at
		d.mark(faultTooLarge)
		return
	}
	if !validValue(f.Value) {
		d.mark(faultValue)
		return
	}
	if f.Name != "" && f.Name[0] == ':' {
		d.pseudoField(f)
		return
	}
	d.regular = true
	if !validName(f.Name) {
		d.mark(faultName)
		return
	}
	switch f.Name {
	case doorField:
		return
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade": // RFC 9113 8.2.2
		if !d.trailer {
			d.mark(faultConnection)
			return
		}
	case "te":
		if !d.trailer {
			if f.Value != "" && !strings.EqualFold(f.Value, "trailers") {
				d.mark(faultConnection)
				return
			}
			if f.Value == "" || d.te {
				return
			}
			d.te, f.Value = true, "trailers"
		}
	}
	d.fields = appendField(d.fields, staticName(f.Name), f.Name, f.Value)
}

func (d *h2Door) pseudoField(f hpack.HeaderField) {
	i := 0
	switch f.Name {
	case ":method":
		i = pseudoMethod
	case ":scheme":
		i = pseudoScheme
	case ":authority":
		i = pseudoAuthority
	case ":path":
		i = pseudoPath
	default:
		i = -1
	}
	if i < 0 || d.seen[i] || d.regular {
		d.mark(faultPseudo) // RFC 9113 8.3
		return
	}
	d.seen[i] = true
	if d.trailer { // or a request on a stream that came before: the server knows which, and resets it or ends the connection
		d.fields = appendPseudo(d.fields, f.Name, f.Value)
		return
	}
	d.pseudo[i] = f.Value
}

// trailerFrames are the frames of a trailer. One that is malformed is replaced by one for which the server resets the
// stream: nobody can be answered any more.
func (d *h2Door) trailerFrames(stream uint32, ends bool) []byte {
	d.out = append(d.out[:0], make([]byte, h2FrameHead)...)
	if d.fault != faultNone {
		d.out = appendField(d.out, 0, ":malformed", "")
	} else {
		d.out = append(d.out, d.fields...)
	}
	return d.frames(stream, ends)
}

// nothing stands for a pseudo field that is not there or cannot be used, of a request that is marked.
const nothing = "-"

// requestFrames are the frames of a request, in the form that the server wants. What they have beyond the limit on size, the
// mark and stand-ins for pseudo fields, is less than what net/http allows beyond it (ten fields' overhead).
func (d *h2Door) requestFrames(stream uint32, ends bool) []byte {
	method, authority := d.pseudo[pseudoMethod], d.pseudo[pseudoAuthority]
	path, scheme := d.pseudo[pseudoPath], d.pseudo[pseudoScheme]
	raw := ""
	if method == "" {
		d.mark(faultPseudo)
		method = nothing
	}
	if method == http.MethodConnect { // RFC 9113 8.5
		if d.seen[pseudoPath] || d.seen[pseudoScheme] || authority == "" {
			d.mark(faultPseudo)
		}
		if authority == "" {
			authority = nothing
		}
	} else {
		if !strings.EqualFold(scheme, "https") {
			d.mark(faultScheme)
		}
		if !originForm(path) {
			d.mark(faultPath)
			path = "*" // of which nothing of ours takes it for a URL
		}
		if escaped := guard.EscapeStrayTarget(path); escaped != path {
			if d.size += len(escaped); d.size > d.max {
				d.mark(faultTooLarge)
				path = "*"
			} else {
				path, raw = escaped, path
			}
		}
	}
	if strings.IndexByte(authority, '@') >= 0 {
		d.mark(faultUserinfo) // RFC 9113 8.3.1
		authority = nothing
	}
	d.out = append(d.out[:0], make([]byte, h2FrameHead)...)
	d.out = appendPseudo(d.out, ":method", method)
	if method != http.MethodConnect {
		d.out = appendPseudo(d.out, ":scheme", "https")
		d.out = appendPseudo(d.out, ":path", path)
	}
	if d.seen[pseudoAuthority] || method == http.MethodConnect {
		d.out = appendPseudo(d.out, ":authority", authority)
	}
	d.out = append(d.out, d.fields...)
	if d.fault != faultNone || raw != "" {
		d.out = appendField(d.out, 0, doorField, string('a'+rune(d.fault))+raw)
	}
	return d.frames(stream, ends)
}

// h2Frame is the least size of payload that every peer takes (RFC 9113 4.2).
const h2Frame = 16384

// frames puts heads to the block that d.out holds after room for one.
func (d *h2Door) frames(stream uint32, ends bool) []byte {
	flags := byte(0)
	if ends {
		flags = flagEndStream
	}
	put := func(b []byte, kind, flags byte, length int) {
		binary.BigEndian.PutUint32(b, uint32(length)<<8)
		b[3], b[4] = kind, flags
		binary.BigEndian.PutUint32(b[5:], stream)
	}
	if n := len(d.out) - h2FrameHead; n <= h2Frame {
		put(d.out, frameHeaders, flags|flagEndHeaders, n)
		return d.out
	}
	block, kind := d.out[h2FrameHead:], byte(frameHeaders)
	frames := d.fields[:0]
	for len(block) > 0 {
		n := min(len(block), h2Frame)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		at := len(frames)
		frames = append(frames, make([]byte, h2FrameHead)...)
		put(frames[at:], kind, flags, n)
		frames = append(frames, block[:n]...)
		block, kind, flags = block[n:], frameContinuation, 0
	}
	d.fields = frames
	return frames
}
