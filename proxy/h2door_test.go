package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"crawlgate/audit"
)

// fields encodes name, value pairs as they are.
func (f *framer) fields(pairs ...string) []byte {
	f.buf.Reset()
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return bytes.Clone(f.buf.Bytes())
}

// whole sends a request without content in one frame.
func (f *framer) whole(stream uint32, block []byte) {
	f.t.Helper()
	must(f.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: true}))
}

// answered reads the answer on a stream, with its content.
func (f *framer) answered(stream uint32) (*http.Response, string) {
	f.t.Helper()
	var resp *http.Response
	var body bytes.Buffer
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			f.t.Fatalf("stream %d: %v", stream, err)
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			if fr.StreamID != stream || resp != nil {
				continue
			}
			resp = &http.Response{Header: http.Header{}}
			for _, x := range fr.Fields {
				if x.Name == ":status" {
					_, _ = fmt.Sscan(x.Value, &resp.StatusCode)
				} else {
					resp.Header.Add(x.Name, x.Value)
				}
			}
			if fr.StreamEnded() {
				return resp, ""
			}
		case *http2.DataFrame:
			if fr.StreamID != stream {
				continue
			}
			if body.Write(fr.Data()); fr.StreamEnded() {
				return resp, body.String()
			}
		case *http2.RSTStreamFrame:
			if fr.StreamID == stream {
				f.t.Fatalf("stream %d: reset %s after %v", stream, fr.ErrCode, resp)
			}
		case *http2.GoAwayFrame:
			f.t.Fatalf("stream %d: goaway %s %s", stream, fr.ErrCode, fr.DebugData())
		}
	}
}

// ended reads until the stream or the connection ends, and tells the code.
func (f *framer) ended(stream uint32) (code http2.ErrCode, connection bool) {
	f.t.Helper()
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			f.t.Fatalf("stream %d: %v", stream, err)
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			if fr.StreamID == stream {
				f.t.Fatalf("stream %d is answered: %v", stream, fr.Fields)
			}
		case *http2.RSTStreamFrame:
			if fr.StreamID == stream {
				return fr.ErrCode, false
			}
		case *http2.GoAwayFrame:
			return fr.ErrCode, true
		}
	}
}

// A percent sign that begins no escape reaches the site as %25; one in the query stays. The event has what was sent.
func TestH2StrayPercent(t *testing.T) {
	for _, protos := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}} {
		t.Run(protos[0], func(t *testing.T) {
			r := newRig(t)
			o := r.originOf("percent.test", protos, "", func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.RequestURI) })
			r.start(rigOptions{rules: ignoring})
			f := r.framer(o)
			for i, c := range [][2]string{
				{"/100%", "/100%25"}, {"/%zz", "/%25zz"}, {"/a%2", "/a%252"}, {"/%%41?%zz%", "/%25%41?%zz%"}, {"/%/%2F%e4%", "/%25/%2F%e4%25"},
				{"/%?q", "/%25?q"}, {"/fine%20?100%", "/fine%20?100%"}, {"/ü%", "/%C3%BC%25"},
			} {
				id := uint32(2*i + 1)
				f.request(id, true, "GET", o, c[0])
				resp, b := f.answered(id)
				if resp.StatusCode != 200 || b != c[1] {
					t.Errorf("%s: %d, the site saw %.100s, want %s", c[0], resp.StatusCode, b, c[1])
				}
				ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
				if path, _, _ := strings.Cut(c[1], "?"); pathOf(ev) != path {
					t.Errorf("%s: event of %s", c[0], ev.URL)
				}
			}
			for _, req := range o.requests() {
				for k := range req.Header {
					if hasPrefixFold(k, "crawlgate-") {
						t.Errorf("the site saw %s", k)
					}
				}
			}
		})
	}
}

// pathOf is the path of the URL in an event, or "".
func pathOf(ev *audit.Event) string {
	_, rest, ok := strings.Cut(ev.URL.String(), "://")
	if !ok {
		return ""
	}
	_, path, _ := strings.Cut(rest, "/")
	path, _, _ = strings.Cut(path, "?")
	return "/" + path
}

