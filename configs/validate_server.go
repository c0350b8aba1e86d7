package configs

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"crawlgate/proxy/guard"
)

// listener is one address that crawlgate would listen on.
type listener struct {
	key, host string
	port      int
}

func (v *checker) listeners() {
	c := v.c
	if c.Listen == "" {
		v.say("listen", "is empty: the proxy needs a listener")
	}
	if c.Listen != "" && !loopback(c.Listen) {
		if _, _, err := hostPort(c.Listen); err == nil && len(c.Clients) == 0 && !v.broken("clients") {
			v.fail("listen", "%s is not loopback and no client is configured: it would be an open proxy; add clients", c.Listen)
		} else if err == nil && len(c.Clients) > 0 && c.Server.TLS.CertFile == "" {
			v.warn("listen", "%s is not loopback and server.tls is not set: secrets cross the network in clear", c.Listen)
		}
	}
	if c.Admin.Listen != "" && !loopback(c.Admin.Listen) && c.Admin.TokenFile == "" {
		if _, _, err := hostPort(c.Admin.Listen); err == nil {
			v.fail("admin.listen", "%s is not loopback: it needs admin.token_file", c.Admin.Listen)
		}
	}
	var all []listener
	add := func(key, addr string) {
		if addr == "" {
			return
		}
		host, port, err := hostPort(addr)
		if err != nil {
			v.fail(key, "%s", err)
			return
		}
		all = append(all, listener{key, host, port})
	}
	add("listen", c.Listen)
	add("admin.listen", c.Admin.Listen)
	add("publish.listen", c.Publish.Listen)
	for i, cl := range c.Clients {
		add(indexed("clients", i)+".listen", cl.Listen)
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.port != 0 && a.port == b.port && overlap(a.host, b.host) {
				v.fail(a.key, "port %d is already taken by %s", a.port, b.key)
				break
			}
		}
	}
	for i, h := range c.Admin.Hosts {
		if err := hostPattern(strings.TrimSpace(h)); err != nil || strings.HasPrefix(h, "*") {
			v.fail(indexed("admin.hosts", i), "%s is not a host name", quote(h))
		}
	}
}

// overlap tells whether two listeners of one port would collide: the same address, or a wildcard.
func overlap(a, b string) bool {
	wild := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	local := func(h string) string { return strings.ReplaceAll(h, "localhost", "127.0.0.1") }
	return wild(a) || wild(b) || local(a) == local(b)
}

// leastKept is the smallest store of answers: one takes an eighth of it at most.
const leastKept = 1 << 20

func (v *checker) rest() {
	c := v.c
	if c.Revalidate.MaxSize < leastKept {
		v.fail("revalidate.max_size", "must be at least 1MiB")
	}
	if c.Revalidate.FullEvery < 0 {
		v.fail("revalidate.full_every", "%d is below 0", c.Revalidate.FullEvery)
	}
	if c.StateDir == "" {
		v.say("state_dir", "is empty: what must survive a restart needs a folder")
	}
	if (c.Intercept.CACertFile == "") != (c.Intercept.CAKeyFile == "") {
		v.pair("intercept.ca_cert_file", c.Intercept.CACertFile, "intercept.ca_key_file")
	}
	for i, h := range c.Intercept.TunnelHosts {
		if err := hostPattern(h); err != nil {
			v.fail(indexed("intercept.tunnel_hosts", i), "%s", err)
		}
	}
	if len(c.Intercept.TunnelHosts) > 0 {
		v.warn("intercept.tunnel_hosts", "paths, robots.txt rules and signatures cannot be applied inside opaque tunnels")
	}
	v.server()
	for i, a := range c.Page.Addresses {
		if _, err := ParseSource(a); err != nil {
			v.fail(indexed("page.addresses", i), "%s", err)
		}
	}
	if c.Page.ReverseDNS != "" {
		if err := hostPattern(c.Page.ReverseDNS); err != nil {
			v.fail("page.reverse_dns", "%s", err)
		}
	}
	for i, s := range c.Page.Statements {
		if s.Text == "" {
			v.say(indexed("page.statements", i)+".text", "is empty")
		}
	}
}

func (v *checker) server() {
	s := v.c.Server
	for _, d := range []struct {
		key         string
		v, low, top time.Duration
	}{
		{"read_head", s.ReadHead, time.Second, 5 * time.Minute},
		{"idle", s.Idle, time.Second, time.Hour},
		{"upstream_idle", s.UpstreamIdle, time.Second, time.Hour},
		{"stream_idle", s.StreamIdle, time.Second, 24 * time.Hour},
		{"grace", s.Grace, 0, time.Hour},
	} {
		if d.v < d.low || d.v > d.top {
			v.fail("server."+d.key, "%s is not from %s to %s", formatDuration(d.v), formatDuration(d.low), formatDuration(d.top))
		}
	}
	if s.HeadBytes < 4<<10 || s.HeadBytes > 1<<20 {
		v.fail("server.head_bytes", "%s is not from 4KiB to 1MiB", formatSize(s.HeadBytes))
	}
	if s.Tunnels < 1 {
		v.fail("server.tunnels", "must be at least 1")
	}
	if s.TunnelsClient < 1 || s.TunnelsClient > s.Tunnels {
		v.fail("server.tunnels_client", "%d is not from 1 to server.tunnels (%d)", s.TunnelsClient, s.Tunnels)
	}
	if (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		v.pair("server.tls.cert_file", s.TLS.CertFile, "server.tls.key_file")
	}
}

// pair complains of one of two keys that stands alone: a, or b where a is empty.
func (v *checker) pair(a, value, b string) {
	if value == "" {
		a, b = b, a
	}
	v.fail(a, "is set and %s is not; set both or none", b)
}

// loopback tells whether a listener can be reached from this machine only; an unreadable address counts as reachable.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// hostPort splits a listener into its parts and says what is wrong with it.
func hostPort(listen string) (host string, port int, err error) {
	h, p, err := net.SplitHostPort(listen)
	if err != nil {
		if digits(listen) {
			return "", 0, fmt.Errorf("%s is not host:port; write 127.0.0.1:%s", quote(listen), listen)
		}
		return "", 0, fmt.Errorf("%s is not host:port", quote(listen))
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%s is not a port from 0 to 65535", quote(p))
	}
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Unmap().String(), port, nil
	}
	if h != "" && h != "localhost" {
		return "", 0, fmt.Errorf("%s is not an address; a listener is 127.0.0.1:3128, [::1]:3128 or :3128", quote(h))
	}
	return h, port, nil
}

// hostPattern checks example.com or *.example.com.
func hostPattern(raw string) error {
	name := strings.TrimPrefix(raw, "*.")
	if strings.Contains(raw, "/") || strings.Contains(raw, "://") {
		return fmt.Errorf("%s is a URL; write the host alone", quote(raw))
	}
	_, err := guard.ConfigHost(name)
	return err
}
