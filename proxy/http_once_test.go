package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Site is a site that speaks HTTP/2 frame by frame.
type h2Site struct {
	*origin
	mu     sync.Mutex
	frames []string // those of streams, as they arrived
	heads  int      // requests
	conns  int      // connections
	most   int      // connections at once
	open   int
	mute   bool // the first connection says nothing
}

// h2Peer is one connection of such a site.
type h2Peer struct {
	*http2.Framer
	mu  sync.Mutex // of the writes
	enc *hpack.Encoder
	buf strings.Builder
}

// head answers a stream with a status and fields.
func (p *h2Peer) head(stream uint32, end bool, fields ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buf.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(p.buf.String()), EndHeaders: true, EndStream: end})
}

// h2Site adds one: on is called for the n-th request of all, once it is whole.
func (r *rig) h2Site(name string, settings []http2.Setting, on func(p *h2Peer, n int, head *http2.MetaHeadersFrame)) *h2Site {
	s := &h2Site{}
	s.origin = r.rawTLS(name, []string{"h2"}, func(c *tls.Conn) {
		s.mu.Lock()
		s.conns++
		mute := s.mute && s.conns == 1
		s.open++
		s.most = max(s.most, s.open)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.open--
		}()
		if mute {
			_, _ = io.Copy(io.Discard, c)
			return
		}
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		p := &h2Peer{Framer: http2.NewFramer(c, c)}
		p.enc = hpack.NewEncoder(&p.buf)
		p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = p.WriteSettings(settings...)
		open := map[uint32]*http2.MetaHeadersFrame{}
		for {
			fr, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch fr := fr.(type) {
			case *http2.SettingsFrame:
				if !fr.IsAck() {
					p.mu.Lock()
					_ = p.WriteSettingsAck()
					p.mu.Unlock()
				}
			case *http2.PingFrame:
				if !fr.IsAck() {
					p.mu.Lock()
					_ = p.WritePing(true, fr.Data)
					p.mu.Unlock()
				}
			case *http2.MetaHeadersFrame:
				s.mu.Lock()
				s.heads++
				n := s.heads
				s.frames = append(s.frames, fmt.Sprintf("HEADERS %s end=%v", fr.PseudoValue("method"), fr.StreamEnded()))
				s.mu.Unlock()
				if open[fr.StreamID] = fr; fr.StreamEnded() {
					on(p, n, fr)
				}
			case *http2.DataFrame:
				s.mu.Lock()
				s.frames = append(s.frames, fmt.Sprintf("DATA %d end=%v", len(fr.Data()), fr.StreamEnded()))
				n := s.heads
				s.mu.Unlock()
				if fr.StreamEnded() {
					on(p, n, open[fr.StreamID])
				}
			}
		}
	})
	return s
}

func (s *h2Site) seenFrames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.frames...)
}

func (s *h2Site) count() (heads, conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads, s.conns
}

// A request without content ends with its head over HTTP/2, as a browser's does: no empty DATA frame follows, whatever
// the fetcher itself speaks. One with content keeps it.
func TestHTTPContentFramesToTheSite(t *testing.T) {
	for _, c := range []struct {
		method, body string
		chunked      bool
		fields       []string
		want         []string
	}{
		{"GET", "", false, nil, []string{"HEADERS GET end=true"}},
		{"HEAD", "", false, nil, []string{"HEADERS HEAD end=true"}},
		{"POST", "", false, nil, []string{"HEADERS POST end=true"}},
		{"POST", "", false, []string{"Idempotency-Key", "k"}, []string{"HEADERS POST end=true"}},
		{"POST", "ten octets", false, nil, []string{"HEADERS POST end=false", "DATA 10 end=true"}},
		{"POST", "ten octets", true, nil, []string{"HEADERS POST end=false"}},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %d %v %v h2=%v", c.method, len(c.body), c.chunked, c.fields, h2), func(t *testing.T) {
				r := newRig(t)
				s := r.h2Site("frames.test", nil, func(p *h2Peer, _ int, fr *http2.MetaHeadersFrame) {
					p.head(fr.StreamID, true, ":status", "204")
				})
				r.start(rigOptions{rules: ignoring})
				var body io.Reader = http.NoBody
				if c.body != "" {
					if body = strings.NewReader(c.body); c.chunked {
						body = io.MultiReader(body)
					}
				}
				req, err := http.NewRequest(c.method, s.url("https", "/"), body)
				must(t, err)
				for i := 0; i+1 < len(c.fields); i += 2 {
					req.Header.Set(c.fields[i], c.fields[i+1])
				}
				resp, err := r.client(h2).Do(req)
				must(t, err)
				resp.Body.Close()
				if resp.StatusCode != http.StatusNoContent {
					t.Fatalf("status %d", resp.StatusCode)
				}
				r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
				got := s.seenFrames()
				if !c.chunked {
					if diff := cmp.Diff(c.want, got); diff != "" {
						t.Errorf("frames (-want +got):\n%s", diff)
					}
				} else if got[0] != c.want[0] || !strings.HasSuffix(got[len(got)-1], "end=true") {
					t.Errorf("frames %q", got)
				}
			})
		}
	}
}

