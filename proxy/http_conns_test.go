package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"crawlgate/audit"
)

// bounded sets limits.connections, with a short limits.timeout where waits are to end in vain.
func bounded(n int, timeout time.Duration) rigOptions {
	return rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Connections, ru.Default.Pacing.Parallel = n, 1
		if timeout > 0 {
			ru.Default.Limits.Timeout = timeout
		}
	}}
}

// inFlight is a handler that holds requests until it is told, and says when they arrive.
type inFlight struct {
	here    chan struct{}
	release chan struct{}
}

func newInFlight() *inFlight {
	return &inFlight{make(chan struct{}, 1000), make(chan struct{})}
}

func (f *inFlight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/held" {
		f.here <- struct{}{}
		select {
		case <-f.release:
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, "hello")
}

// await waits for n requests to arrive, and sees that no more do.
func (f *inFlight) await(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-f.here:
		case <-time.After(10 * time.Second):
			t.Fatal("too few requests arrived")
		}
	}
	select {
	case <-f.here:
		t.Error("more requests arrived than there may be connections")
	case <-time.After(200 * time.Millisecond): // nothing is to happen, which only time shows
	}
}

// fetch sends a request and reports the status.
func fetch(ctx context.Context, c *http.Client, method, u string, body io.Reader, fields ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp, err
}

// seatsLeft is the number of sites with a connection or a wait.
func (r *rig) seatsLeft() int {
	c := r.gate.upstream.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sites)
}

// noSeatsLeft sees that every seat is given back once the idle connections are closed.
func (r *rig) noSeatsLeft(t *testing.T) {
	t.Helper()
	left := settled(0, func() int {
		r.gate.upstream.close()
		return r.seatsLeft()
	})
	if left != 0 {
		t.Errorf("%d sites still have seats taken", left)
	}
	if n := r.gate.upstream.conns.waiting.Load(); n != 0 {
		t.Errorf("%d dials still wait", n)
	}
}

// A site sees no more connections at once than limits.connections, whoever asks, and those that wait are served.
func TestHTTPConnectionsAreBounded(t *testing.T) {
	for _, s := range sides {
		t.Run(s.name, func(t *testing.T) {
			const limit, all = 3, 20
			r := newRig(t)
			f := newInFlight()
			protos := []string{"http/1.1"}
			if s.scheme == "http" {
				protos = nil
			}
			o := r.originOf("site.test", protos, "", f.ServeHTTP)
			r.start(bounded(limit, 0))
			var wg sync.WaitGroup
			var bad atomic.Int64
			c := r.client(s.h2)
			for range all {
				wg.Go(func() {
					if resp, err := fetch(t.Context(), c, "GET", o.url(s.scheme, "/held"), nil); err != nil || resp.StatusCode != 200 {
						bad.Add(1)
					}
				})
			}
			f.await(t, limit)
			close(f.release)
			wg.Wait()
			if most, _ := o.conns.get(); most != limit || bad.Load() != 0 {
				t.Errorf("%d connections at once, want %d; %d of %d requests failed", most, limit, bad.Load(), all)
			}
			r.noSeatsLeft(t)
		})
	}
}

// pacing.parallel raises the bound: so many pages may be under way.
func TestHTTPConnectionsFollowParallel(t *testing.T) {
	r := newRig(t)
	f := newInFlight()
	o := r.originOf("site.test", nil, "", f.ServeHTTP)
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Default.Limits.Connections, ru.Default.Pacing.Parallel = 2, 5
	}})
	var wg sync.WaitGroup
	c := r.client(false)
	for range 8 {
		wg.Go(func() { _, _ = fetch(t.Context(), c, "GET", o.url("http", "/held"), nil) })
	}
	f.await(t, 5)
	close(f.release)
	wg.Wait()
}