// What the server would answer by itself, or by a reset, has our answer and an event, and the connection goes on.
func TestH2MalformedHeads(t *testing.T) {
	r := newRig(t)
	o := r.origin("bad.test", true, "", hello)
	r.start(rigOptions{rules: ignoring})
	at := o.hostport()
	whole := []string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/p"}
	with := func(more ...string) []string { return slices.Concat(whole, more) }
	without := func(name string, more ...string) (out []string) {
		for i := 0; i < len(whole); i += 2 {
			if whole[i] != name {
				out = append(out, whole[i], whole[i+1])
			}
		}
		return append(out, more...)
	}
	put := func(name, value string) (out []string) {
		for i := 0; i < len(whole); i += 2 {
			if v := whole[i+1]; whole[i] == name {
				out = append(out, name, value)
			} else {
				out = append(out, whole[i], v)
			}
		}
		return out
	}
	cases := []struct {
		name   string
		fields []string
		says   string
		path   string // in the event
	}{
		{"connection", with("connection", "close"), "Connection", "/p"},
		{"connection after others", with("a", "b", "connection", "keep-alive", "c", "d"), "Connection", "/p"},
		{"keep-alive", with("keep-alive", "timeout=5"), "Keep-Alive", "/p"},
		{"proxy-connection", with("proxy-connection", "keep-alive"), "Proxy-Connection", "/p"},
		{"transfer-encoding", with("transfer-encoding", "chunked"), "Transfer-Encoding", "/p"},
		{"upgrade", with("upgrade", "h2c"), "Upgrade", "/p"},
		{"te", with("te", "gzip"), "TE", "/p"},
		{"te twice", with("te", "trailers", "te", "trailers, deflate"), "TE", "/p"},
		{"scheme http", put(":scheme", "http"), ":scheme", "/p"},
		{"scheme ftp", put(":scheme", "ftp"), ":scheme", "/p"},
		{"no scheme", without(":scheme"), ":scheme", "/p"},
		{"no path", without(":path"), ":path", ""},
		{"empty path", put(":path", ""), ":path", ""},
		{"relative path", put(":path", "p"), ":path", ""},
		{"absolute path", put(":path", "https://"+at+"/p"), ":path", ""},
		{"path with a space", put(":path", "/a b"), ":path", ""},
		{"path with a tab", put(":path", "/a\tb"), ":path", ""},
		{"path with DEL", put(":path", "/a\x7fb"), "value", ""},
		{"path with CR LF", put(":path", "/a HTTP/1.1\r\nHost: evil.test\r\n\r\n"), "value", ""},
		{"no method", without(":method"), "pseudo", "/p"},
		{"empty method", put(":method", ""), "pseudo", "/p"},
		{"CR LF in the method", put(":method", "GET\r\n"), "value", "/p"},
		{"second path", with(":path", "/q"), "pseudo", "/p"},
		{"second method", with(":method", "POST"), "pseudo", "/p"},
		{"second authority", with(":authority", "evil.test"), "pseudo", "/p"},
		{"second scheme", with(":scheme", "https"), "pseudo", "/p"},
		{"late authority", without(":authority", "a", "b", ":authority", at), "pseudo", ""},
		{"late path", without(":path", "a", "b", ":path", "/q"), "pseudo", ""},
		{":status", with(":status", "200"), "pseudo", "/p"},
		{":protocol", with(":protocol", "websocket"), "pseudo", "/p"},
		{"unknown pseudo field", with(":foo", "bar"), "pseudo", "/p"},
		{"a colon alone", with(":", "bar"), "pseudo", "/p"},
		{"CONNECT with a path", put(":method", "CONNECT"), "pseudo", ""},
		{"CONNECT to nothing", []string{":method", "CONNECT"}, "pseudo", ""},
		{"extended CONNECT", append(put(":method", "CONNECT"), ":protocol", "websocket"), "pseudo", ""},
		{"upper case", with("X-Upper", "1"), "name", "/p"},
		{"upper-case connection", with("Connection", "close"), "name", "/p"},
		{"empty name", with("", "1"), "name", "/p"},
		{"name with a space", with("a b", "1"), "name", "/p"},
		{"name with a colon", with("a:b", "1"), "name", "/p"},
		{"name with CR LF", with("a\r\nhost", "1"), "name", "/p"},
		{"name of UTF-8", with("ü", "1"), "name", "/p"},
		{"CR LF in a value", with("x", "a\r\nhost: evil.test"), "value", "/p"},
		{"NUL in a value", with("x", "a\x00"), "value", "/p"},
		{"several", with("connection", "close", "X", "y", ":path", "/q"), "Connection", "/p"},
		{"no field at all", nil, "pseudo", ""},
	}
	for _, end := range []bool{true, false} {
		f := r.framer(o)
		for i, c := range cases {
			id := uint32(2*i + 1)
			must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.fields(c.fields...), EndHeaders: true, EndStream: end}))
			if !end {
				_ = f.WriteData(id, true, []byte("content"))
			}
			resp, b := f.answered(id)
			p := problemOf(t, resp, b, 400, BadRequest)
			if p.Class != "request_malformed" || !strings.Contains(p.Detail, c.says) {
				t.Errorf("%s: class %s, %s", c.name, p.Class, p.Detail)
			}
			ev := r.eventOf(p.RequestID)
			if ev.Reason != string(BadRequest) || ev.Class != "request_malformed" || ev.Host != o.name || ev.Port != o.port || pathOf(ev) != c.path || ev.Client.Name != "default" {
				t.Errorf("%s: event %+v", c.name, ev)
			}
		}
		id := uint32(2*len(cases) + 1)
		f.request(id, true, "GET", o, "/")
		if resp, _ := f.answered(id); resp.StatusCode != 200 {
			t.Errorf("afterwards: %d", resp.StatusCode)
		}
	}
	for _, req := range o.requests() {
		if req.URL.Path != "/" {
			t.Errorf("the site saw %s %s", req.Method, req.RequestURI)
		}
	}
}

