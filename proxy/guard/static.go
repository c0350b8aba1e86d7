package guard

import (
	"net/netip"
	"slices"
)

// Static gives the addresses that egress.hosts names for a canonical host, or none. They are not checked.
func (d *Dialer) Static(host string) []netip.Addr { return slices.Clone(d.hosts[host]) }
