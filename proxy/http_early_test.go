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
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = 300 * time.Millisecond }})
	first := "GET " + plain.url("http", "/") + " HTTP/1.1\r\nHost: slowhead.test\r\n\r\n"
	for name, c := range map[string]struct {
		open   func() net.Conn
		send   string
		before int // answers before it
		slow   bool
	}{
		"no head":         {func() net.Conn { return r.rawConn(plain, false) }, "", 0, false},
		"half a line":     {func() net.Conn { return r.rawConn(plain, false) }, "GET http://slowhead", 0, true},
		"half a head":     {func() net.Conn { return r.rawConn(plain, false) }, "GET http://slowhead.test/ HTTP/1.1\r\nHost: slow", 0, true},
		"half a CONNECT":  {func() net.Conn { return r.rawConn(plain, false) }, "CONNECT slowhead.test:443 HTTP/1.1\r\nHost: slow", 0, true},
		"after a request": {func() net.Conn { return r.rawConn(plain, false) }, first + "GET http://slowhead.test/ HTTP/1.1\r\nHo", 1, true},
		"in a tunnel":     {func() net.Conn { return r.rawConn(secure, true) }, "GET / HTTP/1.1\r\nHost: slow", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.open()
			_, err := io.WriteString(conn, c.send)
			must(t, err)
			br := bufio.NewReader(conn)
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
		<-time.After(600 * time.Millisecond)
		_, _ = io.WriteString(w, "hello")
	})
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.ReadHead = 300 * time.Millisecond }})
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