// Whatever fields a request has, it is answered by us or by the site: never by a reset, and never without a request id.
func TestH2RandomHeads(t *testing.T) {
	r := newRig(t)
	r.quiet = true
	o := r.origin("random.test", true, "", hello)
	r.start(rigOptions{rules: ignoring})
	f := r.framer(o)
	_ = f.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	must(t, f.WriteWindowUpdate(0, 1<<30))
	rnd := rand.New(rand.NewPCG(3, 4))
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	pseudo := func() (string, string) {
		return pick(":method", ":scheme", ":authority", ":path", ":path", ":status", ":protocol", ":"),
			pick("GET", "POST", "HEAD", "CONNECT", "", "https", "http", o.hostport(), "evil.test", "u@evil.test", "/", "/%", "*", "p", "/ a", "/?%", "\x00", "[", "websocket")
	}
	field := func() (string, string) {
		return pick("a", "b", "X", "connection", "te", "host", "content-length", "cookie", "trailer", "expect", "transfer-encoding", "upgrade", "", "crawlgate-door", "content_length", "via"),
			pick("", "x", "y", "trailers", "5", "0", "-1", "100-continue", "417", "a\r\nb", "X-Foo, Connection", "b/x", "\xff", o.hostport(), " ", "chunked")
	}
	n := 3000
	if testing.Short() {
		n = 300
	}
	marked := 0
	for i := range n {
		fields := []string{":method", "GET", ":scheme", "https", ":authority", o.hostport(), ":path", "/"}
		for j := 0; j < len(fields); j += 2 {
			switch rnd.IntN(12) {
			case 0:
				_, fields[j+1] = pseudo()
			case 1:
				fields[j], _ = pseudo()
			case 2:
				fields[j], fields[j+1] = field()
			}
		}
		for range rnd.IntN(4) {
			k, v := field()
			fields = append(fields, k, v)
		}
		if rnd.IntN(8) == 0 {
			k, v := pseudo()
			fields = append(fields, k, v)
		}
		id := uint32(2*i + 1)
		f.whole(id, f.fields(fields...))
		resp, b := f.answered(id)
		if resp.Header.Get("Crawlgate-Request-Id") == "" {
			t.Fatalf("%q: %d %v %s", fields, resp.StatusCode, resp.Header, b)
		}
		if resp.StatusCode == 400 {
			marked++
		}
	}
	if marked < n/4 || marked > n-n/8 {
		t.Errorf("%d of %d were malformed", marked, n)
	}
}

