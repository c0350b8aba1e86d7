package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

const (
	typeA    = dnsmessage.TypeA
	typeAAAA = dnsmessage.TypeAAAA
)

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, s := range list {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

// fakeDial records what would be dialled and gives one end of a pipe.
type fakeDial struct {
	mu  sync.Mutex
	got []string
}

func (f *fakeDial) dial(_ context.Context, t target) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, t.to.String())
	c, _ := net.Pipe()
	return c, nil
}

func (f *fakeDial) dialled() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// canary is a listener that nobody may reach.
type canary struct {
	port uint16
}

func newCanary(t *testing.T, address string) *canary {
	t.Helper()
	l, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{port: l.Addr().(*net.TCPAddr).AddrPort().Port()}
	t.Cleanup(func() {
		// The kernel completes connections before Accept. The first one in the
		// queue must be the one that the test makes now.
		own, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		first, err := l.Accept()
		if err != nil {
			t.Error(err)
		} else if got, want := first.RemoteAddr().String(), own.LocalAddr().String(); got != want {
			t.Errorf("the canary was reached from %s", got)
		}
		own.Close()
		l.Close()
	})
	return c
}

// withDNS is a dialer that asks the server, with a fake dial.
func withDNS(t *testing.T, c Config, servers ...string) (*Dialer, *fakeDial) {
	t.Helper()
	c.DNS = servers
	d := newDialer(t, c)
	f := &fakeDial{}
	d.dialAddr = f.dial
	return d, f
}

func dial(t *testing.T, d *Dialer, address string) error {
	t.Helper()
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err == nil {
		c.Close()
	}
	return err
}

// TestRebinding: the first answer leads to an open origin, the second to a
// forbidden one, both on real sockets. One lookup a dial, and the canary
// stays untouched.
func TestRebinding(t *testing.T) {
	forbidden := newCanary(t, "127.0.0.1:0")
	port := strconv.Itoa(int(forbidden.port))
	origin, err := net.Listen("tcp4", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	var asked atomic.Int32
	s := dnstest.New(t, func(q dnstest.Question) dnstest.Reply {
		if q.Type != typeA {
			return dnstest.Reply{}
		}
		if asked.Add(1) == 1 {
			return dnstest.Reply{Addrs: addrs("127.0.0.2")}
		}
		return dnstest.Reply{Addrs: addrs("127.0.0.1")}
	})
	conf := Defaults()
	conf.AllowPrivate = []Exception{{Prefix: "127.0.0.2", Ports: []int{int(forbidden.port)}}}
	conf.Ports = []int{int(forbidden.port)}
	conf.DNS = []string{s.Addr}
	d := newDialer(t, conf)
	c, err := d.DialContext(t.Context(), "tcp", "rebind.example.net:"+port)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.RemoteAddr().String(); got != "127.0.0.2:"+port {
		t.Errorf("connected to %s", got)
	}
	c.Close()
	for range 2 {
		if got := classOf(dial(t, d, "rebind.example.net:"+port)); got != ClassLoopback {
			t.Errorf("class %s, want %s", got, ClassLoopback)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("%d lookups for 3 dials", n)
	}
}

// TestHookRefuses: even when the check before the dial is left out, the socket
// hook does not let a forbidden address through.
func TestHookRefuses(t *testing.T) {
	forbidden := newCanary(t, "127.0.0.1:0")
	conf := Defaults()
	conf.Ports = []int{int(forbidden.port)}
	d := newDialer(t, conf)
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), forbidden.port)
	for _, from := range addrs("127.0.0.1", "127.0.0.3") {
		_, err := d.dialChecked(t.Context(), target{host: Host{Name: "www.example.net"}, to: to, from: from})
		var denied *Denied
		if !errors.As(err, &denied) || denied.Class != ClassLoopback {
			t.Errorf("error %v, want a *Denied of class %s", err, ClassLoopback)
		}
	}
	// What the race returns is the refusal itself, not a failed connection.
	_, _, err := d.dialAny(t.Context(), Host{Name: "www.example.net"}, forbidden.port, []checked{{addr: to.Addr()}})
	if got := classOf(err); got != ClassLoopback {
		t.Errorf("class %s, want %s", got, ClassLoopback)
	}
}

