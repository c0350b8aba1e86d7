package main

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 asks for it
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// echo answers one WebSocket message and then closes (RFC 6455 5.2).
func echo(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	text, err := readFrame(rw.Reader)
	if err != nil {
		return
	}
	reply := "echo " + text
	_, _ = conn.Write(append([]byte{0x81, byte(len(reply))}, reply...))
	_, _ = conn.Write([]byte{0x88, 2, 0x03, 0xe8}) // close, 1000
	_, _ = readFrame(rw.Reader)
}

// readFrame reads a short masked frame, as clients send them.
func readFrame(r *bufio.Reader) (string, error) {
	head := make([]byte, 6)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", err
	}
	data := make([]byte, head[1]&0x7f)
	if _, err := io.ReadFull(r, data); err != nil {
		return "", err
	}
	for n := range data {
		data[n] ^= head[2+n%4]
	}
	return string(data), nil
}

// TestWebSocket: messages pass both ways under the agent's name, the site's close reaches the client, and a WebSocket to
// a path that robots.txt forbids is not opened.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH2, func(o *origin) {
		o.robots = "User-agent: *\nDisallow: /private/\n"
		o.handle = echo
	}, "ws.test")
	g, _ := startSigned(t, gateConfig{origins: []*origin{o}})
	open := func(path string) string {
		cmd := exec.CommandContext(t.Context(), "node", "ws.mjs", strings.Replace(o.url(path), "https:", "wss:", 1))
		cmd.Dir, cmd.Env = nodeFolder(t), bareEnv(t.TempDir(), proxyEnv(g.proxy, g.ca)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("node ws.mjs: %v: %s", err, out)
		}
		return string(out)
	}
	if out := open("/socket"); out != "got echo hello\nclosed 1000\n" {
		t.Errorf("%s", out)
	}
	if out := open("/private/socket"); strings.Contains(out, "got") || !strings.Contains(out, "closed 1006") {
		t.Errorf("%s", out)
	}
	agentOnly(t, o.arrivals())
	if got := uris(o.pages()); len(got) != 1 || got[0] != "GET /socket" {
		t.Errorf("the site got %v", got)
	}
	list := g.waitEvents(t, 2)
	if ev := list[0]; ev.Status != 101 || ev.Decision != "forwarded" || !ev.Sent {
		t.Errorf("%+v", ev)
	}
	if ev := list[1]; ev.Reason != "robots-disallow" || ev.Sent {
		t.Errorf("%+v", ev)
	}
}