// What looks near to these is served, or answered as over HTTP/1.1.
func TestH2UnusualHeads(t *testing.T) {
	r := newRig(t)
	o := r.origin("odd.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, req.Method, " ", req.RequestURI, " ", req.Header.Get("Cookie"), req.Header.Get("X"), req.Header["Crawlgate-Door"])
	})
	r.start(rigOptions{rules: ignoring})
	f := r.framer(o)
	at := o.hostport()
	for i, c := range []struct {
		fields []string
		status int
		class  string
		saw    string
	}{
		{[]string{":path", "/", ":authority", at, ":scheme", "HTTPS", ":method", "GET"}, 200, "", "GET / []"},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/h", "host", at}, 200, "", "GET /h []"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/", "te", "trailers", "te", "Trailers", "te", ""}, 200, "", "GET / []"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/", "cookie", "a=b", "cookie", "c=d"}, 200, "", "GET / a=b; c=d[]"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/", "x", "t\ta\xff"}, 200, "", "GET / t\ta\xff[]"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "//two//slashes"}, 200, "", "GET //two//slashes []"},
		// What the door says to us nobody else says.
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/", "crawlgate-door", "b/x"}, 200, "", "GET / []"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/%", "crawlgate-door", "b/x"}, 200, "", "GET /%25 []"},
		{[]string{":method", "OPTIONS", ":scheme", "https", ":authority", at, ":path", "*"}, 400, "request_malformed", ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "u:p@" + at, ":path", "/"}, 400, "target_userinfo", ""},
		{[]string{":method", "CONNECT", ":authority", at}, 405, "method_denied", ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "evil.test", ":path", "/%"}, 421, "authority_mismatch", ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", at, ":path", "/#f"}, 400, "request_malformed", ""},
	} {
		id := uint32(2*i + 1)
		f.whole(id, f.fields(c.fields...))
		resp, b := f.answered(id)
		if resp.StatusCode != c.status || c.status == 200 && b != c.saw {
			t.Errorf("%q: %d, the site saw %q", c.fields, resp.StatusCode, b)
		}
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); c.status != 200 && ev.Class != c.class {
			t.Errorf("%q: class %s", c.fields, ev.Class)
		}
	}
}

