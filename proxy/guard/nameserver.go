package guard

import (
	"context"
	"net"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// dialServer connects to a name server: the given one, or with "" the one that
// the system's configuration names. It honours the network: a truncated answer
// is asked for again over TCP. Name servers are configuration and exempt from
// the guard.
func dialServer(server string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if server != "" {
			address = server
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		codes, _ := ctx.Value(rcodesKey{}).(*rcodes)
		if u, ok := c.(*net.UDPConn); ok && codes != nil {
			return &watchedConn{u, codes}, nil
		}
		return c, nil
	}
}

// rcodes remembers the response codes of one lookup; net.Resolver does not
// tell "no such name" from "no address of this name".
type rcodes struct {
	mu   sync.Mutex
	code dnsmessage.RCode
	seen bool
}

type rcodesKey struct{}

func (r *rcodes) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen {
		return ""
	}
	switch r.code {
	case dnsmessage.RCodeSuccess:
		return "NOERROR"
	case dnsmessage.RCodeFormatError:
		return "FORMERR"
	case dnsmessage.RCodeServerFailure:
		return "SERVFAIL"
	case dnsmessage.RCodeNameError:
		return "NXDOMAIN"
	case dnsmessage.RCodeNotImplemented:
		return "NOTIMP"
	case dnsmessage.RCodeRefused:
		return "REFUSED"
	}
	return ""
}

// watchedConn reads one datagram at a time, each a whole message. It embeds
// *net.UDPConn because net.Resolver tells datagrams from streams by
// net.PacketConn.
type watchedConn struct {
	*net.UDPConn
	codes *rcodes
}

// Read passes a message on and keeps its response code.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	var p dnsmessage.Parser
	if h, perr := p.Start(b[:n]); err == nil && perr == nil && h.Response && !h.Truncated {
		c.codes.mu.Lock()
		// NOERROR counts least: the other family's answer may be a failure.
		if !c.codes.seen || h.RCode != dnsmessage.RCodeSuccess {
			c.codes.code, c.codes.seen = h.RCode, true
		}
		c.codes.mu.Unlock()
	}
	return n, err
}
