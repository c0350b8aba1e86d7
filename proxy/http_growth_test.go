package proxy

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// live is how many bytes of this process are in use after a collection.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A crawl visits millions of sites: what stays of each, once its connections are closed, is small.
func TestHTTPGrowthPerHost(t *testing.T) {
	const warm, more, most = 1000, 2000, 2 << 10
	r := newRig(t)
	r.quiet = true
	o := r.origin("grow.test", false, "", hello)
	o.forget = true
	for n := range warm + more {
		r.hosts = append(r.hosts, fmt.Sprintf("127.0.0.1 h%d.grow.test", n))
	}
	r.start(rigOptions{})
	visit := func(from, to int) {
		hosts := make(chan int)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				c := r.client(false)
				for n := range hosts {
					if resp, _ := r.get(c, fmt.Sprintf("http://h%d.grow.test:%d/", n, o.port)); resp.StatusCode != 200 {
						t.Errorf("host %d: %d", n, resp.StatusCode)
					}
				}
				c.CloseIdleConnections()
			})
		}
		for n := from; n < to; n++ {
			hosts <- n
		}
		close(hosts)
		wg.Wait()
		r.gate.upstream.close()
		for end := time.Now().Add(20 * time.Second); o.conns.now() > 0 && time.Now().Before(end); {
			<-time.After(5 * time.Millisecond)
		}
	}
	visit(0, warm)
	before := live()
	visit(warm, warm+more)
	if each := (live() - before) / more; each > most {
		t.Errorf("%d bytes are kept of each site, at most %d may be", each, most)
	} else {
		t.Logf("%d bytes for each site", each)
	}
}