func TestHookWantsTCP(t *testing.T) {
	d := newDialer(t, Defaults())
	hook := d.control(target{host: Host{Name: "www.example.net"}})
	for _, c := range []struct {
		network, address string
		want             string
	}{
		{"tcp4", "93.184.215.14:443", ""},
		{"tcp6", "[2606:4700::6810:84e5]:443", ""},
		{"tcp6", "[::ffff:93.184.215.14]:443", ""},
		{"tcp", "93.184.215.14:443", "unsupported"},
		{"udp4", "93.184.215.14:443", "unsupported"},
		{"unix", "/run/x.sock", "unsupported"},
		{"ip4:icmp", "93.184.215.14", "unsupported"},
		{"tcp4", "10.0.0.1:443", ClassPrivate},
		{"tcp4", "93.184.215.14:22", classPort},
		{"tcp6", "[::ffff:10.0.0.1]:443", ClassPrivate},
		{"tcp6", "[fe80::1%eth0]:443", ClassZone},
		{"tcp4", "www.example.net:443", ClassInvalid},
		{"tcp4", "93.184.215.14:https", ClassInvalid},
		{"tcp4", "93.184.215.14", ClassInvalid},
	} {
		err := hook(t.Context(), c.network, c.address, nil)
		got := ""
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			got = "unsupported"
		case err != nil:
			got = classOf(err)
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.network, c.address, got, c.want)
		}
	}
}

