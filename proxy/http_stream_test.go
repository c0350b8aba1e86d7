package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"crawlgate/audit"
)

// Pieces of SSE and NDJSON arrive as they are sent, and the head does not wait for the first of them.
func TestHTTPPiecesArriveAsSent(t *testing.T) {
	for _, ct := range []string{"text/event-stream", "application/x-ndjson", "text/html; charset=utf-8"} {
		t.Run(ct, func(t *testing.T) {
			next := make(chan string)
			onSides(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", ct)
				rc := http.NewResponseController(w)
				_ = rc.Flush()
				for {
					s := <-next
					if s == "" {
						return
					}
					_, _ = io.WriteString(w, s)
					_ = rc.Flush()
				}
			}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
				resp, err := r.client(s.h2).Get(o.url(s.scheme, "/"))
				must(t, err)
				defer resp.Body.Close()
				br := bufio.NewReader(resp.Body)
				for i := range 5 {
					want := fmt.Sprintf("data: %d\n", i)
					next <- want
					if got, err := br.ReadString('\n'); got != want {
						t.Fatalf("got %q %v", got, err)
					}
				}
				next <- ""
				if rest, err := io.ReadAll(br); err != nil || len(rest) != 0 {
					t.Errorf("rest %q %v", rest, err)
				}
			})
		})
	}
}

// An upload passes piece by piece, and both directions at once.
func TestHTTPUploadStreams(t *testing.T) {
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		br := bufio.NewReader(req.Body)
		for {
			l, err := br.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+l)
			_ = rc.Flush()
		}
	}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
		if !s.h2 {
			return // HTTP/1.1 fetchers that read while they write are rare, and the upload ends with the answer
		}
		pr, pw := io.Pipe()
		defer pw.Close()
		req, err := http.NewRequest(http.MethodPost, o.url(s.scheme, "/"), pr)
		must(t, err)
		resp, err := r.client(s.h2).Do(req)
		must(t, err)
		defer resp.Body.Close()
		br := bufio.NewReader(resp.Body)
		for i := range 3 {
			fmt.Fprintf(pw, "%d\n", i)
			if got, err := br.ReadString('\n'); got != fmt.Sprintf("echo %d\n", i) {
				t.Fatalf("got %q %v", got, err)
			}
		}
	})
}

// webSocketSite accepts any upgrade and gives fn the connection.
func webSocketSite(r *rig, name string, fn func(c net.Conn, br *bufio.Reader)) *origin {
	return r.rawTLS(name, []string{"http/1.1"}, func(c *tls.Conn) {
		br := bufio.NewReader(c)
		head, err := readHead(br)
		if err != nil {
			return
		}
		if !strings.Contains(head, "Upgrade: websocket\r\n") || !strings.Contains(head, "Connection: Upgrade\r\n") || !strings.Contains(head, "Sec-Websocket-Protocol: chat\r\n") {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Hop\r\nUpgrade: websocket\r\nX-Hop: 1\r\nCrawlgate-Reason: forged\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\nfirst")
		fn(c, br)
	})
}

const upgradeHead = "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\nOrigin: https://x.test\r\n\r\n"

// A WebSocket works in both directions; whichever side ends first, the other is ended too, after its last word.
func TestHTTPWebSocket(t *testing.T) {
	for _, siteFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("site-ends-first=%v", siteFirst), func(t *testing.T) {
			r := newRig(t)
			over := make(chan error, 1)
			o := webSocketSite(r, "ws.test", func(c net.Conn, br *bufio.Reader) {
				b := make([]byte, 4)
				_, _ = io.ReadFull(br, b)
				_, _ = c.Write([]byte("pong " + string(b)))
				if siteFirst {
					over <- nil
					return
				}
				_, err := br.ReadByte() // the fetcher's end
				_, _ = c.Write([]byte("last word"))
				over <- err
			})
			r.start(rigOptions{rules: ignoring})
			c := r.rawConn(o, true)
			fmt.Fprintf(c, upgradeHead, o.hostport())
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			must(t, err)
			if resp.StatusCode != 101 || resp.Header.Get("X-Hop") != "" || resp.Header.Get("Crawlgate-Reason") != "" || resp.Header.Get("Sec-Websocket-Protocol") != "chat" || resp.Header.Get("Sec-Websocket-Accept") != "x" {
				t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
			}
			// A frame that holds a bare LF and a NUL is no head.
			_, _ = c.Write([]byte("\n\x00\r\n"))
			got := make([]byte, len("firstpong 1234"))
			if _, err := io.ReadFull(br, got); err != nil || string(got) != "firstpong \n\x00\r\n" {
				t.Fatalf("got %q %v", got, err)
			}
			if !siteFirst {
				must(t, c.(*tls.Conn).CloseWrite())
			}
			rest, _ := io.ReadAll(br)
			c.Close()
			if !siteFirst && string(rest) != "last word" {
				t.Errorf("after its end the fetcher got %q", rest)
			}
			if err := <-over; err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("the site saw %v", err)
			}
			ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
			if ev.Status != 101 || ev.Reason != "ok" || ev.BytesOut != 4 {
				t.Errorf("event %+v", ev)
			}
		})
	}
}

