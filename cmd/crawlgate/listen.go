package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"crawlgate/configs"
)

// listeners are the gate's own addresses: the guard never dials them.
type listeners struct {
	mu   sync.Mutex
	all  []netip.AddrPort
	main net.Addr
}

func (l *listeners) add(a net.Addr) {
	ta, ok := a.(*net.TCPAddr)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ap := ta.AddrPort()
	l.all = append(l.all, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()))
}

func (l *listeners) remove(a net.Addr) {
	ta, ok := a.(*net.TCPAddr)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ap := ta.AddrPort()
	l.all = slices.DeleteFunc(l.all, func(x netip.AddrPort) bool { return x == netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()) })
}

// addrs lists them, for the guard.
func (l *listeners) addrs() []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]netip.AddrPort(nil), l.all...)
}

// listen opens a TCP listener and names the key of the configuration when it cannot.
func (i *instance) listen(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, usage("%s: %s is in use by another program", key, addr)
		}
		return nil, usage("%s: %w", key, err)
	}
	i.listeners.add(l.Addr())
	return l, nil
}

// openProxyPorts opens every proxy listener of the configuration and serves it.
func (i *instance) openProxyPorts(cfg *configs.Config) error {
	type port struct {
		l      net.Listener
		client string
	}
	var ports []port
	fail := func(err error) error {
		for _, p := range ports {
			p.l.Close()
		}
		return err
	}
	l, err := i.listen("listen", cfg.Listen)
	if err != nil {
		return fail(err)
	}
	i.listeners.main = l.Addr()
	if cfg.Server.TLS.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile)
		if err != nil {
			l.Close()
			return fail(usage("server.tls: %w", err))
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	}
	ports = append(ports, port{l, ""})
	for n, c := range cfg.Clients {
		if c.Listen == "" {
			continue
		}
		l, err := i.listen(fmt.Sprintf("clients[%d].listen", n), c.Listen)
		if err != nil {
			return fail(err)
		}
		ports = append(ports, port{l, c.Name})
	}
	i.currentDialer().SetSelf(i.listeners.addrs)
	for _, p := range ports {
		go func() {
			if err := i.gate.Serve(p.l, p.client); err != nil {
				i.log.Error("proxy listener ended", "error", err)
			}
		}()
	}
	return nil
}

// proxyURL is where fetchers are pointed.
func (i *instance) proxyURL() string {
	if i.listeners.main == nil {
		return ""
	}
	scheme := "http"
	if i.cfg.Load().Server.TLS.CertFile != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(i.listeners.main.String())
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
