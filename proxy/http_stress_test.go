package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// settled waits until what is counted is no more than limit, for a while; and returns the last count.
func settled(limit int, count func() int) int {
	n := count()
	for end := time.Now().Add(10 * time.Second); n > limit && time.Now().Before(end); n = count() {
		runtime.GC()
		<-time.After(10 * time.Millisecond)
	}
	return n
}

func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// open opens a tunnel and speaks TLS in it, without failing the test.
func (r *rig) open(o *origin, cfg *tls.Config) (*tls.Conn, error) {
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.hostport(), o.hostport()); err != nil {
		c.Close()
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 64), &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != 200 {
		c.Close()
		return nil, fmt.Errorf("CONNECT: %v %w", resp, err)
	}
	tc := tls.Client(c, cfg)
	if err := tc.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return tc, nil
}

func (r *rig) trust(serverName string, protos ...string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.Cert)
	return &tls.Config{RootCAs: pool, ServerName: serverName, NextProtos: protos}
}

// 200 tunnels, half of which break off at a random point: nothing of them is left.
func TestHTTPStressAborts(t *testing.T) {
	r := newRig(t)
	o := r.origin("abort.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = w.Write(make([]byte, 100_000))
	})
	r.start(rigOptions{})
	r.get(r.client(false), o.url("https", "/"))
	goroutines, files := runtime.NumGoroutine(), openFiles()
	cfg := r.trust(o.name)
	var wg sync.WaitGroup
	var whole atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			if i%2 == 0 {
				tc, err := r.open(o, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				defer tc.Close()
				fmt.Fprintf(tc, "GET /whole HTTP/1.1\r\nHost: abort.test\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if n, err := io.Copy(io.Discard, resp.Body); n == 100_000 && err == nil {
					whole.Add(1)
				}
				return
			}
			// The bytes of a whole exchange, cut anywhere.
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			left := rnd.IntN(3000)
			cut := &cutConn{Conn: c, left: left}
			if rnd.IntN(2) == 0 {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			early := &earlyConn{Conn: cut, head: fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.hostport(), o.hostport())}
			tc := tls.Client(early, cfg)
			fmt.Fprintf(tc, "POST /cut HTTP/1.1\r\nHost: abort.test\r\nContent-Length: 2000\r\n\r\n%2000s", "x")
			_, _ = io.CopyN(io.Discard, tc, int64(rnd.IntN(50_000)))
		})
	}
	wg.Wait()
	if n := whole.Load(); n != 100 {
		t.Errorf("%d of 100 whole exchanges were whole", n)
	}
	if n := settled(0, func() int { return r.pacer.Stats().InFlight + r.pacer.Stats().Waiting }); n != 0 {
		t.Errorf("%d turns left", n)
	}
	if n := settled(1, r.gate.Tunnels); n > 1 {
		t.Errorf("%d tunnels left", n)
	}
	r.gate.upstream.close()
	if n := settled(goroutines+10, runtime.NumGoroutine); n > goroutines+10 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if n := settled(files+10, openFiles); n > files+10 {
		t.Errorf("%d open files, %d before", n, files)
	}
}

// cutConn closes itself after so many bytes written.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.Conn.Write(p[:c.left])
		c.Close()
		return c.left, net.ErrClosed
	}
	c.left -= len(p)
	return c.Conn.Write(p)
}

