package guard

import (
	"encoding/binary"
	"net/netip"
)

// Public is the class of an address that no row of the table refuses.
const Public = "public"

// The classes of refused addresses. They are the `class` member of a refusal
// and of the audit log.
const (
	ClassMetadata      = "addr_metadata"        // cloud metadata and platform services
	ClassUnspecified   = "addr_unspecified"     // RFC 1122 3.2.1.3, RFC 4291 2.5.2
	ClassBroadcast     = "addr_broadcast"       // RFC 8190
	ClassLoopback      = "addr_loopback"        // RFC 1122, RFC 4291 2.5.3
	ClassPrivate       = "addr_private"         // RFC 1918
	ClassLinkLocal     = "addr_link_local"      // RFC 3927, RFC 4291 2.5.6
	ClassShared        = "addr_shared"          // RFC 6598: carrier NAT, overlay networks
	ClassThisNetwork   = "addr_this_network"    // RFC 791
	ClassProtocol      = "addr_protocol"        // IETF protocol assignments, AS112, AMT
	ClassDocumentation = "addr_documentation"   // RFC 5737, 3849, 9637
	Class6to4          = "addr_6to4"            // RFC 3056, 7526, 6751
	ClassBenchmarking  = "addr_benchmarking"    // RFC 2544, 5180
	ClassMulticast     = "addr_multicast"       // RFC 5771, RFC 4291 2.7
	ClassReserved      = "addr_reserved"        // RFC 1112, RFC 3701
	ClassNAT64         = "addr_nat64"           // RFC 6052, 8215
	ClassEmbedded      = "addr_ipv4_embedded"   // RFC 4291 2.5.5.1, RFC 2765
	ClassUniqueLocal   = "addr_unique_local"    // RFC 4193
	ClassSiteLocal     = "addr_site_local"      // RFC 3879
	ClassTeredo        = "addr_teredo"          // RFC 4380
	ClassOrchid        = "addr_orchid"          // RFC 4843, 7343
	ClassDiscard       = "addr_discard"         // RFC 6666, 9780
	ClassISATAP        = "addr_isatap"          // RFC 5214 6.1
	ClassNotGlobal     = "addr_not_global"      // outside 2000::/3, IANA IPv6 address space
	ClassZone          = "addr_zone"            // an address with a zone id (RFC 4007)
	ClassInvalid       = "addr_invalid"         // no address at all
	ClassSelf          = "addr_self"            // a listener of this process
	ClassOperator      = "addr_operator_denied" // egress.deny
	ClassLiteral       = "addr_literal"         // an address in the request under egress.ip_literals: deny
)

// A row refuses one prefix. Rows are tried in order and the first match
// decides, so a narrower prefix stands before a wider one.
type row struct{ class, prefix string }

// The tables follow the IANA IPv4 and IPv6 special-purpose address registries
// as of 2025-10-09, and name the metadata services of cloud providers. What
// IANA marks globally reachable inside these blocks (PCP, TURN and SRP
// anycast, AMT, AS112, ORCHIDv2, drone ids) is refused as well: no web site
// lives there.
var table4 = []row{
	{ClassMetadata, "169.254.169.254/32"}, // AWS, GCP, Azure, Oracle, OpenStack, DigitalOcean
	{ClassMetadata, "169.254.170.2/32"},   // AWS ECS task credentials
	{ClassMetadata, "169.254.170.23/32"},  // AWS EKS pod identity
	{ClassMetadata, "169.254.169.253/32"}, // AWS resolver
	{ClassMetadata, "169.254.169.123/32"}, // AWS time
	{ClassMetadata, "169.254.42.42/32"},   // Scaleway
	{ClassMetadata, "168.63.129.16/32"},   // Azure WireServer: public space, answered by the host
	{ClassMetadata, "100.100.100.200/32"}, // Alibaba
	{ClassMetadata, "192.0.0.192/32"},     // Oracle Classic
	{ClassUnspecified, "0.0.0.0/32"},
	{ClassBroadcast, "255.255.255.255/32"},
	{ClassLoopback, "127.0.0.0/8"},
	{ClassPrivate, "10.0.0.0/8"},
	{ClassPrivate, "172.16.0.0/12"},
	{ClassPrivate, "192.168.0.0/16"},
	{ClassLinkLocal, "169.254.0.0/16"},
	{ClassShared, "100.64.0.0/10"},
	{ClassThisNetwork, "0.0.0.0/8"},
	{ClassProtocol, "192.0.0.0/24"},
	{ClassProtocol, "192.31.196.0/24"}, // AS112, RFC 7535
	{ClassProtocol, "192.52.193.0/24"}, // AMT, RFC 7450
	{ClassProtocol, "192.175.48.0/24"}, // AS112, RFC 7534
	{ClassDocumentation, "192.0.2.0/24"},
	{ClassDocumentation, "198.51.100.0/24"},
	{ClassDocumentation, "203.0.113.0/24"},
	{Class6to4, "192.88.99.0/24"},
	{ClassBenchmarking, "198.18.0.0/15"},
	{ClassMulticast, "224.0.0.0/4"},
	{ClassReserved, "240.0.0.0/4"}, // some clouds route it inside
}

