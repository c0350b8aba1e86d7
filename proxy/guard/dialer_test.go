package guard

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// loopback is the configuration of tests that really dial: loopback is opened
// on all ports, and names lead there.
func loopback(ports []int, hosts ...string) Config {
	c := Defaults()
	c.AllowPrivate = []Exception{{Prefix: "127.0.0.1", Ports: ports, Comment: "test origin"}}
	c.Hosts = hosts
	return c
}

func TestDialTransport(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Host)
	}))
	defer origin.Close()
	port := origin.Listener.Addr().(*net.TCPAddr).Port
	d := newDialer(t, loopback([]int{port}, "127.0.0.1 shop.test"))
	var used *Conn
	tr := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err == nil {
			used = c.(*Conn)
		}
		return c, err
	}}
	defer tr.CloseIdleConnections()
	_, portText, _ := net.SplitHostPort(origin.Listener.Addr().String())
	resp, err := (&http.Client{Transport: tr}).Get("http://shop.test:" + portText + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if want := "127.0.0.1/32 (test origin)"; used.Exception() != want {
		t.Errorf("exception %q, want %q", used.Exception(), want)
	}
	if used.Remote().String() != origin.Listener.Addr().String() || len(used.Resolved()) != 1 {
		t.Errorf("remote %v, resolved %v", used.Remote(), used.Resolved())
	}
}
