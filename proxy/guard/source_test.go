package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// TestSourcePerDomain: all hosts of a registrable domain leave from one
// address, domains spread over all, and the choice does not depend on the order
// of the list.
func TestSourcePerDomain(t *testing.T) {
	list := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"}
	c := Defaults()
	c.SourceAddresses = list
	d := newDialer(t, c)
	c.SourceAddresses = []string{list[3], list[1], list[4], list[0], list[2]}
	other := newDialer(t, c)
	to := netip.MustParseAddr("93.184.215.14")
	used := map[netip.Addr]int{}
	for i := range 1000 {
		domain := fmt.Sprintf("site%d.co.uk", i)
		from := d.source(Host{Name: domain}, to)
		used[from]++
		for _, h := range []string{"www." + domain, "a.b." + domain} {
			if got := d.source(Host{Name: h}, to); got != from {
				t.Errorf("%s leaves from %s, %s from %s", h, got, domain, from)
			}
		}
		if got := other.source(Host{Name: domain}, to); got != from {
			t.Errorf("%s: the order of the list changes %s to %s", domain, from, got)
		}
	}
	for _, s := range list {
		if n := used[netip.MustParseAddr(s)]; n < 120 || n > 280 {
			t.Errorf("%s is used by %d of 1000 domains", s, n)
		}
	}
}

// TestSourceStays: one more address moves only the domains that it takes.
func TestSourceStays(t *testing.T) {
	c := Defaults()
	c.SourceAddresses = []string{"127.0.0.2", "127.0.0.3"}
	before := newDialer(t, c)
	c.SourceAddresses = append(c.SourceAddresses, "127.0.0.4")
	after := newDialer(t, c)
	to, added := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.4")
	for i := range 200 {
		h := Host{Name: fmt.Sprintf("site%d.example", i)}
		if a, b := before.source(h, to), after.source(h, to); b != a && b != added {
			t.Errorf("%s moved from %s to %s", h.Name, a, b)
		}
	}
}

// TestSourceFamily: an address is left from one of its own family.
func TestSourceFamily(t *testing.T) {
	d := newDialer(t, Defaults())
	h := Host{Name: "www.example.net"}
	if got := d.source(h, netip.MustParseAddr("93.184.215.14")); got.IsValid() {
		t.Errorf("without a list: %s", got)
	}
	d.sources = addrs("127.0.0.2", "127.0.0.3", "::1", "2a00:64::7")
	for _, to := range addrs("93.184.215.14", "2606:4700::6810:84e5") {
		for i := range 20 {
			if got := d.source(Host{Name: fmt.Sprintf("site%d.example", i)}, to); got.Is4() != to.Is4() {
				t.Errorf("to %s from %s", to, got)
			}
		}
	}
	for family, list := range map[string][]netip.Addr{
		"both": addrs("127.0.0.2", "::1"), "ipv4": addrs("127.0.0.2"), "ipv6": addrs("::1"),
	} {
		if got := effectiveFamily("both", list); got != family {
			t.Errorf("%v: family %s, want %s", list, got, family)
		}
	}
	if got := effectiveFamily("ipv6", nil); got != "ipv6" {
		t.Errorf("family %s, want ipv6", got)
	}
}

// TestSourceDial: the connection really leaves from the chosen address, and a
// family without a source address is not used.
func TestSourceDial(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	c := loopback([]int{port}, "127.0.0.1 shop.test", "::1 shop.test", "::1 six.test")
	c.AllowPrivate = append(c.AllowPrivate, Exception{Prefix: "::1", Ports: []int{port}})
	c.SourceAddresses = []string{"127.0.0.9"}
	d := newDialer(t, c)
	conn, err := d.DialContext(t.Context(), "tcp", "shop.test:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.LocalAddr().String(); !strings.HasPrefix(got, "127.0.0.9:") {
		t.Errorf("left from %s", got)
	}
	if got := classOf(dial(t, d, "six.test:"+strconv.Itoa(port))); got != classDNSNoAddress {
		t.Errorf("class %s, want %s", got, classDNSNoAddress)
	}
	if got := classOf(dial(t, d, "[::1]:"+strconv.Itoa(port))); got != classDNSNoAddress {
		t.Errorf("class %s, want %s", got, classDNSNoAddress)
	}
}

// TestForeignSource: an address that the machine does not have stops the start.
func TestForeignSource(t *testing.T) {
	c := Defaults()
	c.SourceAddresses = []string{"127.0.0.2", "192.0.2.77"}
	_, err := New(c, nil)
	if err == nil {
		t.Fatal("no error")
	}
	var key interface{ Key() string }
	if !errors.As(err, &key) || key.Key() != "source_addresses" || err.Error() != "this machine does not have the address 192.0.2.77" {
		t.Errorf("error %v", err)
	}
}
