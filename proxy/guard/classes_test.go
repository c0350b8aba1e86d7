package guard

import (
	"net/netip"
	"testing"
)

// TestTableOrder: no two rows of equal length overlap with different classes,
// and no row stands behind a wider one that hides it.
func TestTableOrder(t *testing.T) {
	for _, table := range [][]row{table4, table6} {
		for i, a := range table {
			pa := netip.MustParsePrefix(a.prefix)
			if pa != pa.Masked() {
				t.Errorf("%s has bits set behind the prefix", a.prefix)
			}
			for _, b := range table[i+1:] {
				pb := netip.MustParsePrefix(b.prefix)
				switch {
				case !pa.Overlaps(pb):
				case pa.Bits() == pb.Bits():
					t.Errorf("%s is both %s and %s", a.prefix, a.class, b.class)
				case pa.Bits() < pb.Bits():
					t.Errorf("%s (%s) hides %s (%s)", a.prefix, a.class, b.prefix, b.class)
				}
			}
		}
	}
}

// TestTableEdges: the first and the last address of every row have the class
// of the narrowest row around them, and the compiled rows agree with netip.
func TestTableEdges(t *testing.T) {
	for _, table := range [][]row{table4, table6} {
		for _, r := range table {
			p := netip.MustParsePrefix(r.prefix)
			for _, a := range []netip.Addr{p.Addr(), last(p)} {
				if got, want := Classify(a), slowClass(a); got != want {
					t.Errorf("%s: %s, want %s", a, got, want)
				}
			}
			for _, a := range []netip.Addr{p.Addr().Prev(), last(p).Next()} {
				if a.IsValid() {
					if got, want := Classify(a), slowClass(a); got != want {
						t.Errorf("%s: %s, want %s", a, got, want)
					}
				}
			}
		}
	}
}

// slowClass is Classify written with netip.Prefix, longest prefix first.
func slowClass(a netip.Addr) string {
	table := table6
	if a.Is4() {
		table = table4
	}
	class, bits := "", -1
	for _, r := range table {
		if p := netip.MustParsePrefix(r.prefix); p.Contains(a) && p.Bits() > bits {
			class, bits = r.class, p.Bits()
		}
	}
	switch b := a.As16(); {
	case class != "":
		return class
	case a.Is4():
		return Public
	case (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return ClassISATAP
	case !netip.MustParsePrefix("2000::/3").Contains(a):
		return ClassNotGlobal
	}
	return Public
}

// last is the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestClassifyInvalid(t *testing.T) {
	if got := Classify(netip.Addr{}); got != ClassInvalid {
		t.Errorf("class %s, want %s", got, ClassInvalid)
	}
}

func BenchmarkClassify(b *testing.B) {
	for _, s := range []string{"127.0.0.1", "93.184.215.14", "2606:4700::6810:84e5", "fe80::1"} {
		a := netip.MustParseAddr(s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Classify(a)
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	c := Defaults()
	c.AllowPrivate = []Exception{{Prefix: "10.20.30.0/24", Ports: []int{443}}, {Prefix: "127.0.0.1"}}
	c.Deny = []string{"93.184.216.0/24", "2a00:64::/32"}
	c.NAT64Prefixes = []string{"64:ff9b::/96"}
	d := newDialer(b, c)
	d.SetSelf(func() []netip.AddrPort {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:3128"), netip.MustParseAddrPort("[::]:443")}
	})
	for _, s := range []string{"93.184.215.14", "10.20.30.40", "192.168.0.1", "2606:4700::6810:84e5", "64:ff9b::5db8:d70e"} {
		a := netip.MustParseAddr(s)
		b.Run(s, func(b *testing.B) {
			self := d.selfNow()
			b.ReportAllocs()
			for b.Loop() {
				d.rules.check(self, a, 443)
			}
		})
	}
	h := Host{Name: "93.184.215.14", Addr: netip.MustParseAddr("93.184.215.14")}
	b.Run("CheckHost literal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := d.CheckHost(h, 443); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("CheckHost name", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := d.CheckHost(Host{Name: "docs.example.org"}, 443); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestNoAllocations holds the guard to its budget: judging allocates nothing.
func TestNoAllocations(t *testing.T) {
	d := newDialer(t, Defaults())
	four, six := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("2606:4700::6810:84e5")
	name := Host{Name: "docs.example.org"}
	if n := testing.AllocsPerRun(100, func() {
		Classify(four)
		Classify(six)
		d.rules.check(d.selfNow(), four, 443)
		_ = d.CheckHost(Host{Name: "93.184.215.14", Addr: four}, 443)
		_ = d.CheckHost(name, 443)
		_ = d.CheckPort(name, 443)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
