package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// Times of a dial, name resolution not counted.
const (
	dialTimeout   = 10 * time.Second       // all attempts together
	fallbackDelay = 250 * time.Millisecond // RFC 8305 5: before the other family is tried
	minAttempt    = 2 * time.Second        // least share of one attempt
	maxAttempts   = 4                      // addresses tried of one family
)

// target is one attempt of a dial.
type target struct {
	host Host
	to   netip.AddrPort
	from netip.Addr // invalid: the system's choice
}

// Conn is a connection to a checked address.
type Conn struct {
	net.Conn
	resolved  []netip.Addr
	remote    netip.AddrPort
	exception string
}

// Resolved is the whole answer for the name, or the address of the request.
func (c *Conn) Resolved() []netip.Addr { return c.resolved }

// Remote is the address and port that was dialled.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Exception is the item of egress.allow_private that opened the address, with
// its comment; empty for a public address.
func (c *Conn) Exception() string { return c.exception }

// CloseWrite ends the sending direction, where the connection can do that.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// DialContext connects to host:port over TCP. The name is resolved once, every
// address of the answer is checked, and only checked addresses are dialled: at
// most four of each family, in the order of RFC 6724, the second family after
// 250 ms or when the first has failed (RFC 8305), 10 s in all. The connection
// is a *Conn.
//
// The error is a *HostError, *Denied, *ResolveError or *DialError, or wraps
// context.Canceled when the caller gave up.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, malformed("address %s is not host:port", quote(address))
	}
	h, err := dialHost(host)
	if err != nil {
		return nil, err
	}
	port, err := parsePort(portText)
	if err != nil {
		return nil, err
	}
	set, err := d.resolve(ctx, h, port)
	if err != nil {
		return nil, err
	}
	usable := set
	switch network {
	case "tcp":
	case "tcp4", "tcp6":
		usable = nil
		for _, c := range set {
			if c.addr.Is4() == (network == "tcp4") {
				usable = append(usable, c)
			}
		}
		if len(usable) == 0 {
			return nil, &ResolveError{Class: classDNSNoAddress, Host: h.Name, NotFound: true, Err: errFamily}
		}
	default:
		return nil, fmt.Errorf("dial %s: %w", quote(network), errors.ErrUnsupported)
	}
	conn, at, err := d.dialAny(ctx, h, port, usable)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, canceled("connect to", h, ctx)
		}
		return nil, err
	}
	out := &Conn{Conn: conn, resolved: addresses(set), remote: netip.AddrPortFrom(at.addr, port)}
	if at.exception != nil {
		out.exception = at.exception.name
		d.log.LogAttrs(ctx, slog.LevelDebug, "exception used",
			slog.String("host", h.Name), slog.Any("address", out.remote), slog.String("exception", out.exception))
	}
	return out, nil
}

// dialAny races the two families: the one that the answer puts first starts.
func (d *Dialer) dialAny(ctx context.Context, h Host, port uint16, set []checked) (net.Conn, checked, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel() // an open connection does not depend on it
	first, second := lanes(set)
	if len(second) == 0 {
		return d.dialLane(ctx, h, port, first)
	}
	type result struct {
		conn net.Conn
		at   checked
		err  error
	}
	results := make(chan result, 2)
	running := 0
	start := func(lane []checked) {
		running++
		go func() {
			conn, at, err := d.dialLane(ctx, h, port, lane)
			results <- result{conn, at, err}
		}()
	}
	start(first)
	fallback := time.NewTimer(fallbackDelay)
	defer fallback.Stop()
	var failed error
	for running > 0 {
		select {
		case <-fallback.C:
			if second != nil {
				start(second)
				second = nil
			}
		case r := <-results:
			running--
			if r.err == nil {
				cancel()
				for ; running > 0; running-- {
					if late := <-results; late.conn != nil {
						late.conn.Close()
					}
				}
				return r.conn, r.at, nil
			}
			if failed == nil {
				failed = r.err
			}
			if second != nil && ctx.Err() == nil {
				start(second)
				second = nil
			}
		}
	}
	return nil, checked{}, failed
}

// lanes splits a set by family, the family of the first address first.
func lanes(set []checked) (first, second []checked) {
	for _, c := range set {
		if c.addr.Is4() == set[0].addr.Is4() {
			first = append(first, c)
		} else {
			second = append(second, c)
		}
	}
	return first[:min(len(first), maxAttempts)], second[:min(len(second), maxAttempts)]
}

// dialLane tries the addresses of one family one after the other: a site is
// never met by a burst of connections.
func (d *Dialer) dialLane(ctx context.Context, h Host, port uint16, lane []checked) (net.Conn, checked, error) {
	var failed error
	for i, c := range lane {
		conn, err := d.attempt(ctx, len(lane)-i, target{h, netip.AddrPortFrom(c.addr, port), d.source(h, c.addr)})
		if err == nil {
			return conn, c, nil
		}
		if failed == nil {
			failed = dialError(h, c.addr, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, checked{}, failed
}

// attempt gives one address its share of the time that is left.
func (d *Dialer) attempt(ctx context.Context, left int, t target) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share := max(time.Until(deadline)/time.Duration(left), minAttempt)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	return d.dialAddr(ctx, t)
}

// dialChecked opens the socket. The hook is the belt to the check before it:
// it judges the address that the socket is about to connect to.
func (d *Dialer) dialChecked(ctx context.Context, t target) (net.Conn, error) {
	nd := net.Dialer{ControlContext: d.control(t)}
	if t.from.IsValid() {
		nd.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.from, 0))
	}
	return nd.DialContext(ctx, "tcp", t.to.String())
}

// control refuses every socket but a TCP one to a permitted address.
func (d *Dialer) control(t target) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("socket of kind %s: %w", network, errors.ErrUnsupported)
		}
		host, portText, err := net.SplitHostPort(address)
		if err != nil {
			return &Denied{Class: ClassInvalid, Host: t.host.Name, Literal: t.host.IsLiteral()}
		}
		a, err := netip.ParseAddr(host)
		port, perr := strconv.ParseUint(portText, 10, 16)
		if err != nil || perr != nil {
			return &Denied{Class: ClassInvalid, Host: t.host.Name, Literal: t.host.IsLiteral()}
		}
		if class, _ := d.rules.check(d.selfNow(), a, uint16(port)); class != Public {
			return &Denied{Class: class, Host: t.host.Name, Port: uint16(port), Addr: a, Literal: t.host.IsLiteral()}
		}
		return nil
	}
}

func dialError(h Host, a netip.Addr, err error) error {
	var denied *Denied
	if errors.As(err, &denied) {
		return denied
	}
	out := &DialError{Class: classConnectFailed, Host: h.Name, Addr: a, Err: err}
	var timeout interface{ Timeout() bool }
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		out.Class = classConnectTimeout
	}
	return out
}

func canceled(doing string, h Host, ctx context.Context) error {
	return fmt.Errorf("%s %s: %w", doing, h.Name, ctx.Err())
}