// An upgrade that nobody asked for would be an unjudged tunnel.
func TestHTTPUnaskedUpgrade(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		r := newRig(t)
		o := r.rawTLS("ups.test", []string{"http/1.1"}, func(c *tls.Conn) {
			if _, err := readHead(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, head)
				_, _ = io.Copy(io.Discard, c)
			}
		})
		r.start(rigOptions{rules: ignoring})
		for _, h2 := range []bool{false, true} {
			resp, b := r.get(r.client(h2), o.url("https", "/"))
			if resp.StatusCode != 502 || resp.Header.Get("Crawlgate-Reason") != "upstream-failed" {
				t.Errorf("h2=%v: got %d %s", h2, resp.StatusCode, b)
			}
		}
		// Asked for a WebSocket and answered with another protocol.
		c := r.rawConn(o, true)
		fmt.Fprintf(c, strings.Replace(upgradeHead, "Upgrade: WebSocket", "Upgrade: foo", 1), o.hostport())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		if resp.StatusCode != 502 {
			t.Errorf("got %d", resp.StatusCode)
		}
	}
}

// A fetcher that leaves in the body: the site's side is ended at once, the turn given back, and over HTTP/2 the other
// streams go on.
func TestHTTPFetcherLeavesInTheBody(t *testing.T) {
	gone := make(chan struct{}, 8)
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/other" {
			hello(w, req)
			return
		}
		rc := http.NewResponseController(w)
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", 1024)); err != nil || rc.Flush() != nil {
				break
			}
			select {
			case <-req.Context().Done():
				gone <- struct{}{}
				return
			case <-time.After(time.Millisecond):
			}
		}
		gone <- struct{}{}
	}, rigOptions{rules: func(ru *Rules) { ru.Default.Pacing.Parallel = 1 }}, func(t *testing.T, r *rig, o *origin, s side) {
		c := r.client(s.h2)
		resp, err := c.Get(o.url(s.scheme, "/"))
		must(t, err)
		_, _ = io.ReadFull(resp.Body, make([]byte, 4096))
		began := time.Now()
		resp.Body.Close()
		<-gone
		if d := time.Since(began); d > time.Second {
			t.Errorf("the site was left alone after %s", d)
		}
		ev := r.waitEvent("left", func(e *audit.Event) bool { return e.Class == "client_left_body" })
		if !ev.Sent || ev.Status != 200 {
			t.Errorf("event %+v", ev)
		}
		if resp, b := r.get(c, o.url(s.scheme, "/other")); resp.StatusCode != 200 || b != "hello" {
			t.Errorf("after that: %d %s", resp.StatusCode, b)
		}
		r.noTurnsLeft()
	})
}

// A fetcher that leaves before the answer's head: the same.
func TestHTTPFetcherLeavesBeforeTheHead(t *testing.T) {
	r := newRig(t)
	asked, gone := make(chan struct{}, 4), make(chan struct{}, 4)
	h := func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
		gone <- struct{}{}
	}
	secure, plain := r.origin("late.test", true, "", h), r.origin("lateplain.test", false, "", h)
	r.start(rigOptions{})
	c := r.rawConn(plain, false)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", plain.url("http", "/"), plain.hostport())
	<-asked
	c.Close()
	<-gone
	f := r.framer(secure)
	f.request(1, true, "GET", secure, "/")
	<-asked
	must(t, f.WriteRSTStream(1, 8))
	<-gone
	for _, host := range []string{"late.test", "lateplain.test"} {
		ev := r.waitEvent(host, func(e *audit.Event) bool { return e.Host == host && e.Type == audit.TypeRequest })
		if ev.Reason != "client-gone" || ev.Answered != 0 {
			t.Errorf("event %s %s %d", ev.Reason, ev.Class, ev.Answered)
		}
	}
}