// A wait in vain counts in limits.timeout, and says whose fault it was: nothing went out, and the site is not blamed.
func TestHTTPConnectionsWaitInVain(t *testing.T) {
	for _, c := range []struct {
		name   string
		side   side
		method string
		body   string
	}{
		{"plain", sides[0], "GET", ""}, {"h1", sides[1], "GET", ""}, {"h2", sides[2], "GET", ""}, {"upload", sides[1], "POST", "content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			const timeout = time.Second
			r := newRig(t)
			f := newInFlight()
			protos := []string{"http/1.1"}
			if c.side.scheme == "http" {
				protos = nil
			}
			o := r.originOf("site.test", protos, "", func(w http.ResponseWriter, q *http.Request) {
				w.WriteHeader(200)
				_ = http.NewResponseController(w).Flush() // its head is there: it may go on longer than limits.timeout
				f.ServeHTTP(w, q)
			})
			r.start(bounded(2, timeout))
			cl := r.client(c.side.h2)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { _, _ = fetch(t.Context(), cl, "GET", o.url(c.side.scheme, "/held"), nil) })
			}
			f.await(t, 2)
			began := time.Now()
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			resp, err := fetch(t.Context(), cl, c.method, o.url(c.side.scheme, "/late"), body)
			must(t, err)
			if took := time.Since(began); took < timeout-50*time.Millisecond || took > 5*timeout {
				t.Errorf("waited %v", took)
			}
			if resp.StatusCode != 503 || resp.Header.Get("Crawlgate-Reason") != string(Overloaded) || resp.Header.Get("Retry-After") == "" {
				t.Errorf("status %d, fields %v", resp.StatusCode, resp.Header)
			}
			if !strings.Contains(resp.Header.Get("Proxy-Status"), "connection_limit_reached") {
				t.Errorf("Proxy-Status %q", resp.Header.Get("Proxy-Status"))
			}
			ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
			if ev.Decision != audit.Refused || ev.Reason != string(Overloaded) || ev.Class != "host_connections" || ev.Sent || ev.TotalMS < 900 {
				t.Errorf("event %s %s %s sent=%v after %d ms", ev.Decision, ev.Reason, ev.Class, ev.Sent, ev.TotalMS)
			}
			for _, q := range o.requests() {
				if q.URL.Path == "/late" {
					t.Error("the site saw the request")
				}
			}
			close(f.release)
			wg.Wait()
			if resp, err := fetch(t.Context(), cl, c.method, o.url(c.side.scheme, "/late"), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("after the wait: %v %v", resp, err)
			}
			r.noSeatsLeft(t)
		})
	}
}

// A fetcher that leaves the queue leaves nothing behind: no connection is made for it later.
func TestHTTPConnectionsLeavingTheQueue(t *testing.T) {
	r := newRig(t)
	f := newInFlight()
	o := r.originOf("site.test", []string{"http/1.1"}, "", f.ServeHTTP)
	r.start(bounded(1, 0))
	c := r.client(false)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = fetch(t.Context(), c, "GET", o.url("https", "/held"), nil) })
	f.await(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	for range 10 {
		wg.Go(func() { _, _ = fetch(ctx, c, "GET", o.url("https", "/never"), nil) })
	}
	if got := settled(0, func() int { return 10 - int(r.gate.upstream.conns.waiting.Load()) }); got != 0 {
		t.Fatalf("%d of 10 do not wait", got)
	}
	leave()
	if got := settled(0, func() int { return int(r.gate.upstream.conns.waiting.Load()) }); got != 0 {
		t.Errorf("%d still wait", got)
	}
	close(f.release)
	wg.Wait()
	if resp, err := fetch(t.Context(), c, "GET", o.url("https", "/after"), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("after: %v %v", resp, err)
	}
	if _, made := o.conns.get(); made != 1 || len(o.requests()) != 2 {
		t.Errorf("%d connections, %d requests", made, len(o.requests()))
	}
	r.noSeatsLeft(t)
}

// Over HTTP/2 one connection carries everything, from the first burst on.
func TestHTTPConnectionsOneOverHTTP2(t *testing.T) {
	const all = 30
	r := newRig(t)
	f := newInFlight()
	o := r.originOf("site.test", []string{"h2", "http/1.1"}, "", f.ServeHTTP)
	r.start(bounded(6, 0))
	c := r.client(true)
	var wg sync.WaitGroup
	var bad atomic.Int64
	for range all {
		wg.Go(func() {
			if resp, err := fetch(t.Context(), c, "GET", o.url("https", "/held"), nil); err != nil || resp.StatusCode != 200 {
				bad.Add(1)
			}
		})
	}
	f.await(t, all)
	close(f.release)
	wg.Wait()
	if _, made := o.conns.get(); made != 1 || bad.Load() != 0 {
		t.Errorf("%d connections, want 1; %d of %d failed", made, bad.Load(), all)
	}
	r.noSeatsLeft(t)
}

