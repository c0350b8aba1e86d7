package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An answer that fits into the system's buffers is written at once; if it is not read, it does not stay there.
func TestHTTPAnswerThatIsNotTaken(t *testing.T) {
	const size = 1 << 20
	r := newRig(t)
	o := r.origin("buffered.test", false, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.StallTimeout, ru.Server.Idle = 2*time.Second, time.Minute }})
	c := r.rawConn(o, false)
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.url("http", "/"), o.hostport())
	must(t, err)
	<-time.After(5 * time.Second)
	if n, err := io.Copy(io.Discard, c); n >= size || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %d bytes: %v", n, err)
	}
	r.noTurnsLeft()
}

// A fetcher that reads slowly, but reads all the time, is no fetcher that stalls: the system's buffers must not hide what it
// takes.
func TestHTTPSlowFetcher(t *testing.T) {
	const size = 8 << 20
	r := newRig(t)
	h := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }
	secure, plain := r.originOf("slow.test", []string{"http/1.1"}, "", h), r.origin("slowplain.test", false, "", h)
	r.start(rigOptions{rules: func(ru *Rules) {
		ignoring(ru)
		ru.Server.StallTimeout = 2 * time.Second
	}})
	var wg sync.WaitGroup
	for _, inside := range []bool{false, true} {
		o := plain
		if inside {
			o = secure
		}
		c := r.rawConn(o, inside)
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.target(inside, "/"), o.hostport())
		must(t, err)
		wg.Go(func() {
			buf := make([]byte, 20<<10)
			for n, began := 0, time.Now(); time.Since(began) < 7*time.Second; {
				k, err := io.ReadFull(c, buf)
				if n += k; err != nil {
					t.Errorf("inside=%v: cut after %s and %d bytes: %v", inside, time.Since(began), n, err)
					return
				}
				<-time.After(100 * time.Millisecond)
			}
		})
	}
	wg.Wait()
}
