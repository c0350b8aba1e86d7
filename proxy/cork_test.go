package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// A large body's pieces are put together, but what the site has sent is never held back while the site is waited for: each
// piece arrives before the site sends the next.
func TestCorkHoldsNothingBack(t *testing.T) {
	const total = 1 << 20
	whole := make([]byte, total)
	for i := range whole {
		whole[i] = byte(i * 7 >> 3)
	}
	for _, framing := range []string{"Content-Length: 1048576", "Transfer-Encoding: chunked", "Connection: close"} {
		r := newRig(t)
		var arrived atomic.Int64
		serve := func(c net.Conn) {
			if _, err := readHead(bufio.NewReader(c)); err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", framing)
			for sent := 0; sent < total; {
				n := min(total-sent, 1+rand.IntN(200<<10))
				piece := whole[sent : sent+n]
				if framing[0] == 'T' {
					piece = fmt.Appendf(nil, "%x\r\n%s\r\n", n, piece)
				}
				if _, err := c.Write(piece); err != nil {
					return
				}
				sent += n
				for by := time.Now().Add(10 * time.Second); sent < total && arrived.Load() < int64(sent); <-time.After(time.Millisecond) {
					if time.Now().After(by) {
						t.Errorf("%s: %d bytes were sent, %d arrived", framing, sent, arrived.Load())
						return
					}
				}
			}
			if framing[0] == 'T' {
				_, _ = io.WriteString(c, "0\r\n\r\n")
			}
		}
		plain := r.raw("cork.test", serve)
		secure := r.rawTLS("scork.test", []string{"http/1.1"}, func(c *tls.Conn) { serve(c); c.Close() })
		r.start(rigOptions{rules: ignoring})
		for _, s := range sides {
			o := plain
			if s.scheme == "https" {
				o = secure
			}
			arrived.Store(0)
			resp, err := r.client(s.h2).Get(o.url(s.scheme, "/"))
			must(t, err)
			var got bytes.Buffer
			buf := make([]byte, 64<<10)
			for err == nil {
				var n int
				n, err = resp.Body.Read(buf)
				got.Write(buf[:n])
				arrived.Store(int64(got.Len()))
			}
			resp.Body.Close()
			if err != io.EOF || !bytes.Equal(got.Bytes(), whole) {
				t.Errorf("%s, %s: %d bytes, %v", framing, s.name, got.Len(), err)
			}
		}
	}
}

// What came before a large body broke off arrives, and the end is loud.
func TestCorkOfABrokenBody(t *testing.T) {
	r := newRig(t)
	const sent = 300 << 10
	o := r.rawTLS("broken.test", []string{"http/1.1"}, func(c *tls.Conn) {
		if _, err := readHead(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n")
		_, _ = c.Write(make([]byte, sent))
		c.Close()
	})
	r.start(rigOptions{rules: ignoring})
	resp, err := r.client(false).Get(o.url("https", "/"))
	must(t, err)
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if n != sent || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A connection that carried a large body carries others, and small ones are not held.
func TestCorkEnds(t *testing.T) {
	r := newRig(t)
	o := r.originOf("corkends.test", []string{"http/1.1"}, "", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/big" {
			w.Header().Set("Content-Length", "1048576")
			_, _ = w.Write(make([]byte, 1<<20))
			return
		}
		for range 3 {
			_, _ = io.WriteString(w, "hello")
			_ = http.NewResponseController(w).Flush()
		}
	})
	r.start(rigOptions{rules: ignoring})
	c := r.client(false)
	for range 5 {
		for path, want := range map[string]int{"/big": 1 << 20, "/": 15} {
			if resp, b := r.get(c, o.url("https", path)); resp.StatusCode != 200 || len(b) != want {
				t.Errorf("%s: %d, %d bytes", path, resp.StatusCode, len(b))
			}
		}
	}
	if _, made := o.conns.get(); made != 1 {
		t.Errorf("%d connections", made)
	}
}
