package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"crawlgate/audit"
)

// A head that does not come whole in time is answered, on the proxy port as in a tunnel (DESIGN 5: 408). One that never
// began is not: a connection kept alive just ends.
func TestHTTPSlowHeads(t *testing.T) {
	r := newRig(t)
	plain, secure := r.origin("slowhead.test", false, "", hello), r.origin("slowhead2.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = 2 * time.Second }})
	first := "GET " + plain.url("http", "/") + " HTTP/1.1\r\nHost: slowhead.test\r\n\r\n"
	inside := "GET / HTTP/1.1\r\nHost: slowhead2.test\r\n\r\n"
	cases := []struct {
		name   string
		inside bool
		send   string
		before int // answers before it
		slow   bool
		conn   net.Conn
	}{
		{name: "no head"},
		{name: "half a line", send: "GET http://slowhead", slow: true},
		{name: "half a head", send: "GET http://slowhead.test/ HTTP/1.1\r\nHost: slow", slow: true},
		{name: "half a CONNECT", send: "CONNECT slowhead.test:443 HTTP/1.1\r\nHost: slow", slow: true},
		{name: "after a request", send: first + "GET http://slowhead.test/ HTTP/1.1\r\nHo", before: 1, slow: true},
		{name: "in a tunnel", inside: true, send: "GET / HTTP/1.1\r\nHost: slow", slow: true},
		{name: "in a tunnel, after a request", inside: true, send: inside + "GET / HTTP/1.1\r\n", before: 1, slow: true},
	}
	for i := range cases { // all wait at once
		c := &cases[i]
		if c.conn = r.rawConn(plain, false); c.inside {
			c.conn = r.rawConn(secure, true)
		}
		_, err := io.WriteString(c.conn, c.send)
		must(t, err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			br := bufio.NewReader(c.conn)
			for range c.before {
				resp, err := http.ReadResponse(br, nil)
				must(t, err)
				if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
					t.Fatalf("the request before: %d %s", resp.StatusCode, b)
				}
			}
			if c.slow {
				resp, err := http.ReadResponse(br, nil)
				must(t, err)
				b, _ := io.ReadAll(resp.Body)
				p := problemOf(t, resp, string(b), http.StatusRequestTimeout, BadRequest)
				if p.Class != "header_timeout" || !resp.Close {
					t.Errorf("class %q, close %v", p.Class, resp.Close)
				}
				r.waitEvent("the event", func(e *audit.Event) bool { return e.ID == p.RequestID && e.Class == "header_timeout" })
			}
			if rest, err := io.ReadAll(br); isTimeout(err) || len(rest) > 0 {
				t.Errorf("then %q %v", rest, err)
			}
		})
	}
}

// The half of a next head that waits in the buffer is no slow head as long as the request before it is being served.
func TestHTTPHalfAHeadWaits(t *testing.T) {
	r := newRig(t)
	o := r.origin("longer.test", false, "", func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(2 * time.Second)
		_, _ = io.WriteString(w, "hello")
	})
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = time.Second }})
	conn := r.rawConn(o, false)
	head := "GET " + o.url("http", "/") + " HTTP/1.1\r\nHost: longer.test\r\n\r\n"
	_, err := io.WriteString(conn, head+head[:30])
	must(t, err)
	br := bufio.NewReader(conn)
	for n := range 2 {
		resp, err := http.ReadResponse(br, nil)
		must(t, err)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
			t.Fatalf("answer %d: %d %s", n, resp.StatusCode, b)
		}
		if n == 0 {
			_, err := io.WriteString(conn, head[30:])
			must(t, err)
		}
	}
}
