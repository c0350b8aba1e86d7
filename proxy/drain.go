package proxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// drain counts what the servers do not: tunnels (their connections are taken over, so no server waits for them)
// and relays (WebSocket, undecrypted tunnels), which end last.
type drain struct {
	mu       sync.Mutex
	stopping atomic.Bool
	stopped  context.Context // ends when the gate stops
	end      context.CancelFunc
	tunnels  int
	byClient map[string]int
	conns    map[net.Conn]struct{} // tunnels being served
	relays   map[net.Conn]struct{} // hijacked for good
	idle     *sync.Cond
}

func newDrain() *drain {
	d := &drain{byClient: map[string]int{}, conns: map[net.Conn]struct{}{}, relays: map[net.Conn]struct{}{}}
	d.idle = sync.NewCond(&d.mu)
	d.stopped, d.end = context.WithCancel(context.Background())
	return d
}

func (d *drain) draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopping.Load()
}

func (d *drain) stop() {
	d.mu.Lock()
	d.stopping.Store(true)
	d.mu.Unlock()
	d.end()
}

func drainingNow() *refusal { return &refusal{code: Draining, retryAfter: 5 * time.Second} }

// admit counts one more tunnel, unless the client or the gate has too many. No client may take more than half.
func (d *drain) admit(client string, perClient, all int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tunnels >= all || d.byClient[client] >= perClient {
		return false
	}
	d.tunnels++
	d.byClient[client]++
	return true
}

func (d *drain) release(client string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tunnels--
	if d.byClient[client]--; d.byClient[client] <= 0 {
		delete(d.byClient, client)
	}
}

func (d *drain) add(c net.Conn) {
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
}

func (d *drain) remove(c net.Conn) {
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
}

// open tells how many tunnels are open.
func (d *drain) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tunnels
}

// relay registers a hijacked connection until the returned function is called.
func (d *drain) relay(c net.Conn) (done func()) {
	d.mu.Lock()
	d.relays[c] = struct{}{}
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		delete(d.relays, c)
		if len(d.relays) == 0 {
			d.idle.Broadcast()
		}
		d.mu.Unlock()
	}
}

// waitRelays returns a channel that closes when no relay is left.
func (d *drain) waitRelays() <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		d.mu.Lock()
		defer d.mu.Unlock()
		for len(d.relays) > 0 {
			d.idle.Wait()
		}
	}()
	return ch
}

// closeAll ends every connection that is still there.
func (d *drain) closeAll() {
	d.mu.Lock()
	all := make([]net.Conn, 0, len(d.conns)+len(d.relays))
	for c := range d.conns {
		all = append(all, c)
	}
	for c := range d.relays {
		all = append(all, c)
	}
	d.mu.Unlock()
	closeEach(all)
}

// closeEach closes connections at the end. Under TLS a close says so first, and waits for a fetcher that reads nothing: for a
// moment, and for all such fetchers at the same time.
func closeEach(conns []net.Conn) {
	var wg sync.WaitGroup
	for _, c := range conns {
		patience(c, lingering)
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
}
