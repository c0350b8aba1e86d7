package configs

import (
	"regexp"
	"strings"
	"time"

	"crawlgate/pacing"
)

// Dialling and the TLS handshake end after this, whatever limits.timeout says.
const (
	maxDial      = 10 * time.Second
	maxHandshake = 10 * time.Second
	maxTimeout   = time.Hour
)

const maxConnections = 1000 // a larger number is a slip of the pen; 0 says no limit

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
		v.oneOf(at+".on_410", p.On410, On410Ask, On410Final)
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
	if l.Connections < 0 || l.Connections > maxConnections {
		v.fail(at+".connections", "%d is not from 0 to %d", l.Connections, maxConnections)
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
