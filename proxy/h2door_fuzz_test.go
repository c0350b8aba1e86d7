package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"crawlgate/proxy/guard"
)

// bytesConn is a fetcher's connection that has said all it says.
type bytesConn struct {
	net.Conn
	in   *bytes.Reader
	most int // bytes in one read; 0: all
}

func (c *bytesConn) Read(p []byte) (int, error) {
	if c.most > 0 && len(p) > c.most {
		p = p[:c.most]
	}
	return c.in.Read(p)
}
func (c *bytesConn) SetReadDeadline(time.Time) error { return nil }

// throughDoor tells what the server gets of what a fetcher sends after its preface.
func throughDoor(in []byte, most int) ([]byte, error) {
	c := newH2Conn(&bytesConn{in: bytes.NewReader(append([]byte(h2Preface), in...)), most: most}, &tunnel{}, time.Second, doorLimit)
	out, err := io.ReadAll(c)
	out = bytes.TrimPrefix(out, []byte(h2Preface))
	if c.door != nil && (len(c.give) > 0 || !c.block) {
		return nil, errors.New("the door was left open")
	}
	return out, err
}

const doorLimit = 4 << 10

// blockSeen is one header block as a reader of HTTP/2 understands it: no fields when it is malformed.
type blockSeen struct {
	head   http2.FrameHeader
	fields []hpack.HeaderField
}

// framesOf reads frames to their end, or to an error of the connection. It skips what is no header block, except that the bytes
// of other frames come back as they are.
func framesOf(in []byte) (blocks []blockSeen, others []byte, err error) {
	src := bytes.NewReader(in)
	fr := http2.NewFramer(nil, src)
	fr.SetMaxReadFrameSize(h2MaxFrame)
	fr.ReadMetaHeaders = hpack.NewDecoder(h2TableSize, nil)
	fr.MaxHeaderListSize = doorLimit + 320
	for {
		at := len(in) - src.Len()
		f, err := fr.ReadFrame()
		var se http2.StreamError
		switch {
		case err == nil:
		case errors.As(err, &se):
			if len(in) > at+3 && (in[at+3] == frameHeaders) {
				blocks = append(blocks, blockSeen{head: http2.FrameHeader{StreamID: se.StreamID}})
			} else {
				others = append(others, in[at:len(in)-src.Len()]...)
			}
			continue
		default:
			return blocks, others, err
		}
		if mh, ok := f.(*http2.MetaHeadersFrame); ok {
			b := blockSeen{head: mh.FrameHeader, fields: slices.Clone(mh.Fields)}
			if mh.Truncated {
				b.fields = nil
			}
			blocks = append(blocks, b)
		} else {
			others = append(others, in[at:len(in)-src.Len()]...)
		}
	}
}

// needsNothing tells whether a request may pass as it is.
func needsNothing(fields []hpack.HeaderField) bool {
	count := map[string]int{}
	for _, f := range fields {
		count[f.Name]++
		switch f.Name {
		case ":path":
			if !strings.HasPrefix(f.Value, "/") || strings.ContainsAny(f.Value, "% \t") {
				return false
			}
		case ":scheme":
			if f.Value != "https" {
				return false
			}
		case ":method":
			if f.Value == "" || f.Value == "CONNECT" {
				return false
			}
		case ":authority":
			if strings.Contains(f.Value, "@") {
				return false
			}
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "crawlgate-door", ":protocol", ":status":
			return false
		}
	}
	return count[":path"] == 1 && count[":scheme"] == 1 && count[":method"] == 1
}

// inOrder puts the pseudo fields into one order; the others stay in theirs.
func inOrder(fields []hpack.HeaderField) []hpack.HeaderField {
	out := slices.Clone(fields)
	for i := range out {
		out[i].Sensitive = false
	}
	slices.SortStableFunc(out, func(a, b hpack.HeaderField) int {
		if a.IsPseudo() != b.IsPseudo() {
			if a.IsPseudo() {
				return -1
			}
			return 1
		}
		if a.IsPseudo() {
			return strings.Compare(a.Name, b.Name)
		}
		return 0
	})
	return out
}