// A site that takes few streams gets another connection when they are used up, within the bound; the others wait for
// a stream and are served as soon as one is free.
func TestHTTPConnectionsFewStreams(t *testing.T) {
	const all, limit = 24, 2
	r := newRig(t)
	s := r.h2Site("few.test", []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 2}}, func(p *h2Peer, _ int, fr *http2.MetaHeadersFrame) {
		time.AfterFunc(50*time.Millisecond, func() { p.head(fr.StreamID, true, ":status", "204") }) // work takes a while
	})
	r.start(bounded(limit, 0))
	c := r.client(true)
	_, err := fetch(t.Context(), c, "GET", s.url("https", "/"), nil) // until its settings are there, nobody knows its limit
	must(t, err)
	began := time.Now()
	var wg sync.WaitGroup
	var bad atomic.Int64
	for range all {
		wg.Go(func() {
			if resp, err := fetch(t.Context(), c, "GET", s.url("https", "/"), nil); err != nil || resp.StatusCode != 204 {
				bad.Add(1)
			}
		})
	}
	wg.Wait()
	heads, made := s.count()
	s.mu.Lock()
	most := s.most
	s.mu.Unlock()
	if heads != all+1 || bad.Load() != 0 || most != limit || made != limit {
		t.Errorf("%d requests on %d connections, %d at once; %d failed", heads, made, most, bad.Load())
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v: some waited for more than a stream", took)
	}
	r.noSeatsLeft(t)
}

// WebSockets have seats of their own: they take none from pages, and do not wait for them.
func TestHTTPConnectionsWebSockets(t *testing.T) {
	const limit = 2
	r := newRig(t)
	o := r.originOf("ws.test", nil, "", func(w http.ResponseWriter, q *http.Request) {
		if !isWebSocket(q.Header) {
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, rw)
	})
	r.start(bounded(limit, time.Second))
	upgrade := func() (net.Conn, *http.Response) {
		c := r.rawConn(o, false)
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
			o.url("http", "/ws"), o.hostport())
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		return c, resp
	}
	var open []net.Conn
	for range limit {
		c, resp := upgrade()
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("status %d", resp.StatusCode)
		}
		open = append(open, c)
	}
	if resp, err := fetch(t.Context(), r.client(false), "GET", o.url("http", "/page"), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("a page beside WebSockets: %v %v", resp, err)
	}
	if _, resp := upgrade(); resp.StatusCode != 503 || resp.Header.Get("Crawlgate-Reason") != string(Overloaded) {
		t.Errorf("one WebSocket more: %d %s", resp.StatusCode, resp.Header.Get("Crawlgate-Reason"))
	}
	open[0].Close()
	if _, resp := upgrade(); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("after one ended: %d", resp.StatusCode)
	}
}

// Event streams move over to the seats of what stays: pages go on, the streams are bounded too, and one that ended
// gives its connection back.
func TestHTTPConnectionsEventStreams(t *testing.T) {
	for _, s := range sides {
		t.Run(s.name, func(t *testing.T) {
			const limit = 2
			r := newRig(t)
			end := make(chan struct{})
			protos := []string{"http/1.1"}
			if s.scheme == "http" {
				protos = nil
			}
			o := r.originOf("events.test", protos, "", func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path != "/events" {
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-end:
				case <-q.Context().Done():
				}
			})
			r.start(bounded(limit, time.Second))
			c := r.client(s.h2)
			streams := make([]*http.Response, 0, limit)
			for range limit {
				resp, err := c.Get(o.url(s.scheme, "/events"))
				must(t, err)
				if resp.StatusCode != 200 {
					t.Fatalf("status %d", resp.StatusCode)
				}
				streams = append(streams, resp)
			}
			for range 3 {
				if resp, err := fetch(t.Context(), c, "GET", o.url(s.scheme, "/page"), nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("a page beside event streams: %v %v", resp, err)
				}
			}
			resp, err := fetch(t.Context(), c, "GET", o.url(s.scheme, "/events"), nil)
			must(t, err)
			if resp.StatusCode != 503 || resp.Header.Get("Crawlgate-Reason") != string(Overloaded) {
				t.Errorf("one stream more: %d %s", resp.StatusCode, resp.Header.Get("Crawlgate-Reason"))
			}
			close(end)
			for _, st := range streams {
				if b, err := io.ReadAll(st.Body); err != nil || string(b) != "data: 1\n\n" {
					t.Errorf("stream %q %v", b, err)
				}
				st.Body.Close()
			}
			if resp, err := fetch(t.Context(), c, "GET", o.url(s.scheme, "/events"), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("after they ended: %v %v", resp, err)
			}
			if most, _ := o.conns.get(); most > 2*limit {
				t.Errorf("%d connections at once", most)
			}
			r.noSeatsLeft(t)
		})
	}
}

