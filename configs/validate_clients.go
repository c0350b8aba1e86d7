package configs

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

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
			p, err := ParseSource(s)
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

// ParseSource reads an entry of clients[].sources: a prefix, or a single address of a TCP peer.
func ParseSource(s string) (netip.Prefix, error) {
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
