package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names inside the log's state folder.
const (
	hashKeyFile    = "url-hash.key"         // key of url_hash: whoever has it can test guesses of masked URLs
	signKeyFile    = "checkpoint.key"       // Ed25519, PKCS #8, never the crawling key
	publicKeysFile = "checkpoint-keys.json" // JWK set of all keys that ever signed here
)

// createSecret writes a new file that only its owner can read; one that exists is left alone and no error.
func createSecret(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// loadHashKey reads the key of url_hash, and makes it first if create is set.
func loadHashKey(dir string, create bool) ([]byte, error) {
	path := filepath.Join(dir, hashKeyFile)
	if create {
		key := make([]byte, 32)
		rand.Read(key)
		if err := createSecret(path, []byte(hex.EncodeToString(key)+"\n")); err != nil {
			return nil, fmt.Errorf("make the key of url_hash: %w", err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of url_hash: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) < 16 {
		return nil, fmt.Errorf("read the key of url_hash: %s is not 32 bytes in hex", path)
	}
	return key, nil
}

// OpenRedactor reads the local key of a state folder, so that a command can find a URL in the log by its hash. It makes
// nothing; an absent key is an error that wraps fs.ErrNotExist.
func OpenRedactor(c Config, stateDir string) (*Redactor, error) {
	key, err := loadHashKey(filepath.Join(stateDir, "audit"), false)
	if err != nil {
		return nil, err
	}
	return newRedactor(c, key), nil
}

// signer signs heads of the chain.
type signer struct {
	key ed25519.PrivateKey
	id  string
}

// openSigner reads the checkpoint key of a folder, made at the first start, and keeps its public half in the JWK set.
func openSigner(dir string) (*signer, error) {
	path := filepath.Join(dir, signKeyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		if err := createSecret(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
			return nil, fmt.Errorf("make the checkpoint key: %w", err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("read the checkpoint key: %s is not PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint key: %s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the checkpoint key: %s holds %T, not an Ed25519 key", path, parsed)
	}
	pub := key.Public().(ed25519.PublicKey)
	s := &signer{key: key, id: thumbprint(pub)}
	return s, publish(filepath.Join(dir, publicKeysFile), pub)
}

// jwk is a public key of RFC 8037.
type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Kid string `json:"kid,omitempty"`
}

type jwkSet struct {
	Keys []jwk `json:"keys"`
}

// thumbprint is a key's id: RFC 7638 over the RFC 8037 form.
func thumbprint(pub ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(pub) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// publish adds a public key to a JWK set file if it is not there.
func publish(path string, pub ed25519.PublicKey) error {
	var set jwkSet
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read the checkpoint keys: %w", err)
	default:
		if err := json.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("read the checkpoint keys: %s: %w", path, err)
		}
	}
	id := thumbprint(pub)
	for _, k := range set.Keys {
		if k.Kid == id {
			return nil
		}
	}
	set.Keys = append(set.Keys, jwk{Kty: "OKP", Crv: "Ed25519", X: base64.RawURLEncoding.EncodeToString(pub), Kid: id})
	text, err = json.MarshalIndent(set, "", " ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the checkpoint keys: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write the checkpoint keys: %w", err)
	}
	return nil
}

// Keys are public checkpoint keys by their id.
type Keys map[string]ed25519.PublicKey

// LoadKeys reads checkpoint keys from a file: a JWK set, or PEM public keys one after another.
func LoadKeys(path string) (Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

func parseKeys(text []byte) (Keys, error) {
	keys := Keys{}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("public key: %w", err)
		}
		pub, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("public key is %T, not Ed25519", parsed)
		}
		keys[thumbprint(pub)] = pub
	}
	if len(keys) > 0 {
		return keys, nil
	}
	var set jwkSet
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("neither a JWK set nor PEM public keys")
	}
	for i, k := range set.Keys {
		pub, err := base64.RawURLEncoding.DecodeString(k.X)
		if k.Kty != "OKP" || k.Crv != "Ed25519" || err != nil || len(pub) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("keys[%d] is not an Ed25519 key", i)
		}
		keys[thumbprint(pub)] = pub
	}
	if len(keys) == 0 {
		return nil, errors.New("no keys")
	}
	return keys, nil
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