// TestAnswers runs a dial against a real DNS server for each kind of answer.
func TestAnswers(t *testing.T) {
	good6 := "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
	for _, c := range []struct {
		name    string
		reply   func(q dnstest.Question) dnstest.Reply
		conf    func(*Config)
		want    string // class
		rcode   string
		missing bool
		dialled string
	}{
		{
			name:  "public",
			reply: reply(dnstest.Reply{Addrs: addrs("93.184.215.14")}), want: Public, dialled: "93.184.215.14:443",
		},
		{
			name:  "mixed families",
			reply: reply(dnstest.Reply{Addrs: addrs("93.184.215.14", "::1")}), want: ClassLoopback,
		},
		{
			name:  "mixed in one family",
			reply: reply(dnstest.Reply{Addrs: addrs("93.184.215.14", "10.1.2.3")}), want: ClassPrivate,
		},
		{
			name:  "metadata last of many",
			reply: reply(dnstest.Reply{Addrs: addrs("93.184.215.14", "93.184.215.15", "93.184.215.16", "169.254.169.254")}), want: ClassMetadata,
		},
		{
			name:  "mapped in AAAA",
			reply: reply(dnstest.Reply{Addrs: addrs("::ffff:127.0.0.1")}), want: ClassLoopback,
		},
		{
			name:  "mapped public in AAAA",
			reply: reply(dnstest.Reply{Addrs: addrs("::ffff:93.184.215.14")}), want: Public, dialled: "93.184.215.14:443",
		},
		{
			name:  "aliases to a public address",
			reply: reply(dnstest.Reply{CNAME: []string{"a.example.org", "b.example.com"}, Addrs: addrs("93.184.215.14")}), want: Public, dialled: "93.184.215.14:443",
		},
		{
			name:  "aliases to a private address",
			reply: reply(dnstest.Reply{CNAME: []string{"a.example.org", "metadata.google.internal"}, Addrs: addrs("169.254.169.254")}), want: ClassMetadata,
		},
		{
			name: "alias without address", want: classDNSNoAddress, missing: true,
			reply: reply(dnstest.Reply{CNAME: []string{"a.example.org"}}),
		},
		{
			name: "truncated, then over TCP", want: ClassPrivate,
			reply: reply(dnstest.Reply{Truncate: true, Addrs: addrs("10.1.2.3")}),
		},
		{
			name: "no such name", want: classDNSError, rcode: "NXDOMAIN", missing: true,
			reply: reply(dnstest.Reply{RCode: dnsmessage.RCodeNameError}),
		},
		{
			name: "no address", want: classDNSNoAddress, missing: true,
			reply: reply(dnstest.Reply{}),
		},
		{
			name: "server failure", want: classDNSError, rcode: "SERVFAIL",
			reply: reply(dnstest.Reply{RCode: dnsmessage.RCodeServerFailure}),
		},
		{
			name: "refused", want: classDNSError, rcode: "REFUSED",
			reply: reply(dnstest.Reply{RCode: dnsmessage.RCodeRefused}),
		},
		{
			name: "silence", want: classDNSTimeout,
			reply: reply(dnstest.Reply{Drop: true}),
			conf:  func(c *Config) { c.DNSTimeout = 150 * time.Millisecond },
		},
		{
			name: "A alone when AAAA fails", want: Public, dialled: "93.184.215.14:443",
			reply: func(q dnstest.Question) dnstest.Reply {
				if q.Type == typeAAAA {
					return dnstest.Reply{RCode: dnsmessage.RCodeServerFailure}
				}
				return dnstest.Reply{Addrs: addrs("93.184.215.14")}
			},
		},
		{
			name: "family ipv6 only", want: Public, dialled: "[" + good6 + "]:443",
			reply: reply(dnstest.Reply{Addrs: addrs("93.184.215.14", good6)}),
			conf:  func(c *Config) { c.Family = "ipv6" },
		},
		{
			name: "NAT64 without setting", want: ClassNAT64,
			reply: reply(dnstest.Reply{Addrs: addrs("64:ff9b::5db8:d70e")}),
		},
		{
			name: "NAT64 with setting", want: Public, dialled: "[64:ff9b::5db8:d70e]:443",
			reply: reply(dnstest.Reply{Addrs: addrs("64:ff9b::5db8:d70e")}),
			conf:  func(c *Config) { c.NAT64Prefixes = []string{"64:ff9b::/96"} },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dnstest.New(t, c.reply)
			conf := Defaults()
			if c.conf != nil {
				c.conf(&conf)
			}
			d, f := withDNS(t, conf, s.Addr)
			err := dial(t, d, "www.example.net:443")
			if got := classOf(err); got != c.want {
				t.Errorf("class %s, want %s", got, c.want)
			}
			var re *ResolveError
			if errors.As(err, &re) && (re.RCode != c.rcode || re.NotFound != c.missing) {
				t.Errorf("rcode %q, not found %v, want %q, %v", re.RCode, re.NotFound, c.rcode, c.missing)
			}
			var want []string
			if c.dialled != "" {
				want = []string{c.dialled}
			}
			if got := f.dialled(); !slices.Equal(got, want) {
				t.Errorf("dialled %v, want %v", got, want)
			}
			for _, q := range s.Questions() {
				if q.Name != "www.example.net" {
					t.Errorf("asked for %q: a search list was used", q.Name)
				}
			}
		})
	}
}

func reply(r dnstest.Reply) func(dnstest.Question) dnstest.Reply {
	return func(dnstest.Question) dnstest.Reply { return r }
}

