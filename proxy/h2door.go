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

// doorField carries what the door saw to serveInner: a letter for the fault ('a': none) and, where a stray percent sign was
// written as %25, path and query as the fetcher wrote them. A fetcher's own is dropped.
const (
	doorField       = "crawlgate-door"
	doorFieldInside = "Crawlgate-Door"
)

// What can be wrong with a request's fields.
const (
	faultNone = iota
	faultConnection
	faultScheme
	faultPath
	faultPseudo
	faultName
	faultValue
	faultUserinfo
	faultTooLarge
)

type h2Fault struct {
	no     *malformed
	detail string
}

var h2Faults = [...]h2Fault{
	faultNone: {},
	faultConnection: {&malformed{http.StatusBadRequest, "request_malformed"},
		"HTTP/2 has no Connection, Keep-Alive, Proxy-Connection, Transfer-Encoding or Upgrade field, and TE may only be trailers. Send the request without them."},
	faultScheme: {&malformed{http.StatusBadRequest, "request_malformed"}, "The request's :scheme is not https, which this tunnel is. Send https, or plain HTTP in a tunnel of its own."},
	faultPath:   {&malformed{http.StatusBadRequest, "request_malformed"}, "The request's :path does not begin with a slash, or holds white space or control characters. Send the path of the URL, percent-encoded."},
	faultPseudo: {&malformed{http.StatusBadRequest, "request_malformed"},
		"The request's pseudo fields are not one each of :method, :scheme and :path, and no more than one :authority, before all other fields. Send them so."},
	faultName:     {&malformed{http.StatusBadRequest, "request_malformed"}, "A field's name is no token in lower case. Send another."},
	faultValue:    {&malformed{http.StatusBadRequest, "request_malformed"}, "A field's value holds control characters. Send another."},
	faultUserinfo: {&malformed{http.StatusBadRequest, "target_userinfo"}, "The request's :authority holds a user name or password. Send the host alone."},
	faultTooLarge: {&malformed{http.StatusRequestHeaderFieldsTooLarge, "header_too_large"}, malformedDetails["header_too_large"]},
}

// detail is what to tell the fetcher.
func (no *malformed) detail() string {
	for _, f := range h2Faults {
		if f.no == no {
			return f.detail
		}
	}
	return malformedDetails[no.class]
}

// readDoor takes the door's field out of the request.
func (in *inbound) readDoor() {
	v := in.r.Header[doorFieldInside]
	if v == nil {
		return
	}
	delete(in.r.Header, doorFieldInside)
	if i := int(v[0][0] - 'a'); i < len(h2Faults) {
		in.fault = h2Faults[i].no
	}
	in.raw = v[0][1:]
}

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

// appendField encodes a field as a literal without indexing (RFC 7541 6.2.2), its name by the static table where it has
// one there.
func appendField(b []byte, name byte, s, value string) []byte {
	b = appendInt(b, 0, 4, int(name))
	if name == 0 {
		b = append(appendInt(b, 0, 7, len(s)), s...)
	}
	return append(appendInt(b, 0, 7, len(value)), value...)
}

// appendPseudo encodes a pseudo field, the usual ones as one byte (RFC 7541 6.1, appendix A).
func appendPseudo(b []byte, name, value string) []byte {
	index := byte(0)
	switch name {
	case ":authority":
		index = 1
	case ":method":
		switch index = 2; value {
		case http.MethodGet:
			return append(b, 0x80|2)
		case http.MethodPost:
			return append(b, 0x80|3)
		}
	case ":path":
		if index = 4; value == "/" {
			return append(b, 0x80|4)
		}
	case ":scheme":
		if index = 7; value == "https" {
			return append(b, 0x80|7)
		}
	}
	return appendField(b, index, name, value)
}

// appendInt encodes v with a prefix of n bits in a byte that begins with first (RFC 7541 5.1).
func appendInt(b []byte, first byte, n uint, v int) []byte {
	most := 1<<n - 1
	if v < most {
		return append(b, first|byte(v))
	}
	b = append(b, first|byte(most))
	for v -= most; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// staticName is the index of a name that requests have in the static table (RFC 7541 appendix A), or 0.
func staticName(name string) byte {
	switch name {
	case "accept-charset":
		return 15
	case "accept-encoding":
		return 16
	case "accept-language":
		return 17
	case "accept":
		return 19
	case "authorization":
		return 23
	case "cache-control":
		return 24
	case "content-encoding":
		return 26
	case "content-language":
		return 27
	case "content-length":
		return 28
	case "content-type":
		return 31
	case "cookie":
		return 32
	case "date":
		return 33
	case "expect":
		return 35
	case "from":
		return 37
	case "host":
		return 38
	case "if-match":
		return 39
	case "if-modified-since":
		return 40
	case "if-none-match":
		return 41
	case "if-range":
		return 42
	case "if-unmodified-since":
		return 43
	case "range":
		return 50
	case "referer":
		return 51
	case "user-agent":
		return 58
	case "via":
		return 60
	}
	return 0
}

// nameBytes are those of a field's name over HTTP/2: of a token, and not in upper case (RFC 9113 8.2.1).
var nameBytes = func() (set [256]bool) {
	for c := byte('a'); c <= 'z'; c++ {
		set[c] = true
	}
	for c := byte('0'); c <= '9'; c++ {
		set[c] = true
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		set[c] = true
	}
	return set
}()

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !nameBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// validValue is what the server takes: no control characters but the tab (RFC 9110 5.5).
func validValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// originForm tells whether a :path is one, or the * that OPTIONS may have (RFC 9113 8.3.1).
func originForm(path string) bool {
	if path == "" || path[0] != '/' {
		return path == "*"
	}
	for i := 0; i < len(path); i++ {
		if c := path[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