// Connections that come to nothing give their seat back: a site that is full of failures is never stuck.
func TestHTTPConnectionsThatFail(t *testing.T) {
	r := newRig(t)
	broken := r.raw("broken.test", func(c net.Conn) {})
	refused := r.raw("refused.test", func(net.Conn) {})
	mute := r.rawTLS("mute.test", []string{"h2"}, func(c *tls.Conn) {}) // speaks h2, and ends at once
	r.start(bounded(1, 2*time.Second))
	for _, l := range []struct {
		o      *origin
		scheme string
	}{{broken, "http"}, {broken, "https"}, {refused, "https"}, {mute, "https"}} {
		c := r.client(false)
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				resp, err := fetch(t.Context(), c, "GET", l.o.url(l.scheme, "/"), nil)
				if err != nil || resp.StatusCode != 502 {
					t.Errorf("%s %s: %v %v", l.scheme, l.o.name, resp, err)
				}
			})
		}
		wg.Wait()
	}
	r.noSeatsLeft(t)
}

// A reload swaps the transport: connections of the old one hold no seat once they are idle.
func TestHTTPConnectionsOverAReload(t *testing.T) {
	for _, protos := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}} {
		t.Run(protos[0], func(t *testing.T) {
			r := newRig(t)
			f := newInFlight()
			o := r.originOf("site.test", protos, "", f.ServeHTTP)
			r.start(bounded(1, 3*time.Second))
			c := r.client(false)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = fetch(t.Context(), c, "GET", o.url("https", "/held"), nil) })
			f.await(t, 1)
			must(t, r.gate.Reload(r.rules, r.guard))
			wg.Go(func() {
				if resp, err := fetch(t.Context(), c, "GET", o.url("https", "/next"), nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("after the reload: %v %v", resp, err)
				}
			})
			if got := settled(0, func() int { return 1 - int(r.gate.upstream.conns.waiting.Load()) }); got != 0 {
				t.Error("the request after the reload does not wait")
			}
			close(f.release)
			wg.Wait()
			r.noSeatsLeft(t)
		})
	}
}

// Under a mix of everything, with fetchers that leave at any moment, no site ever sees more than the bound and every
// seat comes back.
func TestHTTPConnectionsStress(t *testing.T) {
	const limit = 3
	r := newRig(t)
	var sites []*origin
	handler := func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, strings.Repeat("y", 10_000))
	}
	for i, protos := range [][]string{nil, {"http/1.1"}, {"h2", "http/1.1"}} {
		o := r.originOf(fmt.Sprintf("s%d.test", i), protos, "", handler)
		r.forget(o)
		sites = append(sites, o)
	}
	r.start(bounded(limit, 5*time.Second))
	open := r.countOpen()
	clients := []*http.Client{r.client(false), r.client(true)}
	var wg sync.WaitGroup
	var served, other atomic.Int64
	for range 24 {
		wg.Go(func() {
			for range 25 {
				i := rand.IntN(3)
				scheme := "https"
				if i == 0 {
					scheme = "http"
				}
				ctx, leave := t.Context(), context.CancelFunc(func() {})
				if rand.IntN(4) == 0 {
					ctx, leave = context.WithTimeout(ctx, time.Duration(rand.IntN(5000))*time.Microsecond)
				}
				method, body, path := "GET", io.Reader(nil), "/page"
				switch rand.IntN(4) {
				case 0:
					method, body = "POST", strings.NewReader("content")
				case 1:
					path = "/events"
				}
				resp, err := fetch(ctx, clients[rand.IntN(2)], method, sites[i].url(scheme, path), body)
				leave()
				if err == nil && resp.StatusCode == 200 {
					served.Add(1)
				} else {
					other.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i, o := range sites {
		if most := open.most(o.port); most > 2*limit {
			t.Errorf("%d connections to site %d were open at once", most, i)
		}
	}
	if served.Load() < 300 {
		t.Errorf("%d served, %d not", served.Load(), other.Load())
	}
	r.noSeatsLeft(t)
}

// openConns counts a gate's open connections to each port. The sites' own count lags behind: a site learns of a close after
// the gate may have made the next connection.
type openConns struct {
	mu        sync.Mutex
	now, peak map[string]int
}

// countOpen counts the connections that the gate makes from now on.
func (r *rig) countOpen() *openConns {
	o := &openConns{now: map[string]int{}, peak: map[string]int{}}
	dial := r.gate.upstream.dial
	r.gate.upstream.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(addr)
		o.add(port, 1)
		return &countedConn{Conn: c, closed: sync.OnceFunc(func() { o.add(port, -1) })}, nil
	}
	return o
}

func (o *openConns) add(port string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now[port] += n
	o.peak[port] = max(o.peak[port], o.now[port])
}

func (o *openConns) most(port int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.peak[strconv.Itoa(port)]
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
