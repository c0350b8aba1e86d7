package sign

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func pkcs8(t *testing.T, k any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// keyFiles are the texts of key files that must be refused, with a word of the reason.
func keyFiles(t *testing.T) map[string][2]string {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	xKey, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecDER, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	k := testKey(1)
	goodBytes, err := k.pem()
	if err != nil {
		t.Fatal(err)
	}
	good := string(goodBytes)
	x, d := k.jwk().X, b64url.EncodeToString(k.private.Seed())
	jwkOf := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	return map[string][2]string{
		"RSA in PKCS8":            {pkcs8(t, rsaKey), "RSA"},
		"RSA in PKCS1":            {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), "RSA"},
		"EC in PKCS8":             {pkcs8(t, ecKey), "EC key"},
		"EC in SEC1":              {block("EC PRIVATE KEY", ecDER), "EC key"},
		"X25519":                  {pkcs8(t, xKey), "X25519"},
		"encrypted PKCS8":         {block("ENCRYPTED PRIVATE KEY", []byte("x")), "encrypted"},
		"encrypted PEM":           {"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n", "encrypted"},
		"OpenSSH":                 {block("OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00")), "OpenSSH"},
		"certificate":             {block("CERTIFICATE", []byte("x")), "CERTIFICATE"},
		"public PEM":              {block("PUBLIC KEY", []byte("x")), "public"},
		"damaged PKCS8":           {block("PRIVATE KEY", []byte{0x30, 0x01}), "damaged"},
		"truncated PEM":           {good[:len(good)-20], "truncated"},
		"truncated before good":   {good[:len(good)-20] + "\n" + good, "truncated"},
		"two keys":                {good + good, "more than one key"},
		"PEM and JWK":             {good + jwkOf(`{"kty":"OKP","crv":"Ed25519","x":"%s","d":"%s"}`, x, d), "text after"},
		"text before":             {"# my key\n" + good, "neither"},
		"empty":                   {"", "empty"},
		"spaces":                  {" \n", "empty"},
		"binary":                  {"\x00\x01", "neither"},
		"public JWK":              {jwkOf(`{"kty":"OKP","crv":"Ed25519","x":"%s"}`, x), "private half"},
		"x of another key":        {jwkOf(`{"kty":"OKP","crv":"Ed25519","x":"%s","d":"%s"}`, testKey(2).jwk().X, d), "not the public key of d"},
		"no x":                    {jwkOf(`{"kty":"OKP","crv":"Ed25519","d":"%s"}`, d), "x is not 32 bytes"},
		"short d":                 {jwkOf(`{"kty":"OKP","crv":"Ed25519","x":"%s","d":"AAAA"}`, x), "d is not 32 bytes"},
		"padded d":                {jwkOf(`{"kty":"OKP","crv":"Ed25519","x":"%s","d":"%s="}`, x, d), "d is not 32 bytes"},
		"EC JWK":                  {`{"kty":"EC","crv":"P-256","x":"AA","y":"AA","d":"AA"}`, "only OKP"},
		"X25519 JWK":              {jwkOf(`{"kty":"OKP","crv":"X25519","x":"%s","d":"%s"}`, x, d), "only OKP"},
		"HMAC JWK":                {`{"kty":"oct","k":"AAAA"}`, "only OKP"},
		"no kty":                  {`{"crv":"Ed25519"}`, "without kty"},
		"key set":                 {jwkOf(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"%s","d":"%s"}]}`, x, d), "key set"},
		"two JWKs":                {jwkOf(`{"kty":"OKP","crv":"Ed25519","x":"%[1]s","d":"%[2]s"}{"kty":"OKP","crv":"Ed25519","x":"%[1]s","d":"%[2]s"}`, x, d), "not a JSON object"},
		"broken JSON":             {`{"kty":"OKP"`, "not a JSON object"},
		"member names in capital": {jwkOf(`{"KTY":"OKP","crv":"Ed25519","x":"%s","d":"%s"}`, x, d), "without kty"},
	}
}

func TestParsePrivateKeyRefuses(t *testing.T) {
	secret := b64url.EncodeToString(testKey(1).private.Seed())
	for name, c := range keyFiles(t) {
		k, err := parsePrivateKey([]byte(c[0]))
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q (%v)", name, err, c[1], k)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: the text tells of the key: %v", name, err)
		}
	}
}

func TestParsePrivateKeyTakes(t *testing.T) {
	k := testKey(1)
	data, err := k.pem()
	if err != nil {
		t.Fatal(err)
	}
	jwk := fmt.Sprintf(`{"use":"sig","kid":"x","kty":"OKP","crv":"Ed25519","x":"%s","d":"%s"}`, k.jwk().X, b64url.EncodeToString(k.private.Seed()))
	for name, text := range map[string]string{"pem": string(data), "crlf": strings.ReplaceAll(string(data), "\n", "\r\n"), "spaces around": "\n\n" + string(data) + "\n \n", "jwk": jwk, "jwk in lines": strings.ReplaceAll(jwk, ",", ",\n") + "\n"} {
		if got, err := parsePrivateKey([]byte(text)); err != nil || got.id != k.id || !got.private.Equal(k.private) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Count(s, k.id) != 4 || strings.Contains(s, fmt.Sprint(k.private[0])+" ") {
		t.Errorf("a printed key shows more than its id: %s", s)
	}
}

func writeKey(t testing.TB, dir, name string, k key, mode os.FileMode) string {
	t.Helper()
	data, err := k.pem()
	if err != nil {
		t.Fatal(err)
	}
	return writeMode(t, filepath.Join(dir, name), data, mode)
}

func writeMode(t testing.TB, path string, data []byte, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

func TestKeyFileMode(t *testing.T) {
	dir := t.TempDir()
	for mode, takes := range map[os.FileMode][2]bool{
		0o600: {true, true}, 0o400: {true, true}, 0o640: {false, true}, 0o440: {false, true}, 0o644: {}, 0o604: {}, 0o660: {}, 0o700: {}, 0o620: {}, 0o777: {},
	} {
		path := writeKey(t, dir, fmt.Sprintf("%o.pem", mode), testKey(1), mode)
		for i, allowGroup := range []bool{false, true} {
			_, err := readPrivateKey(path, allowGroup)
			if (err == nil) != takes[i] {
				t.Errorf("mode %04o, allow_group_read %t: %v", mode, allowGroup, err)
			}
			if err != nil && (!strings.Contains(err.Error(), fmt.Sprintf("mode %04o", mode)) || !strings.Contains(err.Error(), path)) {
				t.Errorf("the text does not name file and mode: %v", err)
			}
		}
	}
}

func TestKeyFileKind(t *testing.T) {
	dir := t.TempDir()
	good := writeKey(t, dir, "good.pem", testKey(1), 0o600)
	link := filepath.Join(dir, "link.pem")
	if err := os.Symlink(good, link); err != nil { // mounted secrets are links
		t.Fatal(err)
	}
	if _, err := readPrivateKey(link, false); err != nil {
		t.Error(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	big := writeMode(t, filepath.Join(dir, "big"), make([]byte, maxKeyFile+1), 0o600)
	for path, want := range map[string]string{pipe: "not a regular file", dir: "not a regular file", big: "more than", filepath.Join(dir, "none"): "no such file"} {
		if _, err := readPrivateKey(path, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// foreignFile is a file of another user, which tests without root can't make.
type foreignFile struct{ fs.FileInfo }

func (foreignFile) Mode() fs.FileMode  { return 0o600 }
func (foreignFile) Sys() any           { return &syscall.Stat_t{Uid: 4242} }
func (foreignFile) ModTime() time.Time { return time.Time{} }

func TestKeyFileOwner(t *testing.T) {
	if err := checkPrivateFile(foreignFile{}, false); err == nil || !strings.Contains(err.Error(), "owned by user 4242") {
		t.Error(err)
	}
}

func TestPublishedKeyFile(t *testing.T) {
	dir := t.TempDir()
	public := writeMode(t, filepath.Join(dir, "pub.json"), fmt.Appendf(nil, `{"kty":"OKP","crv":"Ed25519","x":"%s"}`, testKey(1).jwk().X), 0o644)
	if k, err := readPublishedKey(public, false); err != nil || k.private != nil || k.id != testKey(1).id {
		t.Errorf("public JWK for all to read: %v", err)
	}
	private := writeKey(t, dir, "key.pem", testKey(1), 0o644)
	if _, err := readPublishedKey(private, false); err == nil || !strings.Contains(err.Error(), "mode 0644") {
		t.Errorf("private key for all to read: %v", err)
	}
}
