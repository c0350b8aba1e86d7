package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"crawlgate/proxy/guard"
)

const (
	answerHeadBytes  = 256 << 10
	handshakeTimeout = 10 * time.Second
	idleConns        = 1024 // to all sites: that many over HTTP/1.1, and that many over HTTP/2
	// An HTTP/2 connection whose site is gone without a word would take every request to it until TCP gives up, which
	// is a quarter of an hour: one that brought nothing for pingAfter is asked, and left when it does not answer.
	pingAfter    = 15 * time.Second
	pingPatience = 10 * time.Second
)

// upstream is the way out to the sites. HTTP/1.1 is spoken by a client of our own (siteConn), HTTP/2 by the standard
// library's, one connection at a time; which connection carries a request is decided here (conns). Nothing is ever sent
// twice.
type upstream struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	conns *conns
	way   atomic.Pointer[way]
	ping  http.HTTP2Config
}

// way is how new connections are made: it changes with the configuration.
type way struct {
	tls   *tls.Config     // for pages and files
	plain *tls.Config     // for WebSockets, which HTTP/2 has none of here
	h2    *http.Transport // makes HTTP/2 connections of handshaken ones
}

func newUpstream(dialer func() *guard.Dialer, r *Rules) (*upstream, error) {
	u := &upstream{conns: newConns(), ping: http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingPatience}, dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialer().DialContext(ctx, network, addr)
	}}
	u.conns.resting.expire = u.conns.expire
	return u, u.reload(r)
}

// reload takes new roots and limits; connections made before serve no new request.
func (u *upstream) reload(r *Rules) error {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(r.Roots) > 0 && !pool.AppendCertsFromPEM(r.Roots) {
		return errors.New("egress.root_ca_file: no certificate could be read")
	}
	w := &way{tls: &tls.Config{
		RootCAs: pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(512), NextProtos: []string{"h2", "http/1.1"},
	}}
	w.plain = w.tls.Clone()
	w.plain.NextProtos = []string{"http/1.1"}
	w.h2 = &http.Transport{
		Proxy: nil, DialContext: handedOver, // nothing is dialled there
		// What it gets is decrypted already.
		Protocols:              new(http.Protocols),
		DisableCompression:     true, // bodies pass as they come
		HTTP2:                  &u.ping,
		IdleConnTimeout:        r.Server.UpstreamIdle,
		MaxResponseHeaderBytes: answerHeadBytes,
	}
	w.h2.Protocols.SetHTTP2(true)
	w.h2.Protocols.SetUnencryptedHTTP2(true)
	u.conns.mu.Lock()
	u.conns.resting.limit = r.Server.UpstreamIdle
	u.conns.mu.Unlock()
	u.way.Store(w)
	u.conns.renew()
	return nil
}

func (u *upstream) close() { u.conns.renew() }

// roundTrip sends one request, once. It follows no redirect and repeats nothing: only a kept connection that turns out to
// have ended, before anything was written on it, is replaced.
func (u *upstream) roundTrip(r *http.Request, w *wireLog) (*http.Response, error) {
	for {
		by, err := u.connect(r.Context(), w)
		if err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
		resp, err := by.roundTrip(r, w)
		if err == nil {
			return resp, nil
		}
		if !w.unused() || r.Context().Err() != nil {
			return nil, err
		}
	}
}

// connect finds or makes a connection for a request.
func (u *upstream) connect(ctx context.Context, w *wireLog) (carrier, error) {
	for {
		f, err := u.conns.take(ctx, w.to, w.limit)
		switch c := f.by.(type) {
		case *siteConn:
			if c.alive() {
				return c, nil
			}
			c.close()
		case *multiConn:
			return c, nil
		default:
			if err != nil {
				return nil, err
			}
			return u.open(ctx, f.seat)
		}
	}
}

// open makes a connection.
func (u *upstream) open(ctx context.Context, st *seat) (carrier, error) {
	age := st.c.now()
	conn, err := u.dial(ctx, "tcp", st.of.addr)
	if err != nil {
		st.leave()
		return nil, err
	}
	oc := &originConn{Conn: conn, seat: st}
	if st.of.scheme != "https" {
		st.singular()
		return &siteConn{Conn: oc, under: oc, seat: st, age: age}, nil
	}
	t, err := u.handshake(ctx, oc, st.of)
	if err != nil {
		oc.Close()
		return nil, err
	}
	oc.secure = true
	if t.ConnectionState().NegotiatedProtocol != "h2" {
		st.singular()
		return &siteConn{Conn: t, under: oc, secure: t, seat: st, age: age}, nil
	}
	m := &multiConn{under: oc, seat: st, age: age}
	if err := newMultiConn(ctx, u.way.Load().h2, m, t); err != nil {
		oc.Close()
		return nil, err
	}
	return m, nil
}

// now is the age that a connection made now has.
func (c *conns) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.age
}

func (u *upstream) handshake(ctx context.Context, oc *originConn, to site) (*tls.Conn, error) {
	way := u.way.Load()
	cfg := way.tls
	if to.stays {
		cfg = way.plain
	}
	host, _, err := net.SplitHostPort(to.addr)
	if err != nil {
		return nil, fmt.Errorf("address of the site: %w", err)
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	t := tls.Client(oc, cfg)
	timed, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := t.HandshakeContext(timed); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return t, nil
}
