package guard

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/google/go-cmp/cmp"
)

// keysOf are the keys of joined errors, with their texts.
func keysOf(t *testing.T, err error) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err == nil {
		return out
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is not joined", err)
	}
	for _, e := range joined.Unwrap() {
		k, ok := e.(interface{ Key() string })
		if !ok {
			t.Fatalf("%v has no key", e)
		}
		out[k.Key()] = e.Error()
	}
	return out
}

func TestDefaultsAreValid(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	if w := Defaults().Warnings(); w != nil {
		t.Errorf("warnings %q", w)
	}
}

// TestValidateFindsAll: every problem is named with its key, all at once.
func TestValidateFindsAll(t *testing.T) {
	c := Config{
		Ports: []int{80, 0, 65536, 80},
		AllowPrivate: []Exception{
			{Prefix: "10.0.0.0/7"}, {Prefix: "fc00::/7"}, {Prefix: "10.1.2.3/8"}, {Prefix: "fe80::1%eth0"}, {Prefix: "wiki"},
			{Prefix: "::ffff:10.0.0.0/104"}, {Prefix: "10.0.0.1", Ports: []int{443, -1}}, {Prefix: ""},
		},
		Deny:            []string{"93.184.215.0/24", "93.184.215.14/24", "x"},
		DenyHosts:       []string{"*.tracker.example.com", "*.com", "*", "a*b.example.com", "http://example.com/"},
		NAT64Prefixes:   []string{"64:ff9b::/96", "64:ff9b::/95", "10.0.0.0/32", "2a00:64:0:0:100::/96"},
		SelfAddresses:   []string{"93.184.215.14", "[2a00::1]:443", "93.184.215.14:0", "me.example.com"},
		IPLiterals:      "maybe",
		Hosts:           []string{"127.0.0.1 shop.test", "shop.test 127.0.0.1", "127.0.0.1", "127.0.0.1 *.test", "127.0.0.1 127.0.0.2", "fe80::1%1 a.test", "127.0.0.1 a..test", "# only a comment"},
		DNS:             []string{"127.0.0.53", "127.0.0.1:5353", "::1", "[::1]:53", "dns.example.com", "127.0.0.1:0", "1.1.1.1:53:53"},
		DNSTimeout:      -time.Second,
		DNSCache:        time.Minute,
		Family:          "ipv5",
		SourceAddresses: []string{"127.0.0.1", "127.0.0.1", "0.0.0.0", "x", "::ffff:127.0.0.1"},
		RootCAFile:      "a\x00b",
	}
	want := map[string]string{
		"ports[1]":                  "0 is not a port from 1 to 65535",
		"ports[2]":                  "65536 is not a port from 1 to 65535",
		"ports[3]":                  "port 80 stands there twice",
		"allow_private[0].prefix":   "10.0.0.0/7 is wider than /8",
		"allow_private[1].prefix":   "fc00::/7 is wider than /16",
		"allow_private[2].prefix":   `"10.1.2.3/8" has bits set behind the prefix, write 10.0.0.0/8`,
		"allow_private[3].prefix":   `"fe80::1%eth0" is not a prefix`,
		"allow_private[4].prefix":   `"wiki" is not a prefix`,
		"allow_private[5].prefix":   `"::ffff:10.0.0.0/104": write it as an IPv4 prefix, mapped addresses count as IPv4`,
		"allow_private[6].ports[1]": "-1 is not a port from 1 to 65535",
		"allow_private[7].prefix":   `"" is not a prefix`,
		"deny[1]":                   `"93.184.215.14/24" has bits set behind the prefix, write 93.184.215.0/24`,
		"deny[2]":                   `"x" is not a prefix`,
		"deny_hosts[1]":             `"*.com": "com" is a public suffix, anybody can register below it`,
		"deny_hosts[2]":             "* matches every host",
		"deny_hosts[3]":             `"a*b.example.com": a star stands only in front, as *.name`,
		"deny_hosts[4]":             `"http://example.com/" is not a host: scheme, port and path have no place here`,
		"nat64_prefixes[1]":         `"64:ff9b::/95" is not an IPv6 prefix of length 32, 40, 48, 56, 64 or 96`,
		"nat64_prefixes[2]":         `"10.0.0.0/32" is not an IPv6 prefix of length 32, 40, 48, 56, 64 or 96`,
		"nat64_prefixes[3]":         `"2a00:64:0:0:100::/96": bits 64 to 71 must be zero (RFC 6052 2.2)`,
		"self_addresses[2]":         `"93.184.215.14:0" is not an address or address:port`,
		"self_addresses[3]":         `"me.example.com" is not an address or address:port`,
		"ip_literals":               `"maybe" is not one of allow, deny`,
		"hosts[1]":                  `"shop.test" is not an address`,
		"hosts[2]":                  `"127.0.0.1" is not ADDRESS NAME`,
		"hosts[3]":                  `"*.test": "test" is a public suffix, anybody can register below it`,
		"hosts[4]":                  `"127.0.0.2" is not a name`,
		"hosts[5]":                  `"fe80::1%1" is not an address`,
		"hosts[6]":                  `host "a..test" has an empty label`,
		"hosts[7]":                  `"# only a comment" is not ADDRESS NAME`,
		"dns[4]":                    `"dns.example.com" is not an address or address:port`,
		"dns[5]":                    `"127.0.0.1:0" is not an address or address:port`,
		"dns[6]":                    `"1.1.1.1:53:53" is not an address or address:port`,
		"dns_timeout":               "-1s is not above 0s and at most 1m0s",
		"dns_cache":                 "1m0s is not from 0s to 30s",
		"family":                    `"ipv5" is not one of both, ipv4, ipv6`,
		"source_addresses[1]":       "127.0.0.1 stands there twice",
		"source_addresses[2]":       `"0.0.0.0" is not an address to dial from`,
		"source_addresses[3]":       `"x" is not an address to dial from`,
		"source_addresses[4]":       `write "::ffff:127.0.0.1" as 127.0.0.1`,
		"root_ca_file":              "is not a file name",
	}
	if diff := cmp.Diff(want, keysOf(t, c.Validate())); diff != "" {
		t.Error(diff)
	}
	if _, err := New(c, nil); err == nil {
		t.Error("New took it")
	}
}

