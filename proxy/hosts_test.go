package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"crawlgate/audit"
	"crawlgate/proxy/guard"
)

type mismatchCase struct {
	ID, Kind, Title string
	Request         struct {
		Form, Target, Via string
		Host              json.RawMessage
		Connect           string
		SNI               *string
		Inner             *struct {
			Form, Target, Authority, Upgrade string
			Host                             json.RawMessage
		}
	}
	Want        string
	Status      int
	Code        string
	ForwardHost string `json:"forward_host"`
}

// The classes of the vectors that stand under a code with another status in the table of reasons keep the table's.
func TestMismatchVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/hosts.json")
	must(t, err)
	var file struct{ Cases []mismatchCase }
	must(t, json.Unmarshal(raw, &file))
	ran := 0
	for _, c := range file.Cases {
		if c.Kind != "mismatch" {
			continue // url, connect and config are run by the guard, which reads them
		}
		ran++
		t.Run(c.ID+" "+c.Title, func(t *testing.T) { c.run(t) })
	}
	if ran < 30 {
		t.Errorf("only %d cases", ran)
	}
}

func (c mismatchCase) run(t *testing.T) {
	r := newRig(t)
	// The names of the vectors stand on the default ports. The fake dialer of the rig's guard leads every address to the
	// one origin; nothing but loopback is touched.
	plain := r.origin("a.example", false, "", hello)
	secure := r.origin("a.example", true, "", hello)
	r.hosts = []string{"127.0.0.1 a.example", "127.0.0.1 b.example"}
	r.start(rigOptions{
		guard: func(g *guard.Config) {
			// 127.0.0.1 itself must stay refused when a request names it, so the sites live on another loopback address.
			g.Hosts = []string{"127.0.0.2 a.example", "127.0.0.3 b.example"}
			g.AllowPrivate = []guard.Exception{{Prefix: "127.0.0.2/32"}, {Prefix: "127.0.0.3/32"}}
		},
		rules: func(ru *Rules) {
			ru.Default.Robots.Mode = "ignore"
			if c.Code == "upgrade_denied" {
				ru.Default.Limits.WebSocket = "deny"
			}
		},
		dial: func(network, addr string) (net.Conn, error) {
			switch addr {
			case "127.0.0.2:80":
				return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", plain.port))
			case "127.0.0.2:443":
				return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", secure.port))
			}
			t.Errorf("dialled %s", addr)
			return nil, errNotHere
		},
	})
	resp, event := c.send(t, r)
	origins := append(plain.requests(), secure.requests()...)
	switch c.Want {
	case "forward":
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("got %v", resp)
		}
		if len(origins) != 1 || origins[0].Host != c.ForwardHost {
			t.Errorf("the site saw %d requests, host %q", len(origins), hostsOf(origins))
		}
	case "intercept":
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("got %v", resp)
		}
	case "reject":
		if len(origins) != 0 {
			t.Error("a site was asked")
		}
		if resp == nil || resp.StatusCode != c.Status {
			t.Fatalf("got %v, want %d", resp, c.Status)
		}
		if event != nil && event.Class != c.Code {
			t.Errorf("class %q, want %q", event.Class, c.Code)
		}
	}
}

func hostsOf(reqs []*http.Request) (out []string) {
	for _, r := range reqs {
		out = append(out, r.Host)
	}
	return out
}

func hostLines(raw json.RawMessage) string {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return "Host: " + one + "\r\n"
	}
	var many []string
	if json.Unmarshal(raw, &many) == nil {
		var b strings.Builder
		for _, h := range many {
			b.WriteString("Host: " + h + "\r\n")
		}
		return b.String()
	}
	return ""
}

// send plays the case and returns the last answer and its event.
func (c mismatchCase) send(t *testing.T, r *rig) (*http.Response, *audit.Event) {
	q := c.Request
	read := func(conn io.Reader) (*http.Response, *audit.Event) {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		_, _ = io.ReadAll(resp.Body)
		return resp, r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
	}
	if q.Connect == "" {
		via := ""
		if q.Via != "" {
			via = "Via: " + strings.ReplaceAll(q.Via, "<own pseudonym>", r.gate.pseudonym) + "\r\n"
		}
		conn, err := net.Dial("tcp", r.addr)
		must(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		method := "GET"
		if q.Form == "connect" {
			method = "CONNECT"
		}
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s%s\r\n", method, q.Target, hostLines(q.Host), via)
		if q.Form != "connect" {
			return read(conn)
		}
		br := bufio.NewReader(conn)
		resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"})
		must(t, err)
		if c.Want == "intercept" || resp.StatusCode != 200 {
			return resp, nil
		}
		// The refusal of a CONNECT's address is given inside.
		tc := tls.Client(&bufferedConn{conn, br}, &tls.Config{InsecureSkipVerify: true})
		must(t, tc.Handshake())
		host, _, _ := net.SplitHostPort(q.Target)
		fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		return read(tc)
	}
	conn, br := r.tunnel(q.Connect)
	if q.Inner.Form == "plain" {
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\n%s\r\n", hostLines(q.Inner.Host))
		return read(br)
	}
	cfg := &tls.Config{InsecureSkipVerify: true}
	if q.SNI != nil {
		cfg.ServerName = *q.SNI
	}
	if q.Inner.Form == "h2" {
		cfg.NextProtos = []string{"h2"}
	}
	tc := tls.Client(conn, cfg)
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	switch q.Inner.Form {
	case "h2":
		return c.h2(t, tc, r)
	case "absolute", "connect":
		method := "GET"
		if q.Inner.Form == "connect" {
			method = "CONNECT"
		}
		fmt.Fprintf(tc, "%s %s HTTP/1.1\r\n%s\r\n", method, q.Inner.Target, hostLines(q.Inner.Host))
	default:
		up := ""
		if q.Inner.Upgrade != "" {
			up = "Connection: Upgrade\r\nUpgrade: " + q.Inner.Upgrade + "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
		}
		fmt.Fprintf(tc, "GET / HTTP/1.1\r\n%s%s\r\n", hostLines(q.Inner.Host), up)
	}
	return read(tc)
}

// h2 sends one request whose :authority names another host than the tunnel.
func (c mismatchCase) h2(t *testing.T, conn net.Conn, r *rig) (*http.Response, *audit.Event) {
	_, err := io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	fr := http2.NewFramer(conn, conn)
	must(t, fr.WriteSettings())
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", c.Request.Inner.Authority}, {":path", "/"}} {
		must(t, enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	must(t, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true}))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		must(t, err)
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			resp := &http.Response{Header: http.Header{}}
			for _, x := range h.Fields {
				if x.Name == ":status" {
					fmt.Sscan(x.Value, &resp.StatusCode)
				} else {
					resp.Header.Add(x.Name, x.Value)
				}
			}
			return resp, r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
		}
	}
}

type bufferedConn struct {
	net.Conn
	r io.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