// A head past the limit is answered, also one of four times the limit and more, and the connection goes on with its dynamic
// table in step; one whose like is not even to be read ends the connection.
func TestH2HeadSize(t *testing.T) {
	r := newRig(t)
	o := r.origin("big.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, req.Header.Get("X-Last"), len(req.URL.Path))
	})
	const limit = 8 << 10
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Server.HeadBytes = limit; ru.Server.Fields = 0 }})
	sent := func(f *framer, id uint32, block []byte, size int) {
		must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:min(size, len(block))], EndHeaders: len(block) <= size, EndStream: true}))
		for len(block) > size {
			block = block[size:]
			must(t, f.WriteContinuation(id, len(block) <= size, block[:min(size, len(block))]))
		}
	}
	f := r.framer(o)
	id := uint32(1)
	many := func(n, each int) (pairs []string) {
		pairs = []string{":method", "GET", ":scheme", "https", ":authority", o.hostport(), ":path", "/"}
		for i := range n {
			pairs = append(pairs, fmt.Sprintf("x-%d", i), strings.Repeat("a", each))
		}
		return append(pairs, "x-last", "last")
	}
	for _, c := range []struct {
		name   string
		block  func() []byte
		size   int
		status int
	}{
		{"within", func() []byte { return f.fields(many(7, 1000)...) }, 16384, 200},
		{"within, in pieces", func() []byte { return f.fields(many(7, 1000)...) }, 200, 200},
		{"past it", func() []byte { return f.fields(many(9, 1000)...) }, 16384, 431},
		{"past four times", func() []byte { return f.fields(many(40, 1000)...) }, 16384, 431},
		{"past four times, in pieces", func() []byte { return f.fields(many(40, 1000)...) }, 1000, 431},
		{"one long field", func() []byte { return f.fields(many(1, 4*limit)...) }, 16384, 431},
		{"many small fields", func() []byte { return f.fields(many(1000, 0)...) }, 16384, 431},
		{"a bomb of references", func() []byte {
			return append(f.fields(append(many(0, 0), "bomb", strings.Repeat("b", 4000))...), bytes.Repeat([]byte{0x80 | 62}, 4*limit-4100)...)
		}, 16384, 431},
		{"a path of percent signs", func() []byte {
			return f.fields(":method", "GET", ":scheme", "https", ":authority", o.hostport(), ":path", "/"+strings.Repeat("%", 2*limit))
		}, 16384, 431},
		{"a long path of percent signs", func() []byte {
			return f.fields(":method", "GET", ":scheme", "https", ":authority", o.hostport(), ":path", "/"+strings.Repeat("%", limit/2), "x-last", "last")
		}, 16384, 414},
		{"after that", func() []byte { return f.fields(many(7, 1000)...) }, 16384, 200},
	} {
		sent(f, id, c.block(), c.size)
		resp, b := f.answered(id)
		switch id += 2; {
		case resp.StatusCode != c.status:
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, b)
		case c.status == 200 && b != "last1":
			t.Errorf("%s: the site saw %q", c.name, b)
		case c.status != 200:
			problemOf(t, resp, b, c.status, BadRequest)
		}
	}
	for name, c := range map[string]struct {
		block func(f *framer) []byte
		size  int
		code  http2.ErrCode
	}{
		"encoded past four times":    {func(*framer) []byte { return bytes.Repeat([]byte{0x82}, 5*limit) }, 16384, http2.ErrCodeProtocol},
		"one string past four times": {func(f *framer) []byte { return f.fields(many(1, 5*limit)...) }, 16384, http2.ErrCodeCompression}, // Huffman codes: less as sent
		"small CONTINUATIONs":        {func(f *framer) []byte { return f.fields(many(7, 1000)...) }, 10, http2.ErrCodeProtocol},
		"empty CONTINUATIONs":        {func(f *framer) []byte { return f.fields(many(0, 0)...) }, 0, http2.ErrCodeProtocol},
	} {
		f := r.framer(o)
		block := c.block(f)
		go func() { // until the other side has enough
			size := min(len(block), c.size)
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:size]})
			for rest := block[size:]; err == nil && len(rest) > 0; {
				k := min(len(rest), c.size)
				err = f.WriteContinuation(1, k == len(rest), rest[:k])
				rest = rest[k:]
			}
		}()
		if code, whole := f.ended(1); !whole || code != c.code {
			t.Errorf("%s: %s, of the connection: %v", name, code, whole)
		}
		f.conn.Close()
	}
}

