package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"crawlgate/pacing"
	"crawlgate/policy"
)

// ignoring switches robots.txt and turns off, for sites that are bare sockets and fail on purpose.
func ignoring(ru *Rules) {
	ru.Default.Robots.Mode, ru.Default.Pacing.Mode = policy.ModeIgnore, pacing.ModeNone
}

// rawTLS adds a site that is a bare TLS listener: fn gets each connection after its handshake.
func (r *rig) rawTLS(name string, protos []string, fn func(*tls.Conn)) *origin {
	cfg := &tls.Config{Certificates: []tls.Certificate{r.originCA.leaf(r.t, name)}, NextProtos: protos}
	return r.raw(name, func(c net.Conn) {
		tc := tls.Server(c, cfg)
		if tc.Handshake() == nil {
			fn(tc)
		}
	})
}

// side is one way a fetcher can speak to the gate.
type side struct {
	name   string
	scheme string
	h2     bool
}

var sides = []side{{"plain", "http", false}, {"h1", "https", false}, {"h2", "https", true}}

// onSides runs fn for each way in and each protocol towards the site.
func onSides(t *testing.T, h http.HandlerFunc, opt rigOptions, fn func(t *testing.T, r *rig, o *origin, s side)) {
	for _, s := range sides {
		for _, protos := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}} {
			if s.scheme == "http" && protos[0] == "h2" {
				continue
			}
			t.Run(s.name+" to "+protos[0], func(t *testing.T) {
				r := newRig(t)
				if s.scheme == "http" {
					protos = nil
				}
				o := r.originOf("site.test", protos, "", h)
				r.start(opt)
				fn(t, r, o, s)
			})
		}
	}
}

// rawConn is a connection on which requests to o can be written by hand: to the proxy port, or in a tunnel.
func (r *rig) rawConn(o *origin, inside bool) net.Conn {
	r.t.Helper()
	if inside {
		return r.tls(fmt.Sprintf("%s:%d", o.name, o.port), o.name)
	}
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	return c
}

// target is the request target for o on either kind of connection.
func (o *origin) target(inside bool, path string) string {
	if inside {
		return path
	}
	return o.url("http", path)
}

// hostport is the value of Host for o.
func (o *origin) hostport() string { return fmt.Sprintf("%s:%d", o.name, o.port) }

// readHead reads a request head from a raw site's connection.
func readHead(br *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		l, err := br.ReadString('\n')
		b.WriteString(l)
		if err != nil || l == "\r\n" {
			return b.String(), err
		}
	}
}

// framer speaks HTTP/2 by hand in a tunnel.
type framer struct {
	*http2.Framer
	t    testing.TB
	conn net.Conn
	enc  *hpack.Encoder
	buf  bytes.Buffer
}

func (r *rig) framer(o *origin) *framer {
	r.t.Helper()
	c := r.tls(o.hostport(), o.name, "h2")
	_, err := io.WriteString(c, http2.ClientPreface)
	must(r.t, err)
	f := &framer{Framer: http2.NewFramer(c, c), t: r.t, conn: c}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.buf)
	must(r.t, f.WriteSettings())
	return f
}

// block encodes a request's fields; more are name, value pairs.
func (f *framer) block(method, authority, path string, more ...string) []byte {
	f.buf.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", authority, ":path", path}, more...)
	for i := 0; i+1 < len(fields); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(f.buf.Bytes())
}

func (f *framer) request(stream uint32, end bool, method string, o *origin, path string, more ...string) {
	f.t.Helper()
	must(f.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block(method, o.hostport(), path, more...), EndHeaders: true, EndStream: end}))
}

// answer reads until the head of an answer on the stream, and returns its fields.
func (f *framer) answer(stream uint32) (map[string]string, error) {
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			if fr.StreamID == stream {
				m := map[string]string{}
				for _, x := range fr.Fields {
					m[x.Name] = x.Value
				}
				return m, nil
			}
		case *http2.RSTStreamFrame:
			if fr.StreamID == stream {
				return nil, fmt.Errorf("stream reset: %s", fr.ErrCode)
			}
		case *http2.GoAwayFrame:
			return nil, fmt.Errorf("goaway: %s", fr.ErrCode)
		}
	}
}
