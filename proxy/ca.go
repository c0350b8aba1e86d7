package proxy

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// caLifetime is how long a new interception CA is valid; clients hold it as a locally installed root.
const caLifetime = 2 * 365 * 24 * time.Hour

// CA is the local certification authority that signs the leaves shown to fetchers. It is used inside the
// organisation only; no public rule binds it.
type CA struct {
	Cert *x509.Certificate
	PEM  []byte // the certificate, as clients install it
	File string // where PEM lies
	key  crypto.Signer
}

// Fingerprint is the SHA-256 of the certificate in lower-case hex.
func (c *CA) Fingerprint() string {
	sum := sha256.Sum256(c.Cert.Raw)
	return hex.EncodeToString(sum[:])
}

// SPKI is the base64 SHA-256 of the subject public key, as Chromium's --ignore-certificate-errors-spki-list takes it.
func (c *CA) SPKI() string {
	sum := sha256.Sum256(c.Cert.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// OpenCA loads the CA of dir (ca.pem and ca.key), making it on the first start. The folder is 0700 and the key
// 0600; a key that others may read, of another type than ECDSA, or that does not belong to the certificate is
// refused with an error that names the file.
func OpenCA(dir string) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	ca, err := LoadCA(certFile, keyFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return ca, err
	}
	// One of the two alone is not a first start: making a new CA over it would silently break every client.
	for _, f := range []string{certFile, keyFile} {
		if _, serr := os.Stat(f); serr == nil {
			return nil, fmt.Errorf("interception CA: %w (but %s exists; restore the pair or remove both files)", err, f)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("interception CA: %w", err)
	}
	if err := makeCA(certFile, keyFile); err != nil {
		// Another process may have won the race to the first start; its pair is as good.
		if errors.Is(err, fs.ErrExist) {
			return waitForCA(certFile, keyFile)
		}
		return nil, fmt.Errorf("interception CA: %w", err)
	}
	return LoadCA(certFile, keyFile)
}

// waitForCA reads a pair that another process is writing at this moment.
func waitForCA(certFile, keyFile string) (*CA, error) {
	deadline := time.Now().Add(3 * time.Second)
	for {
		ca, err := LoadCA(certFile, keyFile)
		if err == nil || time.Now().After(deadline) {
			return ca, err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// LoadCA reads a CA from two PEM files.
func LoadCA(certFile, keyFile string) (*CA, error) {
	keyPEM, err := readPrivate(keyFile)
	if err != nil {
		return nil, fmt.Errorf("intercept.ca_key_file: %w", err)
	}
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("intercept.ca_cert_file: %w", err)
	}
	block, rest := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("intercept.ca_cert_file: %s holds no PEM certificate", certFile)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("intercept.ca_cert_file: %s holds more than one certificate", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("intercept.ca_cert_file: %s: %w", certFile, err)
	}
	kb, _ := pem.Decode(keyPEM)
	if kb == nil {
		return nil, fmt.Errorf("intercept.ca_key_file: %s holds no PEM key (truncated?)", keyFile)
	}
	key, err := parseSigner(kb)
	if err != nil {
		return nil, fmt.Errorf("intercept.ca_key_file: %s: %w", keyFile, err)
	}
	if err := usableCA(cert, key); err != nil {
		return nil, fmt.Errorf("intercept.ca_cert_file: %s: %w", certFile, err)
	}
	return &CA{Cert: cert, PEM: certPEM, File: certFile, key: key}, nil
}

func parseSigner(b *pem.Block) (crypto.Signer, error) {
	switch b.Type {
	case "PRIVATE KEY":
		k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
		if err != nil {
			return nil, err
		}
		if s, ok := k.(*ecdsa.PrivateKey); ok {
			return s, nil
		}
		return nil, fmt.Errorf("the key is a %T; an ECDSA key is needed (P-256)", k)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(b.Bytes)
	}
	return nil, fmt.Errorf("PEM block %q is not an ECDSA private key (PKCS#8)", b.Type)
}

// shippedCA is the SHA-256 of goproxy's example CA, whose private key is public: it must never sign anything.
const shippedCA = "4ca2f57b4a9958bf7743c9234aa12e80efaf7dcd8351ad624874666b700ef4f6"

func usableCA(cert *x509.Certificate, key crypto.Signer) error {
	if sum := sha256.Sum256(cert.Raw); hex.EncodeToString(sum[:]) == shippedCA {
		return errors.New("this is goproxy's example CA, whose private key is public")
	}
	pub, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return errors.New("the certificate's key is not ECDSA; an RSA CA makes each new host cost tens of milliseconds")
	}
	if !pub.Equal(key.Public()) {
		return errors.New("the certificate does not belong to the key")
	}
	if !cert.IsCA || !cert.BasicConstraintsValid {
		return errors.New("the certificate is not a CA (basicConstraints)")
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return errors.New("the certificate may not sign certificates (keyUsage)")
	}
	now := time.Now()
	if now.After(cert.NotAfter) {
		return fmt.Errorf("the CA expired on %s: run `crawlgate ca renew`", cert.NotAfter.Format(time.DateOnly))
	}
	if now.Before(cert.NotBefore) {
		return fmt.Errorf("the CA is not valid before %s (is the clock right?)", cert.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// makeCA writes a new P-256 CA. The key comes first and with O_EXCL, so that of two first starts one wins.
func makeCA(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "crawlgate interception CA " + now.UTC().Format("2006-01-02"), Organization: []string{"crawlgate"}},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(caLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return err
	}
	kb, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeNew(keyFile, 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kb})); err != nil {
		return err
	}
	return writeNew(certFile, 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// NextCA makes the CA that will follow the one of dir (ca-next.pem, ca-next.key), or loads the one made before. Fetchers
// get it beside the present one; nothing is signed with it until ActivateCA.
func NextCA(dir string) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, "ca-next.pem"), filepath.Join(dir, "ca-next.key")
	if _, err := os.Stat(keyFile); errors.Is(err, fs.ErrNotExist) {
		if err := makeCA(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("next interception CA: %w", err)
		}
	}
	return LoadCA(certFile, keyFile)
}

// ActivateCA puts the next CA in the place of the present one, which is kept as ca-old.pem without its key.
func ActivateCA(dir string) (*CA, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	if _, err := LoadCA(in("ca-next.pem"), in("ca-next.key")); err != nil {
		return nil, err
	}
	old, err := os.ReadFile(in("ca.pem"))
	if err == nil {
		err = os.WriteFile(in("ca-old.pem"), old, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The key first: a certificate without its key stops a start, and the pair can be put right by hand.
	for _, name := range []string{"key", "pem"} {
		if err := os.Rename(in("ca-next."+name), in("ca."+name)); err != nil {
			return nil, err
		}
	}
	return LoadCA(in("ca.pem"), in("ca.key"))
}

func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	b[0] &= 0x3f // 126 bits, never negative
	b[15] |= 1
	return new(big.Int).SetBytes(b), nil
}

// readPrivate reads a secret file and refuses one that others may read. The mode is taken from the opened file.
func readPrivate(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o; a private key must not be readable by others (chmod 600)", name, st.Mode().Perm())
	}
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// writeNew writes a file that must not exist yet, whole or not at all.
func writeNew(name string, mode fs.FileMode, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		os.Remove(name)
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		os.Remove(name)
		return err
	}
	return f.Close()
}