// TestTruncatedUsesTCP: the second question goes over TCP, to the same server.
func TestTruncatedUsesTCP(t *testing.T) {
	s := dnstest.New(t, reply(dnstest.Reply{Truncate: true, Addrs: addrs("93.184.215.14")}))
	conf := Defaults()
	conf.Family = "ipv4"
	d, f := withDNS(t, conf, s.Addr)
	if err := dial(t, d, "www.example.net:443"); err != nil {
		t.Fatal(err)
	}
	want := []dnstest.Question{{Name: "www.example.net", Type: typeA, Network: "udp"}, {Name: "www.example.net", Type: typeA, Network: "tcp"}}
	if got := s.Questions(); !slices.Equal(got, want) {
		t.Errorf("questions %v, want %v", got, want)
	}
	if len(f.dialled()) != 1 {
		t.Errorf("dialled %v", f.dialled())
	}
}

// TestOneLookupPerDial: with a TTL of 0 each dial asks once for each family.
func TestOneLookupPerDial(t *testing.T) {
	s := dnstest.New(t, reply(dnstest.Reply{Addrs: addrs("93.184.215.14"), TTL: 0}))
	d, f := withDNS(t, Defaults(), s.Addr)
	for n := 1; n <= 3; n++ {
		if err := dial(t, d, "www.example.net:443"); err != nil {
			t.Fatal(err)
		}
		if a, aaaa := s.Count("www.example.net", typeA), s.Count("www.example.net", typeAAAA); a != n || aaaa != n {
			t.Errorf("after %d dials: %d A and %d AAAA questions", n, a, aaaa)
		}
	}
	if got := f.dialled(); len(got) != 3 {
		t.Errorf("dialled %v", got)
	}
}

// TestNoLookup: what the rules settle by themselves never reaches DNS.
func TestNoLookup(t *testing.T) {
	s := dnstest.New(t, reply(dnstest.Reply{Addrs: addrs("93.184.215.14")}))
	conf := Defaults()
	conf.Hosts = []string{"93.184.215.14 shop.test Static.Example.", "10.1.2.3 wiki.internal  # a comment"}
	d, f := withDNS(t, conf, s.Addr)
	for _, c := range []struct{ address, want string }{
		{"shop.test:443", Public},
		{"static.example:80", Public},
		{"wiki.internal:443", ClassPrivate},
		{"other.internal:443", classSpecialUse},
		{"localhost:80", classSpecialUse},
		{"intranet:80", classSingleLabel},
		{"93.184.215.14:443", Public},
		{"[2606:4700::6810:84e5]:443", Public},
		{"127.0.0.1:80", ClassLoopback},
		{"[::1]:80", ClassLoopback},
		{"[fe80::1%eth0]:80", ClassZone},
		{"127.1:80", classAmbiguous},
		{"www.example.net:22", classPort},
		{"www.example.net:0", classPort},
		{"www.example.net:x", classMalformed},
		{"www.example.net", classMalformed},
		{"a b.example.net:80", classMalformed},
	} {
		if got := classOf(dial(t, d, c.address)); got != c.want {
			t.Errorf("%s: class %s, want %s", c.address, got, c.want)
		}
	}
	if got := s.Questions(); len(got) != 0 {
		t.Errorf("asked %v", got)
	}
	if got := d.Static("static.example"); !slices.Equal(got, addrs("93.184.215.14")) {
		t.Errorf("static addresses %v", got)
	}
	want := []string{"93.184.215.14:443", "93.184.215.14:80", "93.184.215.14:443", "[2606:4700::6810:84e5]:443"}
	if got := f.dialled(); !slices.Equal(got, want) {
		t.Errorf("dialled %v, want %v", got, want)
	}
}

// TestNextServer: a silent or failing server is passed over, its "no such
// name" is believed.
func TestNextServer(t *testing.T) {
	good := dnstest.New(t, reply(dnstest.Reply{Addrs: addrs("93.184.215.14")}))
	for _, c := range []struct {
		name  string
		first dnstest.Reply
		want  string
	}{
		{"silent", dnstest.Reply{Drop: true}, Public},
		{"failing", dnstest.Reply{RCode: dnsmessage.RCodeServerFailure}, Public},
		{"no such name", dnstest.Reply{RCode: dnsmessage.RCodeNameError}, classDNSError},
		{"forbidden address", dnstest.Reply{Addrs: addrs("10.0.0.1")}, ClassPrivate},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := dnstest.New(t, reply(c.first))
			conf := Defaults()
			conf.DNSTimeout = 600 * time.Millisecond
			d, _ := withDNS(t, conf, first.Addr, good.Addr)
			if got := classOf(dial(t, d, "www.example.net:443")); got != c.want {
				t.Errorf("class %s, want %s", got, c.want)
			}
		})
	}
}