// Header blocks in every form of frame, and those that are no HTTP/2 at all.
func TestH2Blocks(t *testing.T) {
	r := newRig(t)
	o := r.origin("frames.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		fmt.Fprint(w, req.RequestURI, string(b), req.Trailer)
	})
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Methods, ru.Default.Limits.RequestBody = []string{"GET", "POST"}, 1<<20
	}})
	f := r.framer(o)
	id := uint32(1)
	served := func(name, want string) {
		t.Helper()
		if resp, b := f.answered(id); resp.StatusCode != 200 || b != want {
			t.Errorf("%s: %d %.200s, want %s", name, resp.StatusCode, b, want)
		}
		id += 2
	}
	for _, p := range []http2.HeadersFrameParam{
		{PadLength: 200}, {Priority: http2.PriorityParam{StreamDep: 3, Weight: 200, Exclusive: true}}, {PadLength: 1, Priority: http2.PriorityParam{StreamDep: 1}},
		{Priority: http2.PriorityParam{StreamDep: 7, Weight: 1}}, // on itself
	} {
		p.StreamID, p.BlockFragment, p.EndHeaders, p.EndStream = id, f.block("GET", o.hostport(), "/padded%"), true, true
		must(t, f.WriteHeaders(p))
		served(fmt.Sprintf("%+v", p), "/padded%25map[]")
	}
	block := f.block("GET", o.hostport(), "/pieces%", "x", strings.Repeat("y", 100))
	must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: nil, PadLength: 3, EndStream: true}))
	for i := range 20 {
		must(t, f.WriteContinuation(id, false, block[i:i+1]))
	}
	must(t, f.WriteContinuation(id, false, nil))
	must(t, f.WriteContinuation(id, false, block[20:]))
	must(t, f.WriteContinuation(id, true, nil))
	served("pieces", "/pieces%25map[]")

	// Other frames between requests pass.
	must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100_000}))
	must(t, f.WritePing(false, [8]byte{1}))
	must(t, f.WritePriority(id, http2.PriorityParam{StreamDep: 1}))
	must(t, f.WriteRawFrame(0xbe, 3, 77, []byte("unknown")))
	must(t, f.WriteWindowUpdate(0, 1000))

	// Content, padded, with a trailer that was announced and one that was not.
	must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block("POST", o.hostport(), "/up%", "trailer", "x-sum"), EndHeaders: true}))
	must(t, f.WriteDataPadded(id, false, []byte("some"), make([]byte, 9)))
	must(t, f.WriteData(id, false, []byte(" more")))
	f.whole(id, f.fields("x-sum", "abc", "x-other", "y", "crawlgate-door", "b"))
	served("trailer", "/up%25some moremap[X-Sum:[abc]]")

	// Bad trailers end the stream alone.
	for name, trailer := range map[string]func() []byte{
		"pseudo field":     func() []byte { return f.fields("x-sum", "abc", ":path", "/") },
		"upper case":       func() []byte { return f.fields("X-Sum", "abc") },
		"value":            func() []byte { return f.fields("x-sum", "a\r\nb") },
		"frames a message": func() []byte { return f.fields("transfer-encoding", "chunked") },
		"too large": func() []byte {
			return append(f.fields("bomb", strings.Repeat("b", 4000)), bytes.Repeat([]byte{0x80 | 62}, 1000)...)
		},
	} {
		must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block("POST", o.hostport(), "/up", "trailer", "x-sum"), EndHeaders: true}))
		f.whole(id, trailer())
		if code, whole := f.ended(id); whole || code != http2.ErrCodeProtocol {
			t.Errorf("trailer, %s: %s, of the connection: %v", name, code, whole)
		}
		id += 2
	}
	f.request(id, true, "GET", o, "/")
	served("afterwards", "/map[]")

	// Whatever is no header block ends the connection.
	get := func(f *framer) []byte { return f.block("GET", o.hostport(), "/") }
	for name, c := range map[string]struct {
		send func(f *framer)
		code http2.ErrCode
	}{
		"index 0":           {func(f *framer) { f.whole(1, []byte{0x80}) }, http2.ErrCodeCompression},
		"no such index":     {func(f *framer) { f.whole(1, []byte{0x80 | 62}) }, http2.ErrCodeCompression},
		"cut off":           {func(f *framer) { b := f.fields("a", "bcd"); f.whole(1, b[:len(b)-1]) }, http2.ErrCodeCompression},
		"large table":       {func(f *framer) { f.whole(1, append([]byte{0x3f, 0xe2, 0x1f}, get(f)...)) }, http2.ErrCodeCompression}, // 4097
		"late table size":   {func(f *framer) { f.whole(1, append(f.fields("a", "b"), 0x3e)) }, http2.ErrCodeCompression},
		"bad Huffman code":  {func(f *framer) { f.whole(1, []byte{0x00, 0x01, 'a', 0x81, 0x00}) }, http2.ErrCodeCompression},
		"trailer":           {func(f *framer) { f.request(1, false, "POST", o, "/"); f.whole(1, []byte{0x80}) }, http2.ErrCodeCompression},
		"stream 0":          {func(f *framer) { f.AllowIllegalWrites = true; f.whole(0, get(f)) }, http2.ErrCodeProtocol},
		"even stream":       {func(f *framer) { f.whole(2, get(f)) }, http2.ErrCodeProtocol},
		"lone CONTINUATION": {func(f *framer) { _ = f.WriteContinuation(1, true, get(f)) }, http2.ErrCodeProtocol},
		"two HEADERS": {func(f *framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get(f)})
			f.whole(3, get(f))
		}, http2.ErrCodeProtocol},
		"data in a block": {func(f *framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get(f)})
			_ = f.WriteData(1, true, nil)
		}, http2.ErrCodeProtocol},
		"CONTINUATION of another": {func(f *framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get(f)})
			_ = f.WriteContinuation(3, true, nil)
		}, http2.ErrCodeProtocol},
		"padding alone": {func(f *framer) {
			_ = f.WriteRawFrame(http2.FrameHeaders, flagPadded|flagEndHeaders, 1, []byte{7, 0, 0})
		}, http2.ErrCodeProtocol},
		"no padding":     {func(f *framer) { _ = f.WriteRawFrame(http2.FrameHeaders, flagPadded|flagEndHeaders, 1, nil) }, http2.ErrCodeFrameSize},
		"short priority": {func(f *framer) { _ = f.WriteRawFrame(http2.FrameHeaders, flagPriority|flagEndHeaders, 1, []byte{0, 0}) }, http2.ErrCodeFrameSize},
		"long frame":     {func(f *framer) { _, _ = f.conn.Write([]byte{0x10, 0, 1, frameHeaders, 4, 0, 0, 0, 1}) }, http2.ErrCodeFrameSize},
		"long data":      {func(f *framer) { _, _ = f.conn.Write([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1}) }, http2.ErrCodeFrameSize},
		"stream again":   {func(f *framer) { f.whole(3, get(f)); f.whole(1, get(f)) }, http2.ErrCodeProtocol},
	} {
		f := r.framer(o)
		c.send(f)
		for {
			fr, err := f.ReadFrame()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			if g, ok := fr.(*http2.GoAwayFrame); ok {
				if g.ErrCode != c.code {
					t.Errorf("%s: %s, want %s", name, g.ErrCode, c.code)
				}
				break
			}
		}
		f.conn.Close()
	}
}