// FuzzH2Door: whatever a fetcher sends, the server gets frames in good order, requests that it does not refuse by itself, and
// what needs no change as it was; the same in whatever pieces it comes.
func FuzzH2Door(f *testing.F) {
	seed := func(write func(fr *framer)) {
		var b bytes.Buffer
		fr := &framer{Framer: http2.NewFramer(&b, nil), t: f}
		fr.enc = hpack.NewEncoder(&fr.buf)
		fr.AllowIllegalWrites = true
		_ = fr.WriteSettings()
		write(fr)
		f.Add(b.Bytes(), uint8(0))
		f.Add(b.Bytes(), uint8(3))
	}
	chrome := []string{"sec-ch-ua-platform", `"Linux"`, "accept", "text/html,*/*;q=0.8", "sec-fetch-mode", "navigate", "accept-encoding", "gzip, deflate, br, zstd", "cookie", "a=b"}
	seed(func(fr *framer) {
		for i := range 4 {
			fr.whole(uint32(2*i+1), fr.block("GET", "a.test", "/100%?%", chrome...))
		}
	})
	seed(func(fr *framer) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fr.block("POST", "a.test", "/", "content-length", "5", "trailer", "x"), EndHeaders: true, PadLength: 7, Priority: http2.PriorityParam{StreamDep: 9, Weight: 2}})
		_ = fr.WriteData(1, false, []byte("hello"))
		fr.whole(1, fr.fields("x", "y"))
		_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: fr.block("GET", "a.test", "/", "connection", "close", "te", "gzip", "X", "y")})
		_ = fr.WriteContinuation(3, false, fr.fields(":path", "/", "a", "b"))
		_ = fr.WriteContinuation(3, true, nil)
		_ = fr.WritePing(false, [8]byte{})
		_ = fr.WriteWindowUpdate(0, 9)
	})
	seed(func(fr *framer) {
		fr.enc.SetMaxDynamicTableSize(100)
		fr.whole(1, fr.block("GET", "u@a.test", "http://a.test/", chrome...))
		fr.whole(3, fr.block("CONNECT", "a.test", "/", "x", strings.Repeat("y", 5000)))
		fr.whole(5, append(fr.fields("bomb", strings.Repeat("b", 1000)), bytes.Repeat([]byte{0xbe}, 50)...))
		fr.whole(7, []byte{0x80})
	})
	f.Fuzz(func(t *testing.T, in []byte, most uint8) {
		out, err := throughDoor(in, int(most))
		must(t, err)
		if again, _ := throughDoor(in, 0); !bytes.Equal(again, out) {
			t.Fatal("in pieces it is something else")
		}
		want, wantOthers, wantErr := framesOf(in)
		got, others, gotErr := framesOf(out)
		if len(got) > len(want) && errors.Is(wantErr, io.EOF) { // else this reader of frames was stricter, and ended earlier
			t.Fatalf("%d blocks of %d: %v %v", len(got), len(want), gotErr, wantErr)
		}
		if !bytes.HasPrefix(wantOthers, others) && !bytes.HasPrefix(others, wantOthers) {
			t.Fatalf("other frames: %q, sent %q", others, wantOthers)
		}
		last := uint32(0)
		for i, b := range got[:min(len(got), len(want))] {
			trailer := b.head.StreamID <= last
			last = max(last, b.head.StreamID)
			if b.head.StreamID != want[i].head.StreamID {
				t.Fatalf("block %d is of stream %d, was of %d", i, b.head.StreamID, want[i].head.StreamID)
			}
			if want[i].fields != nil && b.head.Flags&flagEndStream != want[i].head.Flags&flagEndStream {
				t.Fatalf("block %d: END_STREAM", i)
			}
			if trailer {
				if b.fields != nil && want[i].fields != nil && !slices.ContainsFunc(want[i].fields, func(f hpack.HeaderField) bool { return f.Name == doorField }) &&
					!slices.Equal(inOrder(b.fields), inOrder(want[i].fields)) {
					t.Fatalf("trailer %v was %v", b.fields, want[i].fields)
				}
				continue
			}
			fine(t, b.fields)
			if want[i].fields != nil && needsNothing(want[i].fields) && !slices.ContainsFunc(b.fields, func(f hpack.HeaderField) bool { return f.Name == doorField }) {
				if !slices.Equal(inOrder(b.fields), inOrder(want[i].fields)) {
					t.Fatalf("block %v was %v", b.fields, want[i].fields)
				}
			} else if want[i].fields != nil && needsNothing(want[i].fields) && sizeOf(want[i].fields) <= doorLimit {
				t.Fatalf("marked: %v", want[i].fields)
			}
		}
	})
}

func sizeOf(fields []hpack.HeaderField) (n int) {
	for _, f := range fields {
		n += int(f.Size())
	}
	return n
}

