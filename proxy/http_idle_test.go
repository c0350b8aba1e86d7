package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"crawlgate/pacing"
)

// ends tells how long it took until c was closed by the other side; what still comes is read over.
func ends(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	_ = c.SetDeadline(began.Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		t.Error("it stays open")
	}
	return time.Since(began)
}

// A fetcher's kept connection ends when it was idle for server.idle, on every way in, and a site's for upstream_idle.
func TestHTTPIdleConnections(t *testing.T) {
	const idle = 600 * time.Millisecond
	r := newRig(t)
	plain, secure := r.origin("plain.test", false, "", hello), r.origin("secure.test", true, "", hello)
	h1 := r.originOf("h1.test", []string{"http/1.1"}, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Server.Idle, ru.Server.UpstreamIdle = idle, idle/2 }})
	for _, c := range []struct {
		name string
		open func() net.Conn
	}{
		{"proxy port", func() net.Conn {
			c := r.rawConn(plain, false)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", plain.target(false, "/"), plain.hostport())
			return c
		}},
		{"HTTP/1.1 in a tunnel", func() net.Conn {
			c := r.rawConn(h1, true)
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", h1.hostport())
			return c
		}},
		{"HTTP/2 in a tunnel", func() net.Conn {
			f := r.framer(secure)
			f.request(1, true, "GET", secure, "/")
			return f.conn
		}},
	} {
		if took := ends(t, c.open()); took < idle/2 || took > 10*idle {
			t.Errorf("%s: ended after %v", c.name, took)
		}
	}
	for _, o := range []*origin{plain, h1, secure} {
		left := settled(0, func() int {
			o.conns.mu.Lock()
			defer o.conns.mu.Unlock()
			return o.conns.open
		})
		if _, made := o.conns.get(); left != 0 || made == 0 {
			t.Errorf("%s: %d of %d connections are open", o.name, left, made)
		}
	}
}

// An event stream and a WebSocket end when they were silent for server.stream_idle, loudly; one on which something moves
// goes on.
func TestHTTPStreamIdle(t *testing.T) {
	const idle = 500 * time.Millisecond
	r := newRig(t)
	o := r.origin("events.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for range 4 {
			_, _ = io.WriteString(w, ":\n")
			_ = rc.Flush()
			if req.URL.Path == "/silent" {
				<-req.Context().Done()
				return
			}
			<-time.After(idle * 2 / 5)
		}
	})
	ws := webSocketSite(r, "ws.test", func(_ net.Conn, br *bufio.Reader) { _, _ = io.Copy(io.Discard, br) })
	r.start(rigOptions{rules: func(ru *Rules) { ignoring(ru); ru.Server.StreamIdle, ru.Server.StallTimeout = idle, idle/5 }})
	for _, h2 := range []bool{false, true} {
		if _, b := r.get(r.client(h2), o.url("https", "/moves")); b != ":\n:\n:\n:\n" {
			t.Errorf("h2=%v: a stream that moves: %q", h2, b)
		}
		resp, err := r.client(h2).Get(o.url("https", "/silent"))
		must(t, err)
		began := time.Now()
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if took := time.Since(began); err == nil || string(b) != ":\n" || took < idle/2 {
			t.Errorf("h2=%v: a silent stream ended after %v with %q %v", h2, took, b, err)
		}
		if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Reason != string(UpstreamTimeout) || ev.Class != "stalled" {
			t.Errorf("event %s %s", ev.Reason, ev.Class)
		}
	}
	c := r.rawConn(ws, true)
	fmt.Fprintf(c, upgradeHead, ws.hostport())
	if took := ends(t, c); took < idle/2 {
		t.Errorf("a silent WebSocket ended after %v", took)
	}
}

