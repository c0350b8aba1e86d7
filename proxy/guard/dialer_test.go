package guard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"crawlgate/proxy/guard/dnstest"
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

// TestCloseWrite: a tunnel can end one direction and still read the other.
func TestCloseWrite(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		io.WriteString(c, "bye")
		got <- string(b)
	}()
	d := newDialer(t, loopback([]int{l.Addr().(*net.TCPAddr).Port}))
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	if err := c.(*Conn).CloseWrite(); err != nil {
		t.Error(err)
	}
	answer, err := io.ReadAll(c)
	if s := <-got; s != "hello" || string(answer) != "bye" || err != nil {
		t.Errorf("origin got %q, we got %q, %v", s, answer, err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := (&Conn{Conn: a}).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v, want errors.ErrUnsupported", err)
	}
}

// TestResolve: the same lookup and checks as a dial, in every spelling of a
// host, and nothing is dialled.
func TestResolve(t *testing.T) {
	s := dnstest.New(t, func(q dnstest.Question) dnstest.Reply {
		if q.Name == "wiki.example.net" {
			return dnstest.Reply{Addrs: addrs("93.184.215.14", "10.1.2.3")}
		}
		return dnstest.Reply{Addrs: addrs("93.184.215.14")}
	})
	d, f := withDNS(t, Defaults(), s.Addr)
	for _, c := range []struct {
		host  string
		port  uint16
		want  string
		addrs []netip.Addr
	}{
		{"www.example.net", 443, Public, addrs("93.184.215.14")},
		{"wiki.example.net", 443, ClassPrivate, nil},
		{"www.example.net", 22, classPort, nil},
		{"2606:4700::6810:84e5", 443, Public, addrs("2606:4700::6810:84e5")},
		{"[2606:4700::6810:84e5]", 443, Public, addrs("2606:4700::6810:84e5")},
		{"[::1]", 443, ClassLoopback, nil},
		{"fe80::1%eth0", 443, ClassZone, nil},
		{"a b", 443, classMalformed, nil},
		{"", 443, classMalformed, nil},
	} {
		got, err := d.Resolve(t.Context(), c.host, c.port)
		if classOf(err) != c.want || !slices.Equal(got, c.addrs) {
			t.Errorf("%q: %v, class %s, want %v, %s", c.host, got, classOf(err), c.addrs, c.want)
		}
		var denied *Denied
		if errors.As(err, &denied) && c.host == "wiki.example.net" && (len(denied.Resolved) != 2 || denied.Literal || denied.Addr != addrs("10.1.2.3")[0]) {
			t.Errorf("%q: %#v", c.host, denied)
		}
	}
	if got := f.dialled(); len(got) != 0 {
		t.Errorf("dialled %v", got)
	}
	for _, h := range []Host{{}, {Name: "*.example.com"}} {
		if got := classOf(d.CheckAnswers(h, 443, addrs("93.184.215.14"))); got != classMalformed {
			t.Errorf("%q: class %s, want %s", h.Name, got, classMalformed)
		}
	}
	one, _ := ParseHost("10.0.0.1")
	if got := classOf(d.CheckAnswers(one, 443, addrs("93.184.215.14"))); got != ClassPrivate {
		t.Errorf("class %s, want %s", got, ClassPrivate)
	}
}

// TestProxyEnvironment: the variables that send other programs through a proxy
// do not reroute the dialer.
func TestProxyEnvironment(t *testing.T) {
	forbidden := newCanary(t, "127.0.0.1:0")
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(v, "http://127.0.0.1:"+strconv.Itoa(int(forbidden.port)))
	}
	l, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := loopback(nil)
	c.AllowPrivate = []Exception{{Prefix: "127.0.0.2", Ports: []int{l.Addr().(*net.TCPAddr).Port}}}
	if err := dial(t, newDialer(t, c), l.Addr().String()); err != nil {
		t.Error(err)
	}
}
