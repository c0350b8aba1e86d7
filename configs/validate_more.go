package configs

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"crawlgate/pacing"
)

// Dialling and the TLS handshake end after this, whatever limits.timeout says (proxy-core section 3).
const (
	maxDial      = 10 * time.Second
	maxHandshake = 10 * time.Second
	maxTimeout   = time.Hour
)

var methodForm = regexp.MustCompile(`^[A-Z][A-Z-]*$`)

func (v *checker) profiles() {
	c := v.c
	if len(c.Profiles) == 0 {
		v.say("profiles", "is empty: without a profile nothing can be fetched")
	}
	for i, p := range c.Profiles {
		at := indexed("profiles", i)
		v.name(at+".name", p.Name)
		_, known := c.Agent(p.Agent)
		switch {
		case v.broken("agents"): // its name may be the one that could not be read
		case p.Agent == "" && len(c.Agents) > 1:
			v.say(at+".agent", "is missing: there are several agents (%s)", strings.Join(c.agentNames(), ", "))
		case p.Agent != "" && !known && len(c.Agents) == 0:
			v.fail(at+".agent", "%s is not an agent; there are none under agents", quote(p.Agent))
		case p.Agent != "" && !known:
			v.fail(at+".agent", "%s is not an agent%s", quote(p.Agent), orOneOf(p.Agent, c.agentNames()))
		}
		v.oneOf(at+".sign", p.Sign, SignSites, SignAll, SignNever)
		v.oneOf(at+".sites", p.Sites, SitesListed, SitesAny)
		if a, ok := c.Agent(p.Agent); ok && p.Sign == SignAll && a.SignatureAgent == "" {
			v.warn(at+".sign", "all: agent %s has no signature_agent, so nothing is signed", p.Agent)
		}
		v.limits(at+".limits", p)
		if p.Job.MaxPages < 0 {
			v.fail(at+".job.max_pages", "%d is below 0", p.Job.MaxPages)
		}
		if p.Pacing.Mode == pacing.ModeTurns && p.Pacing.MaxWait > 0 && p.Pacing.MaxWait < p.Pacing.Gap {
			v.warn(at+".pacing.max_wait", "%s is shorter than gap %s: a second request in a row is always refused",
				formatDuration(p.Pacing.MaxWait), formatDuration(p.Pacing.Gap))
		}
	}
	v.lifetime()
}

// lifetime: the request is signed before it is dialled, so the signature must outlive dialling and handshake by 30 s.
func (v *checker) lifetime() {
	c := v.c
	for _, p := range c.Profiles {
		if a, _ := c.Agent(p.Agent); p.Sign == SignNever || a.SignatureAgent == "" {
			continue
		}
		if need := min(p.Limits.Timeout, maxDial+maxHandshake) + 30*time.Second; c.Sign.Lifetime < need {
			v.fail("sign.lifetime", "%s is shorter than dialling, handshake and 30s together (%s) for profile %s",
				formatDuration(c.Sign.Lifetime), formatDuration(need), p.Name)
			return
		}
	}
}

func (v *checker) limits(at string, p Profile) {
	l := p.Limits
	if len(l.Methods) == 0 {
		v.say(at+".methods", "is empty: nothing could be fetched")
	}
	for j, m := range l.Methods {
		switch {
		case m == "CONNECT" || m == "TRACE":
			v.fail(indexed(at+".methods", j), "%s is never forwarded", m)
		case !methodForm.MatchString(m):
			v.fail(indexed(at+".methods", j), "%s is not a method in capitals", quote(m))
		}
	}
	if l.RequestBody == 0 {
		for _, m := range l.Methods {
			if m == "POST" || m == "PUT" || m == "PATCH" {
				v.warn(at+".request_body", "0 beside %s in methods: every request with a body is refused; set a size such as 1MiB", m)
				break
			}
		}
	}
	if l.Redirects < 0 || l.Redirects > 20 {
		v.fail(at+".redirects", "%d is not from 0 to 20", l.Redirects)
	}
	if l.Timeout < time.Second || l.Timeout > maxTimeout {
		v.fail(at+".timeout", "%s is not from 1s to 1h", formatDuration(l.Timeout))
	}
	v.oneOf(at+".authorization", l.Authorization, "strip", "pass")
	v.oneOf(at+".websocket", l.WebSocket, "allow", "deny")
	for j, k := range l.DenyKinds {
		v.oneOf(indexed(at+".deny_kinds", j), k, "script-navigation", "prefetch", "browser-noise")
	}
}

