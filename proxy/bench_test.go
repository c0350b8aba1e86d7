package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/elazarl/goproxy"
	"golang.org/x/net/http2"

	"crawlgate/pacing"
	"crawlgate/sign"
)

// cpu is the processor time of this process so far, in microseconds: fetcher, gate and site together, so only
// differences between ways of the same run mean something.
func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec)*1e6 + float64(u.Utime.Usec+u.Stime.Usec)
}

// measured runs one request for each turn of b, and reports its cost.
func measured(b *testing.B, one func() error) {
	b.Helper()
	for range 20 { // everything is cached
		if err := one(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.SetParallelism(16 / runtime.GOMAXPROCS(0)) // 16 fetchers: with fewer the runtime's own waking and sleeping is measured
	b.ResetTimer()
	before := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := one(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric((cpu()-before)/float64(b.N), "cpu-us/op")
}

// benchStart starts a gate whose agent has a key, or none.
func benchStart(b *testing.B, r *rig, signed bool) {
	o := rigOptions{rules: func(ru *Rules) { ru.Default.Pacing.Parallel = 64 }}
	if signed {
		o.agents = []sign.Agent{{Name: "example", SignatureAgent: "https://bot.example", Token: "ExampleBot", UserAgent: "ExampleBot/1.0"}}
		ring := sign.Keyring{StateDir: r.dir, Config: sign.Defaults(), Publish: sign.PublishDefaults(), Agents: o.agents}
		if _, err := ring.New("example"); err != nil {
			b.Fatal(err)
		}
	}
	r.start(o)
}

// bareProxy is goproxy as its documentation sets it up: interception with a P-256 CA and a map of certificates.
func bareProxy(b *testing.B, r *rig) (addr string, roots *x509.CertPool) {
	key := newTestCA(b)
	ca := tls.Certificate{Certificate: [][]byte{key.cert.Raw}, PrivateKey: key.key, Leaf: key.cert}
	g := goproxy.NewProxyHttpServer()
	g.CertStore = &mapStore{m: map[string]*tls.Certificate{}}
	g.KeepAcceptEncoding = true
	pool := x509.NewCertPool()
	pool.AddCert(r.originCA.cert)
	g.Tr = &http.Transport{Proxy: nil, TLSClientConfig: &tls.Config{RootCAs: pool}, DisableCompression: true, MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr)
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
		}}
	g.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		return &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)}, host
	})
	s := httptest.NewServer(g)
	b.Cleanup(s.Close)
	roots = x509.NewCertPool()
	roots.AddCert(key.cert)
	return s.Listener.Addr().String(), roots
}

type mapStore struct {
	mu sync.Mutex
	m  map[string]*tls.Certificate
}

func (s *mapStore) Fetch(host string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.m[host]; c != nil {
		return c, nil
	}
	c, err := gen()
	if err == nil {
		s.m[host] = c
	}
	return c, err
}

// BenchmarkPath is one request of 1 KiB with everything cached, beside goproxy without any policy in the same run:
//
//	go test -run xxx -bench Path -benchtime 2s -count 5 ./proxy
func BenchmarkPath(b *testing.B) {
	page := make([]byte, 1024)
	h := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"application/octet-stream"}
		_, _ = w.Write(page)
	}
	for _, c := range []struct {
		name           string
		secure, signed bool
		bare           bool
		refused        bool
		h2             bool
	}{
		{name: "plain/goproxy", bare: true},
		{name: "plain/gate"},
		{name: "plain/refused", refused: true},
		{name: "intercepted/goproxy", secure: true, bare: true},
		{name: "intercepted/unsigned", secure: true},
		{name: "intercepted/h2", secure: true, h2: true},
		{name: "intercepted/signed", secure: true, signed: true},
		{name: "intercepted/refused", secure: true, refused: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b)
			r.quiet = true
			robots := "User-agent: *\nDisallow: /no\n" + strings.Repeat("Disallow: /private/*.html$\n", 20)
			scheme, protos := "http", []string(nil)
			if c.secure {
				scheme, protos = "https", []string{"http/1.1"}
			}
			o := r.originOf("bench.test", protos, robots, h)
			o.forget = true
			benchStart(b, r, c.signed)
			addr, roots := r.addr, x509.NewCertPool()
			roots.AddCert(r.ca.Cert)
			if c.bare {
				addr, roots = bareProxy(b, r)
			}
			tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr}), TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: c.h2}
			defer tr.CloseIdleConnections()
			path, want := "/page", 200
			if c.refused {
				path, want = "/no", 403
			}
			u := o.url(scheme, path)
			measured(b, func() error {
				req, err := http.NewRequest(http.MethodGet, u, nil)
				if err != nil {
					return err
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != want {
					return fmt.Errorf("answered %d", resp.StatusCode)
				}
				return err
			})
		})
	}
}