var table6 = []row{
	{ClassMetadata, "fd00:ec2::/32"},    // AWS
	{ClassMetadata, "fd00:42::42/128"},  // Scaleway
	{ClassMetadata, "fd00:c1::/32"},     // Oracle
	{ClassMetadata, "fd20:ce::254/128"}, // Google
	{ClassUnspecified, "::/128"},
	{ClassLoopback, "::1/128"},
	{ClassNAT64, "64:ff9b::/96"},
	{ClassNAT64, "64:ff9b:1::/48"},
	{ClassEmbedded, "::/96"},           // IPv4-compatible
	{ClassEmbedded, "::ffff:0:0:0/96"}, // IPv4-translated
	{ClassLinkLocal, "fe80::/10"},
	{ClassUniqueLocal, "fc00::/7"},
	{ClassSiteLocal, "fec0::/10"},
	{ClassMulticast, "ff00::/8"},
	{ClassTeredo, "2001::/32"},
	{ClassBenchmarking, "2001:2::/48"},
	{ClassOrchid, "2001:10::/28"},
	{ClassOrchid, "2001:20::/28"},
	{ClassDocumentation, "2001:db8::/32"},
	{ClassDocumentation, "3fff::/20"},
	{ClassProtocol, "2001::/23"},
	{ClassProtocol, "2620:4f:8000::/48"}, // AS112, RFC 7534
	{ClassProtocol, "5f00::/16"},         // SRv6 SIDs, RFC 9602
	{Class6to4, "2002::/16"},
	{ClassReserved, "3ffe::/16"}, // 6bone, returned
	{ClassDiscard, "100::/64"},
	{ClassDiscard, "100:0:0:1::/64"},
}

type row4 struct {
	base, mask uint32
	class      string
}

type row6 struct {
	hi, lo, maskHi, maskLo uint64
	class                  string
}

var (
	rows4 = compile4(table4)
	rows6 = compile6(table6)
)

func compile4(table []row) []row4 {
	out := make([]row4, len(table))
	for i, r := range table {
		p := netip.MustParsePrefix(r.prefix)
		b := p.Addr().As4()
		mask := uint32(uint64(0xffffffff) << (32 - p.Bits()))
		out[i] = row4{binary.BigEndian.Uint32(b[:]), mask, r.class}
	}
	return out
}

func compile6(table []row) []row6 {
	out := make([]row6, len(table))
	for i, r := range table {
		p := netip.MustParsePrefix(r.prefix)
		b := p.Addr().As16()
		x := row6{
			hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:]),
			maskHi: ^uint64(0), class: r.class,
		}
		if n := p.Bits(); n <= 64 {
			x.maskHi = ^uint64(0) << (64 - n)
		} else {
			x.maskLo = ^uint64(0) << (128 - n)
		}
		out[i] = x
	}
	return out
}

// Classify names the kind of an address: Public, or the addr_* class for which
// it is refused. IPv4-mapped addresses (::ffff:a.b.c.d) count as their IPv4
// address, addresses with a zone are always addr_zone, and IPv6 outside
// 2000::/3 is refused by default. It does not allocate.
func Classify(a netip.Addr) string {
	if !a.IsValid() {
		return ClassInvalid
	}
	if a.Is6() && a.Zone() != "" {
		return ClassZone
	}
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		n := binary.BigEndian.Uint32(b[:])
		for i := range rows4 {
			if n&rows4[i].mask == rows4[i].base {
				return rows4[i].class
			}
		}
		return Public
	}
	b := a.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	for i := range rows6 {
		r := &rows6[i]
		if hi&r.maskHi == r.hi && lo&r.maskLo == r.lo {
			return r.class
		}
	}
	// ISATAP carries an IPv4 address in the interface id, in any prefix; the
	// 0x0200 form has the universal bit set (RFC 5214 6.1).
	if top := uint32(lo >> 32); top == 0x00005efe || top == 0x02005efe {
		return ClassISATAP
	}
	if hi>>61 != 1 {
		return ClassNotGlobal
	}
	return Public
}
