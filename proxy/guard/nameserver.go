package guard

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// noError is the response code of an answer that is no failure.
const noError = "NOERROR"

// tries is how often a question is sent within its time: Go's resolver sends
// it twice to each server, and the system may name several. Without a bound of
// its own, one lost datagram would use up the whole time.
func tries(server string) time.Duration {
	if server == "" {
		return 4
	}
	return 2
}

// asked is one question to one server: it opens the sockets and remembers the
// response codes. Name servers are configuration and exempt from the guard.
type asked struct {
	server   string        // address:port; "": what the system's configuration names
	patience time.Duration // for the answer to one datagram; 0: no bound of ours

	mu   sync.Mutex
	code dnsmessage.RCode
	seen bool
}

// dial honours the network: a truncated answer is asked for again over TCP.
func (q *asked) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if q.server != "" {
		address = q.server
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UDPConn); ok {
		return &datagrams{u, q}, nil
	}
	return c, nil
}

// saw keeps a response code. NOERROR counts least: the answer for the other
// address family may be a failure.
func (q *asked) saw(code dnsmessage.RCode) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.seen || code != dnsmessage.RCodeSuccess {
		q.code, q.seen = code, true
	}
}

// rcode is the code that was seen, in the words of the IANA registry; "" when
// none was, or a rare one.
func (q *asked) rcode() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.seen {
		return ""
	}
	switch q.code {
	case dnsmessage.RCodeSuccess:
		return noError
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

// datagrams embeds *net.UDPConn because net.Resolver tells datagrams from
// streams by net.PacketConn.
type datagrams struct {
	*net.UDPConn
	q *asked
}

// Read passes one message on and keeps its response code.
func (c *datagrams) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	var p dnsmessage.Parser
	if h, perr := p.Start(b[:n]); err == nil && perr == nil && h.Response && !h.Truncated {
		c.q.saw(h.RCode)
	}
	return n, err
}

// SetDeadline brings the resolver's own deadline for an answer forward.
func (c *datagrams) SetDeadline(t time.Time) error {
	if c.q.patience > 0 {
		if own := time.Now().Add(c.q.patience); t.IsZero() || own.Before(t) {
			t = own
		}
	}
	return c.UDPConn.SetDeadline(t)
}
