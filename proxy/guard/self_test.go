package guard

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func ap(list ...string) []netip.AddrPort {
	out := make([]netip.AddrPort, len(list))
	for i, s := range list {
		out[i] = netip.MustParseAddrPort(s)
	}
	return out
}

// ourAddresses are the interfaces of the machine in these tests.
func ourAddresses() ([]net.Addr, error) {
	var out []net.Addr
	for _, s := range []string{"127.0.0.1/8", "::1/128", "10.9.8.7/24", "fe80::5/64", "2a00:64::7/64"} {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			return nil, err
		}
		out = append(out, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	return out, nil
}

// everything opens so much that only self and deny can refuse.
func everything() Config {
	c := Defaults()
	c.Ports = []int{80, 443, 3128, 3129}
	c.AllowPrivate = []Exception{{Prefix: "127.0.0.0/8"}, {Prefix: "10.0.0.0/8"}, {Prefix: "0.0.0.0/8"}, {Prefix: "::/16"}, {Prefix: "fe80::/16"}}
	return c
}

func TestSelf(t *testing.T) {
	for _, c := range []struct {
		name      string
		listeners []netip.AddrPort
		extra     []string
		nat64     []string
		is, isNot []string
	}{
		{
			name: "loopback listener", listeners: ap("127.0.0.1:3128"),
			is:    []string{"127.0.0.1:3128", "[::ffff:127.0.0.1]:3128", "0.0.0.0:3128", "[::]:3128"},
			isNot: []string{"127.0.0.1:3129", "127.0.0.2:3128", "10.9.8.7:3128", "[::1]:3128"},
		},
		{
			name: "wildcard listener", listeners: ap("0.0.0.0:3128", "127.0.0.1:3129"),
			is:    []string{"127.0.0.1:3128", "127.99.0.1:3128", "10.9.8.7:3128", "[::1]:3128", "[2a00:64::7]:3128", "0.0.0.0:3128", "127.0.0.1:3129"},
			isNot: []string{"10.9.8.6:3128", "10.9.8.7:3129", "127.0.0.1:80"},
		},
		{
			name: "wildcard listener, IPv6", listeners: ap("[::]:3128"),
			is:    []string{"127.0.0.1:3128", "10.9.8.7:3128", "[fe80::5]:3128", "[::]:3128", "0.0.0.0:3128", "[::ffff:10.9.8.7]:3128"},
			isNot: []string{"[fe80::6]:3128"},
		},
		{
			name: "NAT hairpin", listeners: ap("10.9.8.7:3128"), extra: []string{"93.184.215.14", "93.184.215.15:443"},
			is:    []string{"93.184.215.14:3128", "93.184.215.15:443", "10.9.8.7:3128"},
			isNot: []string{"93.184.215.14:443", "93.184.215.15:3128", "10.9.8.7:443"},
		},
		{
			name: "through NAT64", listeners: ap("93.184.215.14:443"), nat64: []string{"64:ff9b::/96"},
			is:    []string{"[64:ff9b::5db8:d70e]:443", "93.184.215.14:443"},
			isNot: []string{"[64:ff9b::5db8:d70f]:443"},
		},
		{name: "no listener", isNot: []string{"127.0.0.1:3128", "10.9.8.7:80"}},
		{name: "listener without address", listeners: []netip.AddrPort{{}}, isNot: []string{"127.0.0.1:3128"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := everything()
			conf.SelfAddresses, conf.NAT64Prefixes = c.extra, c.nat64
			d := newDialer(t, conf)
			d.interfaces = ourAddresses
			d.SetSelf(func() []netip.AddrPort { return c.listeners })
			for _, s := range c.is {
				if got := classAt(d, s); got != ClassSelf {
					t.Errorf("%s: class %s, want %s", s, got, ClassSelf)
				}
			}
			for _, s := range c.isNot {
				if got := classAt(d, s); got != Public {
					t.Errorf("%s: class %s, want %s", s, got, Public)
				}
			}
		})
	}
}

func classAt(d *Dialer, address string) string {
	at := netip.MustParseAddrPort(address)
	return classOf(d.CheckHost(hostOf(at.Addr()), at.Port()))
}

// TestSelfOnPort: a request to our own listener is a loop, also where its port
// is not open.
func TestSelfOnPort(t *testing.T) {
	c := Defaults()
	c.Hosts = []string{"127.0.0.1 me.test"}
	d := newDialer(t, c)
	d.SetSelf(func() []netip.AddrPort { return ap("127.0.0.1:3128") })
	for _, h := range []string{"127.0.0.1", "me.test"} {
		host, err := ParseHost(h)
		if err != nil {
			t.Fatal(err)
		}
		if got := classOf(d.CheckPort(host, 3128)); got != ClassSelf {
			t.Errorf("%s: class %s, want %s", h, got, ClassSelf)
		}
		if got := classOf(d.CheckPort(host, 3129)); got != classPort {
			t.Errorf("%s: class %s, want %s", h, got, classPort)
		}
		if got := classOf(d.CheckPort(host, 80)); got != Public {
			t.Errorf("%s: class %s, want %s", h, got, Public)
		}
	}
}

// TestSelfRefresh: listeners and interfaces are read again each minute, by one
// caller.
func TestSelfRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(t, everything())
		var own atomic.Pointer[[]netip.AddrPort]
		first, second := ap("127.0.0.1:3128"), ap("0.0.0.0:3129")
		own.Store(&first)
		calls := 0
		d.interfaces = ourAddresses
		d.SetSelf(func() []netip.AddrPort { calls++; return *own.Load() })
		own.Store(&second)
		if got := classAt(d, "10.9.8.7:3129"); got != Public {
			t.Errorf("class %s, want %s", got, Public)
		}
		time.Sleep(selfRefresh)
		if got := classAt(d, "10.9.8.7:3129"); got != ClassSelf {
			t.Errorf("class %s, want %s", got, ClassSelf)
		}
		if got := classAt(d, "127.0.0.1:3128"); got != Public {
			t.Errorf("class %s, want %s", got, Public)
		}
		if calls != 2 {
			t.Errorf("listeners were asked %d times", calls)
		}
	})
}

// TestSelfBlind: when the interfaces cannot be read, the port of a wildcard
// listener is closed everywhere.
func TestSelfBlind(t *testing.T) {
	d := newDialer(t, everything())
	d.interfaces = func() ([]net.Addr, error) { return nil, errors.New("no netlink") }
	d.SetSelf(func() []netip.AddrPort { return ap("0.0.0.0:3128", "127.0.0.1:3129") })
	for s, want := range map[string]string{
		"10.9.8.7:3128": ClassSelf, "93.184.215.14:3128": ClassSelf, "127.0.0.1:3129": ClassSelf,
		"10.9.8.7:3129": Public, "93.184.215.14:443": Public,
	} {
		if got := classAt(d, s); got != want {
			t.Errorf("%s: class %s, want %s", s, got, want)
		}
	}
}