// A fetcher that uses the dynamic table to the full is understood: many fields, evictions, sizes of the table that change.
func TestH2DynamicTable(t *testing.T) {
	r := newRig(t)
	type seen struct{ name, value string }
	var got []seen
	o := r.origin("table.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		got = got[:0]
		for k, vs := range req.Header {
			if strings.HasPrefix(k, "X-") {
				for _, v := range vs {
					got = append(got, seen{strings.ToLower(k), v})
				}
			}
		}
	})
	o.forget = true
	r.start(rigOptions{rules: ignoring})
	f := r.framer(o)
	_ = f.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	rnd := rand.New(rand.NewPCG(1, 2))
	n := 1000
	if testing.Short() {
		n = 100
	}
	for i := range n {
		switch rnd.IntN(20) {
		case 0:
			f.enc.SetMaxDynamicTableSize(0)
		case 1:
			f.enc.SetMaxDynamicTableSize(uint32(rnd.IntN(4097)))
		case 2:
			f.enc.SetMaxDynamicTableSize(10)
			f.enc.SetMaxDynamicTableSize(4096)
		}
		var more []string
		var want []seen
		for j := range 1 + rnd.IntN(30) {
			name, value := fmt.Sprintf("x-%d-%d", j, rnd.IntN(10)), strings.Repeat("v", rnd.IntN(60))+fmt.Sprint(rnd.IntN(5))
			if rnd.IntN(50) == 0 {
				value = strings.Repeat("long", rnd.IntN(1500))
			}
			more, want = append(more, name, value), append(want, seen{name, value})
		}
		id := uint32(2*i + 1)
		f.request(id, true, "GET", o, fmt.Sprintf("/%d", i), more...)
		if resp, b := f.answered(id); resp.StatusCode != 200 {
			t.Fatalf("request %d: %d %s", i, resp.StatusCode, b)
		}
		less := func(a, b seen) int { return strings.Compare(a.name+"\x00"+a.value, b.name+"\x00"+b.value) }
		slices.SortFunc(want, less)
		slices.SortFunc(got, less)
		if !slices.Equal(got, want) {
			t.Fatalf("request %d: the site saw %v, want %v", i, got, want)
		}
	}
}