// BenchmarkMint is one leaf certificate for a host never seen.
func BenchmarkMint(b *testing.B) {
	r := newRig(b)
	r.start(rigOptions{})
	b.ReportAllocs()
	before, i := cpu(), 0
	for b.Loop() {
		if _, err := r.gate.certs.mint("h" + strconv.Itoa(i) + ".test"); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric((cpu()-before)/float64(i), "cpu-us/op")
}

// BenchmarkClassify is what telling the kind of a request costs.
func BenchmarkClassify(b *testing.B) {
	x := fetches(b, "GET", "https://site.test/b", []string{"Sec-Fetch-Dest: image", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Site: same-origin", "Referer: https://site.test/a"}, []string{"https://site.test/a"}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if x.classify().kind != pacing.Subresource {
			b.Fatal("kind")
		}
	}
}

// BenchmarkIndexing is the reading of a page of 256 KiB for its meta tags.
func BenchmarkIndexing(b *testing.B) {
	page := []byte("<html><head><title>x</title></head>" + strings.Repeat("<p class=\"a\">some words of a <a href=\"/x\">page</a></p>\n", 5000))[:indexingBytes]
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		ix, _ := newIndexing(http.Header{}, "ExampleBot")
		for i := 0; i < len(page); i += 32 << 10 {
			_, _ = ix.Write(page[i : i+32<<10])
		}
		_ = ix.Close()
	}
}

// BenchmarkIdleTunnels is the memory of idle tunnels that each served one request, over HTTP/2 one of a browser; the fetchers
// are another process.
//
//	go test -run xxx -bench IdleTunnels -benchtime 1x ./proxy
func BenchmarkIdleTunnels(b *testing.B) {
	for _, proto := range []string{"http/1.1", "h2"} {
		b.Run(proto, func(b *testing.B) { benchmarkIdleTunnels(b, proto) })
	}
}

func benchmarkIdleTunnels(b *testing.B, proto string) {
	const tunnels = 10_000
	for range b.N {
		r := newRig(b)
		r.quiet = true
		o := r.origin("idle.test", true, "", hello)
		o.forget = true
		r.start(rigOptions{rules: func(ru *Rules) {
			ru.Server.Tunnels, ru.Server.TunnelsClient, ru.Server.Idle = 20_000, 20_000, 0
			ru.Default.Pacing.Parallel = 64
		}})
		r.get(r.client(true), o.url("https", "/"))
		before := resident()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CRAWLGATE_BENCH_IDLE="+strings.Join([]string{r.addr, o.hostport(), strconv.Itoa(tunnels), proto}, " "))
		in, err := cmd.StdinPipe()
		must(b, err)
		out, err := cmd.StdoutPipe()
		must(b, err)
		must(b, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || strings.TrimSpace(line) != "open" {
			b.Fatalf("the fetchers say %q %v", line, err)
		}
		after := resident()
		if n := r.gate.Tunnels(); n < tunnels {
			b.Fatalf("%d tunnels", n)
		}
		b.ReportMetric(float64(after-before)/tunnels/1024, "KiB/tunnel")
		in.Close()
		_ = cmd.Wait()
	}
}

// resident is the memory of this process that is in use, in bytes: heap and stacks after a collection.
func resident() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// idleFetchers opens tunnels, fetches once in each, and holds them until its input ends.
func idleFetchers(spec string) {
	f := strings.Fields(spec)
	n, _ := strconv.Atoi(f[2])
	host, _, _ := net.SplitHostPort(f[1])
	cfg := &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: f[3:4]}
	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range conns {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := net.Dial("tcp", f[0])
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", f[1], f[1])
			br := bufio.NewReaderSize(c, 64)
			if _, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			tc := tls.Client(c, cfg)
			conns[i] = tc
			if f[3] == "h2" {
				if err := browseOnce(tc, f[1]); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				return
			}
			fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", f[1])
			resp, err := http.ReadResponse(bufio.NewReaderSize(tc, 512), nil)
			if err != nil || resp.StatusCode != 200 {
				fmt.Println(err, resp)
				os.Exit(1)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
	wg.Wait()
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(conns)
}

// browseOnce sends the head of a browser's request over HTTP/2 and reads the answer.
func browseOnce(c *tls.Conn, authority string) error {
	fr := http2.NewFramer(c, c)
	_, err := io.WriteString(c, http2.ClientPreface)
	if err == nil {
		err = fr.WriteSettings()
	}
	if err == nil {
		_, err = c.Write(browserBlocks(authority, 1))
	}
	for err == nil {
		var got http2.Frame
		if got, err = fr.ReadFrame(); err != nil {
			break
		}
		switch got := got.(type) {
		case *http2.DataFrame:
			if got.StreamEnded() {
				return nil
			}
		case *http2.HeadersFrame:
			if got.StreamEnded() {
				return nil
			}
		case *http2.RSTStreamFrame:
			return fmt.Errorf("reset %s", got.ErrCode)
		}
	}
	return err
}
