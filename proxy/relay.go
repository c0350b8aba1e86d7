package proxy

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// relayBody is the two-way body of a 101 answer.
type relayBody struct {
	io.ReadWriteCloser
	x *exchange
}

// relay passes an upgraded connection (WebSocket) in both directions until one side closes; then the other side is
// closed too.
func (g *Gate) relay(w http.ResponseWriter, resp *http.Response, rb *relayBody) {
	x := rb.x
	defer x.end()
	defer rb.Close()
	ours, ok := w.(*h1Response)
	if !ok {
		// HTTP/2 towards the fetcher: it has no upgrade, and its client was not told otherwise.
		x.outcome.Err = http.ErrNotSupported
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	conn, err := ours.takeOver()
	if err != nil {
		x.outcome.Err = err
		return
	}
	done := g.drain.relay(conn)
	defer done()
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	patience(conn, x.rules.Server.StreamIdle)
	bw := bufio.NewWriter(conn)
	h := http.Header{}
	maps.Copy(h, resp.Header)
	_, _ = bw.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = h.Write(bw)
	_, _ = bw.WriteString("\r\n")
	if bw.Flush() != nil {
		return
	}
	toSite, toClient := pump(conn, rb.ReadWriteCloser, x.rules.Server.StreamIdle)
	x.wire.out.Add(toSite)
	x.wire.in.Add(toClient)
}

// linger is how long the other direction may go on after one side ended: a WebSocket's closing handshake has a last
// word from each.
const linger = 2 * time.Second

// pump copies both ways until one side ends (the other then has linger to finish) or nothing moves for idle, and
// returns the bytes a sent and received.
func pump(a net.Conn, b io.ReadWriteCloser, idle time.Duration) (fromA, fromB int64) {
	var moved atomic.Int64
	var once sync.Once
	stop := func() { once.Do(func() { a.Close(); b.Close() }) }
	var timer *time.Timer
	var tmu sync.Mutex
	seen := int64(-1)
	if idle > 0 {
		tmu.Lock()
		timer = time.AfterFunc(idle, func() {
			tmu.Lock()
			defer tmu.Unlock()
			if n := moved.Load(); n != seen {
				seen = n
				timer.Reset(idle)
				return
			}
			stop()
		})
		tmu.Unlock()
		defer timer.Stop()
	}
	var wg sync.WaitGroup
	wg.Add(2)
	// ended passes the end of one direction on and gives the other linger, unless it ended first.
	var ends atomic.Int32
	var last atomic.Pointer[time.Timer]
	ended := func(to io.Closer) {
		cw, ok := to.(interface{ CloseWrite() error })
		if ends.Add(1) == 2 || !ok || cw.CloseWrite() != nil {
			stop()
			return
		}
		last.Store(time.AfterFunc(linger, stop))
	}
	defer func() {
		if t := last.Load(); t != nil {
			t.Stop()
		}
	}()
	go func() {
		defer wg.Done()
		defer ended(b)
		fromA = copyCounting(b, a, &moved)
	}()
	go func() {
		defer wg.Done()
		defer ended(a)
		fromB = copyCounting(a, b, &moved)
	}()
	wg.Wait()
	return fromA, fromB
}

// copyCounting copies until the end. Its buffer is small: most of these connections idle.
func copyCounting(dst io.Writer, src io.Reader, moved *atomic.Int64) (n int64) {
	var buf [4 << 10]byte
	for {
		k, err := src.Read(buf[:])
		if k > 0 {
			w, werr := dst.Write(buf[:k])
			n += int64(w)
			moved.Add(1)
			if werr != nil {
				return n
			}
		}
		if err != nil {
			return n
		}
	}
}