func orOneOf(word string, names []string) string {
	if n := nearest(word, names); n != "" {
		return "; did you mean " + n + "?"
	}
	if len(names) == 0 || len(names) > 12 {
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}

func (c *Config) agentNames() []string {
	var out []string
	for _, a := range c.Agents {
		out = append(out, a.Name)
	}
	return out
}

func (c *Config) profileNames() []string {
	var out []string
	for _, p := range c.Profiles {
		out = append(out, p.Name)
	}
	return out
}

func (v *checker) clients() {
	c := v.c
	bySource := map[netip.Prefix]string{}
	for i, cl := range c.Clients {
		at := indexed("clients", i)
		v.name(at+".name", cl.Name)
		if cl.SecretHash == "" && cl.Listen == "" && len(cl.Sources) == 0 {
			v.say(at, "has none of secret_hash, listen and sources: nobody could be this client")
		}
		if why := badSecret(cl.SecretHash); why != "" {
			v.fail(at+".secret_hash", "%s", why)
		}
		seen := map[string]bool{}
		reaches := len(cl.Sites) > 0
		for j, name := range cl.Profiles {
			key := indexed(at+".profiles", j)
			p, ok := c.Profile(name)
			switch {
			case !ok && v.broken("profiles"):
			case !ok:
				v.fail(key, "%s is not a profile%s", quote(name), orOneOf(name, c.profileNames()))
			case seen[name]:
				v.fail(key, "%s is named twice", quote(name))
			}
			seen[name] = true
			reaches = reaches || ok && p.Sites == SitesAny
		}
		if !reaches {
			v.warn(at+".sites", "is empty and no profile of %s has sites: any: this client can reach nothing", cl.Name)
		}
		for j, s := range cl.Sources {
			key := indexed(at+".sources", j)
			p, err := parseSource(s)
			if err != nil {
				v.fail(key, "%s", err)
				continue
			}
			if cl.SecretHash == "" && cl.Listen == "" {
				if other, ok := bySource[p]; ok {
					v.fail(key, "%s already names client %s; one of the two needs a secret_hash", p, other)
				}
				bySource[p] = cl.Name
			}
		}
		if _, _, err := hostPort(cl.Listen); err == nil && !loopback(cl.Listen) && len(cl.Sources) == 0 && cl.SecretHash == "" {
			v.fail(at+".listen", "%s is not loopback: it needs sources, the prefixes that may use it", cl.Listen)
		}
		if !cl.Enforce {
			v.warn(at+".enforce", "false: requests of %s that policy refuses are sent and only reported", cl.Name)
		}
	}
	if len(c.Clients) > 0 && c.Open && v.src.place("open").from != fromDefault {
		v.warn("open", "true is ignored: clients are configured, and only they are served")
	}
	if !c.Enforce {
		v.warn("enforce", "false: what policy refuses is sent all the same and only reported")
	}
}

// parseSource reads a prefix or a single address of a TCP peer.
func parseSource(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s is not a prefix such as 10.1.0.0/16", quote(s))
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits set behind the prefix; write %s", quote(s), p.Masked())
	}
	return p, nil
}

// argonForm is what follows argon2id: in a secret_hash, within what one check may cost (1 GiB, a salt of 8 and a key of
// 16 bytes at least).
var argonForm = regexp.MustCompile(`^[1-9]:[1-9][0-9]{0,6}:[1-9][0-9]?:(?:[0-9a-fA-F]{2}){8,64}:(?:[0-9a-fA-F]{2}){16,64}$`)

// badSecret says why a secret_hash is none; it never repeats the value.
func badSecret(h string) string {
	scheme, value, _ := strings.Cut(h, ":")
	switch {
	case h == "":
	case scheme == "sha256":
		if b, err := hex.DecodeString(value); err != nil || len(b) != 32 {
			return "sha256: must be followed by 64 hex digits; crawlgate client add makes one"
		}
	case scheme == "argon2id":
		if !argonForm.MatchString(value) {
			return "argon2id: must be followed by TIME:MEMORYKIB:THREADS:SALTHEX:KEYHEX; crawlgate client add makes one"
		}
	default:
		return "must begin with sha256: or argon2id: (the secret itself does not belong here; crawlgate client add makes the hash)"
	}
	return ""
}

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

func (v *checker) rest() {
	c := v.c
	if c.Revalidate.Enabled {
		v.fail("revalidate.enabled", "true is not possible yet: this version keeps no bodies; remove the key, conditional requests pass through as they are")
	}
	if c.Revalidate.MaxSize < 1 {
		v.fail("revalidate.max_size", "must be above 0")
	}
	if c.Revalidate.FullEvery < 0 {
		v.fail("revalidate.full_every", "%d is below 0", c.Revalidate.FullEvery)
	}
	if c.StateDir == "" {
		v.say("state_dir", "is empty: what must survive a restart needs a folder")
	}
	if (c.Intercept.CACertFile == "") != (c.Intercept.CAKeyFile == "") {
		v.fail("intercept", "ca_cert_file and ca_key_file belong together; set both or none")
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
		if _, err := parseSource(a); err != nil {
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
		v.fail("server.tls", "cert_file and key_file belong together; set both or none")
	}
}
