package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const maxSetKeys = 20

// setKey is one public key of a set. kid is what the set calls it, perhaps wrongly.
type setKey struct {
	public ed25519.PublicKey
	kid    string
}

// KeySet is the keys that signatures are verified with, by computed thumbprint, never by the name the set gives them.
type KeySet struct {
	source *url.URL // where it was fetched; nil for keys that the caller vouches for
	keys   map[string]setKey
}

// Len is the number of usable keys.
func (s *KeySet) Len() int { return len(s.keys) }

// Has tells whether the set holds the key of a thumbprint (RFC 7638).
func (s *KeySet) Has(thumbprint string) bool {
	_, ok := s.keys[thumbprint]
	return ok
}

// ParseKeySet reads a JWK Set, one public JWK, or PEM public keys. Keys of other types are passed over; a private key is
// refused, and so is a set of more than 20 keys or 64 KiB.
func ParseKeySet(data []byte) (*KeySet, error) {
	data = bytes.TrimSpace(data)
	if len(data) > maxDirectory {
		return nil, fmt.Errorf("more than %d bytes", maxDirectory)
	}
	s := &KeySet{keys: map[string]setKey{}}
	if bytes.HasPrefix(data, []byte("-----BEGIN ")) {
		return s, s.addPEM(data)
	}
	m, err := members(data)
	if err != nil {
		return nil, errors.New("neither a JWK Set nor a PEM public key")
	}
	list := []json.RawMessage{data}
	if raw, set := m["keys"]; set {
		list = nil
		if json.Unmarshal(raw, &list) != nil || list == nil {
			return nil, errors.New("keys is not a list")
		}
	}
	if len(list) > maxSetKeys {
		return nil, fmt.Errorf("more than %d keys", maxSetKeys)
	}
	for i, raw := range list {
		if err := s.addJWK(raw); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
	}
	if len(s.keys) == 0 {
		return nil, errors.New("no Ed25519 key in it")
	}
	return s, nil
}

func (s *KeySet) addJWK(raw json.RawMessage) error {
	m, err := members(raw)
	if err != nil {
		return err
	}
	if _, private := m["d"]; private {
		return errors.New("a private key; a key set must hold public halves only")
	}
	if stringMember(m, "kty") != "OKP" || stringMember(m, "crv") != "Ed25519" {
		return nil // another algorithm's key: not ours to judge
	}
	if use := stringMember(m, "use"); use != "" && use != "sig" {
		return nil
	}
	k, err := parseJWK(raw)
	if err != nil {
		return err
	}
	kid := stringMember(m, "kid")
	if _, set := m["kid"]; set && kid == "" {
		kid = "?" // present, but not a name: never the thumbprint
	}
	if have, doubled := s.keys[k.id]; doubled && have.kid != kid && have.kid != "" && have.kid != k.id {
		kid = have.kid
	}
	s.keys[k.id] = setKey{k.public, kid}
	return nil
}

func (s *KeySet) addPEM(data []byte) error {
	for len(data) > 0 {
		block, rest := pem.Decode(data)
		if block == nil {
			return errors.New("a damaged PEM block")
		}
		if strings.Contains(block.Type, "PRIVATE") {
			return errors.New("a private key; public halves are needed")
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := parsed.(ed25519.PublicKey)
		if err != nil || !ok {
			return errors.New("a PEM block that is not an Ed25519 public key")
		}
		s.keys[Thumbprint(public)] = setKey{public: public}
		if len(s.keys) > maxSetKeys {
			return fmt.Errorf("more than %d keys", maxSetKeys)
		}
		data = bytes.TrimSpace(rest)
	}
	return nil
}

// find looks a key up by agent and thumbprint: a key proves nothing about another agent's URL.
func (s *KeySet) find(agentURL, id string) (setKey, *failure) {
	if s == nil || !s.belongsTo(agentURL) {
		return setKey{}, failed("unknown-key", "the key set is not that of %s", clip(agentURL, maxAgentURL))
	}
	return s.lookup(id)
}

// lookup is find without the agent.
func (s *KeySet) lookup(id string) (setKey, *failure) {
	k, found := s.keys[id]
	if !found {
		return k, failed("unknown-key", "no key with the thumbprint %s", clip(id, 60))
	}
	if k.kid != "" && k.kid != id {
		return k, failed("kid-mismatch", "the set calls the key %q", clip(k.kid, 60))
	}
	return k, nil
}

// belongsTo tells whether a Signature-Agent value leads to the URL that the set was fetched from: it is that URL (draft
// -01), or an origin's well-known directory (draft -00 and before).
func (s *KeySet) belongsTo(agentURL string) bool {
	if s.source == nil {
		return true
	}
	u, err := parseAgentURL(agentURL)
	if err != nil {
		return false
	}
	a, err1 := normalAuthority(u.Host)
	b, err2 := normalAuthority(s.source.Host)
	if err1 != nil || err2 != nil || a != b {
		return false
	}
	return sameTarget(u, s.source) || requestTarget(s.source) == DirectoryPath
}

func sameTarget(a, b *url.URL) bool { return requestTarget(a) == requestTarget(b) }

func requestTarget(u *url.URL) string {
	t := u.EscapedPath()
	if t == "" {
		t = "/"
	}
	if u.RawQuery != "" || u.ForceQuery {
		t += "?" + u.RawQuery
	}
	return t
}