// A site that refuses a stream, or says it is going away, has seen the request once: it is not sent again behind the
// back of its turn (net/http by itself sends it up to six times more, golang/go#47635), and the next one goes out.
func TestHTTPNeverSentTwiceOverHTTP2(t *testing.T) {
	refusals := map[string]func(p *h2Peer, stream uint32){
		"refused":  func(p *h2Peer, stream uint32) { _ = p.WriteRSTStream(stream, http2.ErrCodeRefusedStream) },
		"protocol": func(p *h2Peer, stream uint32) { _ = p.WriteRSTStream(stream, http2.ErrCodeProtocol) },
		"goaway":   func(p *h2Peer, stream uint32) { _ = p.WriteGoAway(stream-2, http2.ErrCodeNo, nil) },
	}
	for name, refuse := range refusals {
		for _, method := range []string{"GET", "POST"} {
			t.Run(name+" "+method, func(t *testing.T) {
				r := newRig(t)
				s := r.h2Site("refuses.test", nil, func(p *h2Peer, n int, fr *http2.MetaHeadersFrame) {
					if n%2 == 0 {
						refuse(p, fr.StreamID)
						return
					}
					p.head(fr.StreamID, true, ":status", "204")
				})
				r.start(rigOptions{rules: ignoring})
				c := r.client(true)
				for i := range 6 {
					req, err := http.NewRequest(method, s.url("https", "/"), nil)
					must(t, err)
					resp, err := c.Do(req)
					must(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					want := http.StatusNoContent
					if i%2 == 1 {
						want = http.StatusBadGateway
					}
					if resp.StatusCode != want {
						t.Errorf("request %d: status %d, want %d", i+1, resp.StatusCode, want)
					}
					if heads, _ := s.count(); heads != i+1 {
						t.Fatalf("after %d requests the site saw %d", i+1, heads)
					}
					if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); want == http.StatusBadGateway && (!ev.Sent || ev.Class != "connection_lost") {
						t.Errorf("sent %v, class %q", ev.Sent, ev.Class)
					}
				}
			})
		}
	}
}

// The gate's own fetch of robots.txt leaves as a fetcher's request does.
func TestHTTPContentFramesOfRobots(t *testing.T) {
	r := newRig(t)
	s := r.h2Site("frames.test", nil, func(p *h2Peer, _ int, fr *http2.MetaHeadersFrame) {
		p.head(fr.StreamID, true, ":status", "404")
	})
	r.start(rigOptions{})
	r.get(r.client(true), s.url("https", "/"))
	if diff := cmp.Diff([]string{"HEADERS GET end=true", "HEADERS GET end=true"}, s.seenFrames()); diff != "" {
		t.Errorf("frames of robots.txt and the page (-want +got):\n%s", diff)
	}
}

// A site that falls silent on its one HTTP/2 connection is not asked on it for ever: the connection is tested by a ping and
// left, and the next request goes out on a new one.
func TestHTTPSilentHTTP2Connection(t *testing.T) {
	r := newRig(t)
	hold := make(chan struct{})
	defer close(hold)
	s := r.h2Site("silent.test", nil, func(p *h2Peer, n int, fr *http2.MetaHeadersFrame) {
		if n == 2 {
			<-hold // reads and answers nothing any more, not even a ping
			return
		}
		p.head(fr.StreamID, true, ":status", "204")
	})
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Default.Limits.Timeout = 5 * time.Second }})
	u := r.gate.upstream
	u.ping = http.HTTP2Config{SendPingTimeout: 200 * time.Millisecond, PingTimeout: 200 * time.Millisecond}
	if err := u.reload(r.gate.rules()); err != nil {
		t.Fatal(err)
	}
	c := r.client(true)
	for i, want := range []int{204, 502, 204} {
		resp, _ := r.get(c, s.url("https", "/"))
		if resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i+1, resp.StatusCode, want)
		}
		ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
		if want == 502 && (ev.Reason != string(UpstreamFailed) || ev.Class != "connection_lost") {
			t.Errorf("event %s %s", ev.Reason, ev.Class)
		}
	}
	if heads, conns := s.count(); heads != 3 || conns != 2 {
		t.Errorf("%d requests on %d connections", heads, conns)
	}
}
