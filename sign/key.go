package sign

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Thumbprints of keys whose private half is printed in a standard; the drafts forbid them in production.
var testKeys = map[string]string{
	"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U": "RFC 9421 B.1.4",
	"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k": "RFC 8037 A.1",
}

// key is one Ed25519 key. private is nil when only the public half is known. It is never printed: String shows the id.
type key struct {
	id      string // RFC 7638 thumbprint
	public  ed25519.PublicKey
	private ed25519.PrivateKey
}

// String keeps the key out of logs and error texts.
func (k key) String() string { return k.id }

// GoString keeps the key out of %#v.
func (k key) GoString() string { return k.id }

func newKey(private ed25519.PrivateKey) key {
	public := private.Public().(ed25519.PublicKey)
	return key{id: Thumbprint(public), public: public, private: private}
}

var b64url = base64.RawURLEncoding.Strict()

// Thumbprint is the key id: the JWK SHA-256 thumbprint of RFC 7638 and RFC 8037 A.3, base64url without padding.
func Thumbprint(public ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + b64url.EncodeToString(public) + `"}`))
	return b64url.EncodeToString(sum[:])
}

// isThumbprint tells whether s has the form of a key id.
func isThumbprint(s string) bool {
	b, err := b64url.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// jwk is a public key as the directory shows it (RFC 8037 2): never alg, nbf, exp or d.
type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	Kid string `json:"kid"`
	X   string `json:"x"`
	Use string `json:"use"`
}

func (k key) jwk() jwk {
	return jwk{Kty: "OKP", Crv: "Ed25519", Kid: k.id, X: b64url.EncodeToString(k.public), Use: "sig"}
}

// pem is the private key as PKCS#8, what `openssl genpkey -algorithm ed25519` writes (RFC 8410).
func (k key) pem() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// parsePrivateKey reads the bytes of a key file: one PKCS#8 PEM block or one private JWK.
func parsePrivateKey(data []byte) (key, error) {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return key{}, errors.New("empty")
	case data[0] == '{':
		k, err := parseJWK(data)
		if err != nil {
			return key{}, err
		}
		if k.private == nil {
			return key{}, errors.New("a public JWK, the private half is missing")
		}
		return k, nil
	case bytes.HasPrefix(data, []byte("-----BEGIN ")):
		return parsePEM(data)
	}
	return key{}, errors.New("neither a PEM block nor a JWK")
}

// parseAnyKey also takes a public JWK, for keys that are published without proof.
func parseAnyKey(data []byte) (key, error) {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '{' {
		return parseJWK(data)
	}
	return parsePrivateKey(data)
}

func parsePEM(data []byte) (key, error) {
	block, rest := pem.Decode(data)
	if block == nil || bytes.Count(data[:len(data)-len(rest)], []byte("-----BEGIN ")) != 1 {
		return key{}, errors.New("a damaged or truncated PEM block")
	}
	if rest = bytes.TrimSpace(rest); bytes.HasPrefix(rest, []byte("-----BEGIN ")) {
		return key{}, errors.New("more than one key in the file")
	} else if len(rest) > 0 {
		return key{}, errors.New("text after the PEM block")
	}
	if strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
		return key{}, errors.New("an encrypted key; it can't be read without a passphrase")
	}
	switch block.Type {
	case "PRIVATE KEY":
	case "ENCRYPTED PRIVATE KEY":
		return key{}, errors.New("an encrypted key; it can't be read without a passphrase")
	case "OPENSSH PRIVATE KEY":
		return key{}, errors.New("an OpenSSH key; PKCS#8 is needed, as openssl genpkey -algorithm ed25519 writes it")
	case "RSA PRIVATE KEY":
		return key{}, errors.New("an RSA key; only Ed25519 is supported")
	case "EC PRIVATE KEY":
		return key{}, errors.New("an EC key; only Ed25519 is supported")
	case "PUBLIC KEY":
		return key{}, errors.New("a public key, the private half is missing")
	default:
		return key{}, fmt.Errorf("a PEM block of type %q; PRIVATE KEY is needed", clip(block.Type, 40))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return key{}, errors.New("damaged PKCS#8 data")
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return key{}, fmt.Errorf("an %s key; only Ed25519 is supported", algorithmOf(parsed))
	}
	return newKey(private), nil
}

func algorithmOf(k crypto.PrivateKey) string {
	switch k.(type) {
	case *rsa.PrivateKey:
		return "RSA"
	case *ecdsa.PrivateKey:
		return "EC"
	case *ecdh.PrivateKey:
		return "X25519"
	}
	return "unknown"
}

// parseJWK reads one JWK of RFC 8037, public or private. Member names count exactly, unlike encoding/json's own matching.
func parseJWK(data []byte) (key, error) {
	m, err := members(data)
	if err != nil {
		return key{}, err
	}
	if _, set := m["keys"]; set {
		return key{}, errors.New("a key set; one key per file is needed")
	}
	kty, crv := stringMember(m, "kty"), stringMember(m, "crv")
	switch {
	case kty == "":
		return key{}, errors.New("a JWK without kty")
	case kty != "OKP" || crv != "Ed25519":
		return key{}, fmt.Errorf("a JWK of kty %q, crv %q; only OKP with Ed25519 is supported", clip(kty, 20), clip(crv, 20))
	}
	x, err := b64url.DecodeString(stringMember(m, "x"))
	if err != nil || len(x) != ed25519.PublicKeySize {
		return key{}, errors.New("a JWK whose x is not 32 bytes of base64url")
	}
	if _, private := m["d"]; !private {
		public := ed25519.PublicKey(x)
		return key{id: Thumbprint(public), public: public}, nil
	}
	d, err := b64url.DecodeString(stringMember(m, "d"))
	if err != nil || len(d) != ed25519.SeedSize {
		return key{}, errors.New("a JWK whose d is not 32 bytes of base64url")
	}
	k := newKey(ed25519.NewKeyFromSeed(d))
	if !k.public.Equal(ed25519.PublicKey(x)) {
		return key{}, errors.New("a JWK whose x is not the public key of d")
	}
	return k, nil
}

// members splits one JSON object; nothing may follow it.
func members(data []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil || m == nil {
		return nil, errors.New("not a JSON object")
	}
	return m, nil
}

// stringMember is "" when the member is absent or not a string.
func stringMember(m map[string]json.RawMessage, name string) string {
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
}

// clip shortens foreign text for a message.
func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
