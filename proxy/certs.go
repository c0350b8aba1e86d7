package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

const (
	leafLifetime = 7 * 24 * time.Hour // some clients refuse leaves that live longer than 200 days
	leafCacheTTL = 5 * 24 * time.Hour // a cached leaf is always good for two more days
	leafCacheMax = 10_000             // hosts
)

// certs mints and keeps leaf certificates, one per host. All leaves of the process share one key that is never
// written: making a key costs more than signing, and the leaf is trusted by nobody outside.
type certs struct {
	ca    *CA
	key   *ecdsa.PrivateKey
	cache *ristretto.Cache[string, *tls.Certificate]

	mu     sync.Mutex
	flight map[string]*minting
	minted int64
}

// minting is one signing that several handshakes wait for. ristretto admits asynchronously and may drop what was
// set, so the signed leaf is handed to the waiters and never read back from the cache.
type minting struct {
	done chan struct{}
	cert *tls.Certificate
	err  error
}

func newCerts(ca *CA) (*certs, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cache, err := ristretto.NewCache(&ristretto.Config[string, *tls.Certificate]{
		NumCounters: 10 * leafCacheMax, MaxCost: leafCacheMax, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	return &certs{ca: ca, key: key, cache: cache, flight: map[string]*minting{}}, nil
}

func (c *certs) close() { c.cache.Close() }

// leaf returns the certificate for a host: a canonical name, or an IP address (IPv6 in brackets).
func (c *certs) leaf(host string) (*tls.Certificate, error) {
	if cert, ok := c.cache.Get(host); ok {
		return cert, nil
	}
	c.mu.Lock()
	if m, ok := c.flight[host]; ok {
		c.mu.Unlock()
		<-m.done
		return m.cert, m.err
	}
	if cert, ok := c.cache.Get(host); ok { // signed since the first look
		c.mu.Unlock()
		return cert, nil
	}
	m := &minting{done: make(chan struct{})}
	c.flight[host] = m
	c.minted++
	c.mu.Unlock()

	m.cert, m.err = c.mint(host)
	close(m.done)
	if m.err == nil && c.cache.SetWithTTL(host, m.cert, 1, leafCacheTTL) {
		c.cache.Wait() // until it is there, late comers find the signing
	}
	c.mu.Lock()
	delete(c.flight, host)
	c.mu.Unlock()
	return m.cert, m.err
}

// mint signs a leaf: exactly one name or address, serverAuth only, one hour back, seven days on.
func (c *certs) mint(host string) (*tls.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"crawlgate"}},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(leafLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if tmpl.NotAfter.After(c.ca.Cert.NotAfter) {
		tmpl.NotAfter = c.ca.Cert.NotAfter
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		tmpl.IPAddresses = append(tmpl.IPAddresses, a.AsSlice())
	} else {
		tmpl.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.ca.Cert, c.key.Public(), c.ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign leaf for %s: %w", host, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	// The CA is sent along: Chromium's SPKI pin matches any certificate of the chain, but only one that was sent.
	return &tls.Certificate{Certificate: [][]byte{der, c.ca.Cert.Raw}, PrivateKey: c.key, Leaf: leaf}, nil
}

// tlsConfig is the one configuration of all tunnels. One config for all keeps one set of session ticket keys, so
// that clients can resume; per-handshake facts come from the connection under it.
func (c *certs) tlsConfig() *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1", "http/1.0"}, // curl -0 offers the last alone
	}
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		t, ok := hello.Conn.(*tunnelConn)
		if !ok {
			return nil, errNotTunnel
		}
		return c.leaf(t.tunnel.leafName())
	}
	// GetConfigForClient sees every handshake, resumed ones too (GetCertificate does not).
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		t, ok := hello.Conn.(*tunnelConn)
		if !ok {
			return nil, errNotTunnel
		}
		t.tunnel.checkServerName(hello.ServerName)
		return nil, nil
	}
	return cfg
}
