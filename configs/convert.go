package configs

import (
	"crawlgate/allowlist"
	"crawlgate/policy"
	"crawlgate/sign"
)

// openClient is the client that every request belongs to while none is configured.
const openClient = "default"

// Profile is the profile of a name.
func (c *Config) Profile(name string) (Profile, bool) {
	for _, p := range c.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Agent is the agent of a name.
func (c *Config) Agent(name string) (Agent, bool) {
	for _, a := range c.Agents {
		if a.Name == name {
			return a, true
		}
	}
	return Agent{}, false
}

// StopOn are the signals that stop a profile: its own list, else what follows from its agent's purposes.
func (c *Config) StopOn(p Profile) []string {
	if p.Robots.StopOn != nil {
		return p.Robots.StopOn
	}
	a, _ := c.Agent(p.Agent)
	return policy.StopOnFor(a.Purposes)
}

// Allowlist is the part of the configuration that says where clients may go. Without clients it is the one client of
// open mode, which reaches any site, or nothing when open is false.
func (c *Config) Allowlist() allowlist.Config {
	out := allowlist.Config{DenyHosts: c.Egress.DenyHosts}
	if len(c.Clients) == 0 {
		out.Clients = []allowlist.ClientConfig{{Name: openClient, Open: c.Open, Grants: allowlist.DefaultGrants()}}
	}
	for _, cl := range c.Clients {
		out.Clients = append(out.Clients, allowlist.ClientConfig{
			Name: cl.Name, Sites: cl.Sites, Grants: cl.Grants, DenyHosts: cl.DenyHosts, SubresourcesPost: cl.SubresourcesPost,
		})
	}
	return out
}

// SignAgents are the agents as package sign takes them, in the same order.
func (c *Config) SignAgents() []sign.Agent {
	out := make([]sign.Agent, 0, len(c.Agents))
	for _, a := range c.Agents {
		out = append(out, sign.Agent{
			Name: a.Name, SignatureAgent: a.SignatureAgent, KeyFile: a.KeyFile, PublishKeyFiles: a.PublishKeys,
			Token: a.ProductToken, UserAgent: a.UserAgent, InfoURL: a.InfoURL, Contact: a.Contact, Purposes: a.Purposes,
		})
	}
	return out
}