// 50 requests wait for one host and 49 of their fetchers leave: the site sees one, and no turn is held.
func TestHTTPStressQueue(t *testing.T) {
	r := newRig(t)
	hold, entered := make(chan struct{}), make(chan struct{}, 64)
	o := r.origin("queue.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/hold" {
			entered <- struct{}{}
			<-hold
		}
		hello(w, req)
	})
	r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Pacing.Parallel = 1 }})
	first := make(chan struct{})
	go func() { defer close(first); r.get(r.client(false), o.url("https", "/hold")) }()
	<-entered
	ctx, leave := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stay := make(chan int, 1)
	for i := range 50 {
		wg.Go(func() {
			c := r.client(i%2 == 0)
			req, err := http.NewRequest(http.MethodGet, o.url("https", fmt.Sprintf("/%d", i)), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if i != 25 {
				req = req.WithContext(ctx)
			}
			resp, err := c.Do(req)
			if i != 25 {
				if err == nil {
					t.Error("answered")
					resp.Body.Close()
				}
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			stay <- resp.StatusCode
		})
	}
	if settled(-1, func() int {
		if r.pacer.Stats().Waiting == 50 {
			return -1
		}
		return 0
	}) != -1 {
		t.Fatal("not all wait")
	}
	leave()
	if n := settled(1, func() int { return r.pacer.Stats().Waiting }); n != 1 {
		t.Fatalf("%d wait", n)
	}
	close(hold)
	<-first
	if s := <-stay; s != 200 {
		t.Errorf("got %d", s)
	}
	wg.Wait()
	if n := len(o.requests()); n != 2 {
		t.Errorf("the site saw %d requests", n)
	}
	if n := settled(0, func() int { return r.pacer.Stats().InFlight + r.pacer.Stats().Waiting }); n != 0 {
		t.Errorf("%d turns left", n)
	}
}

// forget lets the rig's own records go, so that what is left of the heap is the gate's.
func (r *rig) forget(o *origin) {
	r.mu.Lock()
	r.events = nil
	r.mu.Unlock()
	o.mu.Lock()
	o.seen = nil
	o.mu.Unlock()
}

// 10,000 requests in one tunnel leave nothing behind.
func TestHTTPStressOneTunnel(t *testing.T) {
	r := newRig(t)
	o := r.origin("long.test", true, "", hello)
	r.start(rigOptions{})
	tc, err := r.open(o, r.trust(o.name))
	must(t, err)
	defer tc.Close()
	br := bufio.NewReader(tc)
	heap := func() int64 {
		r.forget(o)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var before int64
	for i := range manyRequests {
		if i == manyRequests/5 {
			before = heap()
		}
		if i%1000 == 0 {
			_ = tc.SetDeadline(time.Now().Add(60 * time.Second))
			r.forget(o)
		}
		fmt.Fprintf(tc, "GET /%d HTTP/1.1\r\nHost: long.test\r\n\r\n", i%1000)
		resp, err := http.ReadResponse(br, nil)
		must(t, err)
		if n, _ := io.Copy(io.Discard, resp.Body); n != 5 || resp.StatusCode != 200 {
			t.Fatalf("request %d: %d, %d bytes", i, resp.StatusCode, n)
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d requests left %d KiB", manyRequests*4/5, grown>>10)
	}
	if n := r.gate.Minted(); n != 1 {
		t.Errorf("%d leaves", n)
	}
}

// 1,000 tunnels at once to a host never seen: all are served, and one leaf was signed for them. After a drain nothing of
// them is left.
func TestHTTPStressThousandTunnels(t *testing.T) {
	r := newRig(t)
	o := r.origin("thousand.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) {
		ru.Default.Pacing.Parallel = 1000
		ru.Default.Limits.Timeout, ru.Server.ReadHead = time.Minute, time.Minute
	}})
	goroutines := runtime.NumGoroutine()
	cfg := r.trust(o.name)
	conns := make([]*tls.Conn, manyTunnels)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			tc, err := r.open(o, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			conns[i] = tc
			fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: thousand.test\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReaderSize(tc, 512), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err != nil {
				t.Errorf("got %d %s %v", resp.StatusCode, b, err)
			}
		})
	}
	wg.Wait()
	if n := r.gate.Minted(); n != 1 {
		t.Errorf("%d leaves were signed for one host", n)
	}
	if n := r.gate.Tunnels(); n != manyTunnels {
		t.Errorf("%d tunnels are open", n)
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	if err := r.gate.Shutdown(ctx); err != nil {
		t.Errorf("drain: %v", err)
	}
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	if n := settled(0, r.gate.Tunnels); n != 0 {
		t.Errorf("%d tunnels left", n)
	}
	if n := settled(goroutines, runtime.NumGoroutine); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}

// A thousand handshakes at once for one host wait for one signing, also once the cache dropped it.
func TestHTTPStressOneLeaf(t *testing.T) {
	r := newRig(t)
	r.start(rigOptions{})
	for round := range 2 {
		before := r.gate.Minted()
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 1000 {
			wg.Go(func() {
				<-start
				if c, err := r.gate.certs.leaf("leaf.test"); err != nil || c.Leaf.DNSNames[0] != "leaf.test" {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		if n := r.gate.Minted() - before; n != 1 {
			t.Errorf("round %d: %d leaves", round, n)
		}
		r.gate.certs.cache.Clear()
	}
}
