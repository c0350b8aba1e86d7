package guard

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seed adds the inputs of the host vectors of the given kinds and the hosts of
// the address vectors.
func seed(f *testing.F, kinds ...string) {
	for _, c := range readVectors[hostCase](f, "hosts.json") {
		for _, k := range kinds {
			if c.Kind == k {
				f.Add(c.Input)
			}
		}
	}
	for _, c := range readVectors[addressCase](f, "addresses.json") {
		if c.Kind == "host" {
			f.Add(strings.Trim(string(c.Input), `"`))
		}
	}
}

// checkCanonical wants a host to be in the one spelling that parses to itself.
func checkCanonical(t *testing.T, h Host) {
	t.Helper()
	again, err := ParseHost(h.Name)
	if err != nil || again != h {
		t.Errorf("%#v parses again to %#v, %v", h, again, err)
	}
	if h.Name != strings.ToLower(h.Name) || !isASCII(h.Name) || strings.HasSuffix(h.Name, ".") || len(h.Name) > maxName {
		t.Errorf("%q is not canonical", h.Name)
	}
	text := strings.Trim(h.Name, "[]")
	a, err := netip.ParseAddr(text)
	if h.IsLiteral() != (err == nil) {
		t.Errorf("%q: literal is %v", h.Name, h.IsLiteral())
	}
	if h.IsLiteral() && (a != h.Addr || h.Addr.Is4In6() || h.Addr.Zone() != "" || h.Addr.Is6() != strings.HasPrefix(h.Name, "[")) {
		t.Errorf("%q: address %v", h.Name, h.Addr)
	}
}

func FuzzParseHost(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw string) {
		h, err := ParseHost(raw)
		if err != nil {
			checkTyped(t, err)
			return
		}
		checkCanonical(t, h)
	})
}

func checkTyped(t *testing.T, err error) {
	t.Helper()
	if c := classOf(err); c == "" || strings.HasPrefix(c, "untyped") {
		t.Errorf("error %v has no class", err)
	}
}

func FuzzParseAuthority(f *testing.F) {
	seed(f, "connect")
	f.Fuzz(func(t *testing.T, raw string) {
		for _, defaultPort := range []uint16{0, 443} {
			h, port, err := ParseAuthority(raw, defaultPort)
			if err != nil {
				checkTyped(t, err)
				continue
			}
			checkCanonical(t, h)
			if port == 0 {
				t.Errorf("%q: port 0", raw)
			}
			h2, port2, err := ParseAuthority(h.Key(port), 0)
			if err != nil || h2 != h || port2 != port {
				t.Errorf("%q: key %q parses to %v %d, %v", raw, h.Key(port), h2, port2, err)
			}
		}
	})
}

// FuzzParseURL wants a stable normal form on whose host net/url agrees: no
// other reader of the same text may see another host.
func FuzzParseURL(f *testing.F) {
	seed(f, "url")
	f.Fuzz(func(t *testing.T, raw string) {
		u, h, port, err := ParseURL(raw)
		if err != nil {
			checkTyped(t, err)
			return
		}
		checkCanonical(t, h)
		again, h2, port2, err := ParseURL(u.String())
		if err != nil || h2 != h || port2 != port || again.String() != u.String() || *again != *u {
			t.Errorf("%q: %q parses again to %v, %v", raw, u, again, err)
		}
		std, err := url.Parse(u.String())
		if err != nil || std.Host != u.Host || std.User != nil || std.Fragment != "" || std.EscapedPath() != u.EscapedPath() || std.RawQuery != u.RawQuery {
			t.Errorf("%q: net/url reads %q as %#v, %v", raw, u, std, err)
		}
		if std, err := url.Parse(raw); err == nil {
			name := strings.TrimSuffix(strings.ToLower(std.Hostname()), ".")
			if a, err := netip.ParseAddr(name); err == nil {
				name = strings.Trim(hostOf(a).Name, "[]")
			}
			if name != strings.Trim(h.Name, "[]") {
				t.Errorf("%q: host %q, net/url says %q", raw, h.Name, name)
			}
		}
		if !strings.HasPrefix(u.EscapedPath(), "/") {
			t.Errorf("%q: path %q", raw, u.EscapedPath())
		}
	})
}

