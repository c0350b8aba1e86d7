package pacing

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

func benchPacer(b *testing.B) *Pacer {
	b.Helper()
	p, err := newPacer(Defaults(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func benchTurn(b *testing.B, p *Pacer, r *Request) {
	turn, err := p.acquire(context.Background(), r)
	if err != nil {
		b.Fatal(err)
	}
	turn.Done(Outcome{Sent: true, Status: 200})
}

// BenchmarkOneHost is Acquire and Done of one hot host without contention. Goal: below 300 ns.
func BenchmarkOneHost(b *testing.B) {
	p := benchPacer(b)
	r := Request{Key: "www.one-hot-host.example", Client: "team-a", URL: "https://www.one-hot-host.example/a/page"}
	b.ReportAllocs()
	for b.Loop() {
		benchTurn(b, p, &r)
	}
}

// BenchmarkManyHosts is the same over 65,536 hosts, with as many requests that were written long before: more than half of
// what it shows is the fetching of those from far memory.
func BenchmarkManyHosts(b *testing.B) {
	p := benchPacer(b)
	reqs := make([]Request, 1<<16)
	for i := range reqs {
		name := fmt.Sprintf("www.host-%d.example", i)
		reqs[i] = Request{Key: name, Client: "team-a", URL: "https://" + name + "/a/page"}
		benchTurn(b, p, &reqs[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		benchTurn(b, p, &reqs[(i*40503)&(1<<16-1)])
		i++
	}
}

// BenchmarkManyHostsFresh is the same with requests that were written just before they are asked for, as a gate's are: it
// leaves out what it costs to fetch old ones from far memory. Goal: below 800 ns.
func BenchmarkManyHostsFresh(b *testing.B) {
	p := benchPacer(b)
	i := 0
	var reqs [64]Request
	round := func() time.Duration {
		for j := range reqs {
			name := fmt.Sprintf("www.host-%d.example", i*40503&(1<<16-1))
			reqs[j] = Request{Key: name, Client: "team-a", URL: "https://" + name + "/a/page"}
			i++
		}
		start := time.Now()
		for j := range reqs {
			benchTurn(b, p, &reqs[j])
		}
		return time.Since(start)
	}
	for i < 1<<16 {
		round()
	}
	i = 0
	var spent time.Duration
	for n := 0; b.Loop(); n++ {
		if n%len(reqs) == 0 {
			spent += round()
		}
	}
	b.ReportMetric(float64(spent)/float64(i), "ns/op")
}

// BenchmarkNewHost is a host nobody knows. Goal: below 3 us.
func BenchmarkNewHost(b *testing.B) {
	p := benchPacer(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		name := fmt.Sprintf("www.host-%08d.example", i)
		if i++; i%1000000 == 0 {
			b.StopTimer()
			p = benchPacer(b)
			b.StartTimer()
		}
		r := Request{Key: name, Client: "team-a", URL: "https://example/a/page"}
		benchTurn(b, p, &r)
	}
}

// BenchmarkParallel is many hosts from all processors.
func BenchmarkParallel(b *testing.B) {
	p := benchPacer(b)
	var n int
	var mu sync.Mutex
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		n++
		me := n
		mu.Unlock()
		reqs := make([]Request, 1024)
		for i := range reqs {
			reqs[i] = Request{Key: fmt.Sprintf("www.host-%d-%d.example", me, i), Client: "team-a", URL: "https://example/"}
		}
		for i := 0; pb.Next(); i++ {
			benchTurn(b, p, &reqs[i&1023])
		}
	})
}

// BenchmarkRefusal is a request that is told at once that its turn is too far away.
func BenchmarkRefusal(b *testing.B) {
	p := benchPacer(b)
	r := Request{Key: "h.test", Client: "a", URL: "https://h.test/", Gap: time.Hour}
	benchTurn(b, p, &r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Acquire(context.Background(), r); err == nil {
			b.Fatal("granted")
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkMillionHosts reports the bytes of a known idle host (26-byte name; goal: below 250) and for how long a
// shard is held at most while a million hosts are swept, and while all of them are forgotten (goal: below 5 ms each).
func BenchmarkMillionHosts(b *testing.B) {
	const n = 1000000
	for b.Loop() {
		before := heap()
		c := Defaults()
		c.CompanionWindow = 0
		p, err := newPacer(c, nil)
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			r := Request{Key: fmt.Sprintf("www.host-%08d.example.com", i), Client: "team-a", URL: "https://example/", Gap: time.Second, Delay: 10 * time.Minute}
			benchTurn(b, p, &r)
		}
		sweep := func() (all, longest time.Duration) {
			for i := range p.shards {
				start := time.Now()
				held := func() {
					d := time.Since(start)
					all += d
					longest = max(longest, d)
				}
				p.sweepInSteps(&p.shards[i], func(*shard) { held(); start = time.Now() })
				held()
			}
			return all, longest
		}
		sweep()
		b.ReportMetric(float64(heap()-before)/n, "bytes/host")
		all, longest := sweep() // nobody is settled
		b.ReportMetric(float64(all.Microseconds())/1000, "ms-sweep")
		b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-hold")
		p.start = p.start.Add(-time.Hour) // everybody is
		p.widest.Store(0)
		all, longest = sweep()
		b.ReportMetric(float64(all.Microseconds())/1000, "ms-forget")
		b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-forget")
		if p.keys.Load() != 0 {
			b.Fatalf("%d keys left", p.keys.Load())
		}
		b.ReportMetric(float64(int64(heap())-int64(before))/n, "bytes/forgotten")
		runtime.KeepAlive(p)
	}
}

// BenchmarkWaiters reports the bytes of a waiter with its goroutine. Goal: below 6 KB.
func BenchmarkWaiters(b *testing.B) {
	const n = 10000
	for b.Loop() {
		c := Defaults()
		c.MaxQueue, c.MaxQueueClient, c.MaxWaiting = n, n, n
		p, err := newPacer(c, nil)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var held []*Turn
		for i := range 100 {
			turn, err := p.Acquire(ctx, Request{Key: fmt.Sprint("h", i), Client: "x"})
			if err != nil {
				b.Fatal(err)
			}
			held = append(held, turn)
		}
		before := heap()
		var wg sync.WaitGroup
		for i := range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, _ = p.Acquire(ctx, Request{Key: fmt.Sprint("h", i%100), Client: "c", Wait: time.Hour})
			}()
		}
		for p.waiting.Load() < n {
			runtime.Gosched()
		}
		b.ReportMetric(float64(heap()-before)/n, "bytes/waiter")
		cancel()
		wg.Wait()
		for _, turn := range held {
			turn.Done(Outcome{})
		}
	}
}
