package proxy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"
)

// identity is who asked: what the proxy credentials of a connection or request say.
type identity struct {
	client  *Client
	auth    string // basic, network, listener, none
	profile string // named in the user name; "" for the first
	job     string
	session string // groups the requests of one fetcher: the whole user name, else the peer's address
	addr    netip.AddrPort
	via     *listenerOf
}

const (
	lockAfter  = 10          // failures of one name from one address in a minute
	lockFor    = time.Minute // and how long it is then not looked at
	maxLocks   = 10_000
	maxAccepts = 10_000
)

// gatekeeper checks secrets. An accepted secret is remembered as an HMAC under a key of this process, so that a slow
// hash is computed once and not for every request.
type gatekeeper struct {
	key [32]byte

	mu       sync.Mutex
	accepted map[string][32]byte // client name -> HMAC of the secret and its hash
	failures map[string]*failures
}

type failures struct {
	count int
	since time.Time
}

func newGatekeeper() *gatekeeper {
	k := &gatekeeper{accepted: map[string][32]byte{}, failures: map[string]*failures{}}
	_, _ = rand.Read(k.key[:])
	return k
}

// identify names the client of a request on the proxy port, from its credentials, else its source network. Inside a
// tunnel the CONNECT's identity holds.
func (g *Gate) identify(in *inbound) (*identity, *refusal) {
	rules, r, via := g.rules(), in.r, in.via
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	id := &identity{addr: addr, session: addr.Addr().String(), via: via}
	user, secret, given := basicAuth(r.Header.Get("Proxy-Authorization"))
	if via != nil && via.trusted {
		return g.trusted(rules, id, user, given)
	}
	if given {
		name, profile, job, ok := splitUser(user)
		if !ok {
			return nil, authFailed("client_unknown", 0)
		}
		id.profile, id.job = profile, job
		id.session = user
		if len(rules.Clients) == 0 {
			// Open mode knows no secrets; the name only says profile and job.
			id.client, id.auth = rules.open, "none"
			return id, g.openOnly(rules)
		}
		c := rules.byName[name]
		if wait := g.keeper.locked(name, addr.Addr(), c, secret); wait > 0 {
			return nil, authFailed("client_locked", wait)
		}
		if !g.keeper.check(c, secret) || !c.fromSource(addr.Addr()) {
			g.keeper.failed(name, addr.Addr())
			g.log.Warn("client refused", "client", name, "address", addr.Addr().String())
			return nil, authFailed("client_unknown", 0)
		}
		id.client, id.auth = c, "basic"
		return id, nil
	}
	if len(rules.Clients) == 0 {
		id.client, id.auth = rules.open, "none"
		return id, g.openOnly(rules)
	}
	if via != nil && via.client != "" {
		if c := rules.byName[via.client]; c != nil && c.fromSource(addr.Addr()) && c.SecretHash == "" {
			id.client, id.auth = c, "listener"
			return id, nil
		}
	}
	for _, c := range rules.Clients {
		if len(c.Sources) > 0 && c.SecretHash == "" && c.Listen == "" && c.fromSource(addr.Addr()) {
			id.client, id.auth = c, "network"
			return id, nil
		}
	}
	return nil, &refusal{code: AuthRequired, class: "client_auth_required", challenge: true}
}

// trusted names the client of a command's own listener; its user name only says profile and job.
func (g *Gate) trusted(rules *Rules, id *identity, user string, given bool) (*identity, *refusal) {
	id.client, id.auth = rules.open, "none"
	if id.via.client != "" {
		id.client = rules.byName[id.via.client]
	}
	if id.client == nil {
		return nil, &refusal{code: AuthFailed, class: "client_unknown"}
	}
	if given {
		_, profile, job, ok := splitUser(user)
		if !ok {
			return nil, authFailed("client_unknown", 0)
		}
		id.profile, id.job, id.session = profile, job, user
	}
	return id, nil
}

// openOnly refuses when open mode is switched off and nobody is configured.
func (g *Gate) openOnly(rules *Rules) *refusal {
	if rules.Open {
		return nil
	}
	return &refusal{code: SiteDenied, class: "site_not_allowed",
		detail: "No client is configured and open is false, so nothing is reachable. Add clients: or set open: true."}
}

func authFailed(class string, wait time.Duration) *refusal {
	return &refusal{code: AuthFailed, class: class, challenge: true, retryAfter: wait}
}

// basicAuth reads Basic credentials (RFC 7617).
func basicAuth(v string) (user, secret string, ok bool) {
	const prefix = "basic "
	if len(v) < len(prefix) || !strings.EqualFold(v[:len(prefix)], prefix) {
		return "", "", false
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(v[len(prefix):]))
	if err != nil {
		return "", "", true // given, but unreadable: never treated as absent
	}
	user, secret, _ = strings.Cut(string(raw), ":")
	return user, secret, true
}