func FuzzConfigHost(f *testing.F) {
	seed(f, "config")
	f.Fuzz(func(t *testing.T, raw string) {
		h, err := ConfigHost(raw)
		if err != nil {
			checkTyped(t, err)
			return
		}
		again, err := ConfigHost(h.Name)
		if err != nil || again != h {
			t.Errorf("%q: %#v parses again to %#v, %v", raw, h, again, err)
		}
		if name, wild := strings.CutPrefix(h.Name, "*."); wild {
			h.Name = name
		}
		checkCanonical(t, h)
	})
}

// FuzzClassify compares the compiled table with the same table read by
// net/netip, longest prefix first.
func FuzzClassify(f *testing.F) {
	for _, table := range [][]row{table4, table6} {
		for _, r := range table {
			p := netip.MustParsePrefix(r.prefix)
			f.Add(p.Addr().AsSlice())
			f.Add(last(p).AsSlice())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		got := Classify(a)
		if want := slowClass(a.Unmap()); got != want {
			t.Errorf("%s: %s, want %s", a, got, want)
		}
		if mapped := Classify(netip.AddrFrom16(a.As16())); mapped != got {
			t.Errorf("%s: %s, mapped %s", a, got, mapped)
		}
		if a.Is6() && Classify(a.WithZone("eth0")) != ClassZone && !a.Is4In6() {
			t.Errorf("%s with a zone: %s", a, Classify(a.WithZone("eth0")))
		}
		// Nothing that the standard library knows as special is public.
		u := a.Unmap()
		if got == Public && (u.IsLoopback() || u.IsPrivate() || u.IsMulticast() || u.IsUnspecified() || u.IsLinkLocalUnicast() || !u.IsGlobalUnicast()) {
			t.Errorf("%s is public", a)
		}
	})
}

// TestNormalisationIsIdempotent: normalising twice is normalising once, for
// hosts and URLs put together from pieces that matter.
func TestNormalisationIsIdempotent(t *testing.T) {
	label := rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9_-]{1,8}`),
		rapid.SampledFrom([]string{"127", "0x7f", "0", "xn--bcher-kva", "LOCALHOST", "com", "test", "b\u00fccher", "\uff11", ""}),
	)
	name := rapid.Custom(func(t *rapid.T) string {
		dot := rapid.SampledFrom([]string{"", "", "", "."}).Draw(t, "dot")
		return strings.Join(rapid.SliceOfN(label, 1, 5).Draw(t, "labels"), ".") + dot
	})
	literal := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "v4") {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "b"))).String()
		}
		a := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "b")))
		return "[" + rapid.SampledFrom([]string{a.String(), a.StringExpanded(), strings.ToUpper(a.String())}).Draw(t, "form") + "]"
	})
	host := rapid.OneOf(name, literal)
	rapid.Check(t, func(t *rapid.T) {
		raw := host.Draw(t, "host")
		if h, err := ConfigHost(raw); err == nil {
			again, err := ConfigHost(h.Name)
			if err != nil || again != h {
				t.Fatalf("ConfigHost(%q) = %#v, again %#v, %v", raw, h, again, err)
			}
			wire, err := ParseHost(h.Name)
			if err != nil || wire != h {
				t.Fatalf("ParseHost(%q) = %#v, %v", h.Name, wire, err)
			}
		}
		scheme := rapid.SampledFrom([]string{"http", "HTTPS"}).Draw(t, "scheme")
		port := rapid.SampledFrom([]string{"", ":", ":80", ":443", ":8080"}).Draw(t, "port")
		path := rapid.StringMatching(`(/[a-zA-Z0-9%|.;=@]{0,5}){0,3}(\?[a-z%&=/?]{0,5})?`).Draw(t, "path")
		u, h, n, err := ParseURL(scheme + "://" + raw + port + path)
		if err != nil {
			return
		}
		again, h2, n2, err := ParseURL(u.String())
		if err != nil || *again != *u || h2 != h || n2 != n {
			t.Fatalf("%q: %#v, again %#v, %v", scheme+"://"+raw+port+path, u, again, err)
		}
	})
}
