package dnstest_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

func resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
}

func TestStart(t *testing.T) {
	four, six := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	server := dnstest.Start(t, func(name string, qtype dnsmessage.Type) []netip.Addr {
		if name != "shop.example" {
			return nil
		}
		return []netip.Addr{four, six}
	})
	for network, want := range map[string]netip.Addr{"ip4": netip.AddrFrom16(four.As16()), "ip6": six} {
		got, err := resolver(server).LookupNetIP(t.Context(), network, "SHOP.example.")
		if err != nil || len(got) != 1 || got[0].Unmap() != want.Unmap() {
			t.Errorf("%s: %v, %v", network, got, err)
		}
	}
	if _, err := resolver(server).LookupNetIP(t.Context(), "ip", "other.example."); err == nil {
		t.Error("other.example resolved")
	}
}

func TestReply(t *testing.T) {
	s := dnstest.New(t, func(dnstest.Question) dnstest.Reply {
		return dnstest.Reply{Truncate: true, CNAME: []string{"b.example"}, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, TTL: 60}
	})
	if name, err := resolver(s.Addr).LookupCNAME(t.Context(), "shop.example."); err != nil || name != "b.example." {
		t.Errorf("alias %q, %v", name, err)
	}
	q := dnstest.Question{Name: "shop.example", Type: dnsmessage.TypeA, Network: "tcp"}
	if !slices.Contains(s.Questions(), q) || s.Count("shop.example", dnsmessage.TypeA) != 2 {
		t.Errorf("questions %v", s.Questions())
	}
}

func TestPTR(t *testing.T) {
	s := dnstest.New(t, func(q dnstest.Question) dnstest.Reply {
		if q.Type != dnsmessage.TypePTR || q.Name != "5.113.0.203.in-addr.arpa" {
			return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
		}
		return dnstest.Reply{PTR: []string{"crawl-5.bot.example", "other.example."}}
	})
	names, err := resolver(s.Addr).LookupAddr(t.Context(), "203.0.113.5")
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"crawl-5.bot.example.", "other.example."}) {
		t.Errorf("%v %v", names, err)
	}
	if names, err := resolver(s.Addr).LookupAddr(t.Context(), "203.0.113.6"); err == nil {
		t.Errorf("%v", names)
	}
}