// TestCallerLeaves: a cancelled caller gets its own error, not a verdict.
func TestCallerLeaves(t *testing.T) {
	asked := make(chan struct{}, 16)
	s := dnstest.New(t, func(dnstest.Question) dnstest.Reply {
		asked <- struct{}{}
		return dnstest.Reply{Drop: true}
	})
	d, f := withDNS(t, Defaults(), s.Addr)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := d.DialContext(ctx, "tcp", "www.example.net:443")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if len(f.dialled()) != 0 {
		t.Errorf("dialled %v", f.dialled())
	}
}

// TestOverlap: dials of one name at one time do not share a lookup.
func TestOverlap(t *testing.T) {
	s := dnstest.New(t, reply(dnstest.Reply{Addrs: addrs("93.184.215.14"), Delay: 50 * time.Millisecond}))
	d, f := withDNS(t, Defaults(), s.Addr)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := dial(t, d, "www.example.net:443"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.Count("www.example.net", typeA); n != 8 {
		t.Errorf("%d lookups for 8 dials", n)
	}
	if got := f.dialled(); len(got) != 8 {
		t.Errorf("dialled %v", got)
	}
}

// TestLostDatagram: a question without an answer is sent again within the time
// of one lookup.
func TestLostDatagram(t *testing.T) {
	var mu sync.Mutex
	lost := map[dnsmessage.Type]bool{}
	s := dnstest.New(t, func(q dnstest.Question) dnstest.Reply {
		mu.Lock()
		defer mu.Unlock()
		first := !lost[q.Type]
		lost[q.Type] = true
		return dnstest.Reply{Drop: first, Addrs: addrs("93.184.215.14")}
	})
	conf := Defaults()
	conf.DNSTimeout = time.Second
	d, _ := withDNS(t, conf, s.Addr)
	if got := classOf(dial(t, d, "www.example.net:443")); got != Public {
		t.Errorf("class %s, want %s", got, Public)
	}
	if a, aaaa := s.Count("www.example.net", typeA), s.Count("www.example.net", typeAAAA); a != 2 || aaaa != 2 {
		t.Errorf("%d A and %d AAAA questions", a, aaaa)
	}
}

// TestSystemServer: without egress.dns the address and the network come from
// the system's configuration.
func TestSystemServer(t *testing.T) {
	s := dnstest.New(t, reply(dnstest.Reply{}))
	for _, network := range []string{"udp", "tcp"} {
		c, err := (&asked{}).dial(t.Context(), network, s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RemoteAddr(); got.String() != s.Addr || got.Network() != network {
			t.Errorf("connected to %v over %s", got, got.Network())
		}
		c.Close()
	}
	if got := newResolver(nil, "both").servers; !slices.Equal(got, []string{""}) {
		t.Errorf("servers %q", got)
	}
}

// TestHyphens: Go's resolver knows no label that begins or ends with a hyphen.
// Such a host is not found, and no server is said to have said so.
func TestHyphens(t *testing.T) {
	s := dnstest.New(t, reply(dnstest.Reply{Addrs: addrs("93.184.215.14")}))
	d, _ := withDNS(t, Defaults(), s.Addr)
	var re *ResolveError
	if err := dial(t, d, "-a.example.net:443"); !errors.As(err, &re) || re.Class != classDNSError || !re.NotFound || re.RCode != "" {
		t.Errorf("error %#v", err)
	}
}