// What holds a turn is cut when it held it for pacing.turn_limit. An event stream and a WebSocket hold none once their
// head is there: they are not cut, and the next page goes out beside them, with its gap.
func TestHTTPTurnLimit(t *testing.T) {
	const limit, gap = 700 * time.Millisecond, 150 * time.Millisecond
	r := newRig(t)
	o := r.origin("long.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/page":
			hello(w, req)
			return
		case strings.HasPrefix(req.URL.Path, "/events"):
			w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
		}
		rc := http.NewResponseController(w)
		for range 15 {
			_, _ = io.WriteString(w, "x")
			_ = rc.Flush()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-req.Context().Done():
			}
		}
	})
	ws := webSocketSite(r, "ws.test", func(_ net.Conn, br *bufio.Reader) { _, _ = br.ReadByte() })
	wsPage := r.origin("ws.test", false, "", hello) // the same host on another port: one turn for both
	r.start(rigOptions{
		pacing: func(c *pacing.Config) { c.TurnLimit = limit },
		rules: func(ru *Rules) {
			ru.Default.Robots.Mode = "ignore"
			ru.Default.Pacing.Gap, ru.Default.Pacing.Parallel = gap, 1
		},
	})
	c := r.client(true)

	resp, err := c.Get(o.url("https", "/events"))
	must(t, err)
	began := time.Now()
	if page, b := r.get(c, o.url("https", "/page"), "Accept", "text/html"); page.StatusCode != 200 {
		t.Errorf("a page beside an event stream: %d %s", page.StatusCode, b)
	} else if took := time.Since(began); took > limit {
		t.Errorf("a page beside an event stream waited %v", took)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 15 {
		t.Errorf("the event stream: %q %v", b, err)
	}
	resp.Body.Close()

	resp, err = c.Get(o.url("https", "/page-that-trickles"))
	must(t, err)
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a page past turn_limit ended cleanly after %q", b)
	}
	resp.Body.Close()
	if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Reason != string(UpstreamTimeout) || ev.Class != "turn_limit" {
		t.Errorf("event %s %s", ev.Reason, ev.Class)
	}

	conn := r.rawConn(ws, true)
	fmt.Fprintf(conn, upgradeHead, ws.hostport())
	br := bufio.NewReader(conn)
	up, err := http.ReadResponse(br, nil)
	must(t, err)
	if up.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %d", up.StatusCode)
	}
	<-time.After(limit + gap) // nothing is to happen, which only time shows
	fmt.Fprint(conn, "x")     // its site ends it now
	if _, err := io.Copy(io.Discard, br); err != nil {
		t.Errorf("the WebSocket did not end by itself: %v", err)
	}
	conn.Close()
	if page, _ := r.get(c, wsPage.url("http", "/"), "Accept", "text/html"); page.StatusCode != 200 {
		t.Errorf("a page right after a WebSocket: %d", page.StatusCode)
	}
	if n := r.gate.GapShortfalls(); n != 0 {
		t.Errorf("%d gaps are said to be below the promise", n)
	}
}

// A fetcher has 100 streams in one tunnel at once; more are refused as HTTP/2 does it, and those that run are served.
func TestHTTPStreamsInATunnel(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	o := r.origin("many.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		<-release
		w.WriteHeader(http.StatusNoContent)
	})
	r.start(rigOptions{rules: ignoring})
	f := r.framer(o)
	for i := range 101 {
		f.request(uint32(2*i+1), true, "GET", o, "/")
	}
	var limit uint32
	served, reset := 0, 0
	for served+reset < 101 {
		fr, err := f.ReadFrame()
		must(t, err)
		switch fr := fr.(type) {
		case *http2.SettingsFrame:
			if v, ok := fr.Value(http2.SettingMaxConcurrentStreams); ok {
				limit = v
			}
		case *http2.RSTStreamFrame:
			if reset++; fr.ErrCode != http2.ErrCodeRefusedStream && fr.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("stream %d: %s", fr.StreamID, fr.ErrCode)
			}
			close(release)
		case *http2.MetaHeadersFrame:
			served++
		}
	}
	if limit != 100 || reset != 1 {
		t.Errorf("%d streams are announced, %d refused", limit, reset)
	}
}