// fine checks that the server takes the fields of a request to the handler.
func fine(t *testing.T, fields []hpack.HeaderField) {
	t.Helper()
	if len(fields) == 0 {
		t.Fatal("a request that the server resets")
	}
	var method, path, scheme, authority string
	for i, f := range fields {
		switch f.Name {
		case ":method":
			method = f.Value
		case ":path":
			path = f.Value
		case ":scheme":
			scheme = f.Value
		case ":authority":
			authority = f.Value
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", ":protocol":
			t.Fatalf("field %s", f.Name)
		case "te":
			if f.Value != "trailers" {
				t.Fatalf("te: %s", f.Value)
			}
		case doorField:
			if i != len(fields)-1 || f.Value == "" || int(f.Value[0]-'a') >= len(h2Faults) || f.Value == "a" {
				t.Fatalf("%v", f)
			}
		}
	}
	if method == "CONNECT" {
		if path != "" || scheme != "" || authority == "" {
			t.Fatalf("CONNECT %q %q %q", path, scheme, authority)
		}
	} else if method == "" || scheme != "https" || !originForm(path) || guard.EscapeStrayTarget(path) != path {
		t.Fatalf("%q %q %q", method, scheme, path)
	}
	if strings.Contains(authority, "@") {
		t.Fatalf("authority %q", authority)
	}
}

// The mark and the stand-ins for pseudo fields find room beside fields that take all the limit.
func TestH2MarkAtTheLimit(t *testing.T) {
	for _, pseudo := range [][]string{
		{":authority", "u@"}, {":path", "p", ":authority", "@"}, {":method", "CONNECT"}, {":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/%%"},
		{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/" + strings.Repeat("%", doorLimit/5)}, nil,
	} {
		for over := range 3 { // from one byte less than the limit to one more
			var b bytes.Buffer
			f := &framer{Framer: http2.NewFramer(&b, nil), t: t}
			f.enc = hpack.NewEncoder(&f.buf)
			size := 0
			for i := 0; i < len(pseudo); i += 2 {
				size += len(pseudo[i]) + len(pseudo[i+1]) + 32
			}
			f.whole(1, f.fields(append(slices.Clone(pseudo), "x", strings.Repeat("y", doorLimit-size-33-1+over))...))
			out, err := throughDoor(b.Bytes(), 0)
			must(t, err)
			got, _, _ := framesOf(out)
			if len(got) != 1 || got[0].fields == nil {
				t.Fatalf("%.50q: %v", pseudo, got)
			}
			fine(t, got[0].fields)
			if last := got[0].fields[len(got[0].fields)-1]; last.Name != doorField || over == 2 && len(pseudo) == 8 && last.Value != string(rune('a'+faultTooLarge)) {
				t.Errorf("%.50q: %v", pseudo, last)
			}
		}
	}
}

// The names are those of the static table.
func TestH2StaticNames(t *testing.T) {
	n := 0
	for i := 1; i <= 61; i++ {
		hf, err := hpack.NewDecoder(0, nil).DecodeFull([]byte{0x80 | byte(i)})
		must(t, err)
		if j := staticName(hf[0].Name); j != 0 {
			if n++; int(j) != i {
				t.Errorf("%s has %d, not %d", hf[0].Name, j, i)
			}
		}
	}
	if n != 24 {
		t.Errorf("%d names", n)
	}
}

// browserBlocks are heads as a browser sends them in a row, and their frames.
func browserBlocks(authority string, n int) []byte {
	var b bytes.Buffer
	f := &framer{Framer: http2.NewFramer(&b, nil)}
	f.enc = hpack.NewEncoder(&f.buf)
	for i := range n {
		block := f.block("GET", authority, fmt.Sprintf("/article/%d?page=2", i), "sec-ch-ua-platform", `"Linux"`, "user-agent",
			"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36", "sec-ch-ua", `"Chromium";v="156", "Not)A;Brand";v="8"`,
			"sec-ch-ua-mobile", "?0", "accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8", "sec-fetch-site", "same-origin", "sec-fetch-mode", "no-cors",
			"sec-fetch-dest", "image", "referer", "https://www.example.org/article/", "accept-encoding", "gzip, deflate, br, zstd", "accept-language", "en-US,en;q=0.9")
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block, EndHeaders: true, EndStream: true, Priority: http2.PriorityParam{Weight: 219, Exclusive: true}})
	}
	return b.Bytes()
}

// BenchmarkH2Door is the translation of one block of 15 fields alone.
func BenchmarkH2Door(b *testing.B) {
	b.ReportAllocs()
	in := browserBlocks("www.example.org", b.N)
	src := &bytesConn{in: bytes.NewReader(append([]byte(h2Preface), in...))}
	c := newH2Conn(src, &tunnel{}, time.Second, 256<<10)
	buf := make([]byte, 16<<10)
	_, err := io.ReadFull(c, buf[:len(h2Preface)])
	must(b, err)
	b.ResetTimer()
	n := 0
	for range b.N {
		_, err := io.ReadFull(c, buf[:h2FrameHead])
		must(b, err)
		k := int(binary.BigEndian.Uint32(buf) >> 8)
		_, err = io.ReadFull(c, buf[:k])
		must(b, err)
		n += k
	}
	b.ReportMetric(float64(n)/float64(b.N), "B/block")
}