// splitUser reads CLIENT[+PROFILE[+JOB]].
func splitUser(user string) (name, profile, job string, ok bool) {
	parts := strings.Split(user, "+")
	if len(parts) > 3 {
		return "", "", "", false
	}
	for _, p := range parts {
		if !plainName(p) {
			return "", "", "", false
		}
	}
	name = parts[0]
	if len(parts) > 1 {
		profile = parts[1]
	}
	if len(parts) > 2 {
		job = parts[2]
	}
	return name, profile, job, true
}

// plainName tells whether s is a name of a client, profile or job.
func plainName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		b := s[i]
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-') {
			return false
		}
	}
	return true
}

func (c *Client) fromSource(a netip.Addr) bool {
	if c == nil {
		return false
	}
	if len(c.Sources) == 0 {
		return true
	}
	for _, p := range c.Sources {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// check compares a secret with a client's hash. An unknown name burns the same work as a wrong secret.
func (k *gatekeeper) check(c *Client, secret string) bool {
	hash, name := "sha256:"+strings.Repeat("00", sha256.Size), ""
	if c != nil && c.SecretHash != "" {
		hash, name = c.SecretHash, c.Name
	}
	mac := k.mac(hash, secret)
	k.mu.Lock()
	seen, known := k.accepted[name]
	k.mu.Unlock()
	if known && subtle.ConstantTimeCompare(seen[:], mac[:]) == 1 {
		return true
	}
	if !VerifySecret(hash, secret) || name == "" {
		return false
	}
	k.mu.Lock()
	if len(k.accepted) < maxAccepts {
		k.accepted[name] = mac
	}
	k.mu.Unlock()
	return true
}

func (k *gatekeeper) mac(hash, secret string) (out [32]byte) {
	m := hmac.New(sha256.New, k.key[:])
	m.Write([]byte(hash))
	m.Write([]byte{0})
	m.Write([]byte(secret))
	m.Sum(out[:0])
	return out
}

// locked tells how long a name is not looked at from an address. A secret that was accepted before goes on working:
// a shared address must not let one fetcher lock out the rest.
func (k *gatekeeper) locked(name string, a netip.Addr, c *Client, secret string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.failures[name+" "+a.String()]
	if f == nil || f.count < lockAfter {
		return 0
	}
	left := lockFor - time.Since(f.since)
	if left <= 0 {
		delete(k.failures, name+" "+a.String())
		return 0
	}
	if c != nil {
		if seen, ok := k.accepted[c.Name]; ok {
			if mac := k.mac(c.SecretHash, secret); subtle.ConstantTimeCompare(seen[:], mac[:]) == 1 {
				return 0
			}
		}
	}
	return left
}

func (k *gatekeeper) failed(name string, a netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := name + " " + a.String()
	f := k.failures[key]
	if f == nil || time.Since(f.since) > lockFor {
		if len(k.failures) >= maxLocks {
			clear(k.failures) // bounded: forgetting failures is safe, secrets are long
		}
		f = &failures{since: time.Now()}
		k.failures[key] = f
	}
	f.count++
}

// VerifySecret compares a secret with a stored hash: sha256:HEX for generated secrets, and
// argon2id:TIME:MEMORYKIB:THREADS:SALTHEX:KEYHEX for chosen ones.
func VerifySecret(hash, secret string) bool {
	if rest, ok := strings.CutPrefix(hash, "sha256:"); ok {
		want, err := hex.DecodeString(rest)
		if err != nil || len(want) != sha256.Size {
			return false
		}
		got := sha256.Sum256([]byte(secret))
		return subtle.ConstantTimeCompare(got[:], want) == 1
	}
	if rest, ok := strings.CutPrefix(hash, "argon2id:"); ok {
		p := strings.Split(rest, ":")
		if len(p) != 5 {
			return false
		}
		t, err1 := strconv.ParseUint(p[0], 10, 32)
		m, err2 := strconv.ParseUint(p[1], 10, 32)
		th, err3 := strconv.ParseUint(p[2], 10, 8)
		salt, err4 := hex.DecodeString(p[3])
		want, err5 := hex.DecodeString(p[4])
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || len(want) < 16 || t == 0 || th == 0 || m > 1<<20 {
			return false
		}
		got := argon2.IDKey([]byte(secret), salt, uint32(t), uint32(m), uint8(th), uint32(len(want)))
		return subtle.ConstantTimeCompare(got, want) == 1
	}
	return false
}

// NewSecret makes a client secret (32 random bytes) and the hash that is stored.
func NewSecret() (secret, hash string, err error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", "", fmt.Errorf("make secret: %w", err)
	}
	secret = "cg_" + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, "sha256:" + hex.EncodeToString(sum[:]), nil
}