func TestSourcesOfOtherFamily(t *testing.T) {
	c := Defaults()
	c.Family = "ipv6"
	c.SourceAddresses = []string{"127.0.0.1"}
	want := map[string]string{"source_addresses[0]": "127.0.0.1 can never be used, family is ipv6"}
	if diff := cmp.Diff(want, keysOf(t, c.Validate())); diff != "" {
		t.Error(diff)
	}
}

func TestWarnings(t *testing.T) {
	c := Defaults()
	c.Ports = nil
	c.AllowPrivate = []Exception{{Prefix: "10.0.0.0/8"}, {Prefix: "10.0.0.0/16"}, {Prefix: "fd00::/48"}}
	want := []string{
		"allow_private[0]: 10.0.0.0/8 opens more than 65,536 addresses; name ports or a narrower prefix",
		"allow_private[2]: fd00::/48 opens more than 65,536 addresses; name ports or a narrower prefix",
		"ports: no port is open, every request will be refused",
	}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Error(diff)
	}
}

// TestDecode: the tags are the keys of the configuration, and an exception may
// be written as its prefix alone.
func TestDecode(t *testing.T) {
	var c Config
	dec, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &c, ErrorUnused: true, DecodeHook: mapstructure.TextUnmarshallerHookFunc(),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = dec.Decode(map[string]any{
		"ports": []any{80, 443, 8080},
		"allow_private": []any{
			"127.0.0.1/32",
			map[string]any{"prefix": "10.20.30.40/32", "ports": []any{443}, "comment": "wiki mirror"},
		},
		"deny": []any{"93.184.215.0/24"}, "deny_hosts": []any{"*.tracker.example.com"}, "nat64_prefixes": []any{},
		"self_addresses": []any{}, "ip_literals": "deny", "hosts": []any{"127.0.0.1 shop.test cdn.test"}, "dns": []any{},
		"dns_timeout": 5 * time.Second, "dns_cache": time.Duration(0), "family": "both", "via": false, "uniform_refusals": true,
		"source_addresses": []any{}, "root_ca_file": "roots.pem",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Exception{{Prefix: "127.0.0.1/32"}, {Prefix: "10.20.30.40/32", Ports: []int{443}, Comment: "wiki mirror"}}
	if diff := cmp.Diff(want, c.AllowPrivate); diff != "" {
		t.Error(diff)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestExceptions(t *testing.T) {
	c := Defaults()
	c.AllowPrivate = []Exception{
		{Prefix: "10.20.30.40", Ports: []int{8443}, Comment: "wiki"},
		{Prefix: "10.20.0.0/16"},
		{Prefix: "169.254.169.254", Ports: []int{80}},
		{Prefix: "169.254.0.0/16", Ports: []int{81}},
		{Prefix: "fe80::/64"},
		{Prefix: "93.184.215.14", Ports: []int{8080}},
	}
	c.Deny = []string{"10.20.99.0/24"}
	c.NAT64Prefixes = []string{"64:ff9b::/96", "2a00:64::/48"}
	d := newDialer(t, c)
	for _, tc := range []struct{ at, class, exception string }{
		{"10.20.30.40:8443", Public, "10.20.30.40/32 (wiki)"},
		{"10.20.30.40:443", Public, "10.20.0.0/16"},
		{"10.20.30.40:22", classPort, ""},
		{"10.20.1.1:80", Public, "10.20.0.0/16"},
		{"10.20.1.1:8443", classPort, ""},
		{"10.21.1.1:80", ClassPrivate, ""},
		{"10.20.99.1:80", ClassOperator, ""},
		{"[::ffff:10.20.99.1]:80", ClassOperator, ""},
		{"169.254.169.254:80", Public, "169.254.169.254/32"},
		{"169.254.169.254:81", classPort, ""},
		{"169.254.169.254:443", ClassMetadata, ""},
		{"169.254.1.1:81", Public, "169.254.0.0/16"},
		{"[fe80::1]:80", Public, "fe80::/64"},
		{"[fe80::1%eth0]:80", ClassZone, ""},
		{"93.184.215.14:8080", Public, "93.184.215.14/32"},
		{"93.184.215.14:80", Public, ""},
		{"93.184.215.15:8080", classPort, ""},
		{"[64:ff9b::a14:101]:80", Public, "10.20.0.0/16"},
		{"[64:ff9b::a14:6301]:80", ClassOperator, ""},
		{"[64:ff9b::a9fe:a9fe]:443", ClassMetadata, ""},
		{"[2a00:64:0:5db8:d7:e00::]:443", Public, ""},
		{"[2a00:64:0:5db8:1d7:e00::]:443", ClassNAT64, ""},
	} {
		at := netip.MustParseAddrPort(tc.at)
		class, ex := d.rules.check(nil, at.Addr(), at.Port())
		name := ""
		if ex != nil {
			name = ex.name
		}
		if class != tc.class || name != tc.exception {
			t.Errorf("%s: class %s, exception %q, want %s, %q", tc.at, class, name, tc.class, tc.exception)
		}
	}
}

// TestNAT64Layouts: the IPv4 address lies where RFC 6052 2.2 and its table 2.4
// put it, for each prefix length.
func TestNAT64Layouts(t *testing.T) {
	for prefix, addr := range map[string]string{
		"2001:db8::/32":         "2001:db8:c000:221::",
		"2001:db8:100::/40":     "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":     "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33",
		"64:ff9b::/96":          "64:ff9b::192.0.2.33",
	} {
		p, err := parseNAT64(prefix)
		if err != nil {
			t.Error(err)
			continue
		}
		got, ok := extract(netip.MustParseAddr(addr), p.Bits())
		if want := netip.MustParseAddr("192.0.2.33"); !ok || got != want {
			t.Errorf("%s in %s: %v, want %v", addr, prefix, got, want)
		}
	}
}

func TestIPLiterals(t *testing.T) {
	c := Defaults()
	c.IPLiterals = "deny"
	c.AllowPrivate = []Exception{{Prefix: "10.0.0.1"}}
	c.Hosts = []string{"10.0.0.1 wiki.test"}
	d := newDialer(t, c)
	d.dialAddr = (&fakeDial{}).dial
	for address, want := range map[string]string{
		"93.184.215.14:443": ClassLiteral,
		"10.0.0.1:443":      ClassLiteral,
		"127.0.0.1:443":     ClassLoopback,
		"wiki.test:443":     Public,
	} {
		if got := classOf(dial(t, d, address)); got != want {
			t.Errorf("%s: class %s, want %s", address, got, want)
		}
	}
}

// TestNAT64Hint: the log names the setting, not more often than once a minute.
func TestNAT64Hint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d, err := New(Defaults(), slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		h := Host{Name: "www.example.net"}
		for range 5 {
			_ = d.CheckAnswers(h, 443, addrs("64:ff9b::5db8:d70e"))
		}
		time.Sleep(time.Minute)
		_ = d.CheckAnswers(h, 443, addrs("64:ff9b::5db8:d70e"))
		if n := strings.Count(out.String(), "egress.nat64_prefixes"); n != 2 {
			t.Errorf("the setting is named %d times in\n%s", n, out.String())
		}
	})
}
