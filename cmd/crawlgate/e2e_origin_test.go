package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// rootCA signs the certificates of the test's origins.
var rootCA = sync.OnceValue(func() *testRoot {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "origins of a test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &testRoot{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
})

type testRoot struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func (r *testRoot) leaf(t *testing.T, hosts ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{Organization: []string{"origin"}}, DNSNames: hosts,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, r.cert, &key.PublicKey, r.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// rootFile writes the CA where a configuration can name it.
func rootFile(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "origins.pem")
	writeFile(t, file, string(rootCA().pem), 0o600)
	return file
}

func writeFile(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil { // past the umask
		t.Fatal(err)
	}
}

// Kinds of origin.
const (
	plainHTTP = "plain"
	tlsH1     = "h1"
	tlsH2     = "h2"
)

// arrival is one request as an origin got it.
type arrival struct {
	At, Done time.Time // when the head was there, when the answer had been written
	Method   string
	Host     string
	Remote   string // address and port it came from
	URI      string
	Proto    string
	Header   http.Header
	Body     int
}

// origin is a site on loopback that remembers everything that arrives.
type origin struct {
	hosts  []string
	port   int
	scheme string
	robots string           // "": 404
	rules  http.HandlerFunc // answers robots.txt itself; nil: robots
	handle http.HandlerFunc // nil: a small page

	mu    sync.Mutex
	seen  []*arrival
	conns int // TCP connections accepted
}

// newOrigin starts a site for hosts. set may change it before it serves.
func newOrigin(t *testing.T, kind string, set func(*origin), hosts ...string) *origin {
	t.Helper()
	o := &origin{hosts: hosts, scheme: "https", robots: "User-agent: *\nAllow: /\n"}
	if set != nil {
		set(o)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(o.serve))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			o.mu.Lock()
			o.conns++
			o.mu.Unlock()
		}
	}
	switch kind {
	case plainHTTP:
		o.scheme = "http"
		s.Start()
	default:
		s.TLS = &tls.Config{Certificates: []tls.Certificate{rootCA().leaf(t, hosts...)}}
		s.EnableHTTP2 = kind == tlsH2
		s.StartTLS()
	}
	o.port = s.Listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return o
}

func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	a := &arrival{At: time.Now(), Method: r.Method, Host: r.Host, Remote: r.RemoteAddr, URI: r.RequestURI, Proto: r.Proto, Header: r.Header.Clone()}
	o.mu.Lock()
	o.seen = append(o.seen, a)
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		a.Done = time.Now()
		o.mu.Unlock()
	}()
	n, _ := io.Copy(io.Discard, r.Body)
	o.mu.Lock()
	a.Body = int(n)
	o.mu.Unlock()
	if r.URL.Path == "/robots.txt" {
		if o.rules != nil {
			o.rules(w, r)
			return
		}
		if o.robots == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, o.robots)
		return
	}
	if o.handle != nil {
		o.handle(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, "<title>page %s</title>\n", r.URL.Path)
}

// url names a path of the site.
func (o *origin) url(path string) string { return o.at(o.hosts[0], path) }

// at names a path of another of the site's hosts.
func (o *origin) at(host, path string) string {
	return fmt.Sprintf("%s://%s:%d%s", o.scheme, host, o.port, path)
}

// arrivals are all requests so far, in the order they came.
func (o *origin) arrivals() []arrival {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]arrival, len(o.seen))
	for n, a := range o.seen {
		out[n] = *a
	}
	return out
}

// pages are the arrivals for anything but robots.txt.
func (o *origin) pages() []arrival {
	var out []arrival
	for _, a := range o.arrivals() {
		if a.URI != "/robots.txt" {
			out = append(out, a)
		}
	}
	return out
}

// uris lists what was asked for, in order.
func uris(list []arrival) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Method+" "+a.URI)
	}
	return out
}

func (o *origin) connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns
}
